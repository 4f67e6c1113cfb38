"""uvicorn with an orderly stop, in one process or in several that share a socket.

On SIGTERM or Ctrl-C the service drains: requests that were accepted are answered, new ones get status 503, /ready too,
and then the process exits with 0. A second signal ends the process at once, and what it was working on is lost. While
the models load there is nothing to answer, and the first signal ends the process at once, with 0.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from types import FrameType

import uvicorn
from prometheus_client import multiprocess
from uvicorn.protocols.http.h11_impl import H11Protocol

from captioner.bundle.model_folders import find_model
from captioner.errors import CaptionerError, UsageError
from captioner.inference.model_loading import processors
from captioner.serve.app import create_app
from captioner.serve.service import Service
from captioner.serve.service_settings import ServiceSettings
from captioner.terminal import say
from captioner.web.web_folder import check_web_folder
from captioner.workarounds.malloc import TENSORS, return_memory

KEEP_ALIVE = 30  # seconds that a connection may be idle
FAILED = 3  # exit code of a worker process whose models cannot be loaded


class BoundedProtocol(H11Protocol):
    """Closes connections that send no complete head of a request in time; uvicorn waits for ever."""

    _expected: asyncio.TimerHandle | None = None  # closes the connection if no request has begun by then

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._expect_nothing()  # else the timer would keep the connection and its last request in memory

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        if self.cycle is answered and not self.transport.is_closing():  # else a pipelined request has begun
            self._expect_request()

    def _expect_request(self) -> None:
        last = self.cycle

        def close_if_idle() -> None:
            if self.cycle is last:  # no new request has begun
                self.transport.close()

        self._expect_nothing()
        self._expected = self.loop.call_later(self.timeout_keep_alive, close_if_idle)

    def _expect_nothing(self) -> None:
        if self._expected is not None:
            self._expected.cancel()
            self._expected = None


class DrainingServer(uvicorn.Server):
    """Answers what it has accepted before it stops."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self.deadline = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.service.loading:  # a thread may be inside a graph that takes very long, and would be waited for
            os._exit(0)
        if self.service.draining:  # uvicorn would still wait for its connections
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.deadline = time.monotonic() + self.service.settings.timeout + 5
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """uvicorn calls this every 0.1 seconds and stops when it returns True."""
        drained = self.service.draining and (not self.service.requests or time.monotonic() > self.deadline)
        return await super().on_tick(counter) or drained or self.service.failure is not None


def serve(settings: ServiceSettings) -> int:
    """Serve until a signal comes, and return the exit code."""
    _check(settings)
    settings = replace(settings, threads=settings.threads or max(1, processors() // settings.workers))
    listener = _listen(settings)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    say(f"captioner: http://{host}:{listener.getsockname()[1]} (Ctrl-C stops it)")
    if settings.workers == 1:
        _run(settings, listener)
        return 0
    with tempfile.TemporaryDirectory(prefix="captioner-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        return _supervise(settings, listener)


def _check(settings: ServiceSettings) -> None:
    """Report what is wrong before anything is loaded."""
    for model in settings.models:
        find_model(model)
    if settings.web is not None:
        check_web_folder(settings.web)
    if settings.token_file is not None:
        try:
            token = settings.token()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--token-file {settings.token_file}: cannot be read ({error})") from None
        if not token:
            raise UsageError(f"--token-file {settings.token_file}: the file is empty")


def _listen(settings: ServiceSettings) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise CaptionerError(
            f"cannot listen on {settings.host}, port {settings.port} ({error.strerror}); choose another with --port"
        ) from None
    listener.listen(2048)  # from now on connections wait until the rest has started
    return listener


def _run(settings: ServiceSettings, listener: socket.socket) -> None:
    return_memory(TENSORS)
    app = create_app(settings)
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=min(KEEP_ALIVE, ceil(settings.timeout)),
    )
    server = DrainingServer(config, service)
    # A signal counts before uvicorn handles signals itself, and one that it raises again after the stop does nothing.
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, server.handle_exit)
    server.run([listener])
    if service.failure is not None:
        raise service.failure


def _worker(settings: ServiceSettings, listener: socket.socket) -> None:
    try:
        _run(settings, listener)
    except CaptionerError as error:
        say(f"captioner: {error}")
        sys.exit(FAILED)


def _supervise(settings: ServiceSettings, listener: socket.socket) -> int:
    """Start the workers, replace one that dies, and pass signals on."""
    context = multiprocessing.get_context("spawn")
    stopping = False

    def start() -> None:
        worker = context.Process(target=_worker, args=(settings, listener))
        with _ctrl_c_blocked():
            worker.start()
        workers.append(worker)
        if stopping:  # the signal came before the worker was in the list
            worker.terminate()

    def stop(sig: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        for worker in workers:
            worker.terminate()

    workers: list[BaseProcess] = []
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    resource_tracker.ensure_running()  # else the first start runs it, and that allows Ctrl-C again
    for _ in range(settings.workers):
        if not stopping:
            start()
    while any(worker.is_alive() for worker in workers):
        for worker in list(workers):
            worker.join(0.1)
            if worker.exitcode is None or stopping:
                continue
            if worker.exitcode == FAILED:
                stop(signal.SIGTERM, None)
                continue
            say(f"captioner: worker {worker.pid} ended with {worker.exitcode}; another one starts")
            multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
            workers.remove(worker)
            start()
    # The signal ends a worker that is still importing its modules, and has nothing to answer.
    orderly = (0, -signal.SIGTERM) if stopping else (0,)
    return int(any(worker.exitcode not in orderly for worker in workers))


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Processes started in the block don't see Ctrl-C, which a terminal sends to all: they get one SIGTERM instead."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
