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

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.bundle.loading import Bundle
from captioner.errors import CaptionerError
from captioner.inference.backend import Annotations, State, Step, checksums, gumbel_noise
from captioner.inference.fork_gate import gate
from captioner.inference.model_loading import processors, start_sessions
from captioner.options import BackendLabel, HardAttention

# Pictures that the 8-bit encoder takes at a time. Four need 30 MB more and are no quicker than two; with floats, even
# two are slower than one by one.
INT8_AT_ONCE = 2


class OnnxBackend:
    """A model on the CPU. Several threads may use it at once."""

    def __init__(
        self,
        bundle: Bundle,
        threads: int | None = None,
        *,
        int8: bool = False,
        sessions: Sequence[Future[Any]] = (),
    ) -> None:
        """`threads` is the number of processors for one call; all by default. `int8` uses the 8-bit graphs.

        `sessions` are the graphs, where `start_loading` has begun to load them.
        """
        manifest = bundle.manifest
        self.vocabulary = bundle.vocabulary
        self.image_size = manifest.encoder.image_size
        self.rows, self.cols = manifest.encoder.rows, manifest.encoder.cols
        self.hard = manifest.attention == "hard"
        self.hard_attention: HardAttention = manifest.decoding.hard_attention or "expected"
        loading = sessions or start_sessions(bundle, threads or processors(), int8=int8)
        self._encoder, self._begin, self._decoder = (session.result() for session in loading)
        self._begin_outputs = [output.name for output in self._begin.get_outputs()]
        self._step_outputs = [output.name for output in self._decoder.get_outputs()]
        self.name: BackendLabel = "int8" if int8 else "onnx"
        self.one_by_one = int8 and not manifest.static_int8
        self._at_once = INT8_AT_ONCE if int8 and manifest.static_int8 else 1
        self._annotation_shape = (self.rows * self.cols, manifest.encoder.annotation_size)

    def encode(self, pixels: NDArray[np.uint8], *, keys: bool = True) -> Annotations:
        pixels = np.ascontiguousarray(pixels)
        # Few pictures at a time: their intermediate results stay in the processor's cache.
        starts = range(0, len(pixels), self._at_once) or (0,)
        parts = [{"pixels": pixels[start : start + self._at_once]} for start in starts]
        annotations = np.concatenate([_outputs(self._encoder, ["annotations"], part)[0] for part in parts])
        _check_shape("annotations", annotations, (len(pixels), *self._annotation_shape))
        return Annotations(annotations, self.rows, self.cols, checksums(pixels) if keys else None)

    def begin(self, annotations: Annotations, hard_attention: HardAttention | None = None, seed: int = 0) -> State:
        values = _outputs(self._begin, self._begin_outputs, {"annotations": annotations.values})
        tensors = dict(zip(self._begin_outputs, values, strict=True))
        shared, own = _part(tensors, "shared."), _part(tensors, "own.")
        return State(
            shared,
            own,
            (hard_attention or self.hard_attention) if self.hard else "expected",
            seed,
            annotations.sampling_keys,
        )

    def step_inputs(self, state: State, words: NDArray[np.int64]) -> dict[str, Any]:
        """The inputs of the decoder's graph for one step."""
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
        return feeds

    def step(self, state: State, words: NDArray[np.int64]) -> Step:
        if self.name == "int8" and words.shape[1] == 1:
            return self._step_of_two(state, words)
        feeds = self.step_inputs(state, words)
        results = dict(zip(self._step_outputs, _outputs(self._decoder, self._step_outputs, feeds), strict=True))
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

    def _step_of_two(self, state: State, words: NDArray[np.int64]) -> Step:
        """A step of one hypothesis per image, computed twice.

        A product with a single row takes another path in onnxruntime, and its sums differ in their last digits. Rounded
        to 8 bits they could become another number, and how many hypotheses there are depends on the other images.
        """
        first = np.zeros_like(words)
        two = self.step(self.select_hypotheses(state, first.repeat(2, 1)), words.repeat(2, 1))
        cell = None if two.cell is None else two.cell[:, :1]
        own = self.select_hypotheses(two.state, first)
        return Step(two.log_probabilities[:, :1].copy(), own, two.alpha[:, :1], two.gate[:, :1], cell)

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


def _part(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The tensors whose names have a prefix, under their names without it."""
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def _outputs(session: Any, outputs: list[str], feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of a graph. One that was accepted may still fail, for example for an index that is out of range."""
    try:
        with gate.entered():
            values: list[Any] = session.run(outputs, feeds)
        return values
    except Exception as error:  # onnxruntime has one exception class per status code
        raise CaptionerError(f"the model cannot be run: onnxruntime reports {error}") from None


def _check_shape(name: str, value: NDArray[Any], shape: tuple[int, ...]) -> None:
    """A graph may compute other shapes than it declares."""
    if value.shape != shape:
        raise CaptionerError(f"the model computed {name} of the shape {value.shape} instead of {shape}; it is damaged")
