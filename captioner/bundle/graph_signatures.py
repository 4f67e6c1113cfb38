"""The inputs and outputs that the three graphs of a bundle must have, by its manifest and its vocabulary.

`captioner.inference.onnx_backend` describes them. A graph that fits is still checked when it runs: what it declares and
what it computes may differ.
"""

from __future__ import annotations

from collections.abc import Mapping

from captioner.bundle.layout import BEGIN, DECODER
from captioner.bundle.manifest import Manifest
from captioner.bundle.onnx_graph import FLOAT, INT64, UINT8, Graph, Signature
from captioner.errors import CaptionerError


def check_signatures(manifest: Manifest, words: int, graphs: Mapping[str, Graph], where: str) -> None:
    """Refuse graphs whose inputs and outputs are not those of the manifest, or that don't fit each other.

    `graphs` are the encoder, begin and decoder by their names in `layout`; `words` is the size of the vocabulary.
    """
    encoder, begin, decoder = graphs[manifest.encoder.file], graphs[BEGIN], graphs[DECODER]
    side, cells, size = manifest.encoder.image_size, _cells(manifest), manifest.encoder.annotation_size
    annotations = {"annotations": Signature(FLOAT, (None, cells, size))}
    state = begin.outputs
    if not state or not all(name.startswith(("shared.", "own.")) for name in state):
        raise CaptionerError(f"{where}: the outputs of {BEGIN} are not a state")
    inputs = {"words": Signature(INT64, (None, None)), **_several(state)}
    outputs = {
        "log_probabilities": Signature(FLOAT, (None, None, words)),
        "alpha": Signature(FLOAT, (None, None, cells)),
        "gate": Signature(FLOAT, (None, None)),
        **{name.replace("own.", "next.", 1): s for name, s in _several(state).items() if name.startswith("own.")},
    }
    if manifest.attention == "hard":
        inputs |= {"noise": Signature(FLOAT, (None, None, cells)), "chosen": Signature(FLOAT, ())}
        outputs["place"] = Signature(INT64, (None, None))
    pixels = {"pixels": Signature(UINT8, (None, side, side, 3))}
    _check(encoder.inputs, pixels, f"{where}: {manifest.encoder.file}", "input")
    _check(encoder.outputs, annotations, f"{where}: {manifest.encoder.file}", "output")
    _check(begin.inputs, annotations, f"{where}: {BEGIN}", "input")
    _check(decoder.inputs, inputs, f"{where}: {DECODER}", "input")
    _check(decoder.outputs, outputs, f"{where}: {DECODER}", "output")


def _cells(manifest: Manifest) -> int:
    return manifest.encoder.rows * manifest.encoder.cols


def _several(state: Mapping[str, Signature]) -> dict[str, Signature]:
    """The state of any number of hypotheses: the state before the first word has one."""
    return {
        name: Signature(value.type, (None, None, *value.shape[2:])) if name.startswith("own.") else value
        for name, value in state.items()
    }


def _check(actual: Mapping[str, Signature], needed: Mapping[str, Signature], where: str, kind: str) -> None:
    missing, extra = needed.keys() - actual.keys(), actual.keys() - needed.keys()
    if missing:
        raise CaptionerError(f"{where} has no {kind} {', '.join(sorted(missing))}; it is not a captioner's")
    if extra:
        raise CaptionerError(f"{where} has an {kind} that nothing uses: {', '.join(sorted(extra))}")
    for name, signature in needed.items():
        if not _fits(actual[name], signature):
            raise CaptionerError(
                f"{where}: its {kind} {name} is {actual[name]}, where the manifest and the other graphs need "
                f"{signature}"
            )


def _fits(actual: Signature, needed: Signature) -> bool:
    """Whether type and number of axes are equal, and every size that both know."""
    return (
        actual.type == needed.type
        and len(actual.shape) == len(needed.shape)
        and all(a == b or a is None or b is None for a, b in zip(actual.shape, needed.shape, strict=True))
    )
