"""`captioner data`: output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from captioner.cli.data import command
from tests.cli import command_line
from tests.cli.command_line import Done
from tests.data.caption_files import coco, picture, pictures, write


def run(*arguments: object) -> Done:
    return command_line.run("data", *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two training pictures and one of val, all there."""
    write(tmp_path / "captions_train.json", coco({1: ["A dog.", "One dog"], 2: ["A cat"]}))
    write(tmp_path / "captions_val.json", coco({3: ["A yak"]}))
    pictures(tmp_path / "images", [f"{n:012d}.jpg" for n in (1, 2, 3)])
    return tmp_path


def test_a_correct_set_exits_0_and_the_text_has_the_counts(folder: Path) -> None:
    done = run("check", folder, "--min-count", 1)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 images, 4 captions" in done.stdout
    assert "vocabulary of train: 8 words" in done.stdout  # a, dog, one, cat and the special ones
    assert "unknown in val: 50.00% of the words, 100.00% of the captions" in done.stdout
    assert "57.3 KB per image" in done.stdout
    assert "headers read" in done.stdout
    assert done.stdout.rstrip().endswith("ready for training: no problems found")


def test_missing_images_exit_1_and_are_listed_unless_allowed(folder: Path) -> None:
    (folder / "images" / "000000000002.jpg").unlink()
    done = run("check", folder)
    assert done.returncode == 1
    assert "000000000002.jpg" in done.stdout
    assert "error: train: 1 of 2 images are missing" in done.stdout
    assert "is not ready for training" in done.stderr and "Traceback" not in done.stderr
    allowed = run("check", folder, "--allow-missing", "--min-count", 1)
    assert allowed.returncode == 0 and "missing images: 1" in allowed.stdout


def test_json_has_the_same_findings_and_exit_code(folder: Path) -> None:
    (folder / "images" / "000000000003.jpg").write_bytes(b"broken")
    done = run(
        "check", folder / "captions_train.json", folder / "captions_val.json", "--json", "--decode", "--min-count", 1
    )
    content = json.loads(done.stdout)
    assert done.returncode == 1
    assert [split["name"] for split in content["splits"]] == ["train", "val"]
    assert content["splits"][1]["unreadable"][0][0].endswith("000000000003.jpg")
    assert content["problems"] == ["val: 1 images can't be read; replace or delete them"]
    assert content["decoded"] is True
    assert content["features"][0]["bytes"] == 3 * 57_344
    assert content["training"]["parameters"] > 0


def test_two_files_that_share_a_picture_overlap(folder: Path) -> None:
    write(folder / "captions_val.json", coco({2: ["A cat"]}))
    done = run("check", folder / "captions_train.json", folder / "captions_val.json", "--images", folder / "images")
    assert "overlap between train and val:\n  images in both: 1" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{}/no.json"], 2, "no such caption file or folder (from CAPTIONS)"),
        (["{}", "--images", "{}/no"], 2, "no such folder of images (from --images)"),
        (["{}", "--split", "tset"], 2, "no split 'tset'"),
        (["{}", "--format", "coca"], 2, "Did you mean 'coco'?"),
        (["{}", "--images", "{}", "--images", "{}"], 2, "give it once, or once per CAPTIONS"),
        (["{}", "--min-count", "0"], 2, "--min-count"),
        ([], 2, "Missing argument"),
    ],
)
def test_wrong_calls_exit_2_with_the_reason(folder: Path, arguments: list[str], code: int, message: str) -> None:
    done = run("check", *(argument.format(folder) for argument in arguments))
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_pictures_in_train_and_val_are_an_error_as_in_training(folder: Path) -> None:
    write(folder / "captions_val.json", coco({2: ["A cat"]}))
    done = run("check", folder, "--images", folder / "images", "--min-count", 1)
    assert done.returncode == 1 and "error: train and val share 1 images" in done.stdout


def test_rare_words_are_no_reason_to_refuse_a_set_that_can_be_trained_with_a_models_vocabulary(folder: Path) -> None:
    done = run("check", folder)
    assert done.returncode == 0 and "ready for training: no problems found" in done.stdout
    assert "note: no word of train occurs 5 times: a model that is trained from scratch needs a lower" in done.stdout
    assert "note: no word" not in run("check", folder, "--min-count", 1).stdout


def test_a_set_without_val_says_how_to_get_one(folder: Path) -> None:
    done = run("check", folder / "captions_train.json", "--min-count", 1)
    assert done.returncode == 0 and "note: there is no val split; `data.val: 0.1`" in done.stdout


def test_split_writes_a_table_that_every_command_reads(tmp_path: Path) -> None:
    for n in range(20):
        picture(tmp_path / "photos" / f"{n}.jpg", seed=n)
        write(tmp_path / "photos" / f"{n}.txt", f'a "dog", number {n}\na dog\n')
    table = tmp_path / "splits" / "captions.csv"
    done = run("split", tmp_path / "photos", "--val", 0.2, "--test", 0.1, "--output", table)
    assert done.returncode == 0 and "14 train, 4 val, 2 test images, seed 0" in done.stdout
    assert run("check", table, "--min-count", 1, "--decode").returncode == 0
    before = table.read_bytes()
    again = run("split", tmp_path / "photos", "--val", 0.2, "--output", table)
    assert again.returncode == 2 and "exists and is kept" in again.stderr and table.read_bytes() == before
    other = run("split", table, "--output", tmp_path / "more.csv")
    assert other.returncode == 2 and "nothing to divide: it has the splits train, val, test" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "a.json"], "must end in .csv"),
        (["--val", "1.5", "--output", "a.csv"], "--val"),
        (["--val", "0", "--output", "a.csv"], "--val and --test are 0"),
        ([], "--output"),
    ],
)
def test_wrong_calls_of_split_exit_2(folder: Path, arguments: list[str], message: str) -> None:
    done = run("split", folder / "captions_train.json", *arguments)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_the_error_for_truncated_json_has_the_position(folder: Path) -> None:
    file = folder / "captions_train.json"
    file.write_text(file.read_text()[:-20])
    done = run("check", folder)
    assert done.returncode == 1
    assert "captions_train.json: the JSON is cut off" in done.stderr and "line 1, column" in done.stderr


def test_drawn_shapes_pass_the_check(tmp_path: Path) -> None:
    done = run("shapes", tmp_path / "shapes", "--images", 30, "--seed", 5, "--size", 64)
    assert done.returncode == 0
    assert "24 train, 3 val, 3 test images" in done.stdout and "seed 5" in done.stdout
    assert run("check", tmp_path / "shapes", "--decode").returncode == 0
    again = run("shapes", tmp_path / "shapes", "--images", 30)
    assert again.returncode == 2 and "--overwrite" in again.stderr


def test_every_option_has_a_help_text() -> None:
    for subcommand in command.commands.values():
        assert subcommand.help
        options = [parameter for parameter in subcommand.params if isinstance(parameter, click.Option)]
        assert [option.name for option in options if not option.help] == []
