"""`captioner caption`: inputs, formats, resuming, failures and exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioner import Captioner, cli
from captioner.bundle.layout import CONFIDENCE
from captioner.bundle.writing import add_file
from captioner.inference.confidence import FEATURES, ConfidenceModel, WordStatistics
from tests.tiny_bundle import SIDE, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "toy").folder


@pytest.fixture(scope="module")
def captioner(model):
    return Captioner.load(model)


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """Five pictures, one of them in a subfolder, and two files that are not pictures."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    blocks = np.random.default_rng(0).integers(0, 256, (5, 2, 2, 3), np.uint8)
    names = ["img_10.png", "img_2.jpg", "img_7.bmp", "more/img_4.png", "IMG_3.PNG"]
    for name, block in zip(names, blocks, strict=True):
        pixels = block.repeat(SIDE // 2, axis=0).repeat(SIDE // 2, axis=1)
        Image.fromarray(pixels).save(folder / name, quality=95)
    (folder / "notes.md").write_text("no picture")
    (folder / ".hidden.png").write_bytes(b"of the system")
    return folder


IN_FOLDER = ["photos/IMG_3.PNG", "photos/img_10.png", "photos/img_2.jpg", "photos/img_7.bmp"]


@pytest.fixture
def run(model, monkeypatch, capsys):
    def run(*arguments: str, stdin: str = "", command: str = "caption") -> tuple[int, str, str]:
        with_model = ("--model", str(model)) if command == "caption" and "--model" not in arguments else ()
        monkeypatch.setattr(sys, "argv", ["captioner", command, *with_model, *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as left:
            cli.run()
        said = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, said.out, said.err

    return run


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


@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "coco"])
def test_resume_continues_where_a_run_stopped(run, photos, form):
    Path("photos/new\tline.png").write_bytes(Path("photos/img_10.png").read_bytes())
    for with_numbers in (True, False):
        if not with_numbers:
            Path("photos/img_7.bmp").rename("photos/seven.bmp")
        whole = run("photos", "-f", form)[1]
        for arguments in (["photos/img_10.png", "photos/new\tline.png"], ["photos"], ["photos"]):
            code, out, _ = run(*arguments, "-f", form, "-o", "out", "--resume")
            assert (code, out) == (0, "")
        if form == "coco":
            kept, truth = json.loads(Path("out").read_text()), json.loads(whole)
            assert sorted(e["caption"] for e in kept) == sorted(e["caption"] for e in truth)
            assert len({e["image_id"] for e in kept}) == len(truth)
        else:
            assert sorted(Path("out").read_text().splitlines()) == sorted(whole.splitlines())
        Path("out").unlink()


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_resume_removes_an_incomplete_line(run, photos, form):
    run("photos", "-f", form, "-o", "out")
    whole = Path("out").read_text()
    Path("out").write_text(whole[:-7])
    run("photos", "-f", form, "-o", "out", "--resume")
    assert Path("out").read_text() == whole


def test_resume_refuses_a_file_of_another_kind(run, photos):
    Path("out").write_text("precious\n")
    for form in ("jsonl", "csv", "coco"):
        code, _, err = run("photos", "-f", form, "-o", "out", "--resume")
        assert code == 2 and "cannot resume" in err
    assert Path("out").read_text() == "precious\n"


def test_sidecars_are_written_beside_the_photos(run, photos, captioner):
    code, _, _ = run("photos", "--sidecar", "--n-best", "2")
    assert code == 0
    truth = captioner("photos/img_2.jpg", n_best=2)
    assert Path("photos/img_2.txt").read_text() == f"{truth.sentence}\n{truth.alternatives[0].sentence}\n"
    assert sorted(path.name for path in photos.glob("*.txt")) == ["IMG_3.txt", "img_10.txt", "img_2.txt", "img_7.txt"]


def test_existing_sidecars_are_kept_and_named(run, photos):
    by_hand = "".join(f"caption {k} of a person\n" for k in range(5))
    Path("photos/img_2.txt").write_text(by_hand)
    code, out, err = run("photos", "--sidecar")
    assert code == 0 and len(out.splitlines()) == 4
    assert "kept the existing photos/img_2.txt; --existing overwrite, append or prepend changes it" in err
    assert Path("photos/img_2.txt").read_text() == by_hand
    code, out, err = run("photos", "--sidecar", "--overwrite")
    assert "kept" not in err
    assert Path("photos/img_2.txt").read_text() in out.replace("photos/img_2.jpg\t", "")


def test_sidecars_have_the_extension_the_style_and_the_texts_around_them(run, photos, captioner):
    Path("photos/img_2.caption").write_text("first\n")
    how = ["--sidecar-extension", "caption", "--existing", "Append", "--style", "plain", "--prefix", "ohwx "]
    code, _, _ = run("photos/img_2.jpg", "--sidecar", *how)
    assert code == 0
    assert Path("photos/img_2.caption").read_text() == f"first\nohwx {captioner('photos/img_2.jpg').text}\n"


@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "coco"])
def test_an_existing_output_is_kept_and_named_before_any_work(run, photos, form):
    run("photos", "-f", form, "-o", "out")
    before = Path("out").read_bytes()
    code, out, err = run("photos/img_2.jpg", "-f", form, "-o", "out")
    assert (code, out) == (2, "") and "out exists and is kept: continue it with --resume" in err
    assert Path("out").read_bytes() == before
    code, _, _ = run("photos/img_2.jpg", "-f", form, "-o", "out", "--overwrite")
    assert code == 0 and 0 < len(Path("out").read_bytes()) < len(before)


