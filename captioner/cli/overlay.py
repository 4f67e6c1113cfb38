"""`captioner overlay`: for every word, where the model looked."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from captioner.cli.options import given_options, model_options, search_options
from captioner.progress import ProgressBar

if TYPE_CHECKING:
    from captioner.caption import Caption
    from captioner.captioning import Captioner, Failure
    from captioner.overlay.outputs import Folder, Outcome

ALTERNATIVES = 5  # sentences on a page, where the beam has as many


@click.command(name="overlay")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--output", "-o", required=True, type=click.Path(file_okay=False, path_type=Path), help="The folder.")
@click.option("--recursive", "-r", is_flag=True, help="Look in the folders inside a folder too.")
@click.option(
    "--format",
    "-f",
    "formats",
    multiple=True,
    default=("png", "html"),
    show_default="png,html",
    metavar="NAME[,NAME…]",
    help="png: a sheet, a panel a word; words: a PNG a word, full size; gif: an animation; html: a page to explore; "
    "npz: the numbers; svg, pdf: the sheet for papers.",
)
@click.option("--blocks", is_flag=True, help="A plain rectangle a cell, nothing interpolated.")
@click.option("--per-word", is_flag=True, help="Each word on a scale of its own, not one for all.")
@click.option(
    "--opacity", type=click.FloatRange(0, 1), default=0.85, show_default=True, help="Of the map over the picture."
)
@click.option("--text", metavar="SENTENCE", help="Not the model's words but these: where it looks when given them.")
@click.option(
    "--compare", multiple=True, metavar="NAME|DIR", help="A model to put beside --model, word by word; may be repeated."
)
@click.option("--overwrite", is_flag=True, help="Replace files that are there already; they are kept otherwise.")
@search_options()
@model_options
@click.option(
    "--pixel-limit",
    type=click.IntRange(1),
    default=200_000_000,
    show_default=True,
    metavar="N",
    help="Refuse larger pictures, which may be made to fill the memory.",
)
def command(
    paths: tuple[str, ...],
    output: Path,
    recursive: bool,
    formats: tuple[str, ...],
    blocks: bool,
    per_word: bool,
    opacity: float,
    text: str | None,
    compare: tuple[str, ...],
    overwrite: bool,
    model: str,
    backend: Any,
    device: str | None,
    threads: int | None,
    pixel_limit: int,
    **search: Any,
) -> int:
    """Show, for every word, where the model looked.

    PATH is a picture, a folder, a pattern such as 'photos/*.jpg', or - for a list of pictures on standard
    input, one a line. The files are named after the pictures; several pictures get an index.html as well. The
    names of the files written go to standard output. A picture that cannot be read is named on standard error;
    the rest are drawn, and the exit code is 1.
    """
    from captioner.captioning import Captioner
    from captioner.images import inputs
    from captioner.overlay.heat import Style
    from captioner.overlay.outputs import Folder, check_formats

    chosen = check_formats(formats)
    if not chosen:
        raise click.UsageError("--format names no format")
    if text is not None and not text.strip():
        raise click.UsageError("--text has no word in it")
    style = Style(blocks=blocks, per_word=per_word, opacity=opacity)
    options = given_options(search)
    found = inputs.find(paths, recursive=recursive, listed=sys.stdin)
    # A list that is still coming is read to its end first where that is needed: two models read it, or a picture
    # that comes later could be written over.
    known = found.coming is None or bool(compare) or overwrite
    names: Iterable[str] = list(found) if known else found
    models = [model, *compare]
    captioners = [Captioner.load(each, backend=backend, device=device, threads=threads) for each in models]
    folder = Folder(
        output,
        chosen,
        style,
        overwrite=overwrite,
        models=_labels(models) if compare else [""],
        with_gallery=not isinstance(names, list) or len(names) > 1 or any(Path(path).is_dir() for path in paths),
        inputs=map(Path, names) if isinstance(names, list) else (),
    )
    if text is not None:
        results = _forced(captioners, names, text, pixel_limit, options)
    else:
        results = _found(captioners, names, "html" in chosen, pixel_limit, options)
    return _write(folder, results, found.problems, len(names) if isinstance(names, list) else None)


def _labels(models: Sequence[str]) -> list[str]:
    """What each model is called on a comparison: its name, or its folder's; numbered where two are the same."""
    labels: list[str] = []
    for model in models:
        label = Path(model).name or model
        same = sum(other == label or other.startswith(f"{label} (") for other in labels)
        labels.append(f"{label} ({same + 1})" if same else label)
    return labels


