"""Starts and resumes training runs, and encodes images without training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from captioner.errors import CaptionerError, UsageError
from captioner.files.existing import check_unoccupied, is_occupied
from captioner.terminal import say
from captioner.train import config_file as configs
from captioner.train.config import Config
from captioner.train.distributed import join
from captioner.train.run_folder import RunFolder


def start(
    config: Path | None,
    changes: Sequence[str] = (),
    *,
    folder: Path | None = None,
    resume: Path | None = None,
    overwrite: bool = False,
    device: str | None = None,
) -> Path:
    """Train with a config into its run folder, or resume a run. Returns the run folder."""
    if resume is not None:
        folder = resume
        run_folder = RunFolder(resume)
        if not run_folder.checkpoint.is_file():
            raise UsageError(f"--resume: {resume} has no checkpoint ({run_folder.checkpoint.name})")
        if config is not None or overwrite:
            raise UsageError(
                "--resume uses the run's own config: leave out --config and --overwrite; --set changes settings"
            )
        settings = configs.load(run_folder.config, changes)
    elif config is None:
        raise UsageError("give a folder of photos or --config FILE to start a run, or --resume RUN to resume one")
    else:
        settings = configs.load(config, changes)
        folder = folder or Path("runs") / settings.name
    train_config(settings, folder, resume=resume is not None, overwrite=overwrite, device=device)
    return folder


def train_config(
    config: Config, folder: Path, *, resume: bool = False, overwrite: bool = False, device: str | None = None
) -> None:
    """Train with a config into a run folder that no other process uses."""
    from captioner.train.trainer import train

    with join(device) as world, ExitStack() as stack:
        if world.is_main:
            if not resume:
                _make_folder(RunFolder(folder), overwrite)
            stack.enter_context(RunFolder(folder).locked())
        world.barrier()
        train(config, folder, world, resume=resume)


def _make_folder(run_folder: RunFolder, overwrite: bool) -> None:
    path = run_folder.path
    if is_occupied(path):
        check_unoccupied(path, "--run", overwrite=overwrite, resume=f"continue it with --resume {path}")
        run_folder.check_replaceable()
        with run_folder.locked():
            pass  # refuses a run that is being trained
        run_folder.remove()
    path.mkdir(parents=True, exist_ok=True)


def encode(config: Path, changes: Sequence[str] = (), *, device: str | None = None) -> None:
    """Encode the images of a config's splits into the feature cache."""
    import torch

    from captioner.train.grids import encoding_progress, open_features
    from captioner.train.setup import initial_encoder
    from captioner.train.splits import read_splits, uncaptioned_images

    settings = configs.load(config, changes)
    torch.manual_seed(settings.seed)  # as in training, so that encoder.weights=none is the same random encoder
    encoder = initial_encoder(settings)
    if not encoder.has_trunk:
        raise UsageError(f"encoder.tail={settings.encoder.tail!r} leaves an empty trunk: there is nothing to cache")
    with join(device) as world:
        train, val = read_splits(settings)
        uncaptioned = uncaptioned_images(settings, train, val)
        train = dataclasses.replace(train, items=train.items + uncaptioned)
        for which, data in (("train", train), ("val", val)):
            with encoding_progress() as progress:
                cache = open_features(settings, encoder, data, device=world.device.type, progress=progress.show)
            say(f"{which}: complete, in {cache.folder}")


def verify_features(config: Path, changes: Sequence[str] = ()) -> None:
    """Compare the shards of a config's feature cache with their checksums; damage is an error that says what to do."""
    import torch

    from captioner.train.features import FeatureSpec, cache_folder, verify_shards
    from captioner.train.setup import initial_encoder

    settings = configs.load(config, changes)
    torch.manual_seed(settings.seed)
    spec = FeatureSpec.of(initial_encoder(settings), flip=settings.features.flip)
    folder = cache_folder(settings.features.folder, spec)
    count, damaged = verify_shards(folder)
    if damaged:
        raise CaptionerError(
            f"{len(damaged)} of {count} shards in {folder} are damaged: remove {', '.join(map(str, damaged[:5]))} and "
            "run `captioner features` again"
        )
    say(f"{count} shards in {folder}: no damage")
