"""Parquet files, lists of paths and metadata.jsonl: one sample per row, whatever the row holds."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from captioner.errors import CaptionerError, UsageError
from captioner.scale.picture_tables import Columns, read_list, read_metadata, read_parquet
from captioner.scale.samples import DamagedShard, Sample, StoredPicture, UnreadPicture
from tests.scale.written_shards import NOISE, data_of, pictures, write_parquet


def read(path: Path, columns: Columns | None = None) -> list[Sample]:
    with path.open("rb") as file:
        return list(read_parquet(file, str(path), str(path.parent), columns or Columns()))


def reason(sample: Sample) -> str:
    assert isinstance(sample.picture, UnreadPicture)
    with pytest.raises(CaptionerError) as raised:
        sample.picture.read()
    return str(raised.value)


def test_a_column_of_bytes_with_keys(tmp_path):
    files = pictures(3)
    samples = read(write_parquet(tmp_path / "p.parquet", key=["a", "b", "c"], jpg=files))
    assert [(sample.key, data_of(sample)) for sample in samples] == list(zip("abc", files, strict=True))


def test_images_as_hugging_face_stores_them_with_bytes_or_a_path(tmp_path):
    (data,) = pictures(1)
    image = [{"bytes": data, "path": "a.png"}, {"bytes": None, "path": "b.png"}, {"bytes": None, "path": None}, None]
    samples = read(write_parquet(tmp_path / "p.parquet", image=image))
    assert data_of(samples[0]) == data
    assert samples[1].picture == str(tmp_path / "b.png")
    assert reason(samples[2]) == reason(samples[3]).replace("3", "2") == "p-000000002: the row has no picture"
    assert [sample.key for sample in samples] == [f"p-{number:09d}" for number in range(4)]


def test_a_column_of_paths_is_relative_to_the_file_and_stays_beside_it(tmp_path):
    paths = ["a.png", "/srv/b.png", "../c.png", "memory://x/d.png"]
    samples = read(write_parquet(tmp_path / "p.parquet", path=paths))
    assert [sample.key for sample in samples] == paths
    assert [sample.picture for sample in samples[:2]] == [str(tmp_path / "a.png"), "/srv/b.png"]
    assert "not inside the folder" in reason(samples[2])
    assert isinstance(samples[3].picture, UnreadPicture)


def test_columns_can_be_named_and_a_wrong_name_lists_them(tmp_path):
    one, two = pictures(2)
    path = write_parquet(tmp_path / "p.parquet", image=[one], other=[two], name=["n"])
    (sample,) = read(path, Columns("other", "name"))
    assert (sample.key, data_of(sample)) == ("n", two)
    with pytest.raises(UsageError, match="Columns: image, other, name"):
        read(path, Columns("imge"))


def test_the_only_column_of_bytes_is_taken_and_none_is_an_error(tmp_path):
    (data,) = pictures(1)
    (sample,) = read(write_parquet(tmp_path / "a.parquet", thing=[data], id=[7]))
    assert (sample.key, data_of(sample)) == ("7", data)
    with pytest.raises(UsageError, match="--image-column"):
        read(write_parquet(tmp_path / "b.parquet", number=[1]))


def test_a_column_is_recognised_only_if_its_type_can_hold_pictures(tmp_path):
    (data,) = pictures(1)
    path = write_parquet(tmp_path / "a.parquet", image=[7], data=[[1.5]], path=["a.png"], thumbnail=[data])
    (sample,) = read(path)
    assert sample.picture == str(tmp_path / "a.png")
    with pytest.raises(UsageError, match="--image-column image: neither bytes nor paths of pictures, but int64"):
        read(path, Columns("image"))
    (sample,) = read(write_parquet(tmp_path / "b.parquet", image=[7], thumbnail=[data]))
    assert data_of(sample) == data


@pytest.mark.parametrize("kind", [pyarrow.large_binary(), pyarrow.dictionary(pyarrow.int8(), pyarrow.binary())])
def test_other_types_of_bytes_are_bytes(kind, tmp_path):
    (data,) = pictures(1)
    column = pyarrow.array([data]).cast(kind) if kind == pyarrow.large_binary() else pyarrow.array([data], kind)
    pyarrow.parquet.write_table(pyarrow.table({"image": column}), tmp_path / "a.parquet")
    (sample,) = read(tmp_path / "a.parquet")
    assert data_of(sample) == data


def test_a_damaged_row_group_gives_rows_with_errors_and_is_named(tmp_path):
    files = pictures(8)
    path = tmp_path / "p.parquet"
    table = pyarrow.table({"key": list("abcdefgh"), "bytes": files})
    pyarrow.parquet.write_table(table, path, row_group_size=3, compression="zstd", use_dictionary=False)
    column = pyarrow.parquet.ParquetFile(path).metadata.row_group(1).column(1)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + column.total_compressed_size] = bytes(
        column.total_compressed_size
    )
    path.write_bytes(data)
    samples: list[Sample] = []
    with path.open("rb") as file, pytest.raises(DamagedShard, match="3 of 8 rows"):
        samples.extend(read_parquet(file, str(path), str(tmp_path), Columns()))
    assert [data_of(samples[number]) for number in (0, 1, 2, 6, 7)] == [*files[:3], *files[6:]]
    assert [reason(sample).partition(": ")[2] for sample in samples[3:6]] == ["this part of the shard is damaged"] * 3


@pytest.mark.parametrize("data", [b"", NOISE])
def test_what_is_no_parquet_file_is_refused(data, tmp_path):
    (tmp_path / "p.parquet").write_bytes(data)
    with pytest.raises(CaptionerError, match="not a Parquet file"):
        read(tmp_path / "p.parquet")


def test_a_list_has_one_path_per_line_and_bytes_that_are_not_utf8_stay():
    lines = b"photos/a.jpg\n\nphotos/\xff.jpg\r\nmemory://x/b.jpg"
    samples = list(read_list(io.BytesIO(lines), "", None))
    assert [sample.key for sample in samples] == ["photos/a.jpg", "photos/\udcff.jpg", "memory://x/b.jpg"]
    assert samples[1].picture == "photos/\udcff.jpg"


def test_metadata_has_one_row_per_line_also_for_lines_that_are_wrong():
    values = [json.dumps({"file_name": name}) for name in ("train/a.png", "../b.png", "/c.png")]
    lines = "\n".join([values[0], "{", "[]", '{"file": 1}', *values[1:]]).encode()
    samples = list(read_metadata(io.BytesIO(lines), "/data", 0, None))
    assert samples[0] == Sample("train/a.png", "/data/train/a.png")
    assert [reason(sample) for sample in samples[1:4]] == [
        "line 2: not valid JSON",
        "line 3: there is no file_name",
        "line 4: there is no file_name",
    ]
    assert all("not inside the folder" in reason(sample) for sample in samples[4:])


def test_a_picture_is_fetched_again_if_the_store_fails_and_not_if_it_is_missing(monkeypatch):
    calls: list[str] = []

    def opened(address: str) -> io.BytesIO:
        calls.append(address)
        if address.endswith("missing"):
            raise FileNotFoundError
        if len(calls) < 3:
            raise TimeoutError
        return io.BytesIO(b"data")

    monkeypatch.setattr("captioner.scale.samples.open_input", opened)
    monkeypatch.setattr("captioner.scale.samples.PAUSES", (0.0, 0.0))
    assert StoredPicture("a", "s3://b/a").read() == b"data"
    assert len(calls) == 3
    with pytest.raises(FileNotFoundError):
        StoredPicture("b", "s3://b/missing").read()
    assert len(calls) == 4
