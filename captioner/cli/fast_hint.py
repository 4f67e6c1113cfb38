"""A note that a long job would be quicker with --fast."""

from __future__ import annotations

from captioner.captioning import Captioner
from captioner.inference.model_loading import is_quicker_in_8_bits
from captioner.progress import ProgressBar, duration
from captioner.terminal import say

AFTER = 64  # captions, two batches: then the speed is known
LONG = 60.0  # seconds


def suggest_fast(captioner: Captioner, progress: ProgressBar) -> None:
    """Call it after each caption. Says once how long the rest takes, if that is long and --fast would help."""
    if progress.done != AFTER or captioner.backend.name != "onnx" or captioner.manifest is None:
        return
    left = progress.seconds_left
    if left is not None and left > LONG and is_quicker_in_8_bits(captioner.manifest):
        say(
            f"note: this takes about {duration(left)} more; --fast takes about half as long, and a caption may differ "
            "by a word"
        )
