"""`captioner caption`: existing outputs, sidecars, and resuming."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.caption_process import command, environment


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
