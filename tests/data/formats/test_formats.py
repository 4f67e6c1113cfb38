"""Every format is read correctly, and errors for broken files say what is wrong and where."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from captioner.data.formats.detection import FORMATS, read_set
from captioner.errors import CaptionerError, UsageError
from tests.data.caption_files import coco, karpathy, picture, pictures, write

SHARED = Path(os.environ.get("CAPTIONER_DATA", Path(__file__).parents[4] / "shared" / "data"))


# --- COCO -----------------------------------------------------------------------------------------


def test_coco_gives_raw_captions_in_the_files_order(tmp_path: Path) -> None:
    file = write(tmp_path / "captions_val2017.json", coco({9: ["A dog.", "Un chien !"], 4: ["犬がいる。"]}))
    pictures(tmp_path / "images", ["000000000009.jpg", "000000000004.jpg"])
    data = read_set(file)
    assert [(i.id, i.captions, i.split) for i in data] == [
        (9, ("A dog.", "Un chien !"), "val"),
        (4, ("犬がいる。",), "val"),
    ]
    assert [i.path for i in data] == [tmp_path / "images" / f"00000000000{n}.jpg" for n in (9, 4)]
    assert data.name == "captions_val2017"


def test_coco_reading_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    read_set(write(tmp_path / "captions_train.json", coco({1: ["a"]})))
    assert capfd.readouterr() == ("", "")


def test_a_coco_file_without_a_split_in_its_name_is_the_split_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.json", coco({1: ["a"]}))
    assert read_set(file).splits == ("train",)
    assert read_set(file, split="val").splits == ("val",)


def test_a_file_of_training_captions_is_not_read_as_val(tmp_path: Path) -> None:
    file = write(tmp_path / "captions_train.json", coco({1: ["a"]}))
    with pytest.raises(CaptionerError, match=r"no split 'val'. It has: train"):
        read_set(file, split="val")


def test_coco_captions_of_unlisted_images_are_counted_in_a_note(tmp_path: Path) -> None:
    content = coco({1: ["a"]})
    content["annotations"] += [{"id": 90, "image_id": 77, "caption": "b"}, {"id": 91, "image_id": 78, "caption": "c"}]
    (note,) = read_set(write(tmp_path / "captions.json", content)).notes
    assert "2 captions were left out" in note and "id 77" in note


def test_coco_images_without_captions_are_kept(tmp_path: Path) -> None:
    data = read_set(write(tmp_path / "captions.json", coco({1: [], 2: ["a"]})))
    assert [i.captions for i in data] == [(), ("a",)]


def test_coco_2014_names_find_2017_files_one_folder_down(tmp_path: Path) -> None:
    file = write(tmp_path / "a" / "captions.json", coco({139: ["a"]}, "COCO_val2014_{:012d}.jpg"))
    expected = picture(tmp_path / "photos" / "val2017" / "000000000139.jpg")
    assert read_set(file, tmp_path / "photos").items[0].path == expected


def test_cocos_own_folder_layout_is_found(tmp_path: Path) -> None:
    write(tmp_path / "annotations" / "captions_val2017.json", coco({139: ["a"]}))
    expected = picture(tmp_path / "val2017" / "000000000139.jpg")
    assert read_set(tmp_path).items[0].path == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["images"].append({"id": 1, "file_name": "x.jpg"}), "image id 1 is listed twice"),
        (lambda c: c["images"].append({"file_name": "x.jpg"}), r"images\[1\] lacks 'id'"),
        (lambda c: c["annotations"].append({"id": 3, "caption": "b"}), r"annotations\[1\] lacks 'image_id'"),
        (lambda c: c["annotations"].append({"id": 3, "image_id": 1}), "annotation 3 has no `caption`"),
        (lambda c: c["annotations"].append({"id": 3, "image_id": 1, "bbox": []}), "is this an instances file"),
        (lambda c: c["annotations"].append({"id": 3, "image_id": 1, "caption": 5}), "not text: 5"),
    ],
)
def test_the_error_for_a_broken_coco_record_names_it(tmp_path: Path, change: object, message: str) -> None:
    content = coco({1: ["a"]})
    change(content)
    with pytest.raises(CaptionerError, match=message):
        read_set(write(tmp_path / "captions.json", content))


# --- Karpathy -------------------------------------------------------------------------------------


def test_karpathy_has_four_splits_and_raw_sentences(tmp_path: Path) -> None:
    images = [(f"{split}.jpg", split, [f"A {split}, raw ."]) for split in ("train", "restval", "val", "test")]
    data = read_set(write(tmp_path / "dataset_tiny.json", karpathy(images)))
    assert data.name == "tiny"
    assert data.splits == ("train", "restval", "val", "test")
    assert list(data.split("val").captions()) == ["A val, raw ."]


def test_restval_counts_as_train_if_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "d.json", karpathy([("a.jpg", "train", ["a"]), ("b.jpg", "restval", ["b"])]))
    assert len(read_set(file, split="train")) == 1
    both = read_set(file, split="train", restval=True)
    assert len(both) == 2 and both.splits == ("train",)


def test_karpathy_filepath_and_cocoid_are_used(tmp_path: Path) -> None:
    file = write(tmp_path / "d.json", karpathy([("a.jpg", "train", ["a"])], filepath="val2014", cocoid=391895))
    expected = picture(tmp_path / "photos" / "val2014" / "a.jpg")
    (item,) = read_set(file, tmp_path / "photos")
    assert (item.id, item.path) == (391895, expected)


def test_karpathy_files_with_a_filepath_are_found_in_a_flat_folder(tmp_path: Path) -> None:
    file = write(tmp_path / "d.json", karpathy([("a.jpg", "train", ["a"])], filepath="val2014"))
    expected = picture(tmp_path / "photos" / "a.jpg")
    assert read_set(file, tmp_path / "photos").items[0].path == expected


def test_the_error_for_a_broken_karpathy_record_names_it(tmp_path: Path) -> None:
    content = karpathy([("a.jpg", "train", ["a"]), ("b.jpg", "train", ["b"])])
    del content["images"][1]["split"]
    with pytest.raises(CaptionerError, match=r"images\[1\] lacks 'split'"):
        read_set(write(tmp_path / "d.json", content))


# --- Flickr8k -------------------------------------------------------------------------------------

TOKENS = "a.jpg#0\tA dog .\na.jpg#1\tOne dog\nb.jpg#0\tA cat .\nc.jpg#0\tA bird .\nd.jpg#0\tA fish .\n"


def test_a_flickr8k_token_file_uses_the_split_lists_next_to_it(tmp_path: Path) -> None:
    file = write(tmp_path / "Flickr8k.token.txt", TOKENS)
    for name, pictured in (("train", "a.jpg\n"), ("dev", "b.jpg\n"), ("test", "c.jpg\r\n")):
        write(tmp_path / f"Flickr_8k.{name}Images.txt", pictured)
    expected = picture(tmp_path / "Flicker8k_Dataset" / "a.jpg")
    data = read_set(file)
    assert data.name == "Flickr8k"
    assert [(i.id, i.split) for i in data] == [
        ("a.jpg", "train"),
        ("b.jpg", "val"),
        ("c.jpg", "test"),
        ("d.jpg", "unlisted"),
    ]
    assert data.items[0].captions == ("A dog .", "One dog")
    assert data.items[0].path == expected


def test_flickr8k_without_lists_is_all_train_and_found_in_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "Flickr8k.token.txt", TOKENS)
    assert read_set(tmp_path).splits == ("train",)


def test_an_empty_flickr8k_list_is_an_empty_split(tmp_path: Path) -> None:
    file = write(tmp_path / "Flickr8k.token.txt", TOKENS)
    write(tmp_path / "Flickr_8k.devImages.txt", "\n")
    with pytest.raises(CaptionerError, match="'val' of Flickr8k is empty"):
        read_set(file, split="val")


def test_a_picture_in_two_flickr8k_lists_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "Flickr8k.token.txt", TOKENS)
    write(tmp_path / "Flickr_8k.trainImages.txt", "a.jpg\n")
    write(tmp_path / "Flickr_8k.devImages.txt", "a.jpg\n")
    with pytest.raises(CaptionerError, match=r"a.jpg is already in the split"):
        read_set(file)


def test_the_error_for_a_broken_flickr8k_line_has_its_number(tmp_path: Path) -> None:
    with pytest.raises(CaptionerError, match=r"line 3 is not `picture.jpg#0<TAB>caption`: 'no tab here'"):
        read_set(write(tmp_path / "x.token.txt", "a.jpg#0\tA\n\nno tab here\n"))


# --- tables ---------------------------------------------------------------------------------------

ROWS = [("a.jpg", "A dog, running", "train"), ("b.jpg", 'A "cat"', "dev"), ("a.jpg", "Ein Hund", "train")]


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "json", "lists", "kaggle.txt", "pipes.csv"])
def test_every_kind_of_table_gives_the_same_set(tmp_path: Path, form: str) -> None:
    file = tmp_path / (form if "." in form else f"captions.{form}")
    if form == "csv":
        text = 'image,caption,split\na.jpg,"A dog, running",train\nb.jpg,"A ""cat""",dev\na.jpg,Ein Hund,train\n'
    elif form == "kaggle.txt":
        text = (
            '\ufeffimage,caption,split\r\na.jpg,"A dog, running",train\r\nb.jpg,"A ""cat""",dev\r\na.jpg,Ein Hund,\r\n'
        )
    elif form == "pipes.csv":
        text = 'image_name| comment| split\na.jpg| A dog, running| train\nb.jpg| "A ""cat"""| dev\n'
        text += "a.jpg| Ein Hund| train\n"
    elif form == "tsv":
        text = 'split\tcaption\timage\ntrain\tA dog, running\ta.jpg\ndev\t"A ""cat"""\tb.jpg\ntrain\tEin Hund\ta.jpg\n'
    elif form == "lists":
        both = {"image": "a.jpg", "captions": ["A dog, running", "Ein Hund"], "split": "train"}
        text = json.dumps(both) + "\n" + json.dumps({"image": "b.jpg", "caption": 'A "cat"', "split": "val"})
    else:
        records = [dict(zip(("image", "caption", "split"), row, strict=True)) for row in ROWS]
        text = json.dumps(records, indent=1) if form == "json" else "\n".join(map(json.dumps, records))
    data = read_set(write(file, text))
    assert [(i.id, i.captions, i.split) for i in data] == [
        ("a.jpg", ("A dog, running", "Ein Hund"), "train"),
        ("b.jpg", ('A "cat"',), "val"),
    ]


