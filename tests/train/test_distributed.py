"""Several processes under torchrun: the same losses and scores as one process, and only one writes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from captioner.train import checkpoint
from captioner.train.distributed import World, join
from captioner.train.run_folder import RunFolder
from captioner.train.start import start
from tests.train import child_process, tiny_run

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="gloo and process groups are POSIX here"),
]

# The sums have another order, so the weights differ by rounding.
TOLERANCE = 1e-4
SAME = {
    "model__dropout": 0.0,
    "encoder__tail": "stage3",
    "training__images": 8,
    "training__epochs": 3,
    "training__ema": 0.9,
    "training__validation": {"samples": 1, "search": {"beam": 2, "max_length": 8}},
}


def torchrun(config: Path, folder: Path, processes: int = 2) -> subprocess.Popen[str]:
    command = ["-m", "--", "captioner", "train", "--config", str(config), "--run", str(folder), "--device", "cpu"]
    return launch(command, processes)


def launch(command: list[str], processes: int = 2) -> subprocess.Popen[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*launcher, *command], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def test_two_processes_have_the_same_losses_and_scores_as_one(shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes, **SAME)
    start(config, folder=tmp_path / "one", device="cpu")
    two = torchrun(config, tmp_path / "two")
    _, message = two.communicate(timeout=500)
    assert two.returncode == 0, message
    ones, twos = tiny_run.read_metrics(tmp_path / "one"), tiny_run.read_metrics(tmp_path / "two")
    assert len(ones) == len(twos) == 6  # one writer: no row is there twice
    for one, other in zip(ones, twos, strict=True):
        assert set(one) == set(other)
        if "validation" in one:
            assert other["validation"] == pytest.approx(one["validation"], abs=1e-6)
        else:
            for name in ("loss", "nll", "coverage", "gradient", "rate", "step", "epoch"):
                assert other[name] == pytest.approx(one[name], rel=TOLERANCE), name
    assert len(list((tmp_path / "two" / "board").iterdir())) == 1
    assert message.count("done: best") == 1
    mine, theirs = (checkpoint.read(RunFolder(tmp_path / run).checkpoint)[0] for run in ("one", "two"))
    assert set(theirs) - set(mine) == {"rng1.torch"}
    for name, value in mine.items():
        if name.startswith(("network.", "average.")):
            torch.testing.assert_close(theirs[name], value, atol=1e-3, rtol=1e-2)


def test_two_processes_that_were_resumed_end_with_the_same_bits(shapes: Path, tmp_path: Path) -> None:
    """Each process goes on with its own dropout."""
    settings = {"model__dropout": 0.5, "training__images": 8, "training__schedule": {"name": "constant", "warmup": 0}}
    for epochs, run in ((2, "whole"), (1, "resumed")):
        config = tiny_run.write_config(tmp_path / f"{run}.yaml", shapes, training__epochs=epochs, **settings)
        _, message = torchrun(config, tmp_path / run).communicate(timeout=500)
        assert "done: best" in message, message
    resume = ["-m", "--", "captioner", "train", "--resume", str(tmp_path / "resumed"), "--device", "cpu"]
    _, message = launch([*resume, "--set", "training.epochs=2"]).communicate(timeout=500)
    assert "done: best" in message, message
    whole, resumed = (checkpoint.read(RunFolder(tmp_path / run).checkpoint)[0] for run in ("whole", "resumed"))
    assert set(whole) == set(resumed)
    assert [name for name, value in whole.items() if not torch.equal(value, resumed[name])] == []


LEARN_AND_TELL = """
import os
import sys
from pathlib import Path
from captioner.train.trainer import Trainer
from captioner.train.start import start

told = Path(sys.argv[2]) / ("rank" + os.environ["RANK"])
real = Trainer.run

def go(self, interrupt):
    real(self, interrupt)
    sums = {name: float(p.detach().double().sum()) for name, p in self.setup.trainable.items()}
    told.write_text(repr(sums))

