"""`captioner data download` puts each set where the shipped configs expect it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from captioner.data.check import check
from captioner.data.download import catalogue, room
from captioner.data.formats.detection import read_set
from captioner.files.atomic import writer_label
from tests.cli.command_line import Done, run
from tests.data.download.file_server import Server
from tests.data.download.tiny_coco import KARPATHY, TRAIN, VAL, dataset_coco, lavis, serve_coco, serve_flickr8k, zipped

ROOT = Path(__file__).parents[3]


@pytest.fixture
def mirror(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    serve_coco(server, monkeypatch)
    serve_flickr8k(server, monkeypatch)
    return server


def download(mirror: Server, output: Path, *arguments: object) -> Done:
    return run("data", "download", *arguments, "--output", output, "--base-url", mirror.url)


def split_ids(folder: Path) -> dict[str, tuple[int, ...]]:
    files = {path.stem.removeprefix("captions_"): json.loads(path.read_text()) for path in folder.glob("captions_*")}
    return {split: tuple(record["id"] for record in content["images"]) for split, content in files.items()}


def pictures(folder: Path) -> set[int]:
    return {int(path.stem[-12:]) for path in (folder / "images").rglob("*.jpg")}


def ready(captions: Path) -> bool:
    return check(read_set(captions), minimum_count=1, decode=True).problems() == []


def archives(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.zip"))


def test_coco_with_karpathys_splits_is_ready_for_the_shipped_configs(mirror: Server, tmp_path: Path) -> None:
    done = download(mirror, tmp_path, "coco2014", "--karpathy")
    assert (done.returncode, done.stderr) == (0, "")
    coco = tmp_path / "coco"
    assert split_ids(coco) == {"train": (4, 1, 2, 3, 14), "val": (12, 11), "test": (13,)}
    assert pictures(coco) == {*TRAIN, *VAL}
    assert archives(coco) == []
    assert (coco / "annotations" / "instances_val2014.json").is_file()
    assert not list(coco.rglob("person_keypoints*")) and not list(coco.rglob("*.part*"))
    assert ready(coco)
    assert "CC BY 4.0" in done.stdout
    pytest.importorskip("torch")
    from captioner.train.config_file import load
    from captioner.train.splits import read_split

    config = load(ROOT / "configs" / "coco_soft.yaml", [f"data.root={tmp_path}"])
    assert (len(read_split(config, "train")), len(read_split(config, "val"))) == (5, 2)


SMALL = [
    "encoder.weights=none",
    "encoder.size=64",
    "model.annotation_size=16",
    "model.attention.size=8",
    "model.embedding_size=16",
    "model.hidden_size=16",
    "training.epochs=1",
    "training.threads=1",
    "training.validation.search.beam=1",
]


@pytest.mark.slow
def test_the_shipped_config_trains_on_a_download(mirror: Server, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs captioner[train]")
    from captioner.train.run_folder import RunFolder

    download(mirror, tmp_path, "coco2014", "--karpathy")
    settings = [f"data.root={tmp_path}", f"features.folder={tmp_path / 'cache'}", *SMALL]
    options = [part for setting in settings for part in ("--set", setting)]
    done = run("train", "--config", ROOT / "configs" / "coco_soft.yaml", *options, "--run", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    folder = RunFolder(tmp_path / "run")
    assert folder.checkpoint.is_file() and folder.best_weights.is_file()


def test_the_captions_are_cocos_own(mirror: Server, tmp_path: Path) -> None:
    download(mirror, tmp_path, "coco2014", "--karpathy")
    content = json.loads((tmp_path / "coco" / "captions_val.json").read_text())
    assert [annotation["caption"] for annotation in content["annotations"]][:2] == [
        "A picture number 12 ",
        "A picture number 12 again",
    ]
    assert content["licenses"] == [{"id": 1}]


def test_a_second_call_fetches_nothing(mirror: Server, tmp_path: Path) -> None:
    download(mirror, tmp_path, "coco2014", "--karpathy")
    asked = len(mirror.requests)
    assert download(mirror, tmp_path, "coco2014", "--karpathy").returncode == 0
    assert len(mirror.requests) == asked


def forms(folder: Path, mirror: Server) -> dict[str, list[Any]]:
    """Karpathy's splits in each published form, by path and by URL."""
    folder.mkdir()
    (folder / "dataset_coco.json").write_bytes(dataset_coco())
    (folder / "caption_datasets.zip").write_bytes(
        zipped({"dataset_flickr8k.json": b"{}", "dataset_coco.json": dataset_coco()})
    )
    train = [*KARPATHY["train"], *KARPATHY["restval"]]
    for split, ids in {"train": train, "val": KARPATHY["val"], "test": KARPATHY["test"]}.items():
        (folder / f"karpathy_{split}_images.txt").write_text(
            "".join(f"{'val' if i in VAL else 'train'}2014/COCO_x_{i:012d}.jpg {i}\n" for i in ids)
        )
        (folder / f"ids_{split}.json").write_text(json.dumps(list(ids)))
        (folder / f"coco_karpathy_{split}.json").write_bytes(lavis()[split])
    mirror.files["/elsewhere/dataset_coco.json"] = dataset_coco()
    return {
        "dataset": [folder / "dataset_coco.json"],
        "zip": [folder / "caption_datasets.zip"],
        "texts": sorted(folder.glob("karpathy_*.txt")),
        "json lists": sorted(folder.glob("ids_*.json")),
        "lavis": sorted(folder.glob("coco_karpathy_*.json")),
        "url": [f"{mirror.url}/elsewhere/dataset_coco.json"],
    }