def test_table_images_may_be_relative_or_absolute_paths(tmp_path: Path) -> None:
    inner = picture(tmp_path / "images" / "x" / "a.jpg")
    far = picture(tmp_path / "far" / "b.jpg")
    data = read_set(write(tmp_path / "t.csv", f"image,caption\nx/a.jpg,A\n{far},B\n"))
    assert [i.path for i in data] == [inner, far]


def test_a_table_without_splits_has_no_val(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "image,caption\na.jpg,A\n")
    with pytest.raises(CaptionerError, match=r"no split 'val'. It has: train"):
        read_set(file, split="val")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "image,caption\na.jpg,A dog, running\n", r"line 2 has 3 columns where the header has 2.*in quotes"),
        ("t.csv", "image,caption,split\na.jpg,A,train\nb.jpg,B\n", "line 3 has 2 columns"),
        ("t.csv", "image,caption\n,A\n", "line 2 names no image"),
        ("t.csv", "image,caption,split\na.jpg,A,train\na.jpg,B,val\n", "line 3: a.jpg is in the split 'val' and in"),
        ("t.jsonl", '{"image": "a", "caption": "A"}\n{"image": "b", "cap', "line 2, column 16"),
        ("t.jsonl", '{"image": "a", "caption": 3}\n', "line 1 has no text under `caption`: 3"),
        ("t.txt", "some words\n", "not a caption file of a known format .*'some words'"),
    ],
)
def test_the_error_for_a_broken_table_has_the_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(CaptionerError, match=message):
        read_set(write(tmp_path / name, text))


