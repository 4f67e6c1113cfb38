import dataclasses
import io

import numpy as np

from captioner.images.frame import Frame
from captioner.overlay import arrays_npz
from tests.overlay.handmade_captions import caption


def load(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def test_the_arrays_are_read_back_without_pickle():
    one = caption("a dog's café", hard=True, alternatives=("a cat",))
    arrays = load(arrays_npz(one))
    assert arrays["words"].tolist() == ["a", "dog's", "café"]
    assert str(arrays["text"]) == "a dog's café"
    np.testing.assert_array_equal(arrays["alpha"], one.alphas)
    np.testing.assert_allclose(arrays["log_probability"], [word.log_probability for word in one.words])
    np.testing.assert_allclose(arrays["gate"], [word.gate for word in one.words])
    np.testing.assert_allclose(arrays["entropy"], [word.entropy for word in one.words])
    assert arrays["cell"].tolist() == [[0, 0], [0, 1], [0, 2]]
    assert arrays["alternatives"].tolist() == ["a cat"]
    assert (int(arrays["width"]), int(arrays["height"])) == (60, 40)
    assert arrays["cells"].shape == (4, 6, 4)
    assert arrays["cells"][1, 2].tolist() == [20, 10, 30, 20]


def test_cells_are_also_given_in_the_pixels_of_a_turned_file():
    one = caption("a", grid=(2, 2))
    assert one.picture is not None
    turned = dataclasses.replace(one, picture=dataclasses.replace(one.picture, frame=Frame(40, 60, 6)))
    arrays = load(arrays_npz(turned))
    # Orientation 6: viewers turn the file by 90 degrees clockwise, so the upper right is stored at the upper left.
    assert arrays["cells"][0, 1].tolist() == [20, 0, 40, 30]
    assert arrays["cells_stored"][0, 1].tolist() == [0, 0, 30, 20]


def test_a_caption_without_words_or_picture_can_be_saved():
    arrays = load(arrays_npz(dataclasses.replace(caption(""), picture=None, end=None)))
    assert arrays["words"].shape == (0,) and arrays["cell"].shape == (0, 2)
