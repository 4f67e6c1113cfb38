"""Images with boxes and without captions, which train the auxiliary head and the annotations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from captioner.errors import UsageError
from captioner.train import checkpoint
from captioner.train.batch_loss import ForwardPass
from captioner.train.corpus import padded_arrays, spread
from captioner.train.run_folder import RunFolder
from captioner.train.setup import TrainingSetup, prepare
from captioner.train.start import encode, start
from tests.train import tiny_run
from tests.train.short_runs import ALONE, STEADY

CAPTIONED = 10  # of 16 training images


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The shapes, of which some training images have lost their captions, but not their boxes."""
    folder = tiny_run.write_data(tmp_path / "data")
    file = folder / "captions_train.json"
    captions = json.loads(file.read_text())
    captions["images"] = captions["images"][:CAPTIONED]
    kept = {record["id"] for record in captions["images"]}
    captions["annotations"] = [record for record in captions["annotations"] if record["image_id"] in kept]
    file.write_text(json.dumps(captions))
    return folder


def settings(**changes: Any) -> dict[str, Any]:
    return {
        **STEADY,
        "data__boxes": ["."],  # all files of the folder
        "encoder__tail": "stage3",
        "training__cell_categories": {"images": "images"},
    } | changes


def prepared(data: Path, **changes: Any) -> TrainingSetup:
    torch.manual_seed(3)
    return prepare(tiny_run.config(data, **settings(**changes)), ALONE)


def test_they_are_the_training_images_with_boxes_that_have_no_captions(data: Path) -> None:
    assert (data / "instances_test.json").is_file()
    setup = prepared(data)
    assert len(setup.corpus) == CAPTIONED
    assert setup.uncaptioned == range(CAPTIONED, 16)
    assert setup.box_targets is not None
    boxed = np.diff(setup.box_targets.image_starts)
    assert len(boxed) == setup.uncaptioned.stop
    assert (boxed[CAPTIONED:] > 0).all()


def test_the_limit_of_images_is_theirs_too(data: Path) -> None:
    setup = prepared(data, training__limit=3)
    assert (len(setup.corpus), setup.uncaptioned) == (3, range(3, 6))


def uncaptioned(data: Path) -> dict[str, Any]:
    """The record of the first training image without captions."""
    names = {record["file_name"] for record in json.loads((data / "captions_train.json").read_text())["images"]}
    listed: list[dict[str, Any]] = json.loads((data / "instances_train.json").read_text())["images"]
    return next(record for record in listed if record["file_name"] not in names)


def test_images_that_are_missing_are_left_out(data: Path) -> None:
    (data / "images" / uncaptioned(data)["file_name"]).unlink()
    assert len(prepared(data).uncaptioned) == 5


def test_images_without_boxes_are_left_out(data: Path) -> None:
    file, bare = data / "instances_train.json", uncaptioned(data)["id"]
    instances = json.loads(file.read_text())
    instances["annotations"] = [record for record in instances["annotations"] if record["image_id"] != bare]
    file.write_text(json.dumps(instances))
    assert len(prepared(data).uncaptioned) == 5


def test_a_test_image_is_left_out_also_under_its_name_in_another_release(data: Path) -> None:
    """Most of Karpathy's test images are in COCO's instances_train2017.json."""
    record = uncaptioned(data)
    new, old = "000000000042.png", "COCO_val2014_000000000042.png"
    (data / "images" / record["file_name"]).rename(data / "images" / new)
    file = data / "instances_train.json"
    file.write_text(file.read_text().replace(json.dumps(record["file_name"]), json.dumps(new)))
    assert len(prepared(data).uncaptioned) == 6
    tests = json.loads((data / "captions_test.json").read_text())
    tests["images"].append({"id": 42, "file_name": old})
    tests["annotations"].append({"id": 999, "image_id": 42, "caption": "a circle"})
    (data / "captions_test.json").write_text(json.dumps(tests))
    assert len(prepared(data).uncaptioned) == 5


def test_a_missing_folder_and_one_without_such_images_are_named_with_their_setting(data: Path) -> None:
    with pytest.raises(UsageError, match=r"training\.cell_categories\.images"):
        prepared(data, training__cell_categories={"images": "nowhere"})
    (data / "none").mkdir()
    with pytest.raises(UsageError, match=r"training\.cell_categories\.images: none has no image with boxes"):
        prepared(data, training__cell_categories={"images": "none"})
    with pytest.raises(UsageError, match=r"no such instances file or folder.*data\.boxes\.0"):
        prepared(data, data__boxes=["nowhere.json"])


def test_each_is_read_once_per_epoch_and_the_epochs_differ() -> None:
    one, other = (spread(range(10, 31), 6, seed=1, epoch=epoch) for epoch in (0, 1))
    assert sorted(np.concatenate(one)) == sorted(np.concatenate(other)) == list(range(10, 31))
    assert {len(part) for part in one} == {3, 4}
    assert not np.array_equal(np.concatenate(one), np.concatenate(other))
    assert [len(part) for part in spread(range(0), 6, seed=1, epoch=0)] == [0] * 6


def test_the_captions_are_those_of_the_first_images(data: Path) -> None:
    setup = prepared(data)
    setup.network.eval()
    assert setup.cell_head is not None
    forward = ForwardPass(setup.network, setup.cell_head)
    images = np.array([0, 1, CAPTIONED, CAPTIONED + 1])
    grids = setup.train_grids(images)
    captions = [[setup.corpus.caption(number) for number in setup.corpus.numbers_of(image)[:2]] for image in (0, 1)]
    arrays = [torch.from_numpy(array) for array in padded_arrays(captions, setup.vocabulary)]
    with torch.no_grad():
        alone, logits_alone = forward(grids[:2], *arrays)
        beside, logits = forward(grids, *arrays)
    assert logits is not None and logits_alone is not None
    assert len(logits) == 4
    assert torch.allclose(logits[:2], logits_alone, atol=1e-5)
    assert torch.allclose(beside.logits, alone.logits, atol=1e-5)


@pytest.mark.parametrize("stage", [{}, {"training__scst": {"start_epoch": 0, "samples": 2}}])
def test_they_train_the_encoder_until_its_training_ends(
    stage: dict[str, Any], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from captioner.train import grids as sources

    read: list[int] = []
    real = sources.CachedGrids.augmented

    def spy(self: Any, positions: Any, rng: Any) -> Any:
        read.extend(positions)
        return real(self, positions, rng)

    monkeypatch.setattr(sources.CachedGrids, "augmented", spy)
    weights = {}
    for images in ("images", None):
        how = settings(training__cell_categories={"images": images}, training__tune={"end_epoch": 1}, **stage)
        folder = tmp_path / str(images)
        start(tiny_run.write_config(tmp_path / f"{images}.yaml", data, **how), folder=folder, device="cpu")
        weights[images] = checkpoint.part(checkpoint.read(RunFolder(folder).checkpoint)[0], "network")
        extra = [position for position in read if position >= CAPTIONED]
        assert len(extra) == len(set(extra))
        assert bool(extra) == (images is not None)
        read.clear()
    moved = [name for name in weights["images"] if not torch.equal(weights["images"][name], weights[None][name])]
    assert any(name.startswith("encoder.") for name in moved)


def test_features_are_computed_for_them(data: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(tmp_path / "config.yaml", data, **settings())
    shutil.rmtree(data / "cache", ignore_errors=True)
    encode(config, device="cpu")
    before = cached(data)
    assert len(before) >= 3  # shards of eight images
    prepared(data)
    assert cached(data) == before


def cached(data: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (data / "cache").rglob("*") if path.is_file()}
