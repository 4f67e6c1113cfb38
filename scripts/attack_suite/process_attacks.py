"""Attacks on whole commands: Ctrl-C, a full disk, forks, and a look at the network and the disk."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from attack_suite.commands import PHOTOS, ROOT, Arguments, finish, kill, start, write_tiny_set
from attack_suite.system_trace import Trace, can_trace, foreign_files, traced, traced_service
from captioner.metrics.meteor.resources import cache_folder

SECONDS = 2.0  # of the processor, from Ctrl-C to the end of the program


def interrupts(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    """Ctrl-C at random times after the first result: the command ends at once, with a sentence."""
    tried, bad = 0, list[str]()
    write_tiny_set(folder)
    endless = ["--set", "training.epochs=999"]
    commands: list[tuple[Arguments, str, int]] = [  # with the first file that each writes, and its exit code
        (["caption", *PHOTOS * 200, "-o", "out", "--overwrite", "--batch", "4"], "out", 130),
        (["overlay", *PHOTOS * 200, "-o", "drawn", "--overwrite"], "drawn/*", 130),
        (["train", "--config", "tiny.yaml", "--run", "run", *endless], "run/last.safetensors", 1),
    ]
    while time.monotonic() < end:
        command, first, expected = rng.choice(commands)
        _empty(folder, "out", "drawn", "run")
        # A shell that runs this in the background lets it ignore Ctrl-C, and its children too.
        process = start(folder, *command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        while process.poll() is None and not list(folder.glob(first)):
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 2))
        before = _processor_seconds(process.pid)
        process.send_signal(signal.SIGINT)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            _, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            kill(process)
            err = b"it does not end"
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime - before
        tried += 1
        if process.returncode != expected or b"Traceback" in err or not err.strip() or seconds > SECONDS:
            bad.append(f"{command[0]}: exit {process.returncode} after {seconds:.1f} s: {err[-300:]!r}")
    return tried, bad


def full_disk(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    """Files may not grow beyond a few bytes: a sentence, and exit code 1 or 2."""
    tried, bad = 0, list[str]()
    write_tiny_set(folder)
    commands: list[Arguments] = [
        ["caption", *PHOTOS, "-f", format, "-o", f"out.{format}", "--overwrite", "--summary", "summary"]
        for format in ("text", "jsonl", "csv", "coco")
    ]
    commands += [
        ["overlay", *PHOTOS[:2], "-o", "drawn"],
        ["features", "--config", "tiny.yaml"],
        ["train", "--config", "tiny.yaml", "--run", "run", "--overwrite"],
    ]
    while time.monotonic() < end:
        room = rng.randrange(0, 300)
        code, err = finish(
            folder,
            *rng.choice(commands),
            preexec_fn=lambda room=room: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        )
        _empty(folder, "drawn", "run", "cache")
        tried += 1
        if "Traceback" in err or code < 0 or not err.strip():
            bad.append(f"exit {code}: {err[-400:]}")
    return tried, bad


def forks(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    """Forks at random times while other threads caption: the child captions as its parent does."""
    tried, bad = 0, list[str]()
    for backend in ("onnx", "torch"):
        seconds = (end - time.monotonic()) / (2 if backend == "onnx" else 1)
        command = [sys.executable, "-W", "ignore", "-c", _FORKS, backend, str(seconds), *map(str, PHOTOS[:2])]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds + 300)
        except subprocess.TimeoutExpired:
            return tried + 1, [*bad, f"{backend}: a process does not end after a fork"]
        if done.returncode:
            return tried + 1, [*bad, f"{backend}: exit {done.returncode}: {done.stderr[-300:]}"]
        children, wrong = json.loads(done.stdout)
        tried += children
        bad += [f"{backend}: a child ended with {code}" for code in wrong]
    return tried, bad


_FORKS = """
import json, os, random, signal, sys, threading, time
from captioner import Captioner

captioner = Captioner.load(backend=sys.argv[1], threads=2)
end, photos = time.monotonic() + float(sys.argv[2]), sys.argv[3:]
texts = {photo: captioner(photo).text for photo in photos}
likelihood = captioner.force(photos[0], "a dog on a table").log_probability
stopping = threading.Event()

def caption_on():
    while not stopping.is_set():
        list(captioner.stream(photos))

thread = threading.Thread(target=caption_on)
thread.start()
children, wrong = 0, []
while time.monotonic() < end:
    time.sleep(random.random() / 2)
    child = os.fork()
    if not child:
        signal.alarm(120)
        photo = photos[children % len(photos)]
        same = captioner(photo).text == texts[photo]
        close = abs(captioner.force(photos[0], "a dog on a table").log_probability - likelihood) < 1e-3
        os._exit(0 if same and close else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    children += 1
    wrong += [code] if code else []
stopping.set()
thread.join()
print(json.dumps([children, wrong]))
"""


def network(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    """strace sees no socket of the internet, and no file outside the command's own folder."""
    if not can_trace():
        return 0, ["strace is not installed, or may not trace here"]
    tried, bad = 0, list[str]()
    for name, trace in trace_all(folder):
        tried += 1
        bad += [f"{name}: {problem}" for problem in problems(name, trace, folder)]
        if time.monotonic() > end:
            break
    return tried, bad


def trace_all(folder: Path) -> Iterator[tuple[str, Trace]]:
    """Every command with its trace, in an order in which each finds what it needs."""
    write_tiny_set(folder)
    annotations = json.loads((folder / "data" / "captions_val.json").read_text())["annotations"]
    results = {record["image_id"]: record["caption"] for record in annotations}
    (folder / "results.json").write_text(json.dumps([{"image_id": i, "caption": text} for i, text in results.items()]))
    captions = folder / "data" / "captions_val.json"
    photo = Path(shutil.copy(PHOTOS[0], folder))
    commands: list[Arguments] = [
        ["models"],
        ["caption", photo, "--sidecar", "-f", "jsonl", "-o", "captions.jsonl"],
        ["overlay", photo, "-o", "drawn", "--format", "html,png,pdf"],
        ["train", "--config", "tiny.yaml", "--run", "run", "--set", "training.epochs=1"],
        ["export", "run", "-o", "bundle", "--licence", "CC0-1.0"],
        ["evaluate", "--model", "./bundle", "--data", captions, "--split", "val", "--report", "report.html"],
        ["score", "--results", "results.json", "--references", captions],
    ]
    if cache_folder().is_dir():  # to compute METEOR's tables takes a minute
        shutil.copytree(cache_folder(), folder / "home" / "cache" / "captioner", dirs_exist_ok=True)
    for command in commands:
        yield str(command[0]), traced(folder, *command)
    yield "serve", traced_service(folder, photo)


def problems(name: str, trace: Trace, folder: Path) -> list[str]:
    """What a command did that it must not do. A service may listen on this machine."""
    found = [f"wrote {path}" for path in foreign_files(trace, folder)]
    if trace.code:
        found.append(f"exit {trace.code}: {trace.err[-300:]}")
    if name != "serve":
        found += [f"opened a socket: {call}" for call in trace.sockets]
    return found + [f"talked to {address}" for address in trace.addresses if name != "serve" or address != "127.0.0.1"]


def _empty(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _processor_seconds(process: int) -> float:
    """Processor time of a running process, user and system."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


ATTACKS = {
    "interrupts": interrupts,
    "full disk": full_disk,
    "forks": forks,
    "network": network,
}
