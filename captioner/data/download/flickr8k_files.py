"""Flickr8k: photos, and captions in Karpathy's format, in a folder that the shipped configs can train on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from captioner.data.caption_set import Item
from captioner.data.download.catalogue import FLICKR8K_PICTURES, FLICKR8K_TEXT
from captioner.data.download.download_options import DownloadOptions, all_there, check_splits, write_new
from captioner.data.download.room import archive_room
from captioner.data.download.unpacking import unpack
from captioner.data.formats.flickr8k import UNLISTED, read_flickr8k


def download_flickr8k(output: Path, options: DownloadOptions) -> None:
    """Flickr8k's photos, and its captions in Karpathy's format, in `output`/flickr8k."""
    folder = output / "flickr8k"
    text = folder / "text"
    images = folder / "images"
    needed = {}
    if not (text / "Flickr8k.token.txt").is_file():
        needed[FLICKR8K_TEXT] = archive_room(FLICKR8K_TEXT, folder / FLICKR8K_TEXT.name)
    if not images.is_dir():
        needed[FLICKR8K_PICTURES] = options.pictures_room(FLICKR8K_PICTURES, folder, images)
    options.check_room(folder, needed)
    if not (text / "Flickr8k.token.txt").is_file():
        archive = options.fetch(FLICKR8K_TEXT, folder)
        unpack(
            archive,
            text,
            lambda path: Path(path.name) if path.suffix == ".txt" and "__MACOSX" not in path.parts else None,
            keep=options.keep,
        )
    captions = read_flickr8k(text / "Flickr8k.token.txt")
    known = [split for split in captions.splits if split != UNLISTED]
    check_splits(options.splits, known, "Flickr8k")
    items = [item for item in captions if item.split in (options.splits or known) and item.captions]
    content = {
        "dataset": "flickr8k",
        "images": [
            {"imgid": i, "filename": item.id, "split": item.split, "sentences": [{"raw": raw} for raw in item.captions]}
            for i, item in enumerate(items)
        ],
    }
    write_new({folder / "dataset_flickr8k.json": content}, options)
    names = {str(item.id) for item in items}
    if not all_there(images, names):
        options.check_room(folder, {FLICKR8K_PICTURES: options.pictures_room(FLICKR8K_PICTURES, folder, images)})
        archive = options.fetch_pictures(FLICKR8K_PICTURES, folder)
        if options.unpack:
            unpack(archive, images, lambda path: Path(path.name) if path.name in names else None, keep=options.keep)
    options.say(f"{folder / 'dataset_flickr8k.json'}: {len(items):,} images with {_count(captions.splits, items)}")


def _count(splits: Sequence[str], items: Sequence[Item]) -> str:
    counts = {split: sum(item.split == split for item in items) for split in splits}
    return ", ".join(f"{count:,} in {split}" for split, count in counts.items() if count)
