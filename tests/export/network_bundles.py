"""Bundles of untrained networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from captioner.bundle.layout import WEIGHTS
from captioner.bundle.loading import Bundle
from captioner.bundle.manifest import EncoderRecord, Manifest
from captioner.bundle.writing import write_bundle
from captioner.export.onnx_graphs import export_graphs
from captioner.model.network import Network
from captioner.options import SearchOptions
from tests.model.tiny_models import VOCABULARY

GRAPHS = ("encoder.onnx", "begin.onnx", "decoder.onnx")


def write_network_bundle(network: Network, folder: Path, **decoding: Any) -> Bundle:
    """The bundle `tiny` of a network, in a folder that also gets its graphs. `decoding` are search options."""
    export_graphs(network, folder)
    settings = network.encoder.settings
    mean, deviation = (tuple(x.flatten().tolist()) for x in (network.encoder.mean, network.encoder.deviation))
    manifest = Manifest(
        name="tiny",
        attention="soft" if network.decoder.settings.attention.mode == "soft" else "hard",
        encoder=EncoderRecord(
            settings.name, settings.size, *network.encoder.grid(), network.encoder.size, mean, deviation
        ),
        training_data="nothing",
        licence="CC0-1.0",
        decoding=SearchOptions(beam=2, length_power=0.8, max_length=7, **decoding),
        settings={
            "encoder": settings.model_dump(mode="json"),
            "model": network.decoder.settings.model_dump(mode="json"),
        },
        created_by="tests",
    )
    files = {name: folder / name for name in (*GRAPHS, WEIGHTS)} | {"README.md": b"# Tiny\n"}
    return write_bundle(folder / "tiny", files, manifest, VOCABULARY)
