"""The pyramid: its equation, its place in the encoder, and the settings that it refuses."""

from __future__ import annotations

import pytest
import torch

from captioner.errors import CaptionerError
from captioner.model.encoder import Encoder
from captioner.model.pyramid import Pyramid
from captioner.model.self_attention import encode_positions
from captioner.model.settings import EncoderSettings, PyramidSettings
from tests.model.tiny_models import make_network, noise, noise_pixels, with_noise_weights

LITE = {"name": "efficientnet_lite0", "weights": "none", "size": 64}
JOINED = {**LITE, "annotations": ("stage6", "head"), "tail": "stage6"}


def encoder(**changes) -> Encoder:
    return Encoder(EncoderSettings(**{**JOINED, "pyramid": {"size": 32}, **changes}))


@pytest.mark.parametrize("factor", [2, 4])
def test_every_fine_cell_is_the_sum_of_its_own_and_its_coarse_cell(factor):
    pyramid = with_noise_weights(Pyramid(PyramidSettings(size=5), 3, 7, factor))
    fine, coarse = noise(2, 3, 2 * factor, 3 * factor), noise(2, 7, 2, 3, seed=1)
    found = pyramid(fine, coarse)
    for row in range(2 * factor):
        for col in range(3 * factor):
            below = pyramid.lateral.weight.flatten(1) @ fine[:, :, row, col].T
            above = pyramid.top.weight.flatten(1) @ coarse[:, :, row // factor, col // factor].T
            expected = (below + above + pyramid.top.bias.unsqueeze(1)).clamp_min(0)
            torch.testing.assert_close(found[:, :, row, col], expected.T)


def test_blocks_see_the_whole_picture_and_their_positions():
    pyramid = with_noise_weights(Pyramid(PyramidSettings(size=4, blocks=1, heads=2), 3, 4, 2))
    with torch.no_grad():
        pyramid.lateral.weight.zero_()
        pyramid.top.weight.copy_(torch.eye(4).view(4, 4, 1, 1))
        pyramid.top.bias.zero_()
    coarse = noise(1, 4, 2, 2)
    found = pyramid(torch.zeros(1, 3, 4, 4, dtype=torch.float64), coarse)
    cells = [
        coarse[0, :, row, col]
        + torch.cat([encode_positions(torch.tensor(float(at), dtype=torch.float64), 2) for at in (row, col)])
        for row in range(2)
        for col in range(2)
    ]
    (block,) = pyramid.blocks
    expected = block(torch.stack(cells).unsqueeze(0)).clamp_min(0)[0]
    for row in range(4):
        for col in range(4):
            torch.testing.assert_close(found[0, :, row, col], expected[row // 2 * 2 + col // 2], atol=1e-6, rtol=1e-6)


def test_a_grid_with_an_odd_number_of_cells_keeps_its_size():
    made = encoder()
    assert made.tail(torch.randn(2, 112, 3, 5)).shape == (2, 32, 3, 5)


def test_an_encoder_with_a_pyramid_has_the_grid_of_its_trunk():
    made, plain = encoder(), encoder(pyramid=None)
    assert (made.grid(), made.size) == ((4, 4), 32)
    assert (plain.grid(), made.cached_shape()) == ((2, 2), plain.cached_shape())


def test_a_pyramid_uses_the_feature_cache_of_the_encoder_without_it():
    made, plain = encoder(), encoder(pyramid=None)
    made.stages.load_state_dict(plain.stages.state_dict())
    assert made.fingerprint() == plain.fingerprint()


def test_at_first_every_fine_cell_equals_its_neighbours_from_the_same_coarse_cell():
    grid = encoder().tail(torch.randn(1, 112, 4, 4))
    assert grid.abs().sum() > 0
    assert torch.equal(grid[..., ::2, ::2], grid[..., 1::2, 1::2])


def test_only_the_pyramid_is_trained_without_tuning_and_only_it_has_dropout():
    made = encoder(pyramid={"size": 32, "blocks": 1, "dropout": 0.5})
    assert {name.split(".")[0] for name, p in made.named_parameters() if p.requires_grad} == {"pyramid"}
    x = torch.randn(1, 112, 4, 4)
    made.train()
    assert not made.stages.training
    assert not torch.equal(made.tail(x), made.tail(x))
    made.eval()
    assert torch.equal(made.tail(x), made.tail(x))


def test_a_batch_gives_the_annotations_of_its_pictures():
    network = make_network({**JOINED, "pyramid": {"size": 8, "blocks": 1}}, annotation_size=None)
    pixels = noise_pixels(3, 64)
    alone = torch.cat([network.encode(picture.unsqueeze(0)) for picture in pixels])
    torch.testing.assert_close(network.encode(pixels), alone, atol=1e-5, rtol=1e-4)
    assert alone.shape == (3, 16, 8)


@pytest.mark.parametrize(
    ("changes", "fitting"),
    [
        ({"tail": None}, "stage1, stage2, stage3, stage4, stage5, stage6"),
        ({"tail": "stem"}, "stage1, stage2, stage3, stage4, stage5, stage6"),
        ({"tail": "stage5", "annotations": ("stage5",)}, "stage1, stage2, stage3, stage4"),
        ({"tail": "head", "annotations": ("stage3", "head")}, "stage1, stage2, stage3, stage4"),
    ],
)
def test_the_error_of_a_trunk_that_does_not_fit_says_what_to_set(changes, fitting):
    with pytest.raises(CaptionerError) as refused:
        encoder(**changes)
    if "stage3" not in changes.get("annotations", ()):  # refused before, because the trunk does not contain stage3
        assert str(refused.value).endswith(f"set encoder.tail to one of {fitting}, not to {changes['tail'] or 'null'}")
    for tail in fitting.split(", "):
        assert encoder(**{**changes, "tail": tail}).pyramid is not None


def test_heads_divide_the_size():
    with pytest.raises(ValueError, match=r"encoder\.pyramid\.heads=3 clashes with encoder\.pyramid\.size=32: .*; set "):
        PyramidSettings(size=32, blocks=1, heads=3)
