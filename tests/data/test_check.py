"""The check finds every planted problem, and nothing in a correct set."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from captioner.data import picture_files
from captioner.data.caption_set import CaptionSet, Item
from captioner.data.check import check
from captioner.data.picture_files import inspect_pictures
from captioner.errors import CaptionerError
from captioner.images.reading import load_for_model
from tests.data.caption_files import picture


@pytest.fixture
def correct_set(tmp_path: Path) -> CaptionSet:
    """Three training pictures and one of val; `dog` and `a` five times and more in train."""
    captions = {
        ("t0", "train"): ("a dog runs", "a dog sits"),
        ("t1", "train"): ("a dog", "a brown dog"),
        ("t2", "train"): ("a dog sleeps", "one cat"),
        ("v0", "val"): ("a dog and a zebra", "a dog dog"),
    }
    items = [
        Item(i, picture(tmp_path / f"{name}.png", i), texts, split)
        for i, ((name, split), texts) in enumerate(captions.items())
    ]
    return CaptionSet("sound", tuple(items))


def with_item(data: CaptionSet, *items: Item) -> CaptionSet:
    return CaptionSet(data.name, data.items + items)


def test_a_correct_set_has_no_findings(correct_set: CaptionSet) -> None:
    findings = check(correct_set, minimum_count=1)
    assert findings.problems() == []
    assert (findings.images, findings.captions) == (4, 8)
    assert (findings.duplicate_images, findings.overlaps, findings.notes) == ((), (), ())
    train, val = findings.splits
    assert (train.images, train.captions_per_image, train.words_per_caption) == (3, (2, 2.0, 2), (2, 8 / 3, 3))
    assert (val.images, val.words_per_caption) == (1, (3, 4.0, 5))
    for split in findings.splits:
        assert (split.missing, split.unreadable, split.uncaptioned, split.empty_captions) == ((), (), (), ())


def test_missing_images_are_an_error_unless_allowed(correct_set: CaptionSet, tmp_path: Path) -> None:
    gone = tmp_path / "gone.png"
    findings = check(with_item(correct_set, Item(9, gone, ("a dog",), "val")))
    assert findings.splits[1].missing == (str(gone),)
    (problem,) = findings.problems()
    assert problem.startswith("val: 1 of 2 images are missing")
    assert findings.problems(allow_missing=True) == []


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n\x00"])
def test_unreadable_pictures_are_found(correct_set: CaptionSet, tmp_path: Path, content: bytes, decode: bool) -> None:
    (tmp_path / "bad.png").write_bytes(content)
    findings = check(with_item(correct_set, Item(9, tmp_path / "bad.png", ("a dog",), "train")), decode=decode)
    ((file, why),) = findings.splits[0].unreadable
    assert file.endswith("bad.png") and why
    assert "1 images can't be read" in findings.problems(allow_missing=True)[0]


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "gif", "bmp", "tif", "avif"])
def test_a_cut_off_picture_is_found_without_decoding_the_others(
    correct_set: CaptionSet, tmp_path: Path, kind: str
) -> None:
    whole = picture(tmp_path / f"whole.{kind}", 50, size=(64, 64))
    cut, followed = tmp_path / f"cut.{kind}", tmp_path / f"followed.{kind}"
    cut.write_bytes(whole.read_bytes()[:-20] if kind != "png" else whole.read_bytes()[:-40])
    followed.write_bytes(whole.read_bytes() + b"what a phone appends" * 9)
    with pytest.raises(CaptionerError):
        load_for_model(cut, 256)
    load_for_model(followed, 256)
    items = [Item(i, file, ("a dog",), "train") for i, file in enumerate((whole, followed, cut), 10)]
    findings = check(with_item(correct_set, *items))
    assert not findings.decoded
    assert [file for file, _ in findings.splits[0].unreadable] == [str(cut)]
    assert "train: 1 images can't be read" in findings.problems()[0]


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "avif"])
def test_whole_pictures_of_the_usual_formats_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file = picture(tmp_path / f"whole.{kind}", 50, size=(64, 64))
    decoded: list[Path] = []
    monkeypatch.setattr(picture_files, "read_image", lambda path, **_: decoded.append(path))
    assert inspect_pictures([file]).unreadable == ()
    assert decoded == []


def test_damage_inside_a_picture_is_found_only_by_decoding_and_the_findings_say_if_pictures_were_decoded(
    correct_set: CaptionSet, tmp_path: Path
) -> None:
    content = picture(tmp_path / "damaged.png", 50, size=(64, 64)).read_bytes()
    (tmp_path / "damaged.png").write_bytes(content[:700] + content[-12:])  # its middle is missing
    data = with_item(correct_set, Item(9, tmp_path / "damaged.png", ("a dog",), "train"))
    headers, pixels = check(data), check(data, decode=True)
    assert (headers.decoded, headers.splits[0].unreadable) == (False, ())
    assert pixels.decoded and pixels.splits[0].unreadable[0][0].endswith("damaged.png")


@pytest.mark.parametrize("decode", [False, True])
def test_the_check_leaves_pillows_pixel_limit_unchanged(correct_set: CaptionSet, decode: bool) -> None:
    limit = Image.MAX_IMAGE_PIXELS
    assert limit is not None
    check(correct_set, decode=decode)
    assert limit == Image.MAX_IMAGE_PIXELS


def test_empty_long_and_missing_captions_are_found(correct_set: CaptionSet) -> None:
    path = correct_set.items[0].path
    findings = check(
        with_item(correct_set, Item(8, path, (" . ", "a " * 11), "train"), Item(9, path, (), "train")), max_length=10
    )
    train = findings.splits[0]
    assert train.empty_captions == (("8", " . "),)
    assert train.long_captions == (("8", "a " * 11),)
    assert train.uncaptioned == (str(path),)


def test_a_caption_of_the_maximum_length_is_not_too_long(correct_set: CaptionSet) -> None:
    data = with_item(correct_set, Item(9, correct_set.items[0].path, ("a " * 10,), "train"))
    assert check(data, max_length=10).splits[0].long_captions == ()


def test_a_split_without_captions_is_a_problem(correct_set: CaptionSet) -> None:
    data = with_item(correct_set, Item(9, correct_set.items[0].path, (), "test"))
    assert check(data).problems() == ["test: none of its 1 images has a caption"]


def test_copies_of_a_picture_are_found_within_and_between_splits(correct_set: CaptionSet, tmp_path: Path) -> None:
    first, inside, across = correct_set.items[0].path, tmp_path / "inside.png", tmp_path / "across.png"
    shutil.copy(first, inside)
    shutil.copy(first, across)
    findings = check(with_item(correct_set, Item(8, inside, ("a dog",), "train"), Item(9, across, ("a dog",), "val")))
    assert findings.duplicate_images == ((str(first), str(inside), str(across)),)
    (overlap,) = findings.overlaps
    assert (overlap.splits, overlap.same_file) == (("train", "val"), ())
    assert set(overlap.same_content) == {(str(first), str(across)), (str(inside), str(across))}


def test_a_file_in_two_splits_is_an_overlap_but_not_a_duplicate(correct_set: CaptionSet) -> None:
    path = correct_set.items[0].path
    findings = check(with_item(correct_set, Item(9, path, ("a dog",), "val")))
    assert findings.duplicate_images == ()
    assert [(o.splits, o.same_file, o.same_content) for o in findings.overlaps] == [
        (("train", "val"), (str(path),), ())
    ]


def test_files_of_equal_size_with_different_content_are_not_duplicates(correct_set: CaptionSet, tmp_path: Path) -> None:
    one, other = picture(tmp_path / "1.bmp", 1), picture(tmp_path / "2.bmp", 2)
    assert one.stat().st_size == other.stat().st_size
    data = with_item(correct_set, Item(8, one, ("a",), "train"), Item(9, other, ("a",), "train"))
    assert check(data).duplicate_images == ()


def test_repeated_captions_are_counted_after_tokenizing(correct_set: CaptionSet) -> None:
    path = correct_set.items[0].path
    data = with_item(correct_set, Item(9, path, ("A Dog Runs!", "two birds", "Two birds.", "two birds"), "train"))
    train = check(data).splits[0]
    assert train.repeated_captions == 2  # the second and third of `two birds`
    assert train.shared_captions == 2  # `a dog runs` of pictures 0 and 9


def test_the_vocabulary_is_that_of_the_training_split(correct_set: CaptionSet) -> None:
    findings = check(correct_set, minimum_count=5)  # train: a 5, dog 5, six words once
    assert (findings.vocabulary_split, findings.vocabulary_size, findings.vocabulary_dropped) == ("train", 4 + 2, 6)
    train, val = findings.splits
    assert train.unknown_words == pytest.approx(6 / 16)
    assert val.unknown_words == pytest.approx(2 / 8)  # and, zebra
    assert val.captions_with_unknown == pytest.approx(1 / 2)


def test_a_check_of_val_alone_uses_the_training_vocabulary(correct_set: CaptionSet) -> None:
    alone = check(correct_set, splits=["val"])
    assert [split.name for split in alone.splits] == ["val"]
    assert alone.splits[0].unknown_words == pytest.approx(2 / 8)


def test_an_empty_split_is_a_problem(correct_set: CaptionSet) -> None:
    assert check(CaptionSet("x", correct_set.items, empty=("test",))).problems() == ["test: the split is empty"]


def test_a_set_without_val_that_training_could_not_divide_is_a_problem(tmp_path: Path) -> None:
    one = CaptionSet("one", (Item(0, picture(tmp_path / "0.png", 0), ("a dog",), "train"),))
    assert check(one, minimum_count=1).problems() == [
        "there is no val split, and none can be split off: 1 picture is too few to be divided into train, val; add "
        "pictures with captions"
    ]
    assert check(one, minimum_count=1, splits=["train"]).problems() == []
    same = [Item(i, picture(tmp_path / f"same{i}.png", 5), ("a dog",), "train") for i in range(3)]
    (problem,) = check(CaptionSet("same", tuple(same)), minimum_count=1).problems()
    assert "all pictures have the same content" in problem
    other = Item(9, picture(tmp_path / "other.png", 6), ("a dog",), "train")
    assert check(CaptionSet("two", (same[0], other)), minimum_count=1).problems() == []


def test_a_set_without_images_is_an_error() -> None:
    with pytest.raises(CaptionerError, match="x has no images"):
        check(CaptionSet("x", ()))


def test_the_error_for_an_unknown_split_lists_the_splits(correct_set: CaptionSet) -> None:
    with pytest.raises(CaptionerError, match=r"no split 'test'. It has: train, val"):
        check(correct_set, splits=["test"])
