"""The types of the npm package name what the scripts and Python have."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from browser_session import run, static_server
from captioner.caption import Caption, Curves, Evidence, Word
from captioner.options import SearchOptions
from captioner.overlay import view_of
from captioner.overlay.painting import StyleName
from tests.web.conftest import BLANK

CAPTIONER = Path(__file__).parents[2] / "captioner"
WEB, OVERLAY = CAPTIONER / "web", CAPTIONER / "overlay"
VIEW = """const { createViewer } = await import("./viewer.js"), { captionViews } = await import("./caption_view.js");
const word = { text: "cat", probability: 0.5, logProbability: -1, alpha: Float32Array.of(0.5, 0.5), gate: 1, cell: null,
  content: true, alternatives: [["cat", 0.5], ["dog", 0.25]] };
const caption = { text: "cat", score: -1, confidence: 0.5, words: [word], alternatives: [] };
const picture = document.createElement("canvas"), root = document.createElement("div");
document.body.append(root);
const captions = captionViews(caption, { rows: 1, cols: 2, attention: "hard" });
const viewer = createViewer(root, { picture, captions });
await viewer.ready;
return [captions, Object.keys(viewer)];"""


def interface(file: Path, name: str) -> dict[str, bool]:
    """The members of an interface or class, and whether each may be left out. Members of members don't count."""
    body = re.split(rf"(?:interface|class) {name}\b[^{{]*{{\n", file.read_text(encoding="utf-8"))[1].split("\n}")[0]
    found = re.findall(r"^  (?:readonly )?(\w+)(\?)?[:(]", body, re.MULTILINE)
    return {member: bool(optional) for member, optional in found}


def required(members: dict[str, bool]) -> set[str]:
    return {member for member, optional in members.items() if not optional}


def test_the_search_options_are_those_of_python_that_a_browser_has():
    script = (WEB / "search_options.js").read_text(encoding="utf-8")
    left_out = set(re.findall(r'"(\w+)"', script.split("NOT_HERE = [")[1].split("]")[0]))
    python = {re.sub("_(.)", lambda match: match[1].upper(), option.name) for option in fields(SearchOptions)}
    assert set(interface(WEB / "captioner.d.ts", "SearchOptions")) == python - left_out and left_out < python


def test_captions_of_a_viewer_are_what_python_makes_for_it():
    alpha, shares = np.full((1, 2), 0.5, np.float32), np.zeros(2)
    evidence = Evidence(alpha, -1.0, -2.0, 0.5, Curves(shares, *[shares.astype(np.float32)] * 4))
    full = Word("cat", -1.0, alpha, 0.5, (0, 1), (("cat", 0.5),), evidence)
    views: list[tuple[str, dict[str, Any]]] = []
    for words, confidence in (((full,), 0.5), ((Word("cat", -1.0, alpha),), None)):
        (caption,) = view_of(Caption(words, None, -1.0, confidence=confidence))
        views += [("CaptionView", caption), *(("WordView", word) for word in caption["words"])]
    views.append(("EvidenceView", views[1][1]["evidence"]))
    viewer = OVERLAY / "viewer.d.ts"
    for name, view in views:
        members = interface(viewer, name)
        assert required(members) <= set(view) <= set(members)
    for name, view in (views[0], views[1], views[4]):  # those with everything
        assert set(view) == set(interface(viewer, name))
    curves = viewer.read_text(encoding="utf-8").split("curves?: {")[1].split("}")[0]
    assert re.findall(r"(\w+):", curves) == [curve.name for curve in fields(Curves)]


def test_the_options_of_a_viewer_are_those_that_it_reads():
    script, types = (OVERLAY / "viewer.js").read_text(encoding="utf-8"), OVERLAY / "viewer.d.ts"
    style = interface(types, "ViewerStyle")
    assert not required(style)
    read = set(re.findall(r"\boptions\.(\w+)", script)) | set(style)
    assert read == {*interface(types, "ViewerOptions"), *style}
    (copied,) = re.findall(r"Object\.fromEntries\((\[.*?\])\.filter", script)
    assert {*json.loads(copied), "top"} == set(style)
    styles = re.findall(r'"(\w+)"', types.read_text(encoding="utf-8").split("style?: ")[1].split(";")[0])
    assert styles == list(StyleName.__args__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["captioner", "viewer", "caption_view"])
def test_every_export_of_a_module_has_a_type_and_every_module_of_the_docs_has_its_file(site: Path, name: str):
    exported = re.findall(r"^export \{ (.*) \};", (site / f"{name}.js").read_text(encoding="utf-8"), re.MULTILINE)
    types = (site / f"{name}.d.ts").read_text(encoding="utf-8")
    typed = re.findall(r"^export (?:function|class) (\w+)", types, re.MULTILINE)
    assert sorted(typed) == sorted(exported[0].split(", "))
    assert set(re.findall(r'from "\./(\w+)\.js"', types)) <= {path.name[:-5] for path in site.glob("*.d.ts")}
    docs = (CAPTIONER.parent / "docs" / "web.md").read_text(encoding="utf-8")
    assert f"/{name}.js" in docs and f"`{name}.d.ts`" in docs
    assert (
        f"{name}.d.ts" not in json.loads((site / "release.js").read_text().partition(" = ")[2].rstrip(";\n"))["files"]
    )


def test_a_viewer_has_the_members_of_its_type(browser: WebDriver, site: Path):
    with static_server(site, pages=BLANK) as address:
        browser.get(address + "blank.html")
        captions, members = run(browser, VIEW)
        browser.get("about:blank")
    types = OVERLAY / "viewer.d.ts"
    assert set(members) == set(interface(types, "Viewer"))
    (caption,) = captions
    for name, view in (("CaptionView", caption), ("WordView", caption["words"][0])):
        known = interface(types, name)
        assert required(known) <= set(view) <= set(known)
    assert caption["words"][0]["alternatives"] == [["cat", 0.5], ["dog", 0.25]]
