"""From a config to a run: vocabulary, initial weights, grids, and errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from captioner.bundle.loading import Bundle, load_bundle
from captioner.errors import CaptionerError, UsageError
from captioner.export.run_bundle import check_parity, export_run
from captioner.text.vocabulary import Vocabulary
from captioner.train import checkpoint, trainer
from captioner.train.distributed import World
from captioner.train.run_folder import RunFolder
from captioner.train.setup import prepare
from captioner.train.splits import limited, read_split, read_splits
from captioner.train.start import encode, start
from tests.train import tiny_run

ALONE = World(0, 1, torch.device("cpu"))
TAIL = {"encoder__tail": "stage3", "training__tune": {"start_epoch": 0, "learning_rate": 1.0}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run with a fine-tuned tail, on its own data set."""
    folder = tmp_path_factory.mktemp("trained")
    data = tiny_run.write_data(folder / "data")
    start(tiny_run.write_config(folder / "config.yaml", data, **TAIL), folder=folder / "run", device="cpu")
    return folder / "run"


@pytest.fixture(scope="module")
def exported(trained: Path) -> Bundle:
    return export_run(trained, trained.parent / "bundle", name="small", licence="MIT", training_data="shapes")


# --- export -------------------------------------------------------------------------------------------------------


def test_an_exported_run_is_a_bundle_that_loads(exported: Bundle, trained: Path) -> None:
    loaded = load_bundle(exported.folder)
    manifest = loaded.manifest
    assert (manifest.name, manifest.licence, manifest.training_data) == ("small", "MIT", "shapes")
    assert manifest.attention == "soft"
    assert (manifest.encoder.image_size, manifest.encoder.rows, manifest.encoder.cols) == (tiny_run.SIZE, 4, 4)
    assert loaded.vocabulary == Vocabulary.load(trained / "vocabulary.json")
    best = json.loads((trained / "best" / "scores.json").read_text())
    assert manifest.scores == {name: round(value, 2) for name, value in best["scores"].items()}
    assert "# small" in (exported.folder / "README.md").read_text()


def test_an_exported_run_gives_the_same_captions_and_maps_as_torch(exported: Bundle) -> None:
    assert check_parity(exported) < 1e-4


