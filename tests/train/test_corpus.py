"""The plan of an epoch: every image once, no caption twice, a function of (seed, epoch), little padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioner.data.caption_set import CaptionSet, Item
from captioner.errors import CaptionerError
from captioner.text.vocabulary import Vocabulary
from captioner.train.corpus import Batch, Corpus, padded_arrays, plan_epoch

WORDS = ["one", "two", "three", "four"]
VOCABULARY = Vocabulary(("<pad>", "<start>", "<end>", "<unk>", *WORDS))


def corpus(counts: list[int], lengths: list[int] | None = None, seed: int = 0) -> Corpus:
    """One image per entry of `counts`, with that many captions, of random lengths unless given."""
    captions = sum(counts)
    sizes = np.array(lengths) if lengths is not None else np.random.default_rng(seed).integers(5, 20, captions)
    start = np.concatenate([[0], np.cumsum(sizes)])
    return Corpus(np.full(start[-1], 4, np.int32), start, np.concatenate([[0], np.cumsum(counts)]))


def realistic(images: int, captions: int) -> Corpus:
    """Lengths like those of COCO: 10.5 words on average, some very long, similar within an image."""
    rng = np.random.default_rng(0)
    centre = rng.normal(0, 0.10, images).repeat(captions)
    lengths = np.clip(np.round(np.exp(np.log(10.2) + centre + rng.normal(0, 0.20, images * captions))), 6, 20)
    assert 10 < lengths.mean() < 11
    return corpus([captions] * images, lengths.astype(int).tolist())


def make(which: Corpus, **how: Any) -> list[Batch]:
    return plan_epoch(which, **{"images": 8, "captions": 5, "seed": 1, "epoch": 0, **how})


def test_an_epoch_has_every_image_once_with_different_captions_of_its_own() -> None:
    counts = [*np.random.default_rng(1).integers(1, 8, 150).tolist(), 0]
    whole = corpus(counts)
    for epoch in range(3):
        batches = make(whole, epoch=epoch)
        seen = np.concatenate([batch.images for batch in batches])
        assert sorted(seen) == list(range(150))  # the last image has no caption
        for batch in batches:
            for image, captions in zip(batch.images, batch.captions, strict=True):
                assert len(set(captions)) == len(captions) == min(5, counts[image])
                assert all(whole.image_starts[image] <= c < whole.image_starts[image + 1] for c in captions)


def test_captions_are_sampled_evenly_over_epochs() -> None:
    whole = corpus([6] * 20)
    captions = np.concatenate(
        [batch.captions.ravel() for e in range(200) for batch in make(whole, captions=2, epoch=e)]
    )
    times = np.bincount(captions, minlength=120)
    assert times.sum() == 200 * 20 * 2
    assert 35 < times.min() <= times.max() < 105  # 66.7 expected, standard deviation 6.7


def test_the_longest_caption_of_an_image_is_first() -> None:
    whole = corpus([5] * 40)
    lengths = np.diff(whole.caption_starts)
    for batch in make(whole):
        assert (np.diff(lengths[batch.captions], axis=1) <= 0).all()


def same(one: list[Batch], other: list[Batch]) -> bool:
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(a.images, b.images) and np.array_equal(a.captions, b.captions) for a, b in pairs)


def test_a_plan_depends_only_on_seed_and_epoch() -> None:
    whole = corpus([3, 5, 7] * 30)
    np.random.default_rng().random()
    assert same(make(whole, epoch=4), make(whole, epoch=4))
    assert not same(make(whole, epoch=4), make(whole, epoch=5))
    assert not same(make(whole, epoch=4), make(whole, epoch=4, seed=2))


def test_batches_with_long_and_short_captions_are_mixed_in_an_epoch() -> None:
    """Sorting by length must not order the whole epoch from short captions to long ones."""
    whole = realistic(1600, 5)
    lengths = np.diff(whole.caption_starts)
    means = np.array([lengths[batch.captions].mean() for batch in make(whole, images=32)])
    assert means.std() > 1  # captions of one batch have similar lengths
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.35


def work(batches: list[Batch], lengths: Any) -> float:
    """Rows that the decoder computes for the batches: it drops a column when all captions in it have ended."""
    computed = 0
    for batch in batches:
        tall = lengths[batch.captions] + 1  # with the end token
        for t in range(int(tall.max())):
            computed += len(batch.images) * (int((tall > t).any(0).nonzero()[0].max()) + 1)
    return float(computed)


def test_few_rows_are_padding() -> None:
    """With five captions per image, 12.4 % of the rows are padding on COCO; in shuffled batches 41 % are."""
    whole = realistic(6400, 5)
    lengths = np.diff(whole.caption_starts)
    words = float((lengths + 1).sum())
    batches = make(whole, images=32)
    padding = 1 - words / work(batches, lengths)
    order = np.random.default_rng(0).permutation(6400)
    plain = [Batch(part, whole.image_starts[part][:, None] + np.arange(5)) for part in order.reshape(-1, 32)]
    assert padding < 0.15
    assert padding < 0.6 * (1 - words / work(plain, lengths))


def test_images_with_few_captions_are_in_larger_separate_batches() -> None:
    batches = make(corpus([5] * 32 + [1] * 32))
    assert sorted(batch.captions.shape for batch in batches) == [(8, 5)] * 4 + [(16, 1)] * 2


@pytest.mark.parametrize("captions", [2, 5])
def test_images_with_too_few_references_are_left_out(captions: int) -> None:
    batches = make(corpus([1, 3, 5] * 10), captions=captions, references=3)
    seen = np.concatenate([batch.images for batch in batches])
    assert sorted(seen) == [i for i in range(30) if i % 3]


@pytest.mark.parametrize("world", [2, 3])
def test_the_parts_of_the_processes_are_equal_in_size_and_make_up_the_batch(world: int) -> None:
    whole = corpus([5] * 50)
    batches = make(whole, images=8, world_size=world)
    for batch in batches:
        parts = [batch.for_process(rank, world) for rank in range(world)]
        assert len({len(part.images) for part in parts}) == 1
        assert sorted(np.concatenate([part.images for part in parts])) == sorted(batch.images)
        assert sorted(np.concatenate([part.captions for part in parts]).ravel()) == sorted(batch.captions.ravel())
    assert 50 - world < sum(len(batch.images) for batch in batches) <= 50


def test_two_processes_have_the_same_batches_as_one() -> None:
    assert same(make(corpus([5] * 48), world_size=1), make(corpus([5] * 48), world_size=2))


def test_more_processes_than_images_per_batch_is_an_error() -> None:
    with pytest.raises(CaptionerError, match=r"training\.images=1 is less than the number of processes, 2"):
        make(corpus([5] * 8), images=1, world_size=2)


def test_captions_become_numbers_long_ones_are_cut_and_empty_ones_left_out() -> None:
    items = (
        Item(1, Path("a"), ("One two!", "...", "three"), "train"),
        Item(2, Path("b"), ("one two three four one", "other"), "train"),
    )
    whole = Corpus.of(CaptionSet("x", items), VOCABULARY, 3)
    assert len(whole) == 2
    assert whole.captions_of(0) == [[4, 5], [6]]
    assert whole.captions_of(1) == [[4, 5, 6], [3]]


def test_inputs_begin_with_start_and_targets_end_with_end() -> None:
    inputs, targets, lengths = padded_arrays([[[4, 5], [6]], [[7, 4, 5], []]], VOCABULARY)
    pad, start, end = VOCABULARY.pad, VOCABULARY.start, VOCABULARY.end
    assert inputs.tolist() == [
        [[start, 4, 5, pad], [start, 6, pad, pad]],
        [[start, 7, 4, 5], [start, pad, pad, pad]],
    ]
    assert targets.tolist() == [[[4, 5, end, pad], [6, end, pad, pad]], [[7, 4, 5, end], [end, pad, pad, pad]]]
    assert lengths.tolist() == [[3, 2], [4, 1]]
