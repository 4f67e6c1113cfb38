"""Boxes as targets: which words name them, and where they are in mirrored and cropped views of a picture."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from captioner.data.box_coverage import coverage
from captioner.data.caption_set import Box, CaptionSet, Item, Phrase
from captioner.errors import CaptionerError
from captioner.images.frame import Frame
from captioner.text.vocabulary import Vocabulary
from captioner.train.box_targets import BoxTargets
from captioner.train.corpus import Corpus
from captioner.train.grids import CachedGrids, Views, augment, pixel_views

CAPTIONS = ("a dog and a man", "", "a cat on a hot dog stand")
BOXES = (Box("dog", 0, 0, 32, 64), Box("person", 32, 0, 64, 32), Box("dog", 32, 32, 64, 64))


def whole(rows: int, cols: int) -> Views:
    return Views(rows, cols, np.array([False]), np.array([[0.0, 0.0, 1.0, 1.0]]))


def make(folder: Path, *boxes_of_images: tuple[Box, ...]) -> tuple[Corpus, BoxTargets]:
    """A set of black pictures of 64x64 pixels with the captions above."""
    items = []
    for number, boxes in enumerate(boxes_of_images):
        path = folder / f"{number}.png"
        Image.new("RGB", (64, 64)).save(path)
        items.append(Item(number, path, CAPTIONS, "train", boxes))
    data = CaptionSet("toy", tuple(items))
    vocabulary = Vocabulary.build(CAPTIONS, minimum_count=1)
    corpus = Corpus.of(data, vocabulary, 20)
    return corpus, BoxTargets.of(data, corpus, vocabulary)


def test_words_name_the_boxes_of_their_category_in_their_own_picture(tmp_path: Path) -> None:
    corpus, targets = make(tmp_path, BOXES, (), (Box("cat", 0, 0, 64, 64),))
    assert targets.labels == ("cat", "dog", "person")
    groups = targets.groups_of_captions(corpus, np.array([[0, 1], [2, 3], [4, 5]]))
    assert [g.tolist() for g in groups] == [
        [-1, 0, -1, -1, 1],  # the dogs, then the person
        [-1] * 7,  # a hot dog is no dog
        [-1] * 5,
        [-1] * 7,
        [-1] * 5,
        [-1, 2, -1, -1, -1, -1, -1],
    ]
    boxes = targets.batch(np.array([0]), whole(2, 2))
    assert boxes.maps.tolist() == [[1, 0, 1, 1], [0, 1, 0, 0]]
    assert boxes.maps_of(np.array([1, 0, 1]))[:, 1].tolist() == [1, 0, 1]


def test_captions_of_the_model_are_matched_like_training_captions(tmp_path: Path) -> None:
    _, targets = make(tmp_path, (), BOXES)
    groups = targets.groups_of_texts([1, 1, 0], [["two", "dogs"], ["a", "cat"], ["a", "dog"]])
    assert [g.tolist() for g in groups] == [[-1, 0], [-1, -1], [-1, -1]]


def test_a_caption_that_was_cut_keeps_the_groups_of_its_words(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "0.png")
    data = CaptionSet("toy", (Item(0, tmp_path / "0.png", ("a man and a dog", "a dog"), "train", BOXES),))
    vocabulary = Vocabulary.build(["a man and a dog"], minimum_count=1)
    corpus = Corpus.of(data, vocabulary, 3)
    assert BoxTargets.of(data, corpus, vocabulary).word_groups.tolist() == [-1, 1, -1, -1, 0]


def test_cells_have_all_categories_that_cover_them(tmp_path: Path) -> None:
    _, targets = make(tmp_path, BOXES, ())
    views = Views(2, 2, np.array([True, False]), np.tile([0.0, 0.0, 1.0, 1.0], (2, 1)))
    shares, annotated = targets.batch(np.array([0, 1]), views).cell_labels(2, 2)
    assert targets.labels == ("dog", "person")
    assert shares[0].tolist() == [[0, 1], [1, 0], [1, 0], [1, 0]]  # mirrored
    assert not shares[1].any()
    assert annotated.tolist() == [True, False]


def test_a_set_without_boxes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CaptionerError, match="toy: no image has a box"):
        make(tmp_path, ())


def test_words_of_a_phrase_have_its_own_boxes(tmp_path: Path) -> None:
    """Two dogs, of which each phrase means another one; the second caption has no phrases in the file."""
    Image.new("RGB", (64, 64)).save(tmp_path / "0.png")
    left, right = Box("", 0, 0, 32, 64), Box("", 32, 0, 64, 64)
    tokens = ("A", "black", "dog", "'s", "ball", ",", "and", "the", "white", "dog", ".")
    phrases = (Phrase(tokens, 0, 3, (left,)), Phrase(tokens, 7, 10, (right,)), Phrase(tokens, 4, 5, ()))
    boxes = (Box("dog", 0, 0, 32, 64), Box("dog", 32, 0, 64, 64))
    captions = ("A black dog's ball, and the white dog.", "two dogs")
    data = CaptionSet("toy", (Item(0, tmp_path / "0.png", captions, "train", boxes, phrases),))
    vocabulary = Vocabulary.build(captions, minimum_count=1)
    corpus = Corpus.of(data, vocabulary, 20)
    targets = BoxTargets.of(data, corpus, vocabulary)
    first, second = targets.groups_of_captions(corpus, np.array([[0, 1]]))
    named = dict(zip(vocabulary.decode(corpus.caption(0).tolist()).split(), first.tolist(), strict=False))
    assert (named["black"], named["white"], named["ball"], named["and"]) == (1, 2, -1, -1)
    assert [group for group in first if group >= 0] == [1, 1, 2, 2]
    assert second.tolist() == [-1, 0]
    maps = targets.batch(np.array([0]), whole(1, 2))
    assert maps.maps.tolist() == [[1, 1], [1, 0], [0, 1]]
    shares, _ = maps.cell_labels(1, 1)
    assert shares[0].tolist() == [[1], [1]]  # phrases have no category
    assert targets.categories(0) == ["dog"]


class DrawnCache:
    """A feature cache whose grids are drawings of the boxes: the share of each of 16x16 cells that they cover."""

    def __init__(self, boxes: list[tuple[Box, ...]], side: int) -> None:
        drawings = [coverage(some, Frame(64, 64), side, side) for some in boxes]
        self.drawings: NDArray[Any] = np.stack([np.stack([drawing, drawing[:, ::-1]]) for drawing in drawings])
        self.spec = SimpleNamespace(flip=True)
        self.locations: dict[str, Any] = {}

    def locate(self, keys: list[str]) -> NDArray[np.int32]:
        return np.array([(0, i) for i in range(len(keys))], np.int32)

    def read(self, locations: NDArray[np.int32], views: NDArray[np.int64] | None = None) -> torch.Tensor:
        views = np.zeros(len(locations), np.int64) if views is None else views
        return torch.from_numpy(self.drawings[locations[:, 1], views])[:, None]


@pytest.mark.parametrize("cells", [16, 8])
def test_targets_follow_cached_grids_that_are_mirrored_and_cropped(tmp_path: Path, cells: int) -> None:
    """The annotations of a drawing are its mean over the cached cells in each cell, so they must equal the targets."""
    boxes = [(Box("dog", 3, 5, 30, 21), Box("dog", 20, 12, 41, 60)), (Box("dog", 1, 50, 9, 64),)]
    _, targets = make(tmp_path, *boxes)
    items = CaptionSet("toy", tuple(Item(i, tmp_path / f"{i}.png", (), "train") for i in range(2)))
    grids: Any = CachedGrids(DrawnCache(boxes, 16), items, grid=(cells, cells), crop=0.4)  # type: ignore[arg-type]
    positions, compared = np.array([0, 1, 0]), 0
    for seed in range(60):
        made = grids.augmented(positions, np.random.default_rng(seed))
        height, width = made.grids.shape[2:]
        if height % (16 // cells) or width % (16 // cells):
            continue  # the last cells would need more of the picture than the crop has
        step = 16 // cells
        drawn = made.grids[:, 0].unfold(1, step, step).unfold(2, step, step).mean((-2, -1)).flatten(1)
        boxes_of_batch = targets.batch(positions, made.views)
        assert boxes_of_batch.groups.tolist() == positions.tolist()  # one group per image
        np.testing.assert_allclose(boxes_of_batch.maps, drawn.numpy(), atol=1e-6)
        compared += 1
    assert compared > 5


def test_targets_follow_pixels_that_are_mirrored_and_cropped(tmp_path: Path) -> None:
    """Compared with the augmented pictures themselves, with the boxes painted white."""
    boxes = (Box("dog", 10, 6, 40, 30), Box("dog", 30, 20, 60, 50))
    _, targets = make(tmp_path, boxes)
    picture = np.zeros((640, 640, 3), np.uint8)
    for box in boxes:
        picture[int(box.top * 10) : int(box.bottom * 10), int(box.left * 10) : int(box.right * 10)] = 255
    for seed in range(8):
        uniform = np.random.default_rng(seed).random((1, 5))
        part = augment(Image.fromarray(picture), uniform[0]).resize((400, 400), Image.Resampling.BOX)
        shares = np.asarray(part)[..., 0].reshape(4, 100, 4, 100).mean((1, 3)) / 255
        maps = targets.batch(np.array([0]), pixel_views(uniform, 1, (4, 4))).maps
        np.testing.assert_allclose(maps.reshape(4, 4), shares, atol=0.02)
