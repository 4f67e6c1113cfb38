"""A cluster of three nodes on this machine, a job on it, and what is killed while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from scale_proof.checks import identity

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}


def start_cluster() -> Any:
    """A head node and two others, each with its own raylet."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray's name for: everything on the loopback
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(**NODE)
    return cluster


def start_job(arguments: Sequence[str], address: str, log: Path) -> subprocess.Popen[bytes]:
    """`captioner scale caption` in a process of its own."""
    command = [sys.executable, "-m", "captioner", "scale", "caption", *arguments, "--address", address]
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file)


def watch(
    job: subprocess.Popen[bytes],
    output: Path,
    first_seen: dict[str, tuple[int, int]],
    events: Sequence[tuple[int, Callable[[], str]]],
    timeout: float,
) -> None:
    """Wait for the end of a job. Each event happens when so many outputs exist.

    Every output is noted in `first_seen` when it appears.
    """
    waiting = list(events)
    end = time.monotonic() + timeout
    while job.poll() is None:
        for file in output.glob("*.parquet"):
            first_seen.setdefault(file.name, identity(file))
        if waiting and len(first_seen) >= waiting[0][0]:
            print(f"{len(first_seen)} outputs: {waiting.pop(0)[1]()}", flush=True)
        if time.monotonic() > end:
            job.kill()
            raise SystemExit("the job takes too long; see its log")
        time.sleep(0.02)
    if waiting:
        raise SystemExit(f"the job ended with {job.returncode} before everything was killed; see its log")


def kill_node(cluster: Any) -> str:
    """Kill a node on which an actor is at work, with all its processes."""
    busy = [node for node in cluster.worker_nodes if actors_of(node)] or list(cluster.worker_nodes)
    cluster.remove_node(busy[0], allow_graceful=False)
    return "killed a node"


def kill_actor(cluster: Any) -> str:
    """Kill the process of an actor."""
    actors = [actor for node in cluster.list_all_nodes() for actor in actors_of(node)]
    if not actors:
        raise SystemExit("there is no actor to kill")
    actors[-1].send_signal(signal.SIGKILL)
    return f"killed the actor {actors[-1].pid}"


def actors_of(node: Any) -> list[psutil.Process]:
    """The processes of a node's captioning actors."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return [child for child in raylet.children(recursive=True) if _is_actor(child)]


def _is_actor(process: psutil.Process) -> bool:
    try:
        return "CaptionShard" in " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return False