# --- a folder of pictures -------------------------------------------------------------------------


def test_a_folder_of_pictures_with_text_files_is_read(tmp_path: Path) -> None:
    pictures(tmp_path, ["b.JPG", "a.png", "sub/c.webp"])
    write(tmp_path / "b.txt", "A boat.\n\nZwei Boote\n")
    write(tmp_path / "sub" / "c.txt", "猫\n")
    write(tmp_path / "lost.txt", "nothing beside it")
    data = read_set(tmp_path)
    assert [(i.id, i.captions, i.split) for i in data] == [
        ("a.png", (), "train"),
        ("b.JPG", ("A boat.", "Zwei Boote"), "train"),
        ("sub/c.webp", ("猫",), "train"),
    ]
    assert "1 .txt files have no picture" in data.notes[0] and "lost.txt" in data.notes[0]


def test_sub_folders_are_splits(tmp_path: Path) -> None:
    pictures(tmp_path, ["train/a.png", "valid/x/b.png"])
    (tmp_path / "test").mkdir()
    data = read_set(tmp_path)
    assert [(i.id, i.split) for i in data] == [("train/a.png", "train"), ("valid/x/b.png", "val")]
    with pytest.raises(CaptionerError, match=r"'test' of .* is empty"):
        data.split("test")


def test_a_folder_of_files_is_one_set_with_their_splits(tmp_path: Path) -> None:
    write(tmp_path / "captions_train.json", coco({1: ["a"], 2: ["b"]}))
    write(tmp_path / "captions_val.json", coco({3: ["c"]}))
    write(tmp_path / "instances_val.json", {})
    data = read_set(tmp_path)
    assert data.name == tmp_path.name
    assert [(i.id, i.split) for i in data] == [(1, "train"), (2, "train"), (3, "val")]
    assert [i.id for i in read_set(tmp_path, split="val")] == [3]


