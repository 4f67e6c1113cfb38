"""Loading a model in two parts: it is verified, and its graphs begin to load in threads while the caller goes on.

This module is light: it imports neither numpy nor Pillow, so that a command can begin to load before it imports them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from captioner.bundle.layout import BEGIN, DECODER, int8_graph
from captioner.bundle.loading import Bundle, load_bundle, read_manifest
from captioner.bundle.manifest import Manifest
from captioner.bundle.model_folders import find_model
from captioner.errors import CaptionerError, UsageError, unknown
from captioner.inference.processor_features import has_8_bit_products
from captioner.options import BackendLabel, BackendName


@dataclass(frozen=True)
class LoadingModel:
    """A verified bundle, what will run it, and its graphs, which may still be loading: encoder, begin and decoder."""

    bundle: Bundle
    backend: BackendLabel
    device: str | None = None  # for torch
    threads: int | None = None
    sessions: tuple[Future[Any], ...] = ()  # for onnxruntime


def start_loading(
    model: str | Path, *, backend: BackendName = "auto", device: str | None = None, threads: int | None = None
) -> LoadingModel:
    """Find and verify a model, and begin to load its graphs. The arguments are those of `Captioner.load`."""
    if backend not in get_args(BackendName):
        raise unknown("backend", backend, get_args(BackendName))
    if threads is not None and threads < 1:
        raise UsageError(f"{threads} threads are too few; give 1 or more")
    folder = find_model(model)
    needs_torch = device is not None and device != "cpu"
    if backend in ("onnx", "int8") and needs_torch:
        raise UsageError(f"onnxruntime runs on the CPU here; give --backend torch for the device {device!r}")
    if backend == "torch" or needs_torch:
        return LoadingModel(load_bundle(folder), "torch", device, threads)
    int8 = settled(folder, backend, device) == "int8"
    # The checksums are computed while onnxruntime is imported.
    importing = threading.Thread(target=_import_onnxruntime)
    importing.start()
    try:
        bundle = load_bundle(folder, int8=int8)
    finally:
        importing.join()
    # Several threads that each run a graph are faster than one graph that uses all of them.
    sessions = start_sessions(bundle, 1, int8=int8)
    return LoadingModel(bundle, "int8" if int8 else "onnx", None, threads, tuple(sessions))


def settled(model: str | Path, backend: BackendName, device: str | None = None) -> BackendName:
    """The backend, with what `quick` means on this machine in its place."""
    if backend != "quick":
        return backend
    on_cpu = device is None or device == "cpu"
    return "int8" if on_cpu and is_quicker_in_8_bits(read_manifest(find_model(model))) else "auto"


def is_quicker_in_8_bits(manifest: Manifest) -> bool:
    """Whether a model has 8-bit graphs that this processor runs quickly, and whose captions don't depend on a batch."""
    return manifest.static_int8 and has_8_bit_products()


def start_sessions(bundle: Bundle, threads: int, *, int8: bool) -> Sequence[Future[Any]]:
    """Load the three graphs of a bundle in threads: each takes up to a tenth of a second, mostly outside Python."""
    _share_arena()
    names = (bundle.manifest.encoder.file, BEGIN, DECODER)
    paths = [_graph(bundle, name, int8) for name in names]
    pool = ThreadPoolExecutor(len(names))
    try:
        sessions = [pool.submit(_session, path, threads) for path in paths]
        pool.submit(_return_freed_memory, sessions)
        return sessions
    finally:
        pool.shutdown(wait=False)  # after Ctrl-C, don't wait for a graph that takes long


def processors() -> int:
    """Number of processors that this process may use; a container may allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _graph(bundle: Bundle, name: str, int8: bool) -> Path:
    if not int8:
        return bundle.path(name)
    if int8_graph(name) not in bundle.manifest.files:
        raise UsageError(f"the model {bundle.manifest.name!r} has no 8-bit graphs; `captioner export --int8` adds them")
    return bundle.path(int8_graph(name))


def _import_onnxruntime() -> None:
    with suppress(ImportError):  # raised again where the module is needed
        import onnxruntime  # noqa: F401


@cache  # an arena is registered for the whole process
def _share_arena() -> None:
    """Let all graphs take memory from one arena, which grows by what is asked for.

    Otherwise each graph has its own, which doubles its size when it is full. An application's own sessions keep theirs.
    """
    import onnxruntime

    kind, use = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
    growth = onnxruntime.OrtArenaCfg({"arena_extend_strategy": 1})
    # Older versions refuse a second arena. If the application has registered one, the graphs share that.
    with suppress(Exception):
        onnxruntime.create_and_register_allocator(onnxruntime.OrtMemoryInfo("Cpu", kind, 0, use), growth)


def _return_freed_memory(sessions: Sequence[Future[Any]]) -> None:
    """Once all graphs are loaded: loading frees about 60 MB, which glibc would keep. It takes a few milliseconds."""
    from captioner.workarounds.malloc import return_now  # ctypes

    wait(sessions)
    return_now()


def _session(path: Path, threads: int) -> Any:
    """A loaded graph, whose inputs and outputs were verified with the bundle."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False  # plans memory for repeated shapes; the shapes of a search rarely repeat
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.log_severity_level = 4  # fatal; it would write errors, with names from the graph, beside our sentence
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has one exception class per status code
        raise CaptionerError(f"{path}: onnxruntime cannot load the graph ({error})") from None
