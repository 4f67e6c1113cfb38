"""CaptionSet: splits, what they say when they aren't there, and adding sets up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from captioner.data.caption_set import CaptionSet, Item, combine, split_of_file
from captioner.errors import CaptionerError


def make(name: str, ids: list[int | str], split: str = "train") -> CaptionSet:
    return CaptionSet(name, tuple(Item(i, Path(f"{name}/{i}.jpg"), (f"a {i}",), split) for i in ids))


def test_a_split_holds_its_items_in_order() -> None:
    both = make("a", [3, 1]) + make("b", [7, 5], "val") + make("c", [2])
    assert [item.id for item in both.split("train")] == [3, 1, 2]
    assert [item.id for item in both.split("val")] == [7, 5]


def test_splits_come_in_their_usual_order() -> None:
    parts = [make(name, [i], name) for i, name in enumerate(["odd", "test", "val", "restval", "train"])]
    assert combine(parts).splits == ("train", "restval", "val", "test", "odd")


def test_an_unknown_split_lists_those_there_are_and_suggests() -> None:
    both = make("flickr8k", [1]) + make("flickr8k", [2], "val")
    with pytest.raises(
        CaptionerError, match=r"flickr8k has no split 'tran'. Did you mean 'train'\? It has: train, val"
    ):
        both.split("tran")


def test_a_split_that_is_named_but_empty_is_called_empty() -> None:
    with pytest.raises(CaptionerError, match=r"'val' of x is empty. It has: train"):
        CaptionSet("x", make("x", [1]).items, empty=("val",)).split("val")


def test_other_names_of_splits_find_them() -> None:
    assert len(make("a", [1], "val").split("dev")) == len(make("a", [1], "val").split("Validation")) == 1


def test_sets_whose_ids_differ_keep_them_when_added() -> None:
    assert [item.id for item in make("a", [1, 2]) + make("b", ["x", 3])] == [1, 2, "x", 3]


def test_sets_whose_ids_clash_get_the_name_of_their_set_before_all_ids() -> None:
    both = make("coco", [1, 2]) + make("flickr", [2, 3])
    assert [item.id for item in both] == ["coco/1", "coco/2", "flickr/2", "flickr/3"]
    assert both.name == "coco+flickr"


def test_three_sets_of_one_name_and_the_same_ids_stay_apart() -> None:
    parts = [make("a", [1]), make("a", [1]), make("a", [1])]
    assert [item.id for item in combine(parts)] == ["a/1", "a-2/1", "a-3/1"]
    assert len({item.id for item in parts[0] + parts[1] + parts[2]}) == 3


def test_an_empty_split_of_one_set_is_not_empty_when_another_fills_it() -> None:
    lacking = CaptionSet("a", make("a", [1]).items, empty=("val",))
    assert (lacking + make("b", [2], "val")).empty == ()
    assert (lacking + make("b", [2])).empty == ("val",)


def test_an_id_that_is_there_twice_is_refused() -> None:
    with pytest.raises(CaptionerError, match="7 is there twice"):
        make("a", [7, 7])


def test_captioned_drops_blank_captions_and_what_has_none_left() -> None:
    items = [("a dog", " ", "a cat"), ("", "\t"), (), ("a bird",)]
    whole = CaptionSet("x", tuple(Item(i, Path(), captions, "train") for i, captions in enumerate(items)))
    assert [item.captions for item in whole.captioned()] == [("a dog", "a cat"), ("a bird",)]
    assert list(whole.captions()) == ["a dog", " ", "a cat", "", "\t", "a bird"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("captions_train.json", "train"),
        ("captions_val2017.json", "val"),
        ("captions_train2014.json", "train"),
        ("dev.csv", "val"),
        ("test.jsonl", "test"),
        ("captions.json", None),
        ("trains_at_stations.json", None),
        ("captions_train_val.json", None),
    ],
)
def test_a_file_name_tells_its_split(name: str, split: str | None) -> None:
    assert split_of_file(Path(name)) == split


def test_sets_load_without_pycocotools_and_torch() -> None:
    code = "import sys, captioner.data.caption_set; sys.exit(any(m in sys.modules for m in ('pycocotools', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
