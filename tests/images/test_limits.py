"""Pictures that claim too much are refused by their header, within the limits of pixels, memory and time."""

from __future__ import annotations

import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attack_suite import bombs
from captioner.errors import CaptionerError
from captioner.images.decoding import inspect
from captioner.images.jpeg_scans import count_scans, has_several_scans
from captioner.images.limits import MEMORY_LIMIT, Limits
from captioner.images.reading import load_for_model, read_image


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures the peak in /proc")
@pytest.mark.parametrize("name", sorted(set(bombs.SMALL) - {"fill.jpg", "comment.ppm"}))
def test_two_readers_of_a_bomb_stay_within_the_memory_limit(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bombs.SMALL[name]())
    megabytes, seconds, _ = bombs.measure(tmp_path / name, readers=2)
    assert megabytes <= MEMORY_LIMIT
    assert seconds < 20


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
def test_a_header_without_end_is_given_up(tmp_path, make):
    (tmp_path / "slow").write_bytes(make())
    start = time.monotonic()
    with pytest.raises(CaptionerError, match=r"takes longer than 0\.2 seconds.*--seconds-per-picture"):
        load_for_model(tmp_path / "slow", 64, limits=Limits(seconds=0.2))
    assert time.monotonic() - start < 2


def test_other_pictures_do_not_wait_for_a_slow_one(tmp_path):
    (tmp_path / "slow.ppm").write_bytes(bombs.ppm_comment(20))
    Image.new("RGB", (20, 10)).save(tmp_path / "quick.png")

    def slow() -> None:
        with pytest.raises(CaptionerError):
            inspect(tmp_path / "slow.ppm", limits=Limits(seconds=3))

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(slow)
        time.sleep(0.2)
        read_image(tmp_path / "quick.png")
        assert not future.done()
        future.result()


def test_a_jpeg_of_thousands_of_scans_is_refused_at_once(tmp_path):
    path = tmp_path / "scans.jpg"
    path.write_bytes(bombs.many_scans(20_000))
    start = time.monotonic()
    with pytest.raises(CaptionerError, match="a JPEG of 20,010 scans, which takes too long"):
        load_for_model(path, 64)
    assert time.monotonic() - start < 2


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
