"""Encoder and decoder as one module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.model.caption_decoder import CaptionDecoder
from captioner.model.decoder import Decoder
from captioner.model.encoder import Encoder, flatten
from captioner.model.settings import EncoderSettings, ModelSettings
from captioner.model.transformer import TransformerDecoder


class Network(nn.Module):
    """Show, Attend and Tell. It computes the annotations of pixels or cached grids; the decoder captions them."""

    def __init__(
        self, encoder: EncoderSettings, model: ModelSettings, vocabulary_size: int, *, load: bool = True
    ) -> None:
        """With `load=False` the encoder keeps random weights, for a caller that loads all weights right after."""
        super().__init__()
        self.encoder = Encoder(encoder, load=load)
        kind = {"lstm": Decoder, "transformer": TransformerDecoder}[model.decoder]
        self.decoder: CaptionDecoder = kind(model, self.encoder.size, vocabulary_size, self.encoder.grid())

    def annotations(self, grid: Tensor) -> Tensor:
        """Annotations (B, L, D) of a grid from the feature cache."""
        grid = grid.contiguous(memory_format=torch.channels_last)  # almost halves the tail's backward pass
        return flatten(self.encoder.tail(grid))[0]

    def encode(self, pixels: Tensor) -> Tensor:
        """Annotations (B, L, D) of pixels (B, S, S, 3)."""
        return flatten(self.encoder.tail(self.encoder.trunk(pixels)))[0]
