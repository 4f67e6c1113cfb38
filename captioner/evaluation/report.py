"""The report: one self-contained page with scores, histograms, and the best and worst captions with their maps."""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib import resources

import numpy as np

from captioner import overlay
from captioner.caption import Caption
from captioner.errors import CaptionerError
from captioner.evaluation import charts
from captioner.evaluation.protocol import Evaluation, with_picture
from captioner.evaluation.tables import Row, Section, heading, sections
from captioner.overlay.embedding import html_document
from captioner.overlay.model_captions import with_likeliest_cells
from captioner.text.tokenizer import tokenize

QUALITY = 84  # JPEG quality of the sheets
EXAMPLES = 8  # number of best captions, and of worst captions
_RANKING = ("CIDEr", "METEOR", "ROUGE-L")  # the first available one ranks the captions


@dataclass(frozen=True)
class Example:
    """A caption with its picture, its references and its score."""

    caption: Caption
    references: tuple[str, ...]
    score: float


@dataclass(frozen=True)
class Report:
    """The content of the page."""

    title: str
    about: str
    sections: tuple[Section, ...]
    histograms: tuple[str, ...]  # SVG from `captioner.evaluation.charts`
    best: tuple[Example, ...]
    worst: tuple[Example, ...]
    ranked_by: str  # the score that ranks the captions
    alarms: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def report_page(evaluation: Evaluation, examples: int = EXAMPLES) -> str:
    """The report on an evaluation as an HTML document."""
    ranking = next((name for name in _RANKING if name in evaluation.scores.metrics), None)
    if ranking is None:
        raise ValueError(f"a report needs one of {_RANKING}")
    values = evaluation.scores.metrics[ranking].per_image
    order = np.argsort(values, kind="stable")
    shown = min(examples, len(order) // 2) or len(order)
    caption_lengths = [len(tokenize(caption.text)) for caption in evaluation.captions]
    reference_lengths = [len(tokenize(text)) for item in evaluation.items for text in item.captions]
    failed = [f"{len(evaluation.failures):,} pictures could not be read and are not in any figure"] * bool(
        evaluation.failures
    )
    return render(
        Report(
            title=f"{evaluation.model} on {evaluation.data}, {evaluation.split}",
            about=heading(evaluation),
            sections=tuple(sections(evaluation)),
            histograms=(
                charts.histogram(
                    [("captions", caption_lengths), ("references", reference_lengths)],
                    title="Length",
                    axis="words",
                    whole=True,
                ),
                charts.histogram([("images", values.tolist())], title=f"{ranking} per image", axis=ranking),
            ),
            best=tuple(_example_of(evaluation, int(i), float(values[i])) for i in order[::-1][:shown]),
            worst=tuple(_example_of(evaluation, int(i), float(values[i])) for i in order[:shown]),
            ranked_by=ranking,
            alarms=tuple(evaluation.alarms),
            notes=(*evaluation.notes, *evaluation.scores.warnings, *failed),
        )
    )


def _example_of(evaluation: Evaluation, position: int, value: float) -> Example:
    item = evaluation.items[position]
    caption = with_picture(evaluation.captions[position], item)
    assert caption.picture is not None
    caption = dataclasses.replace(caption, picture=dataclasses.replace(caption.picture, name=item.path.name))
    if evaluation.attention == "hard":
        caption = with_likeliest_cells(caption)
    return Example(caption, item.captions, value)


def render(report: Report) -> str:
    """The HTML document."""
    warnings = [f'<p class="alarm"><strong>Alarm:</strong> {escape(alarm)}</p>' for alarm in report.alarms]
    warnings += [f'<p class="note">{escape(note)}</p>' for note in report.notes]
    body = f"""<main>
<h1>{escape(report.title)}</h1>
<p class="about">{escape(report.about)}</p>
{"".join(warnings)}
<div class="cards">
{"".join(_section(section) for section in report.sections[:1])}
{"".join(f'<div class="card">{chart}</div>' for chart in report.histograms)}
{"".join(_section(section) for section in report.sections[1:])}
</div>
{_examples("Worst captions", report.worst, report.ranked_by)}
{_examples("Best captions", report.best, report.ranked_by)}
<footer>
<p>Every image was captioned once, free-running, and scored against its raw references. Intervals are 95 % intervals
by bootstrap over images. Figures that were not measured are listed.</p>
</footer>
</main>"""
    return html_document(report.title, body, style_sheet=_part("report.css"))


def _section(section: Section) -> str:
    has_bars = any(row.bar for row in section.rows)
    rows = "".join(_row(row, has_bars) for row in section.rows)
    note = f'<p class="faint">{escape(section.note)}</p>' if section.note else ""
    return (
        f'<section class="card{" with-bars" if has_bars else ""}"><h3>{escape(section.title)}</h3>{note}'
        f'<div class="scroll"><table><tbody>{rows}</tbody></table></div></section>\n'
    )


def _row(row: Row, has_bars: bool) -> str:
    name = f'<th scope="row">{escape(row.name)}</th>'
    if not row.value:
        return f'<tr>{name}<td class="remark" colspan="{4 if has_bars else 3}">{escape(row.remark)}</td></tr>'
    cells = f'<td class="number">{escape(row.value)}</td><td class="interval">{escape(row.interval)}</td>'
    remark = row.remark
    if has_bars:
        top = 100.0 if row.bar is None else charts.end_of_scale(row.bar[2])
        cells += f'<td class="chart">{charts.whisker(*row.bar, top) if row.bar else ""}</td>'
        remark = remark or f"of {top:g}"
    return f'<tr>{name}{cells}<td class="remark">{escape(remark)}</td></tr>'


def _examples(title: str, examples: Sequence[Example], ranked_by: str) -> str:
    if not examples:
        return ""
    cards = "\n".join(_example(example, ranked_by) for example in examples)
    return f'<h2>{escape(title)}</h2><p class="faint">by {escape(ranked_by)}</p><div class="examples">{cards}</div>'


def _example(example: Example, ranked_by: str) -> str:
    caption = example.caption
    name = caption.picture.name if caption.picture else ""
    references = "".join(f"<li>{escape(text)}</li>" for text in example.references)
    return (
        f'<article class="example"><p class="caption">{escape(caption.text or "(no words)")}</p>'
        f'<p class="score">{escape(ranked_by)} {example.score:.1f} · {escape(name)}</p>'
        f"<ul>{references}</ul>{_drawn(caption)}</article>"
    )


def _drawn(caption: Caption) -> str:
    try:
        image = overlay.sheet(caption)
    except CaptionerError as error:  # the picture may have been deleted meanwhile; the rest of the page is still useful
        return f'<p class="faint">{escape(str(error))}</p>'
    data = io.BytesIO()
    image.convert("RGB").save(data, "JPEG", quality=QUALITY, optimize=True)
    encoded = base64.b64encode(data.getvalue()).decode("ascii")
    return (
        f'<img src="data:image/jpeg;base64,{encoded}" width="{image.width}" height="{image.height}" '
        f'loading="lazy" alt="attention maps for each word of: {escape(caption.text)}">'
    )


@lru_cache(maxsize=2)
def _part(name: str) -> str:
    return resources.files("captioner.evaluation").joinpath(name).read_text(encoding="utf-8").strip()
