"""The LSTM decoder of Show, Attend and Tell (Xu et al. 2015, section 3.1.2).

    h_0, c_0 = f_h(mean a), f_c(mean a)
    z_t      = beta_t * sum_i alpha_ti a_i,  beta_t = sigmoid(f_beta(h_{t-1}))
    h_t, c_t = LSTM([E y_{t-1}; z_t], h_{t-1}, c_{t-1})
    p(y_t)   = softmax(L_o (E y_{t-1} + L_h h_t + L_z z_t))

These are the defaults. The settings choose other parts of attention (captioner/model/attention), another grid encoder,
and when attention runs.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn

from captioner.model.attention.cell_sampling import CellChoice, gumbel_noise, make_cell_sampling
from captioner.model.attention.gate import Gate, NoGate
from captioner.model.attention.heads import ManyHeads, OneHead
from captioner.model.attention.location import make_location
from captioner.model.attention.normalizers import NORMALIZERS
from captioner.model.attention.output import AttentionOutput, mean_attention
from captioner.model.attention.pool import AttentionPool, MeanPool
from captioner.model.attention.scores import make_score
from captioner.model.attention.sentinel import NoSentinel, Sentinel
from captioner.model.caption_decoder import (
    MOSTLY_LIVE,
    CaptionDecoder,
    TeacherForced,
    Tensors,
    check_sizes,
    expand_state,
)
from captioner.model.fast_cpu import dropout, sample_categorical
from captioner.model.grid_encoder import make_grid_encoder
from captioner.model.settings import ModelSettings
from captioner.model.step_linear import StepLinear, over_steps


class Decoder(CaptionDecoder):
    """The LSTM decoder. The order in which layers are created is the order of the optimizer's state in checkpoints."""

    def __init__(
        self,
        settings: ModelSettings,
        annotation_size: int,
        vocabulary_size: int,
        grid: tuple[int, int] | None = None,  # rows and columns, for parts that depend on positions
    ) -> None:
        super().__init__(settings, annotation_size)
        s = settings
        self.hard = s.attention.mode != "soft"
        self.temperature = s.attention.temperature
        size = s.annotation_size or annotation_size  # D, after the projection
        m, n = s.embedding_size, s.hidden_size
        self.project = nn.Linear(annotation_size, size) if s.annotation_size else None
        self.grid_encoder = make_grid_encoder(s, size, grid)
        self.pool = AttentionPool(size) if s.pool == "attention" else MeanPool()
        self.start_hidden = nn.ModuleList(nn.Linear(size, n) for _ in range(s.layers))  # f_h
        self.start_cell = nn.ModuleList(nn.Linear(size, n) for _ in range(s.layers))  # f_c
        self.embedding = nn.Embedding(vocabulary_size, m)  # E
        self.score = make_score(s.attention, size, n)
        self.heads = ManyHeads(s.attention.heads, size) if s.attention.heads > 1 else OneHead()
        self.location = make_location(s.attention, n, grid)
        self.cell_sampling = make_cell_sampling(s.attention)
        self.gate = Gate(n) if s.attention.gate else NoGate()
        self.sentinel = NoSentinel()
        if s.attention.sentinel:
            self.sentinel = Sentinel(n, size, s.attention.temperature, NORMALIZERS[s.attention.normalizer])
        self.word_query = StepLinear(m, n, bias=False) if s.attention.last_word else None
        # The gates of the first layer are a sum of two linear functions: of E y_{t-1}, and of [z_t; h_{t-1}].
        self.from_word = StepLinear(m, 4 * n)
        self.from_context = StepLinear(n if s.attention.attend == "after" else size + n, 4 * n, bias=False)
        self.upper = nn.ModuleList(StepLinear(2 * n, 4 * n) for _ in range(s.layers - 1))  # [h below; h_{t-1}]
        self.hidden_out = nn.Linear(n, m) if s.output_hidden else None  # L_h
        self.context_out = nn.Linear(size, m, bias=False) if s.output_context else None  # L_z
        self.output = nn.Linear(m, vocabulary_size)  # L_o
        if s.tied:
            self.output.weight = self.embedding.weight
        self.reset()

    def reset(self) -> None:
        """Initial weights: small embeddings, an orthogonal recurrence, open forget gates."""
        n = self.settings.hidden_size
        nn.init.normal_(self.embedding.weight, std=self.settings.embedding_size**-0.5)
        nn.init.zeros_(self.output.bias)
        with torch.no_grad():
            for layer in (self.from_context, *self.upper):
                for gate in torch.split(layer.weight[:, -n:], n):  # the columns for h_{t-1}
                    nn.init.orthogonal_(gate)
            for layer in (self.from_word, *self.upper):
                layer.bias[n : 2 * n] = 1.0

    def set_temperature(self, temperature: float) -> None:
        """Divide scores by this from now on, not by the temperature of the settings: training may anneal it."""
        self.temperature = temperature
        if isinstance(self.sentinel, Sentinel):
            self.sentinel.temperature = temperature

    # --- decoding: one word at a time -------------------------------------------------------------

    def begin(self, annotations: Tensor) -> tuple[Tensors, Tensors]:
        a = self.annotate(annotations)
        mean = self.pool(a)  # (B, 1, D): one hypothesis per image
        own = {}
        for i, (f_h, f_c) in enumerate(zip(self.start_hidden, self.start_cell, strict=True)):
            own[f"h{i}"] = torch.tanh(f_h(mean))
            own[f"c{i}"] = torch.tanh(f_c(mean))
        shared = {"annotations": self.heads.values(a), "keys": self.score.keys(a)}
        return shared, {**own, **self.location.begin(a)}

    def step(
        self,
        shared: Tensors,
        own: Tensors,
        words: Tensor,
        *,
        noise: Tensor | None = None,
        sampled: Tensor | None = None,
    ) -> tuple[Tensor, Tensors, AttentionOutput]:
        word = self.embed(words)  # E y_{t-1}, (B, K, m)
        own, h, z, attention = self.recurrence(shared, own, word, CellChoice(sampled, noise))
        return self.logits(word, h, z), own, attention

    def recurrence(
        self, shared: Tensors, own: Tensors, word: Tensor, choice: CellChoice
    ) -> tuple[Tensors, Tensor, Tensor, AttentionOutput]:
        """Attention and LSTM: the new state, h_t of the top layer, z_t, and the attention."""
        attend = self.settings.attention.attend
        if attend == "before":  # Xu et al. 2015
            z, own, attention = self.attention(shared, own, choice, word)  # z_t from h_{t-1}
            own, h = self.lstm(own, word, z)  # h_t from E y_{t-1}, z_t and h_{t-1}
        elif attend == "after":  # Luong et al. 2015; Lu et al. 2017
            own, h = self.lstm(own, word)  # h_t from E y_{t-1} and h_{t-1}
            z, own, attention = self.attention(shared, own, choice, word)  # z_t from h_t
        else:  # both: the first z_t enters the LSTM, the second one the output layer
            z, own, first = self.attention(shared, own, choice, word)
            own, h = self.lstm(own, word, z)
            z, own, second = self.attention(shared, own, choice, word)
            attention = mean_attention(first, second)
        return own, h, z, attention

    def attention(
        self, shared: Tensors, own: Tensors, choice: CellChoice, word: Tensor | None = None
    ) -> tuple[Tensor, Tensors, AttentionOutput]:
        """z_t from the state of the top layer, the state with what `location` remembers, and the attention."""
        h, c = own[f"h{len(self.upper)}"], own[f"c{len(self.upper)}"]
        if self.word_query is not None:
            h = h + self.word_query(word)  # the query: h_{t-1} has not read E y_{t-1}
        e = self.score(shared["keys"], h) / self.temperature  # (B, K, L) or (B, K, H, L)
        alpha, e, remembered = self.location(e, h, own)  # alpha = softmax(e), or another normalizer
        weights, cell = self.cell_sampling(alpha, choice)  # soft: alpha; hard: one-hot
        beta = self.gate(h)  # (B, K, 1)
        z = beta * self.heads(weights, shared["annotations"])  # (B, K, D)
        z, gate = self.sentinel(z, beta[..., 0], h, c, e, self.score)
        scores = e if e.dim() == 3 and "map" not in remembered else None
        return z, {**own, **remembered}, AttentionOutput(self.heads.map(alpha), gate, cell, choice.sampled, scores)

    def lstm(self, own: Tensors, word: Tensor, z: Tensor | None = None) -> tuple[Tensors, Tensor]:
        """One step of all layers: the new state, and the output of the top layer."""
        inputs = [own["h0"]] if z is None else [z, own["h0"]]
        gates = self.from_word(word) + self.from_context(torch.cat(inputs, -1))
        h, c = lstm_cell(gates, own["c0"])
        new = {**own, "h0": h, "c0": c}
        for i, layer in enumerate(self.upper, 1):
            below = dropout(h, self.settings.dropout, self.training)
            gates = layer(torch.cat([below, own[f"h{i}"]], -1))
            new[f"h{i}"], new[f"c{i}"] = lstm_cell(gates, own[f"c{i}"])
            h = new[f"h{i}"] + below  # a residual connection, which the recurrence does not have
        return new, h

    def logits(self, word: Tensor, h: Tensor, z: Tensor) -> Tensor:
        """Deep output: L_o (E y_{t-1} + L_h h_t + L_z z_t), (..., V)."""
        terms = []
        if self.settings.output_word:
            terms.append(word)
        if self.hidden_out is not None:
            terms.append(self.hidden_out(h))
        if self.context_out is not None:
            terms.append(self.context_out(z))
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return self.output(dropout(total, self.settings.dropout, self.training))  # type: ignore[no-any-return]

    # --- training: whole captions under teacher forcing -------------------------------------------

    def forward(
        self,
        annotations: Tensor,  # (B, L, D)
        inputs: Tensor,  # (B, K, C): start token and words
        targets: Tensor,  # (B, K, C): words and end token
        lengths: Tensor,  # (B, K): number of targets per caption; fastest with the longest caption of an image first
        *,
        sampled: Tensor | None = None,  # (B, K) bool: captions that attend to sampled cells (hard attention)
        generator: torch.Generator | None = None,  # for sampling
        cells: Tensor | None = None,  # (B, K, C): attend to these cells instead of sampling them
        own_words: float = 0.0,  # scheduled sampling: probability that the last word is one sampled from the model
    ) -> TeacherForced:
        check_sizes(annotations, inputs, targets, lengths, sampled, cells)
        row = torch.arange(lengths.numel(), device=inputs.device).view_as(lengths)
        order = lengths.amax(1).argsort(descending=True, stable=True)  # longest captions first
        inputs, targets, lengths, row = inputs[order], targets[order], lengths[order], row[order]
        sampled, cells = (None if each is None else each[order] for each in (sampled, cells))
        m, k = lengths.shape
        shared, own = self.begin(annotations.index_select(0, order))  # annotations[order] has a slower gradient
        own = expand_state(own, k)
        embedded = self.embed(inputs) if own_words == 0 else None
        predicted: Tensor | None = None  # p(y_{t-1}), for scheduled sampling
        steps: dict[str, list[Tensor]] = defaultdict(list)
        with over_steps(self):
            for t in range(int(lengths.max())):
                running = lengths > t
                live = int(running.any(1).sum())
                if live <= MOSTLY_LIVE * m:  # all images after these have ended
                    m = live
                    shared = {name: tensor[:m] for name, tensor in shared.items()}
                k = int(running.any(0).nonzero().max()) + 1  # all captions after the k-th have ended
                own = {name: state[:m, :k] for name, state in own.items()}
                if embedded is not None:
                    word = embedded[:m, :k, t]
                else:
                    word = self.embed(mix_words(inputs[:m, :k, t], predicted, own_words, generator))
                choice = CellChoice()
                if sampled is not None and cells is not None:
                    choice = CellChoice(sampled[:m, :k], cell=cells[:m, :k, t])
                elif sampled is not None:
                    noise = gumbel_noise((m, k, annotations.shape[1]), generator, annotations.device)
                    choice = CellChoice(sampled[:m, :k], noise)
                own, h, z, attention = self.recurrence(shared, own, word, choice)
                if embedded is None:
                    with torch.no_grad():
                        predicted = self.logits(word, h, z).softmax(-1)
                step = {"word": word, "h": h, "z": z, "alpha": attention.alpha, "targets": targets[:m, :k, t]}
                step |= {"row": row[:m, :k], "time": torch.full_like(row[:m, :k], t)}
                if attention.scores is not None:
                    step["scores"] = attention.scores
                if self.cell_sampling.learns_by_reward and sampled is not None and attention.cell is not None:
                    step |= {"cell": attention.cell, "sampled": sampled[:m, :k]}
                real = running[:m, :k].flatten().nonzero().squeeze(1)
                for name, tensor in step.items():
                    rows = tensor.flatten(0, 1)
                    steps[name].append(rows if len(real) == len(rows) else rows[real])
        words = {name: torch.cat(tensors) for name, tensors in steps.items()}
        return TeacherForced(self.logits(words.pop("word"), words.pop("h"), words.pop("z")), **words)


def lstm_cell(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h_t and c_t from the gates before their nonlinearities (input, forget, candidate, output) and c_{t-1}."""
    i, f, g, o = gates.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def mix_words(words: Tensor, predicted: Tensor | None, probability: float, generator: torch.Generator | None) -> Tensor:
    """The last words of the captions, some of them replaced by words sampled from the model's prediction."""
    if predicted is None:
        return words
    samples = sample_categorical(predicted[: len(words), : words.shape[1]], generator)
    replaced = torch.rand(words.shape, generator=generator, device=words.device) < probability
    return torch.where(replaced, samples, words)
