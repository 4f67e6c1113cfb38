"""Opening the outputs of a run: resuming, sidecars, and files that cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow.parquet
import pytest
from PIL import Image

from captioner.errors import CaptionerError, UsageError
from captioner.writers.caption_formats import FORMATS
from captioner.writers.caption_outputs import CaptionOutputs, Written
from captioner.writers.sidecars import SidecarWriter
from tests.overlay.handmade_captions import caption

NAMES = ["img_1.jpg", "img_2.jpg", "img_3.jpg"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(names, format, **options) -> None:
    with CaptionOutputs(Path("out"), format, NAMES, **options) as outputs:
        for name in names:
            assert outputs.write(name, caption("a dog")) == Written()


@pytest.mark.parametrize("format", FORMATS)
def test_a_resumed_run_finds_what_is_finished_and_adds_the_rest(format):
    def content() -> object:  # row groups of a Parquet file may be divided in another way
        return pyarrow.parquet.read_table("out").to_pylist() if format == "parquet" else Path("out").read_text()

    write(NAMES, format)
    complete = content()
    write(NAMES[:2], format, overwrite=True)
    with CaptionOutputs(Path("out"), format, NAMES, resume=True) as outputs:
        assert [outputs.is_finished(name) for name in NAMES] == [True, True, False]
        outputs.write(NAMES[2], caption("a dog"))
    assert content() == complete


@pytest.mark.parametrize("format", FORMATS)
def test_an_existing_output_is_refused_and_begins_again_with_overwrite(format):
    write(NAMES, format)
    before = Path("out").read_bytes()
    with pytest.raises(UsageError, match="out exists and is kept: continue it with --resume, replace it with --overw"):
        CaptionOutputs(Path("out"), format, NAMES)
    assert Path("out").read_bytes() == before
    with CaptionOutputs(Path("out"), format, NAMES, overwrite=True) as outputs:
        assert not any(outputs.is_finished(name) for name in NAMES)
    write(NAMES[:1], format, overwrite=True)
    with CaptionOutputs(Path("out"), format, NAMES, resume=True) as outputs:
        assert [outputs.is_finished(name) for name in NAMES] == [True, False, False]


def test_with_sidecars_an_image_is_finished_when_both_outputs_have_it():
    write(NAMES[:2], "text")
    Path("img_2.txt").write_text("a dog\n")
    Path("img_3.txt").write_text("a dog\n")
    with CaptionOutputs(Path("out"), "text", resume=True, photo_writers=[SidecarWriter()]) as outputs:
        assert [outputs.is_finished(name) for name in NAMES] == [False, True, False]


def test_with_standard_output_the_sidecars_decide(capsys):
    Path("img_2.txt").write_text("by hand\n")
    with CaptionOutputs(None, "text", resume=True, photo_writers=[SidecarWriter()]) as outputs:
        assert [outputs.is_finished(name) for name in NAMES] == [False, True, False]
        outputs.write("img_1.jpg", caption("a dog"))
    assert capsys.readouterr().out == "img_1.jpg\tA dog.\n"
    assert Path("img_1.txt").read_text() == "A dog.\n"


def test_a_problem_with_a_sidecar_is_returned_and_the_caption_written():
    with CaptionOutputs(Path("out"), "text", photo_writers=[SidecarWriter()]) as outputs:
        assert outputs.write("a.jpg", caption("a dog")) == Written()
        assert "already belongs to a.jpg" in outputs.write("a.png", caption("a cat")).problems[0]
    assert Path("out").read_text() == "a.jpg\tA dog.\na.png\tA cat.\n"


def test_images_are_numbered_only_where_names_give_no_ids():
    with CaptionOutputs(Path("out"), "coco", NAMES) as outputs:
        assert not outputs.numbers_images
    with CaptionOutputs(Path("out2"), "coco", [*NAMES, "dog.jpg"]) as outputs:
        assert outputs.numbers_images
    with CaptionOutputs(Path("out3"), "csv", NAMES) as outputs:
        assert not outputs.numbers_images


@pytest.mark.parametrize("format", FORMATS)
def test_a_picture_is_not_replaced(format):
    Image.new("RGB", (4, 4)).save("photo.png")
    before = Path("photo.png").read_bytes()
    with pytest.raises(UsageError, match="is a picture"):
        CaptionOutputs(Path("photo.png"), format, NAMES)
    assert Path("photo.png").read_bytes() == before


def test_a_folder_that_does_not_exist_is_a_wrong_call():
    with pytest.raises(UsageError, match=r"no/out: cannot be written \(No such file"):
        CaptionOutputs(Path("no/out"), "text")


def test_a_full_disk_is_named_with_the_way_to_continue():
    with CaptionOutputs(Path("out"), "text") as outputs:

        def full(name, caption):
            raise OSError(errno.ENOSPC, "No space left on device")

        outputs._writer.write = full  # type: ignore[method-assign]
        with pytest.raises(CaptionerError, match=r"out: cannot be written \(No space left.*--resume continues"):
            outputs.write("a.jpg", caption("a dog"))


def test_a_resumed_run_adds_a_missing_sidecar_without_a_second_line_in_the_output():
    write(NAMES[:1], "text")
    with CaptionOutputs(Path("out"), "text", resume=True, photo_writers=[SidecarWriter()]) as outputs:
        assert not outputs.is_finished(NAMES[0])
        outputs.write(NAMES[0], caption("a dog"))
    assert Path("out").read_text() == "img_1.jpg\tA dog.\n"
    assert Path("img_1.txt").read_text() == "A dog.\n"


def test_resuming_with_appended_sidecars_needs_a_file_that_shows_what_is_finished():
    sidecars = SidecarWriter(existing="append")
    with pytest.raises(UsageError, match="--existing append or prepend needs --output"):
        CaptionOutputs(None, "text", resume=True, photo_writers=[sidecars])
    write(NAMES[:1], "text")
    with CaptionOutputs(Path("out"), "text", resume=True, photo_writers=[sidecars]) as outputs:
        assert [outputs.is_finished(name) for name in NAMES] == [True, False, False]


def test_a_read_only_output_is_refused_even_with_overwrite():
    write(NAMES, "text")
    Path("out").chmod(0o444)
    with pytest.raises(UsageError, match=r"out: cannot be written \(the file is read-only\)"):
        CaptionOutputs(Path("out"), "text", overwrite=True)
    assert len(Path("out").read_text().splitlines()) == 3
