import os
from pathlib import Path

import pytest
from PIL import Image

from captioner.errors import CaptionerError, UsageError
from captioner.overlay import overlay_folder
from captioner.overlay.overlay_folder import FORMATS, OverlayFolder, check_formats
from tests.overlay.handmade_captions import caption


def add(folder: OverlayFolder, name: str = "photos/dog.jpg", text: str = "a dog runs"):
    return folder.add([caption(text, name=name)] * len(folder.models))


def tree(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}


def test_any_formats_are_written_together(tmp_path):
    written = add(OverlayFolder(tmp_path / "new" / "out", list(FORMATS)))
    assert tree(tmp_path / "new" / "out") == {
        "dog.png",
        "dog.gif",
        "dog.webp",
        "dog.html",
        "dog.npz",
        "dog.svg",
        "dog.pdf",
        "dog-words/01-a.png",
        "dog-words/02-dog.png",
        "dog-words/03-runs.png",
    }
    assert len(written.files) == len(FORMATS) and not written.kept
    heads = {
        "png": b"\x89PNG",
        "gif": b"GIF8",
        "webp": b"RIFF",
        "html": b"<!DOC",
        "npz": b"PK",
        "svg": b"<?xml",
        "pdf": b"%PDF",
    }
    for ending, head in heads.items():
        assert (tmp_path / "new" / "out" / f"dog.{ending}").read_bytes().startswith(head)


def test_formats_may_be_separated_by_commas_in_any_order_and_case():
    assert check_formats(["html,png", "PNG", " gif "]) == ("png", "gif", "html")
    with pytest.raises(UsageError, match=r"'htm'.*Did you mean 'html'"):
        check_formats(["htm"])


def test_existing_files_are_kept_without_overwrite(tmp_path):
    (tmp_path / "dog.png").write_bytes(b"mine")
    written = add(OverlayFolder(tmp_path, ["png", "npz"]))
    assert (tmp_path / "dog.png").read_bytes() == b"mine"
    assert [path.name for path in written.kept] == ["dog.png"]
    assert [path.name for path in written.files] == ["dog.npz"]
    written = add(OverlayFolder(tmp_path, ["png"], overwrite=True))
    assert (tmp_path / "dog.png").read_bytes().startswith(b"\x89PNG") and not written.kept


@pytest.mark.parametrize("second", ["b/dog.jpg", "a/dog.png", "b/DOG.jpg", "dog"])
def test_pictures_with_the_same_name_get_different_files(tmp_path, second):
    folder = OverlayFolder(tmp_path, ["npz"])
    assert not add(folder, "a/dog.jpg").renamed
    written = add(folder, second)
    assert written.renamed and written.stem.lower() == "dog-2"
    assert len(tree(tmp_path)) == 2


def test_a_new_name_for_a_clash_does_not_clash_itself(tmp_path):
    folder = OverlayFolder(tmp_path, ["npz"])
    stems = [add(folder, name).stem for name in ("dog-2.jpg", "a/dog.jpg", "b/dog.jpg", "c/dog.jpg")]
    assert stems == ["dog-2", "dog", "dog-3", "dog-4"]


def test_a_picture_named_index_does_not_replace_the_gallery(tmp_path):
    folder = OverlayFolder(tmp_path, ["html"], with_gallery=True)
    assert add(folder, "index.jpg").stem == "index-2"
    assert folder.finish().files == [tmp_path / "index.html"]
    assert tree(tmp_path) == {"index.html", "index-2.html", "thumbnails/index-2.jpg"}


def test_a_picture_of_the_run_is_never_replaced(tmp_path):
    photo = tmp_path / "dog.png"
    Image.new("RGB", (8, 8)).save(photo)
    before = photo.read_bytes()
    written = add(OverlayFolder(tmp_path, ["png"], overwrite=True, inputs=[photo]), str(photo))
    assert written.stem == "dog-2" and photo.read_bytes() == before
    written = add(OverlayFolder(tmp_path, ["png"], overwrite=True), str(photo))  # even if it is not among `inputs`
    assert written.stem == "dog-2" and photo.read_bytes() == before


