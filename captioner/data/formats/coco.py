"""COCO's captions format, read by pycocotools."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from captioner.data.caption_set import CaptionSet, Item, split_name, split_of_file
from captioner.data.formats.image_folder import find_image_folder
from captioner.data.formats.text_files import read_json
from captioner.errors import CaptionerError, brief


def load_coco(path: Path, content: Any = None) -> Any:
    """A pycocotools COCO object. Its messages are suppressed; errors name the file."""
    from pycocotools.coco import COCO

    dataset = read_json(path) if content is None else content
    if not isinstance(dataset, dict) or not isinstance(dataset.get("images"), list):
        raise CaptionerError(f"{path}: not a COCO file: it has no list of `images`")
    if not isinstance(dataset.get("annotations"), list):
        raise CaptionerError(f"{path}: not a COCO file: it has no list of `annotations`")
    for kind, needed in (("images", ("id", "file_name")), ("annotations", ("image_id",))):
        for position, record in enumerate(dataset[kind]):
            if not isinstance(record, dict) or any(key not in record for key in needed):
                raise CaptionerError(
                    f"{path}: {kind}[{position}] lacks {' or '.join(map(repr, needed))}: {brief(record)}"
                )
            if any(not isinstance(record[key], (int, str)) for key in needed):
                raise CaptionerError(
                    f"{path}: {kind}[{position}]: {' or '.join(map(repr, needed))} is neither a number nor text: "
                    f"{brief(record)}"
                )
            if kind == "annotations" and "id" not in record:
                record["id"] = position + 1  # pycocotools needs an id, captions do not
    coco = COCO()
    coco.dataset = dataset
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
    return coco


def read_coco(
    path: Path,
    images: Path | None = None,
    *,
    split: str | None = None,
    name: str | None = None,
    images_setting: str | None = None,
    content: Any = None,
) -> CaptionSet:
    """Read one captions file. Its split comes from the file's name, else it is `split`, else train."""
    coco = load_coco(path, content)
    listed = coco.dataset["images"]
    # The name takes precedence: a file of training captions must not be read as val.
    split = split_of_file(path) or split_name(split or "train")
    image_folder = find_image_folder(
        path, images, [(str(record["file_name"]), "") for record in listed[:100]], images_setting
    )
    items, seen = [], set()
    for record in listed:
        image_id = record["id"]
        if not isinstance(image_id, (int, str)) or image_id in seen:
            raise CaptionerError(f"{path}: the image id {image_id!r} is listed twice, or is neither a number nor text")
        seen.add(image_id)
        captions = tuple(_caption(annotation, path) for annotation in coco.imgToAnns.get(image_id, ()))
        items.append(Item(image_id, image_folder.find(str(record["file_name"])), captions, split))
    annotated = (annotation["image_id"] for annotation in coco.dataset["annotations"])
    unlisted = [image_id for image_id in annotated if image_id not in seen]
    notes: tuple[str, ...] = ()
    if unlisted:
        notes = (
            f"{path}: {len(unlisted):,} captions were left out because the file does not list their images "
            f"(first: id {unlisted[0]})",
        )
    return CaptionSet(name or path.stem, tuple(items), () if items else (split,), notes)


def _caption(annotation: Any, path: Path) -> str:
    caption = annotation.get("caption")
    if not isinstance(caption, str):
        problem = "no `caption`" if caption is None else f"a caption that is not text: {caption!r:.60}"
        hint = "; is this an instances file?" if "bbox" in annotation else ""
        raise CaptionerError(f"{path}: the annotation {annotation['id']} has {problem}{hint}")
    return caption