def _found(
    captioners: Sequence[Captioner], names: Iterable[str], page: bool, pixel_limit: int, options: dict[str, Any]
) -> Iterator[tuple[Caption | Failure, ...]]:
    """The captions of each picture, one a model."""
    streams = []
    for captioner in captioners:
        own = dict(options)
        if page and not own.get("sample"):
            beam = own.get("beam", captioner.defaults.beam)
            own.setdefault("n_best", min(beam, ALTERNATIVES))
        streams.append(_marked(captioner, captioner.stream(names, pixel_limit=pixel_limit, **own)))
    return zip(*streams, strict=True)


def _forced(
    captioners: Sequence[Captioner], names: Iterable[str], text: str, pixel_limit: int, options: dict[str, Any]
) -> Iterator[tuple[Caption | Failure, ...]]:
    """As `_found`, for given words."""
    from captioner.captioning import Failure
    from captioner.errors import CaptionerError

    def each(captioner: Captioner) -> Iterator[Caption | Failure]:
        for name in names:
            try:
                yield captioner.force(name, text, pixel_limit=pixel_limit, **options)
            except CaptionerError as error:
                yield Failure(name, str(error))

    for captioner in captioners:
        captioner.options(**options)  # a wrong one is told at once, not once a picture
    return zip(*(_marked(captioner, each(captioner)) for captioner in captioners), strict=True)


def _marked(captioner: Captioner, results: Iterable[Caption | Failure]) -> Iterator[Caption | Failure]:
    """A hard model's captions show a place for each word, even if it used their expectation."""
    from captioner.captioning import Failure
    from captioner.overlay.heat import likeliest

    hard = captioner.manifest is not None and captioner.manifest.attention == "hard"
    for result in results:
        yield likeliest(result) if hard and not isinstance(result, Failure) else result


def _write(
    folder: Folder, results: Iterable[tuple[Caption | Failure, ...]], problems: Sequence[str], total: int | None
) -> int:
    """Draw and write; the exit code."""
    from captioner.captioning import Failure
    from captioner.errors import CaptionerError

    for problem in problems:
        click.echo(f"captioner: {problem}", err=True)
    failed = len(problems)
    progress = ProgressBar("drawing", total=total)
    try:
        for result in results:
            captions = [each for each in result if not isinstance(each, Failure)]
            reasons = dict.fromkeys(each.reason for each in result if isinstance(each, Failure))
            progress.clear()
            if not reasons:
                try:
                    picture = captions[0].picture
                    assert picture is not None
                    named = list(zip(folder.models, captions, strict=True))
                    _tell(folder.add(named, folder.claim(picture.name)), picture.name)
                except CaptionerError as error:
                    reasons[str(error)] = None
            if reasons:
                failed += 1
                click.echo(f"captioner: {'; '.join(reasons)}", err=True)
            progress.advance()
    finally:
        progress.clear()
        if (index := folder.finish()) is not None:
            click.echo(index)
    return 1 if failed else 0


def _tell(outcome: Outcome, name: str) -> None:
    for path in outcome.written:
        click.echo(path)
    if outcome.renamed:
        click.echo(f"note: {name}: written as {outcome.stem}, because that name was taken", err=True)
    if outcome.kept:
        kept = ", ".join(path.name for path in outcome.kept)
        click.echo(f"note: {name}: kept {kept}, there already; --overwrite replaces", err=True)
