"""From an evaluation to the report's page: which captions are shown, and what the charts are of."""

from __future__ import annotations

import dataclasses

import numpy as np

from captioner.evaluation import charts
from captioner.evaluation.protocol import Evaluation, pictured
from captioner.evaluation.report import Example, Report, page
from captioner.evaluation.tables import heading, sections
from captioner.overlay.heat import likeliest
from captioner.text.tokenizer import tokenize

EXAMPLES = 8  # best, and as many worst
_RANKING = ("CIDEr", "METEOR", "ROUGE-L")  # the first of them that there is


def report_page(evaluation: Evaluation, examples: int = EXAMPLES) -> str:
    """The report as an HTML document."""
    ranking = next((name for name in _RANKING if name in evaluation.scores.metrics), None)
    if ranking is None:
        raise ValueError(f"a report needs one of {_RANKING}")
    values = evaluation.scores.metrics[ranking].per_image
    order = np.argsort(values, kind="stable")
    few = min(examples, len(order) // 2) or len(order)
    said = [len(tokenize(caption.text)) for caption in evaluation.captions]
    referred = [len(tokenize(text)) for item in evaluation.items for text in item.captions]
    failed = [f"{len(evaluation.failures):,} pictures could not be read and are in no figure"] * bool(
        evaluation.failures
    )
    return page(
        Report(
            title=f"{evaluation.model} on {evaluation.data}, {evaluation.split}",
            about=heading(evaluation),
            sections=tuple(sections(evaluation)),
            histograms=(
                charts.histogram(
                    [("captions", said), ("references", referred)], title="Length", axis="words", whole=True
                ),
                charts.histogram([("images", values.tolist())], title=f"{ranking} of each image", axis=ranking),
            ),
            best=tuple(_example(evaluation, int(i), float(values[i])) for i in order[::-1][:few]),
            worst=tuple(_example(evaluation, int(i), float(values[i])) for i in order[:few]),
            ranked_by=ranking,
            alarms=tuple(evaluation.alarms),
            notes=(*evaluation.notes, *evaluation.scores.warnings, *failed),
        )
    )


def _example(evaluation: Evaluation, position: int, value: float) -> Example:
    item = evaluation.items[position]
    caption = pictured(evaluation.captions[position], item)
    assert caption.picture is not None
    caption = dataclasses.replace(caption, picture=dataclasses.replace(caption.picture, name=item.path.name))
    if evaluation.attention == "hard":
        caption = likeliest(caption)
    return Example(caption, item.captions, value)
