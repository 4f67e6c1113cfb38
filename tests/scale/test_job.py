"""Jobs: what is left of one, what its summary says, and that a job is continued with its own settings only."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile

from captioner.errors import UsageError
from captioner.files.atomic import writer_label
from captioner.scale.finished_shards import report_of_output
from captioner.scale.job import caption_here, plan_job
from captioner.scale.job_summary import JobSummary
from captioner.scale.locations import StoreError
from captioner.scale.shard_captioning import ShardReport, ShardSettings
from captioner.scale.shards import find_shards
from tests.scale.web_server import unused_port, web_server
from tests.scale.written_shards import NOISE, pictures, rows, webdataset, write_parquet, write_tar
from tests.tiny_bundle import write_model


@pytest.fixture
def settings(model) -> ShardSettings:
    return ShardSettings(model=str(model), threads=1)


def run(inputs, output, settings: ShardSettings, *, overwrite: bool = False) -> JobSummary:
    job = plan_job([str(inputs)], str(output), settings, shard_size=100, overwrite=overwrite)
    summary = job.summary()
    caption_here(job, job.load(), summary)
    return summary


@pytest.mark.parametrize("format", ["parquet", "webdataset"])
def test_a_job_continues_only_with_the_model_and_options_it_began_with(format, settings, tmp_path):
    settings = replace(settings, format=format)
    webdataset(tmp_path / "in" / "a.tar", pictures(2))
    assert run(tmp_path / "in", tmp_path / "out", settings).captioned == 2
    with pytest.raises(UsageError, match=r"other settings \(beam: 2, now 1\).*--overwrite"):
        run(tmp_path / "in", tmp_path / "out", replace(settings, options={"beam": 1}))  # also with nothing left to do
    webdataset(tmp_path / "in" / "b.tar", pictures(3))
    with pytest.raises(UsageError, match=r"other settings \(beam.*--overwrite"):
        run(tmp_path / "in", tmp_path / "out", replace(settings, options={"beam": 1}))
    # A part of the outputs would stay.
    with pytest.raises(UsageError, match=r"other settings \(beam.*name all their shards, also that of a\.\w+"):
        run(tmp_path / "in" / "b.tar", tmp_path / "out", replace(settings, options={"beam": 1}), overwrite=True)
    assert run(tmp_path / "in", tmp_path / "out", replace(settings, threads=2)).captioned == 3
    assert run(tmp_path / "in", tmp_path / "out", replace(settings, options={"beam": 1}), overwrite=True).captioned == 5
    assert run(tmp_path / "in", tmp_path / "out", replace(settings, options={"beam": 1})).captioned == 0


def test_a_folder_keeps_its_settings_when_its_outputs_have_two_formats(settings, tmp_path):
    shard = webdataset(tmp_path / "in" / "a.tar", pictures(2))
    run(shard, tmp_path / "out", settings)
    copies = replace(settings, format="webdataset")
    with pytest.raises(UsageError, match=r"\(beam: 2, now 1\).*choose another --output for this format"):
        run(shard, tmp_path / "out", replace(copies, options={"beam": 1}))
    with pytest.raises(UsageError, match=r"\(beam: 2, now 1\).*choose another --output for this format"):
        run(shard, tmp_path / "out", replace(copies, options={"beam": 1}), overwrite=True)
    assert run(shard, tmp_path / "out", copies).captioned == 2
    assert run(shard, tmp_path / "out", settings).finished_before == 1


def test_copies_with_captions_in_two_places_are_not_mixed(settings, tmp_path):
    for name in ("a", "b"):
        webdataset(tmp_path / "in" / f"{name}.tar", pictures(2))
    copies = replace(settings, format="webdataset")
    in_json = replace(copies, captions_in="json")
    run(tmp_path / "in" / "a.tar", tmp_path / "out", settings)  # tables have no such setting
    run(tmp_path / "in" / "a.tar", tmp_path / "out", copies)
    run(tmp_path / "in" / "b.tar", tmp_path / "out", settings)
    for name in ("a.tar", "b.tar"):
        with pytest.raises(UsageError, match=r"\(captions-in: txt, now json\)"):
            run(tmp_path / "in" / name, tmp_path / "out", in_json)
    run(tmp_path / "in", tmp_path / "out", in_json, overwrite=True)
    assert run(tmp_path / "in", tmp_path / "out", in_json).finished_before == 2


def test_a_job_continues_only_with_the_weights_it_began_with(settings, tmp_path):
    webdataset(tmp_path / "in" / "a.tar", pictures(2))
    run(tmp_path / "in", tmp_path / "out", settings)
    other = write_model(tmp_path / "toy", seed=5).folder
    with pytest.raises(UsageError, match=r"other settings \(weights"):
        run(tmp_path / "in", tmp_path / "out", replace(settings, model=str(other)))


def test_outputs_of_unknown_origin_are_not_continued(settings, tmp_path):
    webdataset(tmp_path / "in" / "a.tar", pictures(2))
    run(tmp_path / "in", tmp_path / "out", settings)
    (tmp_path / "out" / "_captioner.json").unlink()
    with pytest.raises(UsageError, match=r"nothing says how .* --overwrite"):
        run(tmp_path / "in", tmp_path / "out", settings)
    webdataset(tmp_path / "other" / "b.tar", pictures(2))
    with pytest.raises(UsageError, match=r"nothing says how a.parquet was made .* also that of a.parquet"):
        run(tmp_path / "other", tmp_path / "out", settings)  # it would call both its own
    assert run(tmp_path / "in", tmp_path / "out", settings, overwrite=True).captioned == 2


@pytest.mark.parametrize("format", ["parquet", "webdataset"])
def test_damage_is_named_again_by_a_later_run_until_the_shard_is_made_again(format, settings, tmp_path):
    settings = replace(settings, format=format)
    shard = webdataset(tmp_path / "in" / "a.tar", pictures(3))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:3600])
    first = run(tmp_path / "in", tmp_path / "out", settings)
    assert len(first.damaged) == 1 and "cut off" in first.damaged[0]
    second = run(tmp_path / "in", tmp_path / "out", settings)
    assert (second.damaged, second.captioned, second.finished_before) == (first.damaged, 0, 1)
    ((left,),) = [find_shards([str(shard)])]
    assert report_of_output(left, str(tmp_path / "out"), settings).problem == first.damaged[0]
    shard.write_bytes(whole)
    assert run(tmp_path / "in", tmp_path / "out", settings, overwrite=True).damaged == []
    assert run(tmp_path / "in", tmp_path / "out", settings).damaged == []
    assert list((tmp_path / "out").glob("*damaged*")) == []


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
    assert [path.name for path in (tmp_path / "copies").glob("*.tar")] == ["b.tar"]


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
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [running.name, "_captioner.json", "a.parquet"]


def test_a_store_that_fails_costs_the_shard_and_not_the_job(settings, tmp_path, monkeypatch):
    webdataset(tmp_path / "in" / "a.tar", pictures(1))
    webdataset(tmp_path / "in" / "b.tar", pictures(1))

    upload = type(fsspec.filesystem("memory")).put_file

    def fail(self, file, path, **options):
        if ".a.parquet" in path:
            raise LookupError("the bucket is gone")
        upload(self, file, path, **options)

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "put_file", fail)
    summary = run(tmp_path / "in", f"memory://{uuid.uuid4().hex}/out", settings)
    assert [problem.partition(": ")[2] for problem in summary.failed] == ["LookupError: the bucket is gone"]
    assert summary.captioned == 1


@pytest.mark.parametrize("name", ["_captioner.json", "_a.damaged.txt", "a.parquet"])
def test_a_store_that_fails_while_a_file_of_its_output_is_read_is_named(name, settings, tmp_path, monkeypatch):
    shard = webdataset(tmp_path / "in" / "a.tar", pictures(3))
    shard.write_bytes(shard.read_bytes()[:3600])
    output = f"memory://{uuid.uuid4().hex}/out"
    assert len(run(shard, output, settings).damaged) == 1
    ((left,),) = [find_shards([str(shard)])]
    read = MemoryFile.read

    def fail(self, *arguments):
        if self.path.endswith(name):
            raise LookupError("the bucket is gone")
        return read(self, *arguments)

    monkeypatch.setattr(MemoryFile, "read", fail)
    with pytest.raises(StoreError, match=rf"{name}: the store cannot be read \(LookupError: the bucket is gone\)"):
        run(shard, output, settings)
        report_of_output(left, output, settings)


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A web server for the folder "web"."""
    monkeypatch.setattr("captioner.scale.samples.PAUSES", (0.0, 0.0))
    (tmp_path / "web").mkdir()
    for number, data in enumerate(pictures(3)):
        (tmp_path / "web" / f"{number}.png").write_bytes(data)
    with web_server(tmp_path / "web") as server:
        yield server


