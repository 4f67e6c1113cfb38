"""`captioner caption` with shards: one output per shard, an output that exists is finished, one line at the end."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from captioner import cli
from tests.cli import command_line
from tests.scale.written_shards import NOISE, pictures, rows, webdataset, write_parquet


@pytest.fixture
def run(model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        done = command_line.run("caption", "--model", model, *arguments)
        return done.returncode, done.stderr

    return run


def test_every_shard_gets_its_output_and_a_second_run_has_nothing_to_do(run, tmp_path):
    for number in range(3):
        webdataset(tmp_path / "in" / f"{number:05d}.tar", pictures(4, seed=number), first=10 * number)
    code, err = run("in/{00000..00002}.tar", "--format", "parquet", "--output", "out/", "--summary", "s.json")
    assert code == 0
    assert "12 captioned in 3 shards" in err
    assert [row["key"] for row in rows(tmp_path / "out" / "00002.parquet")] == [f"{key:06d}" for key in range(20, 24)]
    assert json.loads(Path("s.json").read_text())["captioned"] == 12
    (tmp_path / "out" / "00001.parquet").unlink()
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    code, err = run("in/{00000..00002}.tar", "--format", "parquet", "--output", "out/")
    assert (code, "4 captioned in 1 shard (2 before)" in err) == (0, True)
    now = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    assert set(now) - set(times) == {"00001.parquet"}
    assert times.items() <= now.items()
    code, _ = run("in/{00000..00002}.tar", "--format", "parquet", "--output", "out/", "--overwrite")
    assert all(path.stat().st_mtime_ns > now[path.name] for path in (tmp_path / "out").glob("*.parquet"))


def test_a_bad_picture_is_a_row_and_a_bad_shard_is_exit_code_1(run, tmp_path):
    webdataset(tmp_path / "a.tar", [*pictures(2), NOISE])
    code, err = run("a.tar", "--format", "parquet", "--output", "out")
    assert code == 0
    assert "1 without a caption: 1 not a picture that can be read" in err
    (tmp_path / "b.tar").write_bytes(NOISE)
    code, err = run("a.tar", "b.tar", "--format", "parquet", "--output", "out")
    assert code == 1
    assert "failed: b.tar: not a tar file" in err
    assert [path.name for path in (tmp_path / "out").glob("*.parquet")] == ["a.parquet"]


def test_lists_and_metadata_folders_are_shards_where_the_output_is_a_folder(run, tmp_path):
    for number, data in enumerate(pictures(5)):
        (tmp_path / f"{number}.png").write_bytes(data)
    Path("all.txt").write_text("".join(f"{number}.png\n" for number in range(6)))
    code, err = run("all.txt", "--format", "parquet", "--output", "out/", "--shard-size", "4")
    assert (code, "1 no such file" in err) == (0, True)
    assert [row["key"] for row in rows(Path("out/all-000000004.parquet"))] == ["4.png", "5.png"]


def test_columns_can_be_named(run, tmp_path):
    write_parquet(tmp_path / "t.parquet", first=[b"x"], second=pictures(1), name=["n"])
    code, _ = run(
        "t.parquet", "--format", "parquet", "--output", "out/", "--image-column", "second", "--key-column", "name"
    )
    ((row,),) = [rows(Path("out/t.parquet"))]
    assert (code, row["key"], row["error"]) == (0, "n", None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a.tar"], "shards need --format parquet or webdataset"),
        (["a.tar", "--format", "jsonl", "--output", "out/"], "shards need --format parquet or webdataset"),
        (["a.tar", "--format", "parquet"], "and a folder as --output"),
        (["a.tar", "--format", "parquet", "--output", "a.tar"], "is a file"),
        (["a.tar", "--format", "parquet", "--output", "out/", "--sidecar"], "--sidecar: not for shards"),
        (["a.tar", "--format", "parquet", "--output", "out/", "--n-best", "2"], "--n-best: not for shards"),
        (["t.parquet", "--format", "webdataset", "--output", "out/"], "copies tar shards"),
        (["a.png", "--format", "webdataset"], "copies tar shards"),
        (["photos", "--format", "parquet", "--output", "out/"], "no shards here"),
        (["a.png", "--output", "photos"], "--output photos is a folder. For captions of photos, give a file, such as"),
        (["a.png", "--output", "photos"], "such as photos/captions.txt, or --sidecar"),
        (["a.png", "--output", "out/", "--format", "jsonl", "--words"], "such as out/captions.jsonl"),
        (["a.png", "--output", "s3://bucket/a.csv", "--format", "csv"], "is an address. For captions of photos, give"),
        (["list.txt", "--output", "out/"], "Lists and other shards need --format parquet or webdataset"),
        (["a.png", "--format", "parquet", "--output", "out/"], "a.png: not a shard: it ends in none of .tar, .parquet"),
    ],
)
def test_calls_that_make_no_sense_are_refused(arguments, sentence, run, tmp_path):
    webdataset(tmp_path / "a.tar", pictures(1))
    write_parquet(tmp_path / "t.parquet", image=pictures(1))
    (tmp_path / "a.png").write_bytes(pictures(1)[0])
    (tmp_path / "photos").mkdir()
    code, err = run(*arguments)
    assert code == 2
    assert sentence in " ".join(err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "hint"), [((), "same command continues"), (("--overwrite",), "without --overwrite")]
)
def test_a_stopped_job_says_how_it_continues(option, hint, model, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    webdataset(tmp_path / "a.tar", pictures(1))
    monkeypatch.setattr("captioner.scale.job.caption_here", stop)
    arguments = ["caption", "a.tar", "--model", str(model), "--format", "parquet", "--output", "out/", *option]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.exceptions.Abort, match=hint):
        cli.main(arguments, standalone_mode=False)
