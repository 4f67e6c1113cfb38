import dataclasses
from pathlib import Path

import pytest

from captioner.data.caption_set import Item
from captioner.errors import UsageError
from captioner.evaluation.evaluated_model import load_model
from captioner.evaluation.randomisation import Randomisation, randomisation
from captioner.metrics.means import Mean
from tests.tiny_bundle import write_model

pytest.importorskip("torch", reason="shuffling weights needs torch")


@pytest.fixture(scope="module")
def case():
    photo = Path(__file__).parents[2] / "examples" / "cat.jpg"
    model = load_model("default", backend="torch", threads=1)
    return model.captioner, Item(1, photo, ("a",), "val"), model.captioner.force(photo, "a cat on a red mat")


def test_the_maps_of_a_model_with_shuffled_weights_differ(case):
    captioner, item, caption = case
    before = {name: value.clone() for name, value in captioner.backend.network.state_dict().items()}
    figures = randomisation(captioner.backend, [item], [caption], captioner.defaults)
    assert figures is not None and figures.words == len(caption.words)
    assert figures.difference.value > 0
    assert figures.correlation.value < 0.6
    again = randomisation(captioner.backend, [item], [caption], captioner.defaults)
    assert figures == again  # a fixed seed
    after = captioner.backend.network.state_dict()
    assert all((before[name] == after[name]).all() for name in before)  # the model itself is not changed


def test_maps_that_stay_the_same_raise_an_alarm():
    same = Randomisation(1, 5, Mean(0.9, 0.8, 1.0), Mean(0.01, 0.0, 0.02))
    assert "0.90" in same.alarms[0]
    assert dataclasses.replace(same, correlation=Mean(0.1, 0.0, 0.2)).alarms == []


def test_the_onnx_backend_is_refused_with_the_way_out(tmp_path):
    write_model(tmp_path / "model")
    onnx = load_model(tmp_path / "model").captioner
    with pytest.raises(UsageError, match="--backend torch"):
        randomisation(onnx.backend, [], [], onnx.defaults)
