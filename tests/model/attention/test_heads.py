"""Several heads against torch's multi-head attention."""

from __future__ import annotations

import torch
from torch import nn

from captioner.model.attention.heads import ManyHeads
from captioner.model.attention.scores import HeadScores, make_score
from captioner.model.settings import AttentionSettings
from tests.model.tiny_models import noise, with_noise_weights


def test_several_heads_equal_torchs_multi_head_attention():
    """All widths are 8, as nn.MultiheadAttention needs."""
    settings = AttentionSettings(score="scaled_dot", heads=2, size=8)
    score, heads = with_noise_weights(make_score(settings, 8, 8)), with_noise_weights(ManyHeads(2, 8), seed=50)
    assert isinstance(score, HeadScores)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).double()
    with torch.no_grad():
        queries, keys = ([getattr(h, n).weight for h in score.heads] for n in ("query", "key"))
        theirs.in_proj_weight.copy_(torch.cat([*queries, *keys, heads.value.weight]))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.weight.copy_(heads.mix.weight)
        theirs.out_proj.bias.copy_(heads.mix.bias)
    annotations, hidden = noise(2, 5, 8, seed=1), noise(2, 3, 8, seed=2)
    alpha = torch.softmax(score(score.keys(annotations), hidden), -1)
    expected, weights = theirs(hidden, annotations, annotations)
    torch.testing.assert_close(heads(alpha, heads.values(annotations)), expected)
    torch.testing.assert_close(heads.map(alpha), weights)
