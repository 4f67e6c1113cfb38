import base64
import dataclasses
import io
from html.parser import HTMLParser

import numpy as np
from PIL import Image

from captioner.images.reading import Picture
from captioner.overlay import words
from captioner.overlay.notebook import MAP_SIDE, PICTURE_SIDE, caption_html
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
    fragment = Fragment(caption_html(one))
    assert fragment.open == []
    picture, *maps = fragment.images
    assert max(picture.size) == PICTURE_SIDE and picture.size == (360, 240)
    assert [image.size for image in maps] == [(MAP_SIDE, 100)] * 3
    assert "A dog runs." in fragment.text and "photos/dog.jpg" in fragment.text
    for word in one.words:
        assert f"{word.text} {word.probability:.2f}" in fragment.text


def test_the_maps_are_those_of_the_other_overlays():
    one = caption("a dog runs", size=(MAP_SIDE, 100))
    _, *maps = Fragment(caption_html(one)).images
    for small, full in zip(maps, words(one), strict=True):
        difference = np.asarray(small.convert("RGB")).astype(int) - np.asarray(full).astype(int)
        assert np.abs(difference).mean() < 4  # JPEG


def test_the_fragment_has_only_tags_and_attributes_that_notebooks_keep():
    fragment = Fragment(caption_html(caption("a dog runs")))
    assert set(fragment.tags) <= HARMLESS_TAGS
    assert {name for attributes in fragment.attributes for name in attributes} <= HARMLESS_ATTRIBUTES


def test_words_and_file_names_are_escaped():
    evil = "\"'><img/src=x/onerror=alert(1)><script>alert(2)</script>&"
    plain = Fragment(caption_html(caption("word", name="name")))
    fragment = Fragment(caption_html(caption(evil, name=evil)))
    assert fragment.tags == plain.tags
    assert {name for attributes in fragment.attributes for name in attributes} <= HARMLESS_ATTRIBUTES
    assert fragment.text.lower().count(evil) == 3  # the sentence (with a capital), the word, the name


def test_a_caption_whose_picture_is_gone_shows_its_maps_alone(tmp_path):
    one = caption("a dog runs", grid=(4, 6))
    assert one.picture is not None
    deleted = Picture("gone.jpg", one.picture.frame, path=tmp_path / "gone.jpg")
    for picture in (None, deleted):
        fragment = Fragment(caption_html(dataclasses.replace(one, picture=picture)))
        assert len(fragment.images) == 3
        assert all(image.width / image.height == 6 / 4 for image in fragment.images)
        assert "A dog runs." in fragment.text


def test_a_caption_without_words_is_shown():
    fragment = Fragment(caption_html(caption("")))
    assert "(no words)" in fragment.text and len(fragment.images) == 1
