"""Encoders: shapes and grids, what is frozen, trunk and tail, joined stages, fingerprints."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from captioner.errors import CaptionerError
from captioner.export.onnx_graphs import export_trunk
from captioner.model.backbones import BACKBONES
from captioner.model.encoder import Encoder
from captioner.model.settings import EncoderSettings
from captioner.workarounds.torchvision_import import torchvision
from tests.model.tiny_models import make_encoder, noise_pixels, photographs, randomize

# D of the last layer at stride 32 and at stride 16, from the networks' papers and published code.
WIDTHS = {
    "efficientnet_lite0": (1280, 112),
    "efficientnet_lite1": (1280, 112),
    "efficientnet_lite2": (1280, 120),
    "vgg16": (512, 512),
    "vgg16_bn": (512, 512),
    "vgg19": (512, 512),
    "vgg19_bn": (512, 512),
    "resnet18": (512, 256),
    "resnet34": (512, 256),
    "resnet50": (2048, 1024),
    "resnet101": (2048, 1024),
    "resnet152": (2048, 1024),
    "mobilenet_v2": (1280, 96),
    "mobilenet_v3_small": (576, 48),
    "mobilenet_v3_large": (960, 112),
    "efficientnet_b0": (1280, 112),
    "efficientnet_b1": (1280, 112),
    "efficientnet_b2": (1408, 120),
    "efficientnet_b3": (1536, 136),
    "efficientnet_b4": (1792, 160),
    "convnext_tiny": (768, 384),
    "convnext_small": (768, 384),
    "regnet_y_400mf": (440, 208),
    "regnet_y_800mf": (784, 320),
    "regnet_y_1_6gf": (888, 336),
    "regnet_y_3_2gf": (1512, 576),
    "regnet_y_8gf": (2016, 896),
}


@pytest.fixture
def no_initialization(monkeypatch):
    """No initialisation: shapes do not depend on weights, and 140 million random numbers take seconds."""

    def quiet(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return tensor if tensor.dim() == 2 else tensor.data.zero_()

    for name in ("uniform_", "normal_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_"):
        monkeypatch.setattr(nn.init, name, quiet)


def imagenet_normalized(pixels: torch.Tensor) -> torch.Tensor:
    """The normalisation published with torchvision's weights, for pixels in 0..1."""
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return ((pixels / 255 - mean) / deviation).permute(0, 3, 1, 2)


def test_the_table_of_widths_has_all_backbones():
    assert set(WIDTHS) == set(BACKBONES)


