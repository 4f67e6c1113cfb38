"""A web server on this machine, which can be told to fail."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path


class WebServer(http.server.ThreadingHTTPServer):
    """Serves the files of a folder.

    While it is busy, everything under /busy/ has the status 503; else that is the folder too. Under /forbidden/,
    nothing may be read.
    """

    busy = False
    folder = Path()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.SimpleHTTPRequestHandler):
    server: WebServer

    def send_head(self):
        if self.path.startswith("/forbidden/"):
            return self.send_error(403)
        if self.path.startswith("/busy/") and self.server.busy:
            return self.send_error(503)
        return super().send_head()

    def translate_path(self, path: str) -> str:
        self.directory = str(self.server.folder)
        return super().translate_path(path.removeprefix("/busy"))

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def web_server(folder: Path) -> Iterator[WebServer]:
    server = WebServer(("127.0.0.1", 0), Handler)
    server.folder = folder
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def unused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
