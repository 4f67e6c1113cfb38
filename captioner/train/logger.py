"""The log of a run: metrics, timing, TensorBoard, and lines on standard error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from captioner import overlay
from captioner.caption import Caption
from captioner.data.caption_set import CaptionSet
from captioner.files.atomic import write_atomically
from captioner.images.reading import Picture, read_image
from captioner.inference.backend import Backend
from captioner.inference.search import Hypothesis, caption_of
from captioner.terminal import say
from captioner.train.run_folder import RunFolder


class Logger:
    """Writes metrics.jsonl, timing.jsonl and TensorBoard's files, and prints lines. Only the main process writes."""

    def __init__(self, run_folder: RunFolder, step: int, *, validated: bool, writes: bool) -> None:
        """A resumed run drops the metrics that it will write again.

        These are the rows after `step`, and the validation at `step` unless it is done (`validated`).
        """
        self.run_folder, self.writes = run_folder, writes
        self.board: Any = None
        if not writes:
            return
        from torch.utils.tensorboard import SummaryWriter

        self.board = SummaryWriter(str(run_folder.board), purge_step=step + 1 if step else None)
        if run_folder.metrics.exists():
            lines = run_folder.metrics.read_text(encoding="utf-8", errors="replace").splitlines()
            earlier = [line for line in lines if _is_before(line, step, validated)]
            write_atomically(run_folder.metrics, "".join(line + "\n" for line in earlier))

    def info(self, line: str) -> None:
        if self.writes:
            say(line)

    def metrics(self, step: int, **row: Any) -> None:
        if not self.writes:
            return
        _append(self.run_folder.metrics, {"step": step, **row})
        kind = "validation" if "validation" in row else "train"
        for name, value in (row["validation"] if kind == "validation" else row).items():
            self.board.add_scalar(f"{kind}/{name}", value, step)

    def timing(self, **row: Any) -> None:
        if self.writes:
            _append(self.run_folder.timing, row)

    def samples(self, step: int, data: CaptionSet, hypotheses: list[Hypothesis], backend: Backend) -> None:
        """Captions of the first validation images, with their attention maps."""
        if not self.writes:
            return
        lines = []
        for item, hypothesis in zip(data, hypotheses, strict=False):
            picture = Picture(str(item.path), read_image(item.path)[1], item.path)
            caption = caption_of(hypothesis, backend, picture)
            lines.append(f"{item.path.name}: {caption.text}")
            self.info(f"  {lines[-1]}")
            self.board.add_image(f"attention/{item.path.name}", _sheet(caption), step, dataformats="HWC")
        self.board.add_text("captions", "\n\n".join(lines), step)

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


def _sheet(caption: Caption) -> Any:
    return np.asarray(overlay.sheet(caption).convert("RGB"))


def _append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def _is_before(line: str, step: int, validated: bool) -> bool:
    try:
        row = json.loads(line)
        return bool(row["step"] < step or (row["step"] == step and (validated or "validation" not in row)))
    except (ValueError, KeyError, TypeError, RecursionError):
        return False  # damaged, or the process was killed while it wrote this line
