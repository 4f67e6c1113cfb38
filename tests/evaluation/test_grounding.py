"""The attention figures against values worked out by hand, and the alarm on models whose maps do and don't move."""

from __future__ import annotations

import math

import numpy as np
import pytest

from captioner.caption import Caption, Word
from captioner.data.caption_set import Box
from captioner.evaluation import grounding as attention
from captioner.evaluation.grounding import STILL, centres, coverage, distance, grounding, motion, name
from captioner.images.reading import Frame


def word(text: str, alpha: list[list[float]] | np.ndarray, cell: tuple[int, int] | None = None) -> Word:
    return Word(text, -0.1, np.asarray(alpha, np.float32), cell=cell)


def caption(*words: Word) -> Caption:
    end = Word("<end>", -0.1, np.full(words[0].alpha.shape, 7.0, np.float32)) if words else None  # never to be counted
    return Caption(words, end, -1.0)


LEFT, RIGHT, EVEN = [[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]]
FRAME = Frame(20, 10)


def test_entropy_is_log_of_the_cells_for_an_even_map_and_zero_for_one_cell() -> None:
    found = motion([caption(word("a", EVEN), word("dog", LEFT))])
    assert found is not None
    assert found.entropy.value == pytest.approx(math.log(2) / 2)
    assert found.spread == pytest.approx(0.5)


def test_movement_is_the_part_of_attention_that_has_to_move() -> None:
    found = motion([caption(word("a", LEFT), word("dog", RIGHT), word("runs", [[0.25, 0.75]]))])
    assert found is not None and found.movement is not None
    assert found.movement.value == pytest.approx((1.0 + 0.25) / 2)
    assert distance(np.array([0.2, 0.8]), np.array([0.5, 0.5])) == pytest.approx(0.3)


def test_maps_of_the_end_token_are_not_counted() -> None:
    found = motion([caption(word("dog", LEFT))])
    assert found is not None
    assert found.entropy.value == 0 and found.movement is None


def test_captions_without_words_have_no_figures() -> None:
    assert motion([caption(), caption()]) is None


def test_a_chosen_place_is_what_was_looked_at() -> None:
    found = motion([caption(word("a", EVEN, (0, 0)), word("dog", EVEN, (0, 1)))])
    assert found is not None and found.movement is not None
    assert found.movement.value == 1.0
    assert found.entropy.value == pytest.approx(math.log(2))  # of alpha, which a chosen place would hide


def test_the_alarm_is_raised_where_maps_stand_still_and_only_there() -> None:
    still = motion([caption(*[word("a", [[0.9, 0.1]])] * 4), caption(*[word("b", [[0.2, 0.8]])] * 4)])
    moving = motion([caption(word("a", LEFT), word("b", EVEN)), caption(word("a", RIGHT), word("b", EVEN))])
    assert still is not None and moving is not None
    assert [alarm for alarm in still.alarms if "stands still" in alarm]
    assert moving.alarms == []


def test_the_alarm_tells_maps_that_move_the_same_way_in_every_picture() -> None:
    found = motion([caption(word("a", LEFT), word("dog", RIGHT))] * 3)
    assert found is not None
    assert len(found.alarms) == 1 and "does not depend on the picture" in found.alarms[0]


def test_flat_maps_are_called_flat() -> None:
    found = motion([caption(*[word("a", EVEN)] * 3)] * 2)
    assert found is not None
    assert all("flat" in alarm for alarm in found.alarms) and len(found.alarms) == 2


@pytest.mark.parametrize("scale", [0.0, 0.01])
def test_a_decoder_whose_scores_ignore_the_words_is_static_and_one_that_minds_them_is_not(scale: float) -> None:
    """The decoder itself, with W_h made (nearly) nothing: the field's best-known silent failure."""
    torch = pytest.importorskip("torch")
    from captioner.model.decoder import Decoder
    from captioner.model.settings import ModelSettings

    settings = ModelSettings(annotation_size=None, embedding_size=16, hidden_size=16, attention={"size": 16})

    def captions(query: float) -> list[Caption]:
        torch.manual_seed(3)
        decoder = Decoder(settings, 8, 12).eval()
        with torch.no_grad():
            decoder.score.query.weight.mul_(query)
            decoder.score.weight.weight.mul_(6)
            shared, own = decoder.begin(torch.randn(6, 9, 8))
            maps = []
            for t in range(5):
                _, own, glance = decoder.step(shared, own, torch.full((6, 1), 4 + t))
                maps.append(glance.alpha[:, 0].reshape(6, 3, 3).numpy())
        return [caption(*(word("w", step[image]) for step in maps)) for image in range(6)]

    broken, whole = motion(captions(scale)), motion(captions(20.0))
    assert broken is not None and whole is not None and broken.movement is not None and whole.movement is not None
    assert broken.movement.value < STILL / 2
    assert any("stands still" in alarm for alarm in broken.alarms)
    assert whole.movement.value > 2 * STILL
    assert whole.alarms == []


def test_coverage_is_the_exact_share_of_each_cell_that_the_boxes_cover_together() -> None:
    boxes = [Box("dog", 5, 0, 15, 5), Box("dog", 10, 0, 15, 10), Box("dog", 12, 2, 14, 4)]
    # left cell (10 x 10): a 5 x 5 corner; right cell: 5 x 10, its overlaps counted once
    np.testing.assert_allclose(coverage(boxes, FRAME, 1, 2), [[0.25, 0.5]])


