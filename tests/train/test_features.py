"""The feature cache: whole after any interruption, never taken for whole when it isn't, refused when made otherwise."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioner.errors import CaptionerError
from captioner.images.pixels import squash
from captioner.images.reading import read
from captioner.model.encoder import Encoder
from captioner.model.settings import EncoderSettings
from captioner.train import features
from captioner.train.features import Features, FeatureSpec
from tests.train import child_process, tiny_run
from tests.train.child_process import KillAt

posix = pytest.mark.skipif(os.name == "nt", reason="kills processes by POSIX signals")


def encoder(**changes: Any) -> Encoder:
    settings = {"name": "efficientnet_lite0", "size": tiny_run.SIZE, "annotations": ("stage3",)}
    return Encoder(EncoderSettings.model_validate(settings | changes))


def pictures(folder: Path, count: int) -> list[Path]:
    """Pictures of random pixels, all of one size in pixels and, as bitmaps, in bytes."""
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
    """What the trunk gives for a picture, through torch, without any cache."""
    image = read(path)[0]
    if mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    with torch.no_grad():
        return net.trunk(torch.from_numpy(squash(image, tiny_run.SIZE).copy())[None])[0]


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal but for float16 and onnxruntime's order of additions; values are about 10."""
    torch.testing.assert_close(found, expected, atol=0.03, rtol=2e-3)


def rows(cache: Features, paths: list[Path]) -> torch.Tensor:
    return cache.read(cache.locate([features.key(path) for path in paths]))


def test_rows_are_the_trunks_output_image_by_image(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 7)
    cache, net = build(tmp_path / "cache", paths)
    shuffled = [paths[i] for i in (6, 0, 3)]
    for row, path in zip(rows(cache, shuffled), shuffled, strict=True):
        close(row, direct(net, path))
    assert cache.shards[0].dtype == np.float16
    assert isinstance(cache.shards[0], np.memmap)


def test_a_tail_made_of_the_cache_gives_the_whole_encoders_annotations(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 3)
    cut, whole = encoder(tail="stage3"), encoder()
    cache, _ = build(tmp_path / "cache", paths, cut)
    found = cut.tail(rows(cache, paths))
    for row, path in zip(found, paths, strict=True):
        expected = direct(whole, path)
        assert (row - expected).abs().mean() < 1e-3 * expected.abs().mean()


def test_the_flip_view_is_the_mirror_images_features(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 4)
    cache, net = build(tmp_path / "cache", paths, flip=True)
    places = cache.locate([features.key(path) for path in paths])
    found = cache.read(places, np.array([1, 0, 1, 0]))
    for row, path, mirrored in zip(found, paths, (True, False, True, False), strict=True):
        close(row, direct(net, path, mirrored))
    assert (found[0] - direct(net, paths[0])).abs().mean() > 1


def test_a_cache_grows_by_further_images_and_encodes_none_twice(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 8)
    first, net = build(tmp_path / "cache", paths[:4])
    kept = rows(first, paths[:4])
    shown: list[tuple[int, int]] = []
    second, _ = build(tmp_path / "cache", paths, net, progress=lambda done, total: shown.append((done, total)))
    assert shown == [(4, 8), (6, 8), (7, 8), (8, 8)]  # shards of three, batches of two
    assert torch.equal(rows(second, paths[:4]), kept)
    assert len(second.rows) == 8
    build(tmp_path / "cache", paths[2:5], net, progress=lambda done, total: pytest.fail("encoded again"))


def test_a_changed_file_is_seen_though_name_and_size_are_the_same(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 3)
    _, net = build(tmp_path / "cache", paths)
    changed, size = paths[1], paths[1].stat().st_size
    Image.fromarray(np.full((40, 48, 3), 200, np.uint8)).save(changed)
    assert changed.stat().st_size == size
    again, _ = build(tmp_path / "cache", paths, net)
    close(rows(again, [changed])[0], direct(net, changed))


def test_files_of_one_name_in_two_sets_are_told_apart(tmp_path: Path) -> None:
    one = pictures(tmp_path / "train" / "images", 2)[1]
    other = tmp_path / "val" / "images" / one.name
    other.parent.mkdir(parents=True)
    Image.fromarray(np.full((40, 48, 3), 90, np.uint8)).save(other)
    cache, net = build(tmp_path / "cache", [one, other])
    for row, path in zip(rows(cache, [one, other]), (one, other), strict=True):
        close(row, direct(net, path))


