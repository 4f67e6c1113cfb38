"""`captioner caption`: inputs, formats, failures and exit codes."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.cli.caption_process import command, environment, lines

IN_FOLDER = ["photos/IMG_3.PNG", "photos/img_10.png", "photos/img_2.jpg", "photos/img_7.bmp"]


def test_text_has_one_line_with_name_and_caption(run, photos, captioner):
    code, out, err = run("photos/img_2.jpg")
    assert (code, err) == (0, "")
    assert out == f"photos/img_2.jpg\t{captioner('photos/img_2.jpg').sentence}\n"


def test_a_folder_is_read_in_order_without_hidden_and_other_files(run, photos):
    code, out, _ = run("photos")
    assert code == 0
    assert [line.split("\t")[0] for line in out.splitlines()] == IN_FOLDER


def test_recursive_includes_the_folders_inside(run, photos):
    _, out, _ = run("photos", "--recursive")
    assert [line.split("\t")[0] for line in out.splitlines()] == [*IN_FOLDER, "photos/more/img_4.png"]


def test_patterns_are_expanded_and_repeated_names_captioned_once(run, photos):
    _, out, _ = run("photos/img_*", "photos/img_2.jpg", "photos/**/*_4.png")
    names = [line.split("\t")[0] for line in out.splitlines()]
    assert names == ["photos/img_10.png", "photos/img_2.jpg", "photos/img_7.bmp", "photos/more/img_4.png"]


def test_a_dash_reads_names_from_standard_input(run, photos):
    code, out, _ = run("-", "photos/img_7.bmp", stdin="photos/img_2.jpg\n\nphotos/img_10.png\r\n")
    assert code == 0
    names = [line.split("\t")[0] for line in out.splitlines()]
    assert names == ["photos/img_7.bmp", "photos/img_2.jpg", "photos/img_10.png"]


def test_jsonl_has_the_caption_its_scores_and_alternatives(run, photos, captioner):
    _, out, _ = run("photos", "--format", "jsonl", "--n-best", "2", "--words")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["image"] for line in lines] == IN_FOLDER
    for line in lines:
        truth = captioner(line["image"], n_best=2)
        assert line["caption"] == truth.text
        assert line["score"] == pytest.approx(truth.score, abs=1e-5)
        assert line["alternatives"][0]["caption"] == truth.alternatives[0].text
        assert [word["text"] for word in line["words"]] == [word.text for word in truth.words]
        ends = [line["end"]["log_probability"]] if line["end"] else []
        total = sum(word["log_probability"] for word in line["words"]) + sum(ends)
        assert line["log_probability"] == pytest.approx(total, abs=1e-4)


def test_csv_is_read_back_by_a_csv_reader(run, photos):
    Path("photos/img_2.jpg").rename('photos/a "quoted", name.jpg')
    _, out, _ = run("photos", "--format", "csv", "--n-best", "2")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 8
    assert {row["rank"] for row in rows} == {"1", "2"}
    assert rows[2]["image"] == 'photos/a "quoted", name.jpg'
    assert all(float(row["score"]) < 0 for row in rows)


def test_coco_ids_are_the_numbers_in_the_names(run, photos):
    code, out, err = run("photos", "--format", "coco")
    entries = json.loads(out)
    assert code == 0 and "numbered" not in err
    assert [entry["image_id"] for entry in entries] == [3, 10, 2, 7]
    assert all(set(entry) == {"image_id", "caption"} for entry in entries)


def test_coco_numbers_images_whose_names_have_none(run, photos):
    Path("photos/img_7.bmp").rename("photos/seven.bmp")
    _, out, err = run("photos", "--format", "coco")
    entries = json.loads(out)
    assert [entry["image_id"] for entry in entries] == [1, 2, 3, 4]
    assert entries[3]["file_name"] == "photos/seven.bmp"
    assert "images are numbered 1, 2, 3" in err


def test_bad_files_are_reported_and_the_others_captioned(run, photos):
    Path("photos/img_5.jpg").write_text("broken")
    Path("photos/img_6.png").write_bytes(b"")
    code, out, err = run("photos", "photos/gone.jpg")
    assert code == 1
    assert [line.split("\t")[0] for line in out.splitlines()] == IN_FOLDER
    assert "photos/img_5.jpg: not a picture" in err
    assert "photos/img_6.png: the file is empty" in err
    assert "photos/gone.jpg: no such file" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("recursive", [(), ("-r",)])
def test_what_was_not_captioned_is_counted_at_the_end(run, photos, recursive):
    Path("photos/noname").write_bytes(Path("photos/img_2.jpg").read_bytes())
    Path("photos/phone.HEIC").write_bytes(Path("photos/img_2.jpg").read_bytes())
    Path("photos/drawing.svg").write_text("<svg xmlns='x'>")
    Path("photos/raw.NEF").write_bytes(b"II*\0\x08\0\0\0\0\0")
    code, out, err = run("photos", "--summary", "summary.json", *recursive)
    assert code == 1
    names = [line.split("\t")[0] for line in out.splitlines()]
    assert {"photos/noname", "photos/phone.HEIC", *IN_FOLDER} <= set(names)
    assert "photos/raw.NEF: a raw file (NEF) without a preview that can be read; convert it" in err
    counted = "1 raw (NEF), 1 SVG"
    expected = f"7 captioned, 2 skipped: {counted}" if recursive else f"6 captioned, 3 skipped: {counted}, 1 folder"
    assert err.splitlines()[-1].startswith(expected)
    assert recursive or err.endswith("1 folder not entered (use -r)\n")
    written = json.loads(Path("summary.json").read_text())
    assert (written["captioned"], written["complete"]) == (len(names), True)
    assert {entry["image"] for entry in written["inputs"]} >= {"photos/raw.NEF", "photos/drawing.svg"}


def test_retry_captions_only_what_failed(run, photos):
    whole = Path("photos/img_2.jpg").read_bytes()
    Path("photos/img_2.jpg").write_bytes(whole[:200])
    code, _, _ = run("photos", "-o", "out", "--summary", "summary.json")
    assert code == 1
    Path("photos/img_2.jpg").write_bytes(whole)
    code, _, err = run("--retry", "summary.json", "-o", "out", "--resume", "--summary", "summary.json")
    assert (code, err) == (0, "")
    assert [line.split("\t")[0] for line in lines("out")][-1] == "photos/img_2.jpg"
    assert len(lines("out")) == 4
    code, out, err = run("--retry", "summary.json")
    assert (code, out) == (0, "") and "nothing to retry" in err
    code, _, err = run("--retry", "out")
    assert code == 2 and "not a file of `captioner caption --summary`" in err
    code, _, err = run("photos", "--retry", "summary.json")
    assert code == 2 and "give only one of PATH, --retry and --from" in err
    code, _, err = run("photos", "--summary", "summary.json")
    assert code == 2 and "summary.json exists and is kept" in err


def test_heic_is_captioned_and_without_its_package_named(run, photos, captioner, monkeypatch):
    import pillow_heif

    image = Image.open("photos/img_2.jpg").resize((128, 128))
    pillow_heif.from_pillow(image).save("photos/phone.heic", quality=100)
    code, out, _ = run("photos/phone.heic", "-f", "jsonl")
    assert code == 0 and json.loads(out)["score"] == pytest.approx(captioner(image).score, abs=0.05)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    code, out, err = run("photos")
    assert code == 1 and "photos/phone.heic: HEIC needs pillow-heif: pip install '" in err
    assert "1 HEIC (pip install '" in err.splitlines()[-1] and "[heic]'" in err.splitlines()[-1]


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_a_picture_on_standard_input_is_captioned(model, photos, captioner, name):
    how: dict[str, Any] = {"capture_output": True, "env": environment(), "timeout": 60}
    piped = subprocess.run(command(model, name), input=Path("photos/img_2.jpg").read_bytes(), **how)
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout.decode() == f"stdin\t{captioner('photos/img_2.jpg').sentence}\n"
    listed = subprocess.run(command(model, name), input=b"photos/img_2.jpg\n", **how)
    assert listed.stdout.startswith(b"photos/img_2.jpg\t")
    beside = subprocess.run(command(model, name, "--sidecar"), input=Path("photos/img_2.jpg").read_bytes(), **how)
    assert beside.returncode == 2 and b"has no file to write to or beside" in beside.stderr


@pytest.mark.parametrize("argument", ["empty", "nothing.jpg", "*.jpeg"])
def test_a_call_without_any_picture_is_an_error(run, photos, argument):
    Path("empty").mkdir()
    code, out, err = run(argument)
    assert (code, out) == (2, "")
    assert "no picture to caption" in err and argument in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "nosuch"], "unknown model 'nosuch'|no model in any of"),
        (["--beem", "3"], "No such option"),
        (["--beam", "0"], "beam"),
        (["--require", "kat"], "'kat' is not in the model's vocabulary.*cat"),
        (["--resume"], "--resume needs --output"),
        (["--top-p", "0.9"], "--top-p needs --sample"),
        (["--resume", "--overwrite", "--output", "x"], "give one of them"),
        (["--existing", "append"], "give --sidecar too"),
        (["--prefix", "a", "--format", "csv"], "are for --format text, sidecars and metadata"),
        (["--words"], "--words needs --format jsonl"),
        (["--output", "no/such/folder/out"], "cannot be written"),
        (["--output", 300 * "a"], "cannot be written"),
        (["--backend", "onnx", "--device", "cuda"], "--backend torch"),
        (["--device", "nonsense"], "--device nonsense: torch can't use it here"),
        (["--hard-attention", "argmax"], "--hard-attention has no effect: toy has soft attention"),
        (["--seed", "3"], "--seed has no effect without sampling"),
        (["--diversity", "1"], "it needs --groups"),
        (["--n-best", "5", "--beam", "2"], "needs a beam of 5"),
    ],
)
def test_a_wrong_call_is_explained_with_exit_code_2(run, photos, arguments, said):
    import re

    code, out, err = run("photos", *arguments)
    assert (code, out) == (2, "")
    assert re.search(said, err), err
    assert "Traceback" not in err


def test_search_options_reach_the_search(run, photos, captioner):
    asked = [
        ("--require", "cat|dog"),
        ("--forbid", "mat"),
        ("--forbid", "zebra"),
        ("--min-length", "3"),
        ("--beam", "4"),
    ]
    _, out, err = run("photos/img_2.jpg", "--style", "plain", *(part for pair in asked for part in pair))
    options = {"required": ["cat|dog"], "forbidden": ["mat"], "min_length": 3, "beam": 4}
    assert out.split("\t")[1] == captioner("photos/img_2.jpg", **options).text + "\n"
    assert "--forbid zebra: the model does not know this word" in err
    arguments = ("--sample", "--temperature", "1.5", "--top-k", "4", "--top-p", "0.9", "--seed", "5", "--n-best", "3")
    _, out, _ = run("photos/img_2.jpg", "--style", "plain", *arguments)
    options = {"sample": True, "temperature": 1.5, "top_k": 4, "top_p": 0.9, "seed": 5, "n_best": 3}
    drawn = captioner("photos/img_2.jpg", **options)
    assert [line.split("\t")[1] for line in out.splitlines()] == [c.text for c in (drawn, *drawn.alternatives)]


def test_pictures_above_the_pixel_limit_are_refused(run, photos):
    code, out, err = run("photos/img_2.jpg", "--pixel-limit", "100")
    assert (code, out) == (1, "") and "more than the limit of 100 pixels" in err


@pytest.mark.parametrize("format", ["parquet", "html"])
def test_whole_files_need_a_name_and_can_be_resumed(run, photos, format):
    code, _, err = run("photos", "--format", format)
    assert code == 2 and f"--format {format} writes a file" in err
    code, _, err = run("photos", "--format", format, "--output", "none/out")
    assert code == 2 and "cannot be written" in err
    assert run("photos/img_2.jpg", "--format", format, "--output", "out")[0] == 0
    assert run("photos", "--format", format, "--output", "out")[0] == 2
    code, _, err = run("photos", "--format", format, "--output", "out", "--resume")
    assert code == 0 and "3 captioned (1 before)" in err
    assert not list(Path().glob(".*.part"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give the pictures as PATH"),
        (["photos", "--from", "edited.jsonl", "--sidecar"], "give only one of PATH, --retry and --from"),
        (["--from", "edited.jsonl"], "--from needs --write-metadata"),
        (["--from", "edited.jsonl", "--sidecar", "--beam", "2"], "--from makes no captions"),
        (["--from", "edited.jsonl", "--sidecar", "--style", "plain", "--resume"], "leave out --style, --resume"),
        (["--from", "edited.jsonl", "--sidecar", "--format", "jsonl"], "leave out --format"),
        (["--from", "edited.jsonl", "--sidecar", "--min-confidence", "0.5"], "--unsure mark has no place in photos"),
        (
            ["--from", "edited.jsonl", "--sidecar", "--min-confidence", "0.5", "--unsure", "skip"],
            "no caption in edited.jsonl has a confidence",
        ),
        (["--from", "empty", "--sidecar"], "--from empty"),
        (["photos", "--summary", "none/summary.json"], "choose another --summary"),
        (["photos", "--model", "/"], "not a bundle"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_written(run, photos, arguments, sentence):
    Path("edited.jsonl").write_text('{"image": "photos/img_2.jpg", "sentence": "Rex."}\n')
    Path("empty").write_text("")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and sentence in err
    assert not list(Path("photos").glob("*.txt"))
