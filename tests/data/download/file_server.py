"""A real HTTP server on the loopback whose files and faults a test chooses."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """The files by path, and what goes wrong. Every request is noted as (path, Range header)."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    validators: bool = True
    cut_after: int | None = None  # bytes of a body before the connection is cut, as long as `cuts` are left
    cuts: int = 0
    statuses: dict[str, list[int]] = field(default_factory=dict)  # to answer first, one per request
    retry_after: str = ""  # header of these answers
    redirects: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0  # seconds before each block of a body
    block: int = 1 << 16
    content_type: str = "application/zip"
    requests: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0
    on_request: dict[int, tuple[str, bytes]] = field(default_factory=dict)  # at this request, the file is replaced
    pages: set[int] = field(default_factory=set)  # requests that a network answers with its login page
    dropped_ranges: set[int] = field(default_factory=set)  # requests that a proxy passes on without their Range


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            server.requests.append((self.path, wanted))
            number = len(server.requests)
            if number in server.on_request:
                path, content = server.on_request[number]
                server.files[path] = content
            path = self.path.replace(f"{server.url}", "") if self.path.startswith("http://") else self.path
            if number in server.pages:
                return self._send(200, {"Content-Type": "text/html"}, b"<html>Log in</html>")
            if number in server.dropped_ranges:
                wanted = ""
            if server.statuses.get(path):
                wait = {"Retry-After": server.retry_after} if server.retry_after else {}
                return self._answer(server.statuses[path].pop(0), wait)
            if path in server.redirects:
                return self._answer(302, {"Location": server.redirects[path]})
            if path not in server.files:
                return self._answer(404)
            content = server.files[path]
            etag = f'"{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"'
            headers = {"Content-Type": server.content_type}
            if server.validators:
                headers["ETag"] = etag
            match = re.match(r"bytes=(\d+)-(\d*)$", wanted)
            current = self.headers.get("If-Range", etag) == etag
            if match and server.ranges and current:
                start, end = int(match[1]), min(int(match[2] or len(content)), len(content) - 1)
                if start >= len(content):
                    return self._answer(416, {"Content-Range": f"bytes */{len(content)}"})
                headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
                self._send(206, headers, content[start : end + 1])
            else:
                self._send(200, headers, content)

        def _answer(self, status: int, headers: dict[str, str] | None = None) -> None:
            self._send(status, headers or {}, b"")

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            for start in range(0, len(body), server.block):
                time.sleep(server.delay)
                if server.cut_after is not None and start >= server.cut_after and server.cuts > 0:
                    server.cuts -= 1
                    self.close_connection = True
                    return
                server.sent += min(server.block, len(body) - start)
                try:
                    self.wfile.write(body[start : start + server.block])
                except ConnectionError:
                    self.close_connection = True
                    return

    return Handler


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    http.daemon_threads = True
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
