"""The training loop that `captioner train` is compared with: the same model, written as tutorials write it.

It reads and encodes the image again for each caption in every epoch, in eager torch. Each caption is one row with its
own copy of the image's annotations. The output layer runs over padded positions too.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.images.reading import load_for_model
from captioner.model import loss as objective
from captioner.model.decoder import Decoder
from captioner.train.corpus import padded_arrays
from captioner.train.splits import read_split
from training_benchmark.sizes import Sizes
from training_benchmark.trainer_run import TrainerRun


class PlainLoop:
    def __init__(self, run: TrainerRun, sizes: Sizes) -> None:
        setup = run.trainer.setup
        assert isinstance(setup.network.decoder, Decoder)
        self.corpus, self.vocabulary, self.sizes = setup.corpus, setup.vocabulary, sizes
        self.encoder = setup.network.encoder
        self.paths = [item.path for item in read_split(run.trainer.config, "train").items]
        self.decoder = PlainDecoder(setup.network.decoder, setup.network.encoder.size)
        self.optimizer = torch.optim.AdamW(self.decoder.parameters(), lr=5e-4)
        generator = torch.Generator().manual_seed(0)
        self.order = torch.randperm(len(self.corpus.caption_starts) - 1, generator=generator).tolist()
        self.position = 0

    def batch(self, captions: list[int]) -> tuple[Tensor, Tensor]:
        """Annotations of each caption's image (N, L, D), and padded words with start and end (N, T)."""
        owners = np.searchsorted(self.corpus.image_starts, captions, side="right") - 1
        annotations = []
        with torch.no_grad():
            for start in range(0, len(captions), 32):
                paths = [self.paths[i] for i in owners[start : start + 32]]
                pixels = np.stack([load_for_model(path, self.sizes.picture_size)[1] for path in paths])
                annotations.append(self.encoder(torch.from_numpy(pixels))[0])
        v = self.vocabulary
        rows = [[v.start, *self.corpus.caption(c).tolist(), v.end] for c in captions]
        longest = max(map(len, rows))
        return torch.cat(annotations), torch.tensor([row + [v.pad] * (longest - len(row)) for row in rows])

    def loss(self, captions: list[int]) -> Tensor:
        annotations, words = self.batch(captions)
        logits = self.decoder(annotations, words[:, :-1])  # (N, T - 1, V), padded positions too
        targets = words[:, 1:].flatten()
        total = F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=self.vocabulary.pad, reduction="sum")
        return total / len(captions)

    def train(self, steps: int) -> float:
        """Train with as many captions per step as the trainer has, and return captions per second."""
        size = self.sizes.images_per_step * self.sizes.captions_per_image
        self.decoder.train()
        count, start = 0, time.perf_counter()
        for _ in range(steps):
            if self.position + size > len(self.order):
                self.position = 0
            captions = self.order[self.position : self.position + size]
            self.position += len(captions)
            self.loss(captions).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.decoder.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            count += len(captions)
        return count / (time.perf_counter() - start)

    def difference(self, run: TrainerRun) -> float:
        """The difference of this loss and the trainer's, for the first captions and the initial weights."""
        network = run.trainer.network.eval()
        indices = np.arange(min(6, len(self.corpus)))
        captions = [
            [int(self.corpus.image_starts[i]) + k for k in range(self.sizes.captions_per_image)] for i in indices
        ]
        sentences = [[self.corpus.caption(c) for c in row] for row in captions]
        batch = [torch.from_numpy(x) for x in padded_arrays(sentences, self.vocabulary)]
        self.decoder.eval()
        with torch.no_grad():
            forced = network.decoder(network.annotations(run.trainer.setup.train_grids(indices)), *batch)
            theirs = float(objective.loss(forced, sum(map(len, captions))).total)
            ours = float(self.loss([c for row in captions for c in row]))
        if abs(ours - theirs) > 0.01 * theirs:
            sys.exit(f"bench_train: the two loops compute different losses: {ours} and {theirs}")
        return abs(ours - theirs)


class PlainDecoder(nn.Module):
    """The soft-attention decoder without any optimization: one row per caption, one step per word."""

    def __init__(self, decoder: Decoder, width: int) -> None:
        super().__init__()
        s = decoder.settings
        assert s.annotation_size is not None and s.attention.size is not None
        m, n, d, a = s.embedding_size, s.hidden_size, s.annotation_size, s.attention.size
        words = decoder.embedding.num_embeddings
        self.dropout = s.dropout
        self.project, self.hidden, self.cell = nn.Linear(width, d), nn.Linear(d, n), nn.Linear(d, n)
        self.embedding, self.gate = nn.Embedding(words, m), nn.Linear(n, 1)
        self.key, self.query = nn.Linear(d, a), nn.Linear(n, a, bias=False)
        self.score = nn.Linear(a, 1, bias=False)
        self.lstm = nn.LSTMCell(m + d, n)
        self.from_hidden, self.from_context = nn.Linear(n, m), nn.Linear(d, m, bias=False)
        self.output = nn.Linear(m, words)
        self.output.weight = self.embedding.weight
        self._copy_weights(decoder, d)

    def forward(self, annotations: Tensor, words: Tensor) -> Tensor:
        a = F.relu(self.project(annotations))  # (N, L, d): once per caption, not once per image
        h, c = torch.tanh(self.hidden(a.mean(1))), torch.tanh(self.cell(a.mean(1)))
        keys = self.key(a)
        logits = []
        for t in range(words.shape[1]):
            alpha = torch.softmax(self.score(torch.tanh(keys + self.query(h).unsqueeze(1))).squeeze(-1), -1)
            z = torch.sigmoid(self.gate(h)) * (alpha.unsqueeze(-1) * a).sum(1)
            word = self.embedding(words[:, t])
            h, c = self.lstm(torch.cat([word, z], -1), (h, c))
            total = word + self.from_hidden(h) + self.from_context(z)
            logits.append(self.output(F.dropout(total, self.dropout, self.training)))
        return torch.stack(logits, 1)

    @torch.no_grad()
    def _copy_weights(self, decoder: Decoder, d: int) -> None:
        for ours, theirs in (
            (self.project, decoder.project),
            (self.hidden, decoder.start_hidden[0]),
            (self.cell, decoder.start_cell[0]),
            (self.gate, decoder.gate),
            (self.key, decoder.score.key),
            (self.query, decoder.score.query),
            (self.score, decoder.score.weight),
            (self.from_hidden, decoder.hidden_out),
            (self.from_context, decoder.context_out),
            (self.output, decoder.output),
            (self.embedding, decoder.embedding),
        ):
            ours.load_state_dict(theirs.state_dict())  # type: ignore[union-attr]
        joined = decoder.from_context.weight  # the context's columns, then those of the hidden state
        self.lstm.weight_ih.copy_(torch.cat([decoder.from_word.weight, joined[:, :d]], 1))
        self.lstm.weight_hh.copy_(joined[:, d:])
        self.lstm.bias_ih.copy_(decoder.from_word.bias)
        self.lstm.bias_hh.zero_()
