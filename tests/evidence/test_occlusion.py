"""Occlusion with a model whose words are known functions of the picture."""

import numpy as np
import pytest

from captioner.evidence.curves import STEPS, curves
from captioner.evidence.occlusion import occlusion, windows, word_log_probabilities
from captioner.inference.backend import Annotations, State, Step
from captioner.options import BackendLabel, SearchOptions
from captioner.text.vocabulary import Vocabulary

ROWS, COLS, SIZE = 4, 4, 32
VOCABULARY = Vocabulary(("<pad>", "<start>", "<end>", "<unk>", "red", "habit"))
RED, HABIT = 4, 5


class RedInTheCorner:
    """A word "red", which needs a red upper left cell, and a word "habit" that ignores the picture."""

    vocabulary, image_size, rows, cols, hard = VOCABULARY, SIZE, ROWS, COLS, False
    name: BackendLabel = "onnx"
    one_by_one = False

    def encode(self, pixels, *, keys=True):
        cell = SIZE // ROWS
        red = pixels[:, :cell, :cell, 0].mean((1, 2)) / 255
        values = np.repeat(red[:, None, None], ROWS * COLS, axis=1).astype(np.float32)
        return Annotations(values, ROWS, COLS, np.arange(len(pixels), dtype=np.uint32))

    def begin(self, annotations, hard_attention=None, seed=0):
        return State({"red": annotations.values[:, 0, 0]}, {"none": np.zeros((len(annotations.values), 1))})

    def step(self, state, words):
        p = np.full((*words.shape, len(VOCABULARY.words)), 1e-3)
        p[:, :, RED] = 0.02 + 0.8 * np.clip((state.shared["red"][:, None] - 0.8) / 0.2, 0, 1)
        p[:, :, HABIT] = 0.1
        flat = np.full((*words.shape, ROWS * COLS), 1 / (ROWS * COLS), np.float32)
        return Step(np.log(p).astype(np.float32), state, flat, np.ones(words.shape, np.float32))

    def select_hypotheses(self, state, parents):
        return state

    def select_images(self, state, images):
        raise NotImplementedError


def red_corner() -> np.ndarray:
    pixels = np.zeros((SIZE, SIZE, 3), np.uint8)
    pixels[: SIZE // ROWS, : SIZE // COLS, 0] = 255
    return pixels


def test_the_word_relies_on_the_cell_that_it_was_built_to_rely_on():
    measured = occlusion(RedInTheCorner(), red_corner(), [RED, HABIT], SearchOptions())
    relied = measured.relied[0]
    assert np.unravel_index(relied.argmax(), relied.shape) == (0, 0) and relied[0, 0] > 1
    assert abs(relied[2:, 2:]).max() < 1e-5
    assert measured.seen[0] - measured.blurred[0] > 1


def test_a_word_that_ignores_the_picture_relies_on_nothing():
    measured = occlusion(RedInTheCorner(), red_corner(), [RED, HABIT], SearchOptions())
    np.testing.assert_allclose(measured.relied[1], 0, atol=1e-5)
    assert measured.seen[1] == pytest.approx(measured.blurred[1], abs=1e-5)


def test_threads_and_batches_change_nothing():
    backend, pixels = RedInTheCorner(), red_corner()
    pictures = [np.roll(pixels, i, axis=0) for i in range(37)]
    one, two = (word_log_probabilities(backend, pictures, [RED], SearchOptions(), threads=n) for n in (1, 3))
    assert one.shape == (37, 1) and np.array_equal(one, two)
    assert one[0, 0] > one[8, 0]


@pytest.mark.parametrize("rows, cols", [(1, 1), (3, 5), (7, 7), (8, 8), (14, 14), (16, 16)])
def test_windows_cover_every_cell_and_are_few(rows, cols):
    covers = windows(rows, cols)
    assert np.sum(covers, axis=0).min() >= 1
    assert len(covers) <= 64


def test_deleting_the_attended_cell_first_is_worse_for_the_word_than_random_order():
    alpha = np.zeros((ROWS, COLS), np.float32)
    alpha[0, 0] = 1
    measured = curves(RedInTheCorner(), red_corner(), [RED], [alpha], [0], SearchOptions())[0]
    assert len(measured.shares) == STEPS + 1
    assert measured.deletion[1] < 0.5 * measured.deletion[0]
    assert measured.insertion[1] == pytest.approx(measured.deletion[0], rel=1e-3)
    assert measured.deletion.mean() < measured.random_deletion.mean()
    assert measured.insertion.mean() > measured.random_insertion.mean()
    assert measured.deletion[0] == pytest.approx(measured.insertion[-1])
