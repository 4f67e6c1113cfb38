"""CaptionSet: splits, errors for missing splits, and combining sets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from captioner.data.caption_set import CaptionSet, Item, combine, split_of_file
from captioner.errors import CaptionerError


def make(name: str, ids: list[int | str], split: str = "train") -> CaptionSet:
    return CaptionSet(name, tuple(Item(i, Path(f"{name}/{i}.jpg"), (f"a {i}",), split) for i in ids))


def test_a_split_has_its_items_in_order() -> None:
    both = combine([make("a", [3, 1]), make("b", [7, 5], "val"), make("c", [2])])
    assert [item.id for item in both.split("train")] == [3, 1, 2]
    assert [item.id for item in both.split("val")] == [7, 5]


def test_splits_are_sorted_train_restval_val_test_then_others() -> None:
    parts = [make(name, [i], name) for i, name in enumerate(["odd", "test", "val", "restval", "train"])]
    assert combine(parts).splits == ("train", "restval", "val", "test", "odd")


def test_the_error_for_an_unknown_split_lists_the_splits_and_suggests_one() -> None:
    both = combine([make("flickr8k", [1]), make("flickr8k", [2], "val")])
    with pytest.raises(
        CaptionerError, match=r"flickr8k has no split 'tran'. Did you mean 'train'\? It has: train, val"
    ):
        both.split("tran")


def test_a_split_without_items_is_reported_as_empty() -> None:
    with pytest.raises(CaptionerError, match=r"'val' of x is empty. It has: train"):
        CaptionSet("x", make("x", [1]).items, empty=("val",)).split("val")


def test_other_names_of_a_split_are_understood() -> None:
    assert len(make("a", [1], "val").split("dev")) == len(make("a", [1], "val").split("Validation")) == 1


def test_combined_sets_keep_ids_that_are_unique() -> None:
    assert [item.id for item in combine([make("a", [1, 2]), make("b", ["x", 3])])] == [1, 2, "x", 3]


def test_combined_sets_with_a_common_id_prefix_all_ids_with_the_set_name() -> None:
    both = combine([make("coco", [1, 2]), make("flickr", [2, 3])])
    assert [item.id for item in both] == ["coco/1", "coco/2", "flickr/2", "flickr/3"]
    assert both.name == "coco+flickr"


def test_three_sets_with_the_same_name_and_ids_get_different_ids() -> None:
    parts = [make("a", [1]), make("a", [1]), make("a", [1])]
    assert [item.id for item in combine(parts)] == ["a/1", "a-2/1", "a-3/1"]


def test_a_split_is_not_empty_if_another_set_has_items_in_it() -> None:
    lacking = CaptionSet("a", make("a", [1]).items, empty=("val",))
    assert combine([lacking, make("b", [2], "val")]).empty == ()
    assert combine([lacking, make("b", [2])]).empty == ("val",)


def test_a_repeated_id_is_an_error() -> None:
    with pytest.raises(CaptionerError, match="7 occurs twice"):
        make("a", [7, 7])


def test_captioned_drops_blank_captions_and_items_without_captions() -> None:
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
def test_the_split_is_read_from_the_file_name(name: str, split: str | None) -> None:
    assert split_of_file(Path(name)) == split


def test_sets_load_without_pycocotools_and_torch() -> None:
    code = "import sys, captioner.data.caption_set; sys.exit(any(m in sys.modules for m in ('pycocotools', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
