import dataclasses
import io
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioner.errors import UsageError
from captioner.overlay import Style, animation, animation_of, words
from tests.overlay.handmade_captions import blob, caption


def frames(content: bytes, *, still: bool = True) -> list[np.ndarray]:
    """The frames of an animation: those that stand still, or those of the transitions."""
    image: Any = Image.open(io.BytesIO(content))
    result = []
    for number in range(image.n_frames):
        image.seek(number)
        image.load()
        if (image.info["duration"] > 400 if image.n_frames > 1 else True) == still:
            result.append(np.asarray(image.convert("RGB")).astype(int))
    return result


def test_the_animation_shows_the_picture_and_then_each_word_in_a_loop():
    one = caption("a dog runs on grass", size=(300, 200))
    content = animation(one)
    shown = frames(content)
    assert len(shown) == 6
    for before, after in pairwise(shown):
        assert (before != after).mean() > 0.01
    image = Image.open(io.BytesIO(content))
    assert image.info["loop"] == 0
    times = []
    for number in range(image.n_frames):  # type: ignore[attr-defined]
        image.seek(number)
        times.append(image.info["duration"])
    assert len([time for time in times if time >= 500]) == 6 and times[-1] > times[0]


def test_between_two_words_the_map_moves_step_by_step():
    one = caption("one two", size=(480, 320), grid=(4, 6))
    first, second = (dataclasses.replace(one.words[0], alpha=blob(r, c, 4, 6, 0.5)) for r, c in ((0, 0), (3, 5)))
    content = animation(dataclasses.replace(one, words=(first, second)), Style("heat"))
    light = [frame[20:60, 20:60].mean() for frame in frames(content, still=False)[-3:]]
    assert light == sorted(light, reverse=True) and light[0] > light[-1] + 10


def test_webp_has_the_same_frames_in_full_color():
    one = caption("a dog runs", size=(300, 200))
    gif, webp = frames(animation(one)), frames(animation(one, format="webp"))
    assert len(gif) == len(webp) == 4
    for a, b in zip(gif, webp, strict=True):
        assert a.shape == b.shape and np.abs(a - b).mean() < 8
    with pytest.raises(UsageError, match="mp4"):
        animation(one, format="mp4")  # type: ignore[arg-type]


def test_two_equal_words_with_equal_maps_still_have_two_frames():
    one = caption("dog dog", grid=(1, 1))
    assert len(frames(animation(one))) == 3


def test_a_frame_is_brightest_where_its_map_is_highest():
    one = caption("one two", size=(240, 160), grid=(4, 4))
    looking = dataclasses.replace(one.words[0], alpha=blob(3, 3, 4, 4, 0.4))
    _, shown = frames(animation(dataclasses.replace(one, words=(looking,))))
    picture = shown[:320, :480]  # the long side is 480
    assert picture[240:, 360:].sum(axis=-1).mean() > picture[:80, :120].sum(axis=-1).mean() + 100


def test_a_small_bright_spot_keeps_its_shades_among_256_colors():
    one = caption("one", size=(480, 320), grid=(14, 14))
    one = dataclasses.replace(one, words=(dataclasses.replace(one.words[0], alpha=blob(7, 7, 14, 14)),))
    _, shown = frames(animation(one))
    (true,) = (np.asarray(image).astype(int) for image in words(one))

    def seen(picture: np.ndarray) -> np.ndarray:
        """The mean colors of small squares around the spot: dithered dots blend in the eye."""
        return picture[120:216, 192:312].reshape(24, 4, 30, 4, 3).mean(axis=(1, 3))

    difference = np.abs(seen(shown[:320, :480]) - seen(true))
    assert difference.mean() < 3 and difference.max() < 20


def test_models_side_by_side_show_a_shared_word_in_the_same_frame():
    one, two = caption("a dog runs", size=(300, 200)), caption("a big dog runs", size=(300, 200))
    content = animation_of([("soft", one), ("hard", two)])
    shown = frames(content)
    assert len(shown) == 1 + 4  # a, big, dog, runs
    assert shown[0].shape[1] > 2 * 480
    left = [frame[:320, :480] for frame in shown]
    assert (left[1] != left[2]).mean() < 0.05  # the first caption has no "big" and waits
    assert (left[2] != left[3]).mean() > 0.05


def test_a_caption_without_words_is_one_frame():
    assert len(frames(animation(caption("")))) == 1
