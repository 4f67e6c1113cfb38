"""A bundle whose graphs have other inputs and outputs than its manifest says is refused before it runs."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
from onnx import TensorProto

from captioner.bundle.writing import write_bundle
from captioner.errors import CaptionerError
from captioner.text.vocabulary import Vocabulary
from tests.tiny_bundle import V, tensor, write_model


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"image_size": 32}, r"encoder\.onnx: its input pixels is uint8 \(any, 16, 16, 3\), .* \(any, 32, 32, 3\)"),
        ({"rows": 3}, r"encoder\.onnx: its output annotations is float32 \(any, 4, 3\), .* \(any, 6, 3\)"),
        ({"annotation_size": 5}, r"encoder\.onnx: its output annotations is float32 \(any, 4, 3\)"),
    ],
)
def test_image_size_grid_and_annotations_are_the_manifest_s(model, changes, problem):
    with pytest.raises(CaptionerError, match=problem):
        write_model(model.folder, encoder=replace(model.manifest.encoder, **changes))


def test_the_vocabulary_has_as_many_words_as_the_decoder(model):
    vocabulary = Vocabulary((*model.vocabulary.words, "more"))
    files = {name: model.folder / name for name in ("encoder.onnx", "begin.onnx", "decoder.onnx")}
    with pytest.raises(CaptionerError, match=rf"log_probabilities is float32 \(any, any, {V}\), .* {V + 1}\)"):
        write_bundle(model.folder, files, model.manifest, vocabulary)


def test_a_soft_decoder_is_no_hard_model(model):
    with pytest.raises(CaptionerError, match=r"decoder\.onnx has no input chosen, noise"):
        write_model(model.folder, attention="hard")


def _renamed_output(graph: onnx.ModelProto) -> None:
    graph.graph.output[1].name = "beta"


def _words_as_floats(graph: onnx.ModelProto) -> None:
    graph.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT


def _more_axes(graph: onnx.ModelProto) -> None:
    graph.graph.output[0].type.tensor_type.shape.dim.add(dim_param="more")


def _another_input(graph: onnx.ModelProto) -> None:
    graph.graph.input.append(tensor("extra", TensorProto.FLOAT, 1))


def _another_state(graph: onnx.ModelProto) -> None:
    graph.graph.input[2].name = "own.c"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_renamed_output, "has no output alpha"),
        (_words_as_floats, r"its input words is float32 \(any, any\)"),
        (_more_axes, r"its output log_probabilities is float32 \(any, any, 12, any\)"),
        (_another_input, "has an input that nothing uses: extra"),
        (_another_state, r"has no input own\.h"),
    ],
)
def test_names_types_and_axes_of_the_decoder_are_checked(model, change, problem):
    graph = onnx.load(model.folder / "decoder.onnx")
    change(graph)
    files = {name: model.folder / name for name in ("encoder.onnx", "begin.onnx")}
    with pytest.raises(CaptionerError, match=problem):
        write_bundle(
            model.folder, {**files, "decoder.onnx": graph.SerializeToString()}, model.manifest, model.vocabulary
        )