@pytest.mark.parametrize(
    "name", ["..", "a:b?.jpg", "x" * 250 + ".jpg", "犬" * 80 + ".jpg", "\udcff.jpg", ".jpg", "con\x01.jpg"]
)
def test_every_picture_name_gives_a_valid_file_name(tmp_path, name):
    written = add(OverlayFolder(tmp_path, ["npz"]), name)
    (path,) = written.files
    assert path.parent == tmp_path and path.is_file()


def test_words_of_an_earlier_longer_sentence_are_removed(tmp_path):
    add(OverlayFolder(tmp_path, ["words"]), text="a dog runs fast")
    (tmp_path / "dog-words" / "notes.txt").write_text("mine")
    add(OverlayFolder(tmp_path, ["words"], overwrite=True), text="the dog")
    assert tree(tmp_path) == {"dog-words/01-the.png", "dog-words/02-dog.png", "dog-words/notes.txt"}


def test_a_failed_write_keeps_the_older_file(tmp_path, monkeypatch):
    folder = OverlayFolder(tmp_path, ["npz"], overwrite=True)
    add(folder)
    before = (tmp_path / "dog.npz").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CaptionerError, match="No space left"):
        add(OverlayFolder(tmp_path, ["npz"], overwrite=True), text="another")
    assert tree(tmp_path) == {"dog.npz"} and (tmp_path / "dog.npz").read_bytes() == before


def test_a_folder_that_cannot_be_created_is_named_in_the_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptionerError, match="file/out"):
        OverlayFolder(tmp_path / "file" / "out", ["png"])


def test_each_model_of_a_comparison_has_its_own_arrays_and_words(tmp_path):
    folder = OverlayFolder(tmp_path, ["npz", "words", "png", "html", "gif", "svg", "pdf"], models=["soft", "hard"])
    add(folder, text="a dog")
    assert tree(tmp_path) >= {"dog-soft.npz", "dog-hard.npz", "dog-soft-words/01-a.png", "dog-hard-words/02-dog.png"}
    assert add(folder, "dog-soft.jpg").renamed is False  # dog-soft.png and dog-soft-soft.npz are new names
    assert "hard" in (tmp_path / "dog.svg").read_text(encoding="utf-8")


def test_an_existing_gallery_is_kept(tmp_path):
    (tmp_path / "index.html").write_text("mine")
    folder = OverlayFolder(tmp_path, ["npz"], with_gallery=True)
    add(folder)
    finished = folder.finish()
    assert finished is not None and (finished.files, finished.kept) == ([], [tmp_path / "index.html"])
    assert (tmp_path / "index.html").read_text() == "mine"


def test_kept_files_are_not_drawn(tmp_path, monkeypatch):
    (tmp_path / "dog.png").write_bytes(b"mine")
    monkeypatch.setitem(overlay_folder._CONTENT, "png", lambda *_: pytest.fail("drawn in vain"))
    add(OverlayFolder(tmp_path, ["png"]))


def test_a_contact_sheet_shows_every_picture_in_files_of_48(tmp_path):
    sheet = tmp_path / "contact.png"
    folder = OverlayFolder(tmp_path / "out", ["npz"], contact_sheet=sheet)
    for number in range(50):
        add(folder, f"{number}.jpg")
    folder.finish()
    assert folder.contact_sheets == [sheet, tmp_path / "contact-2.png"]
    with Image.open(sheet) as first, Image.open(tmp_path / "contact-2.png") as second:
        assert first.width == 6 * 262 + 14 and first.height == 8 * 262 + 14
        assert second.width == 2 * 262 + 14


def test_the_files_of_a_contact_sheet_replace_no_other_file(tmp_path):
    (tmp_path / "contact-2.png").write_bytes(b"mine")
    folder = OverlayFolder(tmp_path / "out", ["npz"], contact_sheet=tmp_path / "contact.png")
    for number in range(49):
        add(folder, f"{number}.jpg")
    folder.finish()
    assert (tmp_path / "contact-2.png").read_bytes() == b"mine"
    assert folder.contact_sheets == [tmp_path / "contact.png", tmp_path / "contact-3.png"]


@pytest.mark.parametrize("name, problem", [("contact.gif", "png or .jpg"), ("missing/contact.png", "does not exist")])
def test_a_contact_sheet_that_cannot_be_written_is_refused_at_once(tmp_path, name, problem):
    with pytest.raises(UsageError, match=problem):
        OverlayFolder(tmp_path, ["npz"], contact_sheet=tmp_path / name)
