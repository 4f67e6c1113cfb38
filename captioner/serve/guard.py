"""Guard: token, limits, draining, time limit, metrics and log of every request."""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import time
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioner.serve.problems import Problem
from captioner.serve.service import Service

# Paths that need no token: probes, the page, which asks for the token, and the description of the calls.
OPEN_PATHS = ("/live", "/ready", "/", "/docs", "/openapi.json")
OPEN_FOLDER = "/web/"  # a page that captions in the browser, and its model
_QUIET_PATHS = ("/live", "/ready", "/metrics")  # called every few seconds, and not logged
_CLOSED = 499  # the client went away; nginx's number, for the log and the metrics


class Guard:
    """ASGI middleware. Refuses a request before its body is read, or passes it on and watches its answer."""

    def __init__(self, app: ASGIApp, service: Service, paths: frozenset[str]) -> None:
        """`paths` are the known paths. Metrics have no other labels, because clients choose the others."""
        self.app, self.service, self.settings, self.paths = app, service, service.settings, paths
        self.token = service.settings.token()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, held = time.monotonic(), 0, 0
        body_read = asyncio.Event()

        async def reading() -> Message:
            nonlocal held
            message = await receive()
            if not message.get("more_body", False):
                body_read.set()
            size = len(message.get("body", b""))
            if not status:  # else the body is discarded
                if self.service.body_bytes + size > self.settings.most_bodies:
                    raise self.service.bodies_full()
                held += size
                self.service.body_bytes += size
            return message

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400 and not body_read.is_set():
                    await _discard(reading, self.settings.max_body)
                if self.service.draining:
                    message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            await send(message)

        refusal = self._refusal(scope)
        try:
            if refusal is not None:
                self.service.metrics.failures.labels(refusal.reason).inc()
                await refusal.response()(scope, receive, watched)
            elif scope["method"] != "POST":
                await self.app(scope, reading, watched)
            else:
                self.service.requests += 1
                try:
                    work = asyncio.ensure_future(self.app(scope, reading, watched))
                    await self._finish(work, asyncio.create_task(_disconnect(receive, body_read)))
                finally:
                    self.service.requests -= 1
        except asyncio.TimeoutError:
            if not status:  # else the answer has begun, and the server closes the connection
                problem = Problem(504, f"the request took longer than {self.settings.timeout:g} seconds")
                self.service.metrics.failures.labels(problem.reason).inc()
                await problem.response()(scope, receive, watched)
        except ClientDisconnect:
            status = _CLOSED
        except Exception:
            status = 500
            raise
        finally:
            self.service.body_bytes -= held
            self._record(scope, status, time.monotonic() - started)

    async def _finish(self, work: asyncio.Future[None], gone: asyncio.Task[None]) -> None:
        """Wait for the answer, within the time limit. What nobody waits for any more is cancelled."""
        gone.add_done_callback(lambda _: work.cancel())
        try:
            await asyncio.wait_for(work, self.settings.timeout)
        except asyncio.CancelledError:
            if gone.done():
                raise ClientDisconnect from None
            raise
        finally:
            gone.cancel()

    def _refusal(self, scope: Scope) -> Problem | None:
        """Why the request is not accepted; None if it is."""
        headers, work = Headers(scope=scope), scope["method"] == "POST"
        path = scope["path"]
        if self.token is not None and path not in OPEN_PATHS and not path.startswith(OPEN_FOLDER):
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
                detail = "this service needs a token: send the header `Authorization: Bearer …`"
                return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
        if work and self.service.draining:
            return Problem(503, "the service is shutting down", headers={"Retry-After": "5"})
        if work and self.service.full:
            return self.service.queue_full()
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.settings.max_body:
            return body_too_large(self.settings.max_body)
        if work and length.isdecimal() and self.service.body_bytes + int(length) > self.settings.most_bodies:
            return self.service.bodies_full()
        return None

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"]
        label = path if path in self.paths else "other"
        self.service.metrics.requests.labels(label, str(status)).inc()
        self.service.metrics.latency.labels(label).observe(seconds)
        if self.settings.log and path not in _QUIET_PATHS:
            client = scope.get("client")
            line = {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "method": scope["method"],
                "path": path[:200],
                "status": status,
                "ms": round(1000 * seconds, 1),
                "client": client[0] if client else None,
            }
            print(json.dumps(line), file=sys.stderr, flush=True)


def body_too_large(limit: int) -> Problem:
    return Problem(413, f"the body is larger than the limit of {limit:,} bytes", headers={"Connection": "close"})


async def _disconnect(receive: Receive, body_read: asyncio.Event) -> None:
    """Returns when the client closes the connection after it has sent its body."""
    await body_read.wait()
    while (await receive())["type"] != "http.disconnect":
        pass


async def _discard(receive: Receive, limit: int) -> None:
    """Read what a client still sends, within bounds: closing the connection early would hide the answer from it."""

    async def read() -> None:
        size = 0
        while size < 4 * limit:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                return

    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(read(), 2)
