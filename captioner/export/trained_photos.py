"""From a folder of photos with captions to a bundle, without a config: choose, expect, train, validate, export."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from captioner.bundle.loading import Bundle
from captioner.errors import UsageError
from captioner.export.licences import UNSTATED, presumed_licence
from captioner.export.run_bundle import export_run
from captioner.files.existing import check_unoccupied
from captioner.progress import duration
from captioner.train import config_file as configs
from captioner.train.config import Config
from captioner.train.distributed import join
from captioner.train.expected_time import expected_time, too_short, within
from captioner.train.presets import choose, differences
from captioner.train.run_folder import RunFolder
from captioner.train.splits import limited, read_splits
from captioner.train.start import train_config

BUNDLE = "bundle"  # in the run folder


def train_photos(
    data: Path,
    output: Path | None = None,
    *,
    images: Path | None = None,
    start_from: str | None = None,
    minutes: float | None = None,
    changes: Sequence[str] = (),
    licence: str | None = None,
    overwrite: bool = False,
    device: str | None = None,
    only_plan: bool = False,
    say: Callable[[str], None] = print,
) -> Bundle | None:
    """Train on a data set with settings that fit its size, and export the result. With `only_plan`, stop before it."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("several processes need a config: captioner train --config FILE; --plan prints one")
    began = time.monotonic()
    output = output or Path("runs") / data.resolve().stem
    if not only_plan:
        check_unoccupied(
            output, "--output", overwrite=overwrite, resume=f"continue it with `captioner train --resume {output}`"
        )
    preset = choose(data, images, start_from=start_from, name=output.name, changes=changes)
    say(preset.data)
    say(f"plan: {preset.reason}")
    for note in preset.notes:
        say(f"note: {note}")
    with join(device) as world:
        config, expected = expected_time(preset.config, world.device)
    if minutes is not None:
        config, expected, said = within(config, expected, minutes * 60)
        if said:
            say(f"note: {said}")
    if warning := too_short(config, expected):
        say(f"warning: {warning}")
    if only_plan:
        say(f"\nsettings, with all defaults:\n\n{configs.dump(config)}")
    else:
        say(f"\nsettings (all of them will be in {output / 'config.yaml'}):\n\n{_as_yaml(config)}")
        say("every other setting has its default; --plan prints all")
    say(f"time: {expected.sentence()}")
    if only_plan:
        return None
    training_data = _trained_on(config, preset.name)
    train_config(config, output, overwrite=overwrite, device=device)
    bundle = export_run(
        output,
        output / BUNDLE,
        training_data=training_data,
        licence=licence or presumed_licence(config),
    )
    _say_result(bundle, config, output, say)
    say(f"took {duration(time.monotonic() - began)}, expected {duration(expected.total)}")
    return bundle


def _trained_on(config: Config, name: str) -> str:
    """What the card names as training data: the pictures of the training split that the run uses."""
    train = limited(read_splits(config)[0], config.training.limit)
    return f"{name}: {len(train):,} images with {len(list(train.captions())):,} captions"


def _as_yaml(config: Config) -> str:
    text: str = yaml.safe_dump(differences(config), sort_keys=False, allow_unicode=True, default_flow_style=None)
    return text


def _say_result(bundle: Bundle, config: Config, output: Path, say: Callable[[str], None]) -> None:
    manifest = bundle.manifest
    score = config.training.validation.score
    say(f"\n{score} {manifest.scores[score]:.1f} ({manifest.scored_on})")
    say(f"{output / BUNDLE}: the model, {bundle.size / 1e6:.1f} MB; its card is README.md in it")
    if manifest.licence.startswith(UNSTATED):
        say(f"its licence is not stated; to name one: captioner export {output} --output DIR --licence NAME")
    say(f"\nto use it:\n  captioner caption photo.jpg --model {output / BUNDLE}")
    say(f"  captioner overlay photo.jpg --model {output / BUNDLE} --output out")
    metrics = RunFolder(output).metrics
    say(f"to see how it learned: {metrics}, or tensorboard --logdir {output}")
