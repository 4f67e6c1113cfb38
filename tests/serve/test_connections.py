"""Connections: what the server keeps of them, and when it closes them."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send

from captioner.serve.server import BoundedProtocol

REQUEST = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once, and at /slow after 1.5 seconds, which is longer than the keep-alive time of these tests."""
    await asyncio.sleep(1.5 if scope["path"] == "/slow" else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def served(keep_alive: int) -> AsyncIterator[int]:
    """The port of a server with our protocol."""
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        timeout_keep_alive=keep_alive,
        server_header=False,
        date_header=False,
    )
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        serving = asyncio.ensure_future(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


def protocols() -> int:
    gc.collect()
    # isinstance would ask each object for its class, and some of torch's answer with a warning.
    return sum(type(each) is BoundedProtocol for each in gc.get_objects())


def test_nothing_is_kept_of_a_connection_that_has_ended() -> None:
    async def connect_often() -> int:
        async with served(keep_alive=600) as port:
            before = protocols()
            for _ in range(50):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(REQUEST % b"")
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(ANSWER)
                writer.close()
                await writer.wait_closed()
            for _ in range(100):  # the server sees the last one's end a moment later
                if protocols() == before:
                    break
                await asyncio.sleep(0.05)
            return protocols() - before

    assert asyncio.run(connect_often()) == 0


def test_a_pipelined_request_that_takes_longer_than_an_idle_connection_is_answered() -> None:
    async def pipeline() -> bytes:
        async with served(keep_alive=1) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST % b"" + REQUEST % b"slow")
            answers = await reader.read()  # until the server closes the connection, which is idle in the end
            writer.close()
            return answers

    assert asyncio.run(pipeline()).count(ANSWER) == 2


def test_connections_without_a_request_are_closed() -> None:
    async def idle(message: bytes) -> bytes:
        async with served(keep_alive=1) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(message)
            received = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            return received

    head = REQUEST % b""
    assert asyncio.run(idle(b"")) == b""
    assert asyncio.run(idle(head[:-4])) == b""
    assert asyncio.run(idle(head)).count(ANSWER) == 1
    assert asyncio.run(idle(head + head[:-4])).count(ANSWER) == 1