def test_coverage_agrees_with_counting_pixels() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        frame = Frame(int(random.integers(30, 60)) * 12, int(random.integers(30, 60)) * 12)
        x, y = (
            np.sort(random.integers(-20, frame.width + 20, (3, 2))),
            np.sort(random.integers(0, frame.height, (3, 2))),
        )
        boxes = [Box("dog", *map(float, (a, c, b, d))) for (a, b), (c, d) in zip(x, y, strict=True)]
        drawn = np.zeros((frame.height, frame.width))
        for box in boxes:
            drawn[int(box.top) : int(box.bottom), max(int(box.left), 0) : max(int(box.right), 0)] = 1
        cells = drawn.reshape(4, frame.height // 4, 6, frame.width // 6).mean((1, 3))
        np.testing.assert_allclose(coverage(boxes, frame, 4, 6), cells, atol=1e-9)


def test_a_cell_is_hit_where_its_centre_is_in_a_box() -> None:
    assert centres([Box("dog", 4, 4, 6, 6)], FRAME, 1, 2).tolist() == [[True, False]]
    assert centres([Box("dog", 6, 0, 20, 10)], FRAME, 1, 2).tolist() == [[False, True]]


def test_mass_and_pointing_of_two_pictures_by_hand() -> None:
    """Each picture has a dog in one half; the first caption looks there with 0.8, the second misses with 0.7."""
    captions = [
        caption(word("a", EVEN), word("dog", [[0.8, 0.2]])),
        caption(word("a", EVEN), word("dog", [[0.7, 0.3]])),
    ]
    boxes = [[Box("dog", 0, 0, 10, 10)], [Box("dog", 10, 0, 20, 10), Box("cat", 0, 0, 10, 10)]]
    found = grounding(*name(captions, boxes, [FRAME, FRAME]))
    assert found is not None
    assert (found.nouns, found.images, found.absent) == (2, 2, 0)
    assert found.mass.value.value == pytest.approx((0.8 + 0.3) / 2)
    assert found.mass.even == pytest.approx(0.5)
    assert found.mass.elsewhere == pytest.approx((0.7 + 0.2) / 2)  # each picture's boxes under the other's map
    assert found.pointing.value.value == 0.5
    assert found.pointing.elsewhere == 0.5
    assert found.labels["dog"].nouns == 2


def test_what_a_picture_has_no_box_of_is_counted_apart() -> None:
    captions = [caption(word("dog", LEFT), word("cat", LEFT)), caption(word("dog", LEFT)), caption(word("dog", LEFT))]
    boxes = [[Box("dog", 0, 0, 10, 10)], [Box("cat", 0, 0, 10, 10)], []]  # in the last nobody has drawn any
    found = grounding(*name(captions, boxes, [FRAME] * 3))
    assert found is not None
    assert (found.nouns, found.absent) == (1, 2)
    assert found.mass.elsewhere is None  # there is no other picture with a noun


def test_nothing_named_gives_no_figures() -> None:
    assert grounding(*name([caption(word("sky", LEFT))], [[Box("dog", 0, 0, 5, 5)]], [FRAME])) is None


def test_maps_of_other_images_get_what_a_habit_of_looking_somewhere_gets() -> None:
    """Always looking left scores well where things are on the left; the control shows that it is no merit."""
    captions = [caption(word("dog", LEFT)) for _ in range(4)]
    sides = [Box("dog", 0, 0, 10, 10)] * 3 + [Box("dog", 10, 0, 20, 10)]
    found = grounding(*name(captions, [[box] for box in sides], [FRAME] * 4))
    assert found is not None
    assert found.pointing.value.value == found.pointing.elsewhere == 0.75
    assert found.pointing.even == 0.5


def test_a_noun_of_two_words_is_one_noun_with_the_mean_of_their_maps() -> None:
    captions = [caption(word("hot", LEFT), word("dog", RIGHT))]
    boxes = [[Box("hot dog", 0, 0, 10, 10), Box("dog", 10, 0, 20, 10)]]
    named, absent = name(captions, boxes, [FRAME])
    assert [each.label for each in named] == ["hot dog"] and absent == 0
    assert named[0].mass == pytest.approx(0.5)


def test_equal_maxima_share_the_point() -> None:
    (named,), _ = name([caption(word("dog", EVEN))], [[Box("dog", 0, 0, 10, 10)]], [FRAME])
    assert named.points == 0.5


def test_intervals_hold_the_value_and_widen_with_fewer_images() -> None:
    random = np.random.default_rng(1)

    def some(images: int) -> attention.Grounding:
        captions = [caption(word("dog", [[p, 1 - p]])) for p in random.random(images)]
        found = grounding(*name(captions, [[Box("dog", 0, 0, 10, 10)]] * images, [FRAME] * images))
        assert found is not None
        return found

    few, many = some(20).mass.value, some(500).mass.value
    assert few.low < few.value < few.high
    assert many.high - many.low < (few.high - few.low) / 2
    # Of a mean of n uniform draws: 2 * 1.96 / sqrt(12 n)
    assert many.high - many.low == pytest.approx(2 * 1.96 / math.sqrt(12 * 500), rel=0.2)
