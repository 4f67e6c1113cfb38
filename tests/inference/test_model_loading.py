"""The graphs of all models share one arena, and loading leaves no freed memory behind."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from captioner.bundle.loading import load_bundle
from captioner.inference import model_loading
from captioner.inference.onnx_backend import OnnxBackend
from tests.tiny_bundle import SIDE, write_model

MODEL = Path(__file__).resolve().parents[2] / "weights" / "default"
# Megabytes that a process with a loaded model can still return.
FREED = """
import sys, threading
from captioner import Captioner
from captioner.workarounds.malloc import return_now
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
captioner = Captioner.load(sys.argv[1])
for thread in threading.enumerate():  # those that loaded the graphs
    if thread is not threading.main_thread():
        thread.join()
before = resident()
return_now()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_the_memory_that_loading_freed_is_returned_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", FREED, str(MODEL)], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 15  # it is about 60 if nothing was returned


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The arenas that are registered from now on, as in a process that has loaded no model yet."""
    found: list[object] = []
    real = onnxruntime.create_and_register_allocator

    def register(*args: object) -> None:
        found.append(args)
        real(*args)

    monkeypatch.setattr(onnxruntime, "create_and_register_allocator", register)
    model_loading._share_arena.cache_clear()
    return found


def test_the_graphs_of_all_models_share_one_arena(tmp_path: Path, registered: list[object]) -> None:
    for name in ("first", "second"):
        bundle = load_bundle(write_model(tmp_path / name).folder)
        for session in model_loading.start_sessions(bundle, 1, int8=False):
            options = session.result().get_session_options()
            assert options.get_session_config_entry("session.use_env_allocators") == "1"
    assert len(registered) == 1


@pytest.mark.parametrize("refuses", [False, True])  # a second arena, as older versions of onnxruntime do
def test_a_model_runs_beside_an_applications_own_arena_and_sessions(
    tmp_path: Path, registered: list[object], monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    kind, use = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
    place, growth = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, use), onnxruntime.OrtArenaCfg({"max_mem": 2**28})
    onnxruntime.create_and_register_allocator(place, growth)
    bundle = write_model(tmp_path / "model")
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.use_env_allocators", "1")
    graph = str(bundle.path("encoder.onnx"))
    pixels = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), np.uint8)
    own = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    (before,) = own.run(["annotations"], {"pixels": pixels})
    if refuses:

        def refuse(*args: object) -> None:
            raise RuntimeError("an arena has already been registered")

        monkeypatch.setattr(onnxruntime, "create_and_register_allocator", refuse)
    backend = OnnxBackend(bundle, threads=1)
    assert np.array_equal(backend.encode(pixels).values, before)
    assert np.array_equal(own.run(["annotations"], {"pixels": pixels})[0], before)
    other = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    assert np.array_equal(other.run(["annotations"], {"pixels": pixels})[0], before)
