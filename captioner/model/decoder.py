"""The LSTM decoder of Show, Attend and Tell (Xu et al. 2015, section 3.1.2).

    h_0, c_0 = f_h(mean a), f_c(mean a)
    z_t      = beta_t * context(alpha_t, a),  beta_t = sigmoid(f_beta(h_{t-1}))
    h_t, c_t = LSTM([E y_{t-1}; z_t], h_{t-1}, c_{t-1})
    p(y_t)   = softmax(L_o (E y_{t-1} + L_h h_t + L_z z_t))

Everything has the axes (B, K, ...): B images with K captions (training) or hypotheses (search) each,
which share the image's annotations and keys. Score, heads, location, draw, place, gate, sentinel, pool and context
are parts that the settings choose (captioner/model/mechanisms); above are the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.attention import core as attention
from captioner.model.attention.cell_sampling import make_draw
from captioner.model.attention.core import Glance
from captioner.model.attention.gate import Gate, NoGate
from captioner.model.attention.heads import ManyHeads, OneHead
from captioner.model.attention.location import make_location
from captioner.model.attention.pool import AttentionPool, MeanPool
from captioner.model.attention.scores import make_score
from captioner.model.attention.sentinel import NoSentinel, Sentinel
from captioner.model.attention.timing import PLACES
from captioner.model.grid_encoder import NoContext, make_context
from captioner.model.settings import ModelSettings
from captioner.model.step_linear import StepLinear, draw, dropout, over_steps

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Reading:
    """A teacher-forced pass over captions: everything the objective needs, real words only.

    N is the number of real words (the end token included) of all captions; `row` says which of the B * K
    captions a word belongs to, `time` which of its words it is.
    """

    logits: Tensor  # (N, V)
    targets: Tensor  # (N,)
    row: Tensor  # (N,)
    time: Tensor  # (N,)
    alpha: Tensor  # (N, L)
    place: Tensor | None  # (N,)
    chosen: Tensor | None  # (N,) bool


class CaptionDecoder(nn.Module):
    """Annotations (B, L, D) and words in, log-probabilities of the next word and where it looked out.

    What training, search and export need of a decoder; the LSTM's is below, the Transformer's beside this file.
    """

    growing: tuple[str, ...] = ()  # parts of the state whose third axis is one longer after every word
    hard = False  # whether a word may look at one place, which `chosen` then says
    project: nn.Linear | None
    context: NoContext
    embedding: nn.Embedding  # E
    output: nn.Linear  # L_o

    def __init__(self, settings: ModelSettings, annotation_size: int) -> None:
        super().__init__()
        self.settings = settings
        self.annotation_size = annotation_size

    def begin(self, annotations: Tensor) -> tuple[Tensors, Tensors]:
        """The state before the first word: what an image's hypotheses share, and the one hypothesis."""
        raise NotImplementedError

    def step(
        self,
        shared: Tensors,
        own: Tensors,
        words: Tensor,
        *,
        noise: Tensor | None = None,
        chosen: Tensor | None = None,
    ) -> tuple[Tensor, Tensors, Glance]:
        """Feed the last words (B, K): logits of the next (B, K, V), the state after, where it looked."""
        raise NotImplementedError

    def annotate(self, annotations: Tensor) -> Tensor:
        """The encoder's annotations as the decoder sees them, (B, L, D)."""
        if annotations.shape[-1] != self.annotation_size:
            raise CaptionerError(
                f"annotations of width {annotations.shape[-1]} don't fit a decoder built for {self.annotation_size}"
            )
        if self.project is not None:
            annotations = F.relu(self.project(annotations))
            annotations = dropout(annotations, self.settings.annotation_dropout, self.training)
        return self.context(annotations)  # type: ignore[no-any-return]

    def enter(self, words: Tensor) -> Tensor:
        """E y, with dropout in training."""
        return dropout(self.embedding(words), self.settings.embedding_dropout, self.training)


