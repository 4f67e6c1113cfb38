"""Estimates of the disk space for features and of the memory for training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GridCost:
    """The cached features of an image: rows x cols cells with a number of channels."""

    name: str
    rows: int
    cols: int
    channels: int

    def bytes(self, *, value_bytes: int = 2, views: int = 1) -> int:
        """Bytes per image, by default in float16. `views` is 2 if the mirror image is cached too."""
        return self.rows * self.cols * self.channels * value_bytes * views


# EfficientNet-Lite at 256 pixels; the first is the default. VGG-19 is the encoder of the paper.
GRIDS = (
    GridCost("Lite0 or Lite1, stride-16 stage (tail trainable)", 16, 16, 112),
    GridCost("Lite2, stride-16 stage (tail trainable)", 16, 16, 120),
    GridCost("Lite0 or Lite1, last stage before the head", 8, 8, 320),
    GridCost("Lite0 or Lite1, head", 8, 8, 1280),
    GridCost("VGG-19, last convolution, at 224", 14, 14, 512),
    GridCost("ResNet-50 or -101, last stage, at 224", 7, 7, 2048),
)


@dataclass(frozen=True)
class DecoderCost:
    """Sizes of the decoder and of a training step, with the names of the configs."""

    images: int = 32  # B
    captions: int = 5  # K
    length: int = 13  # mean number of words per caption, with the end token
    cells: int = 64  # L
    channels: int = 1280  # D, of the encoder
    annotation_size: int = 512  # after the projection
    attention_size: int = 256  # A
    embedding_size: int = 512  # m
    hidden_size: int = 512  # n
    vocabulary: int = 5600

    def parameters(self) -> int:
        """Weights of the decoder with one LSTM layer and a tied output layer, biases included."""
        d, a, m, n = self.annotation_size, self.attention_size, self.embedding_size, self.hidden_size
        projection = (self.channels + 1) * d
        initial_state = 2 * (d + 1) * n
        attention = d * a + (n + 1) * a + a
        gate = n + 1
        lstm = 4 * n * (m + d + n) + 4 * n
        output = (n + 1) * m + d * m
        words = self.vocabulary * m + self.vocabulary
        return projection + initial_state + attention + gate + lstm + output + words

    def state_bytes(self) -> int:
        """Weights, gradients and Adam's two moments, float32."""
        return 4 * 4 * self.parameters()

    def step_bytes(self) -> int:
        """Approximate bytes that a step keeps for its backward pass: attention, LSTM and output layer, float32.

        A trained tail of the encoder needs more.
        """
        words = self.images * self.captions * self.length
        attention = words * self.cells * (self.attention_size + 2)
        lstm = words * (6 * self.hidden_size + self.embedding_size + 2 * self.annotation_size)
        output = words * (2 * self.vocabulary + 2 * self.embedding_size)
        grid = self.images * self.cells * (self.channels + 2 * self.annotation_size + self.attention_size)
        return 4 * (attention + lstm + output + grid)


def readable(count: float) -> str:
    """A number of bytes with a unit: 57.3 KB, 3.84 GB."""
    if count < 1000:
        return f"{count:,.0f} bytes"
    for unit in ("KB", "MB", "GB"):
        count /= 1000
        if count < 999.5:
            return f"{count:.3g} {unit}"
    return f"{count / 1000:,.3g} TB"
