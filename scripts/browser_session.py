"""A headless Chromium and a static web server, for scripts that measure what `captioner web` writes.

The pages that the scripts need are served beside the folder: no file of the folder is changed.
"""

from __future__ import annotations

import http.server
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, pages of the script's own, and further headers."""

    def __init__(
        self,
        *arguments: Any,
        pages: Mapping[str, str],
        headers: Mapping[str, str],
        before: Callable[[str], object],
        **options: Any,
    ) -> None:
        self.pages, self.further_headers, self.before = pages, headers, before
        super().__init__(*arguments, **options)

    def do_GET(self) -> None:
        self.before(self.path)
        page = self.pages.get(self.path)
        if page is None:
            super().do_GET()
            return
        data = page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def end_headers(self) -> None:
        for name, value in self.further_headers.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves closes its connections, which is no error."""


@contextmanager
def static_server(
    folder: Path,
    *,
    pages: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    before: Callable[[str], object] = lambda path: None,
) -> Iterator[str]:
    """The address of a server for this folder on 127.0.0.1. It calls `before` with the path of each request."""
    handler = partial(_Handler, directory=str(folder), pages=pages or {}, headers=headers or {}, before=before)
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def chromium(*flags: str) -> Iterator[Any]:
    """A WebDriver with a profile of its own, so that nothing is cached before."""
    from selenium import webdriver

    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        raise SystemExit("no browser found; on Debian: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", *flags):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            yield browser
        finally:
            browser.quit()


def run(browser: Any, script: str, *arguments: object, seconds: float = 1200) -> Any:
    """The result of an async function body in the page. An exception there is one here."""
    start = f"""window.answer = null;
(async (...args) => {{ {script} }})(...arguments).then((value) => (window.answer = {{ value: value ?? null }}),
  (error) => (window.answer = {{ error: String(error?.stack ?? error) }}));"""
    browser.execute_script(start, *arguments)
    end = time.monotonic() + seconds
    while time.monotonic() < end:  # a single long call would run into the time limit of WebDriver
        answer = browser.execute_script("return window.answer")
        if answer is not None:
            if "error" in answer:
                raise RuntimeError(answer["error"])
            return answer["value"]
        time.sleep(0.02)
    raise TimeoutError(f"the page did not answer within {seconds} seconds")


def give_files(browser: Any, paths: Sequence[Path]) -> None:
    """Put files into the page's first file input."""
    browser.find_element("css selector", "input[type=file]").send_keys("\n".join(str(path.resolve()) for path in paths))
