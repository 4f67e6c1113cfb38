"""A process that forks after it has loaded a model: both processes go on captioning."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from captioner.inference import fork_gate
from captioner.inference.fork_gate import ForkGate
from tests.processes import run_with_children

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

# The sentence is forced in the main thread, whose OpenMP threads the child doesn't have.
FORK = """
import os, sys
from captioner import Captioner

captioner, picture = Captioner.load(sys.argv[1], backend=sys.argv[2], threads=2), sys.argv[3]
before = captioner.force(picture, "a dog on a table").log_probability, captioner(picture).text
child = os.fork()
now = captioner.force(picture, "a dog on a table").log_probability, captioner(picture).text
assert abs(now[0] - before[0]) < 1e-4 and now[1] == before[1], (before, now)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run_alone(code: str, *arguments: str) -> tuple[int, str]:
    """The exit code and messages of a new interpreter: the one of the tests has threads and locks of many libraries."""
    done = run_with_children([sys.executable, "-W", "ignore", "-c", code, *arguments], seconds=180)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_a_forked_process_captions_as_its_parent_does(backend: str) -> None:
    photo = next((ROOT / "examples").glob("*.jpg"))
    assert run_alone(FORK, str(ROOT / "weights" / "default"), backend, str(photo)) == (0, "")


# Of all threads, a child has only the one that forked: what the others held must be free there.
FORK_WHILE_READING = """
import os, signal, sys, threading
from PIL import Image
from captioner.images import decoding
from captioner.images.limits import LIMITS, memory_budget

reading, finish, everything = threading.Event(), threading.Event(), LIMITS.megabytes * 1_000_000

def read():
    with memory_budget.reserve(everything, LIMITS), decoding._without_pillow_limit():
        with decoding._pillow_limit._lock, memory_budget._changed:
            reading.set()
            finish.wait(60)

thread = threading.Thread(target=read)
thread.start()
assert reading.wait(60)
child = os.fork()
if not child:
    signal.alarm(60)  # ends it if it waits for ever
    with memory_budget.reserve(everything, LIMITS), decoding._without_pillow_limit():
        pass
    os._exit(0 if Image.MAX_IMAGE_PIXELS else 1)
finish.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_while_other_threads_read_leaves_no_memory_taken_and_no_lock_held() -> None:
    assert run_alone(FORK_WHILE_READING) == (0, "")


# Another thread runs graphs without a pause while the process forks.
FORK_WHILE_CAPTIONING = """
import os, signal, sys, threading
import numpy as np
from captioner import Captioner

captioner, stopping = Captioner.load(sys.argv[1], threads=2), threading.Event()
size = captioner.backend.image_size
pixels = np.zeros((1, size, size, 3), np.uint8)
before = captioner.backend.encode(pixels).values

def encode_on():
    while not stopping.is_set():
        captioner.backend.encode(pixels)

threads = [threading.Thread(target=encode_on) for _ in range(2)]
for thread in threads:
    thread.start()
codes = []
for _ in range(25):
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends it if it waits for ever
        os._exit(0 if (captioner.backend.encode(pixels).values == before).all() else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stopping.set()
for thread in threads:
    thread.join()
assert not any(codes), codes
"""


@pytest.mark.slow
def test_a_fork_while_other_threads_run_graphs_leaves_no_lock_of_the_runtime_held() -> None:
    assert run_alone(FORK_WHILE_CAPTIONING, str(ROOT / "weights" / "default")) == (0, "")


def test_a_fork_waits_for_graphs_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, events = ForkGate(), list[str]()

    def fork_once() -> None:
        gate.close()
        events.append("forked")
        gate.open()

    with gate.entered():
        fork = threading.Thread(target=fork_once)
        fork.start()
        fork.join(0.2)
        events.append("a graph ended")
    fork.join(10)
    assert events == ["a graph ended", "forked"]
    monkeypatch.setattr(fork_gate, "PATIENCE", 0.1)
    with gate.entered():
        gate.close()
        gate.open()
