"""Grounded attention and the auxiliary head: losses by hand, and what training with them changes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from captioner.errors import CaptionerError, UsageError
from captioner.export.run_bundle import export_run
from captioner.model.caption_decoder import TeacherForced
from captioner.train import checkpoint
from captioner.train.box_targets import BatchBoxes, BoxTargets
from captioner.train.cell_categories import cell_category_loss
from captioner.train.distributed import World
from captioner.train.grids import Views
from captioner.train.grounding_loss import grounding_loss, losses
from captioner.train.self_critical import SelfCritical
from captioner.train.setup import prepare
from captioner.train.start import start
from tests.train import tiny_run

# One image with two groups: the left half, and the top right quarter.
TARGETS = BoxTargets(
    labels=("dog", "person"),
    boxes=np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 0.5]], np.float32),
    group_starts=np.array([0, 1, 2]),
    group_labels=np.array([0, 1], np.int16),
    image_starts=np.array([0, 2]),
    word_groups=np.array([], np.int32),
)


def boxes(window: tuple[float, ...] = (0.0, 0.0, 1.0, 1.0), *, mirrored: bool = False) -> BatchBoxes:
    """The groups of the image on a grid of 2x2 cells."""
    return TARGETS.batch(np.array([0]), Views(2, 2, np.array([mirrored]), np.array([window])))


def forced(scores: torch.Tensor, rows: list[int], times: list[int], *, with_scores: bool = True) -> TeacherForced:
    words = len(rows)
    return TeacherForced(
        torch.zeros(words, 2),
        torch.zeros(words, dtype=torch.long),
        torch.tensor(rows),
        torch.tensor(times),
        torch.softmax(scores, -1),
        scores=scores if with_scores else None,
    )


def test_an_even_map_on_half_of_the_cells_loses_log_two() -> None:
    even = torch.full((1, 4), math.log(0.25), requires_grad=True)
    cover = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    assert losses(even, cover, "mass").item() == pytest.approx(math.log(2), abs=1e-4)
    assert losses(even, cover, "spread").item() == pytest.approx(math.log(4))


def test_anywhere_inside_is_right_for_mass_and_evenly_inside_for_spread() -> None:
    one_cell = torch.log_softmax(torch.tensor([[30.0, 0.0, 0.0, 0.0]]), -1)
    both_cells = torch.log_softmax(torch.tensor([[30.0, 0.0, 30.0, 0.0]]), -1)
    cover = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    for log_p in (one_cell, both_cells):
        assert losses(log_p, cover, "mass").item() == pytest.approx(0, abs=1e-5)
    assert losses(both_cells, cover, "spread").item() == pytest.approx(math.log(2))
    assert losses(one_cell, cover, "spread").item() > 10


@pytest.mark.parametrize("with_scores", [True, False])
def test_only_words_that_name_boxes_are_trained(with_scores: bool) -> None:
    """Two captions: "a dog <end>" and "person <end>"."""
    scores = torch.zeros(5, 4, requires_grad=True)
    words = forced(scores, [0, 1, 0, 1, 0], [0, 0, 1, 1, 2], with_scores=with_scores)
    groups = [np.array([-1, 0], np.int32), np.array([1], np.int32)]
    total, count = grounding_loss(words, groups, boxes(), "mass")
    assert count == 2
    assert total.item() == pytest.approx(math.log(2) + math.log(4), abs=1e-4)
    total.backward()
    assert scores.grad is not None
    assert [bool(row.any()) for row in scores.grad] == [False, True, True, False, False]
    assert scores.grad[2].tolist() == pytest.approx([-0.25, 0.25, -0.25, 0.25], abs=1e-4)


def test_a_mirrored_picture_has_mirrored_boxes() -> None:
    scores = torch.zeros(1, 4, requires_grad=True)
    mirrored = boxes(mirrored=True)
    total, _ = grounding_loss(forced(scores, [0], [0]), [np.array([0], np.int32)], mirrored, "mass")
    total.backward()
    assert scores.grad is not None
    assert scores.grad[0].tolist() == pytest.approx([0.25, -0.25, 0.25, -0.25], abs=1e-4)


def test_boxes_outside_the_crop_train_nothing() -> None:
    lower_right = boxes((0.5, 0.5, 1.0, 1.0))
    scores = torch.zeros(1, 4)
    total, count = grounding_loss(forced(scores, [0], [0]), [np.array([1], np.int32)], lower_right, "mass")
    assert (float(total), count) == (0, 0)
    none, count = grounding_loss(forced(scores, [0], [0]), [np.array([-1], np.int32)], lower_right, "mass")
    assert (float(none), count) == (0, 0)


def test_the_auxiliary_head_ignores_images_without_boxes() -> None:
    logits = torch.zeros(2, 3, 4)
    shares = torch.zeros(2, 3, 4)
    loss = cell_category_loss(logits, shares, torch.tensor([True, False]))
    assert loss.item() == pytest.approx(4 * math.log(2) / 2)  # four categories, one of two images


BOXES = {"data__boxes": ["instances_train.json"]}


def test_boxes_train_the_attention_of_nouns(shapes: Path, tmp_path: Path) -> None:
    """The same short run with and without: the loss of nouns that both report falls only where it is trained."""
    final = {}
    for weight in (1.0, 0.0):
        config = tiny_run.write_config(
            tmp_path / f"{weight}.yaml",
            shapes,
            **BOXES,
            training__grounding={"weight": weight},
            training__doubly_stochastic=0.0,
            training__optimizer={"learning_rate": 0.02},
            training__epochs=12,
            training__validation__every=12,
        )
        start(config, folder=tmp_path / str(weight), device="cpu")
        rows = [row["grounding"] for row in tiny_run.read_metrics(tmp_path / str(weight)) if "grounding" in row]
        assert len(rows) == 12
        final[weight] = rows[-1]
    assert final[1.0] < 0.8 * final[0.0]


def test_the_auxiliary_head_learns_with_the_tail_and_is_not_exported(shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(
        tmp_path / "config.yaml",
        shapes,
        **BOXES,
        encoder__tail="stage3",
        training__cell_categories={"weight": 1.0},
        training__tune={"start_epoch": 0, "learning_rate": 1.0},
        training__epochs=6,
        training__validation__every=6,
    )
    run = tmp_path / "run"
    start(config, folder=run, device="cpu")
    rows = [row["cell_categories"] for row in tiny_run.read_metrics(run) if "cell_categories" in row]
    assert rows[-1] < rows[0]
    saved, _ = checkpoint.read(run / "last.safetensors")
    assert sorted(checkpoint.part(saved, "cell_head")) == ["linear.bias", "linear.weight"]
    bundle = export_run(run, tmp_path / "bundle", name="small", licence="MIT", training_data="shapes")
    weights, _ = checkpoint.read(bundle.path("model.safetensors"))
    assert not any("cell_head" in name or "linear" in name for name in weights)


def test_both_also_train_in_the_self_critical_stage(shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(
        tmp_path / "config.yaml",
        shapes,
        **BOXES,
        training__grounding={"weight": 0.1, "kind": "spread"},
        training__cell_categories={},
        training__scst={"start_epoch": 0, "samples": 2},
        training__epochs=1,
    )
    start(config, folder=tmp_path / "run", device="cpu")
    (row,) = [row for row in tiny_run.read_metrics(tmp_path / "run") if "reward" in row]
    assert row["cell_categories"] > 0


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("grounding", {"training__grounding": {}}),
        ("cell_categories", {"training__cell_categories": {}}),
        ("scst.reward.objects", {"training__scst": {"start_epoch": 0, "reward": {"objects": 0.1}}}),
        ("scst.reward.invented", {"training__scst": {"start_epoch": 0, "reward": {"invented": 0.1}}}),
    ],
)
def test_settings_that_need_boxes_say_so(name: str, settings: dict[str, Any], shapes: Path) -> None:
    with pytest.raises(UsageError, match=rf"training\.{name} needs boxes; set data\.boxes"):
        tiny_run.config(shapes, **settings)


def test_objects_and_repeats_are_part_of_the_reward(shapes: Path) -> None:
    totals = {}
    for weight in (0.0, 5.0):
        reward = {"objects": weight, "repeats": weight}
        config = tiny_run.config(
            shapes, **BOXES, training__grounding={}, training__scst={"start_epoch": 0, "reward": reward}
        )
        setup = prepare(config, World(0, 1, torch.device("cpu")))
        assert config.training.scst is not None and setup.box_targets is not None
        stage = SelfCritical(
            config.training.scst, setup.network.decoder, setup.vocabulary, setup.corpus, setup.box_targets
        )
        (label, *_) = setup.box_targets.categories(0)
        captions = [[setup.vocabulary.encode(text)] for text in (f"a {label}", f"a {label} and a {label}")]
        totals[weight] = stage._rewards(captions, np.array([0, 0]))[:, 0]
    assert (totals[5.0] - totals[0.0]).tolist() == pytest.approx([5, 0])  # a category that is there, and a repetition
    assert totals[0.0].all()


@pytest.mark.parametrize(("invented", "cost"), [(None, 5.0), (0.0, 0.0), (2.0, 2.0)])
def test_an_invented_object_costs_its_own_weight_or_that_of_objects(
    invented: float | None, cost: float, shapes: Path
) -> None:
    totals = []
    for reward in ({}, {"objects": 5.0, "invented": invented}):
        config = tiny_run.config(
            shapes, **BOXES, training__grounding={}, training__scst={"start_epoch": 0, "reward": reward}
        )
        setup = prepare(config, World(0, 1, torch.device("cpu")))
        assert config.training.scst is not None and setup.box_targets is not None
        stage = SelfCritical(
            config.training.scst, setup.network.decoder, setup.vocabulary, setup.corpus, setup.box_targets
        )
        absent = sorted(set(setup.box_targets.labels) - set(setup.box_targets.categories(0)))[0]
        totals.append(stage._rewards([[setup.vocabulary.encode(f"a {absent}")]], np.array([0])).item())
    assert totals[0] - totals[1] == pytest.approx(cost)


def test_boxes_of_other_categories_are_refused_when_a_run_is_resumed(shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = tiny_run.write_config(
        tmp_path / "config.yaml", shapes, **BOXES, training__cell_categories={}, training__epochs=1
    )
    start(config, folder=run, device="cpu")
    content = json.loads((shapes / "instances_train.json").read_text())
    content["annotations"] = [a for a in content["annotations"] if a["category_id"] == 1]
    (tmp_path / "other.json").write_text(json.dumps(content))
    with pytest.raises(CaptionerError, match=r"other categories than data\.boxes"):
        start(None, [f"data.boxes=['{tmp_path / 'other.json'}']", "training.epochs=2"], resume=run)