@pytest.mark.usefixtures("no_initialization")
@pytest.mark.parametrize("stride", [32, 16])
@pytest.mark.parametrize("name", BACKBONES)
def test_annotations_and_grid_at_two_sizes(name, stride):
    encoder = Encoder(EncoderSettings(name=name, weights="none", stride=stride, size=64))
    width = WIDTHS[name][stride == 16]
    assert encoder.size == width
    assert encoder.grid() == (64 // stride, 64 // stride)
    with torch.no_grad():
        annotations, rows, cols = encoder(torch.zeros(2, 96, 96, 3))
    assert (rows, cols) == (96 // stride, 96 // stride)
    assert annotations.shape == (2, rows * cols, width)


@pytest.mark.usefixtures("no_initialization")
def test_vgg16_conv5_at_224_is_the_papers_grid():
    encoder = Encoder(EncoderSettings(name="vgg16", weights="none", annotations=("conv5",), size=224))
    assert (encoder.size, *encoder.grid()) == (512, 14, 14)


def test_pictures_may_have_any_aspect_ratio():
    encoder = make_encoder("resnet18")
    annotations, rows, cols = encoder(noise_pixels(1, 64, 96))
    assert (rows, cols) == (2, 3)
    assert annotations.shape == (1, 6, 512)


def test_cells_are_ordered_row_by_row():
    """The index of a cell is row * cols + col. The overlays rely on this order."""
    encoder = make_encoder(annotations=("stage1",))  # stride 2
    pixels = torch.zeros(1, 64, 96, 3, dtype=torch.uint8)
    dotted = pixels.clone()
    dotted[0, 8:14, 58:64] = 255  # around the cell of row 5 and col 30
    with torch.no_grad():
        (blank, rows, cols), (seen, _, _) = encoder(pixels), encoder(dotted)
    assert (rows, cols) == (32, 48)
    changed = (seen - blank)[0].norm(dim=1)
    where = torch.arange(rows * cols)
    assert float((changed * (where // cols)).sum() / changed.sum()) == pytest.approx(5, abs=1)
    assert float((changed * (where % cols)).sum() / changed.sum()) == pytest.approx(30, abs=1)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "efficientnet_b0", "regnet_y_400mf"])
def test_annotations_equal_torchvisions_features(name, tmp_path):
    net = randomize(torchvision.models.get_model(name, weights=None).eval())
    file = tmp_path / "weights.pth"
    torch.save(net.state_dict(), file)
    encoder = make_encoder(name, weights=str(file))
    pixels = noise_pixels(2, 64)
    x = imagenet_normalized(pixels)
    with torch.no_grad():
        if name.startswith("resnet"):
            seen: list[torch.Tensor] = []
            net.avgpool.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
            net(x)
            expected = seen[0]
        else:
            expected = net.trunk_output(net.stem(x)) if name.startswith("regnet") else net.features(x)
        found = encoder(pixels)[0]
    expected = expected.flatten(2).transpose(1, 2)
    assert expected.std() > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.usefixtures("no_initialization")
def test_vggs_conv5_ends_after_the_last_relu_and_before_the_last_pool():
    encoder = make_encoder("vgg16", stride=16)
    layers = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["D"], batch_norm=False)[:-1]
    with torch.no_grad():
        for ours, theirs in zip(encoder.parameters(), layers.parameters(), strict=True):
            theirs.copy_(ours)
        pixels = noise_pixels(1, 64)
        expected = layers(imagenet_normalized(pixels)).flatten(2).transpose(1, 2)
        found = encoder(pixels)[0]
    assert expected.std() > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


# --- frozen ---------------------------------------------------------------------------------------------


class Parent(nn.Module):
    """Put a module into train mode and train every parameter that is trainable."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.read = nn.Linear(encoder.size, 3)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.read(self.encoder(pixels)[0]).square().mean()


def trained(encoder: Encoder, steps: int = 2) -> dict[str, torch.Tensor]:
    """The state of the encoder before training, which runs with everything in train mode."""
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    parent = Parent(encoder).train()
    encoder.train()
    optimizer = torch.optim.SGD([p for p in parent.parameters() if p.requires_grad], lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        parent(noise_pixels(2, 64, seed=step)).backward()
        optimizer.step()
    return before


@pytest.mark.parametrize("name", ["efficientnet_lite0", "resnet18"])
def test_training_does_not_change_a_frozen_encoder(name):
    encoder = make_encoder(name)
    before = trained(encoder)
    assert any("running_mean" in key for key in before)
    for key, value in encoder.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert all(parameter.grad is None for parameter in encoder.parameters())


def test_a_parent_in_train_mode_leaves_the_encoder_in_eval_mode():
    parent = Parent(make_encoder("mobilenet_v3_small")).train()
    assert parent.training
    assert not any(module.training for module in parent.encoder.modules())


def test_gradients_reach_the_tail_and_not_the_trunk():
    encoder = make_encoder(tail="stage7")
    learning = encoder.tune()
    before = trained(encoder)
    ids = {id(parameter) for parameter in learning}
    for name, parameter in encoder.named_parameters():
        in_tail = name.startswith(("stages.stage7.", "stages.head."))
        assert (id(parameter) in ids) == in_tail == parameter.requires_grad
        assert (parameter.grad is not None and bool(parameter.grad.any())) == in_tail, name
    for name, value in encoder.state_dict().items():
        moved = not torch.equal(value, before[name])
        learnt = name.startswith(("stages.stage7.", "stages.head.")) and name.endswith((".weight", ".bias"))
        assert moved == learnt, name  # statistics do not change


def test_tuning_can_start_after_the_first_stage_of_the_tail():
    encoder = make_encoder(tail="stage6")
    learning = encoder.tune("head")
    assert len(learning) == 3  # a convolution and its norm's weight and bias
    assert [n for n, p in encoder.named_parameters() if p.requires_grad] == [
        n for n, _ in encoder.named_parameters() if n.startswith("stages.head.")
    ]


def test_depthwise_filters_can_stay_frozen():
    encoder = make_encoder(tail="stage6")
    learning = {id(parameter) for parameter in encoder.tune(depthwise=False)}
    trained(encoder)
    for name, parameter in encoder.named_parameters():
        learns = name.startswith(("stages.stage6.", "stages.stage7.", "stages.head."))
        learns &= not name.endswith("depthwise.0.weight")  # the filters; their norm's weight and bias learn
        assert (id(parameter) in learning) == learns == parameter.requires_grad, name
        assert (parameter.grad is not None) == learns, name


def test_an_encoder_without_tail_has_nothing_to_tune():
    encoder = make_encoder()
    assert encoder.tune() == []
    assert not any(parameter.requires_grad for parameter in encoder.parameters())


def test_tuning_from_a_stage_of_the_trunk_names_the_tails_stages():
    with pytest.raises(CaptionerError, match=r"stage of the tail.*'stage5'.*Known: stage6, stage7, head"):
        make_encoder(tail="stage6").tune("stage5")


# --- trunk and tail -------------------------------------------------------------------------------------


def test_an_untrained_tail_on_float16_grids_gives_the_whole_encoders_annotations():
    """The largest difference is at most 1e-3 of the largest value."""
    pixels = photographs(256, "cat", "plane")
    how: dict[str, Any] = {"size": 256, "weights": "package", "annotations": ("stage6", "head")}
    whole, cut = make_encoder(**how), make_encoder(**how, tail="stage6")
    with torch.no_grad():
        expected = whole(pixels)[0]
        cached = cut.trunk(pixels).to(torch.float16)
        found = cut.tail(cached.float()).flatten(2).transpose(1, 2)
    assert cached.shape == (2, *cut.cached_shape()) == (2, 112, 16, 16)
    for part in (slice(0, 192), slice(192, None)):  # stage6 and head differ in scale
        scale = expected[..., part].abs().max()
        assert (found[..., part] - expected[..., part]).abs().max() < 1e-3 * scale
    assert not torch.equal(found, expected)  # the rounding to half precision must be visible


@pytest.mark.parametrize("tail", ["stem", "stage3", "head", None])
def test_trunk_and_tail_give_the_whole_for_every_cut(tail):
    pixels = noise_pixels(2, 64)
    with torch.no_grad():
        expected = make_encoder()(pixels)[0]
        found = make_encoder(tail=tail)(pixels)[0]
    assert torch.equal(found, expected)


def test_an_empty_trunk_only_normalizes_the_pixels():
    encoder = make_encoder(tail="stem")
    pixels = noise_pixels(1, 64)
    assert not encoder.has_trunk
    assert torch.equal(encoder.trunk(pixels), (pixels.permute(0, 3, 1, 2).float() - 127) / 128)


def test_pixels_are_moved_to_the_encoders_device():
    encoder = make_encoder(annotations=("stage1",)).to("meta")  # a device without data that every machine has
    assert encoder(noise_pixels(1, 64))[0].device.type == "meta"


def test_joined_stages_are_concatenated_along_the_channels():
    pixels = noise_pixels(2, 64)
    with torch.no_grad():
        stage6, head = (make_encoder(annotations=(name,))(pixels)[0] for name in ("stage6", "head"))
        encoder = make_encoder(annotations=("stage6", "head"))
        found, rows, cols = encoder(pixels)
    assert (encoder.size, rows, cols) == (192 + 1280, 2, 2)
    assert torch.equal(found, torch.cat([stage6, head], -1))


def test_a_finer_grid_is_averaged_down_to_the_coarsest():
    pixels = noise_pixels(1, 64)
    with torch.no_grad():
        fine = make_encoder(annotations=("stage5",))(pixels)[0].view(4, 4, 112)
        found = make_encoder(annotations=("stage5", "head"))(pixels)[0].view(2, 2, -1)
    for row in range(2):
        for col in range(2):
            block = fine[2 * row : 2 * row + 2, 2 * col : 2 * col + 2].reshape(4, 112)
            torch.testing.assert_close(found[row, col, :112], block.mean(0))


def test_averaging_to_a_grid_that_does_not_divide_equals_adaptive_pooling():
    """At 240 pixels stride 16 has 15 rows and stride 32 has 8."""
    pixels = noise_pixels(1, 240)
    with torch.no_grad():
        fine = make_encoder(annotations=("stage5",))(pixels)[0].transpose(1, 2).view(1, 112, 15, 15)
        found = make_encoder(annotations=("stage5", "head"))(pixels)[0][..., :112]
    expected = nn.functional.adaptive_avg_pool2d(fine, (8, 8)).flatten(2).transpose(1, 2)
    torch.testing.assert_close(found, expected)


def test_joined_stages_are_in_network_order_without_repetition():
    encoder = make_encoder(annotations=("head", "stage6", "head"))
    assert encoder.joined == ("stage6", "head")
    assert encoder(noise_pixels(1, 64))[0].shape[-1] == encoder.size == 192 + 1280


def test_the_trunks_own_output_can_be_joined_with_the_tails():
    pixels = noise_pixels(2, 64)
    with torch.no_grad():
        expected = make_encoder(annotations=("stage6", "head"))(pixels)[0]
        encoder = make_encoder(annotations=("stage6", "head"), tail="stage7")
        found = encoder.tail(encoder.trunk(pixels)).flatten(2).transpose(1, 2)
    assert torch.equal(found, expected)


def test_a_stage_inside_the_trunk_cannot_be_joined():
    with pytest.raises(CaptionerError, match=r"joins 'stage5'.*start at 'stage6' or before, not at 'stage7'"):
        make_encoder(annotations=("stage5", "head"), tail="stage7")


# --- fingerprints ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fingerprint():
    return make_encoder(tail="stage6").fingerprint()


def test_the_fingerprint_is_the_same_for_the_same_trunk(fingerprint):
    assert make_encoder(tail="stage6", annotations=("stage6", "head")).fingerprint() == fingerprint


@pytest.mark.parametrize(
    "settings", [{"tail": "stage7"}, {"tail": None}, {"name": "efficientnet_lite1", "tail": "stage6"}]
)
def test_the_fingerprint_changes_with_cut_and_encoder(fingerprint, settings):
    assert make_encoder(**settings).fingerprint() != fingerprint


def test_without_a_tail_the_fingerprint_changes_with_the_annotations():
    joined = make_encoder(annotations=("stage6", "head"))
    assert joined.fingerprint() != make_encoder().fingerprint()


@pytest.mark.parametrize("name", ["stages.stem.0.weight", "stages.stage5.2.project.1.running_var"])
def test_the_fingerprint_changes_with_a_single_number_of_the_trunk(fingerprint, name):
    encoder = make_encoder(tail="stage6")
    encoder.state_dict()[name].view(-1)[3] += 1e-3
    assert encoder.fingerprint() != fingerprint


def test_the_fingerprint_does_not_change_with_the_tails_weights(fingerprint):
    encoder = make_encoder(tail="stage6")
    encoder.state_dict()["stages.stage6.0.expand.0.weight"].zero_()
    encoder.state_dict()["stages.head.1.bias"].add_(1.0)
    assert encoder.fingerprint() == fingerprint


# --- export ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"tail": "stage6"},
        {"annotations": ("stage2", "stage4")},
        {"annotations": ("stage2", "stage4"), "size": 72},
        {"name": "mobilenet_v3_small"},
    ],
    ids=["cut", "joined", "joined with grids that don't divide", "mobilenet"],
)
def test_the_exported_trunk_equals_torchs(settings, tmp_path):
    encoder = make_encoder(**settings)
    export_trunk(encoder, tmp_path / "trunk.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "trunk.onnx"), providers=["CPUExecutionProvider"])
    for count in (1, 3):  # traced with 2
        pixels = noise_pixels(count, encoder.settings.size)
        (found,) = session.run(["grid"], {"pixels": pixels.numpy()})
        with torch.no_grad():
            expected = encoder.trunk(pixels).numpy()
        assert found.shape == (count, *encoder.cached_shape())
        assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


def test_the_random_weights_of_these_tests_give_annotations_far_from_zero():
    """Otherwise the tests above would compare zeros."""
    with torch.no_grad():
        assert randomize(make_encoder())(noise_pixels(1, 64))[0].std() > 0.01
