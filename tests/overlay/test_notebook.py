import base64
import dataclasses
import io
import sys
import types
import webbrowser
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from PIL import Image
from selenium.webdriver.support.ui import WebDriverWait

from captioner.images.reading import Picture
from captioner.overlay import words
from captioner.overlay.notebook import MAP_SIDE, PICTURE_SIDE, caption_html, maps_html
from tests.overlay.browser import browser  # noqa: F401
from tests.overlay.handmade_captions import caption

# Tags and attributes that sanitisers such as that of JupyterLab keep in an untrusted notebook.
HARMLESS_TAGS = {"div", "p", "strong", "small", "br", "img"}
HARMLESS_ATTRIBUTES = {"style", "src", "width", "height", "alt"}
VOID_TAGS = {"br", "img"}


class Fragment(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[dict[str, str]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    @property
    def images(self) -> list[Image.Image]:
        prefix = "data:image/jpeg;base64,"
        sources = [attributes["src"] for attributes in self.attributes if "src" in attributes]
        assert all(source.startswith(prefix) for source in sources)
        return [Image.open(io.BytesIO(base64.b64decode(source.removeprefix(prefix)))) for source in sources]


def test_the_fragment_has_the_picture_the_sentence_and_one_map_per_word():
    one = caption("a dog runs", size=(600, 400))
    fragment = Fragment(maps_html(one))
    assert fragment.open == []
    picture, *maps = fragment.images
    assert max(picture.size) == PICTURE_SIDE and picture.size == (360, 240)
    assert [image.size for image in maps] == [(MAP_SIDE, 100)] * 3
    assert "A dog runs." in fragment.text and "dog.jpg" in fragment.text and "photos" not in fragment.text
    for word in one.words:
        assert f"{word.text} {word.probability:.2f}" in fragment.text


def test_the_maps_are_those_of_the_other_overlays():
    one = caption("a dog runs", size=(MAP_SIDE, 100))
    _, *maps = Fragment(maps_html(one)).images
    for small, full in zip(maps, words(one), strict=True):
        difference = np.asarray(small.convert("RGB")).astype(int) - np.asarray(full).astype(int)
        assert np.abs(difference).mean() < 4  # JPEG


def test_the_fragment_has_only_tags_and_attributes_that_notebooks_keep():
    fragment = Fragment(maps_html(caption("a dog runs")))
    assert set(fragment.tags) <= HARMLESS_TAGS
    assert {name for attributes in fragment.attributes for name in attributes} <= HARMLESS_ATTRIBUTES


def test_words_and_file_names_are_escaped():
    evil = "\"'><img/src=x/onerror=alert(1)><script>alert(2)</script>&"
    plain = Fragment(maps_html(caption("word", name="name")))
    fragment = Fragment(maps_html(caption(evil, name="name")))
    assert fragment.tags == plain.tags
    assert {name for attributes in fragment.attributes for name in attributes} <= HARMLESS_ATTRIBUTES
    assert fragment.text.lower().count(evil) == 2  # the sentence (with a capital) and the word


def test_a_caption_whose_picture_is_gone_shows_its_maps_alone(tmp_path):
    one = caption("a dog runs", grid=(4, 6))
    assert one.picture is not None
    deleted = Picture("gone.jpg", one.picture.frame, path=tmp_path / "gone.jpg")
    for picture in (None, deleted):
        fragment = Fragment(maps_html(dataclasses.replace(one, picture=picture)))
        assert len(fragment.images) == 3
        assert all(image.width / image.height == 6 / 4 for image in fragment.images)
        assert "A dog runs." in fragment.text


def test_a_caption_without_words_is_shown():
    fragment = Fragment(maps_html(caption("")))
    assert "(no words)" in fragment.text and len(fragment.images) == 1


def test_a_notebook_shows_the_viewer_in_a_frame_and_the_maps_below():
    fragment = Fragment(caption_html(caption("a dog runs")))
    assert fragment.tags[:3] == ["iframe", "details", "summary"]
    document = fragment.attributes[0]["srcdoc"]  # the parser has removed the escapes
    assert document.startswith("<!DOCTYPE html>") and "createViewer" in document
    # What a sanitiser leaves when it removes the frame has only tags that notebooks keep.
    assert set(fragment.tags) - {"iframe"} <= HARMLESS_TAGS | {"details", "summary"}


def test_a_caption_whose_picture_is_gone_shows_its_maps_without_a_frame():
    fragment = Fragment(caption_html(dataclasses.replace(caption("a dog"), picture=None)))
    assert "iframe" not in fragment.tags and len(fragment.images) == 2


def test_outside_a_notebook_show_opens_the_page_in_a_browser(monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    caption("a dog runs").show()
    path = Path(opened[0].removeprefix("file://"))
    assert "createViewer" in path.read_text(encoding="utf-8")
    path.unlink()


def test_in_a_notebook_show_displays_a_frame(monkeypatch):
    shown: list[str] = []
    display = types.SimpleNamespace(HTML=lambda text: text, display=shown.append)
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    caption("a dog runs").show()
    assert len(shown) == 1 and shown[0].startswith("<iframe srcdoc=")


def test_the_frame_of_a_notebook_grows_with_its_page(browser, tmp_path):  # noqa: F811
    (tmp_path / "notebook.html").write_text(caption_html(caption("a dog runs", size=(600, 400))), encoding="utf-8")
    browser.get((tmp_path / "notebook.html").as_uri())
    frame = browser.find_element("tag name", "iframe")
    WebDriverWait(browser, 10).until(lambda _: frame.get_attribute("height") != "720")
    browser.switch_to.frame(frame)
    WebDriverWait(browser, 10).until(lambda d: d.find_elements("css selector", "html.ready"))
    assert len(browser.find_elements("css selector", ".cv-sentence button")) == 3
    browser.switch_to.default_content()
