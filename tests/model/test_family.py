"""Every choice of the family with every other: built, trained for a few steps, exported, decoded by both backends.

All combinations would be thousands. The models below hold every *pair* of choices that any allowed model can hold.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from captioner import overlay
from captioner.bundle.layout import WEIGHTS
from captioner.bundle.loading import Bundle
from captioner.bundle.manifest import EncoderRecord, Manifest
from captioner.bundle.writing import write_bundle
from captioner.captioning import Captioner
from captioner.export.onnx_graphs import export_graphs
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.search import SearchOptions, search
from captioner.inference.torch_backend import load_backend
from captioner.model import loss as objective
from captioner.model.network import Network
from captioner.model.settings import EncoderSettings, ModelSettings
from captioner.options import HardAttention
from tests.model.tiny_models import EXAMPLES, SHALLOW, VOCABULARY, make_captions, noise_pixels, randomize

CHOICES: dict[str, tuple[Any, ...]] = {
    "attention.score": ("additive", "dot", "scaled_dot", "general", "cosine", "gaussian", "gaussian, learned"),
    "attention.normalizer": ("softmax", "entmax15", "sparsemax"),
    "attention.heads": (1, 2),
    "attention.location": ("none", "ntm", "coverage", "both"),
    "attention.mode": ("soft", "hard", "gumbel"),
    "attention.attend": ("before", "after", "both"),
    "attention.sentinel": (False, True),
    "attention.gate": (True, False),
    "attention.last_word": (False, True),
    "pool": ("mean", "attention"),
    "grid_encoder": ("none", "positions", "lstm", "self_attention"),
    "decoder": ("lstm", "transformer"),
    "layers": (1, 2),
}
Row = tuple[Any, ...]  # one choice of each


def settings(row: Row) -> dict[str, Any]:
    raw: dict[str, Any] = {"annotation_size": 8, "embedding_size": 8, "hidden_size": 8}
    raw |= {"dropout": 0.0, "attention": {"size": 8}}
    for name, choice in zip(CHOICES, row, strict=True):
        if name.startswith("attention."):
            raw["attention"][name.removeprefix("attention.")] = choice
        else:
            raw[name] = choice
    if raw["attention"]["score"] == "gaussian, learned":
        raw["attention"] |= {"score": "gaussian", "learn_width": True}
    return raw


def allowed(row: Row) -> bool:
    try:
        ModelSettings.model_validate(settings(row))
    except ValidationError:
        return False
    return True


def pairs(row: Row) -> set[tuple[int, Any, int, Any]]:
    return {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(row)), 2)}


def base(**changes: Any) -> Row:
    """The paper's decoder with some other choices, by the last part of their names."""
    return tuple(changes.get(name.rpartition(".")[2], choices[0]) for name, choices in CHOICES.items())


PAPER = base()
TRANSFORMER = base(decoder="transformer", score="scaled_dot", gate=False)


def sample(rng: random.Random, tries: int, wanted: dict[int, Any] | None = None) -> list[Row]:
    """The allowed rows among random ones with the wanted choices, by their positions.

    Half of them are near the Transformer, which allows few others.
    """
    rows = []
    for n in range(tries):
        free = [
            rng.choice(choices) if n % 2 or rng.random() < 0.3 else near
            for near, choices in zip(TRANSFORMER, CHOICES.values(), strict=True)
        ]
        row = tuple((wanted or {}).get(i, choice) for i, choice in enumerate(free))
        rows += [row] if allowed(row) else []
    return rows


def cover() -> list[Row]:
    """A greedy selection of few allowed rows that together contain all allowed pairs."""
    rng = random.Random(0)
    pool = sample(rng, 5000)
    known = set().union(*map(pairs, pool))
    for (i, a), (j, b) in itertools.combinations(enumerate(CHOICES.values()), 2):
        for one, other in itertools.product(a, b):
            if (i, one, j, other) not in known:  # rare, or refused
                pool += (rows := sample(rng, 100, {i: one, j: other}))
                known.update(*map(pairs, rows))
    rows = []
    while known:
        rows.append(max(pool, key=lambda row: len(pairs(row) & known)))
        known -= pairs(rows[-1])
    return rows


ROWS = cover()


def told(row: Row) -> str:
    other = [f"{k.rpartition('.')[2]}={c}" for k, c, d in zip(CHOICES, row, PAPER, strict=True) if c != d]
    return " ".join(other) or "the paper's"