@pytest.mark.parametrize("form", ["dataset", "zip", "texts", "json lists", "lavis", "url"])
def test_every_form_of_karpathys_splits_gives_the_same_splits(mirror: Server, tmp_path: Path, form: str) -> None:
    options = [part for source in forms(tmp_path / "given", mirror)[form] for part in ("--karpathy", source)]
    done = download(mirror, tmp_path, "karpathy", *options)
    assert done.returncode == 0, done.stderr
    assert split_ids(tmp_path / "coco") == {"train": (4, 1, 2, 3, 14), "val": (12, 11), "test": (13,)}
    assert pictures(tmp_path / "coco") == set()


def test_lists_of_the_same_name_from_two_addresses_are_told_apart(mirror: Server, tmp_path: Path) -> None:
    other = json.loads(dataset_coco())
    other["images"] = [record for record in other["images"] if record["split"] != "restval"]
    mirror.files |= {"/a/dataset_coco.json": dataset_coco(), "/b/dataset_coco.json": json.dumps(other).encode()}
    for source, train in (("a", (4, 1, 2, 3, 14)), ("b", (4, 1, 2, 3)), ("a", (4, 1, 2, 3, 14))):
        address = f"{mirror.url}/{source}/dataset_coco.json"
        done = download(mirror, tmp_path, "karpathy", "--karpathy", address, "--overwrite")
        assert done.returncode == 0, done.stderr
        assert split_ids(tmp_path / "coco")["train"] == train
    assert [path for path, wanted in mirror.requests if wanted == "bytes=0-0"].count("/a/dataset_coco.json") == 1


@pytest.mark.parametrize("form", ["dataset", "lavis"])
def test_restval_can_be_left_out(mirror: Server, tmp_path: Path, form: str) -> None:
    options = [part for source in forms(tmp_path / "given", mirror)[form] for part in ("--karpathy", source)]
    assert download(mirror, tmp_path, "karpathy", "--no-restval", *options).returncode == 0
    assert split_ids(tmp_path / "coco")["train"] == (4, 1, 2, 3)


