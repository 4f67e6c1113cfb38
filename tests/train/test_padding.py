"""Training steps do almost no work for padding: rows of the recurrence are counted, not timed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from captioner.model.attention.output import AttentionOutput
from captioner.model.caption_decoder import CaptionDecoder, Tensors
from captioner.model.decoder import Decoder
from captioner.text.vocabulary import SPECIAL, Vocabulary
from captioner.train.corpus import Corpus, padded_arrays, plan_epoch
from captioner.train.self_critical import sample_captions
from tests.model.tiny_models import make_decoder

VOCABULARY = Vocabulary((*SPECIAL, "word"))
WORD = len(SPECIAL)
IMAGES, CAPTIONS, CELLS = 32, 5, 2


def coco_like_lengths(images: int) -> NDArray[np.int64]:
    """Words of five captions per image, without the end token.

    COCO's have 7 to 20, mostly 9, and 10.4 on average, with a standard deviation of 1.1 between the means of images and
    of 2.0 within an image.
    """
    rng = np.random.default_rng(1)
    of_images = rng.gamma(3, 0.4, (images, 1))
    return np.clip(np.round(6.6 + of_images + rng.gamma(1.6, 1.6, (images, CAPTIONS))), 7, 20).astype(np.int64)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The rows of each step of the recurrence."""
    counted: list[int] = []
    real = Decoder.recurrence

    def recurrence(self: Decoder, shared: Tensors, own: Tensors, word: Tensor, choice: Any) -> Any:
        counted.append(word.shape[0] * word.shape[1])
        return real(self, shared, own, word, choice)

    monkeypatch.setattr(Decoder, "recurrence", recurrence)
    yield counted


def read(decoder: Decoder, captions: list[list[list[int]]]) -> int:
    """Run the teacher-forced pass over a batch, and return its number of words, end tokens included."""
    inputs, targets, lengths = (torch.from_numpy(array) for array in padded_arrays(captions, VOCABULARY))
    with torch.no_grad():
        forced = decoder(torch.zeros(len(captions), CELLS, 5, dtype=torch.float64), inputs, targets, lengths)
    return len(forced.targets)


def test_the_teacher_forced_pass_computes_few_rows_for_padding(rows: list[int]) -> None:
    lengths = coco_like_lengths(50 * IMAGES).ravel()
    corpus = Corpus(
        words=np.full(lengths.sum(), WORD, np.int32),
        caption_starts=np.concatenate([[0], lengths.cumsum()]),
        image_starts=np.arange(0, len(lengths) + 1, CAPTIONS),
    )
    decoder, words, padded = make_decoder(words=len(VOCABULARY)), 0, 0
    for batch in plan_epoch(corpus, images=IMAGES, captions=CAPTIONS, seed=0, epoch=0):
        captions = [[corpus.caption(number).tolist() for number in row] for row in batch.captions]
        words += read(decoder, captions)
        padded += max(len(caption) + 1 for row in captions for caption in row) * batch.captions.size
    assert words == lengths.sum() + len(lengths)
    assert padded > 1.4 * words
    assert sum(rows) <= 1.08 * words


class Talker(CaptionDecoder):
    """Ends a caption about when its image, whose annotation is a number of words, suggests. Counts rows."""

    def __init__(self) -> None:
        super().__init__(make_decoder().settings, 1)
        self.rows = 0

    def begin(self, annotations: Tensor) -> tuple[Tensors, Tensors]:
        return {"length": annotations[..., 0]}, {"time": torch.zeros_like(annotations)}

    def step(self, shared: Tensors, own: Tensors, words: Tensor, **_: Any) -> tuple[Tensor, Tensors, AttentionOutput]:
        self.rows += words.numel()
        logits = torch.full((*words.shape, len(VOCABULARY)), -torch.inf)
        logits[..., WORD] = 0.0
        logits[..., VOCABULARY.end] = 2.0 * (own["time"][..., 0] - shared["length"])
        return logits, {"time": own["time"] + 1}, AttentionOutput(logits, logits[..., 0])


def test_sampling_and_the_pass_over_the_samples_compute_few_rows_for_captions_that_have_ended(rows: list[int]) -> None:
    """Samples at a temperature of 0.6 have 9 words on average."""
    talker, decoder, generator = Talker(), make_decoder(words=len(VOCABULARY)), torch.Generator().manual_seed(0)
    lengths: list[NDArray[np.int64]] = []
    for _ in range(10):
        suggested = 8.7 + 0.85 * torch.randn(IMAGES, 1, 1, generator=generator)
        captions, _ = sample_captions(
            talker, suggested, VOCABULARY, captions=CAPTIONS, max_length=18, generator=generator
        )
        lengths.append(np.array([[len(caption) + 1 for caption in row] for row in captions]))
        assert read(decoder, [sorted(row, key=len, reverse=True) for row in captions]) == lengths[-1].sum()
    words, padded = sum(batch.sum() for batch in lengths), sum(batch.max() * batch.size for batch in lengths)
    assert words / len(lengths) / IMAGES / CAPTIONS == pytest.approx(10.0, abs=0.2)
    assert padded > 1.25 * words
    assert talker.rows <= 1.1 * words
    assert sum(rows) <= 1.1 * words
