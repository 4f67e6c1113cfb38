"""`captioner train PHOTOS`: from photos with captions to a bundle that captions, without a config."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest
import yaml

from captioner.bundle.loading import load_bundle
from captioner.data.shapes import write_shapes
from captioner.errors import UsageError
from captioner.export.licences import licence_of, obstacle, presumed_licence
from captioner.export.run_bundle import export_run
from captioner.train.start import start
from tests.cli.command_line import run
from tests.data.caption_files import karpathy, picture, write
from tests.train import tiny_run

SEARCH = {"beam": 2, "length_power": 0.3, "repeat_penalty": 1.5, "max_length": 7}
SMALL = [
    *("encoder.name=efficientnet_lite0", f"encoder.size={tiny_run.SIZE}", "encoder.annotations=[stage3]"),
    *("encoder.tail=null", "model.embedding_size=16", "model.hidden_size=16", "model.annotation_size=16"),
    *("model.attention.size=8", "data.minimum_count=1", "training.epochs=2"),
]


def small(cache: Path) -> list[str]:
    return [part for change in (*SMALL, f"features.folder={cache}") for part in ("--set", change)]


def write_photos(folder: Path, count: int, *, seed: int = 0) -> Path:
    """Pictures of shapes with a .txt file beside each."""
    drawn = folder.parent / f"{folder.name}-drawn"
    write_shapes(drawn, count, seed=seed, size=tiny_run.SIZE)
    folder.mkdir()
    for split in ("train", "val", "test"):
        content = json.loads((drawn / f"captions_{split}.json").read_text())
        for image in content["images"]:
            captions = [entry["caption"] for entry in content["annotations"] if entry["image_id"] == image["id"]]
            (drawn / "images" / image["file_name"]).rename(folder / image["file_name"])
            write((folder / image["file_name"]).with_suffix(".txt"), "\n".join(captions))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small bundle with search settings of its own, licensed as Apache-2.0."""
    folder = tmp_path_factory.mktemp("model")
    data = tiny_run.write_data(folder / "shapes", images=30)
    config = tiny_run.write_config(folder / "config.yaml", data, training__validation={"search": SEARCH, "samples": 0})
    start(config, folder=folder / "run", device="cpu")
    return export_run(folder / "run", folder / "bundle", name="small").folder


