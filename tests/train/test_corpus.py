"""The plan of an epoch: every image once, captions without repetition, from (seed, epoch) alone, little padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioner.data.caption_set import CaptionSet, Item
from captioner.errors import CaptionerError
from captioner.text.vocabulary import Vocabulary
from captioner.train.corpus import Corpus, StepPlan, plan, tensors

WORDS = ["one", "two", "three", "four"]
VOCABULARY = Vocabulary(("<pad>", "<start>", "<end>", "<unk>", *WORDS))


def corpus(counts: list[int], lengths: list[int] | None = None, seed: int = 0) -> Corpus:
    """Images with so many captions each, of random lengths unless given."""
    captions = sum(counts)
    sizes = np.array(lengths) if lengths is not None else np.random.default_rng(seed).integers(5, 20, captions)
    start = np.concatenate([[0], np.cumsum(sizes)])
    return Corpus(np.full(start[-1], 4, np.int32), start, np.concatenate([[0], np.cumsum(counts)]))


def realistic(images: int, captions: int) -> Corpus:
    """Lengths as COCO's captions have them: 10.5 words on average, a long tail, an image's captions alike."""
    rng = np.random.default_rng(0)
    centre = rng.normal(0, 0.10, images).repeat(captions)
    lengths = np.clip(np.round(np.exp(np.log(10.2) + centre + rng.normal(0, 0.20, images * captions))), 6, 20)
    assert 10 < lengths.mean() < 11
    return corpus([captions] * images, lengths.astype(int).tolist())


def make(which: Corpus, **how: Any) -> list[StepPlan]:
    return plan(which, **{"images": 8, "captions": 5, "seed": 1, "epoch": 0, **how})


def test_every_image_comes_once_an_epoch_with_its_own_captions_without_repetition() -> None:
    counts = [*np.random.default_rng(1).integers(1, 8, 150).tolist(), 0]
    whole = corpus(counts)
    for epoch in range(3):
        steps = make(whole, epoch=epoch)
        seen = np.concatenate([step.images for step in steps])
        assert sorted(seen) == list(range(150))  # the last image has no caption
        for step in steps:
            for image, captions in zip(step.images, step.captions, strict=True):
                assert len(set(captions)) == len(captions) == min(5, counts[image])
                assert all(whole.first[image] <= c < whole.first[image + 1] for c in captions)


def test_more_captions_than_asked_for_are_drawn_evenly_over_epochs() -> None:
    whole = corpus([6] * 20)
    drawn = np.concatenate([step.captions.ravel() for e in range(200) for step in make(whole, captions=2, epoch=e)])
    times = np.bincount(drawn, minlength=120)
    assert times.sum() == 200 * 20 * 2
    assert 35 < times.min() <= times.max() < 105  # 66.7 expected, standard deviation 6.7


def test_the_longest_caption_of_an_image_comes_first() -> None:
    whole = corpus([5] * 40)
    lengths = np.diff(whole.start)
    for step in make(whole):
        assert (np.diff(lengths[step.captions], axis=1) <= 0).all()


def same(one: list[StepPlan], other: list[StepPlan]) -> bool:
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(a.images, b.images) and np.array_equal(a.captions, b.captions) for a, b in pairs)


def test_a_plan_follows_from_seed_and_epoch_alone() -> None:
    whole = corpus([3, 5, 7] * 30)
    np.random.default_rng().random()
    assert same(make(whole, epoch=4), make(whole, epoch=4))
    assert not same(make(whole, epoch=4), make(whole, epoch=5))
    assert not same(make(whole, epoch=4), make(whole, epoch=4, seed=2))


def test_steps_of_different_lengths_are_mixed_over_an_epoch() -> None:
    """Bucketing must not turn an epoch into a way from short captions to long ones."""
    whole = realistic(1600, 5)
    lengths = np.diff(whole.start)
    means = np.array([lengths[step.captions].mean() for step in make(whole, images=32)])
    assert means.std() > 1  # steps are of like lengths inside
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.35


def work(steps: list[StepPlan], lengths: Any) -> float:
    """Rows that the decoder computes for the steps, by its own rule: columns end when all their captions have."""
    computed = 0
    for step in steps:
        tall = lengths[step.captions] + 1  # with the end token
        for t in range(int(tall.max())):
            computed += len(step.images) * (int((tall > t).any(0).nonzero()[0].max()) + 1)
    return float(computed)


def test_little_of_the_work_is_padding() -> None:
    """On the COCO captions with five an image it is 12.4 % of the rows, and 41 % in plain shuffled steps."""
    whole = realistic(6400, 5)
    lengths = np.diff(whole.start)
    words = float((lengths + 1).sum())
    steps = make(whole, images=32)
    padding = 1 - words / work(steps, lengths)
    order = np.random.default_rng(0).permutation(6400)
    plain = [StepPlan(part, whole.first[part][:, None] + np.arange(5)) for part in order.reshape(-1, 32)]
    assert padding < 0.15
    assert padding < 0.6 * (1 - words / work(plain, lengths))


def test_images_with_few_captions_make_larger_steps_of_their_own() -> None:
    steps = make(corpus([5] * 32 + [1] * 32))
    assert sorted(step.captions.shape for step in steps) == [(8, 5)] * 4 + [(16, 1)] * 2


@pytest.mark.parametrize("captions", [2, 5])
def test_images_with_too_few_references_are_left_out(captions: int) -> None:
    steps = make(corpus([1, 3, 5] * 10), captions=captions, references=3)
    seen = np.concatenate([step.images for step in steps])
    assert sorted(seen) == [i for i in range(30) if i % 3]


@pytest.mark.parametrize("world", [2, 3])
def test_the_processes_shares_make_up_the_step_and_are_of_one_size(world: int) -> None:
    whole = corpus([5] * 50)
    steps = make(whole, images=8, world_size=world)
    for step in steps:
        shares = [step.share(rank, world) for rank in range(world)]
        assert len({len(share.images) for share in shares}) == 1
        assert sorted(np.concatenate([share.images for share in shares])) == sorted(step.images)
        assert sorted(np.concatenate([share.captions for share in shares]).ravel()) == sorted(step.captions.ravel())
    assert 50 - world < sum(len(step.images) for step in steps) <= 50


def test_two_processes_have_the_steps_of_one() -> None:
    assert same(make(corpus([5] * 48), world_size=1), make(corpus([5] * 48), world_size=2))


def test_more_processes_than_images_a_step_is_an_error() -> None:
    with pytest.raises(CaptionerError, match=r"training\.images=1 is less than the number of processes, 2"):
        make(corpus([5] * 8), images=1, world_size=2)


def test_captions_become_numbers_cut_at_the_maximum_and_empty_ones_are_left_out() -> None:
    items = (
        Item(1, Path("a"), ("One two!", "...", "three"), "train"),
        Item(2, Path("b"), ("one two three four one", "other"), "train"),
    )
    whole = Corpus.of(CaptionSet("x", items), VOCABULARY, 3)
    assert len(whole) == 2
    assert whole.captions_of(0) == [[4, 5], [6]]
    assert whole.captions_of(1) == [[4, 5, 6], [3]]


def test_inputs_begin_with_start_and_targets_end_with_end() -> None:
    inputs, targets, lengths = tensors([[[4, 5], [6]], [[7, 4, 5], []]], VOCABULARY)
    pad, start, end = VOCABULARY.pad, VOCABULARY.start, VOCABULARY.end
    assert inputs.tolist() == [
        [[start, 4, 5, pad], [start, 6, pad, pad]],
        [[start, 7, 4, 5], [start, pad, pad, pad]],
    ]
    assert targets.tolist() == [[[4, 5, end, pad], [6, end, pad, pad]], [[7, 4, 5, end], [end, pad, pad, pad]]]
    assert lengths.tolist() == [[3, 2], [4, 1]]
