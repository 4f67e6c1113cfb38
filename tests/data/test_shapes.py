"""The sentences and boxes of the shapes set are true of its pixels."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner.data.boxes import with_boxes
from captioner.data.caption_set import CaptionSet, Item
from captioner.data.formats.detection import read_set
from captioner.data.shapes import COLORS, SHAPES, compose, draw, write_shapes
from captioner.errors import UsageError
from captioner.text.vocabulary import Vocabulary

PHRASE = re.compile(rf"a (?:(small|large) )?({'|'.join(COLORS)}) ({'|'.join(SHAPES)})")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> CaptionSet:
    folder = tmp_path_factory.mktemp("data") / "shapes"
    write_shapes(folder, 300, seed=3)
    return with_boxes(read_set(folder), folder)


def sized(item: Item) -> str:
    return next(text for text in item.captions if "small" in text or "large" in text)


def test_the_written_files_are_read_as_a_caption_set(shapes: CaptionSet) -> None:
    assert shapes.name == "shapes"
    assert {name: len(shapes.split(name)) for name in shapes.splits} == {"train": 240, "val": 30, "test": 30}
    assert all(len(item.captions) == 4 and 1 <= len(item.boxes) <= 2 for item in shapes)
    assert all(item.path.is_file() for item in shapes)


def test_the_named_color_is_at_the_center_of_the_named_shape(shapes: CaptionSet) -> None:
    """Checked on the pixels: of all named colors, the one in the sentence is nearest to the pixel at the center."""
    for item in shapes:
        pixels = np.asarray(Image.open(item.path).convert("RGB")).astype(int)
        phrases = PHRASE.findall(sized(item))
        assert [kind for _, _, kind in phrases] == [box.label for box in item.boxes]
        for (_, color, _), box in zip(phrases, item.boxes, strict=True):
            center = pixels[int((box.top + box.bottom) / 2), int((box.left + box.right) / 2)]
            distances = {name: np.abs(center - rgb).sum() for name, rgb in COLORS.items()}
            assert min(distances, key=lambda name: distances[name]) == color


def test_no_shape_touches_the_border(shapes: CaptionSet) -> None:
    for item in shapes:
        for box in item.boxes:
            assert box.left > 0 and box.top > 0 and box.right < 96 and box.bottom < 96


def test_boxes_enclose_all_pixels_of_their_color_tightly(shapes: CaptionSet) -> None:
    plain = 0
    for item in shapes.split("train").items[:80]:
        pixels = np.asarray(Image.open(item.path).convert("RGB")).astype(int)
        for (_, color, _), box in zip(PHRASE.findall(sized(item)), item.boxes, strict=True):
            near = np.abs(pixels - COLORS[color]).max(axis=2) <= 20
            rows, columns = np.nonzero(near)
            found = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            assert np.abs(found - [box.left, box.top, box.right, box.bottom]).max() <= 2
            plain += 1
    assert plain > 80


def test_positions_and_relations_in_sentences_match_the_boxes(shapes: CaptionSet) -> None:
    seen: Counter[str] = Counter()
    for item in shapes:
        text = item.captions[0]
        centres = [((b.left + b.right) / 2, (b.top + b.bottom) / 2) for b in item.boxes]
        (x, y), (x2, y2) = centres[0], centres[-1]
        true = {
            "left of": x < x2 and abs(x2 - x) > abs(y2 - y),
            "above": y < y2 and abs(y2 - y) > abs(x2 - x),
            "on the left": x < 40,
            "on the right": x > 56,
            "at the top": y < 40,
            "at the bottom": y > 56,
            "in the middle": abs(x - 48) < 9 and abs(y - 48) < 9,
        }
        (said,) = (words for words in true if words in text)
        assert true[said], (item.path.name, text)
        seen[said] += 1
    assert set(seen) == set(true)  # every relation occurs


def test_small_and_large_shapes_differ_clearly_in_size(shapes: CaptionSet) -> None:
    spans: dict[str, list[float]] = {"small": [], "large": []}
    for item in shapes:
        for (size, _, _), box in zip(PHRASE.findall(sized(item)), item.boxes, strict=True):
            spans[size].append(max(box.right - box.left, box.bottom - box.top))
    assert max(spans["small"]) + 2 < min(spans["large"])


def test_within_a_picture_all_shapes_and_all_colors_differ(shapes: CaptionSet) -> None:
    for item in shapes:
        _, colors, kinds = zip(*PHRASE.findall(item.captions[0]), strict=True)
        assert len(set(colors)) == len(colors) and len(set(kinds)) == len(kinds)


def test_the_language_is_small_and_the_same_in_all_splits(shapes: CaptionSet) -> None:
    words = Vocabulary.build(shapes.split("train").captions(), minimum_count=1)
    assert len(words) < 40
    assert all(number != words.unk for caption in shapes.captions() for number in words.encode(caption))


def test_no_picture_is_in_two_splits(shapes: CaptionSet) -> None:
    assert len({item.path.read_bytes() for item in shapes}) == len(shapes)


def fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.*")):
        content = Image.open(path).tobytes() if path.suffix == ".png" else path.read_bytes()
        digest.update(path.relative_to(folder).as_posix().encode() + content)
    return digest.hexdigest()


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_shapes(tmp_path / name, 20, seed=seed, size=64)
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b") != fingerprint(tmp_path / "c")


def test_a_picture_does_not_depend_on_the_number_of_pictures(tmp_path: Path) -> None:
    write_shapes(tmp_path / "few", 10)
    write_shapes(tmp_path / "many", 30)
    name = "images/shapes_000010.png"
    assert (tmp_path / "few" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()


def test_three_objects_are_named_in_one_row_or_column(tmp_path: Path) -> None:
    scenes = [compose(np.random.default_rng([0, i]), most=3) for i in range(200)]
    triples = [scene for scene in scenes if len(scene.shapes) == 3]
    assert len(triples) > 40
    for scene in triples:
        along = [shape.x if scene.relation == "left of" else shape.y for shape in scene.shapes]
        assert along == sorted(along)
        assert scene.sentences()[0].count(scene.relation) == 2
        _, boxes = draw(scene, 96, np.random.default_rng(0))
        for first, second in itertools.pairwise(boxes):
            assert first.right <= second.left or first.bottom <= second.top


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": 2}, "at least 3"),
        ({"images": 5, "size": 8}, "32 to 1024"),
        ({"images": 5, "most": 4}, "give 1, 2 or 3"),
    ],
)
def test_invalid_arguments_are_errors_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        write_shapes(tmp_path / "out", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_not_empty_is_an_error_without_overwrite(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"exists and is kept: replace it with --overwrite"):
        write_shapes(tmp_path, 5)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert sum(write_shapes(tmp_path, 5, overwrite=True).values()) == 5


def test_an_interrupted_folder_has_no_caption_files(tmp_path: Path) -> None:
    def stop(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shapes(tmp_path / "out", 10, progress=stop)
    assert not list((tmp_path / "out").glob("*.json"))


def test_the_files_have_cocos_format(shapes: CaptionSet) -> None:
    folder = shapes.items[0].path.parents[1]
    content = json.loads((folder / "instances_val.json").read_text())
    assert [category["name"] for category in content["categories"]] == list(SHAPES)
    assert {"id", "image_id", "category_id", "bbox", "area", "iscrowd"} <= set(content["annotations"][0])
