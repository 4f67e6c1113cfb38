"""`captioner export`: a bundle from a training run."""

from __future__ import annotations

from pathlib import Path

import click

from captioner.bundle.layout import MANIFEST
from captioner.cli.options import EXISTING_FILE, EXISTING_FOLDER, FOLDER, overwrite_option


@click.command(name="export")
@click.argument("run", type=EXISTING_FOLDER)
@click.option(
    "--output",
    "-o",
    required=True,
    type=FOLDER,
    metavar="DIR",
    help="Folder of the bundle.",
)
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
    run: Path,
    output: Path,
    overwrite: bool,
    last: bool,
    name: str | None,
    training_data: str,
    licence: str | None,
    card: Path | None,
    evaluation: Path | None,
    int8: bool,
    pictures: Path | None,
) -> None:
    """Turn the best weights of a training RUN into a bundle that runs without torch.

    Before the bundle is written, its captions and attention maps are compared with those of the torch model. A
    difference is an error. RUN may also be a bundle: with --int8 and --pictures, a copy with 8-bit graphs is written.
    """
    from captioner.export.run_bundle import export_bundle, export_run

    if pictures is not None and not int8:
        raise click.UsageError("--pictures is for 8-bit graphs: give --int8 too")
    if (run / MANIFEST).is_file():
        if pictures is None:
            raise click.UsageError(f"{run} is a bundle, which gets 8-bit graphs with --int8 --pictures DIR")
        if last or name or training_data or licence or card or evaluation:
            raise click.UsageError(f"{run} is a bundle: only its graphs are written anew, so give no other option")
        bundle = export_bundle(run, output, pictures=pictures, overwrite=overwrite)
    else:
        bundle = export_run(
            run,
            output,
            name=name,
            training_data=training_data,
            licence=licence,
            card=card,
            evaluation=evaluation,
            int8=int8,
            pictures=pictures,
            last=last,
            overwrite=overwrite,
        )
    click.echo(f"{bundle.folder}: {bundle.manifest.name}, {bundle.size / 1e6:.1f} MB")
