"""OnnxBackend: a bundle under onnxruntime, the backend of the light install.

The graphs, with B images, K hypotheses each, L = rows x cols places and V words:

    encoder.onnx  pixels uint8 (B, S, S, 3) -> annotations (B, L, D)
    begin.onnx    annotations -> shared.* (B, ...), own.* (B, 1, ...)
    decoder.onnx  words int64 (B, K), shared.*, own.* (B, K, ...)
                  -> log_probabilities (B, K, V), alpha (B, K, L), gate (B, K), and next.*: what own.* is
                  after the word (a graph's input and output cannot have the same name)
                  A hard model also takes noise (B, K, L) and chosen (a scalar, 0 or 1): its context is the
                  place argmax(log alpha + noise) where chosen is 1, and the expectation where it is 0; and it
                  gives place int64 (B, K).
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
    """A model ready to run on the CPU. It may be used by several threads at once."""

    def __init__(self, bundle: Bundle, threads: int | None = None, *, int8: bool = False) -> None:
        """`threads` is how many processors one call may use; all by default. `int8` takes the 8-bit graphs."""
        manifest = bundle.manifest
        self.vocabulary = bundle.vocabulary
        self.image_size = manifest.encoder.image_size
        self.rows, self.cols = manifest.encoder.rows, manifest.encoder.cols
        self.hard = manifest.attention == "hard"
        self.hard_attention: HardAttention = manifest.decoding.hard_attention or "expected"
        told = ["log_probabilities", "alpha", "gate", *(["place"] if self.hard else [])]
        asked = ["words", *(["noise", "chosen"] if self.hard else [])]
        with ThreadPoolExecutor() as pool:  # loading a graph takes a tenth of a second, mostly outside Python
            several = threads or processors()
            encoder = pool.submit(
                _session, _graph(bundle, manifest.encoder.file, int8), several, ["pixels"], ["annotations"]
            )
            decoder = pool.submit(_session, _graph(bundle, DECODER, int8), several, asked, told)
            begin = pool.submit(_session, _graph(bundle, BEGIN, int8), several, ["annotations"], [])
            self._encoder, self._decoder, self._begin = encoder.result(), decoder.result(), begin.result()
        self._begun = [output.name for output in self._begin.get_outputs()]
        self._after = [output.name for output in self._decoder.get_outputs()]
        needed = {i.name for i in self._decoder.get_inputs()} - set(asked)
        passed = {name.replace("next.", "own.", 1) for name in self._after if name.startswith("next.")}
        if needed != set(self._begun) or passed != {name for name in needed if name.startswith("own.")}:
            raise CaptionerError(f"{bundle.folder}: {BEGIN} and {DECODER} don't pass on the same state")

    def encode(self, pixels: NDArray[np.uint8]) -> Annotations:
        pixels = np.ascontiguousarray(pixels)
        # One by one: what the network holds of one picture stays in the cache, and a batch is a fifth slower.
        values = [self._encoder.run(["annotations"], {"pixels": pixels[i : i + 1]})[0] for i in range(len(pixels))]
        if not values:
            values = self._encoder.run(["annotations"], {"pixels": pixels})
        return Annotations(np.concatenate(values), self.rows, self.cols, checksums(pixels))

    def begin(self, annotations: Annotations, hard_attention: HardAttention | None = None, seed: int = 0) -> State:
        values = self._begin.run(self._begun, {"annotations": annotations.values})
        begun = dict(zip(self._begun, values, strict=True))
        shared, own = _part(begun, "shared."), _part(begun, "own.")
        return State(
            shared,
            own,
            (hard_attention or self.hard_attention) if self.hard else "expected",
            seed,
            annotations.draw_keys,
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
        told = dict(zip(self._after, self._decoder.run(self._after, feeds), strict=True))
        return Step(
            told["log_probabilities"],
            replace(state, own=_part(told, "next."), time=state.time + 1),
            told["alpha"],
            told["gate"],
            told["place"] if state.hard_attention != "expected" else None,
        )

    def select(self, state: State, parents: NDArray[np.int64]) -> State:
        rows = np.arange(len(parents))[:, None]
        return replace(state, own={name: value[rows, parents] for name, value in state.own.items()})

    def keep(self, state: State, images: NDArray[np.int64]) -> State:
        return replace(
            state,
            shared={name: value[images] for name, value in state.shared.items()},
            own={name: value[images] for name, value in state.own.items()},
            keys=state.keys[images],
        )


def processors() -> int:
    """How many processors this process may use, which in a container is fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _graph(bundle: Bundle, name: str, int8: bool) -> Path:
    if not int8:
        return bundle.path(name)
    if int8_graph(name) not in bundle.manifest.files:
        raise UsageError(f"the model {bundle.manifest.name!r} has no 8-bit graphs; `captioner export --int8` adds them")
    return bundle.path(int8_graph(name))


def _part(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The tensors with a prefix, by their names without it."""
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def _session(path: Path, threads: int, inputs: list[str], outputs: list[str]) -> Any:
    """A graph ready to run, which takes and gives at least these tensors."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False  # plans memory for shapes that come again; those of a search rarely do
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has an exception class for each of its status codes
        raise CaptionerError(f"{path}: onnxruntime cannot load the graph ({error})") from None
    lacking = set(inputs) - {i.name for i in session.get_inputs()}
    lacking |= set(outputs) - {o.name for o in session.get_outputs()}
    if lacking:
        raise CaptionerError(f"{path}: the graph has no {', '.join(sorted(lacking))}; it is not a captioner's")
    return session
