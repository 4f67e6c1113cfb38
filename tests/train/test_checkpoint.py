"""Checkpoints: bit-exact, unharmed by a failed write, refused when damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from captioner.errors import CaptionerError
from captioner.train import checkpoint

STATE = {"step": 3, "best": float("-inf"), "baseline": -1.1 / 3, "sums": {"loss": 0.1 + 0.2}}


def test_a_checkpoint_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    tied = torch.randn(5, 4)
    tensors = {
        "network.embedding": tied,
        "network.output": tied,  # tied weights share memory
        "network.view": tied[:, 1:3],
        "rng.torch": torch.get_rng_state(),
        "number": torch.tensor(3),
        "half": torch.randn(3).half(),
    }
    file = tmp_path / "last.safetensors"
    checkpoint.write(file, tensors, STATE)
    restored, state = checkpoint.read(file)
    assert state == STATE
    assert set(restored) == set(tensors)
    assert all(
        torch.equal(restored[key], value) and restored[key].dtype == value.dtype for key, value in tensors.items()
    )
    assert set(checkpoint.part(restored, "network")) == {"embedding", "output", "view"}


def test_a_failed_write_keeps_the_previous_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "last.safetensors"
    checkpoint.write(file, {"a": torch.ones(2)}, {"step": 1})

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("captioner.files.atomic.os.fsync", full)
    with pytest.raises(CaptionerError, match=f"No space left on device.*the last good one is {file}"):
        checkpoint.write(file, {"a": torch.zeros(2)}, {"step": 2})
    assert checkpoint.read(file)[1] == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["last.safetensors"]
    with pytest.raises(CaptionerError, match="there is none before it"):
        checkpoint.write(tmp_path / "other", {"a": torch.zeros(2)}, {"step": 2})


@pytest.mark.parametrize("length", [0, 5, 60, 400])
def test_a_truncated_checkpoint_is_reported_as_damaged(length: int, tmp_path: Path) -> None:
    file = tmp_path / "last.safetensors"
    checkpoint.write(file, {"a": torch.ones(200)}, {"step": 1})
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(CaptionerError, match=r"last\.safetensors is damaged"):
        checkpoint.read(file)


def test_a_checkpoint_whose_checksum_has_lost_its_name_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "last.safetensors"
    checkpoint.write(file, {"a": torch.ones(20)}, {"step": 1})
    file.write_bytes(file.read_bytes().replace(b"sha256", b"sha2S6"))
    with pytest.raises(CaptionerError, match="unknown entries"):
        checkpoint.read(file)


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaptionerError, match=f"no such file: {tmp_path}"):
        checkpoint.read(tmp_path / "none.safetensors")


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam, torch.optim.RMSprop])
def test_a_restored_optimizer_takes_the_same_steps(kind: type[torch.optim.Optimizer]) -> None:
    def step(model: nn.Linear, optimizer: torch.optim.Optimizer, seed: int) -> None:
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = kind(model.parameters(), lr=0.1)  # type: ignore[call-arg]
    for seed in range(3):
        step(model, optimizer, seed)
    other = nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    again = kind(other.parameters(), lr=0.1)  # type: ignore[call-arg]
    moments = {name: value.clone() for name, value in checkpoint.optimizer_tensors(optimizer).items()}
    checkpoint.restore_optimizer(again, moments)
    for seed in (7, 8):
        step(model, optimizer, seed)
        step(other, again, seed)
    assert torch.equal(model.weight, other.weight)


def test_a_single_changed_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    checkpoint.write(path, {"a": torch.arange(1000.0), "b": torch.tensor(True)}, {"step": 3})
    assert checkpoint.read(path)[1] == {"step": 3}
    data = bytearray(path.read_bytes())
    data[-500] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CaptionerError, match="is damaged: its checksum is not that of its tensors"):
        checkpoint.read(path)


def test_checkpoints_of_earlier_versions_have_no_checksum(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3)}, tmp_path / "old.safetensors", {"state": '{"step": 4}'})
    assert checkpoint.read(tmp_path / "old.safetensors")[1] == {"step": 4}
