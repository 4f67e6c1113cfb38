"""COCO: captions in the wanted splits and photos, in a folder that the shipped configs can train on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from zlib import crc32

from captioner.data.download.catalogue import (
    COCO_ANNOTATIONS,
    COCO_PICTURES,
    KARPATHY_SPLITS,
    PublishedFile,
)
from captioner.data.download.download_options import DownloadOptions, all_there, check_splits, write_new
from captioner.data.download.http import DownloadError, check_url
from captioner.data.download.room import ArchiveRoom, archive_room, check_room
from captioner.data.download.single_pictures import fetch_pictures
from captioner.data.download.split_lists import read_split_lists
from captioner.data.download.transfer import fetch
from captioner.data.download.unpacking import unpack
from captioner.data.formats.text_files import missing, read_json
from captioner.errors import CaptionerError
from captioner.images.reading import is_url

PICTURE_BYTES = 165_000  # of a COCO photo, on average


@dataclass(frozen=True)
class _Annotations:
    """COCO's captions of one year: the image records, their captions, and the archive that each picture is in."""

    info: dict[str, Any]
    images: dict[int, dict[str, Any]]
    captions: dict[int, list[dict[str, Any]]]
    archive: dict[int, str]  # train2014, val2014, …


def download_coco(year: str, output: Path, options: DownloadOptions, *, pictures: bool = True) -> list[str]:
    """COCO's captions and photos in `output`/coco. Returns one sentence per picture that could not be fetched."""
    folder = output / "coco"
    archives = [COCO_PICTURES[f"{split}{year}"] for split in ("train", "val")] if pictures else []
    _check_room_at_first(year, folder, [] if options.max_images else archives, options)
    annotations = _annotations(year, folder, options)
    splits = _limited(_splits(annotations, year, folder, options), options)
    _write_captions(splits, annotations, folder, options)
    if not pictures:
        return []
    ids = list(dict.fromkeys(image for split in splits.values() for image in split))
    if options.max_images is not None:
        return _fetch_single(ids, annotations, folder, options)
    needed = [archive for archive in archives if not _is_unpacked(archive, ids, annotations, folder)]
    for position, archive in enumerate(needed):
        options.check_room(folder, {later: _pictures_room(later, folder, options) for later in needed[position:]})
        _fetch_archive(archive, folder, options)
    return []


def _check_room_at_first(year: str, folder: Path, archives: list[PublishedFile], options: DownloadOptions) -> None:
    """Refuse what the disk has no room for, before the annotations tell which pictures are needed."""
    needed = {}
    if not all(file.is_file() for file in _caption_files(year, folder).values()):
        file = COCO_ANNOTATIONS[year]
        needed[file] = archive_room(file, folder / file.name)
    if not (folder / "images").is_dir():  # otherwise pictures that are there may be enough
        needed.update({archive: _pictures_room(archive, folder, options) for archive in archives})
    options.check_room(folder, needed)


def _pictures_room(archive: PublishedFile, folder: Path, options: DownloadOptions) -> ArchiveRoom:
    return options.pictures_room(archive, folder, folder / "images" / _stem(archive))


def _caption_files(year: str, folder: Path) -> dict[str, Path]:
    return {f"{split}{year}": folder / "annotations" / f"captions_{split}{year}.json" for split in ("train", "val")}


def _annotations(year: str, folder: Path, options: DownloadOptions) -> _Annotations:
    files = _caption_files(year, folder)
    if not all(file.is_file() for file in files.values()):
        archive = options.fetch(COCO_ANNOTATIONS[year], folder)

        def target(path: PurePosixPath) -> Path | None:
            return Path("annotations", path.name) if path.name.startswith(("captions_", "instances_")) else None

        unpack(archive, folder, target, keep=options.keep)
    result = _Annotations({}, {}, {}, {})
    for archive_name, file in files.items():
        if not file.is_file():
            raise CaptionerError(f"{COCO_ANNOTATIONS[year].name} contains no {file.name}")
        content = read_json(file)
        result.info.update({key: content[key] for key in ("info", "licenses") if key in content})
        for record in content["images"]:
            result.images[record["id"]] = record
            result.archive[record["id"]] = archive_name
        for annotation in content["annotations"]:
            result.captions.setdefault(annotation["image_id"], []).append(annotation)
    return result