def test_files_of_a_folder_with_the_same_ids_get_different_ids(tmp_path: Path) -> None:
    write(tmp_path / "captions_train.json", coco({1: ["a"]}))
    write(tmp_path / "captions_val.json", coco({1: ["c"]}))
    assert [i.id for i in read_set(tmp_path)] == ["captions_train/1", "captions_val/1"]


def test_the_error_for_a_folder_with_several_formats_names_the_files(tmp_path: Path) -> None:
    write(tmp_path / "captions_train.json", coco({1: ["a"]}))
    write(tmp_path / "dataset_x.json", karpathy([("a.jpg", "train", ["a"])]))
    with pytest.raises(CaptionerError, match=r"captions_train.json, dataset_x.json"):
        read_set(tmp_path)
    assert read_set(tmp_path, format="karpathy").items[0].id == 0


def test_the_error_for_an_empty_folder_lists_the_file_types(tmp_path: Path) -> None:
    with pytest.raises(CaptionerError, match=r"no pictures in this folder \(looked for .jpg"):
        read_set(tmp_path)


# --- paths and broken files -----------------------------------------------------------------------


def test_the_error_for_a_missing_file_has_the_setting_and_the_existing_part_of_the_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        read_set(tmp_path / "no" / "captions.json", setting="data.train.0.captions")
    assert f"{tmp_path / 'no' / 'captions.json'}: no such caption file" in str(error.value)
    assert "(from data.train.0.captions)" in str(error.value) and f"as far as {tmp_path}" in str(error.value)


@pytest.mark.parametrize("content", [coco({1: ["a"]}), karpathy([("a.jpg", "train", ["a"])])])
def test_the_error_for_a_missing_image_folder_has_the_setting(tmp_path: Path, content: object) -> None:
    with pytest.raises(UsageError, match=r"photos: no such folder of images \(from data.images\)"):
        read_set(write(tmp_path / "c.json", content), tmp_path / "photos", images_setting="data.images")


