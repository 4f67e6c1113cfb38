"""Add the boxes of a file in COCO's instances format to the items of a set."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from captioner.data.caption_set import Box, CaptionSet, Item, Phrase
from captioner.data.formats.coco import load_coco
from captioner.data.formats.image_folder import find_image_folder
from captioner.data.formats.text_files import missing
from captioner.errors import CaptionerError
from captioner.files import zip_paths
from captioner.images.decoding import inspect
from captioner.images.frame import upright_box

_COCO_NAME = re.compile(r"(?:COCO_\w+_)?(\d{12})$")  # 000000000139, COCO_val2014_000000000139


def with_boxes(captions: CaptionSet, instances: Path, *, setting: str | None = None) -> CaptionSet:
    """The set with the boxes of an instances file, or of all instances_*.json and .json.gz of a folder.

    Pictures are matched by file name, then by the COCO id in the file name, because the releases of 2014 and 2017 name
    their files differently. Boxes are scaled if the picture has another size than the file lists, and rotated by the
    EXIF orientation of the picture. Where the file has phrases of captions with their own boxes (`sentences` and
    `entities` of an image, from Flickr30k Entities), the items have them too.
    """
    files = _files(instances, setting)
    by_name: dict[str, tuple[Any, dict[str, Any]]] = {}
    by_id: dict[int | str, tuple[Any, dict[str, Any]]] = {}
    for file in files:
        coco = load_coco(file)
        if not coco.cats:
            raise CaptionerError(f"{file}: no `categories`, so its boxes have no names; give an instances file")
        for record in coco.dataset["images"]:
            by_name[Path(record["file_name"]).name] = (coco, record)
            by_id[record["id"]] = (coco, record)
    items, matched = [], 0
    for item in captions.items:
        match = by_name.get(item.path.name) or by_id.get(picture_key(item.path))
        if match is None:
            items.append(item)
            continue
        matched += 1
        coco, record = match
        boxes = [_box(annotation, coco) for annotation in coco.imgToAnns.get(record["id"], ())]
        upright = _upright(item.path, record) if boxes else _unchanged
        phrases = tuple(_phrases(record, upright)) if "sentences" in record else ()
        items.append(dataclasses.replace(item, boxes=tuple(map(upright, boxes)), phrases=phrases))
    if not matched:
        raise CaptionerError(
            f"none of the {len(captions):,} images of {captions.name} is in {instances}: "
            "neither by file name nor by COCO id"
        )
    return dataclasses.replace(captions, items=tuple(items))


def boxed_images(
    instances: Path, images: Path, *, setting: str | None = None, images_setting: str | None = None
) -> CaptionSet:
    """The images with boxes that an instances file, or those of a folder, list and that are there, without captions.

    Files with val or test in their names are left out: what they list must not be trained on by accident.
    """
    items = []
    for file in _files(instances, setting):
        if "val" in file.name or "test" in file.name:
            continue
        coco = load_coco(file)
        names = [str(record["file_name"]) for record in coco.dataset["images"] if coco.imgToAnns.get(record["id"])]
        folder = find_image_folder(file, images, (), images_setting)
        paths = [folder.find(name) for name in names]
        items += [Item(str(path), path, (), "train") for path in paths if zip_paths.is_file(path)]
    return CaptionSet(instances.name, tuple(items))


def picture_key(path: Path) -> int | str:
    """What a picture is called in every release of a data set: its COCO id, or its file name."""
    digits = _COCO_NAME.match(path.stem)
    return int(digits[1]) if digits else path.name


def _files(instances: Path, setting: str | None) -> list[Path]:
    if not instances.exists():
        raise missing(instances, setting, "instances file or folder")
    if not instances.is_dir():
        return [instances]
    files = [
        file
        for folder in (instances, instances / "annotations")
        for pattern in ("instances_*.json", "instances_*.json.gz")
        for file in sorted(folder.glob(pattern))
    ]
    if not files:
        raise CaptionerError(f"{instances}: no instances_*.json in this folder")
    return files


def _box(annotation: dict[str, Any], coco: Any) -> Box:
    try:
        left, top, width, height = map(float, annotation["bbox"])
        label = str(coco.cats[annotation["category_id"]]["name"])
    except (KeyError, TypeError, ValueError):
        raise CaptionerError(
            f"the annotation {annotation.get('id')} is not an instance: it needs `bbox` "
            "(x, y, width, height) and a known `category_id`"
        ) from None
    return Box(label, left, top, left + width, top + height)


def _phrases(record: dict[str, Any], upright: Callable[[Box], Box]) -> Iterator[Phrase]:
    """The phrases of an image: each belongs to an entity, whose boxes are listed once."""
    try:
        boxes = {
            entity["id"]: tuple(
                upright(Box("", x, y, x + width, y + height)) for x, y, width, height in entity["boxes"]
            )
            for entity in record["entities"]
        }
        for sentence in record["sentences"]:
            tokens = tuple(str(token) for token in sentence["tokens"])
            for phrase in sentence["phrases"]:
                yield Phrase(tokens, int(phrase["start"]), int(phrase["end"]), boxes.get(phrase["entity"], ()))
    except (KeyError, TypeError, ValueError) as error:
        raise CaptionerError(
            f"the image {record['file_name']} has phrases that are not of the form of Flickr30k Entities: "
            f"{type(error).__name__}: {error}"
        ) from None


def _unchanged(box: Box) -> Box:
    return box


def _upright(path: Path, record: dict[str, Any]) -> Callable[[Box], Box]:
    """The function that takes a box of the file to pixels of the upright picture."""
    if "width" not in record or "height" not in record:
        return _unchanged
    try:
        frame = inspect(path)
    except CaptionerError:
        return _unchanged  # missing or damaged: reading the picture reports it
    width, height = float(record["width"]), float(record["height"])
    upright, stored = (frame.width, frame.height), frame.stored_size
    # COCO's tools ignore EXIF, so boxes are in stored pixels, unless the file lists the size of the upright picture.
    turns = not (width, height) == upright != stored
    shown = (height, width) if turns and frame.turned else (width, height)
    across, down = upright[0] / shown[0], upright[1] / shown[1]

    def convert(box: Box) -> Box:
        if turns:
            box = _turn(box, frame.orientation, width, height)
        return Box(box.label, box.left * across, box.top * down, box.right * across, box.bottom * down)

    return convert


def _turn(box: Box, orientation: int, width: float, height: float) -> Box:
    """A box of the stored picture (width x height), in the upright one."""
    return Box(box.label, *upright_box((box.left, box.top, box.right, box.bottom), orientation, width, height))
