"""Config files: read, change by `--set a.b=c`, validate with errors that name the key, write, list all settings."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo

from captioner.bundle.layout import MANIFEST
from captioner.bundle.loading import read_manifest
from captioner.bundle.model_folders import start_folder
from captioner.errors import CaptionerError, UsageError, brief, nearest
from captioner.model.renames import current_setting, current_settings
from captioner.model.settings import Settings
from captioner.options import SearchOptions
from captioner.train.config import VALIDATION_TAGS, Config
from captioner.train.run_folder import RunFolder, model_folder

_INHERITED = ("beam", "length_power", "max_length", "no_repeat", "repeat_penalty")


def load(path: Path, changes: Sequence[str] = ()) -> Config:
    """The config in a file, with `a.b=c` changes applied."""
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise UsageError(f"--config: no such file: {path}") from None
    except OSError as error:
        raise UsageError(f"--config: {path} cannot be read ({error.strerror})") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply for a config") from None
    except (yaml.YAMLError, ValueError) as error:  # not UTF-8, or a number of thousands of digits
        raise UsageError(f"{path} is not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"{path} contains no settings; see configs/default.yaml")
    return parse(_with_search_of_start(changed(current_settings(raw), changes)), str(path))


def changed(raw: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The settings with `a.b=c` changes applied."""
    raw = copy.deepcopy(raw)
    for change in changes:
        _apply(raw, change)
    return raw


def search_of_model(folder: Path) -> dict[str, Any]:
    """The search settings of a bundle or run that decide its captions, for a model that is trained further."""
    if (folder / MANIFEST).is_file():
        options = read_manifest(folder).decoding
    else:
        options = load(RunFolder(model_folder(folder)).config).training.validation.search
    return {name: getattr(options, name) for name in _INHERITED}


def _with_search_of_start(raw: dict[str, Any]) -> dict[str, Any]:
    """Settings of `training.validation.search` that the config leaves out are those of the model it starts from."""
    training = raw.get("training")
    if not isinstance(training, dict) or not isinstance(training.get("start_from"), str):
        return raw
    try:
        inherited = search_of_model(start_folder(training["start_from"]))
    except CaptionerError:  # the run reports a model that can't be read
        return raw
    validation = training.setdefault("validation", {})
    if isinstance(validation, dict) and isinstance(validation.get("search", {}), dict):
        validation["search"] = {**inherited, **validation.get("search", {})}
    return raw


class _Loader(yaml.SafeLoader):
    """YAML without aliases: a few lines of them can stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.YAMLError(f"line {event.start_mark.line + 1}: aliases (*{event.anchor}) are not used in configs")
        return super().compose_node(parent, index)


def parse(raw: dict[str, Any], where: str) -> Config:
    """Validate settings. An error names the key of each mistake, and the nearest key or the allowed values."""
    try:
        return Config.model_validate(current_settings(raw))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        lines = [_explain(problem) for problem in problems[:10]]
        lines += [f"and {len(problems) - 10} more"] if len(problems) > 10 else []
        raise UsageError(f"{where}: " + "; ".join(lines)) from None


def dump(config: Config) -> str:
    """The config as YAML, with all defaults."""
    text: str = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return text


def _apply(raw: dict[str, Any], change: str) -> None:
    """Apply one `a.b=c` change. A number in the key is an index into a list."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise UsageError(f"--set takes key=value, such as training.epochs=3, not {change!r}")
    try:
        value = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UsageError(f"--set {change}: {text!r} is not a YAML value; quote it, as in {key}='\"…\"'") from None
    *parents, last = current_setting(key).split(".")
    section: Any = raw
    for part in parents:
        index = _index(section, part, change)
        if isinstance(section, dict) and section.get(part) is None:  # not in the file, or null
            section[part] = {}
        section = section[index]
        if not isinstance(section, (dict, list)):
            raise UsageError(f"--set {change}: {part!r} is a value, not a section")
    section[_index(section, last, change)] = value


def _index(section: Any, part: str, change: str) -> str | int:
    """A part of a key as an index: a name in a section, a number in a list."""
    if isinstance(section, dict):
        return part
    if not part.isdecimal() or int(part) >= len(section):
        raise UsageError(f"--set {change}: {part!r} is not an index of this list, which has 0 to {len(section) - 1}")
    return int(part)


def _explain(problem: Any) -> str:
    """A sentence for one of pydantic's errors."""
    path = [str(part) for part in problem["loc"] if part not in VALIDATION_TAGS]
    key = ".".join(path)
    if problem["type"] == "extra_forbidden":
        known = _keys(path[:-1])
        elsewhere = [name for name, _ in fields() if name.rpartition(".")[2] == path[-1] and ".search." not in name]
        close = elsewhere or nearest(path[-1], known)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return f"unknown key {key!r}.{hint} Known here: {', '.join(known)}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "value_error":  # settings that don't fit each other; the message names them
        return f"{key or 'config'}: {message}"
    if problem["type"] == "model_type":
        below = ", ".join(_keys(path))
        return f"{key or 'config'}: needs settings below it ({below}), got {brief(problem.get('input'))}"
    close = nearest(str(problem["input"])[:100], _choices(problem)) if problem["type"] == "literal_error" else []
    hint = f". Did you mean {close[0]!r}?" if close else ""
    return f"{key or 'config'}: {message}, got {brief(problem.get('input'))}{hint}"


def _choices(problem: Any) -> list[str]:
    """The allowed words of a setting, from pydantic's message: "'soft', 'hard' or 'gumbel'"."""
    return re.findall(r"'([^']*)'", problem["ctx"]["expected"])


def _keys(path: list[str]) -> list[str]:
    """The known keys of the section at a path."""
    section: type[Settings] = Config
    for part in path:
        if not part.isdecimal():
            section = _section(section.model_fields[part].annotation) or section
    return list(section.model_fields)


def fields(section: type[Settings] = Config, path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """All settings with a value, by their path. `N` stands for an index into a list."""
    for name, field in section.model_fields.items():
        inner = _section(field.annotation)
        if field.annotation is SearchOptions:
            yield from _search_fields(field, f"{path}{name}.")
        elif inner is None:
            yield path + name, field
        else:
            many = _is_list(field.annotation)
            if many and get_origin(field.annotation) is not tuple:  # or a number instead of the list
                yield path + name, FieldInfo.from_annotated_attribute(float, field)
            yield from fields(inner, f"{path}{name}.N." if many else f"{path}{name}.")


def _search_fields(section: FieldInfo, path: str) -> Iterator[tuple[str, FieldInfo]]:
    """The fields of SearchOptions as pydantic describes fields."""
    defaults = section.get_default(call_default_factory=True)
    types = get_type_hints(SearchOptions)
    for option in dataclasses.fields(SearchOptions):
        declared = Field(
            getattr(defaults, option.name),
            description=option.metadata["description"],
            ge=option.metadata["least"],
            le=option.metadata["most"],
        )
        yield path + option.name, FieldInfo.from_annotated_attribute(types[option.name], declared)


def _is_list(annotation: Any) -> bool:
    """Whether a type is a list of sections, alone or as one of several kinds."""
    return get_origin(annotation) is tuple or any(_is_list(argument) for argument in get_args(annotation))


def _section(annotation: Any) -> type[Settings] | None:
    """The section in the type of a field: the type itself, or inside an optional or a list."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return annotation
    return next((section for argument in get_args(annotation) if (section := _section(argument))), None)
