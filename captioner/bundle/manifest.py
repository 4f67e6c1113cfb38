"""Manifest: the description of a bundle, read with strict checks. It opens no files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, cast

from captioner.errors import CaptionerError, UsageError, brief
from captioner.options import SearchOptions

FORMAT = 2  # increased when older versions would misread a bundle

_FILE = re.compile(r"(?:\.\./([A-Za-z0-9][\w.-]*)/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")


@dataclass(frozen=True)
class FileRecord:
    """Size and checksum that a file must have."""

    size: int
    sha256: str


@dataclass(frozen=True)
class EncoderRecord:
    """The encoder: its input and its output."""

    name: str
    image_size: int  # pixels per side of the square input
    rows: int
    cols: int
    annotation_size: int
    mean: tuple[float, float, float]  # the graph normalizes: (pixel - mean) / std, on 0..255
    std: tuple[float, float, float]
    file: str = "encoder.onnx"  # or "../OTHER/encoder.onnx": the encoder of the neighbouring bundle OTHER


@dataclass(frozen=True)
class Manifest:
    """What a model is. captioner.model builds the network from `settings`; the run half doesn't read them."""

    name: str
    attention: Literal["soft", "hard"]
    encoder: EncoderRecord
    training_data: str
    licence: str
    scores: Mapping[str, float] = field(default_factory=dict)
    scored_on: str = ""
    decoding: SearchOptions = field(default_factory=SearchOptions)  # the model's defaults for a search
    settings: Mapping[str, Any] = field(default_factory=dict)
    created_by: str = ""
    # Whether the scales of its 8-bit graphs are fixed, so that a caption doesn't depend on the rest of the batch. Those
    # of format 1 measure them for each batch.
    static_int8: bool = False
    format: int = FORMAT
    files: Mapping[str, FileRecord] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        return {"format": values.pop("format"), **values}

    @classmethod
    def from_json(cls, values: Any, where: str = "manifest") -> Manifest:
        """Check every entry. `where` names the file in errors."""
        read = _Reader(where)
        if not isinstance(values, dict) or "format" not in values:
            raise CaptionerError(f"{where}: not a captioner manifest (it has no format version)")
        version = read.take(values, "format", int)
        if version > FORMAT:
            raise CaptionerError(
                f"{where}: format {brief(version)} is newer than this captioner reads ({FORMAT}); upgrade captioner"
            )
        if version < 1:
            raise CaptionerError(f"{where}: there is no format {brief(version)}")
        if version == 1:
            values = {**values, "static_int8": False}
        read.only(values, cls)
        files = read.take(values, "files", dict)
        encoder = read.take(values, "encoder", dict)
        decoding = read.take(values, "decoding", dict)
        for name in files:
            read.check(bool(_FILE.fullmatch(name)), f"{brief(name)} is not the name of a file in a bundle")
        manifest = cls(
            format=version,
            name=read.match(values, "name", _NAME),
            attention=read.choice(values, "attention", ("soft", "hard")),
            encoder=read.encoder(encoder),
            training_data=read.take(values, "training_data", str),
            licence=read.take(values, "licence", str),
            scores=read.numbers(values, "scores"),
            scored_on=read.take(values, "scored_on", str),
            decoding=read.decoding(decoding, values["attention"]),
            settings=read.take(values, "settings", dict),
            created_by=read.take(values, "created_by", str),
            static_int8=read.take(values, "static_int8", bool),
            files={name: read.file(record) for name, record in files.items()},
        )
        # The graph of a shared encoder refers to the weights of its own bundle.
        other = other_bundle(manifest.encoder.file)
        shared = {manifest.encoder.file, f"../{other}/model.safetensors"}
        outside = {name for name in manifest.files if other_bundle(name) is not None}
        read.check(
            not outside - shared,
            f"only the encoder may be in another bundle, not {', '.join(sorted(outside - shared))}",
        )
        return manifest


def other_bundle(name: str) -> str | None:
    """The neighbouring bundle that a file is in; None for a file of the bundle itself."""
    matched = _FILE.fullmatch(name)
    return matched[1] if matched else None


@dataclass(frozen=True)
class _Reader:
    """Reads entries of one manifest; every error names the file."""

    where: str

    def check(self, met: bool, sentence: str) -> None:
        if not met:
            raise CaptionerError(f"{self.where}: {sentence}")

    def only(self, values: Any, record: type[Any]) -> None:
        self.check(isinstance(values, dict), f"{record.__name__} is not an object")
        known = {field.name for field in fields(record)}
        extra, missing = sorted(set(values) - known), sorted(known - set(values))
        self.check(not extra, f"unknown entry {', '.join(map(brief, extra[:5]))}")
        self.check(not missing, f"{', '.join(missing)} is missing")

    def take(self, values: dict[str, Any], key: str, kind: type[T]) -> T:
        value = values.get(key)
        allowed = (int, float) if kind is float else (kind,)
        right = isinstance(value, allowed) and not (kind in (int, float) and isinstance(value, bool))
        self.check(right, f"{key} must be {kind.__name__}, not {brief(value)}")
        if kind is not float:
            return cast(T, value)
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:  # a whole number of hundreds of digits
            number = math.inf
        self.check(math.isfinite(number), f"{key} must be a finite number")
        return cast(T, number)

    def match(self, values: dict[str, Any], key: str, pattern: re.Pattern[str]) -> str:
        value = self.take(values, key, str)
        self.check(bool(pattern.fullmatch(value)), f"{key} {brief(value)} is not of the form {pattern.pattern}")
        return value

    def choice(self, values: dict[str, Any], key: str, choices: tuple[str, ...]) -> Any:
        value = self.take(values, key, str)
        self.check(value in choices, f"{key} must be one of {', '.join(choices)}, not {brief(value)}")
        return value

    def count(self, values: dict[str, Any], key: str, most: int) -> int:
        value = self.take(values, key, int)
        self.check(1 <= value <= most, f"{key} {brief(value)} is not in 1..{most}")
        return value

    def numbers(self, values: dict[str, Any], key: str) -> dict[str, float]:
        table = self.take(values, key, dict)
        return {str(name): self.take(table, name, float) for name in table}

    def triple(self, values: dict[str, Any], key: str) -> tuple[float, float, float]:
        value = values.get(key)
        self.check(isinstance(value, (list, tuple)) and len(value) == 3, f"{key} must be three numbers")
        table = dict(zip("rgb", cast("list[float]", value), strict=True))
        return tuple(self.take(table, channel, float) for channel in "rgb")  # type: ignore[return-value]

    def file(self, record: Any) -> FileRecord:
        self.only(record, FileRecord)
        size = self.take(record, "size", int)
        self.check(0 <= size < 1 << 63, f"size {brief(size)} is not that of a file")
        return FileRecord(size, self.match(record, "sha256", _SHA256))

    def encoder(self, values: dict[str, Any]) -> EncoderRecord:
        self.only(values, EncoderRecord)
        return EncoderRecord(
            name=self.take(values, "name", str),
            image_size=self.count(values, "image_size", 4096),
            rows=self.count(values, "rows", 256),
            cols=self.count(values, "cols", 256),
            annotation_size=self.count(values, "annotation_size", 65536),
            mean=self.triple(values, "mean"),
            std=self.triple(values, "std"),
            file=self.match(values, "file", _FILE),
        )

    def decoding(self, values: dict[str, Any], attention: str) -> SearchOptions:
        try:
            options = SearchOptions.from_json(values)
        except UsageError as error:
            raise CaptionerError(f"{self.where}: decoding: {error}") from None
        return options if attention == "hard" else replace(options, hard_attention=None)
