"""`captioner export`: a training run becomes a bundle."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="export")
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the bundle; an older bundle there is replaced.",
)
@click.option(
    "--last", is_flag=True, help="The last checkpoint's weights (averaged, if the run averages), not the best's."
)
@click.option("--name", help="The model's name; by default the run's.")
@click.option(
    "--training-data",
    default="",
    metavar="TEXT",
    help="What it was trained on, in words; by default the caption files.",
)
@click.option("--licence", default="Apache-2.0", show_default=True, help="Of the weights.")
@click.option(
    "--card",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A model card to put in; by default a plain one is written.",
)
@click.option(
    "--evaluation",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `captioner evaluate --json` printed of this run: its scores, in place of validation's.",
)
@click.option(
    "--int8",
    is_flag=True,
    help="Add graphs in 8 bits, for --backend int8: quicker, larger on disk. Needs some of the training pictures.",
)
def command(
    run: Path,
    output: Path,
    last: bool,
    name: str | None,
    training_data: str,
    licence: str,
    card: Path | None,
    evaluation: Path | None,
    int8: bool,
) -> None:
    """Turn the best weights of a training RUN into a bundle that runs anywhere.

    Before the bundle is put in its place, its captions and attention maps are compared with those of the
    torch model; a difference is an error.
    """
    from captioner.export.run_bundle import export_run, int8_loss

    made = export_run(
        run,
        output,
        name=name,
        training_data=training_data,
        licence=licence,
        card=card,
        evaluation=evaluation,
        int8=int8,
        last=last,
    )
    click.echo(f"{made.folder}: {made.manifest.name}, {made.size / 1e6:.1f} MB")
    if int8:
        click.echo(f"8-bit graphs: a word's log-probability differs by up to {int8_loss(made):.2f}")
