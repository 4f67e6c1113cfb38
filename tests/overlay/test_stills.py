import io

import pytest
from PIL import Image

from captioner.overlay import words, words_png
from captioner.overlay.stills import file_name_part
from tests.overlay.handmade_captions import caption


@pytest.mark.parametrize("size", [(61, 40), (40, 61), (1, 1)])
def test_each_word_is_drawn_as_large_as_the_picture(size):
    assert [image.size for image in words(caption("a dog runs", size=size))] == [size] * 3


def test_files_are_named_in_reading_order_and_have_the_values_of_their_word():
    one = caption("a dog's café")
    files = dict(words_png(one))
    assert list(files) == ["01-a.png", "02-dog-s.png", "03-café.png"]
    with Image.open(io.BytesIO(files["03-café.png"])) as image:
        assert image.text["word"] == "café"
        assert float(image.text["probability"]) == pytest.approx(one.words[2].probability, abs=1e-5)
        assert float(image.text["gate"]) == pytest.approx(one.words[2].gate, abs=1e-5)


@pytest.mark.parametrize("text", ["..", "/", "<unk>", "a/b", "", "x" * 300, "\x00"])
def test_every_word_gives_a_valid_file_name(text):
    name = file_name_part(text)
    assert name and len(name) <= 40 and not set(name) & set("/\\.<>\x00")
