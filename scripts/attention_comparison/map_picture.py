"""One picture of all models' attention maps for the same sentence: one row per model, one panel per word."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from attention_comparison.runs import Run
from captioner import Captioner
from captioner.overlay import geometry, lettering, painting
from captioner.overlay.canvas import Raster
from captioner.overlay.painting import Style

# Pixels and colors.
PANEL, GAP, LABEL, HEADER, INK, MUTED = 92, 4, 118, 152, (22, 24, 29), (90, 96, 110)


def draw_maps(runs: Sequence[Run], picture: Path, text: str) -> bytes:
    """Draw the maps as PNG. Each row has its own scale: on a common one, only the sharpest map would be visible."""
    captions = [Captioner.load(run.bundle).force(picture, text) for run in runs]
    photograph = painting.upright(captions[0].picture)
    small = photograph.resize((PANEL, round(PANEL * photograph.height / photograph.width)))
    block_width, row_height = LABEL + len(captions[0].words) * (PANEL + GAP), small.height + GAP
    blocks = min(2, len(runs))  # side by side
    rows = -(-len(runs) // blocks)
    canvas = Raster(blocks * block_width, HEADER + rows * row_height)
    height = HEADER - 32
    canvas.picture(LABEL, GAP, height * photograph.width / photograph.height, height, photograph)
    for number, (run, caption) in enumerate(zip(runs, captions, strict=True)):
        left, y = number // rows * block_width, HEADER + number % rows * row_height
        peak = geometry.peak([word.alpha for word in caption.words])
        canvas.text(left + GAP, y + row_height / 2, run.name, 12, INK)
        canvas.text(left + GAP, y + row_height / 2 + 16, f"up to {peak:.1f}", 11, MUTED)
        for i, word in enumerate(caption.words):
            x = left + LABEL + i * (PANEL + GAP)
            if y == HEADER:
                canvas.text(x, HEADER - 8, lettering.shorten(word.text, 13, PANEL), 13, INK)
            canvas.picture(x, y, PANEL, small.height, painting.paint_word(small, word, peak, Style()))
    buffer = io.BytesIO()
    canvas.image.convert("RGB").quantize(256).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