def test_a_bundle_that_differs_from_torch_is_refused(trained: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Graphs with other weights than the bundle's must fail the comparison."""
    from captioner.export import run_bundle as export

    real = export.export_graphs  # type: ignore[attr-defined]

    def spoilt(network: Any, folder: Path, **options: Any) -> None:
        real(network, folder, **options)
        graph = folder / "decoder.onnx"
        data = graph.read_bytes()
        assert b"Tanh" in data
        graph.write_bytes(data.replace(b"Tanh", b"Relu"))

    monkeypatch.setattr(export, "export_graphs", spoilt)
    with pytest.raises(CaptionerError, match="export: "):
        export_run(trained, tmp_path / "bundle", licence="MIT")
    assert not (tmp_path / "bundle").exists()


def test_a_bundle_has_the_fine_tuned_tail(exported: Bundle, trained: Path) -> None:
    bundled = checkpoint.read(exported.folder / "model.safetensors")[0]
    best = checkpoint.read(trained / "best" / "model.safetensors")[0]
    began = prepare(tiny_run.config(trained.parent / "data", encoder__tail="stage3"), ALONE).network.state_dict()
    name = "encoder.stages.stage3.0.expand.0.weight"
    assert not torch.equal(best[name], began[name])
    torch.testing.assert_close(bundled[name].float(), best[name], atol=1e-7, rtol=1e-3)  # stored in half


def test_a_run_that_was_never_validated_can_t_be_exported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no best/model\.safetensors"):
        export_run(tmp_path, tmp_path / "bundle")


# --- initial weights -----------------------------------------------------------------------------------


def test_a_run_starts_from_the_best_weights_of_another(trained: Path) -> None:
    config = tiny_run.config(trained.parent / "data", **TAIL, training__start_from=str(trained))
    setup = prepare(config, ALONE)
    best = checkpoint.read(trained / "best" / "model.safetensors")[0]
    weights = setup.network.state_dict()
    assert set(weights) == set(best)
    assert all(torch.equal(weights[name], value) for name, value in best.items())
    assert setup.vocabulary == Vocabulary.load(trained / "vocabulary.json")


def test_a_run_starts_from_the_weights_of_a_bundle(exported: Bundle, trained: Path) -> None:
    config = tiny_run.config(trained.parent / "data", **TAIL, training__start_from=str(exported.folder))
    setup = prepare(config, ALONE)
    best = checkpoint.read(trained / "best" / "model.safetensors")[0]
    for name, value in setup.network.state_dict().items():
        assert value.dtype == best[name].dtype
        torch.testing.assert_close(value, best[name], atol=1e-6, rtol=1e-3)
    assert setup.vocabulary == exported.vocabulary


def test_a_run_does_not_start_from_a_damaged_bundle(exported: Bundle, trained: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(exported.folder, damaged)
    weights = bytearray((damaged / "model.safetensors").read_bytes())
    weights[-1] ^= 1  # still a file of tensors, with one wrong value
    (damaged / "model.safetensors").write_bytes(weights)
    with pytest.raises(CaptionerError, match=r"checksum of model\.safetensors"):
        prepare(tiny_run.config(trained.parent / "data", **TAIL, training__start_from=str(damaged)), ALONE)


def test_a_run_starts_from_a_model_by_its_name(
    exported: Bundle, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `default` does where the wheel is installed, and no weights/default is in the current folder."""
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(exported.folder.parent))
    monkeypatch.chdir(tmp_path)
    config = tiny_run.config(trained.parent / "data", **TAIL, training__start_from=exported.folder.name)
    assert prepare(config, ALONE).vocabulary == exported.vocabulary
    unknown = tiny_run.config(trained.parent / "data", **TAIL, training__start_from="nosuch")
    with pytest.raises(UsageError, match="unknown model 'nosuch'"):
        prepare(unknown, ALONE)


def test_a_run_that_starts_from_a_bundle_uses_the_features_encoded_before(
    exported: Bundle, trained: Path, tmp_path: Path
) -> None:
    how = {**TAIL, "training__start_from": str(exported.folder), "features__folder": str(tmp_path / "cache")}
    encode(tiny_run.write_config(tmp_path / "config.yaml", trained.parent / "data", **how), device="cpu")
    (cache,) = (tmp_path / "cache").iterdir()
    prepare(tiny_run.config(trained.parent / "data", **how), ALONE)
    assert list((tmp_path / "cache").iterdir()) == [cache]


def test_the_vocabulary_comes_with_the_weights_not_from_the_data(trained: Path, tmp_path: Path) -> None:
    data = tiny_run.write_data(tmp_path / "data", 12, seed=9)
    captions = data / "captions_train.json"
    captions.write_text(captions.read_text().replace("circle", "disc"))
    setup = prepare(tiny_run.config(data, **TAIL, training__start_from=str(trained)), ALONE)
    assert "disc" not in setup.vocabulary
    assert setup.vocabulary == Vocabulary.load(trained / "vocabulary.json")


def test_a_resumed_run_finds_the_features_of_the_weights_it_started_from(trained: Path, tmp_path: Path) -> None:
    """A trunk with other weights has another cache, and a resumed run must find it."""
    data = trained.parent / "data"
    other = tmp_path / "other"
    other_encoder = {"weights": "none", "name": "efficientnet_lite0", "size": tiny_run.SIZE, "annotations": ["stage3"]}
    how = {"encoder": other_encoder, "training__epochs": 1, "seed": 11}
    start(tiny_run.write_config(tmp_path / "other.yaml", data, **how), folder=other, device="cpu")
    config = tiny_run.write_config(tmp_path / "config.yaml", data, training__epochs=1, training__start_from=str(other))
    start(config, folder=tmp_path / "run", device="cpu")
    before = checkpoint.read(RunFolder(tmp_path / "run").checkpoint)[0]
    assert torch.equal(
        before["network.encoder.stages.stem.0.weight"],
        checkpoint.read(RunFolder(other).checkpoint)[0]["network.encoder.stages.stem.0.weight"],
    )
    caches = set((data / "cache").iterdir())
    start(None, ["training.epochs=2"], resume=tmp_path / "run", device="cpu")
    assert set((data / "cache").iterdir()) == caches
    after = checkpoint.read(RunFolder(tmp_path / "run").checkpoint)[0]
    assert torch.equal(after["network.encoder.stages.stem.0.weight"], before["network.encoder.stages.stem.0.weight"])


def test_the_error_of_weights_that_do_not_fit_names_the_settings_that_do(trained: Path, exported: Bundle) -> None:
    larger = {**TAIL, "model__hidden_size": 24, "model__dropout": 0.4, "encoder__annotations": ["stage4"]}
    config = tiny_run.config(trained.parent / "data", **TAIL)
    wanted = f"model.hidden_size={config.model.hidden_size}"
    for source in (trained, exported.folder):
        with pytest.raises(UsageError, match=r"model\.safetensors does not fit the model") as raised:
            prepare(tiny_run.config(trained.parent / "data", **larger, training__start_from=str(source)), ALONE)
        _, _, settings = str(raised.value).partition("does not fit the model: it was built with ")
        assert settings == f"encoder.annotations={json.dumps(config.encoder.annotations)}, {wanted}"


def test_the_error_of_weights_names_a_pyramid_that_only_one_of_the_models_has(shapes: Path, tmp_path: Path) -> None:
    encoder = {"encoder__tail": "stage3", "encoder__annotations": ["stage4"], "training__epochs": 1}
    pyramid = {**encoder, "encoder__pyramid": {"size": 12, "blocks": 1}}
    for name, settings, other, message in (
        ("without", encoder, pyramid, "encoder.pyramid=null"),
        ("with", pyramid, encoder, "encoder.pyramid.size=12, encoder.pyramid.blocks=1"),
        ("larger", pyramid, {**pyramid, "encoder__pyramid": {"size": 16, "blocks": 1}}, "encoder.pyramid.size=12"),
    ):
        config = tiny_run.write_config(tmp_path / "config.yaml", shapes, **settings)
        start(config, folder=tmp_path / name, device="cpu")
        with pytest.raises(UsageError, match="does not fit the model") as raised:
            prepare(tiny_run.config(shapes, **other, training__start_from=str(tmp_path / name)), ALONE)
        assert str(raised.value).endswith(f"it was built with {message}")


def test_missing_weights_are_named(trained: Path, tmp_path: Path) -> None:
    data = trained.parent / "data"
    with pytest.raises(UsageError, match=r"training\.start_from: .* has no vocabulary\.json; give the folder of a bun"):
        prepare(tiny_run.config(data, training__start_from=str(tmp_path)), ALONE)
    with pytest.raises(UsageError, match=r"training\.start_from: no such folder: .*nowhere"):
        prepare(tiny_run.config(data, training__start_from=str(tmp_path / "nowhere")), ALONE)


# --- data ---------------------------------------------------------------------------------------------------------


def test_the_vocabulary_comes_from_the_training_split_alone(tmp_path: Path) -> None:
    data = tiny_run.write_data(tmp_path / "data", 12)
    val = data / "captions_val.json"
    val.write_text(val.read_text().replace("there is", "behold"))
    setup = prepare(tiny_run.config(data), ALONE)
    assert "behold" not in setup.vocabulary
    assert "there" in setup.vocabulary


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__train": [{"captions": "none.json"}]}, r"none\.json: no such caption file .*data\.train\.0\.captions"),
        ({"data__val": [{"captions": "captions_val.json", "images": "no"}]}, r"data\.val\.0\.images"),
        ({"data__val": []}, r"data\.val lists no source"),
        ({"data__train": [{"captions": "captions_train.json", "split": "tset"}]}, r"no split 'tset'.*It has: train"),
        ({"data__val": [{"captions": "captions_train.json"}]}, r"images are in data\.train and in data\.val"),
        ({"encoder__name": "efficientnet_lite9"}, r"unknown encoder 'efficientnet_lite9'\. Did you mean"),
        ({"encoder__tail": "stage77"}, r"unknown first stage of the tail .* 'stage77'"),
    ],
)
def test_the_error_of_missing_data_names_the_setting(changes: dict[str, Any], message: str, shapes: Path) -> None:
    with pytest.raises(CaptionerError, match=message):
        prepare(tiny_run.config(shapes, **changes), ALONE)


def test_missing_images_are_an_error_unless_allowed(tmp_path: Path) -> None:
    data = tiny_run.write_data(tmp_path / "data", 12)
    (data / "images" / "shapes_000003.png").unlink()
    with pytest.raises(CaptionerError, match=r"data\.train: 1 of 10 images are missing.*shapes_000003\.png"):
        prepare(tiny_run.config(data), ALONE)
    setup = prepare(tiny_run.config(data, data__allow_missing=True), ALONE)
    assert len(setup.corpus) == 9


def test_the_error_of_truncated_json_names_the_position(tmp_path: Path) -> None:
    data = tiny_run.write_data(tmp_path / "data", 12)
    file = data / "captions_train.json"
    file.write_text(file.read_text()[:200])
    with pytest.raises(CaptionerError, match=r"captions_train\.json: the JSON is cut off .* line 1, column"):
        prepare(tiny_run.config(data), ALONE)


def test_grids_belong_to_their_images_and_training_samples_views(shapes: Path) -> None:
    setup = prepare(tiny_run.config(shapes, features__flip=True), ALONE)
    positions = np.array([5, 0, 5])
    plain = setup.train_grids(positions)
    assert torch.equal(plain[0], plain[2])
    assert torch.equal(plain[1], setup.train_grids(np.array([0]))[0])
    views = [setup.train_grids.augmented(positions, np.random.default_rng(seed)).grids[0] for seed in range(12)]
    mirrored = [not torch.equal(view, plain[0]) for view in views]
    assert 2 <= sum(mirrored) <= 10


def test_crops_of_a_step_have_one_size_and_different_offsets(shapes: Path) -> None:
    setup = prepare(tiny_run.config(shapes, training__crop=0.5), ALONE)
    positions = np.array([5, 5, 5, 0])
    whole = setup.train_grids(positions)  # as validation reads them
    assert whole.shape[2:] == (4, 4)
    sizes, apart = set(), False
    for seed in range(40):
        parts = setup.train_grids.augmented(positions, np.random.default_rng(seed)).grids
        assert torch.equal(parts, setup.train_grids.augmented(positions, np.random.default_rng(seed)).grids)
        height, width = parts.shape[2:]
        for part, grid in zip(parts, whole, strict=True):
            windows = grid.unfold(1, height, 1).unfold(2, width, 1)  # (C, tops, lefts, height, width)
            assert (windows == part[:, None, None]).all((0, 3, 4)).any()
        sizes.add((height, width))
        apart |= not torch.equal(parts[0], parts[1])
    assert sizes == {(h, w) for h in (2, 3, 4) for w in (2, 3, 4)}
    assert apart


def test_a_crop_is_never_smaller_than_the_share(shapes: Path) -> None:
    grids = prepare(tiny_run.config(shapes, training__crop=0.6), ALONE).train_grids
    sides = {
        side
        for seed in range(40)
        for side in grids.augmented(np.array([0]), np.random.default_rng(seed)).grids.shape[2:]
    }
    assert sides == {3, 4}


def test_decoders_that_ignore_rows_and_columns_accept_crops(shapes: Path) -> None:
    tiny_run.config(shapes, training__crop=0.8, model__attention={"location": "coverage"})
    tiny_run.config(shapes, training__crop=0.8, model__grid_encoder="lstm")


def test_crops_of_grids_are_refused_when_training_from_pixels(shapes: Path) -> None:
    with pytest.raises(UsageError, match=r"training\.crop=0\.8 .*encoder\.tail=stem .*set training\.crop=1"):
        prepare(tiny_run.config(shapes, encoder__tail="stem", training__crop=0.8), ALONE)


def test_a_share_of_the_training_images_is_the_validation_split_and_is_recorded(tmp_path: Path) -> None:
    data = tiny_run.write_data(tmp_path / "data")
    config = tiny_run.config(data, data__val=0.25, training__epochs=1)
    train, val = read_splits(config)
    assert (len(train), len(val)) == (12, 4)
    assert not {item.id for item in train} & {item.id for item in val}
    run = tmp_path / "run"
    run.mkdir()
    trainer.train(config, run, ALONE)
    record = json.loads((run / "split.json").read_text())
    assert record["share"] == 0.25 and record["seed"] == config.seed
    assert record["val"] == [item.id for item in val] and record["train"] == [item.id for item in train]
    other = tiny_run.config(data, data__val=0.25, seed=config.seed + 1)
    assert {item.id for item in read_splits(other)[1]} != {item.id for item in val}


@pytest.mark.parametrize("val", [0.25, [{"captions": "captions_val.json"}]])
def test_shuffled_splits_have_the_same_images_in_an_order_of_the_seed(tmp_path: Path, val: Any) -> None:
    data = tiny_run.write_data(tmp_path / "data", images=60)

    def ids(**changes: Any) -> list[list[int | str]]:
        config = tiny_run.config(data, data__val=val, **changes)
        splits = read_splits(config)
        assert [split.items for split in splits] == [read_split(config, name).items for name in ("train", "val")]
        return [[item.id for item in split] for split in splits]

    ordered, shuffled = ids(), ids(data__shuffle=True)
    assert ordered == [sorted(split) for split in ordered]
    assert shuffled != ordered and shuffled == ids(data__shuffle=True)
    assert [sorted(split) for split in shuffled] == ordered
    assert ids(data__shuffle=True, seed=4)[0] != shuffled[0]


def test_a_limit_of_a_shuffled_split_takes_a_random_choice(tmp_path: Path) -> None:
    data = tiny_run.write_data(tmp_path / "data", images=60)
    setup = prepare(
        tiny_run.config(data, data__shuffle=True, training__limit=12, training__validation={"images": 3}), ALONE
    )
    first = [item.id for item in limited(read_splits(tiny_run.config(data))[1], 3)]
    assert (len(setup.corpus), len(setup.val_set)) == (12, 3)
    assert [item.id for item in setup.val_set] != first


def test_a_run_is_not_resumed_with_other_images_in_its_splits(tmp_path: Path) -> None:
    data = tiny_run.write_data(tmp_path / "data")
    config = tiny_run.config(data, data__val=0.25, training__epochs=1)
    run = tmp_path / "run"
    run.mkdir()
    trainer.train(config, run, ALONE)
    tiny_run.write_data(tmp_path / "more", images=30)
    moved = tiny_run.config(tmp_path / "more", data__val=0.25, training__epochs=2)
    with pytest.raises(CaptionerError, match=r"the images are not those of .*split\.json any more"):
        trainer.train(moved, run, ALONE, resume=True)


def test_words_that_are_all_too_rare_are_refused(tmp_path: Path) -> None:
    data = tiny_run.write_data(tmp_path / "data")
    with pytest.raises(CaptionerError, match=r"no word of data\.train occurs 999 times.*lower data\.minimum_count"):
        prepare(tiny_run.config(data, data__minimum_count=999), ALONE)


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.1])
def test_a_share_is_between_0_and_1(tmp_path: Path, share: float) -> None:
    with pytest.raises(UsageError, match=r"data\.val: input should be (greater|less) than"):
        tiny_run.config(tmp_path, data__val=share)