def write_list(path: Path, *addresses: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{address}\n" for address in addresses))


def run_lists(folder: Path, settings: ShardSettings) -> JobSummary:
    return run(folder / "in" / "*.txt", folder / "out", settings)


@pytest.mark.parametrize("how", ["refused", "status 503"])
def test_a_store_that_cannot_be_reached_fails_its_shard_and_a_later_run_tries_again(how, settings, web, tmp_path):
    down = f"http://127.0.0.1:{unused_port()}" if how == "refused" else f"{web.address}/busy"
    web.busy = True
    write_list(tmp_path / "in" / "down.txt", *(f"{down}/{number}.png" for number in range(3)))
    write_list(tmp_path / "in" / "up.txt", *(f"{web.address}/{number}.png" for number in range(3)))
    summary = run_lists(tmp_path, settings)
    assert (summary.captioned, summary.shards, summary.errors) == (3, 1, {})
    ((problem,),) = [summary.failed]
    assert f"{down}/0.png: the store cannot be read" in problem
    assert ("503" if how == "status 503" else "Cannot connect") in problem
    assert [path.name for path in (tmp_path / "out").glob("*.parquet")] == ["up-000000000.parquet"]
    if how == "status 503":
        web.busy = False
        assert run_lists(tmp_path, settings).captioned == 3


def test_a_store_that_fails_in_the_middle_fails_the_shard(settings, web, tmp_path):
    web.busy = True
    write_list(tmp_path / "in" / "a.txt", *(f"{web.address}/{name}" for name in ("0.png", "1.png", "busy/2.png")))
    summary = run_lists(tmp_path, settings)
    assert summary.captioned == 0 and "busy/2.png" in summary.failed[0]


def test_a_picture_that_a_store_does_not_have_is_a_row(settings, web, tmp_path):
    names = ("0.png", "missing.png", "forbidden/1.png")
    write_list(tmp_path / "in" / "a.txt", *(f"{web.address}/{name}" for name in names))
    assert run_lists(tmp_path, settings).failed == []
    errors = [row["error"] for row in rows(tmp_path / "out" / "a-000000000.parquet")]
    assert errors == [None, "no such file", "no permission to read it"]


def test_one_of_many_web_servers_that_is_gone_costs_its_pictures_and_not_the_shard(settings, web, tmp_path):
    gone = f"http://127.0.0.1:{unused_port()}"
    write_list(tmp_path / "in" / "a.txt", f"{gone}/0.png", f"{web.address}/1.png", f"{web.address}/2.png")
    summary = run_lists(tmp_path, settings)
    assert (summary.captioned, summary.failed) == (2, [])
    (first, *_) = rows(tmp_path / "out" / "a-000000000.parquet")
    assert "the store cannot be read" in first["error"]


@pytest.mark.parametrize("kind", ["txt", "parquet"])
def test_a_shard_that_begins_with_many_pictures_of_a_web_server_that_is_gone_is_finished(kind, settings, web, tmp_path):
    gone = f"http://127.0.0.1:{unused_port()}"
    addresses = [*(f"{gone}/{number}.png" for number in range(300)), *(f"{web.address}/{n}.png" for n in range(3))]
    shard = tmp_path / "in" / f"a.{kind}"
    if kind == "txt":
        write_list(shard, *addresses)
    else:
        write_parquet(shard, url=addresses)
    job = plan_job([str(shard)], str(tmp_path / "out"), settings, shard_size=1000)
    summary = job.summary()
    caption_here(job, job.load(), summary)
    assert (summary.captioned, summary.errors.total(), summary.failed) == (3, 300, [])


def test_a_shard_whose_web_server_fails_is_not_called_missing(settings, web, tmp_path):
    webdataset(tmp_path / "in" / "b.tar", pictures(1))
    web.busy = True
    inputs = [f"{web.address}/busy/a.tar", str(tmp_path / "in" / "b.tar"), f"{web.address}/missing.tar"]
    job = plan_job(inputs, str(tmp_path / "out"), settings, shard_size=100)
    summary = job.summary()
    caption_here(job, job.load(), summary)
    assert summary.captioned == 1
    assert "503" in summary.failed[0]
    assert summary.failed[1].endswith("missing.tar: no such file")