def test_cocos_own_splits_of_2017(mirror: Server, tmp_path: Path) -> None:
    done = download(mirror, tmp_path, "coco2017")
    assert done.returncode == 0, done.stderr
    assert split_ids(tmp_path / "coco") == {"train": TRAIN, "val": VAL}
    assert ready(tmp_path / "coco")


def test_one_split_needs_only_its_archive(mirror: Server, tmp_path: Path) -> None:
    download(mirror, tmp_path, "coco2014", "--karpathy", "--split", "val", "--split", "test")
    assert split_ids(tmp_path / "coco") == {"val": (12, 11), "test": (13,)}
    asked = {path for path, _ in mirror.requests}
    assert "/zips/val2014.zip" in asked and "/zips/train2014.zip" not in asked
    assert ready(tmp_path / "coco")


def test_a_few_pictures_come_one_by_one(mirror: Server, tmp_path: Path) -> None:
    done = download(mirror, tmp_path, "coco2014", "--karpathy", "--max-images", 2)
    assert done.returncode == 0, done.stderr
    assert split_ids(tmp_path / "coco") == {"train": (4, 1), "val": (12, 11), "test": (13,)}
    assert pictures(tmp_path / "coco") == {4, 1, 12, 11, 13}
    assert not any("zips" in path for path, _ in mirror.requests)
    assert ready(tmp_path / "coco")
    more = download(mirror, tmp_path, "coco2014", "--karpathy", "--max-images", 3)
    assert more.returncode == 2 and "captions_train.json exists and is kept" in more.stderr
    assert download(mirror, tmp_path, "coco2014", "--karpathy", "--max-images", 3, "--overwrite").returncode == 0
    assert pictures(tmp_path / "coco") == {4, 1, 2, 12, 11, 13}


def test_pictures_that_fail_are_named_and_tried_again(mirror: Server, tmp_path: Path) -> None:
    path = "/train2014/COCO_train2014_000000000004.jpg"
    picture = mirror.files.pop(path)
    mirror.statuses["/train2014/COCO_train2014_000000000001.jpg"] = [503]  # once
    done = download(mirror, tmp_path, "coco2014", "--max-images", 4, "--split", "train")
    assert done.returncode == 1
    assert f"{path}: the server answers 404" in done.stderr and "1 pictures could not be fetched" in done.stderr
    assert pictures(tmp_path / "coco") == {1, 2, 3}
    assert "data.allow_missing=true" in done.stderr  # what to do where the photo is gone for good
    again = download(mirror, tmp_path, "coco2014", "--max-images", 4, "--split", "train")
    assert again.stderr.splitlines()[-2:] == done.stderr.splitlines()[-2:]
    mirror.files[path] = b"<html>"
    again = download(mirror, tmp_path, "coco2014", "--max-images", 4, "--split", "train")
    assert "the answer is not a picture" in again.stderr
    mirror.files[path] = picture
    assert download(mirror, tmp_path, "coco2014", "--max-images", 4, "--split", "train").returncode == 0
    assert ready(tmp_path / "coco")


def test_packed_archives_are_read_in_place(mirror: Server, tmp_path: Path) -> None:
    done = download(mirror, tmp_path, "coco2014", "--karpathy", "--no-unpack")
    assert done.returncode == 0, done.stderr
    assert archives(tmp_path / "coco" / "images") == ["train2014.zip", "val2014.zip"]
    assert pictures(tmp_path / "coco") == set()
    assert ready(tmp_path / "coco")
    assert download(mirror, tmp_path, "coco2014", "--karpathy").returncode == 0  # the packed ones are unpacked
    assert pictures(tmp_path / "coco") == {*TRAIN, *VAL}


def test_archives_are_kept_on_request(mirror: Server, tmp_path: Path) -> None:
    download(mirror, tmp_path, "coco2014", "--keep")
    assert archives(tmp_path / "coco") == ["annotations_trainval2014.zip", "train2014.zip", "val2014.zip"]


