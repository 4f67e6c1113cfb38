import pytest
from PIL import Image, ImageDraw

from captioner.overlay import lettering


def inked(text: str, size: int = 20) -> bytes:
    drawn, font = lettering.fitting(text, size)
    image = Image.new("L", (400, 40))
    ImageDraw.Draw(image).text((5, 30), drawn, 255, font, anchor="ls")
    return image.tobytes()


def test_the_font_of_pillow_has_every_letter_of_english():
    text, font = lettering.fitting("The quick brown fox, 0.83 (x) 'jumps' - over/the: lazy dog!", 16)
    assert text.startswith("The quick") and font.getname()[0] == "Aileron"


@pytest.mark.parametrize("with_accent, without", [("café", "cafe"), ("naïve", "naive")])
def test_without_a_system_font_letters_lose_their_accents(monkeypatch, with_accent, without):
    monkeypatch.setattr(lettering, "_SYSTEM_FONTS", ())
    lettering._installed.cache_clear()
    try:
        assert lettering.fitting(with_accent, 16)[0] == without
        lettering.fitting("狗", 16)  # no font has it: drawn as a box, without an error
    finally:
        monkeypatch.undo()
        lettering._installed.cache_clear()


def test_a_system_font_draws_other_alphabets():
    if not lettering._installed():
        pytest.skip("this system has none of the fonts that are tried")
    text, _ = lettering.fitting("собака", 16)
    assert text == "собака"
    assert inked("собака") != inked("кобака")


def test_control_characters_are_not_drawn():
    assert lettering.fitting("a\nb\x00c", 16)[0] == "a b c"


def test_shortened_text_fits_and_keeps_its_beginning():
    long = "an extraordinarily long description of very little"
    short = lettering.shorten(long, 16, 120)
    assert lettering.width(short, 16) <= 120
    assert short.endswith("…") and long.startswith(short[:-1])
    assert lettering.shorten("dog", 16, 120) == "dog"


def test_a_very_long_text_is_shortened_with_few_measurements(monkeypatch):
    """Before, every letter that was too many was measured with all letters before it: minutes for a hostile word."""
    measured = []
    width = lettering.width

    def counted(text: str, size: int) -> float:
        measured.append(len(text))
        return width(text, size)

    monkeypatch.setattr(lettering, "width", counted)
    short = lettering.shorten("dog" * 100_000, 16, 120)
    assert short.startswith("dogdog") and short.endswith("…") and 100 < width(short, 16) <= 120
    assert sum(measured) < 2000


def test_wrapped_lines_fit_and_contain_every_word():
    text = "a group of four men standing next to each other in front of a wall"
    lines = lettering.wrap(text, 24, 260)
    assert len(lines) > 2
    assert all(lettering.width(line, 24) <= 260 for line in lines)
    assert " ".join(lines) == text
