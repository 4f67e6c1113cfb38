"""captioner's own parsers as functions of bytes, for scripts/fuzz and for the seeds in tests/fuzz_seeds.

Each function returns if the parser accepts the bytes or refuses them in its own way. Any other exception is a finding.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from captioner.bundle.manifest import Manifest
from captioner.bundle.onnx_graph import read_graph
from captioner.bundle.protobuf import ProtobufError
from captioner.data.formats.coco_results import read_references, read_results
from captioner.data.formats.detection import read_set
from captioner.errors import CaptionerError
from captioner.text.tokenizer import tokenize
from captioner.train import checkpoint

_FOLDER = tempfile.TemporaryDirectory(prefix="captioner-fuzz-")  # removed when the process ends


def protobuf(data: bytes) -> None:
    """What our reader accepts names every file that onnx's reader finds in it."""
    try:
        graph = read_graph(data)
    except ProtobufError:
        return
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError:
        return  # onnxruntime can't load it either
    hidden = all_external_files(model) - graph.external_files
    assert not hidden, hidden


def manifest(data: bytes) -> None:
    with contextlib.suppress(CaptionerError, ValueError, RecursionError):  # the last two as load_bundle does
        Manifest.from_json(json.loads(data))


def tokenizer(data: bytes) -> None:
    """Tokens are never empty, and the tokens of a text that is tokenized again are strings too."""
    tokens = tokenize(data.decode("utf-8", "surrogateescape"))
    assert all(token and not token.isspace() for token in tokens)
    tokenize(" ".join(tokens))


def captions(data: bytes) -> None:
    """Every reader of caption files gets every file; `read_set` detects the format by the content."""
    path = Path(_FOLDER.name) / "captions.json"
    path.write_bytes(data)
    readers: tuple[Callable[[Path], object], ...] = (read_set, read_results, read_references)
    for read in readers:
        with contextlib.suppress(CaptionerError):
            read(path)


def safetensors(data: bytes) -> None:
    path = Path(_FOLDER.name) / "last.safetensors"
    path.write_bytes(data)
    with contextlib.suppress(CaptionerError):
        checkpoint.read(path)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (protobuf, manifest, tokenizer, captions, safetensors)
}


def all_external_files(message: Any) -> set[str]:
    """The value of every key `location` in every tensor of a model, found by onnx's own classes."""
    return {
        entry.value
        for tensor in _tensors(message)
        for entry in tensor.external_data
        if entry.key == "location" and tensor.data_location == onnx.TensorProto.EXTERNAL
    }


def _tensors(message: Any) -> Iterator[Any]:
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for descriptor, value in message.ListFields():
        if descriptor.type == descriptor.TYPE_MESSAGE:
            for inner in [value] if hasattr(value, "ListFields") else value:
                yield from _tensors(inner)
