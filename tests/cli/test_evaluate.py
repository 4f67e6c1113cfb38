"""`captioner evaluate`: output, files and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli import command_line
from tests.data.caption_files import coco, write
from tests.tiny_bundle import SIDE

REFERENCES = {12: ["a cat on the mat", "the cat"], 4: ["a dog runs"], 9: ["the dog sleeps", "a dog"]}


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    blocks = np.random.default_rng(2).integers(0, 256, (3, 2, 2, 3), np.uint8)
    (tmp_path / "images").mkdir()
    for image, block in zip(REFERENCES, blocks, strict=True):
        pixels = block.repeat(SIDE // 2, 0).repeat(SIDE // 2, 1)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{image:012d}.png")
    return write(tmp_path / "captions_val.json", coco(REFERENCES, "{:012d}.png"))


@pytest.fixture
def run(model):
    def run(*arguments: object, command: str = "evaluate") -> tuple[int, str, str]:
        with_model = ("--model", model) if command == "evaluate" and "--model" not in arguments else ()
        done = command_line.run(command, *arguments, *with_model)
        return done.returncode, done.stdout, done.stderr

    return run


def test_the_text_has_every_score_and_figure(run, data) -> None:
    code, out, _ = run("--data", data, "--split", "val")
    assert code == 0
    for name in ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr", "SPICE"):
        assert any(line.split()[:1] == [name] for line in out.splitlines())
    for part in ("3 images, free-running, beam 2", "words per caption", "distinct-2", "perplexity", "teacher-forced"):
        assert part in out
    for part in ("entropy of a map", "moves from word to word", "give them with --boxes", "CIDEr is unreliable on 3"):
        assert part in out


def test_json_has_all_figures(run, data) -> None:
    code, out, _ = run("--data", data, "--split", "val", "--json", "--beam", 3, "--deletion", 2)
    assert code == 0
    told = json.loads(out)
    assert (told["images"], told["split"], told["search"]["beam"]) == (3, "val", 3)
    assert set(told["intervals"]) == set(told["scores"]) >= {"BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr"}
    for name, value in told["scores"].items():
        low, high = told["intervals"][name]
        assert 0 <= low <= value + 1e-3 and value <= high + 1e-3  # BLEU of next to nothing is smoothed
    assert told["captions"]["captions"] == 3 and told["likelihood"]["captions"] == 5
    assert told["maps"]["cells"] == 4 and told["deletion"]["images"] <= 2
    assert told["boxes"] is None and "boxes" in told["not_measured"]


def test_the_results_file_gives_the_same_scores(run, data, tmp_path) -> None:
    _, out, _ = run("--data", data, "--split", "val", "--json", "--results", "results.json")
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [entry["image_id"] for entry in results] == list(REFERENCES)
    assert all(set(entry) == {"image_id", "caption"} for entry in results)
    code, scored, _ = run("--results", "results.json", "--references", data, "--json", command="score")
    assert code == 0
    expected = json.loads(out)["scores"]
    assert json.loads(scored)["scores"] == pytest.approx(expected, abs=0.01)


def test_the_report_is_complete(run, data, tmp_path) -> None:
    code, _, _ = run("--data", data, "--split", "val", "--report", "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert code == 0
    assert text.count("data:image/jpeg;base64,") == 2  # of three images: one worst, one best
    assert "Worst captions" in text and "Length" in text and "</html>" in text


@pytest.mark.parametrize("option", ["--results", "--report"])
def test_an_existing_output_is_kept_and_named_before_any_work(run, data, tmp_path, option) -> None:
    (tmp_path / "mine").write_text("mine")
    code, out, err = run("--data", data, "--split", "val", option, "mine")
    assert (code, out) == (2, "")
    assert f"mine exists and is kept: replace it with --overwrite or choose another {option}" in err
    assert (tmp_path / "mine").read_text() == "mine"
    code, _, _ = run("--data", data, "--split", "val", option, "mine", "--overwrite")
    assert code == 0 and (tmp_path / "mine").read_text() != "mine"


def test_an_unreadable_picture_is_reported_and_the_exit_code_is_1(run, data, tmp_path) -> None:
    (tmp_path / "images" / f"{4:012d}.png").write_bytes(b"")
    code, out, err = run("--data", data, "--split", "val", "--json")
    assert code == 1
    assert "000000000004.png: the file is empty" in err
    told = json.loads(out)
    assert told["images"] == 2 and len(told["failures"]) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--data", "nothing.json", "--split", "val"), "no such caption file or folder (from --data)"),
        (("--data", "captions_val.json", "--split", "test"), "no split 'test'"),
        (("--data", "captions_val.json", "--split", "val", "--images", "nowhere"), "nowhere"),
        (("--data", "captions_val.json", "--split", "val", "--boxes", "none.json"), "(from --boxes)"),
        (("--data", "captions_val.json", "--split", "val", "--report", "no/folder/x.html"), "folder does not exist"),
        (("--data", "captions_val.json", "--split", "val", "--model", "nonesuch"), "unknown model 'nonesuch'"),
        (("--data", "captions_val.json"), "--split"),
    ],
)
def test_a_wrong_call_exits_2_with_the_reason(run, data, arguments, sentence) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert sentence in err and out == "" and "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("", "empty"), ("{", "cut off"), ('{"images": [], "annotations": []}', "val"), ("[1, 2]", "")],
)
def test_the_error_for_a_broken_caption_file_names_it(run, data, tmp_path, content, sentence) -> None:
    (tmp_path / "broken_val.json").write_text(content, encoding="utf-8")
    code, _, err = run("--data", "broken_val.json", "--split", "val")
    assert code in (1, 2)
    assert "broken_val" in err and sentence in err and "Traceback" not in err


def test_missing_pictures_are_counted(run, data, tmp_path) -> None:
    (tmp_path / "images" / f"{4:012d}.png").unlink()
    code, _, err = run("--data", data, "--split", "val")
    assert code == 1 and "1 of 3 pictures of val are missing" in err
    code, out, _ = run("--data", data, "--split", "val", "--allow-missing")
    assert code == 0 and "1 of 3 pictures of val are missing and were left out" in out


def test_a_full_disk_does_not_lose_the_figures(run, data, monkeypatch) -> None:
    def fail(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("captioner.files.atomic.os.fsync", fail)
    code, out, err = run("--data", data, "--split", "val", "--results", "results.json")
    assert code == 1
    assert "CIDEr" in out
    assert err.endswith("captioner: results.json: No space left on device\n")
    assert not Path("results.json").exists()
