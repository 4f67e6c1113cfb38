"""A server per test, and transfers whose pauses are short."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from captioner.data.download import http, retrying, transfer
from tests.data.download.file_server import Server, serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(retrying, "PAUSE", 0.01)
    monkeypatch.setattr(transfer, "SAVE_EVERY", 0.05)
    monkeypatch.setattr(http, "TIMEOUT", 1.0)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as server:
        yield server
