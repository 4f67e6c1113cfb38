"""A shard in, a shard out: as many rows as pictures, the captions of the single pictures, errors as rows."""

from __future__ import annotations

import gc
import io
import json
import tarfile
import tracemalloc
import uuid
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

from captioner import Captioner, UsageError, __version__
from captioner.images.inputs import PictureBytes
from captioner.images.reading import load_for_model
from captioner.scale.locations import open_input, open_output
from captioner.scale.rows import COLUMNS, error_group
from captioner.scale.shard_captioning import ShardCaptioner, ShardSettings
from captioner.scale.shards import find_shards
from tests.scale.written_shards import NOISE, pictures, rows, webdataset, write_parquet, write_tar


def caption(captioner: ShardCaptioner, shard: Path | str, output: Path | str, **how):
    (found,) = find_shards([str(shard)], **how)
    return captioner.caption(found, str(output))


def test_rows_are_the_captions_of_the_pictures_in_order(shard_captioner, captioner: Captioner, tmp_path):
    files = pictures(11)
    report = caption(shard_captioner, webdataset(tmp_path / "7.tar", files), tmp_path / "out")
    assert (report.pictures, report.errors, report.problem) == (11, {}, "")
    table = rows(tmp_path / "out" / "7.parquet")
    assert list(table[0]) == list(COLUMNS)
    assert [row["key"] for row in table] == [f"{number:06d}" for number in range(11)]
    truths = [captioner(data) for data in files]
    assert [row["caption"] for row in table] == [truth.text for truth in truths]
    assert [row["sentence"] for row in table] == [truth.sentence for truth in truths]
    assert [row["words"] for row in table] == [[word.text for word in truth.words] for truth in truths]
    assert [row["score"] for row in table] == pytest.approx([truth.score for truth in truths], abs=1e-5)
    assert {row["error"] for row in table} == {None}
    assert {(row["model"], row["backend"], row["version"]) for row in table} == {("toy", "onnx", __version__)}


def test_bad_pictures_are_rows_and_every_picture_has_one(shard_captioner, tmp_path):
    one, two = pictures(2)
    members = [("a.png", one), ("b.jpg", NOISE), ("c.jpg", b""), ("d.png", one[:60]), ("☃.png", two)]
    report = caption(shard_captioner, write_tar(tmp_path / "s.tar", members), tmp_path)
    table = rows(tmp_path / "s.parquet")
    assert [row["key"] for row in table] == ["a", "b", "c", "d", "☃"]
    assert [row["caption"] is None for row in table] == [False, True, True, True, False]
    assert [row["error"] is None for row in table] == [True, False, False, False, True]
    assert table[1]["error"] == "not a picture that can be read"
    assert {row["backend"] for row in table} == {"onnx"}
    assert sum(report.errors.values()) == 3


def test_all_kinds_of_shards_give_the_same_captions(shard_captioner, tmp_path):
    files = pictures(5)
    folder = tmp_path / "set"
    folder.mkdir()
    names = [f"{number}.png" for number in range(5)]
    for name, data in zip(names, files, strict=True):
        (folder / name).write_bytes(data)
    (folder / "metadata.jsonl").write_text("".join(json.dumps({"file_name": name}) + "\n" for name in names))
    (tmp_path / "list.txt").write_text("".join(f"{folder / name}\n" for name in names))
    stored = f"memory://{uuid.uuid4().hex}"
    with open_output(f"{stored}/0.png") as file:
        file.write(files[0])
    shards = [
        webdataset(tmp_path / "tar.tar", files),
        write_parquet(tmp_path / "bytes.parquet", image=files),
        write_parquet(folder / "paths.parquet", path=names),
        write_parquet(folder / "stored.parquet", url=[f"{stored}/0.png", *(str(folder / name) for name in names[1:])]),
        folder / "metadata.jsonl",
        tmp_path / "list.txt",
    ]
    outputs = []
    for shard in shards:
        assert caption(shard_captioner, shard, tmp_path / "out").pictures == 5
        ((name,),) = [[path for path in (tmp_path / "out").iterdir() if path not in outputs]]
        outputs.append(name)
    captions = [[(row["caption"], row["score"]) for row in rows(output)] for output in outputs]
    assert all(each == captions[0] for each in captions)
    assert None not in {text for text, _ in captions[0]}


def test_captions_do_not_depend_on_threads(model, tmp_path):
    shard = webdataset(tmp_path / "s.tar", pictures(23))
    tables = []
    for threads in (1, 3, 8):
        captioner = ShardCaptioner(ShardSettings(model=str(model), threads=threads, batch=4))
        caption(captioner, shard, tmp_path / str(threads))
        tables.append(rows(tmp_path / str(threads) / "s.parquet"))
    assert tables[0] == tables[1] == tables[2]


