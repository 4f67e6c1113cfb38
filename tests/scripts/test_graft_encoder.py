"""scripts/graft_encoder replaces the encoder of a trained model: only the projection between the two is fitted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from captioner.errors import CaptionerError, UsageError
from captioner.images.reading import load_for_model
from captioner.model.network import Network
from captioner.train.config_file import parse
from captioner.train.loaded_run import load_best
from captioner.train.splits import read_split
from captioner.train.start import start
from encoder_grafting import graft
from tests.train import tiny_run

SCRIPT = Path(__file__).parents[2] / "scripts" / "graft_encoder"


def network(data: Path, seed: int = 0, **changes: object) -> Network:
    torch.manual_seed(seed)
    config = parse(tiny_run.settings(data, **changes), "test")
    return Network(config.encoder, config.model, 30)


def pictures(data: Path) -> list[Path]:
    return [item.path for item in read_split(parse(tiny_run.settings(data), "test"), "train").items]


def test_grafting_the_same_encoder_gives_the_same_model(shapes: Path) -> None:
    """With more cells than channels the solution is known: the old projection, except for the ridge penalty."""
    old, new = network(shapes), network(shapes, seed=1)
    assert not torch.equal(old.decoder.output.weight, new.decoder.output.weight)
    explained = graft(old, new, pictures(shapes))
    assert explained > 0.95
    assert old.decoder.project is not None and new.decoder.project is not None
    for name, value in old.decoder.state_dict().items():
        if not name.startswith("project."):
            assert torch.equal(value, new.decoder.state_dict()[name]), name
    with torch.no_grad():
        pixels = torch.from_numpy(np.stack([load_for_model(path, tiny_run.SIZE)[1] for path in pictures(shapes)[:4]]))
        a, b = old.decoder.project(old.encode(pixels)), new.decoder.project(new.encode(pixels))
    assert float((a - b).square().mean()) == pytest.approx(float(a.var()) * (1 - explained), rel=0.5)


def test_another_encoder_explains_a_part_of_the_variance(shapes: Path) -> None:
    old, new = network(shapes), network(shapes, encoder__name="efficientnet_lite2")
    assert 0.3 < graft(old, new, pictures(shapes)) < 1


def test_models_that_cannot_be_fitted_are_refused(shapes: Path) -> None:
    with pytest.raises(UsageError, match="without a projection"):
        graft(network(shapes), network(shapes, model__annotation_size=None), [])
    with pytest.raises(UsageError, match=r"grids differ: \(4, 4\) and \(8, 8\)"):
        graft(network(shapes), network(shapes, encoder__annotations=["stage2"]), [])
    with pytest.raises(UsageError, match="no picture"):
        graft(network(shapes), network(shapes), [])
    with pytest.raises(CaptionerError, match=r"decoder\.start_hidden\.0\.weight is \(16, 16\), needed \(12, 16\)"):
        graft(network(shapes), network(shapes, model__hidden_size=12), pictures(shapes))
    with pytest.raises(CaptionerError, match=r"must be equal in a model with model\.tied=true"):
        graft(network(shapes, model__tied=False), network(shapes), pictures(shapes))


def test_training_starts_from_the_model_that_the_script_writes(shapes: Path, tmp_path: Path) -> None:
    first = tiny_run.write_config(tmp_path / "one.yaml", shapes, training__epochs=1)
    start(first, folder=tmp_path / "one", device="cpu")
    grafted = tmp_path / "grafted"
    changes = {"encoder__name": "efficientnet_lite2", "training__epochs": 1, "training__start_from": str(grafted)}
    config = tiny_run.write_config(tmp_path / "two.yaml", shapes, **changes)
    call: list[str | Path] = [sys.executable, SCRIPT, grafted, tmp_path / "one", "--config", config]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "explains" in done.stdout
    assert load_best(grafted).config.encoder.name == "efficientnet_lite2"
    start(config, folder=tmp_path / "two", device="cpu")
    done = subprocess.run([*call[:3], tmp_path / "nothing", *call[4:]], capture_output=True, text=True)
    assert done.returncode == 1 and "has no best/model.safetensors" in done.stderr
    done = subprocess.run([*call[:2], tmp_path / "one", *call[3:]], capture_output=True, text=True)
    assert done.returncode == 1 and "is a training run" in done.stderr
    done = subprocess.run([*call[:2], config, *call[3:]], capture_output=True, text=True)
    assert done.returncode == 1 and "is a file" in done.stderr
    done = subprocess.run([*call, "--images", "0"], capture_output=True, text=True)
    assert done.returncode == 2 and "--images: at least 1" in done.stderr
