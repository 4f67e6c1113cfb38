"""`captioner web`: a folder that captions in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from captioner.cli.options import FOLDER, complete_model, onnxruntime_web_option, overwrite_option


@click.command(name="web")
@click.argument("model", default="default", shell_complete=complete_model)
@click.option("--output", "-o", required=True, type=FOLDER, metavar="DIR", help="Folder to write.")
@onnxruntime_web_option
@overwrite_option
def command(model: str, output: Path, onnxruntime_web: Path | None, overwrite: bool) -> None:
    """Write a folder that captions photos in the browser, with MODEL (a name or a folder; default: default).

    Any static web server can host it. Photos stay on the device. The runtime, onnxruntime-web, is taken from npm once
    and kept in the user's cache.
    """
    say_written(output, model, overwrite=overwrite, onnxruntime_web=onnxruntime_web)


def say_written(output: Path, model: str | Path, *, overwrite: bool, onnxruntime_web: Path | None) -> None:
    """Write the folder and print what is in it."""
    from captioner.web.web_folder import write_web_folder

    sizes = write_web_folder(model, output, overwrite=overwrite, onnxruntime_web=onnxruntime_web)
    click.echo(f"{output}: {len(sizes)} files, {sum(sizes.values()) / 1e6:.1f} MB")
    click.echo(f"try it: python -m http.server --bind 127.0.0.1 --directory {output} 8080, then http://127.0.0.1:8080")
