import dataclasses
import io
from itertools import pairwise

import numpy as np
from PIL import Image

from captioner.overlay import animation, animation_of, words
from tests.overlay.handmade_captions import blob, caption


def frames(content: bytes) -> list[np.ndarray]:
    image = Image.open(io.BytesIO(content))
    result = []
    for number in range(image.n_frames):
        image.seek(number)
        result.append(np.asarray(image.convert("RGB")).astype(int))
    return result


def test_the_animation_shows_the_picture_and_then_each_word_over_and_over():
    made = caption("a dog runs on grass", size=(300, 200))
    content = animation(made)
    shown = frames(content)
    assert len(shown) == 6
    for before, after in pairwise(shown):
        assert (before != after).mean() > 0.01
    image = Image.open(io.BytesIO(content))
    assert image.info["loop"] == 0
    times = []
    for number in range(6):
        image.seek(number)
        times.append(image.info["duration"])
    assert min(times) >= 500 and times[-1] > times[1]


def test_the_same_word_twice_in_the_same_place_still_has_two_frames():
    made = caption("dog dog", grid=(1, 1))
    assert len(frames(animation(made))) == 3


def test_a_frame_lights_the_place_that_its_word_looked_at():
    made = caption("one two", size=(240, 160), grid=(4, 4))
    looking = dataclasses.replace(made.words[0], alpha=blob(3, 3, 4, 4, 0.4))
    _, shown = frames(animation(dataclasses.replace(made, words=(looking,))))
    picture = shown[:320, :480]  # the long side is 480
    assert picture[240:, 360:].sum(axis=-1).mean() > picture[:80, :120].sum(axis=-1).mean() + 100


def test_a_small_bright_spot_keeps_its_shades_among_256_colours():
    made = caption("one", size=(480, 320), grid=(14, 14))
    made = dataclasses.replace(made, words=(dataclasses.replace(made.words[0], alpha=blob(7, 7, 14, 14)),))
    _, shown = frames(animation(made))
    (true,) = (np.asarray(image).astype(int) for image in words(made))

    def seen(picture: np.ndarray) -> np.ndarray:
        """Colours of little squares about the spot, in which an eye takes dots together."""
        return picture[120:216, 192:312].reshape(24, 4, 30, 4, 3).mean(axis=(1, 3))

    assert np.abs(seen(shown[:320, :480]) - seen(true)).max() < 5


def test_models_side_by_side_reach_a_shared_word_together():
    one, two = caption("a dog runs", size=(300, 200)), caption("a big dog runs", size=(300, 200))
    content = animation_of([("soft", one), ("hard", two)])
    shown = frames(content)
    assert len(shown) == 1 + 4  # a, big, dog, runs
    assert shown[0].shape[1] > 2 * 480
    left = [frame[:320, :480] for frame in shown]
    assert (left[1] != left[2]).mean() < 0.05  # "big" is not in the first: it waits
    assert (left[2] != left[3]).mean() > 0.05


def test_a_caption_without_words_is_one_frame():
    assert len(frames(animation(caption("")))) == 1
