"""`captioner models`: the models that can be used by name."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command(name="models")
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def command(as_json: bool) -> None:
    """List the available models: size, attention, training data and scores.

    Models are looked up in the folders of CAPTIONER_WEIGHTS, in the installed package, beside it in a
    checkout, and in weights/ of the folder you are in. A model that cannot be used is listed with the reason.
    """
    from captioner.bundle import storage as bundle
    from captioner.errors import CaptionerError

    found: list[dict[str, Any]] = []
    for name, folder in bundle.available():
        entry: dict[str, Any] = {"name": name, "folder": str(folder)}
        try:
            manifest = bundle.load(folder).manifest
        except CaptionerError as error:
            entry["problem"] = str(error)
        else:
            entry |= {
                "bytes": sum(record.size for record in manifest.files.values()),
                "attention": manifest.attention,
                "encoder": manifest.encoder.name,
                "grid": f"{manifest.encoder.rows}x{manifest.encoder.cols}",
                "training_data": manifest.training_data,
                "licence": manifest.licence,
                "scores": dict(manifest.scores),
                "scored_on": manifest.scored_on,
            }
        found.append(entry)
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    if not found:
        searched = ", ".join(str(folder) for folder in bundle.search_path())
        click.echo(f"no models in {searched}; set CAPTIONER_WEIGHTS to a folder of bundles", err=True)
    for entry in found:
        click.echo(entry["name"])
        if "problem" in entry:
            click.echo(f"  cannot be used: {entry['problem']}")
            continue
        scores = ", ".join(f"{name} {value:g}" for name, value in entry["scores"].items()) or "not measured"
        where = f" ({entry['scored_on']})" if entry["scored_on"] else ""
        size = entry["bytes"] / 1e6
        click.echo(f"  {entry['attention']} attention, {entry['encoder']}, grid {entry['grid']}, {size:.1f} MB")
        click.echo(f"  trained on {entry['training_data']}; licence {entry['licence']}")
        click.echo(f"  scores: {scores}{where}")
        click.echo(f"  {entry['folder']}")