def test_missing_pictures_are_no_error_when_reading(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (item,) = read_set(write(tmp_path / "c.json", coco({7: ["a"]})), tmp_path / "photos")
    assert item.path == tmp_path / "photos" / "000000000007.jpg"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_the_error_for_truncated_json_has_line_and_column(tmp_path: Path, share: float) -> None:
    text = json.dumps(coco({i: [f"caption number {i}"] for i in range(20)}), indent=1)
    cut = text[: int(len(text) * share)]
    with pytest.raises(CaptionerError, match=r"captions.json: .* line \d+, column \d+") as error:
        read_set(write(tmp_path / "captions.json", cut))
    line = int(str(error.value).partition(" line ")[2].partition(",")[0])
    assert cut.count("\n") <= line <= cut.count("\n") + 1  # the last line, or the one before it


def test_the_error_for_broken_json_has_line_and_column(tmp_path: Path) -> None:
    with pytest.raises(CaptionerError, match="broken JSON at line 2, column 10"):
        read_set(write(tmp_path / "captions.json", '{"images": [],\n"other": oops}'))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b'{"images": "\xff\xfe"}', "not UTF-8 text .byte 12."),
        ("image,caption\na.jpg,a dog\n".encode("utf-16"), "the text is in UTF-16; save the file as UTF-8"),
        (b"\xfe\xff\0[\0]", "the text is in UTF-16; save the file as UTF-8"),
        (b'{"a": 1, "b": 2}', "its keys are a, b"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_the_error_for_another_kind_of_file_has_the_reason(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "captions.json").write_bytes(data)
    with pytest.raises(CaptionerError, match=message):
        read_set(tmp_path / "captions.json")


def test_the_error_for_an_unknown_format_lists_the_formats(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'karpaty'. Did you mean 'karpathy'\? Known: " + ", ".join(FORMATS)):
        read_set(write(tmp_path / "c.json", coco({1: ["a"]})), format="karpaty")


# --- the published sets ---------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.is_dir(), reason="the caption files are not there (set CAPTIONER_DATA)")
def test_the_published_files_have_the_documented_sizes() -> None:
    pytest.importorskip("pycocotools")
    val = read_set(SHARED / "coco" / "captions_val.json", SHARED / "coco" / "val_500")
    assert len(val) == 4385 and val.splits == ("val",)
    assert sum(item.path.exists() for item in val) == 500
    flickr = read_set(SHARED / "flickr8k" / "dataset_flickr8k.json")
    assert [len(flickr.split(name)) for name in ("train", "val")] == [6000, 1000]
    assert {len(item.captions) for item in flickr} == {5}


@pytest.mark.parametrize(
    "content",
    [
        '{"images": [{"id": [1], "file_name": "a.jpg"}], "annotations": []}',
        '{"images": [{"id": 1, "file_name": {}}], "annotations": []}',
        '{"images": [], "annotations": [{"image_id": [], "caption": "a"}]}',
        '{"images": [{"filename": "a.jpg", "split": "train", "sentences": 3}]}',
        '{"images": [{"filename": "a.jpg", "split": "train", "sentences": [], "imgid": [1]}]}',
        '{"images": [7], "annotations": [7]}',
        '{"images": [7]}',
        '[{"image": "a\\u0000b.jpg", "caption": "a"}]',
        '[{"image": "a.jpg", "caption": "a", "split": {"x": 1}}]',
        '{"images": ' + "9" * 5000 + ', "annotations": []}',
        "[" * 100_000,
        "3",
        "[3]",
    ],
)
def test_a_file_with_wrong_types_is_read_or_refused_with_a_sentence(tmp_path, content):
    (tmp_path / "captions.json").write_text(content)
    try:
        read_set(tmp_path / "captions.json")
    except CaptionerError as error:
        assert len(str(error)) < 600
