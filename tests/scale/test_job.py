"""Jobs: what is left of one, what its summary says, and that a job is continued with its own settings only."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import replace

import fsspec
import pytest

from captioner.errors import UsageError
from captioner.files.atomic import writer_label
from captioner.scale.finished_shards import report_of_output
from captioner.scale.job import caption_here, plan_job
from captioner.scale.job_summary import JobSummary
from captioner.scale.shard_captioning import ShardReport, ShardSettings
from tests.scale.written_shards import NOISE, pictures, webdataset, write_parquet, write_tar


@pytest.fixture
def settings(model) -> ShardSettings:
    return ShardSettings(model=str(model), threads=1)


def run(inputs, output, settings: ShardSettings) -> JobSummary:
    job = plan_job([str(inputs)], str(output), settings, shard_size=100)
    summary = JobSummary(len(job.finished))
    caption_here(job, job.load(), summary)
    return summary


def test_a_job_continues_only_with_the_model_and_options_it_began_with(settings, tmp_path):
    webdataset(tmp_path / "in" / "a.tar", pictures(2))
    assert run(tmp_path / "in", tmp_path / "out", settings).captioned == 2
    webdataset(tmp_path / "in" / "b.tar", pictures(3))
    with pytest.raises(UsageError, match=r"other settings \(search"):
        run(tmp_path / "in", tmp_path / "out", replace(settings, options={"beam": 1}))
    assert run(tmp_path / "in", tmp_path / "out", replace(settings, threads=2)).captioned == 3


@pytest.mark.parametrize(("format", "captions_in"), [("parquet", "txt"), ("webdataset", "txt"), ("webdataset", "json")])
def test_a_report_can_be_read_back_from_an_output(format, captions_in, settings, tmp_path):
    """The worker was lost after it had renamed the output, and before it could report it."""
    webdataset(tmp_path / "a.tar", [*pictures(3), NOISE])
    settings = replace(settings, format=format, captions_in=captions_in)
    job = plan_job([str(tmp_path / "a.tar")], str(tmp_path / "out"), settings, shard_size=100)
    (shard,) = job.left
    assert report_of_output(shard, job.output, settings) is None
    report = job.load().caption(shard, job.output)
    again = report_of_output(shard, job.output, settings)
    assert again is not None
    assert (again.name, again.pictures, again.errors) == (report.name, 4, {"not a picture that can be read": 1})


def test_the_summary_counts_pictures_failures_speed_and_cost():
    summary = JobSummary(finished_before=3, cpus=4, price_per_cpu_hour=0.036)
    summary.add(ShardReport("a", 150, Counter({"no such file": 2}), 5.0))
    summary.add(ShardReport("b", 50, {}, 5.0, "b.tar: it is cut off"))
    summary.add(ShardReport("c", problem="c.tar: not a tar file", is_finished=False))
    summary.seconds = 10.0
    assert summary.pictures_per_cpu_second == 5.0
    assert summary.cost_per_million == pytest.approx(2.0)  # 200,000 CPU seconds
    assert summary.lines() == [
        "198 captioned in 2 shards (3 before)",
        "2 without a caption: 2 no such file",
        "damaged: b.tar: it is cut off",
        "failed: c.tar: not a tar file",
        "5.0 pictures per second per CPU (10 s, 4 CPUs), 2.00 per million pictures",
    ]
    assert summary.record()["cost_per_million"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("in", "the folder of"),
        ("in/../in/", "the folder of"),
        ("https://host/out", "nothing can be written"),
        ("in/a.tar", "is a file"),
    ],
)
def test_outputs_beside_the_shards_and_on_web_servers_are_refused(output, sentence, settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    webdataset(tmp_path / "in" / "a.tar", pictures(1))
    with pytest.raises(UsageError, match=sentence):
        plan_job(["in/a.tar"], output, settings, shard_size=100)


def test_an_odd_shard_costs_itself_and_not_the_job(settings, tmp_path):
    write_parquet(tmp_path / "in" / "a.parquet", number=[1])
    write_parquet(tmp_path / "in" / "b.parquet", image=pictures(2))
    summary = run(tmp_path / "in", tmp_path / "out", settings)
    assert summary.captioned == 2
    ((problem,),) = [summary.failed]
    assert "no column of pictures" in problem
    write_tar(tmp_path / "tars" / "a.tar", [("1.png", pictures(1)[0]), ("1.json", b"[]")])
    webdataset(tmp_path / "tars" / "b.tar", pictures(2))
    summary = run(tmp_path / "tars", tmp_path / "copies", replace(settings, format="webdataset", captions_in="json"))
    assert summary.captioned == 2
    ((problem,),) = [summary.failed]
    assert "1.json: captions cannot be added" in problem
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["b.tar"]


def test_parts_of_killed_workers_are_removed_and_those_of_others_stay(settings, tmp_path):
    webdataset(tmp_path / "in" / "a.tar", pictures(1))
    (tmp_path / "out").mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = writer_label().rpartition("-")[0]
    (tmp_path / "out" / f".b.parquet.{host}-{ended.pid}.part").touch()
    running = tmp_path / "out" / f".c.parquet.{host}-{os.getppid()}.part"
    running.touch()
    run(tmp_path / "in", tmp_path / "out", settings)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [running.name, "a.parquet"]


def test_a_store_that_fails_costs_the_shard_and_not_the_job(settings, tmp_path, monkeypatch):
    webdataset(tmp_path / "in" / "a.tar", pictures(1))
    webdataset(tmp_path / "in" / "b.tar", pictures(1))

    def fail(self, path, **options):
        raise LookupError("the bucket is gone")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "makedirs", fail)
    summary = run(tmp_path / "in", f"memory://{uuid.uuid4().hex}/out", settings)
    assert [problem.partition(": ")[2] for problem in summary.failed] == ["LookupError: the bucket is gone"] * 2
