"""Connecting to a Ray cluster, with a sentence that says why it failed.

Ray's client waits half a minute for a port that nothing listens on, and says "connection timeout" about a wrong token.
Without ray://, Ray tries for minutes, and its core writes log lines to standard error.
"""

from __future__ import annotations

import os
import re
import socket
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from captioner.errors import UsageError

CLIENT_PORT = 10001  # of Ray's client server, where an address names none
SECONDS = 10.0  # for an answer

_TOKEN = (
    "the cluster wants a token, and this command has none or another one: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN "
    "or RAY_AUTH_TOKEN_PATH"
)
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")


def connect(ray: Any, address: str, options: dict[str, Any]) -> None:
    """Connect the module ray to a cluster, or start one on this machine if the address is "local"."""
    is_client = address.startswith("ray://")
    if ":" in address:  # neither "local" nor "auto"
        _check_port(address)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Ray Client connection timed out")
            ray.init(address, **options)
    except (ConnectionError, ValueError, RuntimeError, ImportError, ray.exceptions.RayError) as error:
        raise UsageError(f"--address {address}: {_reason(error, address if is_client else '')}") from None


def _check_port(address: str) -> None:
    """Refuse an address where nothing listens. A cluster that is being started is waited for."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            with socket.create_connection(_host_and_port(address), SECONDS):
                return
        except (OSError, ValueError) as error:
            if isinstance(error, ConnectionRefusedError) and time.monotonic() < end:
                time.sleep(0.5)
                continue
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"--address {address}: no Ray cluster could be reached ({reason})") from None


def _host_and_port(address: str) -> tuple[str, int]:
    parts = urlsplit(address if "://" in address else f"//{address}")
    return parts.hostname or "", parts.port or CLIENT_PORT


def _reason(error: Exception, client_address: str) -> str:
    text = f"{error} {error.__cause__ or ''}"
    if "AuthenticationError" in (type(error).__name__, type(error.__cause__).__name__) or "AuthToken" in text:
        return _TOKEN
    versions = _VERSIONS.findall(text)
    if "ersion mismatch" in text and len(versions) == 2:
        (ray_there, python_there), (ray_here, python_here) = versions
        return (
            f"the cluster has Ray {ray_there} and Python {python_there}, this command Ray {ray_here} and Python "
            f"{python_here}: install the same versions here"
        )
    if client_address and isinstance(error, ConnectionError):
        if _wants_token(client_address):
            return _TOKEN
        return (
            "something answers there, but not as the client server of a Ray cluster: give the address and port of "
            f"that server (port {CLIENT_PORT} by default), or wait until the cluster is ready"
        )
    first_line = (text.strip() or type(error).__name__).splitlines()[0].strip()
    return f"no Ray cluster could be reached ({first_line})"


def _wants_token(address: str) -> bool:
    """Whether the client server refuses a call with this command's token. Ray itself does not say why it failed."""
    import grpc  # type: ignore[import-untyped]

    host, port = _host_and_port(address)
    with grpc.insecure_channel(f"[{host}]:{port}" if ":" in host else f"{host}:{port}") as channel:
        try:
            channel.unary_unary("/ray.rpc.RayletDriver/ClusterInfo")(b"", timeout=SECONDS, metadata=_credentials())
        except grpc.RpcError as error:
            return bool(error.code() == grpc.StatusCode.UNAUTHENTICATED)
    return False


def _credentials() -> list[tuple[str, str]]:
    """The header with the token that Ray's settings name, if any."""
    token, file = os.environ.get("RAY_AUTH_TOKEN", ""), os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not token and file:
        with suppress(OSError):
            token = Path(file).read_text(encoding="utf-8").strip()
    return [("authorization", f"Bearer {token}")] if token and os.environ.get("RAY_AUTH_MODE") == "token" else []
