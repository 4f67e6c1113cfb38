"""The list of the available models, for people and for programs."""

from __future__ import annotations

from typing import Any

from captioner.bundle.loading import load_bundle
from captioner.bundle.model_folders import available_models
from captioner.errors import CaptionerError
from captioner.terminal import printable


def list_models() -> list[dict[str, Any]]:
    """One entry per model. A model that cannot be used has a `problem` in place of its properties."""
    entries = []
    for name, folder in available_models():
        entry: dict[str, Any] = {"name": name, "folder": str(folder)}
        try:
            bundle = load_bundle(folder)
        except CaptionerError as error:
            entry["problem"] = str(error)
        else:
            manifest = bundle.manifest
            entry |= {
                "bytes": bundle.size,
                "attention": manifest.attention,
                "encoder": manifest.encoder.name,
                "grid": f"{manifest.encoder.rows}x{manifest.encoder.cols}",
                "training_data": manifest.training_data,
                "licence": manifest.licence,
                "scores": dict(manifest.scores),
                "scored_on": manifest.scored_on,
            }
        entries.append(entry)
    return entries


def model_text(entry: dict[str, Any]) -> str:
    """An entry of the list as lines of text."""
    entry = {key: printable(value) if isinstance(value, str) else value for key, value in entry.items()}
    if "problem" in entry:
        return f"{entry['name']}\n  cannot be used: {entry['problem']}"
    scores = ", ".join(f"{printable(name)} {value:g}" for name, value in entry["scores"].items()) or "not measured"
    scored_on = f" ({entry['scored_on']})" if entry["scored_on"] else ""
    return "\n  ".join(
        [
            entry["name"],
            f"{entry['attention']} attention, {entry['encoder']}, grid {entry['grid']}, {entry['bytes'] / 1e6:.1f} MB",
            f"trained on {entry['training_data']}; licence {entry['licence']}",
            f"scores: {scores}{scored_on}",
            entry["folder"],
        ]
    )
