import base64
import dataclasses
import io
import xml.etree.ElementTree as ElementTree
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from captioner.caption import Caption, Word
from captioner.errors import UsageError
from captioner.overlay import comparison, comparison_svg, sheet, sheet_svg
from captioner.overlay.painting import Style
from captioner.overlay.sheet import columns
from captioner.overlay.sheet_layout import SheetOptions
from tests.overlay.handmade_captions import caption, flat

SVG = "{http://www.w3.org/2000/svg}"
LONG = "a group of four men standing next to each other in front of a wall"


def texts(document: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(document).iter(f"{SVG}text")]


def pictures(document: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(document).iter(f"{SVG}image"))


def test_a_sheet_has_the_picture_and_one_panel_per_word_with_probability_and_gate():
    one = caption("a dog runs on grass")
    document = sheet_svg(one)
    assert len(pictures(document)) == 1 + 5 + 1  # the picture, the words, the legend
    written = texts(document)
    assert written[0] == "a dog runs on grass"
    assert "dog.jpg" in written and "photos/dog.jpg" not in written
    for word in one.words:
        at = written.index(word.text)
        figures = ["p", f"{word.probability:.2f}", "gate", f"{word.gate:.2f}"]
        assert (written[at + 1 : at + 5] == figures) == (word.text not in ("a", "on"))  # function words are small


def test_the_end_token_is_not_drawn_as_a_word():
    assert not any("end" in text for text in texts(sheet_svg(caption("a dog"))))


@pytest.mark.parametrize("size", [(640, 427), (427, 640), (300, 300), (4000, 200), (150, 3000), (1, 1), (3, 2)])
@pytest.mark.parametrize("text", ["dog", LONG, ""])
def test_everything_lies_within_the_sheet_for_every_shape_of_picture(size, text):
    root = ElementTree.fromstring(sheet_svg(caption(text, size=size)))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert width <= 1600
    for element in root.iter():
        if element.tag in (f"{SVG}image", f"{SVG}rect") and element.get("x"):
            assert float(element.attrib["x"]) >= 28
            assert float(element.attrib["x"]) + float(element.attrib["width"]) <= width - 28 + 0.5
            assert float(element.attrib["y"]) + float(element.attrib["height"]) <= height
        if element.tag == f"{SVG}text":
            assert 0 < float(element.attrib["y"]) <= height - 14


@pytest.mark.parametrize("size", [(640, 427), (427, 640), (1000, 500)])
def test_panels_keep_the_proportions_of_the_picture(size):
    for element in pictures(sheet_svg(caption("a dog", size=size)))[:-1]:  # the picture, a small and a large panel
        ratio = float(element.attrib["width"]) / float(element.attrib["height"])
        assert ratio == pytest.approx(size[0] / size[1], rel=0.02)


def test_the_png_sheet_is_as_large_as_the_svg_times_the_density():
    one = caption(LONG)
    root = ElementTree.fromstring(sheet_svg(one))
    size = float(root.attrib["width"]), float(root.attrib["height"])
    assert sheet(one).size == size
    assert sheet(one, density=2).size == (2 * size[0], 2 * size[1])


def test_each_panel_is_brightest_at_the_cell_of_its_word():
    one = caption("dog cat cow")
    panels = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(e.get("href").split(",")[1])))).astype(int)
        for e in pictures(sheet_svg(one, Style("heat", grid=True)))[1:4]
    ]
    for i, panel in enumerate(panels):
        first_row = panel[: panel.shape[0] // 4]
        lit = [part.mean() for part in np.array_split(first_row, 6, axis=1)]
        assert np.argmax(lit) == i  # word i attends to cell (0, i)


def test_the_legend_explains_the_scale_and_the_outlined_cell():
    soft, hard = " ".join(texts(sheet_svg(caption()))), " ".join(texts(sheet_svg(caption(hard=True))))
    assert "one scale for all words" in soft
    assert "Outlined" in hard and "Outlined" not in soft
    assert "its own scale" in " ".join(texts(sheet_svg(caption(), Style(per_word=True))))


def test_names_with_markup_and_control_characters_stay_text():
    name = 'photos/<script>"&\x01\ud800.jpg'
    document = sheet_svg(caption("a <b> dog", name=name))
    document.encode("utf-8", "strict")
    assert any("<script>" in text for text in texts(document))
    assert ElementTree.fromstring(document).find(f"{SVG}script") is None
    sheet(caption("a <b> dog", name=name))


word = st.sampled_from(["a", "the", "man", "dog", "holding", "slice", "of", "pizza", "red"])


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.lists(word, max_size=9), min_size=1, max_size=4))
def test_columns_contain_every_word_once_and_in_order(sentences):
    alpha = flat(2, 2)
    captions = [Caption(tuple(Word(text, 0.0, alpha) for text in words), None, 0.0) for words in sentences]
    table = columns(captions)
    for row, words in enumerate(sentences):
        assert [column[row].text for column in table if column[row] is not None] == words
    assert all(any(cell is not None for cell in column) for column in table)
    assert len(table) <= sum(len(words) for words in sentences)


