import io

import numpy as np
import pytest
from PIL import Image

from captioner.errors import UsageError
from captioner.overlay import SheetOptions, figure, words
from captioner.overlay import figure as figure_function
from tests.overlay.handmade_captions import caption

pytest.importorskip("matplotlib", reason="figures need the extra `figure`")


def test_a_figure_has_the_picture_and_one_panel_per_content_word():
    one = caption("a dog runs", size=(120, 80))
    drawn = figure(one)
    shown = [ax for ax in drawn.axes if ax.images]
    assert [ax.get_title() for ax in shown] == ["", "dog (0.85)", "runs (0.80)"]
    maps = list(words(one))
    for ax, image in zip(shown[1:], maps[1:], strict=True):
        assert np.array_equal(np.asarray(ax.images[0].get_array()), np.asarray(image))
    assert drawn.get_suptitle() == "A dog runs."


def test_options_choose_words_columns_and_texts():
    drawn = figure(caption("a dog runs"), None, SheetOptions(words="all", columns=2, title=False, bars=False))
    assert [ax.get_title() for ax in drawn.axes] == ["", "a", "dog", "runs"]
    assert drawn.get_suptitle() == ""


def test_a_figure_can_be_saved_without_a_display():
    buffer = io.BytesIO()
    figure(caption("a dog"), width=4).savefig(buffer, dpi=50)
    assert Image.open(buffer).width == 200


def test_without_matplotlib_the_error_says_how_to_install_it(monkeypatch):
    module = __import__("sys").modules["captioner.overlay.figure"]
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install"):
        figure_function(caption("a dog"))
