"""Sections of a model card, by their headings."""

from __future__ import annotations

import re
from collections.abc import Iterable


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