def test_a_shard_in_a_store_gets_its_output_in_a_store(shard_captioner, tmp_path):
    stored = f"memory://{uuid.uuid4().hex}"
    with open_output(f"{stored}/s.tar") as file:
        file.write(webdataset(tmp_path / "s.tar", pictures(3)).read_bytes())
    assert caption(shard_captioner, f"{stored}/s.tar", f"{stored}/out").is_finished
    caption(shard_captioner, tmp_path / "s.tar", tmp_path)
    with open_input(f"{stored}/out/s.parquet") as file:
        assert pyarrow.parquet.read_table(file).to_pylist() == rows(tmp_path / "s.parquet")


def test_a_cut_shard_is_finished_with_its_rows_and_named(shard_captioner, tmp_path):
    shard = webdataset(tmp_path / "s.tar", pictures(6))
    with tarfile.open(shard) as tar:
        cut = tar.getmember("000004.png").offset_data + 30
    shard.write_bytes(shard.read_bytes()[:cut])
    report = caption(shard_captioner, shard, tmp_path)
    assert report.is_finished and "cut off inside 000004.png" in report.problem
    table = rows(tmp_path / "s.parquet")
    assert [row["error"] for row in table] == [None] * 4 + ["the shard is cut off inside this picture"]


def test_a_shard_of_noise_has_no_output_and_a_reason(shard_captioner, tmp_path):
    (tmp_path / "s.tar").write_bytes(NOISE * 100)
    report = caption(shard_captioner, tmp_path / "s.tar", tmp_path / "out")
    assert not report.is_finished and "not a tar file" in report.problem
    assert list((tmp_path / "out").glob("*")) == []
    report = caption(shard_captioner, tmp_path / "missing.tar", tmp_path / "out")
    assert not report.is_finished and report.problem.endswith("missing.tar: no such file")


def test_large_files_that_are_no_pictures_are_not_held_in_memory(shard_captioner, tmp_path):
    """Python's collector of cycles counts objects and not bytes, so it must not be needed."""
    data = b"noise" + bytes(10_000_000)
    shard = write_tar(tmp_path / "s.tar", ((f"{number:03d}.jpg", data) for number in range(60)))
    gc.disable()
    tracemalloc.start()
    try:
        report = caption(shard_captioner, shard, tmp_path / "out")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert report.errors == {"not a picture that can be read": 60}
    assert peak < 300_000_000  # of 600 MB


def test_a_shard_without_pictures_has_an_output_without_rows(shard_captioner, tmp_path):
    report = caption(shard_captioner, write_tar(tmp_path / "s.tar", [("a.txt", b"x")]), tmp_path)
    assert (report.pictures, report.is_finished, rows(tmp_path / "s.parquet")) == (0, True, [])


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}


@pytest.mark.parametrize("captions_in", ["txt", "json"])
def test_a_webdataset_copy_has_everything_of_the_shard_and_the_captions(captions_in, model, captioner, tmp_path):
    files = pictures(2)
    shard = webdataset(tmp_path / "s.tar", files)
    shard = write_tar(shard, [*members(shard).items(), ("bad.jpg", NOISE), ("only.txt", b"text")])
    writer = ShardCaptioner(ShardSettings(model=str(model), format="webdataset", captions_in=captions_in))
    assert caption(writer, shard, tmp_path / "out").pictures == 3
    before, after = members(shard), members(tmp_path / "out" / "s.tar")
    sentences = [captioner(data).sentence for data in files]
    if captions_in == "txt":
        added = {f"{number:06d}.caption.txt": text.encode() for number, text in enumerate(sentences)}
        assert after == before | added | {"bad.error.txt": b"not a picture that can be read"}
    else:
        assert {name: data for name, data in after.items() if not name.endswith(".json")} == {
            name: data for name, data in before.items() if not name.endswith(".json")
        }
        values = json.loads(after["000001.json"])
        assert values["caption"] == "old"
        assert values["captioner"]["sentence"] == sentences[1]
        assert values["captioner"]["backend"] == "onnx"
        assert json.loads(after["bad.json"])["captioner"]["error"] == "not a picture that can be read"
    keys = [name.partition(".")[0] for name in after]
    assert (
        len([key for number, key in enumerate(keys) if keys[number - 1 : number] != [key]]) == 4
    )  # samples stay whole


