"""Connecting to Ray: each cause of a failure has its own sentence. Clusters run in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from captioner.errors import UsageError
from captioner.scale.cluster_address import connect
from tests.scale.web_server import unused_port, web_server

ROOT = Path(__file__).parents[2]
RAY = [sys.executable, "-m", "ray.scripts.scripts"]

CONNECT = """
import sys
import ray
from captioner.errors import UsageError
from captioner.scale.cluster_address import connect

if len(sys.argv) > 2:
    ray.__version__ = sys.argv[2]
try:
    connect(ray, sys.argv[1], {"log_to_driver": False})
    print("connected")
except UsageError as error:
    print(error)
"""


def said(address: str, *arguments: str, **environment: str) -> str:
    """What is said about an address."""
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, address, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("scheme", ["ray://", ""])
def test_a_port_where_nothing_listens_is_refused_soon(scheme):
    address = f"{scheme}127.0.0.1:{unused_port()}"
    begun = time.monotonic()
    assert said(address) == f"--address {address}: no Ray cluster could be reached (Connection refused)"
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("address", ["ray://no-such-host.invalid:10001", "no-such-host.invalid:6379"])
def test_a_host_that_does_not_exist_is_named(address):
    assert f"--address {address}: no Ray cluster could be reached (" in said(address)


def test_an_error_without_a_text_is_named_by_its_kind():
    class Ray:
        exceptions = SimpleNamespace(RayError=RuntimeError)

        @staticmethod
        def init(*arguments: object, **options: object) -> None:
            raise ConnectionError

    with pytest.raises(UsageError, match=r"^--address auto: no Ray cluster could be reached \(ConnectionError\)$"):
        connect(Ray, "auto", {})


@pytest.mark.slow
def test_a_server_of_another_kind_is_not_called_a_timeout(tmp_path):
    with web_server(tmp_path) as server:
        answer = said(server.address.replace("http://", "ray://"))
    assert "something answers there, but not as the client server of a Ray cluster" in answer


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[tuple[int, int, dict[str, str]]]:
    """A cluster that wants a token: the ports of its client server and of its head, and the environment for it."""
    folder = tmp_path_factory.mktemp("ray")
    client, head = unused_port(), unused_port()
    environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of-this-test-" * 4, "HOME": str(folder)}
    options = ["--num-cpus", "1", "--object-store-memory", "80000000", "--include-dashboard", "false"]
    options += ["--port", str(head), "--ray-client-server-port", str(client), "--node-ip-address", "127.0.0.1"]
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [*RAY, "start", "--head", "--block", *options],
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", **environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + 90
        while b"will now block" not in (folder / "log").read_bytes():
            assert running.poll() is None and time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.2)
        yield client, head, environment
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["ray://127.0.0.1:{client}", "127.0.0.1:{head}"])
@pytest.mark.parametrize(
    "given", [{}, {"RAY_AUTH_MODE": "token"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x" * 40}]
)
def test_a_missing_or_wrong_token_is_called_so(where, given, guarded, tmp_path):
    client, head, _ = guarded
    answer = said(where.format(client=client, head=head), HOME=str(tmp_path), **given)
    assert "the cluster wants a token" in answer
    assert "timeout" not in answer


@pytest.mark.slow
def test_another_version_of_ray_is_named_and_the_right_one_with_its_token_is_connected(guarded):
    client, _, environment = guarded
    address = f"ray://127.0.0.1:{client}"
    assert said(address, **environment) == "connected"
    answer = said(address, "1.2.3", **environment)
    assert "the cluster wants a token" not in answer  # it has the right one
    if "wait until the cluster is ready" in answer:  # a loaded machine answers after Ray has given up
        answer = said(address, "1.2.3", **environment)
    assert "the cluster has Ray 2." in answer and "this command Ray 1.2.3 and Python" in answer
