"""Run functions in child processes, and kill them with SIGKILL at a chosen point.

A fork server imports torch once, so that each child starts without delay.
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
class KillAt:
    """Kill the process before or after call number `count` of `target`: `module:name` or `module:Class.name`."""

    target: str
    count: int
    after: bool = True

    def install(self) -> None:
        module, _, path = self.target.partition(":")
        *owners, name = path.split(".")
        holder: Any = __import__(module, fromlist=["_"])
        for owner in owners:
            holder = getattr(holder, owner)
        original, calls = getattr(holder, name), 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == self.count and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **kwargs)
            if calls == self.count:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(holder, name, counted)


def run(function: Callable[..., None], *args: Any, kill: KillAt | None = None, log: Path | None = None) -> int:
    """Run a function in a child process and return its exit code: -9 if it was killed."""
    child = start(function, *args, kill=kill, log=log)
    child.join(300)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode


def start(function: Callable[..., None], *args: Any, kill: KillAt | None = None, log: Path | None = None) -> Any:
    """Start a function in a child process and return without waiting for it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["captioner.train.trainer", "torch.utils.tensorboard", "tests.train.child_process"])
    # The fork server reads its import path and its number of threads from the environment.
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    child = context.Process(target=_run_in_child, args=(function, args, kill, log))
    child.start()
    return child


def _run_in_child(function: Callable[..., None], args: tuple[Any, ...], kill: KillAt | None, log: Path | None) -> None:
    import torch

    from captioner.errors import CaptionerError

    torch.set_num_threads(1)
    with (log or Path(os.devnull)).open("a") as file:
        os.dup2(file.fileno(), 2)
    if kill is not None:
        kill.install()
    try:
        function(*args)
    except CaptionerError as error:
        print(error, file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    sys.stderr.flush()
    os._exit(0)  # skip exit handlers of libraries, which can be slow


def train(config: Path, folder: Path, resume: bool = False) -> None:
    from captioner.train.start import start as start_training

    start_training(None if resume else config, folder=folder, resume=folder if resume else None, device="cpu")


def encode(config: Path) -> None:
    from captioner.train.start import encode as encode_features

    encode_features(config, device="cpu")
