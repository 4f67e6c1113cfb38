"""Pictures that claim too much are refused by their header, within the limits of pixels, memory and time."""

from __future__ import annotations

import io
import itertools
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image, ImageFile

from attack_suite import bombs
from captioner.errors import CaptionerError
from captioner.images import limits as limits_module
from captioner.images.decoding import decoded
from captioner.images.jpeg_scans import count_scans, has_several_scans
from captioner.images.limits import MEMORY_LIMIT, Limits, MemoryBudget
from captioner.images.reading import load_for_model, read_image


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures the peak in /proc")
@pytest.mark.parametrize("name", sorted(set(bombs.SMALL) - {"fill.jpg", "comment.ppm"}))
def test_two_readers_of_a_bomb_stay_within_the_memory_limit(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bombs.SMALL[name]())
    megabytes, seconds, _ = bombs.measure(tmp_path / name, readers=2)
    assert megabytes <= MEMORY_LIMIT
    assert seconds < 20


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures the peak in /proc")
@pytest.mark.parametrize("readers", [1, 8])
def test_readers_of_different_bombs_stay_within_the_memory_limit(tmp_path: Path, readers: int) -> None:
    """Before, glibc kept the blocks of pictures that had been decoded: 842 MB with one reader."""
    megabytes, _, problem = bombs.measure(*bombs.write_mixed(tmp_path), readers=readers, timeout=300)
    assert problem is None
    assert megabytes <= MEMORY_LIMIT


@pytest.mark.parametrize(
    ("name", "width", "height"),
    [("canvas.webp", 14000, 14000), ("tall.png", 1, 100000000), ("frame.gif", 14000, 14000), ("tile.tif", 100, 100)],
)
def test_what_a_header_claims_is_refused_before_it_is_allocated(tmp_path, name, width, height):
    path = tmp_path / name
    path.write_bytes(bombs.SMALL[name]())
    with pytest.raises(CaptionerError, match=rf"{width}x{height} pixels .* more than the limit of 512 MB.*--memory-li"):
        load_for_model(path, 256)


def test_the_memory_limit_can_be_moved(tmp_path):
    path = tmp_path / "alpha.png"
    path.write_bytes(bombs.png(1000, 1000, color=6))
    with pytest.raises(CaptionerError, match="takes about 9 MB, more than the limit of 5 MB"):
        read_image(path, limits=Limits(megabytes=5))
    assert read_image(path, limits=Limits(megabytes=20))[1].width == 1000


def test_a_large_honest_photo_is_read_as_a_draft(tmp_path):
    path = tmp_path / "large.jpg"
    path.write_bytes(bombs.jpeg(6000, 5000))
    picture, pixels = load_for_model(path, 64, limits=Limits(megabytes=10))
    assert (picture.frame.width, picture.frame.height) == (6000, 5000)
    assert np.abs(pixels.astype(int) - (90, 20, 200)).max() < 12


def test_a_tiff_above_pillows_own_limit_is_read(tmp_path, monkeypatch):
    path = tmp_path / "scan.tif"
    path.write_bytes(bombs.tiff(300, 200))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_image(path)[1].width == 300
    assert Image.MAX_IMAGE_PIXELS == 1000


@pytest.mark.parametrize(
    "make", [lambda: bombs.fill_bytes(5), lambda: bombs.ppm_comment(5), lambda: bombs.png_chunks(500_000)]
)
def test_a_header_without_end_is_given_up(tmp_path, monkeypatch, make):
    """Each look at the clock takes a millisecond here: the file is given up after 200 small reads, not at its end."""
    looks = itertools.count()
    monkeypatch.setattr(limits_module, "time", SimpleNamespace(monotonic=lambda: next(looks) / 1000))
    (tmp_path / "slow").write_bytes(make())
    with pytest.raises(CaptionerError, match=r"takes longer than 0\.2 seconds.*--seconds-per-picture"):
        load_for_model(tmp_path / "slow", 64, limits=Limits(seconds=0.2))
    assert next(looks) < 210


def test_other_pictures_do_not_wait_for_a_slow_one(tmp_path):
    Image.new("RGB", (20, 10)).save(tmp_path / "quick.png")
    reading, finish = threading.Event(), threading.Event()

    class SlowFile(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 100:  # in the header still
                reading.set()
                assert finish.wait(60)
            return super().read(size)

    def read_slow() -> int:
        with decoded(SlowFile(bombs.png_chunks(100)), "slow.png", limits=Limits(seconds=600)) as (_, frame):
            return frame.width

    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(read_slow)
        assert reading.wait(60)
        try:
            assert pool.submit(read_image, tmp_path / "quick.png").result(timeout=60)[1].width == 20
            assert not slow.done()
        finally:
            finish.set()
        assert slow.result() == 8


def test_a_jpeg_of_thousands_of_scans_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    def load(image: ImageFile.ImageFile) -> None:
        raise AssertionError("decoded")

    path = tmp_path / "scans.jpg"
    path.write_bytes(bombs.many_scans(20_000))
    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    with pytest.raises(CaptionerError, match="a JPEG of 20,010 scans, which takes too long"):
        load_for_model(path, 64)


def test_scans_are_counted_as_the_encoder_wrote_them(tmp_path):
    for progressive, several, scans in ((False, False, 1), (True, True, 10)):
        (tmp_path / "a.jpg").write_bytes(bombs.jpeg(64, 64, progressive=progressive))
        with (tmp_path / "a.jpg").open("rb") as file:
            file.seek(7)
            assert (has_several_scans(file), count_scans(file), file.tell()) == (several, scans, 7)


def test_a_picture_waits_for_memory_and_is_not_refused_for_it(tmp_path):
    path = tmp_path / "alpha.png"
    path.write_bytes(bombs.png(1000, 1000, color=6))
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(read_image, path, limits=Limits(megabytes=10)) for _ in range(16)]
        assert all(future.result()[1].width == 1000 for future in futures)


def test_a_large_picture_is_not_overtaken_by_small_ones():
    """Before, small pictures that kept arriving could take the memory that a large one waited for."""
    budget, limits, order = MemoryBudget(), Limits(megabytes=10), list[str]()

    def read(name: str, megabytes: int) -> None:
        with budget.reserve(megabytes * 1_000_000, limits):
            order.append(name)

    with ThreadPoolExecutor(2) as pool:
        with budget.reserve(5_000_000, limits):
            futures = []
            for number, (name, megabytes) in enumerate([("large", 9), ("small", 1)], 1):
                futures.append(pool.submit(read, name, megabytes))
                while budget.waiting < number and not order:
                    time.sleep(0.001)
            assert order == []
        for future in futures:
            future.result()
    assert order == ["large", "small"]


def test_a_picture_that_stops_waiting_does_not_hold_up_the_next(monkeypatch):
    budget, limits = MemoryBudget(), Limits(megabytes=10)
    with budget.reserve(5_000_000, limits):
        # Ctrl-C while it waits; the signal itself may be ignored, as in a background job
        monkeypatch.setattr(budget._changed, "wait_for", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), budget.reserve(9_000_000, limits):
            pass
        monkeypatch.undo()
        with budget.reserve(5_000_000, limits):
            assert budget.waiting == 0
