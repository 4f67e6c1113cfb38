"""Deletion, on a model that is known to need one cell of the picture."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from captioner.caption import Caption, Word
from captioner.evaluation.deletion import deletion, most_attended, moved
from captioner.inference.backend import Annotations, State, Step
from captioner.inference.search import SearchOptions
from captioner.options import BackendLabel, HardAttention
from captioner.text.vocabulary import SPECIAL, Vocabulary

SIDE, GRID = 20, 5  # a tenth of 25 cells, rounded, is two


@dataclass
class NeedsTopLeft:
    """Says "dog" with 0.9 while the top left cell is white and with 0.3 otherwise, after any words."""

    vocabulary: Vocabulary = field(default_factory=lambda: Vocabulary((*SPECIAL, "a", "dog")))
    image_size: int = SIDE
    rows: int = GRID
    cols: int = GRID
    hard: bool = False
    one_by_one: bool = False
    name: BackendLabel = "onnx"
    encoded: int = 0

    def encode(self, pixels: np.ndarray, *, keys: bool = True) -> Annotations:
        self.encoded += len(pixels)
        cells = pixels.reshape(len(pixels), GRID, SIDE // GRID, GRID, SIDE // GRID, 3).mean((2, 4, 5))
        return Annotations(cells.reshape(len(pixels), -1, 1), GRID, GRID)

    def begin(self, annotations: Annotations, hard_attention: HardAttention | None = None, seed: int = 0) -> State:
        white = annotations.values[:, 0, 0] > 250
        return State({"white": white}, {"none": np.zeros((len(white), 1, 1))})

    def step(self, state: State, words: np.ndarray) -> Step:
        dog = np.where(state.shared["white"], 0.9, 0.3)[:, None]
        p = np.full((*words.shape, len(self.vocabulary)), 1e-9)
        p[:, :, self.vocabulary.index["dog"]] = dog
        p[:, :, self.vocabulary.index["a"]] = 1 - dog
        flat = np.full((*words.shape, GRID * GRID), 1 / GRID**2, np.float32)
        return Step(np.log(p).astype(np.float32), state, flat, np.ones(words.shape, np.float32))

    def select_hypotheses(self, state: State, parents: np.ndarray) -> State:
        return State(state.shared, {"none": np.zeros((*parents.shape, 1))})

    def select_images(self, state: State, images: np.ndarray) -> State:
        raise NotImplementedError


def picture() -> np.ndarray:
    pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
    pixels[:4, :4] = 255
    return pixels


def looking_at(*cells: tuple[int, int]) -> np.ndarray:
    alpha = np.zeros((GRID, GRID), np.float32)
    for cell in cells:
        alpha[cell] = 1 / len(cells)
    return alpha


def said(alpha: np.ndarray) -> Caption:
    return Caption((Word("a", -0.1, looking_at((0, 0))), Word("dog", -0.1, alpha)), None, -1.0)


def test_blanking_attended_cells_that_the_model_needs_lowers_the_probability() -> None:
    found = deletion(NeedsTopLeft(), [(picture(), said(looking_at((0, 0), (0, 1))))] * 40, SearchOptions())
    assert found is not None
    assert (found.images, found.words, found.share) == (40, 40, 2 / 25)  # "a" is no content word
    assert found.before.value == pytest.approx(0.9, abs=1e-6)
    assert found.attended.value == pytest.approx(0.6, abs=1e-6)
    # One of the 24 other positions of the pair covers the top left cell.
    assert 0 <= found.elsewhere.value < 0.2
    assert found.advantage.low > 0.3


def test_blanking_attended_cells_that_the_model_does_not_need_changes_nothing() -> None:
    found = deletion(NeedsTopLeft(), [(picture(), said(looking_at((3, 3), (3, 4))))] * 40, SearchOptions())
    assert found is not None
    assert found.attended.value == 0
    assert found.advantage.value <= 0


def test_a_caption_without_content_words_is_left_out() -> None:
    caption = Caption((Word("a", -0.1, looking_at((0, 0))),), None, -1.0)
    model = NeedsTopLeft()
    assert deletion(model, [(picture(), caption)], SearchOptions()) is None
    assert model.encoded == 0


def test_the_same_seed_blanks_the_same_cells() -> None:
    cases = [(picture(), said(looking_at((0, 0), (0, 1))))] * 30
    once, again, other = (deletion(NeedsTopLeft(), cases, SearchOptions(), seed=seed) for seed in (1, 1, 2))
    assert once == again
    assert once != other


def test_the_most_attended_tenth_is_covered() -> None:
    alpha = np.arange(100, dtype=np.float64).reshape(10, 10) / 4950
    assert np.flatnonzero(most_attended(alpha)).tolist() == list(range(90, 100))
    assert most_attended(np.array([[0.4, 0.6]])).tolist() == [[False, True]]


def test_a_moved_pattern_has_the_same_size_at_another_position() -> None:
    cover = most_attended(looking_at((1, 1), (1, 2)).astype(np.float64))
    for seed in range(50):
        other = moved(cover, np.random.default_rng(seed))
        assert other.sum() == cover.sum()
        assert (other != cover).any()
