import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from captioner.caption import Word
from captioner.overlay import page, page_of
from captioner.overlay.page import Links, link_to_next, whereabouts
from captioner.overlay.painting import Style
from captioner.overlay.view import UNIT
from tests.overlay.handmade_captions import caption, flat, one_cell


class Reader(HTMLParser):
    """The elements of a page, and the text of its scripts, styles and headings."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "title": [], "h1": []}
        self._open = ""
        self.feed(document)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, {name: value or "" for name, value in attributes}))
        self._open = tag
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open in self.inside:
            self.inside[self._open][-1] += data


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def test_the_page_fetches_nothing():
    reader = Reader(page(caption(alternatives=("a cat",))))
    for _, attributes in reader.elements:
        for name in ("src", "href", "srcset", "action", "data"):
            assert attributes.get(name, "data:").startswith("data:")
    code = "".join(reader.inside["script"] + reader.inside["style"])
    assert "http" not in code.replace("http://www.w3.org/2000/svg", "")  # the name of a vocabulary; nothing is loaded
    assert "url(" not in reader.inside["style"][0] and "@import" not in reader.inside["style"][0]


def test_the_policy_allows_only_the_script_and_style_of_the_page():
    reader = Reader(page(caption()))
    policy = next(a["content"] for _, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'" and rules["img-src"] == "data:"
    for kind, content in (("script-src", reader.inside["script"][1]), ("style-src", reader.inside["style"][0])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[kind] == f"'sha256-{digest}'"


def test_words_and_names_cannot_add_elements_or_scripts():
    one = caption("a " + EVIL.replace(" ", "_"), name=EVIL, alternatives=(EVIL,))
    harmless = Reader(page(caption("a b", name="c", alternatives=("d",))))
    reader = Reader(page_of([("", one)]))
    assert [tag for tag, _ in reader.elements if tag != "tr" and tag != "td" and tag != "th"] == [
        tag for tag, _ in harmless.elements if tag != "tr" and tag != "td" and tag != "th"
    ]
    assert not any(name.startswith("on") for _, attributes in reader.elements for name in attributes)
    assert reader.inside["h1"] == [one.text]
    assert "<" not in reader.inside["script"][0]  # browsers end a script in more cases than this parser
    two = Reader(page_of([(EVIL, one), (EVIL, one)]))
    assert len(two.inside["script"]) == 2


def test_the_data_of_the_page_has_the_maps_with_the_stated_precision():
    one = caption("a dog runs", hard=True, alternatives=("a cat",))
    data = json.loads(Reader(page(one)).inside["script"][0])
    (captions,) = data["tracks"]
    texts = [" ".join(word["word"] for word in shown["words"]) for shown in captions]
    assert texts == ["a dog runs", "a cat"]
    for word, entry in zip(one.words, captions[0]["words"], strict=True):
        np.testing.assert_allclose(np.array(entry["map"]) / UNIT, word.alpha.ravel(), atol=0.5 / UNIT)
        assert word.cell is not None and entry["cell"] == list(word.cell)
        assert entry["gate"] == pytest.approx(word.gate, abs=1e-5)
    assert [word["content"] for word in captions[0]["words"]] == [False, True, True]


def test_the_picture_has_a_maximum_size_and_a_description():
    reader = Reader(page(caption("a dog runs", size=(3000, 1500))))
    (image,) = [attributes for tag, attributes in reader.elements if tag == "img"]
    assert (image["width"], image["height"]) == ("1000", "500")
    assert image["alt"] == "a dog runs"


def test_the_viewer_starts_with_the_values_of_the_style():
    style = Style("heat", grid=True, opacity=0.4)
    data = json.loads(Reader(page(caption(), style)).inside["script"][0])
    assert data["style"] == {"style": "heat", "grid": True, "perWord": False, "opacity": 0.4}


def test_a_page_names_the_file_but_not_its_folder():
    for name in ("/mnt/someone/private/dog.jpg", "C:\\photos\\someone\\private\\dog.jpg"):
        document = page(caption(name=name))
        assert "dog.jpg" in document and "private" not in document and "someone" not in document


def test_a_page_links_to_its_neighbours():
    document = page_of([("", caption())], links=Links(gallery="index.html", previous="a b.html"))
    links = [a["href"] for tag, a in Reader(link_to_next(document, "c.html")).elements if tag == "a"]
    assert links == ["a%20b.html", "index.html", "c.html"]
    assert [tag for tag, _ in Reader(page(caption())).elements if tag == "a"] == []


def test_a_confidence_is_passed_on_where_there_is_one():
    unsure = dataclasses.replace(caption(), confidence=0.41)
    views = [json.loads(Reader(page(one)).inside["script"][0])["tracks"][0][0] for one in (unsure, caption())]
    assert views[0]["confidence"] == 0.41 and "confidence" not in views[1]


def test_a_table_lists_all_words_for_readers_who_see_no_maps():
    document = page(caption("a dog runs"))
    table = re.search(r"<tbody>(.*?)</tbody>", document, re.DOTALL)[1]
    assert re.findall(r'<th scope="row">(\w+)</th>', table) == ["a", "dog", "runs"]
    assert "upper left" in table


@pytest.mark.parametrize(
    "alpha, where",
    [
        (one_cell(0, 0, 8, 8), "upper left"),
        (one_cell(7, 7, 8, 8), "lower right"),
        (one_cell(4, 4, 9, 9), "centre"),
        (one_cell(4, 0, 9, 9), "middle left"),
        (flat(8, 8), "spread over the picture"),
    ],
)
def test_the_whereabouts_are_given_in_words(alpha, where):
    assert whereabouts(Word("w", 0.0, alpha)) == where


def test_a_caption_without_words_makes_a_page():
    assert "(no words)" in page(caption(""))