@pytest.mark.parametrize("captions_in", ["txt", "json"])
@pytest.mark.parametrize("second", ["a.png", "a.jpg", "a.b.png"])
def test_pictures_that_share_a_sample_or_a_name_lose_nothing_in_a_copy(second, captions_in, model, captioner, tmp_path):
    one, two = pictures(2)
    before = [("a.jpg", one), ("a.json", b'{"old": 1}'), (second, two)]
    writer = ShardCaptioner(ShardSettings(model=str(model), format="webdataset", captions_in=captions_in))
    assert caption(writer, write_tar(tmp_path / "s.tar", before), tmp_path / "out").pictures == 2
    with tarfile.open(tmp_path / "out" / "s.tar") as tar:
        after = [(member.name, tar.extractfile(member).read()) for member in tar.getmembers()]
    assert {name for name, _ in after} >= {name for name, _ in before}
    assert [data for name, data in after if name in ("a.jpg", second)] == [one, two]
    assert json.loads(dict(after)["a.json"])["old"] == 1
    sentences = [captioner(data).sentence for data in (one, two)]
    if captions_in == "txt":
        assert [data.decode() for name, data in after if name.endswith(".caption.txt")] == sentences
    else:
        objects = [json.loads(data) for name, data in after if name.endswith(".json")]
        assert [values["captioner"]["sentence"] for values in objects if "captioner" in values] == sentences


def test_a_shard_with_captions_is_not_given_others_of_the_same_name(model, tmp_path):
    shard = write_tar(tmp_path / "s.tar", [("a.png", pictures(1)[0]), ("a.caption.txt", b"mine")])
    writer = ShardCaptioner(ShardSettings(model=str(model), format="webdataset"))
    report = caption(writer, shard, tmp_path / "out")
    assert not report.is_finished
    assert report.problem == f"{shard}: a.caption.txt: the shard has this file already; use --captions-in json"


@pytest.mark.parametrize("name", ["video.{:05d}", "{:05d}"])
@pytest.mark.parametrize("first", ["png", "json"])
def test_a_copy_never_has_two_files_of_one_name(first, name, model, tmp_path):
    """All pictures come before or after all texts: the samples have many files, or their files are not together."""
    (data,) = pictures(1)
    kinds = {"png": data, "json": b"{}"}
    names = [name.format(number) for number in range(110)]
    files = [(f"{one}.{kind}", kinds[kind]) for kind in sorted(kinds, reverse=first == "png") for one in names]
    shard = write_tar(tmp_path / "s.tar", files)
    in_json = ShardCaptioner(ShardSettings(model=str(model), format="webdataset", captions_in="json"))
    report = caption(in_json, shard, tmp_path / "out")
    assert not report.is_finished
    assert ".json: this file of the shard is not beside its picture" in report.problem
    assert "--captions-in txt" in report.problem
    in_txt = ShardCaptioner(ShardSettings(model=str(model), format="webdataset"))
    assert caption(in_txt, shard, tmp_path / "out").is_finished
    with tarfile.open(tmp_path / "out" / "s.tar") as tar:
        copied = tar.getnames()
    assert len(copied) == len(set(copied)) == 330


def test_several_captions_per_picture_are_refused(model):
    with pytest.raises(UsageError, match="one row per picture"):
        ShardCaptioner(ShardSettings(model=str(model), options={"n_best": 2}))


def test_progress_adds_up_to_the_pictures(shard_captioner, tmp_path, monkeypatch):
    monkeypatch.setattr("captioner.scale.shard_captioning.REPORT_EVERY", 0)
    (shard,) = find_shards([str(webdataset(tmp_path / "s.tar", pictures(9)))])
    told: list[int] = []
    shard_captioner.caption(shard, str(tmp_path), told.append)
    assert sum(told) == 9 and len(told) > 3


def test_errors_are_counted_by_kind():
    reasons = [
        "10x20 is more than the limit of 5 pixels; raise it",
        "30x4 is more than the limit of 5 pixels; raise it",
    ]
    assert len({error_group(reason) for reason in reasons}) == 1
    assert error_group("Install s3fs to open 3 files") == "Install s3fs to open N files"
    assert error_group("cannot be read (OSError: image file is truncated)") == "cannot be read"


def test_bytes_are_decoded_as_the_file_would_be(captioner, tmp_path):
    """A large JPEG is decoded at a fraction of its size, which must be the same for a path and for bytes."""
    pixels = np.random.default_rng(0).integers(0, 256, (700, 900, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG")
    (tmp_path / "a.jpg").write_bytes(buffer.getvalue())
    picture, from_bytes = load_for_model(PictureBytes(buffer.getvalue()), 64, thumbnail=0)
    _, from_file = load_for_model(tmp_path / "a.jpg", 64)
    assert (from_bytes == from_file).all()
    assert picture.image is None
