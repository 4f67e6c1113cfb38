"""The estimates before training match real arrays and the real decoder."""

from __future__ import annotations

import numpy as np
import pytest

from captioner.data.cost import GRIDS, DecoderCost, GridCost, readable


def test_the_size_of_a_grid_equals_numpys() -> None:
    for grid in GRIDS:
        array = np.zeros((2, grid.channels, grid.rows, grid.cols), np.float16)
        assert grid.bytes(views=2) == array.nbytes
    assert GRIDS[0].bytes() == 57_344
    assert GridCost("", 7, 5, 3).bytes(value_bytes=4) == 7 * 5 * 3 * 4


@pytest.mark.parametrize(
    ("cost", "attention"),
    [
        (DecoderCost(images=4, captions=3, length=9, vocabulary=900), 256),
        (
            DecoderCost(images=2, captions=5, length=12, cells=256, channels=432, attention_size=512, vocabulary=700),
            512,
        ),
        (DecoderCost(4, 2, 6, 64, 320, 256, 128, 128, 256, 1000), 128),
    ],
)
def test_the_estimates_match_the_real_decoder(cost: DecoderCost, attention: int) -> None:
    """The number of weights is exact, the memory that autograd keeps for the backward pass within 25 %."""
    torch = pytest.importorskip("torch")
    from captioner.model.decoder import Decoder
    from captioner.model.settings import ModelSettings

    settings = ModelSettings.model_validate(
        {
            "annotation_size": cost.annotation_size,
            "embedding_size": cost.embedding_size,
            "hidden_size": cost.hidden_size,
            "attention": {"size": attention},
        }
    )
    decoder = Decoder(settings, cost.channels, cost.vocabulary)
    assert cost.parameters() == sum(parameter.numel() for parameter in decoder.parameters())
    assert cost.state_bytes() == 16 * cost.parameters()

    weights = {parameter.untyped_storage().data_ptr() for parameter in decoder.parameters()}
    kept = {}

    def keep(tensor: object) -> object:
        storage = tensor.untyped_storage()  # type: ignore[attr-defined]
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    words = torch.randint(4, cost.vocabulary, (cost.images, cost.captions, cost.length))
    annotations = torch.randn(cost.images, cost.cells, cost.channels)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        reading = decoder(annotations, words, words, torch.full(words.shape[:2], cost.length))
        torch.nn.functional.cross_entropy(reading.logits, reading.targets)
    assert cost.step_bytes() == pytest.approx(sum(size for size, _ in kept.values()), rel=0.25)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (57_344, "57.3 KB"),
        (999_900, "1 MB"),
        (4_094_361_600, "4.09 GB"),
        (6_783_000_000_000, "6.78 TB"),
    ],
)
def test_bytes_are_printed_with_a_unit(count: int, text: str) -> None:
    assert readable(count) == text
