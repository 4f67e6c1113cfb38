"""TorchBackend: a network in torch, behind the interface that search uses."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from captioner.bundle.loading import Bundle
from captioner.inference.backend import Annotations, State, Step, checksums, gumbel_noise
from captioner.model.device import usable
from captioner.model.network import Network
from captioner.model.weights import load_network
from captioner.options import BackendLabel, HardAttention
from captioner.text.vocabulary import Vocabulary


class TorchBackend:
    """A network in eval mode, on any device. In a forked process, it computes on the CPU with one thread."""

    name: BackendLabel = "torch"
    one_by_one = False

    def __init__(
        self,
        network: Network,
        vocabulary: Vocabulary,
        device: str | torch.device = "cpu",
        hard_attention: HardAttention = "expected",
    ) -> None:
        self.network = network.to(device).eval()
        self.vocabulary = vocabulary
        self.device = torch.device(device)
        self.hard = network.decoder.hard
        self.hard_attention = hard_attention
        self.image_size = network.encoder.settings.size
        self.rows, self.cols = network.encoder.grid()
        self._process = os.getpid()

    @torch.inference_mode()
    def encode(self, pixels: NDArray[np.uint8], *, keys: bool = True) -> Annotations:
        self._survive_fork()
        # torch.tensor copies. Pixels from Pillow are read-only, and torch would warn about sharing them.
        values = self.network.encode(torch.tensor(np.ascontiguousarray(pixels), device=self.device))
        return Annotations(values, self.rows, self.cols, checksums(pixels) if keys else None)

    @torch.inference_mode()
    def begin(self, annotations: Annotations, hard_attention: HardAttention | None = None, seed: int = 0) -> State:
        self._survive_fork()
        shared, own = self.network.decoder.begin(torch.as_tensor(annotations.values, device=self.device))
        return State(
            shared,
            own,
            (hard_attention or self.hard_attention) if self.hard else "expected",
            seed,
            annotations.sampling_keys,
        )

    @torch.inference_mode()
    def step(self, state: State, words: NDArray[np.int64]) -> Step:
        sampled = noise = None
        if state.hard_attention != "expected":
            sampled = torch.ones(words.shape, dtype=torch.bool, device=self.device)
        if state.hard_attention == "sampled":
            cells = self.rows * self.cols
            noise_array = gumbel_noise(state.seed, state.keys, state.time, words.shape[1], cells)
            noise = torch.from_numpy(noise_array).to(self.device)
        logits, own, attention = self.network.decoder.step(
            state.shared, state.own, torch.from_numpy(words).to(self.device), noise=noise, sampled=sampled
        )
        return Step(
            torch.log_softmax(logits, -1).cpu().numpy(),
            replace(state, own=own, time=state.time + 1),
            attention.alpha.cpu().numpy(),
            attention.gate.cpu().numpy(),
            None if attention.cell is None else attention.cell.cpu().numpy(),
        )

    @torch.inference_mode()
    def select_hypotheses(self, state: State, parents: NDArray[np.int64]) -> State:
        index = torch.from_numpy(parents).to(self.device)  # (B, K)
        row = torch.arange(len(parents), device=self.device).unsqueeze(1)
        return replace(state, own={name: value[row, index] for name, value in state.own.items()})

    @torch.inference_mode()
    def select_images(self, state: State, images: NDArray[np.int64]) -> State:
        index = torch.from_numpy(images).to(self.device)
        return replace(
            state,
            shared={name: value[index] for name, value in state.shared.items()},
            own={name: value[index] for name, value in state.own.items()},
            keys=state.keys[images],
        )

    def _survive_fork(self) -> None:
        """The threads of OpenMP don't exist in a forked process, and torch would wait for them for ever."""
        if os.getpid() != self._process:
            self._process = os.getpid()
            torch.set_num_threads(1)


def load_backend(bundle: Bundle, device: str | None = None) -> TorchBackend:
    """The torch backend of a bundle. Without a device: on a GPU if available, else on the CPU."""
    torch_device = usable(device)  # before the weights are loaded, so that a wrong device is reported at once
    hard_attention = bundle.manifest.decoding.hard_attention or "expected"
    return TorchBackend(load_network(bundle), bundle.vocabulary, torch_device, hard_attention)