Trainer.run = go
start(Path(sys.argv[1]), folder=Path(sys.argv[2]), device="cpu")
told.with_suffix(".threads").write_text(" ".join(p.read_text() for p in Path("/proc/self/task").glob("*/comm")))
"""


def test_two_processes_have_equal_weights_after_self_critical_steps(shapes: Path, tmp_path: Path) -> None:
    """Each process samples captions of its own images, and the tail runs outside DistributedDataParallel."""
    scst = {"start_epoch": 0, "samples": 3, "learning_rate": 0.01, "max_length": 6}
    how = {**SAME, "training__epochs": 1, "training__scst": scst}
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes, **how)
    (tmp_path / "learn.py").write_text(LEARN_AND_TELL)
    two = launch([str(tmp_path / "learn.py"), str(config), str(tmp_path / "two")])
    _, message = two.communicate(timeout=500)
    assert two.returncode == 0, message
    first, second = ((tmp_path / "two" / f"rank{rank}").read_text() for rank in (0, 1))
    assert "encoder.stages.stage3" in first
    assert first == second
    # A thread that outlives its process group could abort the process at exit.
    for rank in (0, 1):
        assert "gloo" not in (tmp_path / "two" / f"rank{rank}.threads").read_text()


def test_ctrl_c_under_torchrun_saves_a_checkpoint(shapes: Path, tmp_path: Path) -> None:
    """The terminal sends the signal to every process, and torchrun sends it to them again."""
    config = tiny_run.write_config(
        tmp_path / "config.yaml", shapes, training__epochs=4000, training__validation={"every": 4000, "samples": 0}
    )
    run = tmp_path / "run"
    two = torchrun(config, run)
    until = time.monotonic() + 300
    while not (run / "timing.jsonl").exists():
        assert two.poll() is None, two.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.1)
    os.killpg(two.pid, signal.SIGINT)
    _, message = two.communicate(timeout=120)
    step = checkpoint.read(RunFolder(run).checkpoint)[1]["step"]
    assert f"stopped and saved at step {step}; to resume: captioner train --resume {run}" in message


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def in_a_team(function: Any, size: int, *args: Any, log: Path) -> None:
    """Run a function in several processes that join as under torchrun."""
    port = free_port()
    world = [child_process.start(_member, function, rank, size, port, args, log=log) for rank in range(size)]
    for member in world:
        member.join(200)
        assert member.exitcode == 0, log.read_text()


def _member(function: Any, rank: int, size: int, port: int, args: tuple[Any, ...]) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with join("cpu") as world:
        function(world, *args)


def add_up(world: World, folder: Path) -> None:
    assert world.is_main == (world.rank == 0)
    assert world.sum(torch.tensor([world.rank + 1.0, 10.0])).tolist() == [6.0, 30.0]
    assert world.sums({"b": world.rank, "a": 0.5}) == {"a": 1.5, "b": 3.0}
    assert world.gather({"rank": world.rank}) == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert world.any(world.rank == 2)
    assert not world.any(False)
    (folder / str(world.rank)).touch()
    world.barrier()
    assert len(list(folder.iterdir())) == 3


def test_processes_sum_gather_and_wait(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    in_a_team(add_up, 3, tmp_path / "here", log=tmp_path / "log")


def test_a_single_process_needs_no_process_group() -> None:
    with join("cpu") as world:
        assert (world.rank, world.size, world.is_main) == (0, 1, True)
        assert world.sums({"a": 2.0}) == {"a": 2.0}
        assert world.gather(3) == [3]
        assert world.any(True)
        world.barrier()
    assert not torch.distributed.is_initialized()


def validate_apart(world: World, data: Path, alone: Path) -> None:
    """Compare validation by several processes with validation by one, caption by caption."""
    from captioner.inference.torch_backend import TorchBackend
    from captioner.train.setup import prepare
    from captioner.train.validation import validate

    torch.manual_seed(0)
    swapped = {"data__train": [{"captions": "captions_val.json"}], "data__val": [{"captions": "captions_train.json"}]}
    config = tiny_run.config(data, **swapped)
    setup = prepare(config, world)
    with torch.no_grad():
        for parameter in setup.network.decoder.parameters():
            parameter.mul_(4)  # so that captions differ between images
    backend = TorchBackend(setup.network, setup.vocabulary)
    settings = config.training.validation.model_copy(update={"samples": 3, "batch": 3})
    shared = validate(backend, setup.val_set, setup.val_grids, settings, world)
    single = validate(backend, setup.val_set, setup.val_grids, settings, World(0, 1, torch.device("cpu")))
    assert shared.captions == single.captions
    assert len(set(shared.captions)) > 1
    assert shared.scores == single.scores
    assert [h.words for h in shared.samples] == [h.words for h in single.samples]
    assert len(shared.samples) == 3


def test_validation_by_several_processes_equals_validation_by_one(shapes: Path, tmp_path: Path) -> None:
    in_a_team(validate_apart, 3, shapes, tmp_path, log=tmp_path / "log")
