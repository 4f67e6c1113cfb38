"""`captioner scale caption`: what is refused before a cluster is started, and a job on this machine."""

from __future__ import annotations

import json
import sys

import pytest

from captioner.scale.job import caption_here, plan_job
from captioner.scale.shard_captioning import ShardSettings
from tests.cli import command_line
from tests.processes import run_with_children
from tests.scale.written_shards import NOISE, pictures, rows, webdataset


@pytest.fixture
def run(model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        done = command_line.run("scale", "caption", "--model", model, *arguments)
        return done.returncode, " ".join(done.stderr.split())

    return run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a.tar", "--output", "done"], "done has 1 of 1 outputs: continue with --resume"),
        (["a.tar", "--output", "out", "--resume", "--overwrite"], "give one of them"),
        (["a.tar", "--output", "out", "--n-best", "2"], "one row per picture"),
        (["a.tar", "--output", "out", "--require", "kat"], "'kat' is not in the model's vocabulary"),
        (["a.tar", "--output", "out", "--seed", "3"], "--seed has no effect"),
        (["a.tar", "--output", "out", "--summary", "no/such/folder.json"], "--summary"),
        (["photo.png", "--output", "out"], "photo.png: not a shard: it ends in none of .tar, .parquet"),
        (["missing", "--output", "out"], "no such file or folder"),
        (["a.tar"], "Missing option '--output'"),
    ],
)
def test_wrong_calls_are_refused_before_a_cluster_is_started(arguments, sentence, run, tmp_path):
    webdataset(tmp_path / "a.tar", pictures(1))
    (tmp_path / "photo.png").write_bytes(pictures(1)[0])
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "a.parquet").write_bytes(b"x")
    code, err = run(*arguments)
    assert code == 2
    assert sentence in err


def test_a_finished_job_needs_no_cluster_and_says_what_its_first_run_said(run, model, tmp_path):
    shard = webdataset(tmp_path / "a.tar", pictures(3))
    shard.write_bytes(shard.read_bytes()[:3600])
    settings = ShardSettings(model=str(model))
    job = plan_job(["a.tar"], "out", settings, shard_size=100)
    caption_here(job, job.load(), job.summary())
    code, err = run("a.tar", "--output", "out", "--resume")
    assert code == 1  # as that of the first run
    assert "0 captioned in 0 shards (1 before) damaged: a.tar: it is cut off" in err
    code, err = run("a.tar", "--output", "out", "--resume", "--beam", "1")
    assert (code, "other settings (beam: 2, now 1)" in err) == (2, True)


@pytest.mark.slow
def test_a_job_on_this_machine_captions_lists_and_tells_the_cost(model, tmp_path):
    """A list has relative paths, and workers run in another folder."""
    for number, data in enumerate([*pictures(5), NOISE]):
        (tmp_path / f"ü {number}.png").write_bytes(data)
    (tmp_path / "all.txt").write_text("".join(f"ü {number}.png\n" for number in range(6)), encoding="utf-8")
    command = [sys.executable, "-m", "captioner", "scale", "caption", "all.txt", "--output", "out", "--shard-size", "4"]
    options = ["--model", str(model), "--price-per-cpu-hour", "0.04", "--summary", "summary.json"]
    done = run_with_children([*command, *options], seconds=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    keys = [row["key"] for name in ("all-000000000", "all-000000004") for row in rows(tmp_path / f"out/{name}.parquet")]
    assert keys == [f"ü {number}.png" for number in range(6)]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["captioned"], summary["without_caption"]) == (5, {"not a picture that can be read": 1})
    assert summary["cost_per_million"] > 0
    assert "5 captioned in 2 shards" in done.stderr
    assert "Traceback" not in done.stderr
