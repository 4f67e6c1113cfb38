"""Jobs on a real cluster of three nodes, with killed parts; and CaptionBatch in a pipeline of Ray Data.

Ray runs in processes of its own, so that its threads and warnings stay out of the other tests.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from captioner.scale.job import plan_job
from captioner.scale.ray_job import ATTEMPTS, CaptionShard, Tracker
from captioner.scale.shard_captioning import ShardCaptioner, ShardReport, ShardSettings
from captioner.scale.shards import find_shards
from scale_proof.checks import identity, problems
from tests.processes import run_with_children
from tests.scale.written_shards import NOISE, pictures, webdataset

PIPELINE = """
import json, sys
import numpy as np, ray
from captioner.scale import CaptionBatch

model, *files = sys.argv[1:]
options = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False, "object_store_memory": 80_000_000}
ray.init("local", _node_ip_address="127.0.0.1", **options)
rows = [{"id": number, "bytes": open(file, "rb").read()} for number, file in enumerate(files)]
captions = ray.data.from_items(rows, override_num_blocks=2).map_batches(
    CaptionBatch,
    fn_constructor_kwargs={"model": model, "beam": 2},
    compute=ray.data.ActorPoolStrategy(size=1),
    batch_size=4,
    num_cpus=1,
)
rows = sorted(captions.take_all(), key=lambda row: row["id"])
words = [None if row["words"] is None else list(row["words"]) for row in rows]
print(json.dumps([[row["caption"], text, row["error"], row["backend"]] for row, text in zip(rows, words)]))
"""

USAGE = """
import os
from captioner.scale import ray_job
from captioner.scale.cluster_address import connect

def setting():
    return os.environ.get("RAY_USAGE_STATS_ENABLED")

def noted(*arguments):
    print(setting())
    connect(*arguments)

ray_job.connect = noted
with ray_job._connected(ray_job.RayPool()) as ray:
    print(setting(), ray.get(ray.remote(setting).remote()))
