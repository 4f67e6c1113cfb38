"""`captioner evaluate`: caption a split and measure the captions, the likelihood and the attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from captioner.cli.options import (
    FILE,
    FILE_OR_FOLDER,
    allow_missing_option,
    batch_option,
    captions_format_option,
    check_effect,
    given_options,
    images_option,
    json_option,
    model_options,
    overwrite_option,
    reference_stats_option,
    search_options,
)
from captioner.progress import ProgressBar
from captioner.terminal import check_standard_output, say
from captioner.text.json_text import to_json


@click.command(name="evaluate")
@click.option(
    "--data", required=True, type=FILE_OR_FOLDER, metavar="PATH", help="File or folder of captions, in any format."
)
@click.option("--split", required=True, metavar="NAME", help="Split to caption, such as val or test.")
@images_option()
@captions_format_option
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="Use only N images, the first ones after the offset."
)
@click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="Leave out the first N images.")
@allow_missing_option
@search_options("beam", "length_power", "max_length", "repeat_penalty", "hard_attention")
@model_options
@batch_option
@click.option(
    "--features",
    type=FILE_OR_FOLDER,
    metavar="DIR",
    help="Read the annotations from this cache of `captioner features`, not from the pictures.",
)
@click.option(
    "--train-captions",
    type=FILE_OR_FOLDER,
    metavar="PATH",
    help="Training captions, to count how many captions are copies of them.",
)
@reference_stats_option
@click.option(
    "--boxes",
    type=FILE_OR_FOLDER,
    metavar="PATH",
    help="Boxes in COCO's format, a file (.json or .json.gz) or a folder, to measure whether attention falls on the "
    "named objects and whether captions name objects that are not there.",
)
@click.option(
    "--deletion",
    "deletions",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Blank the attended cells of N images, to measure how much the words depend on them.",
)
@click.option(
    "--occlusion",
    "occlusions",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Blur parts of N images, to measure what the words relied on and whether attention shows it.",
)
@click.option(
    "--randomised",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Shuffle the decoder's weights, to check on N images that the maps depend on them; needs --backend torch.",
)
@click.option(
    "--no-likelihood", is_flag=True, help="Leave out the perplexity of the references, which takes a third of the time."
)
@json_option
@click.option("--results", type=FILE, metavar="FILE", help="Write the captions to this file, in COCO's results format.")
@click.option(
    "--report", type=FILE, metavar="FILE", help="Write a page with scores, charts, and the best and worst captions."
)
@overwrite_option
def command(
    data: Path,
    split: str,
    images: Path | None,
    captions_format: str | None,
    limit: int | None,
    offset: int,
    allow_missing: bool,
    model: str,
    backend: Any,
    device: str | None,
    threads: int | None,
    batch: int,
    features: Path | None,
    train_captions: Path | None,
    reference_stats: Path | None,
    boxes: Path | None,
    deletions: int,
    occlusions: int,
    randomised: int,
    no_likelihood: bool,
    as_json: bool,
    results: Path | None,
    report: Path | None,
    overwrite: bool,
    **search: Any,
) -> int:
    """Caption every image of a split once, free-running, and measure the captions and the attention.

    Prints BLEU, METEOR, ROUGE-L, CIDEr-D and SPICE against the raw references with 95 % intervals, the diversity of
    the captions, the perplexity of the references, and statistics of the attention maps. --model may be a training run.
    """
    from captioner.evaluation import protocol, tables
    from captioner.evaluation.annotation_sources import FeatureCache, PictureFiles
    from captioner.evaluation.evaluated_model import load_model
    from captioner.evaluation.evaluation_set import read_evaluation_set
    from captioner.evaluation.randomisation import check_randomisable
    from captioner.files.atomic import write_atomically
    from captioner.files.existing import check_unoccupied
    from captioner.metrics.cider import DocumentFrequencies

    if report is None:
        check_standard_output()
    for path, setting in ((results, "--results"), (report, "--report")):
        check_unoccupied(path, setting, overwrite=overwrite)
        if path is not None and not path.parent.is_dir():
            raise click.UsageError(f"{path}: the folder does not exist; create it first")
    evaluation_set = read_evaluation_set(
        data,
        split,
        images=images,
        format=captions_format,
        limit=limit,
        offset=offset,
        boxes=boxes,
        train_captions=train_captions,
        allow_missing=allow_missing,
    )
    if features is not None and backend == "auto":
        backend = "torch"
    loaded = load_model(model, backend=backend, device=device, threads=threads)
    given = given_options(search)
    options = loaded.captioner.options(**given)
    check_effect(given, [loaded.captioner])
    if randomised:
        check_randomisable(loaded.captioner.backend)
    items = evaluation_set.captions.items
    engine = loaded.captioner.backend
    source = FeatureCache(engine, items, features) if features else PictureFiles(engine, items)

    blurring = ProgressBar("blurring", total=min(occlusions, len(items)))
    with ProgressBar("evaluating", total=len(items)) as progress, blurring:
        evaluation = protocol.evaluate(
            loaded,
            evaluation_set,
            source,
            options,
            likelihood=not no_likelihood,
            deletions=deletions,
            occlusions=occlusions,
            randomised=randomised,
            batch=batch,
            reference_stats=DocumentFrequencies.load(reference_stats) if reference_stats else None,
            progress=progress.show,
            occlusion_progress=blurring.show,
        )
    for failure in evaluation.failures:
        say(f"captioner: {failure.reason}")
    # Print before writing files: a full disk must not lose the figures.
    if not as_json:
        click.echo(tables.text(evaluation))
    else:
        click.echo(to_json(tables.record(evaluation), indent=1))
        for alarm in evaluation.alarms:
            say(f"captioner: ALARM: {alarm}")
    if results is not None:
        lines = ",\n".join(to_json(entry) for entry in tables.results(evaluation))
        write_atomically(results, f"[\n{lines}\n]\n")
    if report is not None:
        from captioner.evaluation.report import report_page

        write_atomically(report, report_page(evaluation))
    return 1 if evaluation.failures else 0