def test_every_pair_of_choices_is_tested_or_refused_with_both_settings_named():
    tried = set().union(*map(pairs, ROWS))
    for (i, a), (j, b) in itertools.combinations(enumerate(CHOICES.values()), 2):
        for one, other in itertools.product(a, b):
            if (i, one, j, other) in tried:
                continue
            row = list(TRANSFORMER if "transformer" in (one, other) else PAPER)
            row[i], row[j] = one, other
            with pytest.raises(ValidationError, match=r"model\.\S+ clashes with model\.\S+: .*; set ") as refused:
                ModelSettings.model_validate(settings(tuple(row)))
            for name in (list(CHOICES)[i], list(CHOICES)[j]):
                assert f"model.{name}=" in str(refused.value)


@pytest.fixture(scope="module")
def encoded() -> tuple[torch.Tensor, np.ndarray]:
    """Annotations to train on, and their pixels."""
    pixels = noise_pixels(3, 32)
    return make(PAPER).encode(pixels).detach(), pixels.numpy()


def make(row: Row) -> Network:
    torch.manual_seed(1)
    encoder = EncoderSettings(name="efficientnet_lite0", weights="none", **SHALLOW)
    network = Network(encoder, ModelSettings.model_validate(settings(row)), len(VOCABULARY))
    randomize(network.encoder)
    return network


def train(network: Network, annotations: torch.Tensor) -> list[float]:
    """Train for a few steps on a few captions; returns the loss before each step."""
    decoder = network.decoder.train()
    captions = make_captions([[6, 3], [5, 4], [4, 2]], len(VOCABULARY))
    optimizer = torch.optim.Adam(decoder.parameters(), 0.02)
    sampled = torch.tensor([[True, False]] * 3) if decoder.hard else None
    losses = []
    for step in range(4):
        forced = decoder(annotations, *captions, sampled=sampled, generator=torch.Generator().manual_seed(step))
        found = objective.loss(forced, 6, doubly_stochastic=0.1, baseline=-2.0, reward=0.1)
        optimizer.zero_grad()
        found.total.backward()
        still = [k for k, p in decoder.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
        if decoder.settings.attention.normalizer != "softmax":  # may give the sentinel no weight for any word
            still = [k for k in still if not k.startswith("sentinel.")]
        assert not still, "weights that nothing depends on"
        optimizer.step()
        losses.append(float(found.nll))
    return losses


def bundled(network: Network, folder: Path) -> Bundle:
    export_graphs(network, folder)
    encoder = network.encoder
    record = EncoderRecord(
        encoder.settings.name, encoder.settings.size, *encoder.grid(), encoder.size, (127.0,) * 3, (128.0,) * 3
    )
    parts = {"encoder": encoder.settings, "model": network.decoder.settings}
    manifest = Manifest(
        name="tiny",
        attention="hard" if network.decoder.hard else "soft",
        encoder=record,
        training_data="nothing",
        licence="CC0-1.0",
        settings={name: part.model_dump(mode="json") for name, part in parts.items()},
    )
    files = {name: folder / name for name in ("encoder.onnx", "begin.onnx", "decoder.onnx", WEIGHTS)}
    return write_bundle(folder / "tiny", files, manifest, VOCABULARY)


@pytest.mark.parametrize("row", ROWS, ids=told)
def test_a_model_learns_and_both_backends_decode_its_export_alike(row, encoded, tmp_path):
    annotations, pixels = encoded
    network = make(row)
    losses = train(network, annotations)
    assert losses[-1] < losses[0]
    made = bundled(network, tmp_path)
    light, heavy = OnnxBackend(made, threads=1), load_backend(made, "cpu")
    kinds: tuple[HardAttention, ...] = ("expected", "sampled") if network.decoder.hard else ("expected",)
    for hard_attention in kinds:
        how = SearchOptions(beam=3, max_length=7, hard_attention=hard_attention)
        ours, theirs = (search(backend, backend.encode(pixels), how) for backend in (light, heavy))
        for (a, *_), (b, *_) in zip(ours, theirs, strict=True):
            assert a.words == b.words
            assert a.alphas == pytest.approx(b.alphas, abs=1e-4)
            assert a.gates == pytest.approx(b.gates, abs=1e-4)
            assert a.alphas.sum(1) == pytest.approx(1.0, abs=1e-4)
            if hard_attention == "sampled":
                assert a.cells is not None and b.cells is not None and a.cells.tolist() == b.cells.tolist()


def test_the_maps_of_a_transformer_can_be_drawn(tmp_path):
    row = next(row for row in ROWS if "transformer" in row)
    made = bundled(make(row), tmp_path)
    caption = Captioner.load(made.folder)(EXAMPLES / "cat.jpg", min_length=3)
    assert len(caption.words) >= 3 and caption.words[0].alpha.shape == (4, 4)
    assert overlay.sheet(caption).width > 100
