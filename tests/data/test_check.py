"""The check finds what was put into a set on purpose, and nothing in a sound one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from captioner.data.caption_set import CaptionSet, Item
from captioner.data.check import check
from captioner.errors import CaptionerError
from tests.data.caption_files import picture


@pytest.fixture
def sound(tmp_path: Path) -> CaptionSet:
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


def test_nothing_is_found_in_a_sound_set(sound: CaptionSet) -> None:
    findings = check(sound, minimum_count=1)
    assert findings.problems() == []
    assert (findings.images, findings.captions) == (4, 8)
    assert findings.duplicate_images == findings.overlaps == findings.notes == ()
    train, val = findings.splits
    assert (train.images, train.captions_per_image, train.words_per_caption) == (3, (2, 2.0, 2), (2, 8 / 3, 3))
    assert (val.images, val.words_per_caption) == (1, (3, 4.0, 5))
    for split in findings.splits:
        assert split.missing == split.unreadable == split.uncaptioned == split.empty_captions == ()


def test_missing_images_are_an_error_unless_allowed(sound: CaptionSet, tmp_path: Path) -> None:
    gone = tmp_path / "gone.png"
    findings = check(with_item(sound, Item(9, gone, ("a dog",), "val")))
    assert findings.splits[1].missing == (str(gone),)
    (problem,) = findings.problems()
    assert problem.startswith("val: 1 of 2 images are missing")
    assert findings.problems(allow_missing=True) == []


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n\x00"])
def test_unreadable_pictures_are_found(sound: CaptionSet, tmp_path: Path, content: bytes, decode: bool) -> None:
    (tmp_path / "bad.png").write_bytes(content)
    findings = check(with_item(sound, Item(9, tmp_path / "bad.png", ("a dog",), "train")), decode=decode)
    ((file, why),) = findings.splits[0].unreadable
    assert file.endswith("bad.png") and why
    assert "1 images can't be read" in findings.problems(allow_missing=True)[0]


def test_a_cut_off_picture_is_found_by_decoding_and_the_findings_say_whether_that_was_done(
    sound: CaptionSet, tmp_path: Path
) -> None:
    whole = picture(tmp_path / "whole.jpg", 50, size=(64, 64))
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    data = with_item(sound, Item(9, cut, ("a dog",), "train"))
    headers, pixels = check(data), check(data, decode=True)
    assert (headers.decoded, headers.splits[0].unreadable) == (False, ())
    assert pixels.decoded and pixels.splits[0].unreadable[0][0] == str(cut)


def test_captions_that_are_empty_long_or_absent_are_found(sound: CaptionSet) -> None:
    path = sound.items[0].path
    findings = check(
        with_item(sound, Item(8, path, (" . ", "a " * 11), "train"), Item(9, path, (), "train")), max_length=10
    )
    train = findings.splits[0]
    assert train.empty_captions == (("8", " . "),)
    assert train.long_captions == (("8", "a " * 11),)
    assert train.uncaptioned == (str(path),)


def test_ten_words_are_not_more_than_ten(sound: CaptionSet) -> None:
    data = with_item(sound, Item(9, sound.items[0].path, ("a " * 10,), "train"))
    assert check(data, max_length=10).splits[0].long_captions == ()


def test_a_split_without_any_caption_is_an_error(sound: CaptionSet) -> None:
    data = with_item(sound, Item(9, sound.items[0].path, (), "test"))
    assert check(data).problems() == ["test: none of its 1 images has a caption"]


def test_copies_of_a_picture_are_found_within_a_split_and_between_splits(sound: CaptionSet, tmp_path: Path) -> None:
    first, inside, across = sound.items[0].path, tmp_path / "inside.png", tmp_path / "across.png"
    shutil.copy(first, inside)
    shutil.copy(first, across)
    findings = check(with_item(sound, Item(8, inside, ("a dog",), "train"), Item(9, across, ("a dog",), "val")))
    assert findings.duplicate_images == ((str(first), str(inside), str(across)),)
    (overlap,) = findings.overlaps
    assert (overlap.splits, overlap.same_file) == (("train", "val"), ())
    assert set(overlap.same_content) == {(str(first), str(across)), (str(inside), str(across))}


def test_a_file_listed_in_two_splits_is_an_overlap_but_no_duplicate(sound: CaptionSet) -> None:
    path = sound.items[0].path
    findings = check(with_item(sound, Item(9, path, ("a dog",), "val")))
    assert findings.duplicate_images == ()
    assert [(o.splits, o.same_file, o.same_content) for o in findings.overlaps] == [
        (("train", "val"), (str(path),), ())
    ]


def test_pictures_of_one_length_but_other_content_are_no_duplicates(sound: CaptionSet, tmp_path: Path) -> None:
    one, other = picture(tmp_path / "1.bmp", 1), picture(tmp_path / "2.bmp", 2)
    assert one.stat().st_size == other.stat().st_size
    data = with_item(sound, Item(8, one, ("a",), "train"), Item(9, other, ("a",), "train"))
    assert check(data).duplicate_images == ()


def test_doubled_captions_are_counted_after_tokenizing(sound: CaptionSet) -> None:
    path = sound.items[0].path
    data = with_item(sound, Item(9, path, ("A Dog Runs!", "two birds", "Two birds.", "two birds"), "train"))
    train = check(data).splits[0]
    assert train.repeated_captions == 2  # the second and third of `two birds`
    assert train.shared_captions == 2  # `a dog runs` of pictures 0 and 9


def test_the_vocabulary_is_the_training_splits_alone(sound: CaptionSet) -> None:
    findings = check(sound, minimum_count=5)  # train: a 5, dog 5, six words once
    assert (findings.vocabulary_split, findings.vocabulary_size, findings.vocabulary_dropped) == ("train", 4 + 2, 6)
    train, val = findings.splits
    assert train.unknown_words == pytest.approx(6 / 16)
    assert val.unknown_words == pytest.approx(2 / 8)  # and, zebra
    assert val.captions_with_unknown == pytest.approx(1 / 2)


def test_a_look_at_val_alone_keeps_the_training_vocabulary(sound: CaptionSet) -> None:
    alone = check(sound, splits=["val"])
    assert [split.name for split in alone.splits] == ["val"]
    assert alone.splits[0].unknown_words == pytest.approx(2 / 8)


def test_an_empty_split_is_a_problem(sound: CaptionSet) -> None:
    assert check(CaptionSet("x", sound.items, empty=("test",))).problems() == ["test: the split is empty"]


def test_a_set_of_nothing_is_an_error() -> None:
    with pytest.raises(CaptionerError, match="x holds no images at all"):
        check(CaptionSet("x", ()))


def test_an_unknown_split_lists_those_there_are(sound: CaptionSet) -> None:
    with pytest.raises(CaptionerError, match=r"no split 'test'. It has: train, val"):
        check(sound, splits=["test"])