def test_an_interrupted_unpacking_continues(mirror: Server, tmp_path: Path) -> None:
    download(mirror, tmp_path, "coco2014", "--keep")
    folder = tmp_path / "coco" / "images" / "train2014"
    first, second, *_ = sorted(folder.iterdir())
    first.unlink()
    second.write_bytes(b"cut")
    mirror.requests.clear()
    assert download(mirror, tmp_path, "coco2014").returncode == 0
    assert mirror.requests == []
    assert ready(tmp_path / "coco")


@pytest.mark.parametrize("option", [["--keep"], ["--max-images", "4"]], ids=["archive", "single pictures"])
def test_unfinished_files_of_a_killed_download_are_removed(mirror: Server, tmp_path: Path, option: list[str]) -> None:
    killed = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    download(mirror, tmp_path, "coco2014", *option)
    picture = tmp_path / "coco" / "images" / "train2014" / "COCO_train2014_000000000001.jpg"
    host = writer_label().rpartition("-")[0]
    unfinished = picture.with_name(f".{picture.name}.{host}-{killed.stdout.strip()}.part")
    picture.rename(unfinished)
    download(mirror, tmp_path, "coco2014", *option)
    assert picture.is_file() and not unfinished.exists()


def test_flickr8k_shows_its_licence_and_needs_consent(mirror: Server, tmp_path: Path) -> None:
    refused = download(mirror, tmp_path, "flickr8k")
    assert refused.returncode == 2 and "non-commercial" in refused.stderr and "--accept-licence" in refused.stderr
    assert mirror.requests == []
    done = download(mirror, tmp_path, "flickr8k", "--accept-licence")
    assert done.returncode == 0, done.stderr
    whole = read_set(tmp_path / "flickr8k" / "dataset_flickr8k.json")
    assert {split: len(whole.split(split)) for split in whole.splits} == {"train": 2, "val": 1, "test": 1}
    assert whole.items[0].captions[0] == "A photo a 0 ."
    assert ready(tmp_path / "flickr8k" / "dataset_flickr8k.json")
    assert ready(tmp_path / "flickr8k")
    assert archives(tmp_path / "flickr8k") == []


