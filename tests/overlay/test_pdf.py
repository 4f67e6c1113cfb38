"""The PDF of a sheet, as an independent reader (pypdf) sees it."""

from __future__ import annotations

import io
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from pypdf import PdfReader

from captioner.errors import UsageError
from captioner.overlay import comparison_pdf, lettering, sheet_pdf, sheet_svg
from captioner.overlay import pdf as pdf_canvas
from captioner.overlay.overlay_folder import check_formats
from tests.overlay.handmade_captions import caption


def read(document: bytes) -> PdfReader:
    reader = PdfReader(io.BytesIO(document), strict=True)
    assert len(reader.pages) == 1
    return reader


def fonts(reader: PdfReader) -> list[dict]:
    resources = reader.pages[0]["/Resources"].get_object()
    return [font.get_object() for font in resources["/Font"].get_object().values()]


def test_the_text_of_a_sheet_can_be_searched():
    one = caption("a dog (black) runs\\", name="été.jpg")
    text = read(sheet_pdf(one)).pages[0].extract_text()
    assert "a dog (black) runs\\" in text
    assert "été.jpg" in text
    for word in one.words:
        assert word.text in text
        assert word.text == "a" or f"{word.probability:.2f}" in text  # function words are small and have no bars


def test_every_font_is_embedded():
    for text in ("a dog", "a собака"):
        for font in fonts(read(sheet_pdf(caption(text)))):
            assert "/FontFile2" in font["/FontDescriptor"].get_object()


def test_other_alphabets_stay_text_where_the_system_has_a_font():
    if not lettering._installed():
        pytest.skip("this system has none of the fonts that are tried")
    assert "a собака" in read(sheet_pdf(caption("a собака"))).pages[0].extract_text()


def test_text_is_an_image_where_its_font_cannot_be_embedded(monkeypatch):
    register = pdf_canvas._register
    images = len(read(sheet_pdf(caption("a dog"))).pages[0].images)
    monkeypatch.setattr(pdf_canvas, "_register", lambda font: None if font.size == 24 else register(font))
    assert len(read(sheet_pdf(caption("a dog"))).pages[0].images) == images + 1  # the sentence is set in 24 points


def test_a_page_is_as_large_as_the_svg_and_has_one_image_per_word():
    one = caption("a dog runs", size=(300, 200))
    page = read(sheet_pdf(one)).pages[0]
    root = ElementTree.fromstring(sheet_svg(one))
    assert (float(page.mediabox.width), float(page.mediabox.height)) == (
        float(root.attrib["width"]),
        float(root.attrib["height"]),
    )
    assert len(page.images) == 1 + 3 + 1  # the picture, the words, the legend


def test_the_title_is_the_sentence():
    assert read(sheet_pdf(caption("a dog's café"))).metadata.title == "a dog's café"


def test_a_comparison_names_its_models():
    document = comparison_pdf([("soft", caption("a dog")), ("hard", caption("a cat", hard=True))])
    text = read(document).pages[0].extract_text()
    assert "soft" in text and "hard" in text and "a cat" in text


def test_names_with_control_characters_can_be_written():
    read(sheet_pdf(caption("a <b> dog", name='photos/<script>"&\x01\ud800.jpg')))


def test_the_same_caption_gives_the_same_file():
    assert sheet_pdf(caption("a dog")) == sheet_pdf(caption("a dog"))


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "reportlab", None)
    monkeypatch.setattr(pdf_canvas, "find_spec", lambda name: None)
    for call in (lambda: sheet_pdf(caption()), lambda: check_formats(["png,pdf"])):
        with pytest.raises(UsageError, match=r"pip install '.+\[pdf\]'"):
            call()
    assert check_formats(["png,svg"]) == ("png", "svg")