def test_photos_with_texts_become_a_bundle_by_one_command(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos (2024)", 40)
    limit = ("--set", "training.limit=30")
    done = run("train", "photos (2024)", "--from", model, "--output", "runs/mine", "--device", "cpu", *limit)
    assert done.returncode == 0, done.stderr
    assert "photos (2024): 40 images with 160 captions (no val split)" in done.stdout
    assert "plan: fine-tune the model" in done.stdout and "time: about" in done.stdout
    assert "captioner caption photo.jpg --model runs/mine/bundle" in done.stdout
    record = json.loads(Path("runs/mine/split.json").read_text())
    assert (len(record["train"]), len(record["val"])) == (36, 4)
    bundle = load_bundle(Path("runs/mine/bundle"))
    card = (bundle.folder / "README.md").read_text()
    assert bundle.manifest.licence == "not stated" and bundle.manifest.name == "mine"
    assert "validation while training, 4 images" in bundle.manifest.scored_on
    assert "On 4 images the score is rough" in card and "starting from the model bundle" in card
    assert "Trained on photos (2024): 30 images with 120 captions, seed 0" in card  # neither val nor beyond the limit
    assert "every other setting has its default; --plan prints all" in done.stdout
    captions = run(
        "caption", "photos (2024)", "--model", "runs/mine/bundle", "--format", "jsonl", "--output", "c.jsonl"
    )
    assert captions.returncode == 0 and len(Path("c.jsonl").read_text().splitlines()) == 40
    again = run("train", "photos (2024)", "--from", model, "--output", "runs/mine")
    assert again.returncode == 2 and "exists and is kept" in again.stderr


def test_a_plan_prints_the_whole_config(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos", 40)
    done = run("train", "photos", "--from", model, "--plan", "--device", "cpu")
    assert done.returncode == 0 and not Path("runs").exists()
    printed = done.stdout.partition("with all defaults:\n\n")[2].partition("\ntime: ")[0]
    Path("mine.yaml").write_text(printed)
    from captioner.train.config_file import dump, load

    config = load(Path("mine.yaml"))
    assert printed.strip() == dump(config).strip() and "checkpoint_every: 500" in printed
    assert config.data.val == 0.1 and config.training.start_from == model.absolute()
    search = config.training.validation.search
    assert {name: getattr(search, name) for name in SEARCH} == SEARCH


def test_minutes_choose_the_epochs(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos", 40)
    done = run("train", "photos", "--from", model, "--minutes", 0.001, "--plan", "--device", "cpu")
    least = "8 of 36 pictures, chosen at random, and 3 epochs, which is the least; it takes about"
    assert done.returncode == 0 and least in done.stdout
    assert "does not fit into 0.001 minutes" in done.stdout
    assert "epochs: 3" in done.stdout and "limit: 8" in done.stdout


def test_a_short_time_is_not_spent_on_validation_and_a_hopeless_run_is_named(model: Path) -> None:
    from captioner.train.expected_time import ExpectedTime, too_short, within

    config = tiny_run.config(Path("data"), training__images=32)
    whole = ExpectedTime(encoding=700.0, steps=(600.0,) * 9, validation=300.0, images=6000, validated=1000)
    shorter, expected, said = within(config, whole, 900)
    assert said == ("1,650 of 6,000 pictures and 3 epochs, to fit into 15 minutes; validated on 220 of 1,000 pictures")
    assert expected.total == pytest.approx(900, abs=1)
    assert (shorter.training.limit, shorter.training.validation.images) == (1650, 220)
    assert too_short(shorter, expected) is None
    least, expected, said = within(config, whole, 60)
    assert expected.total == pytest.approx(20 + 82 * 0.1 + 3 * (3.2 + 15), abs=0.1)
    assert said == (
        "32 of 6,000 pictures and 3 epochs, which is the least; it takes about 1:22 and does not fit into 1 minute; "
        "validated on 50 of 1,000 pictures"
    )
    assert "learns next to nothing in 3 steps" in (too_short(least, expected) or "")
    started = least.model_copy(update={"training": least.training.model_copy(update={"start_from": model})})
    assert too_short(started, expected) is None


def test_fewer_pictures_of_a_folder_sorted_by_subject_have_all_subjects(model: Path, tmp_path: Path) -> None:
    from captioner.train.expected_time import ExpectedTime, within
    from captioner.train.presets import choose
    from captioner.train.splits import limited, read_splits

    for n in range(200):
        subject = "beach" if n < 100 else "city"
        picture(tmp_path / "photos" / f"{subject}-{n:03}.jpg", seed=n)
        write(tmp_path / "photos" / f"{subject}-{n:03}.txt", "a red circle")
    config = choose(tmp_path / "photos", start_from=str(model)).config
    time = ExpectedTime(encoding=200.0, steps=(100.0,) * 9, validation=20.0, images=180, validated=20)
    shorter, expected, _ = within(config, time, 130)
    train = limited(read_splits(shorter)[0], shorter.training.limit)
    subjects = [item.path.name.partition("-")[0] for item in train]
    assert len(subjects) == expected.images < 60
    assert 0.25 < subjects.count("city") / len(subjects) < 0.75


@pytest.mark.parametrize(
    ("minutes", "epochs"),
    [(20, 8), (11.5, 6), (6.9, 3)],  # 20 s of export, 60 of encoding, 60 per epoch with a frozen tail, else 120
)
def test_epochs_with_a_trained_tail_count_with_their_own_time(minutes: float, epochs: int) -> None:
    from captioner.train.expected_time import ExpectedTime, within

    expected = ExpectedTime(encoding=60.0, steps=(50.0,) * 2 + (110.0,) * 6, validation=10.0, images=90, validated=10)
    assert expected.total == 20 + 60 + 2 * 60 + 6 * 120
    assert "8 epochs of 0:50 to 1:50, each with 0:10 of validation" in expected.sentence()
    config, shorter, said = within(tiny_run.config(Path("data"), training__epochs=8), expected, 60 * minutes)
    assert len(shorter.steps) == epochs and shorter.total <= 60 * minutes
    assert (config.training.epochs == epochs) and (said is None) == (epochs == 8)


def test_the_expected_time_counts_the_limit_and_measures_the_tail_as_it_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from captioner.model.network import Network
    from captioner.train import expected_time

    trained: list[bool] = []

    class Spy(Network):
        def annotations(self, grid: torch.Tensor) -> torch.Tensor:
            trained.append(any(parameter.requires_grad for parameter in self.encoder.parameters()))
            return super().annotations(grid)

    monkeypatch.setattr(expected_time, "Network", Spy)
    data = tiny_run.write_data(tmp_path / "data")
    tune = {"start_epoch": 2, "end_epoch": 3}
    changes = {"encoder__tail": "stage3", "training__tune": tune, "training__epochs": 4}
    config = tiny_run.config(data, training__limit=5, **changes)
    _, found = expected_time.expected_time(config, torch.device("cpu"))
    assert trained[:4] == [False, False, True, True]  # each is measured in the second call
    assert found.steps[0] == found.steps[1] == found.steps[3] != found.steps[2]
    assert found.images == 5
    trained.clear()
    never = tiny_run.config(data, **{**changes, "training__tune": {"start_epoch": 1000}})
    assert expected_time.expected_time(never, torch.device("cpu"))[1].images == 16
    assert trained[:2] == [False, False] and True not in trained


def test_pictures_without_captions_are_counted(model: Path, tmp_path: Path) -> None:
    from captioner.train.presets import choose

    for n in range(4):
        picture(tmp_path / "photos" / f"{n}.jpg", seed=n)
    write(tmp_path / "photos" / "0.txt", "a red circle")
    assert choose(tmp_path / "photos", start_from=str(model)).notes[0] == (
        "3 of 4 pictures have no caption and are left out"
    )


def test_a_coco_file_is_read_in_a_folder_whatever_its_name(model: Path, tmp_path: Path) -> None:
    from captioner.train.presets import choose

    write_shapes(tmp_path / "shapes", 20, size=tiny_run.SIZE)
    for file in tmp_path.glob("shapes/*.json"):
        file.rename(tmp_path / "shapes" / "captions.json") if file.name == "captions_train.json" else file.unlink()
    assert choose(tmp_path / "shapes", start_from=str(model)).data.startswith("shapes: 16 images with 64 captions")


def test_a_set_with_a_val_split_keeps_it_and_scratch_needs_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shapes(tmp_path / "shapes", 40, seed=1, size=tiny_run.SIZE)
    done = run("train", "shapes", "--from", "scratch", "--device", "cpu", *small(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert "plan: train from scratch, as asked" in done.stdout and "32 train, 4 val, 4 test" in done.stdout
    assert not Path("runs/shapes/split.json").exists()
    assert load_bundle(Path("runs/shapes/bundle")).manifest.licence == "Apache-2.0"
    replaced = run("train", "shapes", "--from", "scratch", "--device", "cpu", "--overwrite", *small(tmp_path / "cache"))
    assert replaced.returncode == 0, replaced.stderr


def test_words_that_the_model_does_not_know_lead_to_scratch(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path / "weights"))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "default").symlink_to(model)
    for n in range(4):
        picture(tmp_path / "photos" / f"{n}.jpg", seed=n)
        write(tmp_path / "photos" / f"{n}.txt", "Ein Hund am Strand")
    from captioner.train.presets import choose

    preset = choose(tmp_path / "photos")
    assert "train from scratch: the model default does not know 100% of the words" in preset.reason
    asked = choose(tmp_path / "photos", start_from=str(model))
    assert asked.config.training.start_from == model and "will never say them: ein, hund, am, strand" in asked.notes[0]


def test_a_test_split_is_never_trained_on(model: Path, tmp_path: Path) -> None:
    from captioner.train.presets import choose
    from captioner.train.splits import read_splits

    for n in range(20):
        picture(tmp_path / "photos" / ("test" if n < 5 else "train") / f"{n}.jpg", seed=n)
        write(tmp_path / "photos" / ("test" if n < 5 else "train") / f"{n}.txt", "a red circle")
    train, val = read_splits(choose(tmp_path / "photos", start_from=str(model)).config)
    assert len(train) + len(val) == 15
    assert all("test" not in str(item.id) for item in (*train, *val))


def test_without_a_train_split_val_is_divided_and_test_is_left_out(model: Path, tmp_path: Path) -> None:
    from captioner.train.presets import choose
    from captioner.train.splits import read_splits

    for n in range(20):
        picture(tmp_path / "photos" / ("test" if n < 5 else "val") / f"{n}.jpg", seed=n)
        write(tmp_path / "photos" / ("test" if n < 5 else "val") / f"{n}.txt", "a red circle")
    preset = choose(tmp_path / "photos", start_from=str(model))
    assert preset.data == "photos: 20 images with 20 captions (no train split)"
    assert preset.notes == (
        "there is no train split, so the pictures of val are divided into train and val",
        "the 5 pictures of test are left out: test is never trained on",
    )
    assert "(15 training captions" in preset.reason
    train, val = read_splits(preset.config)
    assert (len(train), len(val)) == (13, 2)
    assert all("test" not in str(item.id) for item in (*train, *val))


def test_a_set_that_is_only_test_is_refused(model: Path, tmp_path: Path) -> None:
    from captioner.errors import CaptionerError
    from captioner.train.presets import choose

    picture(tmp_path / "photos" / "test" / "0.jpg")
    write(tmp_path / "photos" / "test" / "0.txt", "a red circle")
    with pytest.raises(CaptionerError, match="all pictures are in the split test, which is never trained on"):
        choose(tmp_path / "photos", start_from=str(model))


def test_restval_is_trained_on_as_train_is(model: Path, tmp_path: Path) -> None:
    from captioner.train.presets import choose
    from captioner.train.splits import read_splits

    images = [(f"{n}.jpg", split, ["a red circle"]) for n, split in enumerate(["restval", "restval", "val", "test"])]
    for name, *_ in images:
        picture(tmp_path / "images" / name)
    write(tmp_path / "dataset_tiny.json", karpathy(images))
    train, val = read_splits(choose(tmp_path / "dataset_tiny.json", start_from=str(model)).config)
    assert ({item.path.name for item in train}, {item.path.name for item in val}) == ({"0.jpg", "1.jpg"}, {"2.jpg"})


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 2, "no such caption file or folder (from DATA)"),
        (["photos", "--config", "x.yaml"], 2, "only one of them"),
        (["--minutes", "3"], 2, "--minutes needs DATA"),
        (["photos", "--minutes", "0"], 2, "--minutes"),
        (["photos", "--from", "defalt"], 2, "Did you mean"),
        (["bare"], 1, "no picture has a caption; put a .txt file"),
        (["photos"], 1, "1 picture is too few to be divided into train, val; add pictures with captions"),
        (["photos/a.jpg"], 1, "not a caption file but a binary one, such as a picture; give the folder"),
        (["broken"], 1, "1 of 2 pictures can't be used"),
        (["cut"], 1, "1 of 2 pictures can't be used"),
        (["photos", "--set", "training.epoch=3"], 2, "Did you mean 'epochs'?"),
        ([], 2, "give a folder of photos or --config FILE"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("photos", "bare", "broken"):
        picture(tmp_path / folder / "a.jpg")
    write(tmp_path / "photos" / "a.txt", "a dog")
    for folder, name in itertools.product(("broken", "cut"), ("a", "b")):
        write(tmp_path / folder / f"{name}.txt", "a dog")
    (tmp_path / "cut" / "b.jpg").write_bytes(picture(tmp_path / "cut" / "a.jpg").read_bytes()[:-30])
    (tmp_path / "broken" / "b.jpg").write_bytes(b"no picture")
    done = run("train", *arguments)
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr
    assert not Path("runs").exists()


def test_training_further_keeps_the_search_settings_that_the_config_leaves_out(model: Path, tmp_path: Path) -> None:
    from captioner.train.config_file import load

    path = tmp_path / "config.yaml"
    raw = tiny_run.settings(tmp_path, training__start_from=str(model), training__validation={"search": {"beam": 4}})
    path.write_text(yaml.safe_dump(raw))
    search = load(path).training.validation.search
    assert (search.beam, search.length_power, search.repeat_penalty) == (4, 0.3, 1.5)


NC = "non-commercial research and education"


@pytest.mark.parametrize(
    ("root", "captions", "start_from", "problem", "presumed"),
    [
        ("data", "coco/captions_train.json", None, None, "Apache-2.0"),
        ("data/shapes", "captions_train.json", None, None, "Apache-2.0"),
        ("data", "flickr8k/dataset_flickr8k.json", None, NC, NC),
        ("/data/coco-work/flickr8k", "captions.csv", None, NC, NC),
        ("/data/flickr8k", "coco/captions_train.json", None, NC, NC),
        ("data", "photos/captions.csv", None, "are not known here", "not stated"),
        ("data", "coconuts/captions.csv", None, "are not known here", "not stated"),
        ("data", "photos/captions.csv", "default", "are not known here", "not stated"),
        ("data", "photos/captions.csv", "flickr8k-soft", "are not known here", f"{NC} (Flickr8k)"),
        ("data", "coco/captions_train.json", "flickr8k-soft", f"whose licence is '{NC}", f"{NC} (Flickr8k)"),
        ("data", "flickr8k/captions.csv", "default", NC, NC),
        ("data", "coco/captions_train.json", "runs/nowhere", "which the run started from, are not known", "not stated"),
    ],
)
def test_a_licence_is_asked_for_unless_all_data_allow_apache(
    root: str,
    captions: str,
    start_from: str | None,
    problem: str | None,
    presumed: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(Path(__file__).parents[2] / "weights"))
    changes = {"training__start_from": start_from} if start_from else {}
    config = tiny_run.config(Path(root), data__train=[{"captions": captions}], **changes)
    assert licence_of(config, "MIT") == "MIT"
    assert presumed_licence(config) == presumed
    if problem is None:
        assert licence_of(config, None) == "Apache-2.0"
    else:
        with pytest.raises(UsageError, match=problem):
            licence_of(config, None)


def test_the_terms_of_the_start_are_kept_through_a_run_and_never_widened(model: Path, tmp_path: Path) -> None:
    def presumed(captions: str, start: Path) -> str:
        changes = {"data__train": [{"captions": captions}], "training__start_from": str(start)}
        return presumed_licence(tiny_run.config(Path("data"), **changes))

    shutil.copytree(model, tmp_path / "bought")
    manifest = json.loads((model / "manifest.json").read_text())
    (tmp_path / "bought" / "manifest.json").write_text(json.dumps({**manifest, "licence": "CC-BY-NC-4.0"}))
    assert presumed("coco/captions.json", tmp_path / "bought") == "CC-BY-NC-4.0"
    unknown = presumed("photos/captions.csv", tmp_path / "bought")
    assert unknown == "not stated; it was trained from weights under: CC-BY-NC-4.0"
    (tmp_path / "run").mkdir()
    tiny_run.write_config(tmp_path / "run" / "config.yaml", Path("data"), data__train=[{"captions": "flickr8k.json"}])
    assert presumed("photos/captions.csv", tmp_path / "run") == NC


def test_the_name_of_a_model_is_never_a_folder_here_in_any_part_of_a_run(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder ./default with another licence, other words and other settings of search than the model default."""
    from captioner.train.config_file import load
    from captioner.train.presets import choose
    from captioner.train.setup import InitialWeights

    weights = tmp_path / "weights"
    shutil.copytree(model, weights / "default")
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(weights))
    here = tmp_path / "here"
    shutil.copytree(model, here / "default")
    manifest = json.loads((here / "default" / "manifest.json").read_text())
    manifest["decoding"]["length_power"], manifest["licence"] = 0.9, "another"
    (here / "default" / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.chdir(here)
    picture(Path("photos/1.jpg"), seed=1)
    write(Path("photos/1.txt"), "a red circle")

    def start(name: str) -> tuple[float, str | None, Path, Path | None]:
        raw = tiny_run.settings(here, training__start_from=name, data__train=[{"captions": "coco.json"}])
        Path("config.yaml").write_text(yaml.safe_dump(raw))
        config = load(Path("config.yaml"))
        assert config.training.start_from is not None
        chosen = choose(Path("photos"), start_from=name).config.training.start_from
        source = InitialWeights.of_model(config.training.start_from).source.parent
        return config.training.validation.search.length_power, obstacle(config), source, chosen

    named, by_path = start("default"), start("./default")
    assert (named[0], named[2], named[3]) == (0.3, weights / "default", weights / "default")
    assert (by_path[0], by_path[2], by_path[3]) == (0.9, here / "default", here / "default")
    assert "another" not in (named[1] or "") and "whose licence is 'another'" in (by_path[1] or "")
