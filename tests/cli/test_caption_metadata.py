"""`captioner caption`: captions written into photos, beside them, and taken from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image


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
