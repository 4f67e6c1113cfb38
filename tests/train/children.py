"""Child processes that tests kill: a server imports torch once and forks them, so that each starts at once.

A bomb kills the process it is in with SIGKILL, at a point of the work that the test chooses.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Bomb:
    """Kill before or after the n-th call of a function, given as `module:name` or `module:Class.name`."""

    target: str
    count: int
    after: bool = True

    def plant(self) -> None:
        module, _, path = self.target.partition(":")
        *owners, name = path.split(".")
        place: Any = __import__(module, fromlist=["_"])
        for owner in owners:
            place = getattr(place, owner)
        real, calls = getattr(place, name), 0

        def armed(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == self.count and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*args, **kwargs)
            if calls == self.count:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(place, name, armed)


def run(function: Callable[..., None], *args: Any, bomb: Bomb | None = None, log: Path | None = None) -> int:
    """Run a function in a child; its exit code, which is -9 where it was killed."""
    child = start(function, *args, bomb=bomb, log=log)
    child.join(300)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode


def start(function: Callable[..., None], *args: Any, bomb: Bomb | None = None, log: Path | None = None) -> Any:
    """Start a function in a child and return at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["captioner.train.trainer", "torch.utils.tensorboard", "tests.train.children"])
    # The server takes its path and its number of threads from the environment.
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    child = context.Process(target=_inside, args=(function, args, bomb, log))
    child.start()
    return child


def _inside(function: Callable[..., None], args: tuple[Any, ...], bomb: Bomb | None, log: Path | None) -> None:
    import torch

    from captioner.errors import CaptionerError

    torch.set_num_threads(1)
    with (log or Path(os.devnull)).open("a") as file:
        os.dup2(file.fileno(), 2)
    if bomb is not None:
        bomb.plant()
    try:
        function(*args)
    except CaptionerError as error:
        print(error, file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    sys.stderr.flush()
    os._exit(0)  # without waiting for other people's exit handlers


def train(config: Path, folder: Path, resume: bool = False) -> None:
    from captioner.train.start import start as begin

    begin(None if resume else config, folder=folder, resume=folder if resume else None, device="cpu")


def encode(config: Path) -> None:
    from captioner.train.start import encode as begin

    begin(config, device="cpu")
