"""Finding a model by its name, on a search path of folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from captioner.bundle.layout import MANIFEST
from captioner.errors import UsageError, unknown
from captioner.installation import REPOSITORY

PUBLISHED = ("default", "hard", "flickr8k-soft", "flickr8k-hard")  # in weights/ of the repository


def search_path() -> list[Path]:
    """The folders that are searched for a model's name, in order.

    They are those of CAPTIONER_WEIGHTS, `weights` in the installed package, `weights` beside it in a checkout, and
    `weights` in the current folder.
    """
    package = Path(__file__).resolve().parents[1]
    named = [Path(part) for part in os.environ.get("CAPTIONER_WEIGHTS", "").split(os.pathsep) if part]
    return [*named, package / "weights", package.parent / "weights", Path("weights")]


def available_models() -> Iterator[tuple[str, Path]]:
    """Names and folders of all bundles on the search path. Of two with one name, the first is taken."""
    names = set()
    for parent in search_path():
        try:
            folders = [folder for folder in sorted(parent.iterdir()) if (folder / MANIFEST).is_file()]
        except OSError:  # missing, or no permission to list it
            continue
        for folder in folders:
            if not folder.name.startswith(".") and folder.name not in names:
                names.add(folder.name)
                yield folder.name, folder


def find_model(name: str | Path) -> Path:
    """The folder of a model. A text without a separator is a name, never a folder of the current folder: `./toy` is.

    So a folder that happens to be called `default` can't take the place of the model. A Path is always a path.
    """
    path = Path(name).expanduser()
    if isinstance(name, Path) or path.name != name:
        if not path.is_dir():
            raise UsageError(
                f"{path}: no such folder; give a bundle's folder or a model's name (see `captioner models`)"
            )
        if not (path / MANIFEST).is_file():
            raise UsageError(f"{path}: not a bundle, because it has no {MANIFEST}; `captioner models` lists the models")
        return path
    models = dict(available_models())
    if name in models:
        return models[name]
    if (path / MANIFEST).is_file():
        raise UsageError(f"unknown model {name!r}; for the folder of that name here, give ./{name}")
    searched = ", ".join(str(parent) for parent in search_path())
    if models and name in PUBLISHED:
        raise UsageError(
            f"the model {name!r} is not installed: the package contains the model 'default' only. The others are "
            f"in the folder weights of the repository. To get them: git clone --depth 1 {REPOSITORY}, then set "
            f"CAPTIONER_WEIGHTS to captioner/weights or give --model captioner/weights/{name}. Searched: {searched}."
        )
    if not models:
        raise UsageError(
            f"unknown model {name!r}: there is no model in any of {searched}. "
            f"Set CAPTIONER_WEIGHTS to a folder of bundles, such as weights of {REPOSITORY}, or give a bundle's folder."
        )
    raise UsageError(f"{unknown('model', name, models)} Searched: {searched}.")


def start_folder(start: str | Path) -> Path:
    """The folder of `training.start_from`: a model by its name, or by a path the folder of a bundle or of a run.

    As in `find_model`, one word is a name. A Path can't say `./toy`, so one of one word is a name too.
    """
    path = Path(start).expanduser()
    if path.name != str(start):
        if not path.exists():
            raise UsageError(f"training.start_from: no such folder: {path}")
        return path
    if path.is_dir() and path.name not in dict(available_models()):
        raise UsageError(
            f"training.start_from: unknown model {path.name!r}; for the folder of that name here, give ./{path.name}"
        )
    return find_model(path.name)
