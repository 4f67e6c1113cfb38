"""Encoder and decoder as one module, and its weights on disk."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.decoder import CaptionDecoder, Decoder
from captioner.model.encoder import Encoder, flatten
from captioner.model.settings import EncoderSettings, ModelSettings
from captioner.model.transformer import TransformerDecoder


class Network(nn.Module):
    """Show, Attend and Tell: pixels or cached grids in, annotations for the decoder out."""

    def __init__(
        self, encoder: EncoderSettings, model: ModelSettings, vocabulary_size: int, *, load: bool = True
    ) -> None:
        """`load=False` leaves the encoder's weights random, for a caller who loads all weights right after."""
        super().__init__()
        self.encoder = Encoder(encoder, load=load)
        kind = {"lstm": Decoder, "transformer": TransformerDecoder}[model.decoder]
        self.decoder: CaptionDecoder = kind(model, self.encoder.size, vocabulary_size, self.encoder.grid())

    def annotations(self, grid: Tensor) -> Tensor:
        """Annotations (B, L, D) of what the feature cache holds."""
        grid = grid.contiguous(memory_format=torch.channels_last)  # nearly halves the time of the tail's backward pass
        return flatten(self.encoder.tail(grid))[0]

    def encode(self, pixels: Tensor) -> Tensor:
        """Annotations (B, L, D) of pixels (B, S, S, 3)."""
        return flatten(self.encoder.tail(self.encoder.trunk(pixels)))[0]


def load_weights(network: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """All tensors of a saved network, or an error that says which don't fit."""
    own = network.state_dict()
    inside, outside = "decoder.embedding.weight", "decoder.output.weight"
    problems = []
    if outside not in state and inside in state:  # tied, and stored once
        state = {**state, outside: state[inside]}
    tied = own[inside].data_ptr() == own[outside].data_ptr()
    if tied and inside in state and not torch.equal(state[inside], state[outside]):  # one would overwrite the other
        problems.append(f"{outside} differs from {inside}, which a model with model.tied=true can't hold")
    problems += [f"{k} is missing" for k in own if k not in state]
    problems += [f"{k} is not part of this model" for k in state if k not in own]
    problems += [
        f"{k} is {tuple(state[k].shape)}, needed {tuple(v.shape)}"
        for k, v in own.items()
        if k in state and state[k].shape != v.shape
    ]
    if problems:
        more = f" … and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise CaptionerError(f"{source} does not fit the model: {'; '.join(problems[:5])}{more}")
    network.load_state_dict({k: v.to(torch.float32) if v.is_floating_point() else v for k, v in state.items()})