class Decoder(CaptionDecoder):
    """The LSTM decoder."""

    def __init__(
        self,
        settings: ModelSettings,
        annotation_size: int,
        vocabulary_size: int,
        grid: tuple[int, int] | None = None,  # rows and columns, for the parts that know where a place is
    ) -> None:
        super().__init__(settings, annotation_size)
        s = settings
        self.hard = s.attention.mode != "soft"
        size = s.annotation_size or annotation_size  # D as the decoder sees it
        m, n = s.embedding_size, s.hidden_size
        self.project = nn.Linear(annotation_size, size) if s.annotation_size else None
        self.context = make_context(s, size, grid)
        self.pool = AttentionPool(size) if s.pool == "attention" else MeanPool()
        self.start_hidden = nn.ModuleList(nn.Linear(size, n) for _ in range(s.layers))  # f_h
        self.start_cell = nn.ModuleList(nn.Linear(size, n) for _ in range(s.layers))  # f_c
        self.embedding = nn.Embedding(vocabulary_size, m)  # E
        self.score = make_score(s.attention, size, n)
        self.heads = ManyHeads(s.attention.heads, size) if s.attention.heads > 1 else OneHead()
        self.location = make_location(s.attention, n, grid)
        self.draw = make_draw(s.attention)
        self.gate = Gate(n) if s.attention.gate else NoGate()
        self.sentinel = Sentinel(n, size, s.attention.temperature) if s.attention.sentinel else NoSentinel()
        self.place = PLACES[s.attention.place]
        # The first layer's gates, in three parts: the words' part is computed for a whole caption at once.
        self.from_word = StepLinear(m, 4 * n)
        self.from_context = StepLinear(self.place.contexts * size + n, 4 * n, bias=False)  # [z_t; h_{t-1}]
        self.upper = nn.ModuleList(StepLinear(2 * n, 4 * n) for _ in range(s.layers - 1))  # [h below; h_{t-1}]
        self.hidden_out = nn.Linear(n, m) if s.output_hidden else None  # L_h
        self.context_out = nn.Linear(size, m, bias=False) if s.output_context else None  # L_z
        self.output = nn.Linear(m, vocabulary_size)  # L_o
        if s.tied:
            self.output.weight = self.embedding.weight
        self.reset()

    def reset(self) -> None:
        """First weights: small embeddings, orthogonal recurrence, forget gates open."""
        n = self.settings.hidden_size
        nn.init.normal_(self.embedding.weight, std=self.settings.embedding_size**-0.5)
        nn.init.zeros_(self.output.bias)
        with torch.no_grad():
            for layer in (self.from_context, *self.upper):
                for gate in torch.split(layer.weight[:, -n:], n):  # what h_{t-1} is multiplied with
                    nn.init.orthogonal_(gate)
            for layer in (self.from_word, *self.upper):
                layer.bias[n : 2 * n] = 1.0

    # --- decoding: one word at a time -------------------------------------------------------------

    def begin(self, annotations: Tensor) -> tuple[Tensors, Tensors]:
        """The state before the first word: what an image's hypotheses share, and the one hypothesis."""
        a = self.annotate(annotations)
        mean = self.pool(a)  # (B, 1, D): one hypothesis
        own = {}
        for i, (hidden, cell) in enumerate(zip(self.start_hidden, self.start_cell, strict=True)):
            own[f"h{i}"] = torch.tanh(hidden(mean))
            own[f"c{i}"] = torch.tanh(cell(mean))
        shared = {"annotations": self.heads.values(a), "keys": self.score.keys(a)}
        return shared, {**own, **self.location.begin(a)}

    def step(
        self,
        shared: Tensors,
        own: Tensors,
        words: Tensor,
        *,
        noise: Tensor | None = None,
        chosen: Tensor | None = None,
    ) -> tuple[Tensor, Tensors, Glance]:
        """Feed the last words (B, K): logits of the next (B, K, V), the state after, where it looked."""
        word = self.enter(words)  # (B, K, m)
        own, hidden, z, glance = self.advance(shared, own, self.from_word(word), chosen=chosen, noise=noise)
        return self.words(word, hidden, z), own, glance

    def advance(
        self,
        shared: Tensors,
        own: Tensors,
        word: Tensor,
        *,
        chosen: Tensor | None = None,
        noise: Tensor | None = None,
        place: Tensor | None = None,
    ) -> tuple[Tensors, Tensor, Tensor, Glance]:
        """One step of attention and LSTM; `word` is the embedded words' part of the gates, (B, K, 4n).

        Returns the state after, h_t of the top layer, z_t and where it looked.
        """
        look = partial(self.look, shared, chosen=chosen, noise=noise, place=place)
        contexts, own, looked = self.place.before(look, own)
        own, hidden = self.move(own, word, contexts)
        z, own, glance = self.place.after(look, own, looked)
        return own, hidden, z, glance

    def look(
        self, shared: Tensors, own: Tensors, *, chosen: Tensor | None, noise: Tensor | None, place: Tensor | None
    ) -> tuple[Tensor, Tensors, Glance]:
        """Attention from the top layer's state: z_t, the state with what is remembered, where it looked."""
        query, memory = (own[f"{name}{len(self.upper)}"] for name in "hc")
        scores = self.score(shared["keys"], query) / self.settings.attention.temperature  # (B, K, L)
        alpha, scores, kept = self.location(scores, query, own)
        weights, place = self.draw(alpha, chosen, noise, place)
        z = self.heads(weights, shared["annotations"])  # (B, K, D)
        beta = self.gate(query)  # (B, K, 1)
        z, gate = self.sentinel(beta * z, beta.squeeze(-1), query, memory, scores, self.score)
        return z, {**own, **kept}, Glance(self.heads.map(alpha), gate, place, chosen)

    def move(self, own: Tensors, word: Tensor, contexts: list[Tensor]) -> tuple[Tensors, Tensor]:
        """One step of the LSTM's layers: the state after and what the top layer says."""
        h, c = own["h0"], own["c0"]
        gates = word + self.from_context(torch.cat([*contexts, h], -1))
        h, c = _lstm(gates, c)
        after = {**own, "h0": h, "c0": c}
        for i, layer in enumerate(self.upper, 1):
            below = dropout(h, self.settings.dropout, self.training)
            gates = layer(torch.cat([below, own[f"h{i}"]], -1))
            after[f"h{i}"], after[f"c{i}"] = _lstm(gates, own[f"c{i}"])
            h = after[f"h{i}"] + below  # residual; the recurrence itself stays without it
        return after, h

    def words(self, word: Tensor, hidden: Tensor, z: Tensor) -> Tensor:
        """Deep output: logits (..., V) from E y_{t-1}, h_t and z_t."""
        parts = []
        if self.settings.output_word:
            parts.append(word)
        if self.hidden_out is not None:
            parts.append(self.hidden_out(hidden))
        if self.context_out is not None:
            parts.append(self.context_out(z))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return self.output(dropout(total, self.settings.dropout, self.training))  # type: ignore[no-any-return]

    # --- training: whole captions under teacher forcing -------------------------------------------

    def forward(
        self,
        annotations: Tensor,  # (B, L, D)
        inputs: Tensor,  # (B, K, C): start token and words
        targets: Tensor,  # (B, K, C): words and end token
        lengths: Tensor,  # (B, K): real targets of each caption; quickest with an image's longest caption first
        *,
        chosen: Tensor | None = None,  # (B, K) bool: rows that look at a sampled place (hard attention)
        generator: torch.Generator | None = None,  # of the samples
        places: Tensor | None = None,  # (B, K, C): look there in place of sampling
        own_words: float = 0.0,  # scheduled sampling: chance that a step is fed the model's own last word
    ) -> Reading:
        check_sizes(annotations, inputs, targets, lengths, chosen, places)
        shared, own = self.begin(annotations)
        images, captions = lengths.shape
        own = spread(own, captions)
        row = torch.arange(images * captions, device=inputs.device).view(images, captions)
        word = self.enter(inputs) if own_words == 0 else None
        parts: dict[str, list[Tensor]] = {}
        said: Tensor | None = None
        with over_steps(self):
            for t in range(int(lengths.max())):
                alive = lengths > t
                k = int(alive.any(0).nonzero().max()) + 1  # captions after the k-th have all ended
                live = alive[:, :k].flatten().nonzero().squeeze(1)
                own = {name: state[:, :k] for name, state in own.items()}
                if word is not None:
                    now = word[:, :k, t]
                else:
                    now = self.enter(self._feed(inputs[:, :k, t], said, own_words, generator))
                hard: dict[str, Tensor] = {}
                if chosen is not None:
                    hard["chosen"] = chosen[:, :k]
                    if places is not None:
                        hard["place"] = places[:, :k, t]
                    else:
                        hard["noise"] = attention.gumbel((images, k, annotations.shape[1]), generator, annotations)
                own, hidden, z, glance = self.advance(shared, own, self.from_word(now), **hard)
                if word is None:
                    with torch.no_grad():
                        said = self.words(now, hidden, z).softmax(-1)
                seen = {"word": now, "hidden": hidden, "z": z, "alpha": glance.alpha, "row": row[:, :k]}
                seen |= {"targets": targets[:, :k, t], "time": torch.full_like(row[:, :k], t)}
                if self.draw.rewarded and chosen is not None and glance.place is not None:
                    seen |= {"place": glance.place, "chosen": chosen[:, :k]}
                for name, value in seen.items():
                    rows = value.flatten(0, 1)
                    parts.setdefault(name, []).append(rows if len(live) == len(rows) else rows[live])
        real = {name: torch.cat(values) for name, values in parts.items()}
        logits = self.words(real["word"], real["hidden"], real["z"])
        return Reading(
            *(logits, real["targets"], real["row"], real["time"], real["alpha"]),
            *(real.get("place"), real.get("chosen")),
        )

    @staticmethod
    def _feed(true: Tensor, said: Tensor | None, chance: float, generator: torch.Generator | None) -> Tensor:
        """The true last words, some of them replaced by what the model would have said."""
        if said is None:
            return true
        said = said[:, : true.shape[1]]
        drawn = draw(said, generator)
        coin = torch.rand(true.shape, generator=generator, device=true.device) < chance
        return torch.where(coin, drawn, true)


