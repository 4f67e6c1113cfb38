"""`captioner caption` as a process: full disks, closed pipes, Ctrl-C, and what it loads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.caption_process import command, environment, lines


@pytest.mark.skipif(os.name == "nt", reason="limits of a process are POSIX")
@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "coco"])
def test_a_full_disk_is_reported_and_loses_no_written_caption(model, photos, form):
    import resource

    names = "".join(f"photos/{'./' * i}img_2.jpg\n" for i in range(20))
    call = command(model, "-", "--format", form, "--output")
    # Coverage would write its own file, and fail at the same limit.
    unmeasured = {key: value for key, value in environment().items() if not key.startswith(("COV_", "COVERAGE_"))}
    how: dict[str, Any] = {"input": names, "text": True, "env": unmeasured, "timeout": 120, "capture_output": True}
    subprocess.run([*call, "whole"], check=True, **how)
    room = Path("whole").stat().st_size // 2

    done = subprocess.run(
        [*call, "out"], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)), **how
    )
    assert done.returncode == 1
    assert "out: cannot be written (File too large); --resume continues where the run stopped" in done.stderr
    assert "Traceback" not in done.stderr
    there = Path("out").read_text()
    assert 0 < len(there) <= room
    if form == "coco":
        assert 0 < len(json.loads(there)) < 20
    subprocess.run([*call, "out", "--resume"], check=True, **how)
    assert Path("out").read_text() == Path("whole").read_text()


def test_a_closed_pipe_ends_quietly(model, photos):
    names = "photos/img_2.jpg\n" + "".join(f"photos/../photos/{'./' * i}img_2.jpg\n" for i in range(300))
    done = subprocess.run(
        f"{' '.join(command(model, '-', '--batch', '1'))} | head -n 1",
        shell=True,
        input=names,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_ctrl_c_ends_quietly_and_leaves_complete_lines(model, photos):
    running = subprocess.Popen(
        command(model, "-", "--format", "jsonl", "--output", "out.jsonl", "--batch", "1"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs ignore this signal
    )
    assert running.stdin and running.stderr
    running.stdin.write("photos/img_2.jpg\nphotos/img_7.bmp\n")
    running.stdin.flush()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(lines("out.jsonl")) < 2:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
    assert running.stderr.read().strip() == "stopped after 2 captions; the same command with --resume continues"
    running.stdin.close()
    running.stderr.close()
    assert [json.loads(line)["image"] for line in lines("out.jsonl")] == ["photos/img_2.jpg", "photos/img_7.bmp"]


def test_captioning_loads_neither_torch_nor_other_heavy_packages(model, photos):
    code = (
        "import sys; from captioner.cli import run\n"
        f"sys.argv = ['captioner', 'caption', '--model', {str(model)!r}, 'photos/img_2.jpg']\n"
        "try: run()\n"
        "except SystemExit as left: assert left.code == 0, left.code\n"
        "heavy = {'torch', 'torchvision', 'onnx', 'pydantic', 'yaml', 'rich', 'nltk', 'pycocoevalcap', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_command_begins_to_load_the_model_before_it_imports_numpy_and_pillow():
    code = (
        "import sys, captioner.cli.caption, captioner.inference.model_loading, captioner.writers.wording\n"
        "import captioner.scale.locations, captioner.scale.shards\n"
        "print(sorted({'numpy', 'PIL', 'onnxruntime', 'pyarrow', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=120)
    assert done.stdout == "[]\n", done.stderr
