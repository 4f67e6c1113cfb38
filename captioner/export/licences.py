"""The licence of exported weights: Apache-2.0 only where all training data allow it."""

from __future__ import annotations

import re
from pathlib import Path

from captioner.bundle.layout import MANIFEST
from captioner.bundle.loading import read_manifest
from captioner.bundle.model_folders import start_folder
from captioner.errors import CaptionerError, UsageError
from captioner.train import config_file as configs
from captioner.train.config import Config, SourceSettings
from captioner.train.run_folder import RunFolder, model_folder

FREE = "Apache-2.0"
UNSTATED = "not stated"
NON_COMMERCIAL = "non-commercial research and education"
# Words in the paths of training data whose terms are known. "coconut" is not one of them.
_ALLOWING = re.compile(r"(?<![a-z])(coco|shapes)(?![a-z])")
_FORBIDDING = "flickr"


def licence_of(config: Config, given: str | None) -> str:
    """The given licence, or Apache-2.0 where all training data allow it. Otherwise an error asks for one."""
    if given:
        return given
    reason = obstacle(config)
    if reason is None:
        return FREE
    raise UsageError(f"{reason}: name the licence of the weights with --licence")


def presumed_licence(config: Config) -> str:
    """What a card can say where nobody was asked: the strictest known terms, or that nothing is stated."""
    if obstacle(config) is None:
        return FREE
    of_data = {_terms(_path(config, source)) for source in config.data.train}
    if NON_COMMERCIAL in of_data:
        return NON_COMMERCIAL
    of_start = FREE if config.training.start_from is None else _presumed_of_start(config.training.start_from)
    if of_start == FREE:
        return UNSTATED
    if of_data == {FREE} or of_start.startswith((NON_COMMERCIAL, UNSTATED)):
        return of_start
    return f"{UNSTATED}; it was trained from weights under: {of_start}"


def obstacle(config: Config) -> str | None:
    """Why the weights can't simply be Apache-2.0; None if they can."""
    unknown = None
    for source in config.data.train:
        terms = _terms(_path(config, source))
        if terms == NON_COMMERCIAL:
            return "Flickr8k and Flickr30k may be used for non-commercial research and education only"
        if terms == UNSTATED:
            unknown = f"the terms of the training data {source.captions} are not known here"
    start = config.training.start_from
    return unknown or (None if start is None else _of_start(start))


def _path(config: Config, source: SourceSettings) -> str:
    return str(config.path(source.captions)).lower()


def _terms(path: str) -> str:
    """The terms of the training data at a path. If it has words of both kinds, the stricter ones."""
    if _FORBIDDING in path:
        return NON_COMMERCIAL
    return FREE if _ALLOWING.search(path) else UNSTATED


def _presumed_of_start(start: Path) -> str:
    try:
        folder = model_folder(start_folder(start))
        if (folder / MANIFEST).is_file():
            return read_manifest(folder).licence
        return presumed_licence(configs.load(RunFolder(folder).config))
    except CaptionerError:
        return UNSTATED


def _of_start(start: Path) -> str | None:
    """Weights that were trained further keep the terms of their first training data."""
    try:
        folder = model_folder(start_folder(start))
        if (folder / MANIFEST).is_file():
            licence = read_manifest(folder).licence
            return None if licence == FREE else f"the run started from {start}, whose licence is {licence!r}"
        return obstacle(configs.load(RunFolder(folder).config))
    except CaptionerError:
        return f"the terms of {start}, which the run started from, are not known here"