def spread(own: Tensors, count: int) -> Tensors:
    """The state of one hypothesis as that of so many equal ones."""
    return {name: state.expand(-1, count, *state.shape[2:]) for name, state in own.items()}


def check_sizes(
    annotations: Tensor, inputs: Tensor, targets: Tensor, lengths: Tensor, chosen: Tensor | None, places: Tensor | None
) -> None:
    """Captions that don't fit each other or their images are an error that says both sizes."""
    rows = tuple(inputs.shape[:2])
    needed = {
        "targets": (targets.shape, tuple(inputs.shape)),
        "lengths": (lengths.shape, rows),
        "annotations": (annotations.shape[:1], rows[:1]),
        "chosen": (rows if chosen is None else chosen.shape, rows),
        "places": (rows if places is None else places.shape[:2], rows),
    }
    for name, (found, fitting) in needed.items():
        if tuple(found) != fitting:
            raise CaptionerError(
                f"{name} of size {tuple(found)} don't fit captions of size {tuple(inputs.shape)}: needed {fitting}"
            )
    columns = min(each.shape[2] for each in (inputs, places) if each is not None)
    if not 1 <= int(lengths.max()) <= columns:
        raise CaptionerError(f"captions of up to {int(lengths.max())} words don't fit {columns} steps")


def _lstm(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h_t, c_t from the four gates' sums (input, forget, candidate, output) and c_{t-1}."""
    i, f, g, o = gates.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c