def test_a_wrong_checksum_exits_1_and_the_file_stays(
    mirror: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = mirror.files["/zips/val2014.zip"]
    mirror.files["/zips/val2014.zip"] = archive[:-1] + b"!"
    done = download(mirror, tmp_path, "coco2014", "--split", "val")
    assert done.returncode == 1 and "its MD5 is" in done.stderr and "It is kept" in done.stderr
    assert (tmp_path / "coco" / "val2014.zip.part").stat().st_size == len(archive)


@pytest.mark.parametrize("name", ["coco", "flickr8k"])
@pytest.mark.parametrize("damage", ["another size", "another MD5"])
def test_an_archive_that_is_there_is_checked_before_it_is_unpacked(
    mirror: Server, tmp_path: Path, name: str, damage: str
) -> None:
    source, target, call = {
        "coco": ("/zips/val2014.zip", "coco/val2014.zip", ["coco2014", "--split", "val"]),
        "flickr8k": (
            f"/{catalogue.FLICKR8K_PICTURES.path}",
            "flickr8k/Flickr8k_Dataset.zip",
            ["flickr8k", "--accept-licence"],
        ),
    }[name]
    whole = mirror.files[source]
    archive = tmp_path / target
    archive.parent.mkdir()
    archive.write_bytes(whole + b"!" if damage == "another size" else b"!" + whole[1:])
    before = archive.read_bytes()
    done = download(mirror, tmp_path, *call)
    assert done.returncode == 1 and "It is kept; delete it to fetch it again" in done.stderr
    assert ("bytes, the published one" if damage == "another size" else "its MD5 is") in done.stderr
    assert archive.read_bytes() == before and pictures(archive.parent) == set()
    archive.write_bytes(whole)
    assert download(mirror, tmp_path, *call).returncode == 0
    assert ready(archive.parent) and source not in {path for path, _ in mirror.requests}


def test_an_archive_that_stays_packed_is_checked_by_its_size_only(mirror: Server, tmp_path: Path) -> None:
    """Otherwise every call would read 20 GB."""
    download(mirror, tmp_path, "coco2014", "--no-unpack")
    archive = tmp_path / "coco" / "images" / "train2014.zip"
    archive.write_bytes(b"!" + archive.read_bytes()[1:])
    assert download(mirror, tmp_path, "coco2014", "--no-unpack").returncode == 0
    refused = download(mirror, tmp_path, "coco2014")
    assert refused.returncode == 1 and "its MD5 is" in refused.stderr
    archive.write_bytes(archive.read_bytes()[:-1])
    refused = download(mirror, tmp_path, "coco2014", "--no-unpack")
    assert refused.returncode == 1 and "bytes, the published one" in refused.stderr


def fill_disk(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The disk has 100 bytes left for downloads."""
    usage = shutil.disk_usage(folder)._replace(free=room.SPARE + 100)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)


@pytest.mark.parametrize("arguments", [["coco2014"], ["coco2017"], ["flickr8k", "--accept-licence"]])
@pytest.mark.parametrize("option", [[], ["--no-unpack"]])
def test_a_disk_without_room_exits_1_before_anything_is_fetched(
    mirror: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], option: list[str]
) -> None:
    fill_disk(monkeypatch, tmp_path)
    done = download(mirror, tmp_path, *arguments, *option)
    assert done.returncode == 1 and "make room, or choose another disk" in done.stderr
    assert mirror.requests == []


@pytest.mark.parametrize("before", ["few pictures", "one of two archives", "another year"])
def test_a_disk_without_room_for_further_archives_exits_1_before_they_are_fetched(
    mirror: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    year = "coco2017" if before == "another year" else "coco2014"
    if before == "few pictures":
        download(mirror, tmp_path, "coco2014", "--max-images", 1)
    else:
        download(mirror, tmp_path, "coco2014")
    if before == "one of two archives":
        shutil.rmtree(tmp_path / "coco" / "images" / "val2014")
    if before == "another year":
        download(mirror, tmp_path, "coco2017", "--max-images", 1, "--overwrite")
    mirror.requests.clear()
    fill_disk(monkeypatch, tmp_path)
    done = download(mirror, tmp_path, year, "--overwrite")
    assert done.returncode == 1 and "make room, or choose another disk" in done.stderr
    assert mirror.requests == []


def test_a_full_disk_is_enough_for_what_is_there(
    mirror: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download(mirror, tmp_path, "coco2014", "--keep")
    download(mirror, tmp_path, "flickr8k", "--accept-licence")
    (tmp_path / "coco" / "images" / "train2014" / "COCO_train2014_000000000001.jpg").rename(tmp_path / "away.jpg")
    usage = shutil.disk_usage(tmp_path)._replace(free=room.SPARE + 3_000)  # less than an archive, more than a picture
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    for arguments in (["coco2014"], ["flickr8k", "--accept-licence"]):
        done = download(mirror, tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
    assert ready(tmp_path / "coco")


def test_an_archive_with_paths_out_of_its_folder_is_refused(
    mirror: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = zipped({"../../evil.txt": b"x", "train2014/a.jpg": b"x"})
    mirror.files["/zips/train2014.zip"] = evil
    done = download(mirror, tmp_path / "data", "coco2014", "--split", "train", "--ignore-checksum")
    assert done.returncode == 1 and "unsafe path '../../evil.txt'" in done.stderr
    assert not list(tmp_path.rglob("evil*"))


def damaged_deflate_stream() -> bytes:
    packed = bytearray(zipped({"train2014/a.jpg": b"a picture" * 99}, zipfile.ZIP_DEFLATED))
    start = 30 + len("train2014/a.jpg")
    packed[start : start + 2] = b"\xff\xff"
    return bytes(packed)


def with_header(flag: int, method: int) -> bytes:
    """An archive whose only member has this flag and compression method in both of its headers."""
    packed = bytearray(zipped({"train2014/a.jpg": b"a picture"}))
    central = packed.index(b"PK\1\2")
    for start in (6, central + 8):
        packed[start : start + 4] = bytes([flag, 0, method, 0])
    return bytes(packed)


@pytest.mark.parametrize(
    "archive",
    [damaged_deflate_stream(), with_header(1, 0), with_header(0, 97), b"no zip"],
    ids=["damaged", "encrypted", "unknown method", "no zip"],
)
def test_an_archive_that_cannot_be_unpacked_is_a_sentence(mirror: Server, tmp_path: Path, archive: bytes) -> None:
    mirror.files["/zips/train2014.zip"] = archive
    done = download(mirror, tmp_path, "coco2014", "--split", "train", "--ignore-checksum")
    assert done.returncode == 1 and "not a zip file that can be unpacked" in done.stderr
    assert pictures(tmp_path / "coco") == set() and not list(tmp_path.rglob("*.part*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["coco2015"], "coco2015"),
        (["coco2014", "--split", "dev2"], "has no split 'dev2'; it has train, val"),
        (["--karpathy", "coco2014"], "Missing argument"),
        (["coco2017", "--karpathy", "coco2014"], "name the set before --karpathy"),
        (["karpathy", "--karpathy", "no.json"], "no such file (from --karpathy)"),
        (["flickr8k", "--max-images", "3"], "are for COCO"),
        (["coco2014", "--no-restval"], "give --karpathy"),
        (["coco2014", "--no-unpack", "--keep"], "--no-unpack keeps the archives"),
        (["coco2014", "--base-url", "ftp://host/x"], "not an address that starts with http://"),
        (["coco2014", "--max-images", "0"], "--max-images"),
    ],
)
def test_wrong_calls_exit_2_with_a_sentence(mirror: Server, tmp_path: Path, arguments: list[str], message: str) -> None:
    options = [] if "--base-url" in arguments else ["--base-url", mirror.url]
    done = run("data", "download", *arguments, "--output", tmp_path, *options)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("splits_val.txt", "dog\n", "neither an image id nor a file name"),
        ("splits.txt", "12\n", "the name of a list must tell its split"),
        ("dataset_flickr8k.json", '{"images": [{"split": "val", "imgid": 3}]}', "not Karpathy's dataset_coco.json"),
        ("ids_val.txt", "12\n999\n", "1 images of the split val are not in COCO's annotations (first: id 999)"),
        ("broken_val.json", "[12,", "the JSON is cut off"),
    ],
)
def test_a_wrong_list_of_splits_is_a_sentence(
    mirror: Server, tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    done = download(mirror, tmp_path / "data", "karpathy", "--karpathy", tmp_path / name)
    assert done.returncode == 1 and message in done.stderr


def test_the_catalogue_has_the_published_sizes_and_checksums() -> None:
    """As torchvision, LAVIS and gluon-cv publish them."""
    assert catalogue.COCO_PICTURES["train2014"].url() == "http://images.cocodataset.org/zips/train2014.zip"
    sizes = {name: file.size for name, file in catalogue.COCO_PICTURES.items()}
    assert sizes == {
        "train2014": 13_510_573_713,
        "val2014": 6_645_013_297,
        "train2017": 19_336_861_798,
        "val2017": 815_585_330,
    }
    files = [*catalogue.COCO_PICTURES.values(), *catalogue.COCO_ANNOTATIONS.values()]
    files += [*catalogue.KARPATHY_SPLITS.values(), catalogue.FLICKR8K_TEXT, catalogue.FLICKR8K_PICTURES]
    assert len({file.md5 for file in files}) == len(files) == 11
    assert all(len(file.md5) == 32 and int(file.md5, 16) for file in files)
