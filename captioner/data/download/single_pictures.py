"""Single pictures by their addresses, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from captioner.data.download.http import DownloadError, PassingError, RangeError, opened
from captioner.data.download.retrying import pause_after
from captioner.files.atomic import open_atomically, sweep
from captioner.images.file_kinds import HEADER, kind_of
from captioner.progress import ProgressBar

ATTEMPTS = 3
GIVE_UP = 20  # pictures that fail before any succeeds


def fetch_pictures(pictures: Sequence[tuple[str, Path]], *, connections: int) -> list[str]:
    """Fetch each address to its path, unless the file is there. Returns one sentence per picture that failed."""
    todo = [(url, path) for url, path in pictures if not path.is_file()]
    for folder in {path.parent for _, path in todo}:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
    failures: list[str] = []
    done = len(pictures) - len(todo)
    pool, stop = ThreadPoolExecutor(connections), threading.Event()
    try:
        with ProgressBar("fetching", total=len(pictures), plain_every=max(100, len(pictures) // 20)) as progress:
            progress.show(done)
            for future in as_completed([pool.submit(_fetch, url, path, stop) for url, path in todo]):
                failure = future.result()
                if failure is None:
                    done += 1
                    progress.show(done)
                    continue
                failures.append(failure)
                if len(failures) == GIVE_UP and done == len(pictures) - len(todo):
                    raise DownloadError(f"the first {GIVE_UP} pictures all failed: {failures[0]}")
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
    return sorted(failures)


def _fetch(url: str, path: Path, stop: threading.Event) -> str | None:
    """Why a picture could not be fetched; None if it is there."""
    attempts = 0
    while True:
        try:
            with opened(url) as response:
                content = response.read()
        except (DownloadError, RangeError) as error:
            return str(error)
        except PassingError as error:
            attempts += 1
            if attempts == ATTEMPTS or stop.is_set():
                return str(error)
            pause_after(error, attempts, stop)
            continue
        if not kind_of(content[:HEADER], path.name).holds_picture:
            return f"{url}: the answer is not a picture"
        with open_atomically(path, sync=False) as file:
            file.write(content)
        return None
