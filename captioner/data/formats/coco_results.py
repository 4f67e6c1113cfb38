"""COCO's files for scoring: results (a list of image_id and caption) and references (a list of annotations)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.data.formats.text_files import read_json
from captioner.errors import CaptionerError


@dataclass(frozen=True)
class Pairing:
    """Results and references of the same images, and the images that only one of the files has."""

    results: dict[str, str]
    references: dict[str, list[str]]
    without_references: list[str]
    without_results: list[str]


def read_results(file: Path) -> dict[str, str]:
    """The caption of each image in a file of COCO's results format."""
    content = read_json(file)
    if not isinstance(content, list):
        raise CaptionerError(
            f"{file}: not in COCO's results format, a list of {{image_id, caption}}; it contains {_kind(content)}."
        )
    if not content:
        raise CaptionerError(f"{file}: no results, the list is empty.")
    pairs = _pairs(content, file, "result")
    counts = Counter(image for image, _ in pairs)
    repeated = [image for image, count in counts.items() if count > 1]
    if repeated:
        raise CaptionerError(
            f"{file}: {_number(repeated, 'image')} with more than one result "
            f"({_examples(repeated)}); give one result per image."
        )
    return dict(pairs)


def read_references(file: Path) -> dict[str, list[str]]:
    """The captions of each image in a file of COCO's captions format."""
    content = read_json(file)
    if not isinstance(content, dict) or not isinstance(content.get("annotations"), list):
        raise CaptionerError(
            f"{file}: not in COCO's captions format, an object with a list of `annotations`; it contains "
            f"{_kind(content)}."
        )
    if not content["annotations"]:
        raise CaptionerError(f"{file}: no references, the list of annotations is empty.")
    references: dict[str, list[str]] = {}
    for image, caption in _pairs(content["annotations"], file, "annotation"):
        references.setdefault(image, []).append(caption)
    return references


def pair(results: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> Pairing:
    """Match results and references by image, in the order of the results."""
    scored = [image for image in results if image in references]
    return Pairing(
        {image: results[image] for image in scored},
        {image: list(references[image]) for image in scored},
        [image for image in results if image not in references],
        [image for image in references if image not in results],
    )


def pair_systems(
    systems: Sequence[tuple[Path, Mapping[str, str]]], references: Mapping[str, Sequence[str]], references_file: Path
) -> list[tuple[Path, Pairing]]:
    """Match the results of one or more systems with the references. All systems must have the same images."""
    pairings = [(file, pair(results, references)) for file, results in systems]
    for file, pairing in pairings:
        if not pairing.results:
            raise CaptionerError(
                f"no image of {file} ({len(pairing.without_references):,} results) has references in "
                f"{references_file} ({len(references):,} images): give files of the same data set"
            )
    first, *others = (pairing.results for _, pairing in pairings)
    for other in others:
        differing = len(first.keys() ^ other.keys())
        if differing:
            raise CaptionerError(
                f"two systems can only be compared on the same images: {differing:,} images have a result in "
                f"only one of {' and '.join(str(file) for file, _ in pairings)}"
            )
        # The paired bootstrap needs all systems in the same order of images.
        other.update({image: other.pop(image) for image in first})
    return pairings


def mismatches(pairing: Pairing) -> list[str]:
    """One sentence for results without references and one for references without results, with counts."""
    sentences = []
    if pairing.without_references:
        images = pairing.without_references
        sentences.append(f"{_number(images, 'result')} of images without references ({_examples(images)})")
    if pairing.without_results:
        images = pairing.without_results
        sentences.append(f"{_number(images, 'image')} with references but without a result ({_examples(images)})")
    return sentences


def _pairs(entries: list[Any], file: Path, kind: str) -> list[tuple[str, str]]:
    """(image, caption) of every entry. One error covers all entries without them."""
    pairs, invalid = [], []
    for position, entry in enumerate(entries):
        image = entry.get("image_id") if isinstance(entry, dict) else None
        caption = entry.get("caption") if isinstance(entry, dict) else None
        if isinstance(image, (int, str)) and not isinstance(image, bool) and isinstance(caption, str):
            pairs.append((str(image), caption))
        else:
            invalid.append(position)
    if invalid:
        raise CaptionerError(
            f"{file}: {len(invalid)} of {len(entries)} {kind}s without an image_id (a number or text) and a "
            f"caption (text), the first at position {invalid[0]}: {json.dumps(entries[invalid[0]])[:100]}"
        )
    return pairs


def _kind(content: Any) -> str:
    if isinstance(content, dict):
        return f"an object with the keys {', '.join(list(content)[:5]) or '(none)'}"
    return f"a list of {len(content)}" if isinstance(content, list) else f"a {type(content).__name__}"


def _number(images: Sequence[str], noun: str) -> str:
    return f"{len(images):,} {noun}{'' if len(images) == 1 else 's'}"


def _examples(images: Sequence[str]) -> str:
    return ", ".join(images[:3]) + (", …" if len(images) > 3 else "")
