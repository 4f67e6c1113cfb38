"""The output of `captioner data check`: the findings as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from captioner.data.check import Findings, SplitFindings
from captioner.data.cost import GRIDS, DecoderCost, GridCost, readable

_EXAMPLES = 3


def as_json(findings: Findings, *, allow_missing: bool, decoder: DecoderCost, grids: Sequence[GridCost] = GRIDS) -> Any:
    """All findings, with every file and caption."""
    content = dataclasses.asdict(findings)
    content["images"], content["captions"] = findings.images, findings.captions
    content["problems"] = findings.problems(allow_missing=allow_missing)
    content["features"] = [
        {**dataclasses.asdict(grid), "bytes_per_image": grid.bytes(), "bytes": grid.bytes() * findings.images}
        for grid in grids
    ]
    content["training"] = {
        **dataclasses.asdict(decoder),
        "parameters": decoder.parameters(),
        "state_bytes": decoder.state_bytes(),
        "step_bytes": decoder.step_bytes(),
    }
    return content


def as_text(findings: Findings, *, allow_missing: bool, decoder: DecoderCost, grids: Sequence[GridCost] = GRIDS) -> str:
    """Counts, then findings with a few examples each, then costs, then the verdict."""
    lines = [
        f"{findings.name}: {findings.images:,} images, {findings.captions:,} captions, "
        f"{readable(findings.picture_bytes)} of pictures",
        f"pictures: {'every pixel decoded' if findings.decoded else 'headers read (--decode decodes every pixel)'}",
        "",
        *_table(findings.splits),
    ]
    lines += _findings(findings)
    lines += [
        "",
        f"vocabulary of {findings.vocabulary_split}: {findings.vocabulary_size:,} words including 4 special ones, "
        f"minimum count {findings.minimum_count}; {findings.vocabulary_dropped:,} rarer words become <unk>",
        *(
            f"  unknown in {split.name}: {split.unknown_words:.2%} of the words, "
            f"{split.captions_with_unknown:.2%} of the captions"
            for split in findings.splits
        ),
        "",
        f"disk for features, float16, {findings.images:,} images (twice as much with mirror images):",
        *(
            f"  {f'{grid.rows}x{grid.cols}x{grid.channels}':<10} {readable(grid.bytes()):>8} per image "
            f"{readable(grid.bytes() * findings.images):>9}  {grid.name}"
            for grid in grids
        ),
        f"memory for training, estimated for {decoder.images} images with {decoder.captions} captions per step:",
        f"  {readable(decoder.state_bytes()):>8}  {decoder.parameters():,} weights of the decoder, their gradients "
        "and Adam's moments",
        f"  {readable(decoder.step_bytes()):>8}  activations of a step; a trained tail of the encoder adds to it",
        "  features are read from disk: they use free memory but need none",
        "",
    ]
    problems = findings.problems(allow_missing=allow_missing)
    lines += [f"error: {problem}" for problem in problems] or ["ready for training: no problems found"]
    return "\n".join(lines)


def _table(splits: Iterable[SplitFindings]) -> list[str]:
    header = ("split", "images", "captions", "per image", "words", "missing", "unreadable", "no caption")
    rows = [header]
    for split in splits:
        rows.append(
            (
                split.name,
                f"{split.images:,}",
                f"{split.captions:,}",
                _span(split.captions_per_image),
                _span(split.words_per_caption),
                f"{len(split.missing):,}",
                f"{len(split.unreadable):,}",
                f"{len(split.uncaptioned):,}",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _span(counts: tuple[int, float, int]) -> str:
    minimum, mean, maximum = counts
    return f"{minimum}..{maximum} ({mean:.1f})" if minimum != maximum else str(minimum)


def _findings(findings: Findings) -> list[str]:
    lines = []
    for split in findings.splits:
        entries = [
            *_listed("missing images", split.missing),
            *_listed("unreadable images", [f"{file}: {reason}" for file, reason in split.unreadable]),
            *_listed("images without captions", split.uncaptioned),
            *_listed("empty captions", [f"image {image}: {text!r}" for image, text in split.empty_captions]),
            *_listed(
                f"captions of more than {findings.max_length} words",
                [f"image {image}: {text[:70]}…" for image, text in split.long_captions],
            ),
        ]
        if split.repeated_captions:
            entries.append(f"  captions that repeat one of the same image: {split.repeated_captions:,}")
        if split.shared_captions:
            entries.append(f"  captions that another image has too: {split.shared_captions:,}")
        if entries:
            lines += ["", f"{split.name}:", *entries]
    duplicates = _listed("groups of files with the same content", [" = ".join(g) for g in findings.duplicate_images])
    if duplicates:
        lines += ["", "duplicate images:", *duplicates]
    for overlap in findings.overlaps:
        lines += [
            "",
            f"overlap between {overlap.splits[0]} and {overlap.splits[1]}:",
            *_listed("images in both", overlap.same_file),
            *_listed("files with the same content", [f"{a} = {b}" for a, b in overlap.same_content]),
        ]
    if findings.notes:
        lines += ["", *(f"note: {note}" for note in findings.notes)]
    return lines


def _listed(title: str, examples: Sequence[str]) -> list[str]:
    if not examples:
        return []
    shown = [f"    {example}" for example in examples[:_EXAMPLES]]
    if len(examples) > _EXAMPLES:
        shown.append(f"    … and {len(examples) - _EXAMPLES:,} more (--json lists all)")
    return [f"  {title}: {len(examples):,}", *shown]
