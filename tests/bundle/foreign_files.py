"""Graphs that name a file outside their bundle, hidden in every way that protobuf and ONNX offer."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import TensorProto, helper

from tests.tiny_bundle import decoder_graph, parameters

SECRET = "../../secret"


def field(number: int, content: bytes) -> bytes:
    """A field of bytes; sizes up to 127 bytes are enough here."""
    size = len(content)
    assert size < 1 << 14
    length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
    tag = number << 3 | 2
    return (bytes([tag]) if tag < 128 else bytes([tag & 0x7F | 0x80, tag >> 7])) + length + content


def plain() -> bytes:
    return _with_entry(field(1, b"location") + field(2, SECRET.encode()))


def value_before_key() -> bytes:
    return _with_entry(field(2, SECRET.encode()) + field(1, b"location"))


def over_long_size_of_the_key() -> bytes:
    return _with_entry(b"\x0a\x88\x00location" + field(2, SECRET.encode()))


def over_long_tag() -> bytes:
    return _with_entry(b"\x8a\x00\x08location" + field(2, SECRET.encode()))


def key_twice() -> bytes:
    return _with_entry(field(1, b"offset") + field(1, b"location") + field(2, SECRET.encode()))


def value_twice() -> bytes:
    return _with_entry(field(1, b"location") + field(2, b"model.safetensors") + field(2, SECRET.encode()))


def location_twice() -> bytes:
    entry = field(1, b"location") + field(2, b"model.safetensors")
    return _with_tensor(_tensor(field(13, entry) + field(13, field(1, b"location") + field(2, SECRET.encode()))))


def location_without_external() -> bytes:
    return _with_tensor(_tensor(field(13, field(1, b"location") + field(2, SECRET.encode())), external=False))


def unknown_field_in_the_entry() -> bytes:
    return _with_entry(field(1, b"location") + field(9, b"x") + field(2, SECRET.encode()))


def graph_twice() -> bytes:
    """Protobuf merges the two graphs."""
    hidden = field(5, _tensor(field(13, field(2, SECRET.encode()) + field(1, b"location"))))
    return decoder_graph(parameters(), hard=False) + field(7, hidden)


def constant_of_a_node() -> bytes:
    node = helper.make_node("Constant", [], ["hidden"], value=_external_tensor())
    return _with_node(node)


def subgraph() -> bytes:
    body = helper.make_graph([], "body", [], [], [_external_tensor()])
    return _with_node(helper.make_node("If", ["c"], ["hidden"], then_branch=body, else_branch=body))


def function() -> bytes:
    node = helper.make_node("Constant", [], ["y"], value=_external_tensor())
    model = onnx.load_from_string(decoder_graph(parameters(), hard=False))
    model.functions.append(helper.make_function("own", "F", [], ["y"], [node], [helper.make_opsetid("", 17)]))
    return bytes(model.SerializeToString())


def sparse_initializer() -> bytes:
    model = onnx.load_from_string(decoder_graph(parameters(), hard=False))
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(_external_tensor())
    return bytes(model.SerializeToString())


def training_graph() -> bytes:
    model = onnx.load_from_string(decoder_graph(parameters(), hard=False))
    model.training_info.add().algorithm.initializer.append(_external_tensor())
    return bytes(model.SerializeToString())


HIDING_PLACES: list[Callable[[], bytes]] = [
    plain,
    value_before_key,
    over_long_size_of_the_key,
    over_long_tag,
    key_twice,
    value_twice,
    location_twice,
    location_without_external,
    unknown_field_in_the_entry,
    graph_twice,
    constant_of_a_node,
    subgraph,
    function,
    sparse_initializer,
    training_graph,
]


def _tensor(rest: bytes, *, external: bool = True) -> bytes:
    return field(8, b"hidden") + b"\x08\x01\x10\x01" + rest + (b"\x70\x01" if external else b"")


def _with_entry(entry: bytes) -> bytes:
    return _with_tensor(_tensor(field(13, entry)))


def _with_tensor(tensor: bytes) -> bytes:
    """The decoder's graph with one more initializer, as raw bytes: the package onnx would write them in order."""
    model = onnx.load_from_string(decoder_graph(parameters(), hard=False))
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    return bytes(model.SerializeToString()) + field(7, graph + field(5, tensor))


def _external_tensor() -> TensorProto:
    tensor = TensorProto(name="hidden", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=SECRET)
    return tensor


def _with_node(node: onnx.NodeProto) -> bytes:
    model = onnx.load_from_string(decoder_graph(parameters(), hard=False))
    model.graph.node.append(node)
    return bytes(model.SerializeToString())
