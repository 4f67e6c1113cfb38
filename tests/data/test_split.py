"""Sets are divided by picture, repeatably, and equal pictures stay together."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.data.caption_set import CaptionSet, Item
from captioner.data.formats.detection import read_set
from captioner.data.split import as_table, divide, divided
from captioner.errors import CaptionerError, UsageError
from tests.data.caption_files import picture


def photos(folder: Path, count: int, *, copies: int = 0) -> list[Item]:
    """Different pictures; the last `copies` repeat the first ones under other names."""
    items = []
    for n in range(count):
        path = picture(folder / f"{n:03d}.png", seed=n if n < count - copies else n - (count - copies))
        items.append(Item(path.name, path, (f"caption {n}",), "train"))
    return items


def names(items: tuple[Item, ...]) -> set[str]:
    return {str(item.id) for item in items}


def test_the_shares_are_exact_and_every_picture_is_in_one_split(tmp_path: Path) -> None:
    items = photos(tmp_path, 50)
    parts = divide(items, {"val": 0.1, "test": 0.2}, seed=0)
    assert {split: len(part) for split, part in parts.items()} == {"train": 35, "val": 5, "test": 10}
    assert sorted(item.id for part in parts.values() for item in part) == sorted(item.id for item in items)


def test_the_seed_decides(tmp_path: Path) -> None:
    items = photos(tmp_path, 40)
    first, again, other = (divide(items, {"val": 0.25}, seed=seed)["val"] for seed in (1, 1, 2))
    assert names(first) == names(again) != names(other)


def test_the_order_of_the_items_and_their_folder_do_not_matter(tmp_path: Path) -> None:
    items = photos(tmp_path / "one" / "photos", 40)
    moved = photos(tmp_path / "two" / "photos", 40)
    assert names(divide(items, {"val": 0.25}, seed=0)["val"]) == names(
        divide(moved[::-1], {"val": 0.25}, seed=0)["val"]
    )


def test_new_pictures_move_few_of_the_old_ones(tmp_path: Path) -> None:
    items = photos(tmp_path, 110)
    before = names(divide(items[:100], {"val": 0.2}, seed=0)["val"])
    after = names(divide(items, {"val": 0.2}, seed=0)["val"])
    assert len(before - after) <= 10


@pytest.mark.parametrize("seed", range(5))
def test_equal_pictures_stay_in_one_split(tmp_path: Path, seed: int) -> None:
    items = photos(tmp_path, 40, copies=15)
    parts = divide(items, {"val": 0.3}, seed=seed)
    contents = {split: {item.path.read_bytes() for item in part} for split, part in parts.items()}
    assert not contents["train"] & contents["val"]
    assert 12 <= len(parts["val"]) <= 13


def test_too_few_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptionerError, match="1 picture is too few"):
        divide(photos(tmp_path, 1), {"val": 0.1}, seed=0)
    with pytest.raises(CaptionerError, match="the same content"):
        divide(photos(tmp_path / "same", 2, copies=1), {"val": 0.5}, seed=0)


def test_shares_that_leave_nothing_for_train_are_refused(tmp_path: Path) -> None:
    sentence = r"^0\.9 \+ 0\.5 of the pictures for val and test leave none for train; the sum must be less than 1$"
    with pytest.raises(UsageError, match=sentence):
        divide(photos(tmp_path, 20), {"val": 0.9, "test": 0.5}, seed=0)


def test_other_splits_stay_and_the_table_keeps_everything(tmp_path: Path) -> None:
    items = [*photos(tmp_path / "photos", 20), Item("t", picture(tmp_path / "t.png", 99), ('say "x", y',), "test")]
    result = divided(CaptionSet("mine", tuple(items)), {"val": 0.25}, seed=0)
    assert {split: len(result.split(split)) for split in result.splits} == {"train": 15, "val": 5, "test": 1}
    table = tmp_path / "tables" / "captions.csv"
    table.parent.mkdir()
    table.write_text(as_table(result, table.parent))
    again = read_set(table)
    expected = [(item.path.name, item.captions, item.split) for item in result]
    assert [(item.path.name, item.captions, item.split) for item in again] == expected
    assert all(item.path.is_file() for item in again)
