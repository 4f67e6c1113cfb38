"""`captioner export`: a bundle from a training run, and a folder for the browser from a run or a model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from captioner.bundle.layout import MANIFEST
from captioner.bundle.model_folders import find_model
from captioner.cli.options import EXISTING_FILE, EXISTING_FOLDER, FOLDER, onnxruntime_web_option, overwrite_option
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
    "--encoder-of",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="Leave the encoder out and use that of the bundle DIR, which must be beside --output and have the encoder of "
    "the run. Not with --int8.",
)
@click.option(
    "--int8",
    is_flag=True,
    help="Add 8-bit graphs for --fast: faster, more disk space; needs some of the training pictures.",
)
@click.option(
    "--pictures",
    type=EXISTING_FOLDER,
    metavar="DIR",
    show_default="those that the run was trained on",
    help="Measure the ranges of the 8-bit graphs on the pictures of this folder.",
)
def command(
    run: str,
    output: Path | None,
    web: Path | None,
    onnxruntime_web: Path | None,
    overwrite: bool,
    int8: bool,
    pictures: Path | None,
    **options: Any,
) -> None:
    """Turn the best weights of a training RUN into a bundle that runs without torch, a web folder, or both.

    Before the bundle is written, its captions and attention maps are compared with those of the torch model. A
    difference is an error. RUN may also be a bundle: with --int8 and --pictures, a copy with 8-bit graphs is written.
    """
    if output is None and web is None:
        raise UsageError("give --output DIR for a bundle, --web DIR for a folder that captions in the browser, or both")
    if pictures is not None and not int8:
        raise UsageError("--pictures is for 8-bit graphs: give --int8 too")
    if options["encoder_of"] is not None and output is None:
        raise UsageError("--encoder-of is for a bundle: give --output DIR too")
    check_unoccupied(web, "--web", overwrite=overwrite)
    is_bundle = not Path(run).is_dir() or (Path(run) / MANIFEST).is_file()
    if is_bundle and (any(options.values()) or (int8 or output is not None) != (pictures is not None)):
        raise UsageError(
            f"{run}: not a folder of a training run; of a model, --web DIR can be written, and with --int8 --pictures "
            "DIR a copy with 8-bit graphs"
        )
    if is_bundle and pictures is None:
        assert web is not None  # there is no --output
        say_written(web, run, overwrite=overwrite, onnxruntime_web=onnxruntime_web)
        return
    from captioner.export.run_bundle import export_bundle, export_run

    with tempfile.TemporaryDirectory() as temporary:
        folder = output or Path(temporary) / "bundle"
        if is_bundle and pictures is not None:
            bundle = export_bundle(find_model(run), folder, pictures=pictures, overwrite=overwrite)
        else:
            bundle = export_run(Path(run), folder, int8=int8, pictures=pictures, overwrite=overwrite, **options)
        if output is not None:
            click.echo(f"{bundle.folder}: {bundle.manifest.name}, {bundle.size / 1e6:.1f} MB")
        if web is not None:
            say_written(web, bundle.folder, overwrite=overwrite, onnxruntime_web=onnxruntime_web)
