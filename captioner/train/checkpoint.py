"""Checkpoints: one safetensors file with everything needed to resume bit for bit, replaced atomically.

Tensors: `network.*`, `cell_head.*`, `average.*` (EMA), `optimizer.*`, `rng.*`, and `rng1.*` and so on of the processes
after the main one. The rest (TrainingState) is JSON in the
file's header.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from captioner.errors import CaptionerError
from captioner.files.atomic import write_atomically
from captioner.model.weights import CHECKSUM, read_tensors, tensor_checksum


@dataclass
class TrainingState:
    """Where a run is. The field names are keys in checkpoints."""

    step: int = 0  # batches done
    epoch: int = 0  # epochs done
    position: int = 0  # batches done in this epoch
    stage_steps: int = 0  # batches done in the self-critical stage
    baseline: float | None = None  # hard attention: moving average of the log-probability of a word
    plateaus: int = 0  # times that the score stopped rising
    best: float = -math.inf
    best_epoch: int = -1
    waiting: int = 0  # validations since the best one
    sums: dict[str, float] = field(default_factory=dict)  # of metrics, since the last row of metrics.jsonl

    def add(self, **metrics: float) -> None:
        """Add to the sums."""
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value


def write(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write the file or fail; a failed write (a full disk) keeps the file that was there."""
    # safetensors refuses tensors that share memory, such as tied embeddings: each is written separately.
    copies = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    text = json.dumps(state)
    data = save(copies, {"state": text, CHECKSUM: tensor_checksum(copies, text)})
    try:
        write_atomically(path, data)
    except OSError as error:
        previous = f"the last good one is {path}" if path.exists() else "there is none before it"
        raise CaptionerError(
            f"the checkpoint {path} could not be written ({error.strerror or error}); {previous}"
        ) from error


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint."""
    tensors, metadata = read_tensors(path)
    if metadata.keys() - {"state", CHECKSUM}:  # a damaged name of the checksum would leave the file unchecked
        raise CaptionerError(f"the checkpoint {path} is damaged: its header has unknown entries")
    try:
        state = json.loads(metadata.get("state", "{}"))
        if not isinstance(state, dict):
            raise ValueError("its state is not a table")
        return tensors, state
    except (ValueError, RecursionError) as error:
        raise CaptionerError(f"the checkpoint {path} is damaged ({error})") from error


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose name starts with `prefix.`, without the prefix."""
    return {name.removeprefix(f"{prefix}."): x for name, x in tensors.items() if name.startswith(f"{prefix}.")}


def prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The reverse of `part`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's moments as flat tensors, `NUMBER.NAME`."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The reverse. Learning rates are not stored: the trainer sets them at each step."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        if not number.isdecimal():
            raise CaptionerError(f"the checkpoint is damaged: it has a tensor optimizer.{key}")
        state.setdefault(int(number), {})[name] = value
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, moments in state.items():
        shapes = {moment.shape for moment in moments.values() if moment.dim()}
        if index >= len(parameters) or shapes - {parameters[index].shape}:
            raise CaptionerError(
                "the optimizer of the checkpoint trained other weights than this run would: don't change the settings "
                "that select them (training.tune, encoder, model)"
            )
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def rng_prefix(rank: int) -> str:
    """The prefix of the states of a process's random generators."""
    return f"rng{rank}" if rank else "rng"


def rng_tensors(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's global generators, which dropout samples from."""
    states = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_rng(device: torch.device, states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
