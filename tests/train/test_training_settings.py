"""Settings of the training loop and their effects: rates, tail, precision, EMA, word dropout."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from captioner.errors import UsageError
from captioner.model import loss as objective
from captioner.text.vocabulary import Vocabulary
from captioner.train import checkpoint
from captioner.train import trainer as loops
from captioner.train.batch_loss import BatchLoss, ForwardPass, drop_words
from captioner.train.ema import EMA
from captioner.train.run_folder import RunFolder
from captioner.train.setup import make_optimizer, prepare
from captioner.train.start import start
from captioner.workarounds import half_precision
from captioner.workarounds.half_precision import works_on_cpu
from tests.train import tiny_run
from tests.train.short_runs import ALONE, NO_DROPOUT, STEADY, run, training


def test_loss_settings_reach_the_loss(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    real = objective.loss

    def spy(reading: Any, captions: int, **how: Any) -> objective.Loss:
        seen.append(how)
        return real(reading, captions, **how)

    monkeypatch.setattr(objective, "loss", spy)
    run(
        shapes,
        tmp_path / "run",
        model__attention={"mode": "hard", "size": 8},
        training__epochs=1,
        training__label_smoothing=0.15,
        training__doubly_stochastic=0.4,
        training__hard={"reward": 0.3, "entropy": 0.05, "baseline": 0.8, "expected": 0.25},
    )
    assert all(how["label_smoothing"] == 0.15 and how["doubly_stochastic"] == 0.4 for how in seen)
    assert [how["reward"] for how in seen] == [0.0, 0.3, 0.3, 0.3]  # no reward before there is a baseline
    assert all(how["entropy"] == 0.05 for how in seen)
    assert all(how["baseline"] < 0 for how in seen[1:])


def test_the_baseline_is_the_moving_average_of_sampled_words(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled: list[list[float]] = []
    real = objective.loss

    def spy(*args: Any, **how: Any) -> objective.Loss:
        result = real(*args, **how)
        sampled.append(result.sampled.tolist())
        return result

    monkeypatch.setattr(objective, "loss", spy)
    hard = {"baseline": 0.8, "expected": 0.5}
    run(shapes, tmp_path / "run", model__attention={"mode": "hard", "size": 8}, training__hard=hard)
    expected = None
    for log_probability, words in sampled:
        assert words > 0
        mean = log_probability / words
        expected = mean if expected is None else 0.8 * expected + 0.2 * mean
    state = checkpoint.read(RunFolder(tmp_path / "run").checkpoint)[1]
    assert state["baseline"] == pytest.approx(expected, rel=1e-12)
    assert tiny_run.read_metrics(tmp_path / "run")[-2]["baseline"] == state["baseline"]


def test_the_probability_of_scheduled_sampling_grows_each_epoch(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chances: list[float] = []
    real = BatchLoss._forward

    def spy(self: BatchLoss, *args: Any, **how: Any) -> Any:
        chances.append(how["own_words"])
        return real(self, *args, **how)

    monkeypatch.setattr(BatchLoss, "_forward", spy)
    sampling = {"start_epoch": 1, "increase": 0.2, "maximum": 0.3}
    run(shapes, tmp_path / "run", training__epochs=3, training__images=16, training__scheduled_sampling=sampling)
    assert chances == pytest.approx([0, 0.2, 0.3])


def test_the_rate_follows_warm_up_and_cosine(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "LOG_EVERY", 1)
    schedule = {"name": "cosine", "warmup": 2, "floor": 0.1}
    _, rows = run(shapes, tmp_path / "run", training__optimizer={"learning_rate": 0.01}, training__schedule=schedule)
    wave = [0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * k / 6)) for k in range(6)]
    assert [row["rate"] for row in training(rows)] == pytest.approx([0.005, 0.01, *(0.01 * w for w in wave)])


def test_the_rate_falls_when_the_score_stops_rising(shapes: Path, tmp_path: Path) -> None:
    _, rows = run(
        shapes,
        tmp_path / "run",
        training__epochs=6,
        training__images=16,
        training__optimizer={"learning_rate": 1e-9},
        training__schedule={"name": "plateau", "warmup": 0, "factor": 0.5, "patience": 1},
    )
    # The first validation is the best. The second is within the patience, the third steps down, and so on.
    assert [row["rate"] / 1e-9 for row in training(rows)] == pytest.approx([1, 1, 1, 0.5, 0.5, 0.25])


def test_optimizers_are_those_of_torch_and_the_tail_has_its_own_rate(shapes: Path) -> None:
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}
    for name, kind in kinds.items():
        settings = {"name": name, "learning_rate": 0.01, "weight_decay": 0.1, "betas": [0.8, 0.9]}
        config = tiny_run.config(
            shapes,
            encoder__tail="stage3",
            training__optimizer=settings,
            training__tune={"learning_rate": 0.3},
        )
        setup = prepare(config, ALONE)
        optimizer = make_optimizer(config, setup)
        assert type(optimizer) is kind
        assert [group["lr_factor"] for group in optimizer.param_groups] == [1.0, 0.3]
        assert all(group["weight_decay"] == 0.1 for group in optimizer.param_groups)
        if name != "rmsprop":
            assert all(tuple(group["betas"]) == (0.8, 0.9) for group in optimizer.param_groups)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        assert {id(p) for p in parameters} == {id(p) for p in setup.trainable.values()}


def test_the_tail_is_trained_from_its_epoch_on_and_the_trunk_never(shapes: Path, tmp_path: Path) -> None:
    how = {"encoder__tail": "stage3", "encoder__annotations": ["stage4"], "training__images": 8}
    tune = {"start_epoch": 1, "from_stage": "stage4"}
    first, _ = run(shapes, tmp_path / "first", **how, training__epochs=1, training__tune=tune)
    both, _ = run(shapes, tmp_path / "both", **how, training__epochs=2, training__tune=tune)
    torch.manual_seed(3)
    began = prepare(tiny_run.config(shapes, **how), ALONE).network.state_dict()
    moved = {name for name in both if name.startswith("encoder.") and not torch.equal(both[name], began[name])}
    assert moved
    assert all(name.startswith("encoder.stages.stage4.") for name in moved)
    assert not any("running" in name or "tracked" in name for name in moved)  # batch-norm statistics
    assert all(torch.equal(first[name], began[name]) for name in first if name.startswith("encoder."))


def test_the_pyramid_is_trained_at_the_full_rate_from_the_first_epoch_on(shapes: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"encoder__tail": "stage3", "encoder__annotations": ["stage4"], "training__epochs": 1}
    how |= {"encoder__pyramid": {"size": 12, "blocks": 1}, "training__tune": {"start_epoch": 1, "learning_rate": 0.25}}
    after, _ = run(shapes, tmp_path / "run", **how)
    config = tiny_run.config(shapes, **how)
    torch.manual_seed(3)
    setup = prepare(config, ALONE)
    began = setup.network.state_dict()
    moved = {name for name in after if name.startswith("encoder.") and not torch.equal(after[name], began[name])}
    assert moved == {name for name in began if name.startswith("encoder.pyramid.")}
    assert not began["encoder.pyramid.lateral.weight"].any()
    full, tail = make_optimizer(config, setup).param_groups
    assert (full["lr_factor"], tail["lr_factor"]) == (1.0, 0.25)
    in_full, in_tail = ({id(p) for p in group["params"]} for group in (full, tail))
    assert {id(p) for p in setup.network.encoder.pyramid.parameters()} <= in_full
    assert in_tail == {id(p) for p in setup.network.encoder.stages.parameters() if p.requires_grad}
    assert in_full | in_tail == {id(p) for p in setup.trainable.values()}


def test_the_encoder_keeps_its_averaged_weights_from_the_end_of_its_training_on(shapes: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {
        **STEADY,
        "data__boxes": ["instances_train.json"],
        "encoder__tail": "stage3",
        "encoder__annotations": ["stage4"],
        "encoder__pyramid": {"size": 12, "blocks": 1},
        "training__ema": 0.5,
        "training__cell_categories": {},
        "training__epochs": 2,
    }
    run(shapes, tmp_path / "whole", **how, training__tune={"end_epoch": 2})
    whole, _ = checkpoint.read(RunFolder(tmp_path / "whole").checkpoint)
    run(shapes, tmp_path / "first", **(how | {"training__epochs": 1}))
    first, _ = checkpoint.read(RunFolder(tmp_path / "first").checkpoint)
    weights, rows = run(shapes, tmp_path / "ended", **how, training__tune={"end_epoch": 1})
    ended, _ = checkpoint.read(RunFolder(tmp_path / "ended").checkpoint)
    of_encoder = [name.removeprefix("average.") for name in ended if name.startswith("average.encoder.")]
    assert {name.split(".")[1] for name in of_encoder} == {"stages", "pyramid"}
    for name in of_encoder:
        assert torch.equal(ended[f"average.{name}"], first[f"average.{name}"]), name
        assert torch.equal(weights[name], first[f"average.{name}"]), name
    moved = {name for name in of_encoder if not torch.equal(whole[f"average.{name}"], first[f"average.{name}"])}
    assert {name.split(".")[1] for name in moved} == {"stages", "pyramid"}
    decoder = "average.decoder.embedding.weight"
    assert not torch.equal(ended[decoder], first[decoder])
    assert ["cell_categories" in row for row in training(rows)] == [True, False]


def test_an_unknown_stage_to_fine_tune_from_is_named(shapes: Path) -> None:
    config = tiny_run.config(shapes, encoder__tail="stage3", training__tune={"from_stage": "stage9"})
    with pytest.raises(UsageError, match=r"unknown stage .*training\.tune\.from_stage.*'stage9'\. Did you mean 'stage"):
        prepare(config, ALONE)


def test_an_empty_trunk_is_trained_from_augmented_pixels(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from captioner.train import grids as sources

    numbers: list[tuple[float, ...]] = []
    real = sources.augment

    def spy(image: Any, uniform: Any) -> Any:
        numbers.append(tuple(uniform))
        return real(image, uniform)

    monkeypatch.setattr(sources, "augment", spy)
    how = {"encoder__tail": "stem", "encoder__annotations": ["stage2"]}
    weights, _ = run(shapes, tmp_path / "run", **how)
    torch.manual_seed(3)
    began = prepare(tiny_run.config(shapes, **how), ALONE).network.state_dict()
    assert not torch.equal(weights["encoder.stages.stem.0.weight"], began["encoder.stages.stem.0.weight"])
    assert torch.equal(weights["encoder.stages.stem.1.running_mean"], began["encoder.stages.stem.1.running_mean"])
    assert len(numbers) == len(set(numbers)) == 32  # 16 images, two epochs; none in validation
    run(shapes, tmp_path / "plain", **how, training__augment=False)
    assert len(numbers) == 32


def test_augmentation_crops_little_and_mirrors_half_the_time() -> None:
    from PIL import Image

    from captioner.train.grids import augment

    across = np.tile(np.arange(100, dtype=np.uint8), (80, 1))
    image = Image.fromarray(np.stack([across] * 3, -1))
    whole = augment(image, np.array([1.0, 1.0, 0.5, 0.5, 0.9]))
    assert whole.size == (100, 80)
    assert np.array_equal(np.asarray(whole), np.asarray(image))
    small = np.asarray(augment(image, np.array([0.0, 0.0, 1.0, 0.0, 0.1])))
    assert small.shape == (60, 75, 3)
    assert small[0, 0, 0] == 99  # the right part, mirrored
    assert small[0, -1, 0] == 25


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_training_in_half_precision_gives_a_similar_loss(precision: str, shapes: Path, tmp_path: Path) -> None:
    if not works_on_cpu(precision):
        pytest.skip(f"{precision} ends in an illegal instruction on this processor")
    how = {**NO_DROPOUT, "training__epochs": 1}
    exact, rows = run(shapes, tmp_path / "exact", **how)
    mixed, other = run(shapes, tmp_path / "mixed", **how, training__precision=precision)
    loss, mixed_loss = training(rows)[0]["loss"], training(other)[0]["loss"]
    assert mixed_loss != loss
    assert mixed_loss == pytest.approx(loss, rel=0.02)
    assert all(mixed[name].dtype == value.dtype for name, value in exact.items())


def test_a_precision_that_does_not_work_here_is_refused_before_the_run(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_precision, "works_on_cpu", lambda precision: False)
    with pytest.raises(UsageError, match=r"training\.precision: bfloat16"):
        run(shapes, tmp_path / "run", training__precision="bfloat16")
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())


def test_compile_wraps_the_whole_forward_pass(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[torch.nn.Module] = []

    def spy(module: torch.nn.Module, *, dynamic: bool) -> torch.nn.Module:
        assert dynamic  # the length of captions differs between steps
        compiled.append(module)
        return module

    monkeypatch.setattr(torch, "compile", spy)
    run(shapes, tmp_path / "run", training__epochs=1, training__compile=True)
    assert [type(module) for module in compiled] == [ForwardPass]


def test_a_limit_trains_on_the_first_images(shapes: Path) -> None:
    setup = prepare(tiny_run.config(shapes, training__limit=5, training__validation={"images": 1}), ALONE)
    captions = json.loads((shapes / "captions_train.json").read_text())["annotations"][:20]
    numbers = [numbers for image in range(5) for numbers in setup.corpus.captions_of(image)]
    assert [setup.vocabulary.decode(words) for words in numbers] == [caption["caption"] for caption in captions]
    assert len(setup.corpus) == 5
    assert len(setup.val_set) == 1


def test_the_ema_follows_its_formula_and_is_swapped_in_for_validation(shapes: Path) -> None:
    setup = prepare(tiny_run.config(shapes), ALONE)
    average = EMA(setup.trainable, 0.5)
    name, weight = next(iter(setup.trainable.items()))
    with torch.no_grad():
        weight.fill_(2.0)
        average.tensors[name].fill_(1.0)
        average.update(0)  # the decay starts small: min(0.5, 1 / 10)
        torch.testing.assert_close(average.tensors[name], torch.full_like(weight, 0.1 * 1 + 0.9 * 2))
        average.tensors[name].fill_(1.0)
        average.update(1000)
        torch.testing.assert_close(average.tensors[name], torch.full_like(weight, 1.5))
    with average.swapped_in():
        assert float(weight.detach().mean()) == 1.5
    assert float(weight.detach().mean()) == 2.0
    assert EMA(setup.trainable, None).tensors == {}


def test_the_best_model_has_the_averaged_weights(shapes: Path, tmp_path: Path) -> None:
    run(shapes, tmp_path / "run", training__epochs=1, training__ema=0.9)
    saved, _ = checkpoint.read(RunFolder(tmp_path / "run").checkpoint)
    best, _ = checkpoint.read(tmp_path / "run" / "best" / "model.safetensors")
    for name, value in checkpoint.part(saved, "average").items():
        assert torch.equal(best[name], value)
    assert not torch.equal(best["decoder.embedding.weight"], saved["network.decoder.embedding.weight"])


def test_word_dropout_replaces_a_share_of_the_input_words_only() -> None:
    words = torch.arange(4, 4004).view(10, 20, 20)
    inputs = torch.cat([torch.full((10, 20, 1), Vocabulary.start), words], -1)
    vocabulary = Vocabulary(("<pad>", "<start>", "<end>", "<unk>"))
    dropped = drop_words(inputs, 0.25, vocabulary, torch.Generator().manual_seed(0))
    unknown = dropped == vocabulary.unk
    assert torch.equal(dropped[~unknown], inputs[~unknown])
    assert torch.equal(dropped[..., 0], inputs[..., 0])
    assert unknown[..., 1:].float().mean().item() == pytest.approx(0.25, abs=0.03)


def test_word_dropout_changes_training_and_not_what_is_predicted(shapes: Path, tmp_path: Path) -> None:
    rows = {}
    for share in (0.0, 0.5):
        config = tiny_run.write_config(
            tmp_path / f"{share}.yaml", shapes, training__word_dropout=share, training__epochs=1
        )
        start(config, folder=tmp_path / str(share), device="cpu")
        rows[share] = tiny_run.read_metrics(tmp_path / str(share))[0]
    assert rows[0.0]["nll"] != rows[0.5]["nll"]
