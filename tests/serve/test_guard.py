"""Requests: the memory of bodies in work, clients that go away, and what does not run on the event loop."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from captioner.serve import caption_request
from captioner.serve.app import _on_problem
from captioner.serve.guard import Guard
from captioner.serve.problems import Problem
from captioner.serve.service import Service
from captioner.serve.service_metrics import ServiceMetrics
from captioner.serve.service_settings import ServiceSettings


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(ServiceSettings(max_body=100, body_memory=250, log=False), ServiceMetrics())
    yield service
    service.close()


class Client:
    """One request. Its body is sent in `chunks`; `leave` closes the connection."""

    def __init__(self, guard: Guard, chunks: list[bytes], *, length: int | None = None, kind: str = "") -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for chunk in chunks:
            self.messages.put_nowait({"type": "http.request", "body": chunk, "more_body": True})
        self.messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.status = 0
        headers = [(b"content-type", kind.encode())]
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}
        self.task = asyncio.create_task(guard(scope, self.messages.get, self._send))

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})


def guarded(service: Service, call: Callable[[Request], Awaitable[Response]]) -> Guard:
    app = Starlette(routes=[Route("/", call, methods=["POST"])], exception_handlers={Problem: _on_problem})
    app.state.service = service
    return Guard(app, service, frozenset("/"))


async def until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0)

    await asyncio.wait_for(wait(), 5)


def test_bodies_in_work_have_bounded_memory_and_it_comes_back(service: Service) -> None:
    async def run() -> None:
        answer = asyncio.Event()

        async def call(request: Request) -> Response:
            await request.body()
            await answer.wait()
            return PlainTextResponse("done")

        guard = guarded(service, call)
        first = [Client(guard, [b"x" * 50, b"x" * 50]) for _ in range(2)]
        await until(lambda: service.body_bytes == 200)
        declared, without_length = Client(guard, [b"x" * 60], length=60), Client(guard, [b"x" * 40, b"x" * 20])
        await asyncio.wait_for(asyncio.gather(declared.task, without_length.task), 5)
        assert (declared.status, without_length.status) == (429, 429)
        assert service.body_bytes == 200
        small = Client(guard, [b"x" * 50], length=50)
        await until(lambda: service.body_bytes == 250)
        answer.set()
        await asyncio.wait_for(asyncio.gather(small.task, *(client.task for client in first)), 5)
        assert [client.status for client in (small, *first)] == [200] * 3
        assert service.body_bytes == 0

    asyncio.run(run())


def test_a_body_of_the_largest_size_fits_even_where_less_memory_was_given() -> None:
    assert ServiceSettings(max_body=100, body_memory=10).most_bodies == 100


def test_the_work_of_a_client_that_went_away_is_cancelled(service: Service) -> None:
    async def run() -> None:
        events: list[str] = []

        async def call(request: Request) -> Response:
            await request.body()
            events.append("in work")
            try:
                await asyncio.Event().wait()
            finally:
                events.append("cancelled")
            raise AssertionError

        client = Client(guarded(service, call), [b"x"])
        await until(lambda: events == ["in work"])
        client.leave()
        await asyncio.wait_for(client.task, 5)
        assert events == ["in work", "cancelled"]
        assert client.status == 0 and service.requests == service.body_bytes == 0

    asyncio.run(run())
    assert 'status="499"' in service.metrics.text().decode()


def test_json_and_base64_are_not_read_on_the_event_loop(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, str] = {}

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            threads[name] = threading.current_thread().name
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(json, "loads", noted("json", json.loads))
    monkeypatch.setattr(base64, "b64decode", noted("base64", base64.b64decode))
    pictures: list[bytes] = []

    async def call(request: Request) -> Response:
        found, _ = await caption_request.read_body(request, service.settings)
        pictures.extend(found)
        return PlainTextResponse("done")

    async def run() -> None:
        client = Client(guarded(service, call), [b'{"images": ["AAEC"]}'], kind="application/json")
        await asyncio.wait_for(client.task, 5)
        assert client.status == 200

    asyncio.run(run())
    assert pictures == [b"\0\1\2"]
    assert set(threads) == {"json", "base64"} and all(name.startswith("read") for name in threads.values())
