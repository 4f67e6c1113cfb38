"""The backbones and where their weights come from; errors for weights that are missing or do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from captioner.errors import CaptionerError, UsageError
from captioner.model import efficientnet_lite as lite
from captioner.model.backbones import BACKBONES
from captioner.model.encoder import Encoder
from captioner.model.settings import EncoderSettings
from captioner.workarounds.torchvision_import import torchvision
from tests.model.tiny_models import make_encoder, package_file, randomize

LITE = "efficientnet_lite0"


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    """All weights of Lite0 under our own names."""
    return randomize(nn.ModuleDict(lite.stages(LITE)), seed=7).state_dict()


# --- wrong names ----------------------------------------------------------------------------------------


def test_a_wrong_encoder_lists_all_and_suggests_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'efficientnet_lite0'") as caught:
        make_encoder("eficientnet_lite0")
    assert all(name in str(caught.value) for name in BACKBONES)


@pytest.mark.parametrize("field", ["annotations", "tail"])
def test_a_wrong_stage_lists_the_backbones_stages(field):
    with pytest.raises(UsageError, match="Did you mean 'stage6'") as caught:
        wrong: dict[str, Any] = {field: ("stge6",) if field == "annotations" else "stge6"}
        make_encoder(**wrong)
    assert all(name in str(caught.value) for name in ("stem", "stage1", "head", LITE))


def test_a_tail_after_the_annotations_is_refused():
    with pytest.raises(UsageError, match=r"tail of efficientnet_lite0 'head'.*Known: stem.*stage6\."):
        make_encoder(annotations=("stage6",), tail="head")


def test_a_wrong_weight_source_lists_all_and_suggests_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'torchvision'") as caught:
        make_encoder("resnet18", weights="torchvison")
    assert all(source in str(caught.value) for source in ("auto", "none", "package", "a file's path"))


@pytest.mark.parametrize(
    ("name", "source", "right"), [(LITE, "torchvision", "package"), ("resnet18", "package", "torchvision")]
)
def test_a_source_without_the_encoder_is_refused_with_one_that_has_it(name, source, right):
    with pytest.raises(CaptionerError, match=f"'{source}' has no weights for {name}: use '{right}'"):
        make_encoder(name, weights=source)


def test_a_missing_stride_is_refused_with_the_strides_of_the_backbone(monkeypatch):
    shallow = {name: stage for name, stage in lite.stages(LITE).items() if name in ("stem", "stage1", "stage2")}
    monkeypatch.setattr(lite, "stages", lambda name: shallow)
    with pytest.raises(CaptionerError, match=r"no stage of stride 32; it has strides \[2, 4\]"):
        make_encoder()


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["safetensors", "state dict", "nested state dict", "package's own names"])
def test_weights_load_from_a_file(kind, state, tmp_path):
    file = tmp_path / ("weights.safetensors" if kind == "safetensors" else "weights.pth")
    if kind == "safetensors":
        save_file(state, file)
    elif kind == "package's own names":
        torch.save(as_published(state), file)
    else:
        torch.save(state if kind == "state dict" else {"epoch": 3, "state_dict": state}, file)
    encoder = make_encoder(weights=str(file))
    for name, value in encoder.stages.state_dict().items():
        assert torch.equal(value, state[name]), name


def as_published(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The stem, the first block of stage 2 (block 1 of the network) and so on under the names of the packages."""
    depths = (1, 2, 2, 3, 3, 4, 1)
    first = [sum(depths[:i]) for i in range(len(depths))]
    tops = {"stem.0": "_conv_stem", "stem.1": "_bn0", "head.0": "_conv_head", "head.1": "_bn1"}
    parts = {"expand.0": "_expand_conv", "expand.1": "_bn0", "depthwise.0": "_depthwise_conv", "depthwise.1": "_bn1"}
    parts |= {"project.0": "_project_conv", "project.1": "_bn2"}
    published = {"_fc.weight": torch.zeros(1000, 1280), "_fc.bias": torch.zeros(1000)}
    for name, value in state.items():
        if name.startswith("stage"):
            stage, block, part, index, leaf = name.split(".")
            published[f"_blocks.{first[int(stage[5:]) - 1] + int(block)}.{parts[f'{part}.{index}']}.{leaf}"] = value
        else:
            part, index, leaf = name.split(".")
            published[f"{tops[f'{part}.{index}']}.{leaf}"] = value
    return published


def test_a_file_without_classifier_fits_a_torchvision_backbone(tmp_path):
    net = torchvision.models.mobilenet_v3_small(weights=None)
    held = {name: value for name, value in net.state_dict().items() if not name.startswith("classifier.")}
    save_file(held, tmp_path / "weights.safetensors")
    encoder = make_encoder("mobilenet_v3_small", weights=str(tmp_path / "weights.safetensors"))
    assert torch.equal(encoder.stages["features_0"][0].weight, net.features[0][0].weight)


