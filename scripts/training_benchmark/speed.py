"""Speed of training against the plain loop, and the share of an epoch outside the network."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from captioner.model import loss as objective
from captioner.train import config_file as configs
from captioner.train.batch_loss import ForwardPass
from captioner.train.loaded_run import LoadedRun, write_model
from captioner.train.run_folder import RunFolder
from captioner.train.trainer import Trainer
from captioner.workarounds.half_precision import resolve_precision
from training_benchmark.plain_loop import PlainLoop
from training_benchmark.sizes import Figure, Sizes
from training_benchmark.trainer_run import TrainerRun

ROOT = Path(__file__).resolve().parents[2]


def measure_speed(sizes: Sizes, threads: int, rounds: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        stage = sizes.stages[0]
        frozen = TrainerRun(folder, sizes, threads, "frozen")
        runs = {
            "frozen encoder, annotations cached": frozen,
            "frozen tail run in the loop": TrainerRun(folder, sizes, threads, "tail", stage),
            "tail tuned": TrainerRun(folder, sizes, threads, "tuned", stage, tuned=True),
        }
        if resolve_precision("auto", "cpu") == "bfloat16":
            runs |= {
                "frozen encoder, bfloat16": TrainerRun(folder, sizes, threads, "frozen-16", precision="bfloat16"),
                "tail tuned, bfloat16": TrainerRun(folder, sizes, threads, "tuned-16", stage, True, "bfloat16"),
            }
        plain = PlainLoop(frozen, sizes)
        yield Figure("difference of the two losses, same weights", plain.difference(frozen), "nats per caption")
        best, best_of_plain = dict.fromkeys(runs, 0.0), 0.0
        for _ in range(rounds):
            for name, run in runs.items():
                best[name] = max(best[name], run.epoch())
            best_of_plain = max(best_of_plain, plain.train(sizes.plain_steps))
        for run in runs.values():
            run.close()
        of_processes = speed_of_processes(frozen, folder, threads)
    cached = best["frozen encoder, annotations cached"]
    captions = 8 * sizes.pictures * sizes.captions_per_image
    with_encoding = captions / (captions / cached + frozen.encoding_seconds)
    yield Figure("plain loop", best_of_plain, "captions/s")
    for name, rate in best.items():
        yield Figure(f"captioner train, {name}", rate, "captions/s")
    yield Figure(f"frozen encoder, {threads} processes of one thread", of_processes, "captions/s")
    yield Figure("encoding into the cache, once", sizes.pictures / frozen.encoding_seconds, "images/s")
    for name, rate in best.items():
        yield Figure(f"ratio, {name}", rate / best_of_plain, "times")
    yield Figure(f"ratio, frozen encoder, {threads} processes", of_processes / best_of_plain, "times")
    yield Figure("ratio, frozen encoder, encoding once spread over 8 epochs", with_encoding / best_of_plain, "times")


def speed_of_processes(frozen: TrainerRun, folder: Path, count: int) -> float:
    """Captions per second of the same training under torchrun, with `count` processes: the best of three epochs."""
    start, run = folder / "start", folder / "run-processes"
    trainer = frozen.trainer
    config = trainer.config
    write_model(start, LoadedRun(config, trainer.vocabulary, trainer.network, {}))
    training = config.training.model_copy(update={"start_from": start, "threads": 1, "epochs": 3})
    path = folder / "processes.yaml"
    path.write_text(configs.dump(config.model_copy(update={"training": training})))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "-m"]
    subprocess.run(
        [*torchrun, "--", "captioner", "train", "--config", str(path), "--run", str(run)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=600,
    )
    return max(float(row["captions_per_second"]) for row in RunFolder(run).read_timing())


def measure_share(sizes: Sizes, threads: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as temporary:
        for name, tail in (("annotations cached", None), ("tail run in the loop", sizes.stages[0])):
            run = TrainerRun(Path(temporary), sizes, threads, name.split()[0], tail=tail)
            run.epoch()  # warms up
            with seconds_per_part(run.trainer) as seconds:
                start = time.perf_counter()
                run.epoch()
                total = time.perf_counter() - start
            run.close()
            yield Figure(f"own share of an epoch, {name}", 100 * (1 - sum(seconds.values()) / total), "%")
            for part, spent in seconds.items():
                yield Figure(f"  {part}, {name}", 100 * spent / total, "%")


@contextmanager
def seconds_per_part(trainer: Trainer) -> Iterator[dict[str, float]]:
    """Seconds in the forward pass with the loss, in the backward pass, and in gradient clipping with the optimizer."""
    seconds = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[part] += time.perf_counter() - start

        return call

    with (
        mock.patch.object(ForwardPass, "forward", timed("forward", ForwardPass.forward)),
        mock.patch.object(objective, "loss", timed("forward", objective.loss)),
        mock.patch.object(torch.Tensor, "backward", timed("backward", torch.Tensor.backward)),
        mock.patch.object(torch.nn.utils, "clip_grad_norm_", timed("optimizer", torch.nn.utils.clip_grad_norm_)),
        mock.patch.object(trainer.optimizer, "step", timed("optimizer", trainer.optimizer.step)),
    ):
        yield seconds
