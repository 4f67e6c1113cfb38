"""Sections of a model card, by their headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path


def replace_section(card: str, title: str, lines: Iterable[str], *, after: str | None = None) -> str:
    """Replace the text below a heading, up to the next heading.

    If the card has no such section, it is added behind the section `after`, or at the end.
    """
    text = "\n".join(lines)
    parts = re.split(r"(?m)^## (.+)\n", card)  # what is before the first heading, then titles and texts in turn
    titles = parts[1::2]
    if title in titles:
        parts[2 * titles.index(title) + 2] = f"\n{text}\n\n"
    else:
        at = 2 * titles.index(after) + 3 if after in titles else len(parts)
        parts[at:at] = [title, f"\n{text}\n\n"]
    sections = (f"## {title}\n{text}" for title, text in zip(parts[1::2], parts[2::2], strict=True))
    return (parts[0] + "".join(sections)).rstrip() + "\n"


def curve_lines(docs: Path, name: str, runs: list[Path]) -> Iterator[str]:
    """The learning curve with its log, and the command that draws it; nothing if there is no picture."""
    curve, log = docs / "pictures" / f"curve-{name}.svg", docs / "logs" / f"{name}.jsonl"
    if not curve.is_file():
        return
    picture = f"docs/pictures/{curve.name}"
    yield from ("", f"![Learning curves: likelihood, reward, BLEU-4 and CIDEr over epochs](../../{picture})", "")
    chain = "--chain " if len(runs) > 1 else ""
    if log.is_file():
        source = f"docs/logs/{log.name}"
        yield f"[The log](../../{source}), in which a row is a mean over many steps or a validation, is drawn by:"
    else:
        source = " ".join(f"runs/{run.name}" for run in runs)
        yield "Drawn by:"
    yield from ("", "```sh", f"scripts/draw_learning_curve {chain}{picture} {source}", "```")