def test_weights_that_do_not_fit_are_named_with_both_sizes(state, tmp_path):
    wrong = {**state, "surplus": torch.zeros(1), "stem.0.weight": torch.zeros(32, 3, 5, 5)}
    del wrong["head.1.running_mean"]
    torch.save(wrong, tmp_path / "weights.pth")
    with pytest.raises(CaptionerError) as caught:
        make_encoder(weights=str(tmp_path / "weights.pth"))
    message = str(caught.value)
    assert str(tmp_path / "weights.pth") in message
    assert "missing: head.1.running_mean (1)" in message
    assert "unexpected: surplus (1)" in message
    assert "of another size: stem.0.weight is (32, 3, 5, 5), needed (32, 3, 3, 3) (1)" in message


def test_the_published_weights_of_another_lite_are_refused_by_name():
    with pytest.raises(CaptionerError, match=r"unexpected: _blocks\.16\..*of another size: stage3\.0.* needed \("):
        make_encoder(weights=package_file(2))


def test_published_weights_of_a_deeper_network_or_with_other_layers_are_refused_by_name(state, tmp_path):
    published = as_published(state)
    published["_blocks.16._project_conv.weight"] = torch.zeros(8, 8, 1, 1)  # Lite0 has blocks 0 to 15
    published["_blocks.3._se_reduce.weight"] = torch.zeros(6, 144, 1, 1)  # Lite has no squeeze-and-excite
    torch.save(published, tmp_path / "weights.pth")
    with pytest.raises(CaptionerError, match=r"unexpected: _blocks\.16\..*_blocks\.3\._se_reduce\.weight \(2\)"):
        make_encoder(weights=str(tmp_path / "weights.pth"))


def test_a_missing_file_is_named():
    with pytest.raises(CaptionerError, match=r"no such file: nowhere/weights\.pth"):
        make_encoder(weights="nowhere/weights.pth")


class Bomb:
    """A pickle that runs code when it is loaded by a reader that trusts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path):
    torch.save({"stem.0.weight": Bomb(tmp_path / "exploded")}, tmp_path / "weights.pth")
    with pytest.raises(CaptionerError, match="could run code"):
        make_encoder(weights=str(tmp_path / "weights.pth"))
    assert not (tmp_path / "exploded").exists()
    torch.load(tmp_path / "weights.pth", weights_only=False)
    assert (tmp_path / "exploded").exists()  # the pickle does run code when it is trusted


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_a_file_that_is_no_state_dict_is_refused(name, tmp_path):
    (tmp_path / name).write_bytes(b"not weights at all, only a line of text")
    with pytest.raises(CaptionerError, match="is not a state dict"):
        make_encoder(weights=str(tmp_path / name))


def test_a_single_tensor_is_refused(tmp_path):
    torch.save(torch.zeros(3), tmp_path / "weights.pth")
    with pytest.raises(CaptionerError, match="contains a Tensor, not a state dict"):
        make_encoder(weights=str(tmp_path / "weights.pth"))


def test_with_load_false_the_source_need_not_exist():
    settings = EncoderSettings(name=LITE, weights="gone", size=64)
    assert Encoder(settings, load=False).size == 1280
    with pytest.raises(UsageError, match="weight source"):
        Encoder(settings)


# --- torchvision's own ----------------------------------------------------------------------------------


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """torch's download folder, empty, on a machine without a network."""

    def unreachable(*_, **__):
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "urlopen", unreachable)
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    return tmp_path / "checkpoints"


NAME = "mobilenet_v3_small"
FILE = torchvision.models.get_model_weights(NAME).DEFAULT.url.rsplit("/", 1)[1]


@pytest.mark.parametrize("source", ["torchvision", "auto"])
def test_offline_the_error_names_the_file_and_where_to_put_it(offline, source):
    with pytest.raises(CaptionerError, match="no route to host") as caught:
        make_encoder(NAME, weights=source)
    assert f"https://download.pytorch.org/models/{FILE}" in str(caught.value)
    assert str(offline / FILE) in str(caught.value)


def test_a_file_where_the_error_says_is_loaded(offline):
    net = randomize(torchvision.models.get_model(NAME, weights=None))
    offline.mkdir()
    torch.save(net.state_dict(), offline / FILE)
    encoder = make_encoder(NAME, weights="torchvision")
    assert torch.equal(encoder.stages["features_12"][0].weight, net.features[12][0].weight)


def test_a_pickle_with_code_among_the_downloads_is_refused_and_not_run(offline):
    offline.mkdir()
    torch.save({"features.0.0.weight": Bomb(offline / "exploded")}, offline / FILE)
    with pytest.raises(CaptionerError, match=FILE):
        make_encoder(NAME, weights="torchvision")
    assert not (offline / "exploded").exists()
