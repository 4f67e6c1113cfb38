"""Check a data set before training: missing and damaged pictures, duplicates, leaks between splits, unknown words."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from captioner.data.caption_set import CaptionSet, Item, combine
from captioner.data.picture_files import PictureFindings, inspect_pictures
from captioner.data.split import VALIDATION, divide
from captioner.errors import CaptionerError
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import SPECIAL, Vocabulary


@dataclass(frozen=True)
class SplitFindings:
    """The findings of one split. Images are listed as files, captions as (id of the image, text)."""

    name: str
    images: int
    captions: int
    captions_per_image: tuple[int, float, int]  # minimum, mean, maximum
    words_per_caption: tuple[int, float, int]
    missing: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]  # file, reason
    uncaptioned: tuple[str, ...]
    empty_captions: tuple[tuple[str, str], ...]
    long_captions: tuple[tuple[str, str], ...]
    repeated_captions: int  # equal to an earlier caption of the same image, after tokenizing
    shared_captions: int  # equal to a caption of another image of the split
    unknown_words: float  # share of the words that are not in the vocabulary
    captions_with_unknown: float  # share of the captions with such a word


@dataclass(frozen=True)
class Overlap:
    """Pictures that two splits share: the same file, or another file with the same content."""

    splits: tuple[str, str]
    same_file: tuple[str, ...]
    same_content: tuple[tuple[str, str], ...]  # a file of the first, a file of the second


@dataclass(frozen=True)
class Findings:
    """All findings about a set."""

    name: str
    splits: tuple[SplitFindings, ...]
    empty_splits: tuple[str, ...]
    duplicate_images: tuple[tuple[str, ...], ...]  # groups of files with the same content
    overlaps: tuple[Overlap, ...]  # only pairs of splits that share pictures
    vocabulary_split: str
    vocabulary_size: int
    vocabulary_dropped: int  # words of that split below the minimum count
    minimum_count: int
    max_length: int
    decoded: bool
    picture_bytes: int
    notes: tuple[str, ...]
    indivisible: str | None  # why no val split can be split off, where there is none

    @property
    def images(self) -> int:
        return sum(split.images for split in self.splits)

    @property
    def captions(self) -> int:
        return sum(split.captions for split in self.splits)

    def problems(self, *, allow_missing: bool = False) -> list[str]:
        """One sentence for each problem that prevents training."""
        problems = []
        for split in self.splits:
            if split.missing and not allow_missing:
                problems.append(
                    f"{split.name}: {len(split.missing):,} of {split.images:,} images are missing; "
                    "add them, or give --allow-missing to continue without them"
                )
            if split.unreadable:
                problems.append(f"{split.name}: {len(split.unreadable):,} images can't be read; replace or delete them")
            if split.images and len(split.uncaptioned) == split.images:
                problems.append(f"{split.name}: none of its {split.images:,} images has a caption")
        problems += [f"{split}: the split is empty" for split in self.empty_splits]
        for overlap in self.overlaps:
            if overlap.same_file and set(overlap.splits) == {"train", "val"}:
                problems.append(
                    f"train and val share {len(overlap.same_file):,} images, for example {overlap.same_file[0]}; "
                    "remove them from one of the two"
                )
        if self.indivisible is not None:
            problems.append(f"there is no val split, and none can be split off: {self.indivisible}")
        return problems


def check(
    captions: CaptionSet,
    *,
    splits: Sequence[str] = (),
    minimum_count: int = 5,
    max_length: int = 40,
    decode: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Findings:
    """Read every caption and open every picture of the named splits, or of all splits.

    The vocabulary is always that of the training split. A check of val alone gives the same share of unknown words.
    """
    if not captions.items:
        raise CaptionerError(f"{captions.name} has no images")
    notes = captions.notes
    divides = "train" in captions.splits and "val" not in captions.splits and not splits
    vocabulary_source = captions.split("train" if "train" in captions.splits else captions.splits[0])
    if splits:
        captions = combine([captions.split(name) for name in dict.fromkeys(splits)], name=captions.name)
    distinct = dict.fromkeys(itertools.chain(vocabulary_source.captions(), captions.captions()))
    tokens = {caption: tuple(tokenize(caption)) for caption in distinct}
    counts = Counter(token for caption in vocabulary_source.captions() for token in tokens[caption])
    vocabulary = Vocabulary.build(vocabulary_source.captions(), minimum_count=minimum_count)
    pictures = inspect_pictures((item.path for item in captions), decode=decode, progress=progress)
    indivisible = _indivisible(captions, pictures) if divides else None
    if divides and indivisible is None:
        notes += (
            f"there is no val split; `data.val: {VALIDATION}` in a config splits one off, "
            "`captioner data split` writes it",
        )
    if distinct and len(vocabulary) == len(SPECIAL):
        notes += (
            f"no word of {vocabulary_source.items[0].split} occurs {minimum_count} times: a model that is trained from "
            "scratch needs a lower data.minimum_count (--min-count here), one that is trained further has its own "
            "vocabulary",
        )
    return Findings(
        name=captions.name,
        splits=tuple(
            _split(captions.split(name), tokens, vocabulary, pictures, max_length) for name in captions.splits
        ),
        empty_splits=captions.empty,
        duplicate_images=tuple(tuple(map(str, group)) for group in pictures.same),
        overlaps=_overlaps(captions, pictures),
        vocabulary_split=vocabulary_source.items[0].split,
        vocabulary_size=len(vocabulary),
        vocabulary_dropped=sum(count < minimum_count for count in counts.values()),
        minimum_count=minimum_count,
        max_length=max_length,
        decoded=pictures.decoded,
        picture_bytes=pictures.bytes,
        notes=notes,
        indivisible=indivisible,
    )


def _indivisible(captions: CaptionSet, pictures: PictureFindings) -> str | None:
    """Why training, which splits validation pictures off, would refuse the set."""
    missing = set(pictures.missing)
    items = [item for item in captions.split("train") if item.captions and item.path not in missing]
    try:
        divide(items, {"val": VALIDATION}, seed=0)
    except CaptionerError as error:
        return str(error) if items else None  # without captions or files, that is the problem
    return None


def _split(
    part: CaptionSet,
    tokens: dict[str, tuple[str, ...]],
    vocabulary: Vocabulary,
    pictures: PictureFindings,
    max_length: int,
) -> SplitFindings:
    missing, unreadable = set(pictures.missing), dict(pictures.unreadable)
    pairs = [(item, caption) for item in part for caption in item.captions]
    lengths = [len(tokens[caption]) for _, caption in pairs]
    unknown = [sum(token not in vocabulary for token in tokens[caption]) for _, caption in pairs]
    repeated, shared = _duplicate_captions(part, tokens)
    return SplitFindings(
        name=part.items[0].split,
        images=len(part),
        captions=len(pairs),
        captions_per_image=_range([len(item.captions) for item in part]),
        words_per_caption=_range(lengths),
        missing=tuple(str(item.path) for item in part if item.path in missing),
        unreadable=tuple((str(item.path), unreadable[item.path]) for item in part if item.path in unreadable),
        uncaptioned=tuple(str(item.path) for item in part if not item.captions),
        empty_captions=tuple(_cite(item, text) for (item, text), n in zip(pairs, lengths, strict=True) if n == 0),
        long_captions=tuple(
            _cite(item, text) for (item, text), n in zip(pairs, lengths, strict=True) if n > max_length
        ),
        repeated_captions=repeated,
        shared_captions=shared,
        unknown_words=sum(unknown) / max(sum(lengths), 1),
        captions_with_unknown=sum(n > 0 for n in unknown) / max(len(pairs), 1),
    )


def _cite(item: Item, caption: str) -> tuple[str, str]:
    return str(item.id), caption


def _range(counts: list[int]) -> tuple[int, float, int]:
    return (min(counts), sum(counts) / len(counts), max(counts)) if counts else (0, 0.0, 0)


def _duplicate_captions(part: CaptionSet, tokens: dict[str, tuple[str, ...]]) -> tuple[int, int]:
    """Number of captions that repeat one of the same image, and that another image of the split has too."""
    repeated = 0
    images_of: Counter[tuple[str, ...]] = Counter()
    for item in part:
        tokenized = [tokens[caption] for caption in item.captions if tokens[caption]]
        distinct = set(tokenized)
        repeated += len(tokenized) - len(distinct)
        images_of.update(distinct)
    return repeated, sum(count for count in images_of.values() if count > 1)


def _overlaps(captions: CaptionSet, pictures: PictureFindings) -> tuple[Overlap, ...]:
    splits_of: dict[Path, set[str]] = defaultdict(set)
    for item in captions:
        splits_of[item.path].add(item.split)
    overlaps = []
    for first, second in itertools.combinations(captions.splits, 2):
        files = tuple(str(path) for path, splits in splits_of.items() if {first, second} <= splits)
        content = tuple(
            (str(a), str(b))
            for group in pictures.same
            for a, b in itertools.permutations(group, 2)
            if first in splits_of[a] and second in splits_of[b]
        )
        if files or content:
            overlaps.append(Overlap((first, second), files, content))
    return tuple(overlaps)
