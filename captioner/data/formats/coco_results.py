"""COCO's files for scoring: results (a list of image_id and caption) and references (annotations of the same)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.errors import CaptionerError


@dataclass(frozen=True)
class Pairing:
    """Results and references of the same images, and the images that only one of the files knows."""

    results: dict[str, str]
    references: dict[str, list[str]]
    without_references: list[str]
    without_results: list[str]


def read_results(file: Path) -> dict[str, str]:
    """The caption of each image in a file of COCO's results format."""
    content = _json(file)
    if not isinstance(content, list):
        raise CaptionerError(
            f"{file}: not in COCO's results format, a list of {{image_id, caption}}; it holds {_kind(content)}."
        )
    if not content:
        raise CaptionerError(f"{file}: holds no results, only an empty list.")
    pairs = _pairs(content, file, "result")
    counts = Counter(image for image, _ in pairs)
    twice = [image for image, count in counts.items() if count > 1]
    if twice:
        raise CaptionerError(
            f"{file}: {_number(twice, 'image')} with more than one result "
            f"({_some(twice)}); one caption is scored for each image."
        )
    return dict(pairs)


def read_references(file: Path) -> dict[str, list[str]]:
    """The captions of each image in a file of COCO's captions format."""
    content = _json(file)
    if not isinstance(content, dict) or not isinstance(content.get("annotations"), list):
        raise CaptionerError(
            f"{file}: not in COCO's captions format, an object with a list of `annotations`; it holds {_kind(content)}."
        )
    if not content["annotations"]:
        raise CaptionerError(f"{file}: holds no references, its list of annotations is empty.")
    references: dict[str, list[str]] = {}
    for image, caption in _pairs(content["annotations"], file, "annotation"):
        references.setdefault(image, []).append(caption)
    return references


def pair(results: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> Pairing:
    """Put results and references of the same image together, in the order of the results."""
    scored = [image for image in results if image in references]
    return Pairing(
        {image: results[image] for image in scored},
        {image: list(references[image]) for image in scored},
        [image for image in results if image not in references],
        [image for image in references if image not in results],
    )


def mismatches(pairing: Pairing) -> list[str]:
    """A sentence for each kind of image that can't be scored, with its count."""
    sentences = []
    if pairing.without_references:
        images = pairing.without_references
        sentences.append(f"{_number(images, 'result')} of images without references ({_some(images)})")
    if pairing.without_results:
        images = pairing.without_results
        sentences.append(f"{_number(images, 'image')} with references but without a result ({_some(images)})")
    return sentences


def _json(file: Path) -> Any:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CaptionerError(f"{file}: can't be read ({error.strerror or error}).") from None
    except UnicodeDecodeError as error:
        raise CaptionerError(f"{file}: not UTF-8 text (at byte {error.start}).") from None
    if not text.strip():
        raise CaptionerError(f"{file}: the file is empty.")
    try:
        return json.loads(text)
    except RecursionError:
        raise CaptionerError(f"{file}: broken JSON (nested too deeply).") from None
    except ValueError as error:
        raise CaptionerError(f"{file}: broken JSON ({error}).") from None


def _pairs(entries: list[Any], file: Path, kind: str) -> list[tuple[str, str]]:
    """(image, caption) of every entry; one error for all the entries that have none."""
    pairs, wrong = [], []
    for position, entry in enumerate(entries):
        image = entry.get("image_id") if isinstance(entry, dict) else None
        caption = entry.get("caption") if isinstance(entry, dict) else None
        if isinstance(image, (int, str)) and not isinstance(image, bool) and isinstance(caption, str):
            pairs.append((str(image), caption))
        else:
            wrong.append(position)
    if wrong:
        raise CaptionerError(
            f"{file}: {len(wrong)} of {len(entries)} {kind}s without an image_id (a number or text) and a "
            f"caption (text), the first at position {wrong[0]}: {json.dumps(entries[wrong[0]])[:100]}"
        )
    return pairs


def _kind(content: Any) -> str:
    if isinstance(content, dict):
        return f"an object with the keys {', '.join(list(content)[:5]) or '(none)'}"
    return f"a list of {len(content)}" if isinstance(content, list) else f"a {type(content).__name__}"


def _number(images: Sequence[str], noun: str) -> str:
    return f"{len(images):,} {noun}{'' if len(images) == 1 else 's'}"


def _some(images: Sequence[str]) -> str:
    return ", ".join(images[:3]) + (", …" if len(images) > 3 else "")
