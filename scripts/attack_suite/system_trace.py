"""What a command opens on the network and writes on the disk, seen by strace."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attack_suite.commands import finish, kill, start

_MAKING = ("creat", "mkdir", "mkdirat", "mknod", "mknodat")
_NAMING = ("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat")
_CALLS = ",".join(("network", "open", "openat", *_MAKING, *_NAMING))
_INTERNET = re.compile(r"\bAF_(?:INET6?|NETLINK|PACKET)\b")
_ADDRESS = re.compile(r'(?:inet_addr\(|inet_pton\(AF_INET6, )"([^"]*)"')
_CALL = re.compile(r"\d+ +(\w+)\(")  # after the number of the process
_PATH = re.compile(r'(?:<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')  # the folder of a relative path, and the path
_HARMLESS = ("/dev/", "/proc/")


@dataclass(frozen=True)
class Trace:
    """What a command did."""

    code: int
    err: str
    sockets: tuple[str, ...]  # calls that made a socket of the internet
    addresses: frozenset[str]  # bound, connected or sent to
    written: frozenset[Path]  # files and folders that were opened for writing, made or renamed


def can_trace() -> bool:
    """Whether strace is there and allowed to trace."""
    strace = shutil.which("strace")
    return bool(strace) and not subprocess.run([str(strace), "-qq", "-o", "/dev/null", "true"]).returncode


def traced(folder: Path, *arguments: str | Path) -> Trace:
    """Run a command in `folder` under strace."""
    with _tracing(folder) as (prefix, read):
        code, err = finish(folder, *arguments, prefix=prefix)
        return read(code, err)


def traced_service(folder: Path, photo: Path, *arguments: str | Path) -> Trace:
    """Run `captioner serve` under strace, caption a photo with it, and stop it."""
    with _tracing(folder) as (prefix, read):
        process = start(folder, "serve", "--port", "0", "--no-log", *arguments, prefix=prefix)
        assert process.stderr is not None
        try:
            url = process.stderr.readline().decode().split()[1]
            while _status(f"{url}/ready") != 200:
                time.sleep(0.2)
            status = _status(f"{url}/v1/caption", photo.read_bytes())
            os.kill(_child(process.pid), signal.SIGTERM)
            _, err = process.communicate(timeout=120)
        finally:
            kill(process)
        return read(process.returncode if status == 200 else status, err.decode(errors="replace"))


@contextmanager
def _tracing(folder: Path) -> Iterator[tuple[tuple[str, ...], Callable[[int, str], Trace]]]:
    """The beginning of a command line, and a function that reads the trace when the command has ended."""
    trace = folder.parent / f"{folder.name}.strace"
    prefix = ("strace", "-f", "-qq", "-y", "-s", "4096", "--seccomp-bpf", "-e", f"trace={_CALLS}", "-o", str(trace))
    try:
        yield prefix, lambda code, err: read_trace(trace.read_text(errors="replace"), folder, code, err)
    finally:
        trace.unlink(missing_ok=True)


def _status(url: str, data: bytes | None = None) -> int:
    request = urllib.request.Request(url, data, {"Content-Type": "image/jpeg"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _child(process: int) -> int:
    """The one child of a process: strace passes no signals on."""
    return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])


def read_trace(text: str, folder: Path, code: int = 0, err: str = "") -> Trace:
    """What was written by calls that succeeded, and every address that was tried. Paths are relative to `folder`."""
    sockets, addresses, written = [], set[str](), set[Path]()
    for line in text.splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        if match[1] == "socket" and _INTERNET.search(line):
            sockets.append(line)
        if match[1] in ("bind", "connect", "sendto", "sendmsg", "sendmmsg"):
            addresses.update(_ADDRESS.findall(line))
        if " = -1 " not in line and (
            match[1] in _MAKING + _NAMING
            or (match[1] in ("open", "openat") and re.search("O_WRONLY|O_RDWR|O_CREAT", line))
        ):
            base, path = _PATH.findall(line)[-1 if match[1] in _NAMING else 0]
            written.add(folder / base / path)
    return Trace(code, err, tuple(sockets), frozenset(addresses), frozenset(written))


def foreign_files(trace: Trace, folder: Path) -> list[str]:
    """Files that were written outside `folder`, and what stayed in its home and temporary folders.

    The tables of METEOR may stay: captioner computes them once and keeps them in its own cache.
    """
    written = [path for path in trace.written if not str(path).startswith(_HARMLESS)]
    outside = [path for path in written if not path.is_relative_to(folder)]
    left = [path for name in ("home", "tmp") for path in (folder / name).rglob("*")]
    own_cache = folder / "home" / "cache" / "captioner"
    foreign = [path for path in left if not own_cache.is_relative_to(path) and not path.is_relative_to(own_cache)]
    return sorted(map(str, {*outside, *(path for path in foreign if not _is_torchs(path))}))


def _is_torchs(path: Path) -> bool:
    """torch makes this folder for compiled code, and leaves it empty unless code is compiled."""
    return path.name.startswith("torchinductor_") and not any(path.iterdir())
