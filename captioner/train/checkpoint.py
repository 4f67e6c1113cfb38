"""Checkpoints: one safetensors file with everything needed to go on bit-exactly, replaced atomically.

Tensors: `network.*`, `average.*` (EMA), `optimizer.*`, `rng.*`. The rest (position, baseline, schedule,
best score, running sums) is JSON in the file's header.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from captioner.errors import CaptionerError
from captioner.files.atomic import write_atomically
from captioner.model.weights import read_tensors

LAST = "last.safetensors"


def write(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """All or nothing; a failed write (a full disk) leaves the file that was there."""
    # safetensors refuses tensors that share memory, as tied embeddings do: each is written on its own.
    data = save({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, {"state": json.dumps(state)})
    try:
        write_atomically(path, data)
    except OSError as error:
        kept = f"the last good one is {path}" if path.exists() else "there is none before it"
        raise CaptionerError(
            f"the checkpoint {path} could not be written ({error.strerror or error}); {kept}"
        ) from error


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint."""
    tensors, metadata = read_tensors(path)
    try:
        return tensors, json.loads(metadata.get("state", "{}"))
    except ValueError as error:
        raise CaptionerError(f"the checkpoint {path} is damaged ({error})") from error


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors below a prefix, without it."""
    return {k[len(prefix) + 1 :]: v for k, v in tensors.items() if k.startswith(prefix + ".")}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's moments as flat tensors, `NUMBER.NAME`."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The reverse; learning rates are set by the loop at each step."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value
    learning = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for place, moments in state.items():
        sizes = {moment.shape for moment in moments.values() if moment.dim()}
        if place >= len(learning) or sizes - {learning[place].shape}:
            raise CaptionerError(
                "the checkpoint's optimiser moved other weights than this run would: leave what decides them "
                "(training.tune, encoder, model) as it was"
            )
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
