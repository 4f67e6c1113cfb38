"""`captioner export`: a bundle from a training run, and a folder for the browser from a run or a model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from captioner.bundle.layout import MANIFEST
from captioner.cli.options import EXISTING_FILE, FOLDER, onnxruntime_web_option, overwrite_option
from captioner.cli.web import say_written
from captioner.errors import UsageError
from captioner.files.existing import check_unoccupied


@click.command(name="export")
@click.argument("run")
@click.option("--output", "-o", type=FOLDER, metavar="DIR", help="Folder of the bundle.")
@click.option(
    "--web",
    type=FOLDER,
    metavar="DIR",
    help="Folder that captions in the browser, as `captioner web` writes it; RUN may then be a model too.",
)
@onnxruntime_web_option
@overwrite_option
@click.option(
    "--last",
    is_flag=True,
    help="Export the last checkpoint (with averaged weights, if the run has them), not the best.",
)
@click.option("--name", metavar="NAME", show_default="that of the run", help="Name of the model.")
@click.option(
    "--training-data",
    default="",
    metavar="TEXT",
    show_default="the caption files",
    help="Description of the training data, for the manifest.",
)
@click.option(
    "--licence",
    metavar="NAME",
    show_default="Apache-2.0 if all training data are known to allow it",
    help="Licence of the weights.",
)
@click.option(
    "--card", type=EXISTING_FILE, metavar="FILE", show_default="a short one is written", help="Model card to include."
)
@click.option(
    "--evaluation",
    type=EXISTING_FILE,
    metavar="FILE",
    help="Take the scores from this output of `captioner evaluate --json`, not from validation.",
)
@click.option(
    "--int8",
    is_flag=True,
    help="Add 8-bit graphs for --backend int8: faster, more disk space; needs some of the training pictures.",
)
def command(
    run: str,
    output: Path | None,
    web: Path | None,
    onnxruntime_web: Path | None,
    overwrite: bool,
    int8: bool,
    **options: Any,
) -> None:
    """Turn the best weights of a training RUN into a bundle that runs without torch, a web folder, or both.

    Before the bundle is written, its captions and attention maps are compared with those of the torch model. A
    difference is an error.
    """
    if output is None and web is None:
        raise UsageError("give --output DIR for a bundle, --web DIR for a folder that captions in the browser, or both")
    check_unoccupied(web, "--web", overwrite=overwrite)
    if not Path(run).is_dir() or (Path(run) / MANIFEST).is_file():
        if web is None or output is not None or int8 or any(options.values()):
            raise UsageError(f"{run}: not a folder of a training run; of a model, only --web DIR can be written")
        say_written(web, run, overwrite=overwrite, onnxruntime_web=onnxruntime_web)
        return
    from captioner.export.run_bundle import export_run, int8_loss

    with tempfile.TemporaryDirectory() as temporary:
        folder = output or Path(temporary) / "bundle"
        bundle = export_run(Path(run), folder, int8=int8, overwrite=overwrite, **options)
        if output is not None:
            click.echo(f"{bundle.folder}: {bundle.manifest.name}, {bundle.size / 1e6:.1f} MB")
        if int8:
            click.echo(f"8-bit graphs: a word's log-probability differs by up to {int8_loss(bundle):.2f}")
        if web is not None:
            say_written(web, bundle.folder, overwrite=overwrite, onnxruntime_web=onnxruntime_web)
