"""`captioner overlay`: drawings of where the model looked for each word."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from captioner.cli.options import (
    FILE,
    FOLDER,
    check_effect,
    choice,
    complete_list,
    complete_model,
    given_limits,
    given_options,
    limit_options,
    model_options,
    option_flag,
    overwrite_option,
    picture_arguments,
    search_options,
)
from captioner.overlay.overlay_folder import FORMATS
from captioner.overlay.painting import Style, StyleName
from captioner.progress import ProgressBar
from captioner.terminal import say

if TYPE_CHECKING:
    from captioner.caption import Caption, Failure
    from captioner.overlay.model_captions import PerModel
    from captioner.overlay.overlay_folder import OverlayFolder, Written
    from captioner.writers.run_summary import RunSummary


@click.command(name="overlay")
@picture_arguments()
@click.option(
    "--output", "-o", default="out", show_default=True, type=FOLDER, metavar="DIR", help="Folder to write to."
)
@click.option(
    "--format",
    "-f",
    "formats",
    multiple=True,
    default=("png", "html"),
    show_default="png,html",
    metavar="NAME[,NAME…]",
    shell_complete=complete_list(FORMATS),
    help="; ".join(f"{name}: {text}" for name, text in FORMATS.items()) + ".",
)
@click.option(
    "--style",
    "style_name",
    type=choice(*get_args(StyleName)),
    default=Style.name,
    show_default=True,
    help="spotlight: the photo, dimmed where the model did not look; heat: colors over a grey photo; contour: lines on "
    "the photo; blocks: a spotlight on the true cells of the grid.",
)
@click.option("--grid", is_flag=True, help="Draw the true cells of the grid in any style, without interpolation.")
@click.option("--per-word", is_flag=True, help="Draw each word on its own color scale, not all words on one.")
@click.option(
    "--opacity",
    type=click.FloatRange(0, 1),
    default=Style.opacity,
    show_default=True,
    metavar="X",
    help="Opacity of the map over the picture.",
)
@click.option(
    "--words",
    "shown_words",
    default="all",
    show_default=True,
    metavar="all|content|WORD[,WORD…]",
    help="Words with a panel on the sheet: all, content (without words such as 'of'), or those in a list.",
)
@click.option("--columns", type=click.IntRange(1, 50), metavar="N", help="Panels side by side on the sheet.")
@click.option("--no-title", is_flag=True, help="Leave the sentence out of the sheet.")
@click.option("--no-bars", is_flag=True, help="Leave probability and gate out of the sheet.")
@click.option("--no-path", is_flag=True, help="Leave the name of the file out of the sheet.")
@click.option("--full-path", is_flag=True, help="Show the file with its folders, not only its name.")
@click.option("--width", metavar="LENGTH", help="Width of the sheet in print, such as 84mm or 3.3in.")
@click.option(
    "--contact-sheet",
    type=FILE,
    metavar="FILE",
    help="Also write all photos on one picture, a .png or .jpg, each with the map of its most visual word.",
)
@click.option(
    "--evidence",
    is_flag=True,
    help="Also measure what each content word relied on, by blurring parts of the picture; html and npz show it.",
)
@click.option(
    "--curves", is_flag=True, help="With --evidence: also measure deletion and insertion curves, which takes longer."
)
@click.option("--text", metavar="SENTENCE", help="Draw where the model looks for this sentence, not for its own.")
@click.option(
    "--compare",
    multiple=True,
    metavar="NAME|DIR",
    shell_complete=complete_model,
    help="Name or folder of another model to draw beside --model; may be repeated.",
)
@overwrite_option
@click.option("--resume", is_flag=True, help="Draw only what is missing in --output, and bring its gallery up to date.")
@search_options()
@model_options
@limit_options
def command(
    paths: tuple[str, ...],
    recursive: bool,
    output: Path,
    formats: tuple[str, ...],
    style_name: StyleName,
    grid: bool,
    per_word: bool,
    opacity: float,
    shown_words: str,
    columns: int | None,
    no_title: bool,
    no_bars: bool,
    no_path: bool,
    full_path: bool,
    width: str | None,
    contact_sheet: Path | None,
    evidence: bool,
    curves: bool,
    text: str | None,
    compare: tuple[str, ...],
    overwrite: bool,
    resume: bool,
    model: str,
    backend: Any,
    device: str | None,
    threads: int | None,
    **search: Any,
) -> int:
    """Draw, for every word of a caption, where the model looked.

    PATH is a picture, a folder, a pattern such as 'photos/*.jpg', or - for standard input: a picture, or a list of
    pictures, one per line. Files are named after the pictures, and their names go to standard output. Several pictures
    also get a gallery, index.html. A picture that cannot be read is named on standard error; the others are drawn, and
    the exit code is 1. Search options that are not given take the model's own values.
    """
    from captioner.captioning import Captioner
    from captioner.files.existing import check_unoccupied
    from captioner.images import inputs
    from captioner.overlay.contact_sheet import check_contact_sheet
    from captioner.overlay.model_captions import examined, force_captions, model_labels, search_captions
    from captioner.overlay.overlay_folder import OverlayFolder, check_formats
    from captioner.overlay.sheet_layout import SheetOptions
    from captioner.writers.run_summary import RunSummary

    format_names = check_formats(formats)
    if not format_names:
        raise click.UsageError("--format names no format")
    if text is not None and not text.strip():
        raise click.UsageError("--text has no words")
    if resume and overwrite:
        raise click.UsageError("--resume continues the output and --overwrite replaces it; give one of them")
    if curves and not evidence:
        raise click.UsageError("--curves needs --evidence")
    if evidence and not {"html", "npz"} & set(format_names):
        raise click.UsageError("--evidence is shown by the formats html and npz; add one of them with --format")
    style = Style(style_name, grid=grid, per_word=per_word, opacity=opacity)
    limits = given_limits(search)
    sheet_options = SheetOptions(
        words=_word_choice(shown_words),
        columns=columns,
        title=not no_title,
        name=not no_path,
        full_path=full_path,
        bars=not no_bars,
        width=width,
    )
    if contact_sheet is not None:
        check_contact_sheet(contact_sheet)
        check_unoccupied(contact_sheet, "--contact-sheet", overwrite=overwrite or resume)
    options = given_options(search)
    if text is not None and (without_effect := set(options) - {"hard_attention", "seed"}):
        raise click.UsageError(
            f"--text gives the words, so no search takes place: leave out {option_flag(min(without_effect))}"
        )
    picture_inputs = inputs.find(paths, recursive=recursive, listed=sys.stdin)
    # Names from standard input are drawn while the list is still written, with two exceptions: several models read the
    # list twice, and --overwrite must not replace a picture that comes later in the list.
    read_all = picture_inputs.listed is None or bool(compare) or overwrite
    names: Iterable[str | inputs.PictureBytes] = list(picture_inputs) if read_all else picture_inputs
    models = [model, *compare]
    captioners = [Captioner.load(name, backend=backend, device=device, threads=threads) for name in models]
    check_effect(options, captioners)
    folder = OverlayFolder(
        output,
        format_names,
        style,
        overwrite=overwrite,
        resume=resume,
        models=model_labels(models) if compare else [""],
        sheet_options=sheet_options,
        contact_sheet=contact_sheet,
        with_gallery=not isinstance(names, list) or len(names) > 1 or any(Path(path).is_dir() for path in paths),
        inputs=[Path(name) for name in names if isinstance(name, str)] if isinstance(names, list) else (),
    )
    if text is not None:
        results = force_captions(captioners, names, text, options, limits=limits)
    else:
        with_page = "html" in format_names
        results = search_captions(captioners, names, options, limits=limits, with_alternatives=with_page)
    if {"html", "npz"} & set(format_names):
        results = examined(captioners, results, options, evidence=evidence, curves=curves)
    for problem in picture_inputs.problems:
        say(f"captioner: {problem.reason}")
    summary = RunSummary(picture_inputs.problems, picture_inputs.left_out, verb="drawn")
    total = len(names) if isinstance(names, list) else None
    said: set[str] = set()
    failures = len(picture_inputs.problems) + _write(folder, results, summary, total, said)
    if said and (missing := [word for word in _listed(sheet_options.words) if word not in said]):
        say(f"note: no caption of this run has the word{'s' * (len(missing) > 1)} {', '.join(missing)} (--words)")
    if (line := summary.line()) is not None:
        say(line)
    return 1 if failures else 0


def _word_choice(text: str) -> str | tuple[str, ...]:
    """The value of --words: all, content, or the words of a list."""
    words = tuple(word.strip().lower() for word in text.split(",") if word.strip())
    if not words:
        raise click.UsageError("--words names no word; give all, content or a list such as dog,frisbee")
    return words[0] if words in (("all",), ("content",)) else tuple(dict.fromkeys(words))


def _listed(words: str | tuple[str, ...]) -> tuple[str, ...]:
    """The words that --words names; none for all and content."""
    return () if isinstance(words, str) else words


def _write(
    folder: OverlayFolder, results: Iterable[PerModel], summary: RunSummary, total: int | None, said: set[str]
) -> int:
    """Draw and write the overlays, and report them. Adds the words of the captions to `said`.

    Returns the number of failures.
    """
    from captioner.caption import Caption, Failure
    from captioner.errors import CaptionerError

    failures = 0
    try:
        with ProgressBar("drawing", total=total) as progress:
            progress.show(0)
            for per_model in results:
                captions = [result for result in per_model if isinstance(result, Caption)]
                said.update(word.text for caption in captions for word in caption.words)
                reasons = [result.reason for result in per_model if isinstance(result, Failure)]
                written = None
                if not reasons:
                    try:
                        written = folder.add(captions)
                    except CaptionerError as error:
                        reasons = [str(error)]
                progress.clear()  # only now: drawing is the slow part
                if written is not None:
                    _report(written)
                    summary.captioned += 1
                if reasons:
                    failures += 1
                    summary.add_failure(_name(per_model[0]), reasons[0])
                    say(f"captioner: {'; '.join(dict.fromkeys(reasons))}")
                progress.advance()
    except KeyboardInterrupt:
        raise click.exceptions.Abort("stopped; the same command with --resume continues") from None
    finally:
        gallery = folder.finish()
        for path in folder.contact_sheets:
            click.echo(path)
        if gallery is not None and gallery.files:
            click.echo(gallery.files[0])
        elif gallery is not None:
            say(f"note: kept the existing {gallery.kept[0]}; --resume or --overwrite renews it")
    return failures


def _name(result: Caption | Failure) -> str:
    name = getattr(result, "name", None) or getattr(getattr(result, "picture", None), "name", "")
    return str(name)


def _report(written: Written) -> None:
    for path in written.files:
        click.echo(path)
    if written.renamed:
        say(f"note: {written.picture}: written as {written.stem}, because that name was taken")
    if written.kept:
        names = ", ".join(path.name for path in written.kept)
        them = "it" if len(written.kept) == 1 else "them"
        say(f"note: {written.picture}: kept the existing {names}; --overwrite replaces {them}")