def test_a_sidecar_that_cannot_be_written_costs_one_sentence(run, photos):
    Path("photos/img_2.txt").mkdir()
    code, out, err = run("photos", "--sidecar")
    assert code == 1 and len(out.splitlines()) == 4
    assert err.count("photos/img_2.txt: cannot be written (Is a directory)") == 1
    assert Path("photos/img_7.txt").is_file()


def test_resume_keeps_existing_sidecars(run, photos):
    Path("photos/img_2.txt").write_text("written by hand\n")
    _, out, _ = run("photos", "--sidecar", "--resume")
    assert len(out.splitlines()) == 3
    assert Path("photos/img_2.txt").read_text() == "written by hand\n"


@pytest.mark.parametrize("how", [(), ("--resume",)])
@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "coco"])
def test_a_picture_is_never_replaced_by_captions(run, photos, form, how):
    before = Path("photos/img_2.jpg").read_bytes()
    code, _, err = run("photos", "--format", form, "--output", "photos/img_2.jpg", *how)
    assert code == 2 and "photos/img_2.jpg is a picture and is not replaced" in err
    assert Path("photos/img_2.jpg").read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="named pipes are POSIX")
def test_captions_can_be_written_to_a_named_pipe(model, photos, captioner):
    os.mkfifo("pipe")
    with subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        try:
            subprocess.run(
                command(model, "photos/img_2.jpg", "--output", "pipe"), env=environment(), timeout=60, check=True
            )
            heard, _ = reader.communicate(timeout=60)
        finally:
            reader.kill()
    assert heard == f"photos/img_2.jpg\t{captioner('photos/img_2.jpg').sentence}\n"


@pytest.mark.parametrize("how", [(), ("--resume",)])
def test_a_picture_named_like_its_sidecar_is_reported(run, photos, how):
    picture = Path("photos/img_2.jpg").rename("photos/img_2.txt")
    before = picture.read_bytes()
    code, _, err = run(str(picture), "--sidecar", *how)
    assert code == 1 and "its sidecar photos/img_2.txt is a picture" in err
    assert picture.read_bytes() == before


def test_two_photos_with_the_same_sidecar_are_reported(run, photos):
    Image.open("photos/img_2.jpg").save("photos/img_2.png")
    code, _, err = run("photos/img_2.jpg", "photos/img_2.png", "--sidecar")
    assert code == 1 and "photos/img_2.txt already belongs to photos/img_2.jpg" in err


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


def command(model: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "captioner", "caption", "--model", str(model), *arguments]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2]), "PYTHONWARNINGS": ""}


@pytest.mark.skipif(os.name == "nt", reason="limits of a process are POSIX")
@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "coco"])
def test_a_full_disk_is_reported_and_loses_no_written_caption(model, photos, form):
    import resource

    names = "".join(f"photos/{'./' * i}img_2.jpg\n" for i in range(20))
    call = command(model, "-", "--format", form, "--output")
    # Coverage would write its own file, and fail at the same limit.
    unmeasured = {key: value for key, value in environment().items() if not key.startswith(("COV_", "COVERAGE_"))}
    how: dict[str, Any] = {"input": names, "text": True, "env": unmeasured, "timeout": 120, "capture_output": True}
    subprocess.run([*call, "whole"], check=True, **how)
    room = Path("whole").stat().st_size // 2

    done = subprocess.run(
        [*call, "out"], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)), **how
    )
    assert done.returncode == 1
    assert "out: cannot be written (File too large); --resume continues where the run stopped" in done.stderr
    assert "Traceback" not in done.stderr
    there = Path("out").read_text()
    assert 0 < len(there) <= room
    if form == "coco":
        assert 0 < len(json.loads(there)) < 20
    subprocess.run([*call, "out", "--resume"], check=True, **how)
    assert Path("out").read_text() == Path("whole").read_text()


