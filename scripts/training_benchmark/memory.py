"""Private memory of training: over several epochs, and with small and large feature files.

Private memory is what the process has beyond the page cache: the system can drop pages of the feature files. Each
figure is measured in a new process, which prints it as JSON.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from captioner.text.vocabulary import Vocabulary
from captioner.train import features
from captioner.train.epoch_timer import EpochTimer
from captioner.train.trainer import Trainer
from training_benchmark.data_sets import generated_captions, generated_vocabulary, write_empty_features
from training_benchmark.sizes import QUICK, Figure, Sizes
from training_benchmark.trainer_run import SINGLE_PROCESS, TrainerRun, benchmark_config, silent

SCRIPT = Path(__file__).resolve().parents[1] / "bench_train"


def measure_epochs(sizes: Sizes, threads: int) -> Iterator[Figure]:
    megabytes = [size / 1e6 for size in run_in_child("epochs", sizes, threads)]
    for number, size in enumerate(megabytes, 1):
        yield Figure(f"private memory after epoch {number}", size, "MB")
    yield Figure("growth from epoch 3 to the last", megabytes[-1] - megabytes[2], "MB")


def measure_scale(sizes: Sizes, threads: int) -> Iterator[Figure]:
    few, many = run_in_child("few", sizes, threads), run_in_child("many", sizes, threads)
    for count, size in ((sizes.few, few), (sizes.many, many)):
        yield Figure(f"private memory, {count:,} images", size["private"] / 1e6, "MB")
        yield Figure(f"feature files, {count:,} images", size["files"] / 1e6, "MB")
        yield Figure(f"pages of the feature files in use, {count:,} images", size["mapped"] / 1e6, "MB")
    yield Figure("private memory, growth from few to many", (many["private"] - few["private"]) / 1e6, "MB")


def run_in_child(measurement: str, sizes: Sizes, threads: int) -> Any:
    command = [sys.executable, str(SCRIPT), "--child", measurement, "--threads", str(threads)]
    if sizes is QUICK:
        command.append("--quick")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench_train: {measurement}: {done.stderr}")
    return json.loads(done.stdout)


def memory_after_epochs(sizes: Sizes, threads: int) -> list[int]:
    with tempfile.TemporaryDirectory() as temporary:
        run = TrainerRun(Path(temporary), sizes, threads, "epochs")
        memory = []
        for _ in range(sizes.epochs):
            run.epoch()
            run.validate_and_save()
            memory.append(private_memory())
        run.close()
    return memory


def memory_at_scale(sizes: Sizes, threads: int, count: int) -> dict[str, int]:
    """The most private memory while training on empty features of `count` generated images."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = benchmark_config(folder, sizes, threads, tail=sizes.stages[0])
        train, val = generated_captions(count, "train"), generated_captions(8, "val")
        files = write_empty_features(config, [train, val])
        splits, vocabulary = {"train": train, "val": val}, generated_vocabulary(sizes.vocabulary)
        with (
            mock.patch.object(Vocabulary, "build", lambda *_, **__: vocabulary),
            # pop: the trainer must not keep the captions' text, and neither may this function
            mock.patch("captioner.train.setup.read_splits", lambda _: (splits.pop("train"), splits.pop("val"))),
            mock.patch.object(features, "image_key", lambda path: path.name),
            silent(),
        ):
            del train, val
            (folder / "run").mkdir()
            trainer = Trainer(config, folder / "run", SINGLE_PROCESS, resume=False)
            steps, memory = trainer._plan_epoch()[: sizes.scale_steps], []
            with (
                mock.patch.object(trainer, "_plan_epoch", lambda: steps),
                mock.patch.object(EpochTimer, "show", lambda *_: memory.append(private_memory())),
            ):
                trainer._train_epoch(mock.Mock(requested=False))
            trainer.logger.close()
    return {"private": max(memory), "mapped": mapped_files(), "files": files}


def private_memory() -> int:
    """Bytes of this process that are neither pages of files nor shared."""
    return _resident("RssAnon")


def mapped_files() -> int:
    """Bytes of mapped files that are in memory."""
    return _resident("RssFile")


def _resident(kind: str) -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        sys.exit("bench_train: this system has no /proc to read memory from; use --only speed,share")
    match = re.search(rf"{kind}:\s+(\d+) kB", status.read_text())
    assert match is not None
    return int(match[1]) * 1024


IN_CHILD: dict[str, Callable[[Sizes, int], Any]] = {
    "epochs": memory_after_epochs,
    "few": lambda sizes, threads: memory_at_scale(sizes, threads, sizes.few),
    "many": lambda sizes, threads: memory_at_scale(sizes, threads, sizes.many),
}