def _splits(annotations: _Annotations, year: str, folder: Path, options: DownloadOptions) -> dict[str, list[int]]:
    """The image ids of each split: COCO's own, or Karpathy's."""
    if options.karpathy is None:
        splits: dict[str, list[int]] = {"train": [], "val": []}
        for image, archive in annotations.archive.items():
            splits[archive.removesuffix(year)].append(image)
    else:
        splits = _karpathy(annotations, folder, options)
    check_splits(options.splits, splits, "the set")
    return {name: ids for name, ids in splits.items() if not options.splits or name in options.splits}


def _karpathy(annotations: _Annotations, folder: Path, options: DownloadOptions) -> dict[str, list[int]]:
    if options.karpathy:
        files = [_given_list(source, folder, options) for source in options.karpathy]
    else:
        files = [options.fetch(file, folder / "karpathy") for file in KARPATHY_SPLITS.values()]
    splits: dict[str, list[int]] = {}
    for file in files:
        for split, ids in read_split_lists(file).items():
            splits.setdefault(split, []).extend(ids)
    restval = splits.pop("restval", [])
    if options.restval:
        splits.setdefault("train", []).extend(restval)
    else:
        splits["train"] = [i for i in splits.get("train", []) if not annotations.archive.get(i, "").startswith("val")]
    seen: dict[int, str] = {}
    for split, ids in splits.items():
        unknown = [image for image in ids if image not in annotations.images]
        if unknown:
            raise CaptionerError(
                f"{len(unknown):,} images of the split {split} are not in COCO's annotations (first: id {unknown[0]}): "
                "these are not splits of this set"
            )
        twice = next((image for image in ids if seen.setdefault(image, split) != split), None)
        if twice is not None:
            raise CaptionerError(f"the image {twice} is in the splits {seen[twice]} and {split}")
    return {split: splits[split] for split in ("train", "val", "test") if splits.get(split)}


def _given_list(source: str, folder: Path, options: DownloadOptions) -> Path:
    if is_url(source):
        name = PurePosixPath(check_url(source, "--karpathy").partition("?")[0]).name
        place = folder / "karpathy" / f"{crc32(source.encode()):08x}"  # many addresses end with the same name
        return fetch(source, place / (name or "splits"), connections=options.connections)
    if not Path(source).is_file():
        raise missing(Path(source), "--karpathy")
    return Path(source)


def _limited(splits: dict[str, list[int]], options: DownloadOptions) -> dict[str, list[int]]:
    return {split: ids[: options.max_images] for split, ids in splits.items()}


def _write_captions(
    splits: dict[str, list[int]], annotations: _Annotations, folder: Path, options: DownloadOptions
) -> None:
    files = {}
    for split, ids in splits.items():
        captions = [annotation for image in ids for annotation in annotations.captions.get(image, ())]
        content = {
            **annotations.info,
            "images": [annotations.images[image] for image in ids],
            "annotations": captions,
        }
        files[folder / f"captions_{split}.json"] = content
        options.say(f"{folder / f'captions_{split}.json'}: {len(ids):,} images, {len(captions):,} captions")
    write_new(files, options)


def _is_unpacked(archive: PublishedFile, ids: list[int], annotations: _Annotations, folder: Path) -> bool:
    """Whether every picture that is needed of an archive is there."""
    split = _stem(archive)
    names = {annotations.images[image]["file_name"] for image in ids if annotations.archive[image] == split}
    return not names or all_there(folder / "images" / split, names)


def _fetch_archive(archive: PublishedFile, folder: Path, options: DownloadOptions) -> None:
    packed = options.fetch_pictures(archive, folder)
    if options.unpack:
        split = _stem(archive)
        unpack(
            packed, folder / "images", lambda path: Path(path) if path.parts[0] == split else None, keep=options.keep
        )


def _stem(archive: PublishedFile) -> str:
    """train2014, val2014, …"""
    return archive.name.removesuffix(".zip")


def _fetch_single(ids: list[int], annotations: _Annotations, folder: Path, options: DownloadOptions) -> list[str]:
    jobs = []
    for image in ids:
        archive, name = annotations.archive[image], annotations.images[image]["file_name"]
        file = replace(COCO_PICTURES[archive], path=f"{archive}/{name}")
        jobs.append((file.url(options.base_url), folder / "images" / archive / name))
    remaining = [path for _, path in jobs if not path.is_file()]
    check_room(folder, len(remaining) * PICTURE_BYTES, f"fetching {len(remaining):,} pictures")
    failures = fetch_pictures(jobs, connections=options.connections)
    if failures and not any(path.is_file() for _, path in jobs):
        raise DownloadError(f"no picture could be fetched: {failures[0]}")
    return failures
