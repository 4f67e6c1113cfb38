"""A figure for matplotlib: one axes per word, to save in any format or to put beside other plots.

matplotlib is the optional extra `figure`, and is imported only here.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from captioner.caption import Caption
from captioner.errors import UsageError
from captioner.installation import how_to_install
from captioner.overlay import painting
from captioner.overlay.painting import Style
from captioner.overlay.sheet_layout import SheetOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 600  # pixels of the longer side of a panel


def figure(
    caption: Caption, style: Style | None = None, options: SheetOptions | None = None, *, width: float = 8.0
) -> Figure:
    """A matplotlib figure, `width` inches wide: the picture, then one panel per word with its probability.

    Of the options, `words`, `columns`, `title` and `bars` (the probabilities) are used. The figure belongs to no
    window; a notebook shows it, and `figure.savefig` writes it.
    """
    if find_spec("matplotlib") is None:
        raise UsageError(f"figures need the package matplotlib: {how_to_install('matplotlib')}")
    from matplotlib.figure import Figure

    style, options = style or Style(), options or SheetOptions(words="content")
    image = painting.fit(painting.upright(caption.picture, min_side=SIDE), SIDE)
    top = painting.top_of_scale(caption)
    words = [word for word in caption.words if options.shows(word)]
    columns = options.columns or min(len(words) + 1, 4)
    rows = math.ceil((len(words) + 1) / columns)
    panel = width / columns
    height = rows * (panel * image.height / image.width + 0.35) + (0.5 if options.title else 0.0)
    drawn = Figure(figsize=(width, height), layout="constrained")
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.set_axis_off()
    axes[0].imshow(np.asarray(image))
    for ax, word in zip(axes[1:], words, strict=False):
        ax.imshow(np.asarray(painting.paint_word(image, word, top, style)))
        ax.set_title(f"{word.text} ({word.probability:.2f})" if options.bars else word.text, fontsize="medium")
    if options.title:
        drawn.suptitle(caption.sentence or "(no words)")
    return drawn
