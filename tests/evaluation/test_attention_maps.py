"""Statistics of attention maps, compared with hand-computed values, and the alarms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from captioner.caption import Caption
from captioner.evaluation.attention_maps import STILL, distance, map_statistics
from tests.evaluation.handmade_maps import EVEN, LEFT, RIGHT, caption, word


def test_entropy_is_log_of_the_cells_for_an_even_map_and_zero_for_one_cell() -> None:
    found = map_statistics([caption(word("a", EVEN), word("dog", LEFT))])
    assert found is not None
    assert found.entropy.value == pytest.approx(math.log(2) / 2)
    assert found.spread == pytest.approx(0.5)


def test_movement_is_the_share_of_the_attention_that_moves_from_word_to_word() -> None:
    found = map_statistics([caption(word("a", LEFT), word("dog", RIGHT), word("runs", [[0.25, 0.75]]))])
    assert found is not None and found.movement is not None
    assert found.movement.value == pytest.approx((1.0 + 0.25) / 2)
    assert distance(np.array([0.2, 0.8]), np.array([0.5, 0.5])) == pytest.approx(0.3)


def test_maps_of_the_end_token_are_not_counted() -> None:
    found = map_statistics([caption(word("dog", LEFT))])
    assert found is not None
    assert found.entropy.value == 0 and found.movement is None


def test_captions_without_words_have_no_statistics() -> None:
    assert map_statistics([caption(), caption()]) is None


def test_the_map_of_a_hard_model_is_the_sampled_cell() -> None:
    found = map_statistics([caption(word("a", EVEN, (0, 0)), word("dog", EVEN, (0, 1)))])
    assert found is not None and found.movement is not None
    assert found.movement.value == 1.0
    assert found.entropy.value == pytest.approx(math.log(2))  # of alpha, which a selected cell would hide


def test_an_alarm_is_raised_only_if_maps_stand_still() -> None:
    still = map_statistics([caption(*[word("a", [[0.9, 0.1]])] * 4), caption(*[word("b", [[0.2, 0.8]])] * 4)])
    moving = map_statistics([caption(word("a", LEFT), word("b", EVEN)), caption(word("a", RIGHT), word("b", EVEN))])
    assert still is not None and moving is not None
    assert [alarm for alarm in still.alarms if "stands still" in alarm]
    assert moving.alarms == []


def test_an_alarm_is_raised_if_maps_are_the_same_in_every_picture() -> None:
    found = map_statistics([caption(word("a", LEFT), word("dog", RIGHT))] * 3)
    assert found is not None
    assert len(found.alarms) == 1 and "does not depend on the picture" in found.alarms[0]


def test_the_alarms_say_if_maps_are_flat() -> None:
    found = map_statistics([caption(*[word("a", EVEN)] * 3)] * 2)
    assert found is not None
    assert all("flat" in alarm for alarm in found.alarms) and len(found.alarms) == 2


@pytest.mark.parametrize("scale", [0.0, 0.01])
def test_a_decoder_whose_attention_ignores_the_words_raises_the_alarm(scale: float) -> None:
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
                _, own, attention = decoder.step(shared, own, torch.full((6, 1), 4 + t))
                maps.append(attention.alpha[:, 0].reshape(6, 3, 3).numpy())
        return [caption(*(word("w", step[image]) for step in maps)) for image in range(6)]

    broken, whole = map_statistics(captions(scale)), map_statistics(captions(20.0))
    assert broken is not None and whole is not None and broken.movement is not None and whole.movement is not None
    assert broken.movement.value < STILL / 2
    assert any("stands still" in alarm for alarm in broken.alarms)
    assert whole.movement.value > 2 * STILL
    assert whole.alarms == []
