"""The files of a bundle: a folder with a model that is ready to run.

    weights/NAME/manifest.json       what the model is; size and SHA-256 of every other file
                 encoder.onnx        pixels -> annotations; or the manifest names the encoder of a neighbouring bundle
                 begin.onnx          annotations -> the state before the first word
                 decoder.onnx        one decoding step
                 *.int8.onnx         the three graphs in 8 bits, optional: faster and slightly less accurate
                 model.safetensors   the weights; the graphs refer to them, and torch loads them for training
                 vocabulary.json
                 confidence.json     the numbers that give a caption its confidence, optional
                 README.md           the model card

Loading verifies every file that is used and executes none. `captioner.inference.onnx_backend` describes the inputs and
outputs of the graphs.
"""

from __future__ import annotations

MANIFEST, VOCABULARY, WEIGHTS, CARD = "manifest.json", "vocabulary.json", "model.safetensors", "README.md"
CONFIDENCE = "confidence.json"
ENCODER, BEGIN, DECODER = "encoder.onnx", "begin.onnx", "decoder.onnx"
BUNDLE_FILES = (MANIFEST, VOCABULARY, WEIGHTS, CARD, CONFIDENCE, "*.onnx")  # names and patterns of all files


def int8_graph(graph: str) -> str:
    """The file name of a graph's 8-bit version."""
    return graph.replace(".onnx", ".int8.onnx")
