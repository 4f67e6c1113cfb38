"""The Transformer decoder (Vaswani et al. 2017), behind the same begin, step and forward as the LSTM's.

    x_t   = E y_{t-1} + waves(t) sqrt(2 / n), which are as long as each other at first
    layer:  x <- x + self-attention(norm x) over the words so far
            x <- x + cross-attention(norm x) to the annotations, with the maps alpha_t of its heads
            x <- x + feed-forward(norm x)
    p(y_t) = softmax(L_o norm(x_t))

A word's map is the mean over all heads of all layers. Training reads whole captions at once, under a mask that
hides later words; decoding keeps the keys and values of the words so far and reads one word more.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.attention.core import Glance
from captioner.model.decoder import CaptionDecoder, Reading, Tensors, check_sizes
from captioner.model.grid_encoder import make_context
from captioner.model.self_attention import Attend, FeedForward, waves
from captioner.model.settings import ModelSettings
from captioner.model.step_linear import dropout


class DecoderBlock(nn.Module):
    """One layer, over words (B, K, T, n) of captions whose images' annotations are keys and values (B, L, 2n)."""

    def __init__(self, size: int, heads: int, source_size: int, dropout: float) -> None:
        super().__init__()
        self.words, self.words_norm = Attend(size, heads), nn.LayerNorm(size)
        self.picture, self.picture_norm = Attend(size, heads, source_size), nn.LayerNorm(size)
        self.feed, self.feed_norm = FeedForward(size, dropout), nn.LayerNorm(size)
        self.dropout = dropout

    def forward(
        self, x: Tensor, pairs: Tensor, past: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The words after the layer, the heads' mean map (B, K, T, L), and the words' keys and values (B, K, S, 2n)."""
        normed = self.words_norm(x)
        now = self.words.pair(normed)
        seen = now if past is None else torch.cat([past, now], 2)
        said, _ = self.words(normed.flatten(0, 1), seen.flatten(0, 1), mask)
        x = x + self._drop(said.reshape(x.shape))
        looked, alpha = self.picture(self.picture_norm(x).flatten(1, 2), pairs)  # (B, K * T, n)
        x = x + self._drop(looked.reshape(x.shape))
        x = x + self._drop(self.feed(self.feed_norm(x)))
        return x, alpha.mean(1).reshape(*x.shape[:3], -1), seen

    def _drop(self, x: Tensor) -> Tensor:
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
        self.context = make_context(s, size, grid)
        self.embedding = nn.Embedding(vocabulary_size, n)  # E
        self.blocks = nn.ModuleList(DecoderBlock(n, s.attention.heads, size, s.dropout) for _ in range(s.layers))
        self.norm = nn.LayerNorm(n)
        self.output = nn.Linear(n, vocabulary_size)  # L_o
        if s.tied:
            self.output.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=n**-0.5)
        nn.init.zeros_(self.output.bias)

    def begin(self, annotations: Tensor) -> tuple[Tensors, Tensors]:
        """The annotations' keys and values for every layer; no word yet, at time 0."""
        a = self.annotate(annotations)
        pairs = torch.cat([block.picture.pair(a) for block in self.blocks], -1)  # type: ignore[operator, union-attr]
        zero = torch.zeros_like(a[:, :1, :1])  # (B, 1, 1)
        time = zero.to(self.embedding.weight.dtype)  # not in half precision, whose waves would be others
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
        chosen: Tensor | None = None,
    ) -> tuple[Tensor, Tensors, Glance]:
        x = (self.enter(words) + self._at(own["time"].squeeze(-1))).unsqueeze(2)  # (B, K, 1, n)
        hidden, alpha, past = self._read(shared, x, past=own["past"])
        alpha = alpha.squeeze(2)
        glance = Glance(alpha, torch.ones_like(alpha[..., 0]))
        return self.words(hidden.squeeze(2)), {"time": own["time"] + 1, "past": past}, glance

    def forward(
        self,
        annotations: Tensor,  # (B, L, D)
        inputs: Tensor,  # (B, K, C): start token and words
        targets: Tensor,  # (B, K, C): words and end token
        lengths: Tensor,  # (B, K): real targets of each caption
        *,
        chosen: Tensor | None = None,
        generator: torch.Generator | None = None,
        places: Tensor | None = None,
        own_words: float = 0.0,
    ) -> Reading:
        """All words of all captions at once; padding comes after the real words, which never see it."""
        check_sizes(annotations, inputs, targets, lengths, chosen, places)
        if own_words:
            raise CaptionerError("a Transformer reads whole captions at once and can't be fed its own last words")
        steps = int(lengths.max())
        shared, _ = self.begin(annotations)
        times = torch.arange(steps, device=inputs.device)
        x = self.enter(inputs[..., :steps]) + self._at(times.to(self.embedding.weight.dtype))
        later = torch.full((steps, steps), -torch.inf, dtype=x.dtype, device=x.device).triu(1)
        hidden, alpha, _ = self._read(shared, x, mask=later)
        real = times < lengths.unsqueeze(-1)  # (B, K, C)
        row = torch.arange(lengths.numel(), device=inputs.device).view(*lengths.shape, 1).expand_as(real)
        return Reading(
            *(self.words(hidden[real]), targets[..., :steps][real], row[real], times.expand_as(real)[real]),
            *(alpha[real], None, None),
        )

    def words(self, hidden: Tensor) -> Tensor:
        """Logits (..., V)."""
        return self.output(dropout(self.norm(hidden), self.settings.dropout, self.training))  # type: ignore[no-any-return]

    def _at(self, time: Tensor) -> Tensor:
        """The wave of a time, as long as a word's embedding is."""
        n = self.settings.hidden_size
        return waves(time, n) * math.sqrt(2 / n)

    def _read(
        self, shared: Tensors, x: Tensor, past: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Words (B, K, T, n) through all layers, the mean map (B, K, T, L), and all layers' keys and values."""
        count = len(self.blocks)
        pasts = [None] * count if past is None else past.chunk(count, -1)
        maps, seen = [], []
        for block, pairs, before in zip(self.blocks, shared["pairs"].chunk(count, -1), pasts, strict=True):
            x, alpha, now = block(x, pairs, before, mask)
            maps.append(alpha)
            seen.append(now)
        return x, torch.stack(maps).mean(0), torch.cat(seen, -1)
