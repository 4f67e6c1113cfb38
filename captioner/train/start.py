"""Run folders: where a training run begins, goes on, or refuses to; and encoding without training."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from captioner.errors import UsageError
from captioner.train import checkpoint
from captioner.train import config as configs
from captioner.train.distributed import join


def start(
    config: Path | None,
    changes: Sequence[str] = (),
    *,
    folder: Path | None = None,
    resume: Path | None = None,
    overwrite: bool = False,
    device: str | None = None,
) -> Path:
    """Train a config into its run folder, or go on with one; returns the folder."""
    from captioner.train.trainer import train

    if resume is not None:
        folder = resume
        if not (resume / checkpoint.LAST).is_file():
            raise UsageError(f"--resume: {resume} holds no checkpoint ({checkpoint.LAST})")
        if config is not None or overwrite:
            raise UsageError(
                "--resume goes on with the run's own config: leave --config and --overwrite out; --set changes settings"
            )
        settings = configs.load(resume / "config.yaml", changes)
    elif config is None:
        raise UsageError("give --config FILE to begin a run, or --resume RUN to go on with one")
    else:
        settings = configs.load(config, changes)
        folder = folder or Path("runs") / settings.name
    with join(device) as world:
        if world.is_main and resume is None:
            _prepare(folder, overwrite)
        world.wait()
        train(settings, folder, world, resume=resume is not None)
    return folder


def _prepare(folder: Path, overwrite: bool) -> None:
    if folder.exists() and any(folder.iterdir()):
        if not overwrite:
            raise UsageError(
                f"the run folder {folder} exists: go on with --resume {folder}, begin anew with --overwrite, "
                "or name another with --run"
            )
        if not (folder / "config.yaml").is_file():
            raise UsageError(f"--overwrite: {folder} is not a run folder (no config.yaml), it is left alone")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def encode(config: Path, changes: Sequence[str] = (), *, device: str | None = None) -> None:
    """Fill the feature cache of a config's splits."""
    import torch

    from captioner.train.grids import encoding_progress, open_features, read_split
    from captioner.train.setup import first_encoder

    settings = configs.load(config, changes)
    torch.manual_seed(settings.seed)  # as training does: encoder.weights=none is then the same random encoder
    encoder = first_encoder(settings)
    if encoder.cut == 0:
        raise UsageError(f"encoder.tail={settings.encoder.tail!r} leaves an empty trunk: there is nothing to cache")
    with join(device) as world:
        for which in ("train", "val"):
            with encoding_progress() as progress:
                cache = open_features(
                    settings, encoder, read_split(settings, which), device=world.device.type, progress=progress.show
                )
            print(f"{which}: whole, in {cache.folder}", file=sys.stderr)