def test_a_closed_pipe_ends_quietly(model, photos):
    names = "photos/img_2.jpg\n" + "".join(f"photos/../photos/{'./' * i}img_2.jpg\n" for i in range(300))
    done = subprocess.run(
        f"{' '.join(command(model, '-', '--batch', '1'))} | head -n 1",
        shell=True,
        input=names,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_ctrl_c_ends_quietly_and_leaves_complete_lines(model, photos):
    running = subprocess.Popen(
        command(model, "-", "--format", "jsonl", "--output", "out.jsonl", "--batch", "1"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs ignore this signal
    )
    assert running.stdin and running.stderr
    running.stdin.write("photos/img_2.jpg\nphotos/img_7.bmp\n")
    running.stdin.flush()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(lines("out.jsonl")) < 2:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
    assert running.stderr.read().strip() == "stopped after 2 captions; the same command with --resume continues"
    running.stdin.close()
    running.stderr.close()
    assert [json.loads(line)["image"] for line in lines("out.jsonl")] == ["photos/img_2.jpg", "photos/img_7.bmp"]


def lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def test_captioning_loads_neither_torch_nor_other_heavy_packages(model, photos):
    code = (
        "import sys; from captioner.cli import run\n"
        f"sys.argv = ['captioner', 'caption', '--model', {str(model)!r}, 'photos/img_2.jpg']\n"
        "try: run()\n"
        "except SystemExit as left: assert left.code == 0, left.code\n"
        "heavy = {'torch', 'torchvision', 'onnx', 'pydantic', 'yaml', 'rich', 'nltk', 'pycocoevalcap', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture
def unsure_model(tmp_path) -> Path:
    """A model whose captions have a confidence of 0.3."""
    folder = write_model(tmp_path / "unsure").folder
    confidence = ConfidenceModel(
        projection=np.zeros((3, 2)),
        offset=np.array([0.0, 50.0]),
        function_words=frozenset(),
        words={},
        other=WordStatistics(0.0, 0.0, None),
        coefficients=np.zeros(len(FEATURES)),
        intercept=float(np.log(0.3 / 0.7)),
        about={"fitted_on": "", "measured_on": "", "figures": {}},
    )
    add_file(folder, CONFIDENCE, json.dumps(confidence.to_json()).encode())
    return folder


def test_an_unsure_caption_is_marked_in_a_third_column(run, photos, unsure_model):
    _, plain, _ = run("photos", "--model", str(unsure_model), "--min-confidence", "0.2")
    code, marked, _ = run("photos", "--model", str(unsure_model), "--min-confidence", "0.5")
    assert code == 0
    assert marked.splitlines() == [f"{line}\t?" for line in plain.splitlines()]


def test_unsure_captions_are_skipped_and_counted(run, photos, unsure_model):
    arguments = ["--min-confidence", "0.5", "--unsure", "skip", "--output", "out.jsonl", "--format", "jsonl"]
    code, _, err = run("photos", "--model", str(unsure_model), *arguments, "--summary", "summary.json")
    assert code == 0 and Path("out.jsonl").read_text() == ""
    assert "0 captioned, 5 skipped: 4 unsure" in err
    assert json.loads(Path("summary.json").read_text())["counts"]["unsure"] == 4


def test_unsure_captions_are_replaced_by_a_text(run, photos, unsure_model):
    arguments = ["--min-confidence", "0.5", "--unsure", "say"]
    _, out, _ = run("photos/img_2.jpg", "--model", str(unsure_model), *arguments, "--sidecar")
    assert out == "photos/img_2.jpg\tno reliable caption\n"
    assert Path("photos/img_2.txt").read_text() == "no reliable caption\n"
    arguments += ["--unsure-text", "?", "--format", "jsonl"]
    _, out, _ = run("photos/img_2.jpg", "--model", str(unsure_model), *arguments)
    values = json.loads(out)
    assert values["sentence"] == "?" and values["caption"] not in ("", "?")
    assert values["confidence"] == pytest.approx(0.3, abs=0.001)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--unsure", "skip"], "--unsure needs --min-confidence"),
        (["--min-confidence", "1.5"], "1.5 is not in the range"),
        (["--min-confidence", "0.5", "--format", "jsonl"], "--unsure mark is for --format text"),
        (["--min-confidence", "0.5", "--sidecar"], "--unsure mark has no place in photos"),
        (["--min-confidence", "0.5", "--write-metadata", "--format", "html"], "--unsure mark has no place in photos"),
        (["--min-confidence", "0.5", "--unsure", "say", "--format", "coco"], "give --unsure skip"),
        (["--min-confidence", "0.5", "--unsure", "say", "--unsure-text", "a\tb"], "one line"),
    ],
)
def test_unsure_options_without_effect_are_refused(run, photos, unsure_model, arguments, sentence):
    code, out, err = run("photos", "--model", str(unsure_model), *arguments)
    assert (code, out) == (2, "") and sentence in err


def test_a_model_without_confidence_cannot_be_asked_for_it(run, photos):
    code, _, err = run("photos", "--min-confidence", "0.5")
    assert code == 2 and "gives no confidence" in err


def test_captions_of_low_confidence_are_counted_at_the_end(run, photos, unsure_model, monkeypatch):
    monkeypatch.setattr("captioner.writers.run_summary.DOUBTFUL", 0.4)
    _, out, err = run("photos", "--model", str(unsure_model))
    assert "note: 4 captions have a confidence below 0.4" in err and len(out.splitlines()) == 4
    _, _, err = run("photos", "--model", str(unsure_model), "--min-confidence", "0.5")
    assert "note:" not in err


def test_captions_are_written_into_photos_and_existing_descriptions_kept(run, photos, captioner):
    code, _, err = run("photos/img_2.jpg", "photos/img_10.png", "photos/img_7.bmp", "--write-metadata")
    assert code == 1  # the BMP cannot hold a caption
    assert "photos/img_7.bmp: captions cannot be written into BMP; --xmp-sidecar" in err
    assert "2 captioned, 1 skipped: 1 caption not written to its photo" in err
    with Image.open("photos/img_2.jpg") as image:
        assert image.getexif()[0x10E] == captioner("photos/img_2.jpg").sentence
    before = Path("photos/img_2.jpg").read_bytes()
    code, _, err = run("photos/img_2.jpg", "--write-metadata", "--prefix", "New: ")
    assert code == 0 and "kept the existing description; --overwrite replaces it" in err
    assert Path("photos/img_2.jpg").read_bytes() == before
    assert run("photos/img_2.jpg", "--write-metadata", "--prefix", "New: ", "--overwrite")[0] == 0
    with Image.open("photos/img_2.jpg") as image:
        assert image.getexif()[0x10E].startswith("New: ")


def test_a_resumed_run_leaves_photos_with_a_description_out(run, photos):
    run("photos/img_2.jpg", "--write-metadata")
    _, out, _ = run("photos/img_2.jpg", "photos/img_10.png", "--write-metadata", "--resume")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["photos/img_10.png"]


def test_an_xmp_sidecar_leaves_the_photo_as_it_is(run, photos):
    before = Path("photos/img_7.bmp").read_bytes()
    assert run("photos/img_7.bmp", "--xmp-sidecar")[0] == 0
    assert Path("photos/img_7.bmp").read_bytes() == before and "dc:description" in Path("photos/img_7.xmp").read_text()


def test_captions_of_a_file_are_written_without_a_model(run, photos):
    lines = [{"image": "photos/img_2.jpg", "sentence": "Rex runs."}, {"image": "gone.jpg", "sentence": "Nothing."}]
    Path("edited.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["--from", "edited.jsonl", "--write-metadata", "--sidecar", "--summary", "summary.json"]
    code, out, err = run(*arguments, "--model", "none")
    assert (code, out) == (1, "") and "gone.jpg: no such file" in err and "1 written, 1 skipped: 1 missing" in err
    assert Path("photos/img_2.txt").read_text() == "Rex runs.\n"
    with Image.open("photos/img_2.jpg") as image:
        assert image.getexif()[0x10E] == "Rex runs."
    assert json.loads(Path("summary.json").read_text())["captioned"] == 1


@pytest.mark.parametrize("unsure", ["skip", "say"])
def test_unsure_captions_of_a_file_are_treated_as_those_of_the_model(run, photos, unsure):
    lines = [
        {"image": "photos/img_2.jpg", "sentence": "A dog.", "confidence": 0.3},
        {"image": "photos/img_10.png", "sentence": "A cat.", "confidence": 0.7},
    ]
    Path("saved.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, _, err = run("--from", "saved.jsonl", "--sidecar", "--min-confidence", "0.5", "--unsure", unsure)
    assert code == 0 and Path("photos/img_10.txt").read_text() == "A cat.\n"
    if unsure == "skip":
        assert "1 written, 1 skipped: 1 unsure" in err and not Path("photos/img_2.txt").exists()
    else:
        assert Path("photos/img_2.txt").read_text() == "no reliable caption\n"


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


def test_the_command_begins_to_load_the_model_before_it_imports_numpy_and_pillow():
    code = (
        "import sys, captioner.cli.caption, captioner.inference.model_loading, captioner.writers.wording\n"
        "import captioner.scale.locations, captioner.scale.shards\n"
        "print(sorted({'numpy', 'PIL', 'onnxruntime', 'pyarrow', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=120)
    assert done.stdout == "[]\n", done.stderr
