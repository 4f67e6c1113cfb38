"""Graphs are read as onnx reads them, and files hidden in them are found or the graph is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from attack_suite.fuzz_targets import all_external_files
from captioner.bundle.onnx_graph import read_graph
from captioner.bundle.protobuf import ProtobufError
from captioner.bundle.writing import write_bundle
from captioner.errors import CaptionerError
from tests.bundle.foreign_files import HIDING_PLACES, SECRET
from tests.tiny_bundle import begin_graph, decoder_graph, encoder_graph, parameters
from tests.tiny_bundle import write_model as write_tiny

WEIGHTS = Path(__file__).parents[2] / "weights"


@pytest.mark.parametrize("graph", sorted(WEIGHTS.glob("*/*.onnx")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_the_graphs_of_the_models_are_read_as_onnx_reads_them(graph):
    model = onnx.load(graph, load_external_data=False)
    ours = read_graph(graph.read_bytes())
    for values, signatures in ((model.graph.input, ours.inputs), (model.graph.output, ours.outputs)):
        assert [value.name for value in values] == list(signatures)
        for value in values:
            tensor, signature = value.type.tensor_type, signatures[value.name]
            assert tensor.elem_type == signature.type
            assert [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim] == [*signature.shape]
    assert ours.external_files == all_external_files(model)


@pytest.mark.parametrize("hide", HIDING_PLACES, ids=lambda hide: hide.__name__)
def test_a_file_that_is_hidden_in_a_graph_is_found_or_the_graph_is_refused(tmp_path, hide: Callable[[], bytes]):
    """Each of these passed the search for the bytes of the key `location`, which was used before."""
    data = hide()
    try:
        found = read_graph(data).external_files
    except ProtobufError:
        found = None
    assert found is None or SECRET in found
    model = write_tiny(tmp_path / "toy")
    files = {name: model.folder / name for name in ("encoder.onnx", "begin.onnx")}
    with pytest.raises(CaptionerError, match=r"decoder\.onnx"):
        write_bundle(tmp_path / "bad", {**files, "decoder.onnx": data}, model.manifest, model.vocabulary)


@pytest.mark.parametrize(("operator", "domain"), [("EPContext", "com.microsoft"), ("Anything", "my.domain")])
def test_operators_that_read_files_or_are_not_built_in_are_refused(operator, domain):
    graph = helper.make_graph([helper.make_node(operator, ["a"], ["b"], domain=domain)], "graph", [], [])
    with pytest.raises(ProtobufError, match=f"{operator!r} of {domain!r} is not allowed"):
        read_graph(helper.make_model(graph).SerializeToString())


def test_a_loop_is_refused():
    body = helper.make_graph([], "body", [], [])
    graph = helper.make_graph([helper.make_node("Loop", ["n", "go"], ["x"], body=body)], "graph", [], [])
    with pytest.raises(ProtobufError, match="Attribute has a field 6, which is not allowed"):
        read_graph(helper.make_model(graph).SerializeToString())


def test_a_file_without_a_graph_is_refused():
    with pytest.raises(ProtobufError, match="no graph"):
        read_graph(b"")


def test_an_input_that_is_no_tensor_is_refused():
    sequence = helper.make_tensor_sequence_value_info("words", TensorProto.FLOAT, [1])
    with pytest.raises(ProtobufError):
        read_graph(helper.make_model(helper.make_graph([], "graph", [sequence], [])).SerializeToString())


def _mutations() -> Iterator[bytes]:
    yield from (encoder_graph(), begin_graph(), decoder_graph(parameters(), hard=True))


@given(st.data())
@settings(max_examples=1000, deadline=None)
def test_a_damaged_graph_that_is_accepted_names_the_files_that_onnx_finds(data):
    graph = bytearray(data.draw(st.sampled_from([*_mutations(), HIDING_PLACES[0]()])))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(graph) - 1))
        graph[position] = data.draw(st.integers(0, 255))
    try:
        ours = read_graph(bytes(graph))
    except ProtobufError:
        return
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(graph))
    except DecodeError:
        return
    assert all_external_files(model) <= ours.external_files
