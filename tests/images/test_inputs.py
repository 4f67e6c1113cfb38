"""Which pictures a command line names, and what is told about the rest."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from captioner.errors import UsageError
from captioner.images.inputs import PictureBytes, find


@pytest.fixture
def photos(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = Path("photos")
    (folder / "more").mkdir(parents=True)
    for name in ("b", "a.HEIC", "c.jpg", "more/d"):
        Image.new("RGB", (8, 8)).save(folder / name, "JPEG")
    (folder / "drawing.svg").write_text("<svg/>".replace("/", " "))
    (folder / "clip.MOV").write_bytes(b"\0\0\0\x14ftypqt  \0\0\0\0qt  ")
    (folder / "c.txt").write_text("a caption\n")
    (folder / ".hidden").write_bytes((folder / "b").read_bytes())
    return folder


def test_pictures_in_folders_are_recognised_by_content(photos: Path) -> None:
    assert find(["photos"]).pictures == ["photos/a.HEIC", "photos/b", "photos/c.jpg"]
    assert find(["photos"], recursive=True).pictures[-1] == "photos/more/d"
    assert find(["photos/*"]).pictures == ["photos/a.HEIC", "photos/b", "photos/c.jpg"]


def test_drawings_videos_and_folders_that_are_left_out_are_listed(photos: Path) -> None:
    left_out = {(entry.name, entry.group, entry.format) for entry in find(["photos"]).left_out}
    assert left_out == {
        ("photos/more", "folder not entered", ""),
        ("photos/drawing.svg", "drawing", "SVG"),
        ("photos/clip.MOV", "video", "MOV"),
    }
    assert {entry.group for entry in find(["photos"], recursive=True).left_out} == {"drawing", "video"}


def test_a_linked_folder_is_not_entered_and_is_listed(photos: Path) -> None:
    (photos / "link").symlink_to((photos / "more").resolve())
    (entry,) = (e for e in find(["photos"], recursive=True).left_out if "linked" in e.group)
    assert entry.name == "photos/link"


class Stdin(io.TextIOWrapper):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BufferedReader(io.BytesIO(data)))


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_a_picture_or_a_list_of_names(photos: Path, name: str) -> None:
    data = (photos / "b").read_bytes()
    (picture,) = find([name], listed=Stdin(data))
    assert isinstance(picture, PictureBytes) and picture == data and picture.name == "stdin"
    assert list(find([name], listed=Stdin(b"photos/b\nphotos/c.jpg\n"))) == ["photos/b", "photos/c.jpg"]


def test_arguments_that_name_nothing_are_problems(photos: Path) -> None:
    found = find(["photos/b", "gone.jpg", "*.png"])
    assert [problem.name for problem in found.problems] == ["gone.jpg", "*.png"]
    with pytest.raises(UsageError, match=r"no picture to caption. gone.jpg: no such file"):
        find(["gone.jpg"])


@pytest.mark.parametrize("address", ["http://host/a.jpg", "https://host/a.jpg?size=[1]", "s3://bucket/a.jpg"])
def test_an_address_is_not_called_a_missing_file(address: str, photos: Path) -> None:
    (problem,) = find([address, "photos/c.jpg"]).problems
    assert problem.reason.startswith(f"{address}: addresses are opened only in lists and shards")