"""


def run(*command: str, timeout: float = 300) -> CompletedProcess[str]:
    return run_with_children([sys.executable, *command], seconds=timeout, variables={"RAY_USAGE_STATS_ENABLED": "0"})


@pytest.mark.slow
def test_nothing_is_lost_or_repeated_when_a_node_an_actor_and_the_command_are_killed(model, tmp_path):
    for number, data in enumerate(pictures(40)):
        (tmp_path / f"{number}.png").write_bytes(data)
    sizes = ("--shards", "10", "--per-shard", "700", "--noise-mb", "3", "--timeout", "120")
    done = run("scripts/prove_scale", "--pictures", str(tmp_path), "--model", str(model), *sizes)
    assert done.returncode == 0, done.stdout + done.stderr
    alone, resumed = done.stdout.split("the job ended by itself")
    assert "killed a node" in alone
    assert all(f"killed {what}" in resumed for what in ("a node", "the actor", "the command"))
    assert "7,000 pictures in 10 shards, and 5 odd shards: 0 problems" in done.stdout


@pytest.mark.slow
def test_usage_statistics_are_off_in_a_job_and_its_workers_without_a_setting_of_the_user(monkeypatch):
    """0 is what Ray documents for this. ray.init sets it too in some versions, so it is looked at before.

    Should it be missing, the statistics go to a port where nothing listens.
    """
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    variables = {"RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/"}
    done = run_with_children([sys.executable, "-c", USAGE], seconds=300, variables=variables)
    assert done.stdout.splitlines() == ["0", "0 0"], done.stdout + done.stderr


@pytest.mark.slow
def test_caption_batch_in_a_pipeline_gives_the_captions_of_the_pictures(model, captioner, tmp_path):
    files = [*pictures(6), NOISE]
    paths = [tmp_path / f"{number}.png" for number in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    done = run("-c", PIPELINE, str(model), *map(str, paths))
    assert done.returncode == 0, done.stderr
    truths = [captioner(data, beam=2) for data in files[:-1]]
    expected = [[truth.text, [word.text for word in truth.words], None, truth.backend] for truth in truths]
    expected += [[None, None, "not a picture that can be read", truths[0].backend]]
    assert json.loads(done.stdout.splitlines()[-1]) == expected


def test_the_proof_notices_what_is_wrong(shard_captioner, tmp_path):
    shards, output, reference = tmp_path / "shards", tmp_path / "out", tmp_path / "reference"
    webdataset(shards / "a.tar", pictures(4))
    (shard,) = find_shards([str(shards)])
    for folder in (output, reference):
        shard_captioner.caption(shard, str(folder))
    seen = {"a.parquet": identity(output / "a.parquet")}
    assert problems(shards, output, reference, seen) == []
    (output / "a.parquet").replace(tmp_path / "kept")
    assert problems(shards, output, reference, seen) == ["a.tar has no output"]
    shard_captioner.caption(shard, str(output))
    assert problems(shards, output, reference, seen) == ["a.tar was captioned again after it was finished"]
    webdataset(shards / "a.tar", pictures(5))
    assert "1 pictures without a row" in problems(shards, output, reference, {})[0]
    (output / ".a.parquet.host-1.part").touch()
    assert "files that are left over" in problems(shards, output, reference, {})[-1]


def test_the_tracker_knows_attempts_and_reports_each_shard_once():
    tracker = Tracker()
    assert tracker.begin("a") == (1, None)
    assert tracker.begin("a") == (2, None)
    tracker.advance(30)
    tracker.finish(ShardReport("a", 30))
    tracker.finish(ShardReport("a", 31))
    assert tracker.begin("a") == (3, ShardReport("a", 30))
    tracker.begin("b")
    tracker.finish(ShardReport("b", 5))
    assert tracker.news(0) == (30, 2, [ShardReport("a", 30), ShardReport("b", 5)])
    assert tracker.news(1) == (30, 2, [ShardReport("b", 5)])


class LocalTracker:
    """A tracker whose calls are made here instead of in an actor."""

    def __init__(self) -> None:
        self._tracker = Tracker()

    def __getattr__(self, name: str):
        call = getattr(self._tracker, name)
        return type("Remote", (), {"remote": staticmethod(call)})


@pytest.fixture
def caption_shard(model, monkeypatch):
    """The class that actors have, without Ray."""
    monkeypatch.setitem(sys.modules, "ray", type("ray", (), {"get": staticmethod(lambda value: value)}))
    settings = ShardSettings(model=str(model), threads=1)
    tracker = LocalTracker()

    def make(output: Path) -> tuple[CaptionShard, Tracker]:
        return CaptionShard(settings, str(output), ShardCaptioner(settings).origin, tracker), tracker._tracker

    return make


def test_a_shard_whose_workers_died_too_often_is_given_up(caption_shard, tmp_path):
    webdataset(tmp_path / "a.tar", pictures(2))
    (shard,) = find_shards([str(tmp_path / "a.tar")])
    actor, tracker = caption_shard(tmp_path / "out")
    for _ in range(ATTEMPTS):
        tracker.begin("a")
    actor({"shard": [shard]})
    ((report,),) = [tracker.news(0)[2]]
    assert not report.is_finished and "5 workers died" in report.problem
    assert not (tmp_path / "out").exists()


def test_a_shard_whose_output_exists_is_reported_and_not_captioned_again(caption_shard, tmp_path):
    webdataset(tmp_path / "a.tar", pictures(2))
    (shard,) = find_shards([str(tmp_path / "a.tar")])
    actor, tracker = caption_shard(tmp_path / "out")
    tracker.begin("a")  # a worker that was lost after it had written the output
    actor._captioner.caption(shard, str(tmp_path / "out"))
    before = identity(tmp_path / "out" / "a.parquet")
    actor({"shard": [shard]})
    assert identity(tmp_path / "out" / "a.parquet") == before
    assert [report.pictures for report in tracker.news(0)[2]] == [2]


def test_an_output_that_is_to_be_replaced_is_not_taken_for_that_of_a_lost_worker(caption_shard, tmp_path):
    webdataset(tmp_path / "a.tar", pictures(2))
    actor, tracker = caption_shard(tmp_path / "out")
    arguments = ([str(tmp_path / "a.tar")], str(tmp_path / "out"), actor._captioner.settings)
    actor._captioner.caption(plan_job(*arguments, shard_size=100).left[0], str(tmp_path / "out"))
    (tmp_path / "out" / "other.parquet").touch()
    webdataset(tmp_path / "a.tar", pictures(3))
    job = plan_job(*arguments, shard_size=100, overwrite=True)
    job.prepare(actor._captioner.origin)
    assert [path.name for path in (tmp_path / "out").glob("*.parquet")] == ["other.parquet"]
    tracker.begin("a")  # a worker that was lost before it had written anything
    actor({"shard": job.left})
    assert [report.pictures for report in tracker.news(0)[2]] == [3]


def test_an_unexpected_error_costs_one_shard_only(caption_shard, tmp_path, monkeypatch):
    webdataset(tmp_path / "a.tar", pictures(2))
    (shard,) = find_shards([str(tmp_path / "a.tar")])
    actor, tracker = caption_shard(tmp_path / "out")

    def fail(*arguments):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(actor._captioner, "caption", fail)
    actor({"shard": [shard]})
    ((report,),) = [tracker.news(0)[2]]
    assert not report.is_finished and report.problem.endswith("ZeroDivisionError: a defect")
