"""The Transformer decoder (Vaswani et al. 2017), with the same begin, step and forward as the LSTM decoder.

    x_t   = E y_{t-1} + positions(t) sqrt(2 / n)      both terms have the same initial length
    layer:  x <- x + self-attention(norm x)           over the words so far
            x <- x + cross-attention(norm x)          to the annotations, with attention weights alpha_t per head
            x <- x + feed-forward(norm x)
    p(y_t) = softmax(L_o norm(x_t))

The attention map of a word is the mean over all heads of all layers. Training reads whole captions at once, under a
mask that hides later words. Decoding stores the keys and values of the words so far and reads one more word per step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.attention.output import AttentionOutput
from captioner.model.caption_decoder import CaptionDecoder, TeacherForced, Tensors, check_sizes
from captioner.model.fast_cpu import dropout
from captioner.model.grid_encoder import make_grid_encoder
from captioner.model.self_attention import FeedForward, MultiHeadAttention, encode_positions
from captioner.model.settings import ModelSettings


class DecoderBlock(nn.Module):
    """One layer, over words (B, K, T, n). The annotations are given as keys and values (B, L, 2n)."""

    def __init__(self, size: int, heads: int, source_size: int, dropout: float) -> None:
        super().__init__()
        self.words, self.words_norm = MultiHeadAttention(size, heads), nn.LayerNorm(size)
        self.picture, self.picture_norm = MultiHeadAttention(size, heads, source_size), nn.LayerNorm(size)
        self.feed, self.feed_norm = FeedForward(size, dropout), nn.LayerNorm(size)
        self.dropout = dropout

    def forward(
        self, x: Tensor, annotations: Tensor, past: Tensor | None = None, *, causal: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The new x, the mean map of the heads (B, K, T, L), and keys and values of all words (B, K, S, 2n).

        `past` holds keys and values of earlier words. `causal` hides later words from earlier ones.
        """
        normed = self.words_norm(x)
        words = self.words.pair(normed)
        words = words if past is None else torch.cat([past, words], 2)
        y = self.words(normed.flatten(0, 1), words.flatten(0, 1), causal=causal)
        x = x + self._dropout(y.reshape(x.shape))
        y, alpha = self.picture.with_map(self.picture_norm(x).flatten(1, 2), annotations)  # (B, K * T, n)
        x = x + self._dropout(y.reshape(x.shape))
        x = x + self._dropout(self.feed(self.feed_norm(x)))
        return x, alpha.mean(1).reshape(*x.shape[:3], -1), words

    def _dropout(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)


class TransformerDecoder(CaptionDecoder):
    """Self-attention over the words, cross-attention to the annotations."""

    growing = ("past",)

    def __init__(
        self,
        settings: ModelSettings,
        annotation_size: int,
        vocabulary_size: int,
        grid: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(settings, annotation_size)
        s, n = settings, settings.hidden_size
        size = s.annotation_size or annotation_size
        self.project = nn.Linear(annotation_size, size) if s.annotation_size else None
        self.grid_encoder = make_grid_encoder(s, size, grid)
        self.embedding = nn.Embedding(vocabulary_size, n)  # E
        self.blocks = nn.ModuleList(DecoderBlock(n, s.attention.heads, size, s.dropout) for _ in range(s.layers))
        self.norm = nn.LayerNorm(n)
        self.output = nn.Linear(n, vocabulary_size)  # L_o
        if s.tied:
            self.output.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=n**-0.5)
        nn.init.zeros_(self.output.bias)

    def begin(self, annotations: Tensor) -> tuple[Tensors, Tensors]:
        """Keys and values of the annotations for every layer; time 0 and no words."""
        a = self.annotate(annotations)
        pairs = torch.cat([block.picture.pair(a) for block in self.blocks], -1)  # type: ignore[operator, union-attr]
        zero = torch.zeros_like(a[:, :1, :1])  # (B, 1, 1)
        time = zero.to(self.embedding.weight.dtype)  # half precision would change the position encoding
        width = self.settings.layers * 2 * self.settings.hidden_size
        past = zero.unsqueeze(-1).expand(-1, -1, -1, width)[:, :, :0]  # (B, 1, 0, layers * 2n)
        return {"pairs": pairs}, {"time": time, "past": past}

    def step(
        self,
        shared: Tensors,
        own: Tensors,
        words: Tensor,
        *,
        noise: Tensor | None = None,
        sampled: Tensor | None = None,
    ) -> tuple[Tensor, Tensors, AttentionOutput]:
        x = (self.embed(words) + self._position(own["time"].squeeze(-1))).unsqueeze(2)  # (B, K, 1, n)
        x, alpha, past = self._layers(shared, x, past=own["past"])
        alpha = alpha[:, :, 0]
        attention = AttentionOutput(alpha, gate=torch.ones_like(alpha[..., 0]))
        return self.logits(x[:, :, 0]), {"time": own["time"] + 1, "past": past}, attention

    def forward(
        self,
        annotations: Tensor,  # (B, L, D)
        inputs: Tensor,  # (B, K, C): start token and words
        targets: Tensor,  # (B, K, C): words and end token
        lengths: Tensor,  # (B, K): number of targets per caption
        *,
        sampled: Tensor | None = None,
        generator: torch.Generator | None = None,
        cells: Tensor | None = None,
        own_words: float = 0.0,
    ) -> TeacherForced:
        """All words of all captions at once. Padding comes after the words, which never attend to it."""
        check_sizes(annotations, inputs, targets, lengths, sampled, cells)
        if own_words:
            raise CaptionerError(
                "a Transformer reads whole captions at once, so scheduled sampling does not work with it; "
                "set training.scheduled_sampling.increase=0"
            )
        steps = int(lengths.max())
        shared, _ = self.begin(annotations)
        times = torch.arange(steps, device=inputs.device)
        x = self.embed(inputs[..., :steps]) + self._position(times.to(self.embedding.weight.dtype))
        x, alpha, _ = self._layers(shared, x, causal=True)
        real = times < lengths.unsqueeze(-1)  # (B, K, C)
        row = torch.arange(lengths.numel(), device=inputs.device).view(*lengths.shape, 1).expand_as(real)
        return TeacherForced(
            logits=self.logits(x[real]),
            targets=targets[..., :steps][real],
            row=row[real],
            time=times.expand_as(real)[real],
            alpha=alpha[real],
        )

    def logits(self, x: Tensor) -> Tensor:
        """L_o norm(x_t), (..., V)."""
        return self.output(dropout(self.norm(x), self.settings.dropout, self.training))  # type: ignore[no-any-return]

    def _position(self, time: Tensor) -> Tensor:
        """The encoding of a word's position, scaled to the initial length of a word's embedding."""
        n = self.settings.hidden_size
        return encode_positions(time, n) * math.sqrt(2 / n)

    def _layers(
        self, shared: Tensors, x: Tensor, past: Tensor | None = None, *, causal: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Words (B, K, T, n) through all layers, the mean map (B, K, T, L), and keys and values of all layers."""
        count = len(self.blocks)
        pasts = [None] * count if past is None else past.chunk(count, -1)
        maps, words = [], []
        for block, pairs, earlier in zip(self.blocks, shared["pairs"].chunk(count, -1), pasts, strict=True):
            x, alpha, now = block(x, pairs, earlier, causal=causal)
            maps.append(alpha)
            words.append(now)
        return x, torch.stack(maps).mean(0), torch.cat(words, -1)