def test_equal_words_share_a_column():
    table = columns([caption("a man holding a slice"), caption("a man is holding a large slice")])
    assert [[cell.text if cell else None for cell in column] for column in table] == [
        ["a", "a"],
        ["man", "man"],
        [None, "is"],
        ["holding", "holding"],
        ["a", "a"],
        [None, "large"],
        ["slice", "slice"],
    ]


def test_a_comparison_has_one_row_per_model_with_all_its_words():
    one, two = caption("a dog runs"), caption("a black dog is running", grid=(8, 8), hard=True)
    two = dataclasses.replace(two, picture=one.picture)
    document = comparison_svg([("soft", one), ("hard", two)])
    assert len(pictures(document)) == 1 + 3 + 5 + 1
    written = texts(document)
    assert {"soft", "hard", "a dog runs", "a black dog is running"} <= set(written)
    image = comparison([("soft", one), ("hard", two)])
    assert image.width <= 1600
    assert zlib.crc32(image.tobytes()) != zlib.crc32(sheet(one).tobytes())


def panels(document: str) -> int:
    return len(pictures(document)) - 2  # without the picture and the legend


def test_words_with_content_are_larger_than_function_words():
    _, small, large, _ = pictures(sheet_svg(caption("a dog")))
    assert float(large.attrib["width"]) > 1.7 * float(small.attrib["width"])


@pytest.mark.parametrize("words, count", [("all", 5), ("content", 3), (("dog", "grass", "horse"), 2), (("cow",), 0)])
def test_the_words_of_a_sheet_can_be_chosen(words, count):
    document = sheet_svg(caption("a dog runs on grass"), None, SheetOptions(words=words))
    assert panels(document) == count


def test_title_name_and_bars_can_be_left_out():
    plain = texts(sheet_svg(caption("a dog"), None, SheetOptions(title=False, name=False, bars=False)))
    assert "a dog" not in plain and "dog.jpg" not in plain and "gate" not in plain and "dog" in plain
    assert "photos/dog.jpg" in texts(sheet_svg(caption("a dog"), None, SheetOptions(full_path=True)))


def test_columns_stand_side_by_side():
    document = sheet_svg(caption("dog runs grass cat", size=(300, 200)), None, SheetOptions(columns=2))
    positions = [(float(e.attrib["x"]), float(e.attrib["y"])) for e in pictures(document)[:-1]]
    assert len({x for x, _ in positions}) == 2 and len({y for _, y in positions}) == 3


def test_a_sheet_for_a_column_of_a_paper_has_its_width_and_readable_words():
    options = SheetOptions(width="84mm", columns=3, words="content")
    one = caption("a dog runs on grass", size=(640, 480))
    root = ElementTree.fromstring(sheet_svg(one, None, options))
    assert root.attrib["width"].endswith("pt") and float(root.attrib["width"][:-2]) == pytest.approx(
        84 * 72 / 25.4, 1e-3
    )
    scale = float(root.attrib["width"][:-2]) / float(root.attrib["viewBox"].split()[2])
    word = next(e for e in root.iter(f"{SVG}text") if e.text == "dog")
    assert 7 <= float(word.attrib["font-size"]) * scale <= 10
    image = sheet(one, None, options)
    assert image.width == pytest.approx(84 / 25.4 * 300, abs=2)


def test_the_font_of_an_svg_is_embedded():
    face = ElementTree.fromstring(sheet_svg(caption("a dog"))).find(f"{SVG}style")
    assert face is not None and face.text is not None
    content = base64.b64decode(face.text.split("base64,")[1].split('"')[0])
    assert ImageFont.truetype(io.BytesIO(content), 12).getname()[0] == ImageFont.load_default(12).getname()[0]


@pytest.mark.parametrize("width", ["84", "mm", "-3mm", "1mm", "9999cm", "84 parsecs"])
def test_a_width_that_is_no_length_is_refused(width):
    with pytest.raises(UsageError, match="84mm"):
        SheetOptions(width=width)
