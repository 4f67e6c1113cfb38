"""OnnxBackend: a bundle run by onnxruntime, the backend of the base install.

The graphs, for B images with K hypotheses each, L = rows x cols cells and V words:

    encoder.onnx  pixels uint8 (B, S, S, 3) -> annotations (B, L, D)
    begin.onnx    annotations -> shared.* (B, ...), own.* (B, 1, ...)
    decoder.onnx  words int64 (B, K), shared.*, own.* (B, K, ...)
                  -> log_probabilities (B, K, V), alpha (B, K, L), gate (B, K), and next.*: the new own.*
                  (an input and an output of a graph cannot have the same name)
                  A hard model has two more inputs, noise (B, K, L) and chosen (a scalar), and the output
                  place int64 (B, K), the cell argmax(log alpha + noise). Its context is that cell if chosen is 1,
                  and the expectation if chosen is 0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.bundle.layout import BEGIN, DECODER, int8_graph
from captioner.bundle.loading import Bundle
from captioner.errors import CaptionerError, UsageError
from captioner.inference.backend import Annotations, State, Step, checksums, gumbel_noise
from captioner.options import HardAttention


class OnnxBackend:
    """A model on the CPU. Several threads may use it at once."""

    def __init__(self, bundle: Bundle, threads: int | None = None, *, int8: bool = False) -> None:
        """`threads` is the number of processors for one call; all by default. `int8` uses the 8-bit graphs."""
        manifest = bundle.manifest
        self.vocabulary = bundle.vocabulary
        self.image_size = manifest.encoder.image_size
        self.rows, self.cols = manifest.encoder.rows, manifest.encoder.cols
        self.hard = manifest.attention == "hard"
        self.hard_attention: HardAttention = manifest.decoding.hard_attention or "expected"
        cores = threads or processors()
        names = (manifest.encoder.file, BEGIN, DECODER)
        pool = ThreadPoolExecutor(len(names))  # loading a graph takes a tenth of a second, mostly outside Python
        try:
            loading = [pool.submit(_session, _graph(bundle, name, int8), cores) for name in names]
            self._encoder, self._begin, self._decoder = (future.result() for future in loading)
        finally:
            pool.shutdown(wait=False)  # after Ctrl-C, don't wait for a graph that takes long
        self._begin_outputs = [output.name for output in self._begin.get_outputs()]
        self._step_outputs = [output.name for output in self._decoder.get_outputs()]
        self._annotation_shape = (self.rows * self.cols, manifest.encoder.annotation_size)

    def encode(self, pixels: NDArray[np.uint8]) -> Annotations:
        pixels = np.ascontiguousarray(pixels)
        # One picture at a time: its intermediate results stay in the processor's cache. A batch is a fifth slower.
        values = [self._encoder.run(["annotations"], {"pixels": pixels[i : i + 1]})[0] for i in range(len(pixels))]
        if not values:
            values = self._encoder.run(["annotations"], {"pixels": pixels})
        annotations = np.concatenate(values)
        _check_shape("annotations", annotations, (len(pixels), *self._annotation_shape))
        return Annotations(annotations, self.rows, self.cols, checksums(pixels))

    def begin(self, annotations: Annotations, hard_attention: HardAttention | None = None, seed: int = 0) -> State:
        values = self._begin.run(self._begin_outputs, {"annotations": annotations.values})
        tensors = dict(zip(self._begin_outputs, values, strict=True))
        shared, own = _part(tensors, "shared."), _part(tensors, "own.")
        return State(
            shared,
            own,
            (hard_attention or self.hard_attention) if self.hard else "expected",
            seed,
            annotations.sampling_keys,
        )

    def step(self, state: State, words: NDArray[np.int64]) -> Step:
        feeds: dict[str, Any] = {"words": words}
        feeds.update((f"shared.{name}", value) for name, value in state.shared.items())
        feeds.update((f"own.{name}", value) for name, value in state.own.items())
        if self.hard:
            images, hypotheses = words.shape
            cells = self.rows * self.cols
            feeds["chosen"] = np.array(state.hard_attention != "expected", np.float32)
            if state.hard_attention == "sampled":
                feeds["noise"] = gumbel_noise(state.seed, state.keys, state.time, hypotheses, cells)
            else:
                feeds["noise"] = np.zeros((images, hypotheses, cells), np.float32)
        results = dict(zip(self._step_outputs, self._decoder.run(self._step_outputs, feeds), strict=True))
        _check_shape("log_probabilities", results["log_probabilities"], (*words.shape, len(self.vocabulary)))
        _check_shape("alpha", results["alpha"], (*words.shape, self.rows * self.cols))
        _check_shape("gate", results["gate"], words.shape)
        return Step(
            results["log_probabilities"],
            replace(state, own=_part(results, "next."), time=state.time + 1),
            results["alpha"],
            results["gate"],
            results["place"] if state.hard_attention != "expected" else None,
        )

    def select_hypotheses(self, state: State, parents: NDArray[np.int64]) -> State:
        rows = np.arange(len(parents))[:, None]
        return replace(state, own={name: value[rows, parents] for name, value in state.own.items()})

    def select_images(self, state: State, images: NDArray[np.int64]) -> State:
        return replace(
            state,
            shared={name: value[images] for name, value in state.shared.items()},
            own={name: value[images] for name, value in state.own.items()},
            keys=state.keys[images],
        )


def processors() -> int:
    """Number of processors that this process may use; a container may allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _graph(bundle: Bundle, name: str, int8: bool) -> Path:
    if not int8:
        return bundle.path(name)
    if int8_graph(name) not in bundle.manifest.files:
        raise UsageError(f"the model {bundle.manifest.name!r} has no 8-bit graphs; `captioner export --int8` adds them")
    return bundle.path(int8_graph(name))


def _part(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The tensors whose names have a prefix, under their names without it."""
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def _check_shape(name: str, value: NDArray[Any], shape: tuple[int, ...]) -> None:
    """A graph may compute other shapes than it declares."""
    if value.shape != shape:
        raise CaptionerError(f"the model computed {name} of the shape {value.shape} instead of {shape}; it is damaged")


def _session(path: Path, threads: int) -> Any:
    """A loaded graph, whose inputs and outputs were verified with the bundle."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False  # plans memory for repeated shapes; the shapes of a search rarely repeat
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has one exception class per status code
        raise CaptionerError(f"{path}: onnxruntime cannot load the graph ({error})") from None
