import dataclasses

import numpy as np

from captioner.overlay.model_captions import model_labels, with_likeliest_cells
from tests.overlay.handmade_captions import caption


def test_models_are_labelled_by_name_or_folder_and_equal_names_are_numbered():
    assert model_labels(["default", "runs/default", "weights/hard/", "default"]) == [
        "default",
        "default (2)",
        "hard",
        "default (3)",
    ]


def test_words_without_a_cell_get_their_likeliest_and_others_keep_theirs():
    one = caption("a dog runs", alternatives=("a cat",))
    sampled = dataclasses.replace(one.words[0], cell=(3, 3))
    one = with_likeliest_cells(dataclasses.replace(one, words=(sampled, *one.words[1:])))
    assert one.words[0].cell == (3, 3)
    for word in (*one.words[1:], *one.alternatives[0].words):
        assert word.cell is not None and word.alpha[word.cell] == np.max(word.alpha)
