"""Training with nothing but the defaults learns from 240 pictures: captions that differ, and a score above a floor."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from captioner.data.shapes import write_shapes
from captioner.train import trainer, validation
from captioner.train.config_file import parse
from captioner.train.distributed import World
from captioner.train.run_folder import RunFolder
from tests.cli.command_line import run

DATA = Path(os.environ.get("CAPTIONER_DATA", Path(__file__).parents[3] / "shared" / "data")) / "coco"
PICTURES = next((DATA / name for name in ("images", "val_500") if (DATA / name).is_dir()), None)
# Drawn pictures are small, so the network may be; everything about the training is left to the defaults.
SMALL: dict[str, Any] = {
    "encoder": {"name": "efficientnet_lite0", "size": 64, "annotations": ["stage3"]},
    "model": {"attention": {"size": 32}, "annotation_size": 64, "embedding_size": 64, "hidden_size": 64},
}


def is_degenerate(captions: list[str]) -> bool:
    """Nearly all captions the same, or words repeated over and over."""
    repeated = sum(a == b for text in captions for a, b in zip(text.split(), text.split()[1:], strict=False))
    return len(set(captions)) < len(captions) / 4 or repeated > len(captions)


@pytest.mark.slow
def test_240_drawn_pictures_are_learned_with_the_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shapes(tmp_path / "shapes", 240, size=64)
    config = {
        "data": {"root": str(tmp_path / "shapes"), "train": [{"captions": "captions_train.json"}], "val": 0.125},
        "features": {"folder": str(tmp_path / "cache")},
        **SMALL,
    }
    (tmp_path / "run").mkdir()
    found: list[str] = []
    validate = validation.validate
    monkeypatch.setattr(trainer, "validate", lambda *arguments: _kept(validate(*arguments), found))
    trainer.train(parse(config, "test"), tmp_path / "run", World(0, 1, torch.device("cpu")))
    scores = json.loads(RunFolder(tmp_path / "run").best_scores.read_text())["scores"]
    assert scores["CIDEr"] > 100  # captions with every word right have about 800
    assert not is_degenerate(found)
    assert "warning" not in capsys.readouterr().err


def _kept(result: Any, captions: list[str]) -> Any:
    captions[:] = result.captions
    return result


@pytest.mark.slow
@pytest.mark.skipif(PICTURES is None, reason="needs coco with captions_val.json in CAPTIONER_DATA or ../shared/data")
@pytest.mark.parametrize(
    ("start", "floor"),
    [
        ("default", 90),  # 122 after the first epoch: training does not spoil what the model knows
        ("scratch", 30),  # 0 after two epochs, 56 after eleven: learned from these pictures alone
    ],
)
def test_240_photos_are_learned_by_one_command_with_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, floor: float
) -> None:
    assert PICTURES is not None
    monkeypatch.chdir(tmp_path)
    content = json.loads((PICTURES.parent / "captions_val.json").read_text())
    Path("photos/images").mkdir(parents=True)
    there = [image for image in content["images"] if (PICTURES / image["file_name"]).is_file()]
    content["images"] = there[:240]
    kept = {image["id"] for image in content["images"]}
    content["annotations"] = [entry for entry in content["annotations"] if entry["image_id"] in kept]
    Path("photos/captions_train.json").write_text(json.dumps(content))
    for image in content["images"]:
        shutil.copy(PICTURES / image["file_name"], "photos/images")
    done = run("train", "photos", "--from", start, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    scores = json.loads(Path("runs/photos/best/scores.json").read_text())
    assert scores["images"] == 24 and scores["scores"]["CIDEr"] > floor
    captioned = run("caption", "photos/images", "--model", "runs/photos/bundle", "--style", "plain")
    captions = [line.partition("\t")[2] for line in captioned.stdout.splitlines()]
    assert len(captions) == 240 and not is_degenerate(captions)
    assert "warning" not in done.stderr
