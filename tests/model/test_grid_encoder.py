"""The grid encoders against torch's own layers."""

from __future__ import annotations

from math import cos, sin
from typing import Any

import pytest
import torch
from torch import nn

from captioner.errors import CaptionerError
from captioner.model.grid_encoder import BidirectionalLSTM, PositionEncoding, SelfAttentionEncoder
from tests.model.tiny_models import noise, with_noise_weights


def test_positions_add_sines_and_cosines_of_row_and_column():
    found = PositionEncoding(4, (2, 3))(torch.zeros(1, 6, 4, dtype=torch.float64))[0]
    assert found[5].tolist() == pytest.approx([sin(1), cos(1), sin(2), cos(2)])  # row 1, column 2
    assert len({tuple(row) for row in found.tolist()}) == 6
    wide = PositionEncoding(12, (2, 3))(torch.zeros(1, 6, 12, dtype=torch.float64))[0, 5, 6:]  # column 2 in six numbers
    slow, slower = 2 / 10000 ** (1 / 3), 2 / 10000 ** (2 / 3)
    assert wide.tolist() == pytest.approx([sin(2), sin(slow), sin(slower), cos(2), cos(slow), cos(slower)], rel=1e-5)
    with pytest.raises(CaptionerError, match="5 annotations do not fit a grid of 2x3"):
        PositionEncoding(4, (2, 3))(torch.zeros(1, 5, 4))


def test_the_bidirectional_lstm_equals_two_lstm_cells_over_the_grid():
    """Each half is compared with an LSTM cell that reads the grid cell by cell."""
    grid_encoder = with_noise_weights(BidirectionalLSTM(6))
    annotations = noise(1, 5, 6)
    found = grid_encoder(annotations)[0]
    for suffix, order, half in (("", range(5), slice(0, 3)), ("_reverse", range(4, -1, -1), slice(3, 6))):
        cell = nn.LSTMCell(6, 3).double()
        with torch.no_grad():
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(cell, name).copy_(getattr(grid_encoder.lstm, f"{name}_l0{suffix}"))
        h = c = torch.zeros(1, 3, dtype=torch.float64)
        for i in order:
            h, c = cell(annotations[:, i], (h, c))
            torch.testing.assert_close(found[i, half], h[0])


def copy_attention(ours: Any, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.pair.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.pair.bias]))
        theirs.out_proj.load_state_dict(ours.mix.state_dict())


def test_self_attention_equals_torchs_encoder_layer_on_annotations_with_positions():
    grid_encoder = with_noise_weights(SelfAttentionEncoder(8, (2, 3), 1, 2, 0.1))
    theirs = nn.TransformerEncoderLayer(8, 2, 32, 0.0, batch_first=True, norm_first=True).double()
    block = grid_encoder.blocks[0]
    copy_attention(block.attend, theirs.self_attn)
    for ours, other in (("wide", "linear1"), ("narrow", "linear2")):
        getattr(theirs, other).load_state_dict(getattr(block.feed, ours).state_dict())
    theirs.norm1.load_state_dict(block.attend_norm.state_dict())
    theirs.norm2.load_state_dict(block.feed_norm.state_dict())
    annotations = noise(2, 6, 8)
    expected = grid_encoder.norm(theirs(grid_encoder.positions(annotations)))
    torch.testing.assert_close(grid_encoder(annotations), expected)
