"""The orderly stop, overload, and worker processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from captioner.bundle.writing import write_bundle
from captioner.serve import server
from captioner.serve.service_settings import ServiceSettings
from tests.serve.pictures import png
from tests.serve.running import Running, running
from tests.tiny_bundle import write_model


class Load:
    """Clients that ask again and again until the service is gone. Every outcome is noted."""

    def __init__(self, service: Running, clients: int) -> None:
        self.service, self.stopped = service, threading.Event()
        self.outcomes: list[str] = []
        self.threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def wait_for(self, outcome: str, count: int) -> None:
        deadline = time.monotonic() + 30
        while self.outcomes.count(outcome) < count:
            assert time.monotonic() < deadline, Counter(self.outcomes)
            time.sleep(0.01)

    def _ask(self) -> None:
        with self.service.client() as client:
            while not self.stopped.is_set():
                try:
                    answer = client.post("/v1/caption", files={"file": png()})
                    self.outcomes.append(str(answer.status_code))
                except httpx.TransportError:
                    self.outcomes.append("closed")
                    return

    def finish(self) -> Counter[str]:
        self.stopped.set()
        for thread in self.threads:
            thread.join(30)
        return Counter(self.outcomes)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_answers_what_was_accepted_and_exits_with_0(model: Path, sig: int) -> None:
    with running("--model", str(model)) as service:
        load = Load(service, 8)
        load.wait_for("200", 20)
        assert service.stop(sig) == 0
        outcomes = load.finish()
    # "closed" is a connection that ended before the service read a request from it: the service's log has every
    # request that it read, and each of them reached its client.
    assert set(outcomes) <= {"200", "503", "closed"}
    logged = Counter(str(json.loads(line)["status"]) for line in service.lines if line.startswith("{"))
    assert logged == {status: count for status, count in outcomes.items() if status != "closed"}
    assert not any("Traceback" in line for line in service.lines)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def draining(service: Running) -> bool:
    try:
        return httpx.get(f"{service.url}/ready").status_code == 503
    except httpx.TransportError:  # a worker without requests has just ended
        return False


def is_loading(service: Running) -> bool:
    answer = httpx.get(f"{service.url}/ready", timeout=30)
    return answer.status_code == 503 and answer.text == "loading"


@contextmanager
def accepted_request(service: Running, data: bytes) -> Iterator[socket.socket]:
    """The connection of a request that the service has accepted, and whose body is not sent yet."""
    host, port = service.url.removeprefix("http://").split(":")
    head = f"POST /v1/caption HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: {len(data)}\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert b"100" in connection.recv(4096).splitlines()[0]
        yield connection


def test_while_draining_new_work_and_readiness_are_503(model: Path) -> None:
    data = png()
    with running("--model", str(model)) as service:
        with accepted_request(service, data) as accepted:
            service.process.send_signal(signal.SIGTERM)
            wait_until(lambda: draining(service))
            refused = httpx.post(f"{service.url}/v1/caption", content=data, headers={"Content-Type": "image/png"})
            assert refused.status_code == 503 and "shutting down" in refused.json()["detail"]
            accepted.sendall(data)
            assert b"200" in accepted.recv(4096).splitlines()[0]
        assert service.process.wait(30) == 0


def test_a_second_signal_ends_the_service_at_once(model: Path) -> None:
    with running("--model", str(model), "--timeout", "300") as service, accepted_request(service, png()):
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: draining(service))
        assert service.stop(signal.SIGTERM) == -signal.SIGTERM


def write_endless_model(folder: Path) -> Path:
    """A tiny model whose encoder multiplies large matrices for minutes."""
    bundle = write_model(folder)
    graph = onnx.load(folder / "encoder.onnx")
    graph.graph.initializer.append(numpy_helper.from_array(np.array([3000, 3000], np.int64), "side"))
    nodes = [helper.make_node("ConstantOfShape", ["side"], ["product0"])]
    for number in range(200):
        nodes.append(helper.make_node("MatMul", [f"product{number}", "product0"], [f"product{number + 1}"]))
    nodes.append(helper.make_node("ReduceMax", ["product200"], ["zero"], keepdims=0))
    nodes.append(helper.make_node("Add", ["means", "zero"], ["annotations"]))
    graph.graph.node[-1].output[0] = "means"
    graph.graph.node.extend(nodes)
    names = [name for name in bundle.manifest.files if name not in ("vocabulary.json", "encoder.onnx")]
    files: dict[str, bytes | Path] = {name: (folder / name).read_bytes() for name in names}
    files["encoder.onnx"] = graph.SerializeToString()
    return write_bundle(folder, files, bundle.manifest, bundle.vocabulary).folder


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_ends_a_service_that_is_still_loading(tmp_path: Path, sig: int) -> None:
    with running("--model", str(write_endless_model(tmp_path / "toy")), "--threads", "1", ready=False) as service:
        wait_until(lambda: is_loading(service))
        time.sleep(1)  # so that it is inside the graph
        assert is_loading(service)
        service.process.send_signal(sig)
        assert service.process.wait(10) == 0
    assert service.lines[1:] == []


def test_more_than_the_queue_holds_is_refused_with_429_and_everything_is_answered(model: Path) -> None:
    with running("--model", str(model), "--queue", "2", "--no-log") as service:
        load = Load(service, 16)
        load.wait_for("429", 5)
        load.wait_for("200", 5)
        outcomes = load.finish()
    assert set(outcomes) == {"200", "429"}


def test_workers_share_the_port_and_their_metrics_and_stop_together(model: Path) -> None:
    with running("--model", str(model), "--workers", "2", "--threads", "1", "--no-log") as service:
        for _ in range(20):
            assert httpx.post(f"{service.url}/v1/caption", files={"file": png()}).status_code == 200
        text = httpx.get(f"{service.url}/metrics").text
        line = next(line for line in text.splitlines() if line.startswith("captioner_captions_total"))
        assert float(line.split()[-1]) == 20
        assert service.stop() == 0


def test_ctrl_c_in_a_terminal_lets_workers_answer_what_they_accepted(model: Path) -> None:
    """A terminal sends SIGINT to every process; the supervisor passes its own on as SIGTERM."""
    data = png()
    with running("--model", str(model), "--workers", "2", "--threads", "1", session=True) as service:
        with accepted_request(service, data) as accepted:
            os.killpg(service.process.pid, signal.SIGINT)
            wait_until(lambda: draining(service))
            accepted.sendall(data)
            assert b"200" in accepted.recv(4096).splitlines()[0]
        assert service.process.wait(30) == 0
    assert not any("Traceback" in line for line in service.lines)


class Worker:
    """Stands for a process. The stop signal comes while the one with the number `stopped_at` starts."""

    started: list[Worker]
    stopped_at: int

    def __init__(self, target: Any, args: Any) -> None:
        self.exitcode: int | None = None
        self.pid = 0

    def start(self) -> None:
        self.started.append(self)
        if len(self.started) == self.stopped_at:
            signal.raise_signal(signal.SIGTERM)

    def is_alive(self) -> bool:
        return self.exitcode is None

    def terminate(self) -> None:
        self.exitcode = -signal.SIGTERM

    def join(self, seconds: float) -> None:
        assert self.exitcode is not None, "nobody told this worker to stop"


@pytest.mark.parametrize("stopped_at", [1, 2])
def test_a_signal_while_workers_start_stops_all_of_them(monkeypatch: pytest.MonkeyPatch, stopped_at: int) -> None:
    monkeypatch.setattr(Worker, "started", [], raising=False)
    monkeypatch.setattr(Worker, "stopped_at", stopped_at, raising=False)
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: SimpleNamespace(Process=Worker))
    before = {sig: signal.getsignal(sig) for sig in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert server._supervise(ServiceSettings(workers=3), None) == 0  # type: ignore[arg-type]
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)
    assert [worker.exitcode for worker in Worker.started] == [-signal.SIGTERM] * stopped_at


def test_the_service_returns_the_memory_of_freed_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(server, "return_memory", lambda size: calls.append(f"return_memory {size:,}"))
    monkeypatch.setattr(server.DrainingServer, "run", lambda self, sockets: calls.append("run"))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with socket.socket() as listener:
        server._run(ServiceSettings(), listener)
    assert calls == ["return_memory 1,048,576", "run"]
