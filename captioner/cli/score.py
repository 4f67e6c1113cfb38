"""`captioner score`: score the results file of any system against references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from captioner.cli.options import EXISTING_FILE, FILE, json_option, overwrite_option, reference_stats_option
from captioner.terminal import check_standard_output, say
from captioner.text.json_text import to_json

if TYPE_CHECKING:
    from captioner.data.formats.coco_results import Pairing
    from captioner.metrics.text_scores import Scores


@click.command("score")
@click.option("--results", type=EXISTING_FILE, metavar="FILE", help="Captions to score, in COCO's results format.")
@click.option(
    "--references",
    type=EXISTING_FILE,
    required=True,
    metavar="FILE",
    help="References to score against, in COCO's captions format.",
)
@click.option(
    "--compare", type=EXISTING_FILE, metavar="FILE", help="Results of another system, to measure the difference."
)
@click.argument("other", required=False, type=EXISTING_FILE)
@click.option(
    "--metrics", metavar="NAME[,NAME…]", show_default="all", help="Metrics to compute, for example BLEU,CIDEr."
)
@reference_stats_option
@click.option(
    "--write-reference-stats",
    type=FILE,
    metavar="FILE",
    help="Write the word frequencies of --references to this file (.json or .json.gz), for --reference-stats.",
)
@overwrite_option
@click.option("--subset", is_flag=True, help="Accept references without results.")
@click.option(
    "--samples",
    default=1000,
    show_default=True,
    type=click.IntRange(10),
    metavar="N",
    help="Samples of the bootstrap over images.",
)
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), metavar="N", help="Seed for the bootstrap."
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    results: Path | None,
    references: Path,
    compare: Path | None,
    other: Path | None,
    metrics: str | None,
    reference_stats: Path | None,
    write_reference_stats: Path | None,
    overwrite: bool,
    subset: bool,
    samples: int,
    seed: int,
    as_json: bool,
) -> int:
    """Score a results file against references, with 95 % intervals over the images.

    \b
    captioner score --results R.json --references captions.json
    captioner score --references captions.json --compare A.json B.json

    With --compare, both systems are scored on the same bootstrap samples. Images that only one of the files has are
    counted and left out, and the exit code is 1.
    """
    if other is not None:
        if compare is None or results is not None:
            raise click.UsageError(f"Got an unexpected argument ({other}).")
        results, compare = compare, other
    if results is None and compare is not None:
        raise click.UsageError(f"--compare takes two files: --compare {compare} OTHER")
    if results is None and write_reference_stats is None:
        raise click.UsageError("Missing option '--results'.")

    from captioner.data.formats.coco_results import mismatches, pair_systems, read_references, read_results
    from captioner.files.existing import check_unoccupied
    from captioner.metrics.cider import DocumentFrequencies
    from captioner.metrics.score_report import as_text, record
    from captioner.metrics.text_scores import METRICS
    from captioner.text.tokenizer import tokenize

    if results is not None:
        check_standard_output()
    check_unoccupied(write_reference_stats, "--write-reference-stats", overwrite=overwrite)
    captions = read_references(references)
    if write_reference_stats is not None:
        statistics = DocumentFrequencies.of([tokenize(text) for text in group] for group in captions.values())
        statistics.save(write_reference_stats)
        say(f"{write_reference_stats}: statistics of {statistics.images:,} images")
        if results is None:
            return 0
    assert results is not None
    wanted = METRICS if metrics is None else tuple(name.strip() for name in metrics.split(","))
    frequencies = None if reference_stats is None else DocumentFrequencies.load(reference_stats)
    files = [results] if compare is None else [results, compare]
    pairings = pair_systems([(file, read_results(file)) for file in files], captions, references)
    failed = False
    notes: list[str] = []
    for file, pairing in pairings:
        notes += [f"{file}: {sentence}; not scored" for sentence in mismatches(pairing)]
        failed |= bool(pairing.without_references) or bool(pairing.without_results and not subset)

    scores = [_scores(pairing, wanted, frequencies, as_json) for _, pairing in pairings]
    notes += scores[0].warnings
    report = record(pairings, scores, notes, samples=samples, seed=seed)
    for note in notes:
        say(f"captioner: {note}")
    click.echo(to_json(report, indent=2) if as_json else as_text(report))
    ctx.exit(1 if failed else 0)


def _scores(pairing: Pairing, metrics: tuple[str, ...], frequencies: Any, quiet: bool) -> Scores:
    from captioner.metrics.meteor.resources import first_use
    from captioner.metrics.text_scores import score

    notice = first_use() if "METEOR" in metrics and not quiet else None
    if notice:
        say(notice)
    return score(pairing.results, pairing.references, metrics=metrics, reference_stats=frequencies)
