"""The orderly stop, overload, and worker processes."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.serve.pictures import png
from tests.serve.running import Running, running


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


def test_while_draining_new_work_and_readiness_are_503(model: Path) -> None:
    import socket

    with running("--model", str(model), "--timeout", "5") as service:
        host, port = service.url.removeprefix("http://").split(":")
        data = png()
        head = f"POST /v1/caption HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: {len(data)}\r\n\r\n"
        with socket.create_connection((host, int(port)), timeout=10) as accepted:
            accepted.sendall(head.encode() + data[:10])
            time.sleep(0.3)
            service.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            assert httpx.get(f"{service.url}/ready").status_code == 503
            refused = httpx.post(f"{service.url}/v1/caption", content=data, headers={"Content-Type": "image/png"})
            assert refused.status_code == 503 and "shutting down" in refused.json()["detail"]
            accepted.sendall(data[10:])
            assert b"200" in accepted.recv(4096).splitlines()[0]
        assert service.process.wait(10) == 0


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
