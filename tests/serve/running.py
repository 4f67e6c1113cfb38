"""A real service in a process of its own, for tests that talk HTTP to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]


@dataclass
class Running:
    """The process, its address, and everything it wrote to standard error."""

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[str] = field(default_factory=list)

    def stop(self, sig: int = signal.SIGTERM) -> int:
        self.process.send_signal(sig)
        return self.process.wait(30)

    def client(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, **options)  # type: ignore[arg-type]


@contextmanager
def running(
    *arguments: str, ready: bool = True, environment: dict[str, str] | None = None, session: bool = False
) -> Iterator[Running]:
    """`captioner serve` with these arguments on a free port, ready to answer; in a session of its own if asked."""
    command = [sys.executable, "-m", "captioner", "serve", "--port", "0", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(environment or {})}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables, start_new_session=session)
    service = Running(process)
    address = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            service.lines.append(line.rstrip("\n"))
            if found := re.search(r"http://\S+", line):
                service.url = service.url or found[0]
                address.set()
        address.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert address.wait(60)
        if ready:
            wait_until_ready(service)
        yield service
    finally:
        process.kill()
        process.wait()
        reader.join(5)
        assert process.stderr is not None
        process.stderr.close()


def wait_until_ready(service: Running) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert service.process.poll() is None, service.lines
        try:
            if httpx.get(f"{service.url}/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"not ready: {service.lines}")
