"""The feature cache: correct after any interruption, refused when incomplete or built with different settings."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioner.errors import CaptionerError
from captioner.images.pixels import squash
from captioner.images.reading import read_image
from captioner.model.encoder import Encoder
from captioner.model.settings import EncoderSettings
from captioner.train import features
from captioner.train.features import Features, FeatureSpec
from tests.data.caption_files import picture
from tests.train import child_process, tiny_run
from tests.train.child_process import KillAt

posix = pytest.mark.skipif(os.name == "nt", reason="kills processes by POSIX signals")


def encoder(**changes: Any) -> Encoder:
    settings = {"name": "efficientnet_lite0", "size": tiny_run.SIZE, "annotations": ("stage3",)}
    return Encoder(EncoderSettings.model_validate(settings | changes))


def pictures(folder: Path, count: int) -> list[Path]:
    """Pictures of random pixels. As bitmaps, all have the same size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i}.bmp" for i in range(count)]
    for i, path in enumerate(paths):
        if not path.exists():
            pixels = np.random.default_rng(i).integers(0, 256, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
    return paths


def build(
    folder: Path, paths: list[Path], net: Encoder | None = None, flip: bool = False, **how: Any
) -> tuple[Features, Encoder]:
    net = net or encoder()
    spec = FeatureSpec.of(net, flip=flip)
    return features.build(folder, spec, net, paths, **{"batch": 2, "shard": 3, "threads": 1, **how}), net


def direct(net: Encoder, path: Path, mirrored: bool = False) -> torch.Tensor:
    """The output of the trunk for a picture, in torch, without a cache."""
    image = read_image(path)[0]
    if mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    with torch.no_grad():
        return net.trunk(torch.from_numpy(squash(image, tiny_run.SIZE).copy())[None])[0]


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal up to float16 and the order of additions in onnxruntime; values are about 10."""
    torch.testing.assert_close(actual, expected, atol=0.03, rtol=2e-3)


def rows(cache: Features, paths: list[Path]) -> torch.Tensor:
    return cache.read(cache.locate([features.image_key(path) for path in paths]))


def test_a_row_is_the_output_of_the_trunk_for_its_image(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 7)
    cache, net = build(tmp_path / "cache", paths)
    shuffled = [paths[i] for i in (6, 0, 3)]
    for row, path in zip(rows(cache, shuffled), shuffled, strict=True):
        close(row, direct(net, path))
    assert np.load(tmp_path / "cache" / "00000.npy").dtype == np.float16


def test_the_tail_on_cached_grids_gives_the_annotations_of_the_whole_encoder(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 3)
    cut, whole = encoder(tail="stage3"), encoder()
    cache, _ = build(tmp_path / "cache", paths, cut)
    annotations = cut.tail(rows(cache, paths))
    for row, path in zip(annotations, paths, strict=True):
        expected = direct(whole, path)
        assert (row - expected).abs().mean() < 1e-3 * expected.abs().mean()


def test_the_second_view_has_the_features_of_the_mirror_image(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 4)
    cache, net = build(tmp_path / "cache", paths, flip=True)
    locations = cache.locate([features.image_key(path) for path in paths])
    grids = cache.read(locations, np.array([1, 0, 1, 0]))
    for row, path, mirrored in zip(grids, paths, (True, False, True, False), strict=True):
        close(row, direct(net, path, mirrored))
    assert (grids[0] - direct(net, paths[0])).abs().mean() > 1


def test_new_images_are_added_to_a_cache_and_none_is_encoded_twice(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 8)
    first, net = build(tmp_path / "cache", paths[:4])
    before = rows(first, paths[:4])
    shown: list[tuple[int, int]] = []
    second, _ = build(tmp_path / "cache", paths, net, progress=lambda done, total: shown.append((done, total)))
    assert shown == [(4, 8), (6, 8), (7, 8), (8, 8)]  # shards of three, batches of two
    assert torch.equal(rows(second, paths[:4]), before)
    assert len(second.locations) == 8
    build(tmp_path / "cache", paths[2:5], net, progress=lambda done, total: pytest.fail("encoded again"))


def test_a_changed_file_of_the_same_name_and_size_is_encoded_again(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 3)
    _, net = build(tmp_path / "cache", paths)
    changed, size = paths[1], paths[1].stat().st_size
    Image.fromarray(np.full((40, 48, 3), 200, np.uint8)).save(changed)
    assert changed.stat().st_size == size
    again, _ = build(tmp_path / "cache", paths, net)
    close(rows(again, [changed])[0], direct(net, changed))


def test_files_of_the_same_name_in_two_data_sets_are_different_images(tmp_path: Path) -> None:
    one = pictures(tmp_path / "train" / "images", 2)[1]
    other = tmp_path / "val" / "images" / one.name
    other.parent.mkdir(parents=True)
    Image.fromarray(np.full((40, 48, 3), 90, np.uint8)).save(other)
    cache, net = build(tmp_path / "cache", [one, other])
    for row, path in zip(rows(cache, [one, other]), (one, other), strict=True):
        close(row, direct(net, path))


@pytest.mark.parametrize("size", [10, 8192, 20_000, 24_576, 100_000])
def test_a_key_changes_with_the_beginning_the_middle_and_the_end_of_a_file(size: int, tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    data = bytearray(random.Random(size).randbytes(size))
    file.write_bytes(data)
    first = features.image_key(file)
    for offset in (0, size // 2, size - 1):
        changed = bytearray(data)
        changed[offset] ^= 1
        file.write_bytes(changed)
        assert features.image_key(file) != first
    moved = tmp_path / "elsewhere" / tmp_path.name / "a.jpg"
    moved.parent.mkdir(parents=True)
    moved.write_bytes(data)
    assert features.image_key(moved) == first


@pytest.mark.parametrize(
    ("other", "messages"),
    [
        ({"size": 64}, ["size: 32, needed 64", "shape: [40, 4, 4], needed [40, 8, 8]"]),
        ({"name": "efficientnet_lite1"}, ["encoder: 'efficientnet_lite0', needed 'efficientnet_lite1'"]),
        ({"annotations": ("stage2",)}, ["shape: [40, 4, 4], needed [24, 8, 8]"]),
        ({"weights": "none"}, ["fingerprint: "]),
        ({"flip": True}, ["flip: False, needed True"]),
    ],
)
def test_a_cache_with_different_settings_is_refused_with_the_differences(
    other: dict[str, Any], messages: list[str], tmp_path: Path
) -> None:
    paths = pictures(tmp_path / "images", 2)
    build(tmp_path / "cache", paths)
    flip = other.pop("flip", False)
    with pytest.raises(CaptionerError, match="was built with different settings") as raised:
        build(tmp_path / "cache", paths, encoder(**other), flip)
    for message in messages:
        assert message in str(raised.value)


def test_a_cache_of_another_transform_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = pictures(tmp_path / "images", 2)
    build(tmp_path / "cache", paths)
    monkeypatch.setattr(features, "TRANSFORM", "cropped")
    with pytest.raises(CaptionerError, match=r"transform: 'upright.*', needed 'cropped'"):
        build(tmp_path / "cache", paths)


def test_only_settings_that_change_the_output_of_the_trunk_need_another_cache(tmp_path: Path) -> None:
    """Configs with the same trunk share a cache; other weights, sizes and views have other folders."""
    trunk = [encoder(tail="stage3"), encoder(tail="stage3", annotations=("stage4",))]
    folders = [features.cache_folder(tmp_path, FeatureSpec.of(net, flip=False)) for net in trunk]
    assert folders[0] == folders[1]
    others = [encoder(tail="stage3", weights="none"), encoder(tail="stage3", size=64), encoder()]
    assert len({features.cache_folder(tmp_path, FeatureSpec.of(net, flip=False)) for net in [*trunk, *others]}) == 4
    assert features.cache_folder(tmp_path, FeatureSpec.of(trunk[0], flip=True)) != folders[0]


def test_the_error_of_an_incomplete_cache_says_what_to_do(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 6)
    _, net = build(tmp_path / "cache", paths)
    (tmp_path / "cache" / "00001.json").unlink()
    cache = Features(tmp_path / "cache", FeatureSpec.of(net, flip=False))
    with pytest.raises(CaptionerError, match=r"is incomplete: 3 of 6 images are missing.*run `captioner features`"):
        rows(cache, paths)
    whole, _ = build(tmp_path / "cache", paths, net)
    for row, path in zip(rows(whole, paths), paths, strict=True):
        close(row, direct(net, path))


@pytest.mark.parametrize(
    "harm", ["cut", "empty", "gone", "other rows", "listing cut", "header of Python 2", "not an array"]
)
def test_a_damaged_shard_is_named_and_can_be_encoded_again(harm: str, tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 6)
    folder = tmp_path / "cache"
    _, net = build(folder, paths)
    data, listing = folder / "00001.npy", folder / "00001.json"
    if harm == "cut":
        data.write_bytes(data.read_bytes()[:-100])
    elif harm == "empty":
        data.write_bytes(b"")
    elif harm == "gone":
        data.unlink()
    elif harm == "other rows":
        listing.write_text(json.dumps(json.loads(listing.read_text())["keys"][:2]))
    elif harm == "header of Python 2":  # which numpy reads, with a warning
        data.write_bytes(data.read_bytes().replace(b"(3, ", b"(3L,", 1))
    elif harm == "listing cut":
        listing.write_text(listing.read_text()[:10])
    else:
        data.write_bytes(b"x" * 5000)
    with pytest.raises(CaptionerError, match=r"00001\.npy is damaged.*remove .*00001\.json and run"):
        build(folder, paths, net)
    listing.unlink()
    again, _ = build(folder, paths, net)
    for row, path in zip(rows(again, paths), paths, strict=True):
        close(row, direct(net, path))


def read_while_it_is_cut_off(folder: Path, paths: list[Path]) -> None:
    cache, _ = build(folder, paths)
    os.truncate(folder / "00000.npy", 100)
    rows(cache, paths)


@posix
def test_a_shard_that_is_cut_off_while_it_is_in_use_is_named(tmp_path: Path) -> None:
    """In a process of its own: with memory maps, the system ended it with SIGBUS."""
    paths = pictures(tmp_path / "images", 3)
    assert child_process.run(read_while_it_is_cut_off, tmp_path / "cache", paths, log=tmp_path / "log") == 1
    assert "00000.npy is damaged (it ends before row 1 of 3); remove " in (tmp_path / "log").read_text()


def test_an_unreadable_picture_is_named(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 2)
    paths[1].write_bytes(b"no picture")
    with pytest.raises(CaptionerError, match=r"1\.bmp: not a picture"):
        build(tmp_path / "cache", paths)


def test_a_folder_without_a_cache_or_with_a_damaged_one_is_refused(tmp_path: Path) -> None:
    spec = FeatureSpec.of(encoder(), flip=False)
    with pytest.raises(CaptionerError, match=r"no cache\.json; run `captioner features`"):
        Features(tmp_path, spec)
    (tmp_path / "cache.json").write_text("{")
    with pytest.raises(CaptionerError, match=r"cache\.json is damaged"):
        Features(tmp_path, spec)


# --- interruptions ----------------------------------------------------------------------------------------------


def encode(folder: Path, paths: list[Path]) -> None:
    build(folder, paths)


def check_nothing_false(folder: Path, paths: list[Path], reference: Features) -> int:
    """Check all rows of the cache bit for bit, and return their number."""
    if not (folder / "cache.json").exists():
        return 0
    cache = Features(folder, reference.spec)
    have = [path for path in paths if features.image_key(path) in cache.locations]
    assert torch.equal(rows(cache, have), rows(reference, have))
    if len(have) < len(paths):
        with pytest.raises(CaptionerError, match="is incomplete"):
            rows(cache, paths)
    return len(have)


@posix
@pytest.mark.parametrize(
    "target", ["captioner.files.atomic:os.fsync", "pathlib:Path.replace", "captioner.train.features:np.save"]
)
def test_a_cache_killed_at_every_write_is_never_wrong_and_ends_complete(target: str, tmp_path: Path) -> None:
    """SIGKILL before and after each sync, rename and save. The cache is resumed after each."""
    paths = pictures(tmp_path / "images", 7)
    reference, _ = build(tmp_path / "reference", paths)
    folder, log = tmp_path / "cache", tmp_path / "log"
    had, deaths = 0, 0
    for attempt in range(40):
        code = child_process.run(
            encode, folder, paths, kill=KillAt(target, 1 + attempt % 5, after=attempt % 2 == 1), log=log
        )
        now = check_nothing_false(folder, paths, reference)
        assert now >= had, "rows were lost"
        had = now
        if code == 0:
            break
        assert code == -signal.SIGKILL, log.read_text()
        deaths += 1
    assert had == 7
    assert deaths >= 2
    assert not list(folder.glob(".*.message"))


@posix
def test_a_cache_killed_at_random_times_ends_complete(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 40)
    reference, _ = build(tmp_path / "reference", paths, shard=40)
    folder, chance = tmp_path / "cache", random.Random(0)
    for _ in range(6):
        before = len(list(folder.glob("[0-9]*.json")))
        child = child_process.start(encode, folder, paths)
        while child.exitcode is None and len(list(folder.glob("[0-9]*.json"))) < before + 1:
            child.join(0.005)
        child.join(chance.random() * 0.05)
        child.kill()  # may come too late: the child may have ended
        child.join(60)
        check_nothing_false(folder, paths, reference)
    cache, _ = build(folder, paths)
    assert torch.equal(rows(cache, paths), rows(reference, paths))


@posix
def test_two_processes_can_fill_one_cache_at_the_same_time(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 30)
    reference, _ = build(tmp_path / "reference", paths)
    folder, log = tmp_path / "cache", tmp_path / "log"
    both = [child_process.start(encode, folder, paths, log=log) for _ in range(2)]
    for child in both:
        child.join(120)
        assert child.exitcode == 0, log.read_text()
    assert check_nothing_false(folder, paths, reference) == 30
    assert len(list(folder.glob("*.npy"))) == 10, "images were encoded twice"


def test_opening_a_cache_does_not_read_its_rows(tmp_path: Path) -> None:
    """Opening maps the shards without reading them, so a sparse file as large as a disk opens at once."""
    net = encoder()
    spec = FeatureSpec.of(net, flip=False)
    paths = pictures(tmp_path / "images", 1)
    build(tmp_path / "cache", paths, net)
    count = 200_000
    path = tmp_path / "cache" / "00007.npy"
    shape = (count, 1, *spec.shape)
    header = np.lib.format.open_memmap(path, "w+", np.float16, shape)
    del header
    assert path.stat().st_size > 250e6
    (tmp_path / "cache" / "00007.json").write_text(json.dumps([f"k{i}" for i in range(count)]))
    cache = Features(tmp_path / "cache", spec)
    assert len(cache.locations) == count + 1
    assert cache.read(cache.locate(["k199999"])).abs().sum() == 0
    shutil.rmtree(tmp_path / "cache")


def test_a_picture_in_an_archive_has_the_key_of_the_unpacked_one(tmp_path: Path) -> None:
    path = picture(tmp_path / "train2014" / "a.jpg", seed=3, size=(200, 150))
    with zipfile.ZipFile(tmp_path / "train2014.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, "train2014/a.jpg")
    assert features.image_key(tmp_path / "train2014.zip" / "train2014" / "a.jpg") == features.image_key(path)


def test_a_changed_bit_in_a_shard_is_found_by_its_checksum(tmp_path: Path) -> None:
    rows = np.arange(24, dtype=np.float16).reshape(2, 1, 3, 2, 2)
    features._write_shard(tmp_path, 0, rows, ["a", "b"])
    features._write_shard(tmp_path, 1, rows, ["c", "d"])
    assert features.verify_shards(tmp_path) == (2, [])
    data = bytearray((tmp_path / "00001.npy").read_bytes())
    data[-1] ^= 1
    (tmp_path / "00001.npy").write_bytes(bytes(data))
    assert features.verify_shards(tmp_path) == (2, [tmp_path / "00001.json"])


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(file: Any, rows: Any) -> None:
        raise OSError("48 requested and 0 written")  # numpy's own error, without a number

    monkeypatch.setattr(np, "save", save)
    with pytest.raises(CaptionerError, match=r"cannot be written \(48 requested and 0 written\); make room and run"):
        features._write_shard(tmp_path, 0, np.zeros((1, 1, 1, 1, 1), np.float16), ["a"])
