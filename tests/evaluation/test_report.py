"""The report page is complete, self-contained and safe, and its charts are correct."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import pytest
from PIL import Image

from captioner.evaluation import charts
from captioner.evaluation.report import Example, Report, render
from captioner.evaluation.tables import Row, Section
from tests.overlay.browser import CHROMIUM, DRIVER, browser, complaints, contrasts, requests, scheme
from tests.overlay.handmade_captions import caption

__all__ = ["browser"]


def report(**changes: object) -> Report:
    sections = (
        Section(
            "Scores",
            (
                Row("BLEU-4", "31.2", "30.1 to 32.3", bar=(31.2, 30.1, 32.3)),
                Row("CIDEr", "104.0", "99.0 to 109.0", bar=(104.0, 99.0, 109.0)),
                Row("SPICE", "", remark="not available: needs Java"),
            ),
            "times 100",
        ),
        Section("Attention", (Row("pointing game", "61.0%", "58.0% to 64.0%", "even map 20.0%"),)),
    )
    values: dict[str, object] = {
        "title": "default on coco, val",
        "about": "5 images, beam 3",
        "sections": sections,
        "histograms": (
            charts.histogram(
                [("captions", [8, 9, 9, 10]), ("references", [7, 9, 12])], title="Length", axis="words", whole=True
            ),
            charts.histogram([("images", [0.5, 12.0, 80.0, 130.0])], title="CIDEr of each image", axis="CIDEr"),
        ),
        "best": (Example(caption("a dog runs"), ("a dog is running", "the dog"), 130.0),),
        "worst": (Example(caption("a cat"), ("a boat at sea",), 0.5),),
        "ranked_by": "CIDEr",
    }
    return Report(**(values | changes))  # type: ignore[arg-type]


def test_the_page_has_all_content_of_the_report() -> None:
    text = render(report(alarms=("attention stands still",), notes=("the first 5 of 10 images",)))
    for part in ("31.2", "30.1 to 32.3", "104.0", "not available: needs Java", "even map 20.0%"):
        assert part in text
    for part in (
        "attention stands still",
        "the first 5 of 10 images",
        "a dog is running",
        "CIDEr 130.0",
        "a boat at sea",
    ):
        assert part in text
    assert text.index("Worst captions") < text.index("a boat at sea") < text.index("Best captions")


def test_the_page_loads_nothing_from_outside() -> None:
    text = render(report())
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)
    assert "http:" not in text and "https:" not in text and "<script" not in text
    assert "default-src 'none'" in text


def test_text_is_escaped() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    text = render(
        report(
            title=evil,
            about=evil,
            notes=(evil,),
            alarms=(evil,),
            ranked_by=evil,
            sections=(Section(evil, (Row(evil, evil, evil, evil, (1, 1, 1)), Row(evil, "", remark=evil)), evil),),
            histograms=(charts.histogram([(evil, [1.0]), (evil, [2.0])], title=evil, axis=evil),),
            best=(Example(caption("a dog", name=evil), (evil,), 1.0),),
        )
    )
    assert "<script" not in text and "<img src=x" not in text


def test_examples_are_drawn_as_overlays() -> None:
    pictures = re.findall(r"data:image/jpeg;base64,([^\"]+)", render(report()))
    assert len(pictures) == 2
    with Image.open(io.BytesIO(base64.b64decode(pictures[0]))) as sheet:
        assert sheet.width > 400  # the sheet of the two words and the picture, not the picture of 60 x 40


def test_a_deleted_picture_is_reported_on_the_page(tmp_path: Path) -> None:
    from dataclasses import replace

    from captioner.images.frame import Frame
    from captioner.images.reading import Picture

    gone = replace(caption("a dog"), picture=Picture("gone.jpg", Frame(4, 4), tmp_path / "gone.jpg"))
    text = render(report(best=(Example(gone, ("a dog",), 1.0),)))
    assert "no such file" in text and "a boat at sea" in text


def test_the_height_of_a_bar_is_its_share() -> None:
    svg = charts.histogram([("captions", [3, 4, 4, 4])], title="Length", axis="words", whole=True)
    heights = [float(h) for h in re.findall(r'class="bar"[^>]* height="([\d.]+)"', svg)]
    assert len(heights) == 2
    assert heights[1] == pytest.approx(3 * heights[0], rel=0.01)
    assert "<title>3: 25.0%</title>" in svg and "<title>4: 75.0%</title>" in svg


def test_two_series_have_the_same_bins_and_outliers_go_into_the_last() -> None:
    values = [*range(1000), 1e9]
    svg = charts.histogram([("images", [float(v) for v in values])], title="CIDEr", axis="CIDEr")
    shares = [float(s) for s in re.findall(r": ([\d.]+)%</title>", svg)]
    assert sum(shares) == pytest.approx(100, abs=2)  # nothing is lost, the highest is in the last bin
    assert len(shares) > 10
    assert "the last bin has all higher values" in svg
    lengths = charts.histogram([("captions", [9] * 500 + [60])], title="Length", axis="words", whole=True)
    assert "the last bin has all higher values" in lengths
    assert "all higher values" not in charts.histogram(
        [("captions", [8, 9, 9])], title="Length", axis="words", whole=True
    )


@pytest.mark.parametrize("values", [[], [5.0], [5.0, 5.0]])
def test_histograms_of_no_value_and_of_one_value_are_drawn(values: list[float]) -> None:
    for whole in (True, False):
        svg = charts.histogram([("images", values)], title="Length", axis="words", whole=whole)
        assert "Length" in svg and "nan" not in svg


@pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="no browser found; on Debian: apt-get install chromium-driver")
def test_in_a_browser_the_page_has_no_errors_enough_contrast_and_fits_the_window(browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(report(alarms=("attention stands still",))), encoding="utf-8")
    for name, width in (("light", 1200), ("dark", 500)):
        scheme(browser, name)
        browser.set_window_size(width, 1400)
        browser.get(file.as_uri())
        assert complaints(browser) == []
        assert requests(browser) == [file.as_uri()]
        assert min(contrasts(browser).values()) >= 4.5
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        loaded = browser.execute_script(
            "for (const i of document.images) { i.loading = 'eager'; }"
            "return Promise.all([...document.images].map(i => i.decode())).then(() => document.images.length)"
        )
        assert loaded == 2
