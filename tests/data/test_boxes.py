"""Boxes of an instances file are assigned to the right pictures, in pixels of the upright picture."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from captioner.data.boxes import with_boxes
from captioner.data.caption_set import Box, CaptionSet, Item, Phrase
from captioner.errors import CaptionerError
from tests.data.caption_files import picture, write


def instances(file_name: str, bbox: list[float], number: int = 139, size: tuple[int, int] = (8, 6)) -> dict[str, Any]:
    return {
        "images": [{"id": number, "file_name": file_name, "width": size[0], "height": size[1]}],
        "annotations": [{"id": 1, "image_id": number, "category_id": 18, "bbox": bbox}],
        "categories": [{"id": 18, "name": "dog"}],
    }


def one(path: Path, identity: int | str = 139) -> CaptionSet:
    return CaptionSet("x", (Item(identity, path, ("a dog",), "val"),))


def test_a_box_is_left_top_right_bottom(tmp_path: Path) -> None:
    file = write(tmp_path / "instances.json", instances("a.png", [1, 2, 3, 4]))
    assert with_boxes(one(picture(tmp_path / "a.png")), file).items[0].boxes == (Box("dog", 1, 2, 4, 6),)


def test_boxes_are_scaled_with_a_picture_of_another_size(tmp_path: Path) -> None:
    file = write(tmp_path / "instances.json", instances("a.png", [160, 120, 320, 240], size=(640, 480)))
    data = with_boxes(one(picture(tmp_path / "a.png", size=(256, 256))), file)
    assert data.items[0].boxes == (Box("dog", 64, 64, 192, 192),)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_are_rotated_with_the_picture(tmp_path: Path, orientation: int) -> None:
    """Compared with Pillow: a white rectangle in the stored pixels, located after Pillow's own rotation."""
    pixels = np.zeros((48, 64, 3), dtype=np.uint8)
    pixels[8:24, 16:56] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as image:
        expected = ImageOps.exif_transpose(image).getbbox()
    file = write(tmp_path / "instances.json", instances("a.png", [16, 8, 40, 16], size=(64, 48)))
    (box,) = with_boxes(one(tmp_path / "a.png"), file).items[0].boxes
    assert (box.left, box.top, box.right, box.bottom) == expected


def test_boxes_of_the_upright_picture_are_not_rotated(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png", size=(8, 6), orientation=6)  # upright: 6 wide, 8 high
    file = write(tmp_path / "instances.json", instances("a.png", [1, 2, 3, 4], size=(6, 8)))
    assert with_boxes(one(path), file).items[0].boxes == (Box("dog", 1, 2, 4, 6),)


def test_pictures_of_the_2014_release_are_matched_by_number(tmp_path: Path) -> None:
    file = write(tmp_path / "instances.json", instances("COCO_val2014_000000000139.jpg", [0, 0, 1, 1]))
    assert with_boxes(one(tmp_path / "000000000139.jpg", "coco/139"), file).items[0].boxes


def test_an_equal_id_of_another_data_set_is_no_match(tmp_path: Path) -> None:
    file = write(tmp_path / "instances.json", instances("000000000139.jpg", [0, 0, 1, 1]))
    with pytest.raises(CaptionerError, match="none of the 1 images of x is in"):
        with_boxes(one(tmp_path / "3050606344_af711c139.jpg", 139), file)


def test_every_instances_file_of_a_folder_is_read(tmp_path: Path) -> None:
    write(tmp_path / "instances_train.json", instances("a.png", [0, 0, 1, 1], 1))
    write(tmp_path / "instances_val.json", instances("b.png", [0, 0, 2, 2], 2))
    data = CaptionSet("x", tuple(Item(n, tmp_path / f"{n}.png", (), "val") for n in "abc"))
    assert [len(item.boxes) for item in with_boxes(data, tmp_path)] == [1, 1, 0]


def test_a_captions_file_is_not_read_as_instances(tmp_path: Path) -> None:
    content = instances("a.png", [0, 0, 1, 1])
    del content["categories"]
    with pytest.raises(CaptionerError, match="no `categories`"):
        with_boxes(one(tmp_path / "a.png"), write(tmp_path / "captions.json", content))


def test_the_error_for_a_missing_instances_file_has_the_setting(tmp_path: Path) -> None:
    with pytest.raises(CaptionerError, match=r"no such instances file or folder \(from --boxes\)"):
        with_boxes(one(tmp_path / "a.png"), tmp_path / "no.json", setting="--boxes")


def test_a_gzip_file_is_unpacked(tmp_path: Path) -> None:
    plain = write(tmp_path / "instances.json", instances("a.png", [1, 2, 3, 4]))
    packed = tmp_path / "instances_val.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    data = one(picture(tmp_path / "a.png"))
    assert with_boxes(data, packed) == with_boxes(data, plain) == with_boxes(data, tmp_path)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(CaptionerError, match="not a complete gzip file"):
        with_boxes(data, packed)


def entities(tokens: str, phrases: list[dict[str, int]]) -> dict[str, Any]:
    """One image of 8x6 pixels with a caption, in the form of Flickr30k Entities."""
    content = instances("a.png", [0, 0, 4, 6])
    content["images"][0] |= {
        "sentences": [{"tokens": tokens.split(), "phrases": phrases}],
        "entities": [{"id": 7, "boxes": [[0, 0, 4, 6], [4, 0, 2, 3]]}, {"id": 8, "boxes": []}],
    }
    return content


def test_phrases_have_the_boxes_of_their_entity(tmp_path: Path) -> None:
    phrases = [{"start": 0, "end": 2, "entity": 7}, {"start": 3, "end": 5, "entity": 8}]
    file = write(tmp_path / "entities.json", entities("A dog on the beach .", phrases))
    data = with_boxes(one(picture(tmp_path / "a.png", size=(16, 12))), file)  # twice as large as the file says
    tokens = ("A", "dog", "on", "the", "beach", ".")
    assert data.items[0].phrases == (
        Phrase(tokens, 0, 2, (Box("", 0, 0, 8, 12), Box("", 8, 0, 12, 6))),
        Phrase(tokens, 3, 5, ()),
    )
    assert data.items[0].boxes == (Box("dog", 0, 0, 8, 12),)


def test_broken_phrases_name_the_image(tmp_path: Path) -> None:
    file = write(tmp_path / "entities.json", entities("A dog .", [{"start": 0, "end": 2}]))
    with pytest.raises(CaptionerError, match=r"the image a\.png has phrases that are not .*KeyError: 'entity'"):
        with_boxes(one(picture(tmp_path / "a.png")), file)
