"""`captioner evaluate`: caption a split and measure the captions, the likelihood and the attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from captioner.cli.options import given_options, model_options, search_options
from captioner.progress import ProgressBar

_FILE = click.Path(dir_okay=False, path_type=Path)
_PATH = click.Path(path_type=Path)


@click.command(name="evaluate")
@click.option("--data", required=True, type=_PATH, metavar="PATH", help="Captions: a file or a folder of any format.")
@click.option("--split", required=True, metavar="NAME", help="The split to caption: val, test, ...")
@click.option("--images", type=_PATH, metavar="DIR", help="The pictures.  [default: beside the captions]")
@click.option("--format", "form", metavar="NAME", help="Format of the captions.  [default: told by the content]")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N images only.")
@click.option("--allow-missing", is_flag=True, help="Leave out pictures that are listed but missing.")
@search_options("beam", "length_power", "max_length", "repeat_penalty", "hard_attention")
@model_options
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, metavar="N", help="Images at a time.")
@click.option(
    "--features", type=_PATH, metavar="DIR", help="A cache of `captioner features`, read in place of pictures."
)
@click.option("--train-captions", type=_PATH, metavar="PATH", help="To tell which captions are training captions.")
@click.option("--reference-stats", type=_FILE, metavar="FILE", help="Word frequencies of a larger corpus, for CIDEr.")
@click.option("--boxes", type=_PATH, metavar="PATH", help="COCO instances, a file or a folder: does it look there?")
@click.option(
    "--deletion", "deletions", type=click.IntRange(0), default=0, metavar="N", help="Blank places in N images."
)
@click.option("--no-likelihood", is_flag=True, help="Leave out the perplexity of the references, a third of the time.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as a JSON object.")
@click.option("--results", type=_FILE, metavar="FILE", help="Write the captions in COCO's results format.")
@click.option("--report", type=_FILE, metavar="FILE", help="Write a page with scores, charts, best and worst captions.")
def command(
    data: Path,
    split: str,
    images: Path | None,
    form: str | None,
    limit: int | None,
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
    no_likelihood: bool,
    as_json: bool,
    results: Path | None,
    report: Path | None,
    **search: Any,
) -> int:
    """Caption every image of a split once, free-running, and measure.

    Prints BLEU, METEOR, ROUGE-L, CIDEr-D and SPICE against the raw references, with 95 % intervals; how the
    captions vary; the perplexity of the references; and what attention does. --model may also be a training run.
    """
    from captioner.evaluation import protocol, tables
    from captioner.evaluation.annotation_sources import FeatureCache, PictureFiles
    from captioner.evaluation.evaluated_model import load_model
    from captioner.evaluation.evaluation_set import read_evaluation_set
    from captioner.files.atomic import write_atomically
    from captioner.metrics.cider import DocumentFrequencies

    for path in (results, report):
        if path is not None and not path.parent.is_dir():
            raise click.UsageError(f"{path}: its folder does not exist")
    gathered = read_evaluation_set(
        data,
        split,
        images=images,
        format=form,
        limit=limit,
        boxes=boxes,
        train_captions=train_captions,
        allow_missing=allow_missing,
    )
    if features is not None and backend == "auto":
        backend = "torch"
    loaded = load_model(model, backend=backend, device=device, threads=threads)
    options = loaded.captioner.options(**given_options(search))
    items = gathered.captions.items
    ready = loaded.captioner.backend
    source = FeatureCache(ready, items, features) if features else PictureFiles(ready, items)

    with ProgressBar("evaluating", total=len(items)) as progress:
        found = protocol.evaluate(
            loaded,
            gathered,
            source,
            options,
            likelihood=not no_likelihood,
            deletions=deletions,
            batch=batch,
            reference_stats=DocumentFrequencies.load(reference_stats) if reference_stats else None,
            progress=progress.show,
        )
    for failure in found.failures:
        click.echo(f"captioner: {failure.reason}", err=True)
    # First what can't fail: a full disk must not cost the figures.
    click.echo(json.dumps(tables.record(found), ensure_ascii=False, indent=1) if as_json else tables.text(found))
    if as_json:
        for alarm in found.alarms:
            click.echo(f"captioner: ALARM: {alarm}", err=True)
    if results is not None:
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in tables.results(found))
        write_atomically(results, f"[\n{lines}\n]\n")
    if report is not None:
        from captioner.evaluation.report import report_page

        write_atomically(report, report_page(found))
    return 1 if found.failures else 0
