"""What an ONNX graph takes and gives, and which files it reads, without the package onnx.

Only what a caption model needs is allowed. A graph is refused if it contains other graphs (loops, branches, functions),
sparse tensors, operators that read files, or fields that the table below doesn't list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from captioner.bundle.protobuf import Field, ProtobufError, read_message

FLOAT, UINT8, INT64 = 1, 2, 7  # ONNX's numbers of the types of tensors
TYPE_NAMES = {FLOAT: "float32", UINT8: "uint8", INT64: "int64"}

_DOMAINS = ("", "ai.onnx", "com.microsoft")
_FILE_READERS = ("EPContext",)  # operators that load a file which an attribute names
_EXTERNAL = 1  # data_location
_EXTERNAL_KEYS = {"location", "offset", "length", "checksum"}


def _message(name: str, message: str, *, repeated: bool = False) -> Field:
    return Field(name, "message", repeated, message)


def _number(name: str) -> Field:
    return Field(name, "number")


def _numbers(name: str) -> Field:
    return Field(name, "numbers", repeated=True)


def _texts(name: str) -> Field:
    return Field(name, repeated=True)


def _skipped(name: str) -> Field:
    """Notes that no reader computes with."""
    return Field(name, "bytes", repeated=True)


# Names and numbers are those of onnx.proto. What is missing here is refused.
_SCHEMA: Mapping[str, Mapping[int, Field]] = {
    "Model": {
        1: _number("ir_version"),
        2: Field("producer_name"),
        3: Field("producer_version"),
        4: Field("domain"),
        5: _number("model_version"),
        6: _skipped("doc_string"),
        7: _message("graph", "Graph"),
        8: _message("opset_import", "OperatorSet", repeated=True),
        14: _skipped("metadata_props"),
    },
    "OperatorSet": {1: Field("domain"), 2: _number("version")},
    "Entry": {1: Field("key"), 2: Field("value")},
    "Graph": {
        1: _message("node", "Node", repeated=True),
        2: Field("name"),
        5: _message("initializer", "Tensor", repeated=True),
        10: _skipped("doc_string"),
        11: _message("input", "ValueInfo", repeated=True),
        12: _message("output", "ValueInfo", repeated=True),
        13: _skipped("value_info"),
        16: _skipped("metadata_props"),
    },
    "Node": {
        1: _texts("input"),
        2: _texts("output"),
        3: Field("name"),
        4: Field("op_type"),
        5: _message("attribute", "Attribute", repeated=True),
        6: _skipped("doc_string"),
        7: Field("domain"),
        8: Field("overload"),
        9: _skipped("metadata_props"),
    },
    "Attribute": {
        1: Field("name"),
        2: Field("f", "float"),
        3: _number("i"),
        4: Field("s", "bytes"),
        5: _message("t", "Tensor"),
        7: _numbers("floats"),
        8: _numbers("ints"),
        9: Field("strings", "bytes", repeated=True),
        10: _message("tensors", "Tensor", repeated=True),
        13: _skipped("doc_string"),
        20: _number("type"),
        21: Field("ref_attr_name"),
    },
    "Tensor": {
        1: _numbers("dims"),
        2: _number("data_type"),
        4: _numbers("float_data"),
        5: _numbers("int32_data"),
        6: Field("string_data", "bytes", repeated=True),
        7: _numbers("int64_data"),
        8: Field("name"),
        9: Field("raw_data", "bytes"),
        10: _numbers("double_data"),
        11: _numbers("uint64_data"),
        12: _skipped("doc_string"),
        13: _message("external_data", "Entry", repeated=True),
        14: _number("data_location"),
        16: _skipped("metadata_props"),
    },
    "ValueInfo": {
        1: Field("name"),
        2: _message("type", "Type"),
        3: _skipped("doc_string"),
        4: _skipped("metadata_props"),
    },
    "Type": {1: _message("tensor_type", "TensorType"), 6: Field("denotation")},
    "TensorType": {1: _number("elem_type"), 2: _message("shape", "Shape")},
    "Shape": {1: _message("dim", "Dimension", repeated=True)},
    "Dimension": {1: _number("dim_value"), 2: Field("dim_param"), 3: Field("denotation")},
}


@dataclass(frozen=True)
class Signature:
    """The type of a tensor, and its shape: a number, or None for a size that only a run decides."""

    type: int
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        sizes = ", ".join("any" if size is None else str(size) for size in self.shape)
        return f"{TYPE_NAMES.get(self.type, f'type {self.type}')} ({sizes})"


@dataclass(frozen=True)
class Graph:
    """What is known of a graph before it is loaded."""

    inputs: Mapping[str, Signature]
    outputs: Mapping[str, Signature]
    external_files: frozenset[str]  # files that it takes weights from, relative to its own folder


def read_graph(data: bytes) -> Graph:
    """Parse a graph. Raises ProtobufError where it is damaged or has what a caption model doesn't need."""
    graph = read_message(data, _SCHEMA, "Model").get("graph")
    if graph is None:
        raise ProtobufError("there is no graph")
    external = {location for tensor in graph.get("initializer", ()) for location in _external_files(tensor)}
    for node in graph.get("node", ()):
        operator, domain = node.get("op_type", ""), node.get("domain", "")
        if domain not in _DOMAINS or operator in _FILE_READERS:
            raise ProtobufError(f"the operator {operator!r} of {domain!r} is not allowed")
        for attribute in node.get("attribute", ()):
            for tensor in (*attribute.get("tensors", ()), *([attribute["t"]] if "t" in attribute else [])):
                if list(_external_files(tensor)):
                    raise ProtobufError("a constant inside a node is in another file")
    return Graph(_signatures(graph, "input"), _signatures(graph, "output"), frozenset(external))


def _external_files(tensor: Mapping[str, Any]) -> Iterator[str]:
    """The file that holds a tensor's values, if it is not the graph's own."""
    entries, location = tensor.get("external_data", []), tensor.get("data_location", 0)
    if not entries and not location:
        return
    values = {entry.get("key"): entry.get("value", "") for entry in entries}
    if location != _EXTERNAL or len(values) < len(entries) or not {"location"} <= set(values) <= _EXTERNAL_KEYS:
        raise ProtobufError(f"the tensor {tensor.get('name', '')!r} does not say clearly where its values are")
    yield values["location"]


def _signatures(graph: Mapping[str, Any], kind: str) -> dict[str, Signature]:
    signatures: dict[str, Signature] = {}
    for value in graph.get(kind, ()):
        name, tensor = value.get("name", ""), value.get("type", {}).get("tensor_type")
        if tensor is None or name in signatures:
            raise ProtobufError(f"the {kind} {name!r} is not a tensor, or is there twice")
        dimensions = tensor.get("shape", {}).get("dim", [])
        if any("dim_value" in dimension and "dim_param" in dimension for dimension in dimensions):
            raise ProtobufError(f"the {kind} {name!r} has two sizes for one axis")
        shape = tuple(dimension.get("dim_value") for dimension in dimensions)
        signatures[name] = Signature(tensor.get("elem_type", 0), shape)
    return signatures
