"""Single pictures are fetched from a real HTTP server that is busy at first, or always."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from PIL import Image

from captioner.data.download import retrying
from captioner.data.download.single_pictures import fetch_pictures
from tests.data.download.file_server import Server


@pytest.fixture
def photo(server: Server) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    server.files["/1.png"] = buffer.getvalue()
    return buffer.getvalue()


def test_a_server_that_asks_for_an_hour_is_asked_again_after_the_longest_pause(
    server: Server, photo: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "LONGEST_PAUSE", 0.05)
    server.statuses["/1.png"], server.retry_after = [503, 429], "3600"
    began = time.monotonic()
    assert fetch_pictures([(f"{server.url}/1.png", tmp_path / "1.png")], connections=1) == []
    assert (tmp_path / "1.png").read_bytes() == photo and time.monotonic() - began < 30


def test_a_picture_that_fails_three_times_is_named(server: Server, photo: bytes, tmp_path: Path) -> None:
    server.statuses["/1.png"] = [503] * 9
    (failure,) = fetch_pictures([(f"{server.url}/1.png", tmp_path / "1.png")], connections=1)
    assert failure.startswith(f"{server.url}/1.png: the server answers 503") and len(server.requests) == 3
