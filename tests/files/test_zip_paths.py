"""Data sets in zip files are read as if they were unpacked."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from captioner.data.check import check
from captioner.data.formats.detection import read_set
from captioner.errors import CaptionerError
from captioner.files import zip_paths
from captioner.images.reading import read_image
from tests.data.caption_files import coco, karpathy, picture, pictures, write


def packed(folder: Path, archive: Path) -> Path:
    """Zip a folder, with its own name as the top folder, and remove it."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder.parent).as_posix())
    shutil.rmtree(folder)
    return archive


def described(path: Path, **options: object) -> list[tuple[object, str, tuple[str, ...], str]]:
    items = read_set(path, **options).items  # type: ignore[arg-type]
    return [(item.id, item.path.name, item.captions, item.split) for item in items]


def test_pictures_in_an_archive_of_the_images_folder_are_found_and_read(tmp_path: Path) -> None:
    write(tmp_path / "captions_train.json", coco({1: ["A dog."], 2: ["A cat"]}, "COCO_train2014_{:012d}.jpg"))
    names = [f"COCO_train2014_{n:012d}.jpg" for n in (1, 2)]
    pictures(tmp_path / "images" / "train2014", names)
    unpacked = [read_image(item.path)[0].tobytes() for item in read_set(tmp_path / "captions_train.json")]
    packed(tmp_path / "images" / "train2014", tmp_path / "images" / "train2014.zip")
    items = read_set(tmp_path / "captions_train.json").items
    assert [read_image(item.path)[0].tobytes() for item in items] == unpacked
    findings = check(read_set(tmp_path / "captions_train.json"), minimum_count=1, decode=True)
    assert findings.problems() == [] and findings.picture_bytes > 0


def test_an_archive_can_be_the_images_folder_itself(tmp_path: Path) -> None:
    write(tmp_path / "captions_val.json", coco({7: ["A yak"]}))
    pictures(tmp_path / "val2017", ["000000000007.jpg"])
    archive = packed(tmp_path / "val2017", tmp_path / "val2017.zip")
    (item,) = read_set(tmp_path / "captions_val.json", archive).items
    assert zip_paths.is_file(item.path) and read_image(item.path)[0].size == (8, 6)


def test_a_zipped_folder_of_photos_with_texts_equals_the_unpacked_one(tmp_path: Path) -> None:
    for split, name in (("train", "a"), ("train", "b"), ("val", "c")):
        picture(tmp_path / "photos" / split / f"{name}.jpg")
        write(tmp_path / "photos" / split / f"{name}.txt", f"a {name}\n\nthe {name}\n")
    before = described(tmp_path / "photos")
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as file:
        for path in sorted((tmp_path / "photos").rglob("*.*")):
            file.write(path, path.relative_to(tmp_path / "photos").as_posix())
    assert described(tmp_path / "photos.zip") == before


def test_captions_in_an_archive_are_read_by_its_path_or_by_the_path_inside(tmp_path: Path) -> None:
    write(tmp_path / "annotations" / "captions_train2014.json", coco({1: ["A dog."]}))
    write(tmp_path / "annotations" / "captions_val2014.json", coco({2: ["A cat."]}))
    archive = packed(tmp_path / "annotations", tmp_path / "annotations_trainval2014.zip")
    assert [entry[0::3] for entry in described(archive)] == [(1, "train"), (2, "val")]
    assert [entry[0] for entry in described(archive / "annotations" / "captions_val2014.json")] == [2]


def test_a_karpathy_file_finds_its_pictures_in_archives(tmp_path: Path) -> None:
    write(tmp_path / "dataset_coco.json", karpathy([("x.jpg", "val", ["A yak"])], filepath="val2014"))
    picture(tmp_path / "images" / "val2014" / "x.jpg")
    packed(tmp_path / "images" / "val2014", tmp_path / "images" / "val2014.zip")
    (item,) = read_set(tmp_path / "dataset_coco.json").items
    assert zip_paths.is_file(item.path)


def test_damaged_and_oversized_archives_are_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK nothing")
    with pytest.raises(CaptionerError, match=r"broken\.zip: not a zip file"):
        zip_paths.folders_of(broken)
    good = tmp_path / "good.zip"
    with zipfile.ZipFile(good, "w") as file:
        file.writestr("a.jpg", b"x" * 100)
    monkeypatch.setattr(zip_paths, "MEMBER_LIMIT", 99)
    with pytest.raises(CaptionerError, match="unpack the archive first"):
        zip_paths.open_binary(good / "a.jpg")
    assert not zip_paths.is_file(good / "b.jpg") and not zip_paths.is_file(good)
    with pytest.raises(CaptionerError, match="no such file"):
        read_image(good / "b.jpg")


def test_an_archive_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    archive = tmp_path / "set.zip"
    for content in ("one", "another"):
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("a.txt", content)
        with zip_paths.open_binary(archive / "a.txt") as member:
            assert member.read() == content.encode()
