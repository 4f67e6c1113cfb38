"""Commands that start further processes, such as a browser or a cluster, run with a time limit that holds for all."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_with_children(
    command: Sequence[str], *, seconds: float, cwd: Path = ROOT, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command. After `seconds`, kill it with everything that it has started, and fail with what it wrote.

    subprocess.run kills the command only, and then waits until its children close the pipes, which may be never.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=output, stderr=errors, start_new_session=True
        )
        late = False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what a command that has ended left behind
            process.wait()
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read())
    if late:
        raise TimeoutError(f"{' '.join(command)}: did not end within {seconds} seconds\n{texts[0]}\n{texts[1]}")
    return subprocess.CompletedProcess(command, process.returncode, *texts)