@pytest.mark.parametrize("size", [10, 8192, 20_000, 24_576, 100_000])
def test_a_key_sees_a_change_at_the_beginning_in_the_middle_and_at_the_end(size: int, tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    data = bytearray(random.Random(size).randbytes(size))
    file.write_bytes(data)
    first = features.key(file)
    for place in (0, size // 2, size - 1):
        changed = bytearray(data)
        changed[place] ^= 1
        file.write_bytes(changed)
        assert features.key(file) != first
    moved = tmp_path / "elsewhere" / tmp_path.name / "a.jpg"
    moved.parent.mkdir(parents=True)
    moved.write_bytes(data)
    assert features.key(moved) == first


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"size": 64}, ["size: 32, needed 64", "shape: [40, 4, 4], needed [40, 8, 8]"]),
        ({"name": "efficientnet_lite1"}, ["encoder: 'efficientnet_lite0', needed 'efficientnet_lite1'"]),
        ({"annotations": ("stage2",)}, ["shape: [40, 4, 4], needed [24, 8, 8]"]),
        ({"weights": "none"}, ["fingerprint: "]),
        ({"flip": True}, ["flip: False, needed True"]),
    ],
)
def test_a_cache_made_otherwise_is_refused_with_what_differs(
    other: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    paths = pictures(tmp_path / "images", 2)
    build(tmp_path / "cache", paths)
    flip = other.pop("flip", False)
    with pytest.raises(CaptionerError, match="was built with different settings") as raised:
        build(tmp_path / "cache", paths, encoder(**other), flip)
    for part in said:
        assert part in str(raised.value)


def test_a_cache_of_another_transform_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = pictures(tmp_path / "images", 2)
    build(tmp_path / "cache", paths)
    monkeypatch.setattr(features, "TRANSFORM", "cropped")
    with pytest.raises(CaptionerError, match=r"transform: 'upright.*', needed 'cropped'"):
        build(tmp_path / "cache", paths)


def test_only_what_decides_the_trunks_output_parts_caches(tmp_path: Path) -> None:
    """Two configs that share a trunk share its cache; other weights, sizes and views have folders of their own."""
    trunk = [encoder(tail="stage3"), encoder(tail="stage3", annotations=("stage4",))]
    folders = [features.cache_folder(tmp_path, FeatureSpec.of(net, flip=False)) for net in trunk]
    assert folders[0] == folders[1]
    others = [encoder(tail="stage3", weights="none"), encoder(tail="stage3", size=64), encoder()]
    assert len({features.cache_folder(tmp_path, FeatureSpec.of(net, flip=False)) for net in [*trunk, *others]}) == 4
    assert features.cache_folder(tmp_path, FeatureSpec.of(trunk[0], flip=True)) != folders[0]


def test_an_incomplete_cache_says_so_and_what_to_do(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 6)
    _, net = build(tmp_path / "cache", paths)
    (tmp_path / "cache" / "00001.json").unlink()
    cache = Features(tmp_path / "cache", FeatureSpec.of(net, flip=False))
    with pytest.raises(CaptionerError, match=r"is incomplete: 3 of 6 images are missing.*run `captioner features`"):
        rows(cache, paths)
    whole, _ = build(tmp_path / "cache", paths, net)
    for row, path in zip(rows(whole, paths), paths, strict=True):
        close(row, direct(net, path))


@pytest.mark.parametrize("harm", ["cut", "empty", "gone", "other rows", "listing cut", "not an array"])
def test_a_damaged_shard_is_named_and_can_be_made_again(harm: str, tmp_path: Path) -> None:
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
        listing.write_text(json.dumps(json.loads(listing.read_text())[:2]))
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


def test_an_unreadable_picture_is_named(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 2)
    paths[1].write_bytes(b"no picture")
    with pytest.raises(CaptionerError, match=r"1\.bmp: not a picture"):
        build(tmp_path / "cache", paths)


def test_a_folder_that_is_no_cache_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
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
    """What the cache says it has is right, to the bit; how many rows that is."""
    if not (folder / "cache.json").exists():
        return 0
    cache = Features(folder, reference.spec)
    have = [path for path in paths if features.key(path) in cache.rows]
    assert torch.equal(rows(cache, have), rows(reference, have))
    if len(have) < len(paths):
        with pytest.raises(CaptionerError, match="is incomplete"):
            rows(cache, paths)
    return len(have)


@posix
@pytest.mark.parametrize(
    "target", ["captioner.files.atomic:os.fsync", "pathlib:Path.replace", "captioner.train.features:np.save"]
)
def test_killed_at_every_write_it_is_never_false_and_ends_whole(target: str, tmp_path: Path) -> None:
    """SIGKILL before and after each sync, rename and save in turn, with the cache resumed each time."""
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
    assert not list(folder.glob(".*.part"))


@posix
def test_killed_from_outside_at_moments_of_chance_it_ends_whole(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 40)
    reference, _ = build(tmp_path / "reference", paths, shard=40)
    folder, chance = tmp_path / "cache", random.Random(0)
    for _ in range(6):
        before = len(list(folder.glob("[0-9]*.json")))
        child = child_process.start(encode, folder, paths)
        while child.exitcode is None and len(list(folder.glob("[0-9]*.json"))) < before + 1:
            child.join(0.005)
        child.join(chance.random() * 0.05)
        child.kill()  # which may come too late: the server the child is forked from buries it at once
        child.join(60)
        check_nothing_false(folder, paths, reference)
    cache, _ = build(folder, paths)
    assert torch.equal(rows(cache, paths), rows(reference, paths))


@posix
def test_two_processes_on_one_cache_don_t_get_into_each_others_way(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "images", 30)
    reference, _ = build(tmp_path / "reference", paths)
    folder, log = tmp_path / "cache", tmp_path / "log"
    both = [child_process.start(encode, folder, paths, log=log) for _ in range(2)]
    for child in both:
        child.join(120)
        assert child.exitcode == 0, log.read_text()
    assert check_nothing_false(folder, paths, reference) == 30
    assert len(list(folder.glob("*.npy"))) == 10, "images were encoded twice"


def test_rows_are_read_from_disk_and_not_kept(tmp_path: Path) -> None:
    """Opening maps the shards; it must not read them: a file with a hole as large as a disk opens at once."""
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
    assert len(cache.rows) == count + 1
    assert cache.read(cache.locate(["k199999"])).abs().sum() == 0
    shutil.rmtree(tmp_path / "cache")
