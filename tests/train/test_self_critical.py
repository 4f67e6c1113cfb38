"""Self-critical training: the estimate is the gradient of the expected reward, and the reward rises."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from captioner.errors import CaptionerError
from captioner.metrics.meteor.resources import is_installed, load_resources
from captioner.model.caption_decoder import CaptionDecoder
from captioner.model.decoder import Decoder
from captioner.model.encoder import Encoder
from captioner.model.settings import ModelSettings
from captioner.model.transformer import TransformerDecoder
from captioner.text.vocabulary import Vocabulary
from captioner.train.corpus import Corpus, padded_arrays
from captioner.train.loaded_run import load_last
from captioner.train.loss_settings import SelfCriticalSettings
from captioner.train.self_critical import (
    SampledCaptions,
    SelfCritical,
    advantages,
    longest_first,
    loss,
    sample_captions,
)
from captioner.train.start import start
from captioner.workarounds.half_precision import works_on_cpu
from tests.train import tiny_run

VOCABULARY = Vocabulary(("<pad>", "<start>", "<end>", "<unk>", "red", "dot"))
END, RED, DOT = 2, 4, 5
PLACES = 2


def tiny(mode: str = "soft", scale: float = 3) -> Decoder:
    """A decoder in double precision. The larger the scale, the less uniform its probabilities."""
    torch.manual_seed(0)
    settings = {
        "attention": {"mode": mode, "size": 4},
        "annotation_size": None,
        "embedding_size": 5,
        "hidden_size": 6,
        "dropout": 0.0,
    }
    decoder = Decoder(ModelSettings.model_validate(settings), 3, len(VOCABULARY)).eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.mul_(scale)
    return decoder.double()


def image() -> Tensor:
    return torch.randn(1, PLACES, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


Path_ = tuple[tuple[int, ...], tuple[int, ...]]  # words of a caption, and the cell of each step


def outcomes(longest: int, hard: bool) -> list[Path_]:
    """Every caption of up to `longest` words; with hard attention, with every sequence of cells."""
    paths: list[Path_] = []
    for length in range(longest + 1):
        for words in itertools.product((RED, DOT), repeat=length):
            steps = min(length + 1, longest)  # after the last word the end is certain, and nothing is sampled
            for cells in itertools.product(range(PLACES), repeat=steps) if hard else [()]:
                paths.append((words, cells))
    return paths


def chance(decoder: Decoder, words: tuple[int, ...], cells: tuple[int, ...], longest: int, heat: float) -> Tensor:
    """p(y, s | a) by its definition, one step of the decoder at a time."""
    shared, own = decoder.begin(image())
    p, last = torch.ones((), dtype=torch.float64), VOCABULARY.start
    for t, word in enumerate((*words, END)[:longest]):
        hard: dict[str, Any] = {}
        if cells:
            mark = torch.full((1, 1, PLACES), -1e9, dtype=torch.float64)
            mark[0, 0, cells[t]] = 1e9  # noise that decides the sample
            hard = {"noise": mark, "sampled": torch.ones(1, 1, dtype=torch.bool)}
        logits, own, attention = decoder.step(shared, own, torch.tensor([[last]]), **hard)
        allowed = torch.softmax(logits[0, 0, [END, RED, DOT]] / heat, -1)
        p = p * allowed[[END, RED, DOT].index(word)]
        if cells:
            p = p * attention.alpha[0, 0, cells[t]]
        last = word
    return p


@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize("heat", [1.0, 0.6])
def test_the_estimate_is_the_gradient_of_the_expected_reward(mode: str, heat: float) -> None:
    """All captions (and cells) are enumerated: the sum of p * estimate is the derivative of the sum of p * reward."""
    longest, hard = 2, mode == "hard"
    decoder, every = tiny(mode), outcomes(2, mode == "hard")
    p = torch.stack([chance(decoder, words, cells, longest, heat) for words, cells in every])
    assert float(p.detach().sum()) == pytest.approx(1)
    reward = torch.tensor([1.7 * words.count(RED) - words.count(DOT) + 0.3 for words, _ in every], dtype=torch.float64)
    exact = torch.autograd.grad((p * reward).sum(), list(decoder.parameters()), allow_unused=True)

    inputs, targets, lengths = (torch.from_numpy(x) for x in padded_arrays([[words for words, _ in every]], VOCABULARY))
    cell_options: dict[str, Any] = {}
    if hard:
        table = torch.zeros(1, len(every), inputs.shape[-1], dtype=torch.int64)
        for k, (_, cells) in enumerate(every):
            table[0, k, : len(cells)] = torch.tensor(cells)
        cell_options = {"cells": table, "sampled": torch.ones(1, len(every), dtype=torch.bool)}
    forced = decoder(image(), inputs, targets, lengths, **cell_options)
    weights = reward * p.detach() * len(every)  # the loss is a mean over captions
    estimate = loss(forced, weights, VOCABULARY, max_length=longest, temperature=heat)
    estimated = torch.autograd.grad(estimate, list(decoder.parameters()), allow_unused=True)
    compared = 0
    for mine, theirs in zip(estimated, exact, strict=True):
        if theirs is not None and mine is not None:
            torch.testing.assert_close(-mine, theirs, atol=1e-10, rtol=1e-6)
            compared += int(theirs.abs().max() > 1e-6)
    assert compared > 8


@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize(("images", "captions"), [(1, 6000), (3000, 2)])
def test_captions_are_sampled_with_their_probability(mode: str, images: int, captions: int) -> None:
    """And the cells with them, in a batch that images leave when their captions have ended too."""
    decoder, hard, heat, longest = tiny(mode, 1.5), mode == "hard", 0.8, 2
    count = images * captions
    sampled = torch.ones(images, captions, dtype=torch.bool) if hard else None
    generator = torch.Generator().manual_seed(1)
    how: dict[str, Any] = {"captions": captions, "max_length": longest, "temperature": heat}
    samples, sampled_cells = sample_captions(
        decoder, image().expand(images, -1, -1), VOCABULARY, sampled=sampled, generator=generator, **how
    )
    assert (sampled_cells is not None) == hard
    words = [tuple(caption) for of_image in samples for caption in of_image]
    cells = [()] * count if sampled_cells is None else sampled_cells.flatten(0, 1).tolist()
    found = Counter((said, tuple(seen[: min(len(said) + 1, longest)])) for said, seen in zip(words, cells, strict=True))
    likely = {path: float(chance(decoder, *path, longest, heat).detach()) for path in outcomes(longest, hard)}
    assert sum(likely.values()) == pytest.approx(1)
    assert set(found) <= set(likely)
    for path, p in likely.items():
        assert abs(found[path] / count - p) < 4.5 * (p * (1 - p) / count) ** 0.5 + 1e-9
    assert len(set(words)) == 7


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_a_batch_whose_images_end_at_different_times_gets_the_captions_of_its_images_alone(kind: str) -> None:
    decoder: CaptionDecoder = tiny(scale=4)
    if kind == "transformer":
        plain = {"score": "scaled_dot", "gate": False, "heads": 2, "size": 6}
        settings = {"decoder": kind, "attention": plain, "embedding_size": 6, "hidden_size": 6, "annotation_size": None}
        torch.manual_seed(0)
        decoder = TransformerDecoder(ModelSettings.model_validate(settings), 3, len(VOCABULARY)).eval().double()
        with torch.no_grad():
            for parameter in decoder.parameters():
                parameter.mul_(3)
    annotations = torch.randn(40, PLACES, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    how: dict[str, Any] = {"captions": 1, "max_length": 6, "greedy": True}
    together, _ = sample_captions(decoder, annotations, VOCABULARY, **how)
    assert len({len(of_image[0]) for of_image in together}) > 2
    for own, caption in zip(annotations, together, strict=True):
        assert sample_captions(decoder, own.unsqueeze(0), VOCABULARY, **how)[0] == [caption]


def test_greedy_takes_the_likeliest_word_at_each_step() -> None:
    decoder = tiny()
    words = sample_captions(decoder, image(), VOCABULARY, captions=1, max_length=3, greedy=True)[0][0][0]
    shared, own = decoder.begin(image())
    last, expected = VOCABULARY.start, []
    for _ in range(3):
        logits, own, _ = decoder.step(shared, own, torch.tensor([[last]]))
        last = max((END, RED, DOT), key=lambda word: float(logits[0, 0, word].detach()))
        if last == END:
            break
        expected.append(last)
    assert words == expected


def test_leave_one_out_advantages_sum_to_zero_for_every_image() -> None:
    rewards = np.random.default_rng(0).random((6, 5))
    leave_one_out = advantages(rewards, None)
    assert np.allclose(leave_one_out.sum(1), 0)
    assert leave_one_out[2, 3] == pytest.approx(rewards[2, 3] - np.delete(rewards[2], 3).mean())


def test_greedy_advantages_are_the_gain_over_the_greedy_caption() -> None:
    rewards, greedy = np.array([[1.0, 3.0], [0.0, 5.0]]), np.array([[2.0], [4.0]])
    assert advantages(rewards, greedy).tolist() == [[-1, 1], [-4, 1]]


COLORS = ("red", "green", "blue", "white")
WORDS = Vocabulary(("<pad>", "<start>", "<end>", "<unk>", "a", "dot", "on", "sheet", *COLORS))


def toy() -> tuple[Corpus, Tensor]:
    """Four images, each with two captions that name its color."""
    sentences = [[WORDS.encode(f"a {c} dot"), WORDS.encode(f"a {c} dot on a sheet")] for c in COLORS]
    flat = [words for pair in sentences for words in pair]
    start = np.cumsum([0, *map(len, flat)])
    corpus = Corpus(np.concatenate(flat).astype(np.int32), start, np.arange(0, 9, 2))
    return corpus, torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize("baseline", ["leave_one_out", "greedy"])
def test_the_reward_rises(mode: str, baseline: str) -> None:
    torch.manual_seed(0)
    settings = {
        "attention": {"mode": mode, "size": 8},
        "annotation_size": None,
        "embedding_size": 16,
        "hidden_size": 32,
    }
    decoder = Decoder(ModelSettings.model_validate(settings), 6, len(WORDS)).eval()
    corpus, annotations = toy()
    scst = SelfCriticalSettings.model_validate({"start_epoch": 0, "samples": 8, "baseline": baseline, "max_length": 6})
    critic = SelfCritical(scst, decoder, WORDS, corpus)
    optimizer = torch.optim.Adam(decoder.parameters(), lr=0.03)
    generator = torch.Generator().manual_seed(0)
    images, rewards = np.arange(4), []
    for _ in range(90):
        sampled = torch.rand(4, 8, generator=generator) < 0.5 if mode == "hard" else None
        samples = critic.sample(annotations, images, sampled, generator)
        rewards.append(samples.mean_reward)
        batch = [torch.from_numpy(x) for x in padded_arrays(samples.words, WORDS)]
        forced = decoder(annotations, *batch, sampled=samples.sampled, cells=samples.cells)
        critic.loss(forced, samples, cells_weight=0.2).backward()
        optimizer.step()
        optimizer.zero_grad()
    early, late = np.mean(rewards[:3]), np.mean(rewards[-10:])  # it learns within ten steps
    assert late > 3 * early
    assert late > 1.0
    greedy, _ = sample_captions(decoder, annotations, WORDS, captions=1, max_length=6, greedy=True)
    hits = [color in WORDS.decode(words[0]).split() for color, words in zip(COLORS, greedy, strict=True)]
    assert sum(hits) >= 3


def test_sorting_by_length_keeps_captions_cells_and_advantages_together() -> None:
    """The loss does not depend on the order of the captions."""
    decoder, words = tiny("hard", 1.5), [[[RED], [DOT, RED], []]]
    cells = torch.tensor([[[0, 1, 0], [1, 1, 0], [1, 0, 0]]])
    sampled, weights = torch.tensor([[True, False, True]]), torch.tensor([[0.5, -2.0, 3.0]], dtype=torch.float64)
    unsorted = SampledCaptions(words, cells, sampled, weights, 0.0)
    first = longest_first(unsorted)
    assert first.words == [[[DOT, RED], [RED], []]]
    losses = []
    for samples in (unsorted, first):
        batch = [torch.from_numpy(x) for x in padded_arrays(samples.words, VOCABULARY)]
        forced = decoder(image(), *batch, sampled=samples.sampled, cells=samples.cells)
        losses.append(float(loss(forced, samples.advantages.flatten(), VOCABULARY, max_length=2).detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_rewards_compare_with_the_captions_of_the_same_image() -> None:
    corpus, _ = toy()
    scst = SelfCriticalSettings(start_epoch=0)
    critic = SelfCritical(scst, tiny(), WORDS, corpus)
    red, blue = WORDS.encode("a red dot"), WORDS.encode("a blue dot")
    rewards = critic._rewards([[red, blue], [red, blue]], np.array([0, 2]))
    assert rewards[0, 0] == pytest.approx(rewards[1, 1])
    assert rewards[0, 1] == pytest.approx(rewards[1, 0])
    assert rewards[0, 0] > 2 * rewards[0, 1]


def test_equal_captions_of_an_image_are_scored_once() -> None:
    corpus, _ = toy()
    critic = SelfCritical(SelfCriticalSettings(start_epoch=0), tiny(), WORDS, corpus)
    red, blue = WORDS.encode("a red dot"), WORDS.encode("a blue dot")
    expected = critic._rewards([[red], [blue], [blue]], np.array([0, 0, 2])).ravel()
    scored: list[int] = []
    ((weight, cider),) = critic.scores

    def score(captions: Sequence[Sequence[int]], images: Sequence[int]) -> NDArray[np.float64]:
        scored.append(len(captions))
        return cider(captions, images)

    critic.scores = [(weight, score)]
    rewards = critic._rewards([[red, blue, red], [blue, blue, blue]], np.array([0, 2]))
    assert scored == [3]
    assert rewards.tolist() == [[expected[0], expected[1], expected[0]], [expected[2]] * 3]


@pytest.mark.skipif(not is_installed(), reason="METEOR's files are not installed")
def test_the_reward_is_the_weighted_sum_of_scores() -> None:
    corpus, _ = toy()
    words, images = [[WORDS.encode("a red dot on a sheet"), WORDS.encode("a red")]], np.array([0])

    def rewards(**weights: float) -> Any:
        scst = SelfCriticalSettings.model_validate({"start_epoch": 0, "reward": weights})
        return SelfCritical(scst, tiny(), WORDS, corpus)._rewards(words, images)

    alone = [rewards(cider=1), rewards(cider=0, bleu=1), rewards(cider=0, meteor=1)]
    assert all(rewards[0, 0] > rewards[0, 1] > 0 for rewards in alone)
    mixed = rewards(cider=0.5, bleu=2, meteor=3)
    np.testing.assert_allclose(mixed, 0.5 * alone[0] + 2 * alone[1] + 3 * alone[2])
    np.testing.assert_allclose(rewards(), alone[0])


def test_the_tail_runs_once_per_step_and_is_trained(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampling and the pass with gradients use the same annotations, and gradients reach the tail."""
    from captioner.train.batch_loss import BatchLoss

    calls = [0]
    real, real_loss = Encoder.tail, BatchLoss._self_critical

    def spy(self: Encoder, grid: Tensor) -> Tensor:
        calls[-1] += 1
        return real(self, grid)

    def spy_loss(self: BatchLoss, *args: Any) -> Tensor:
        calls.append(0)
        value = real_loss(self, *args)
        calls.append(0)  # calls in validation are counted here
        return value

    monkeypatch.setattr(Encoder, "tail", spy)
    monkeypatch.setattr(BatchLoss, "_self_critical", spy_loss)
    scst = {"start_epoch": 0, "samples": 3, "learning_rate": 0.01, "max_length": 6}
    how = {"encoder__annotations": ["stage3"], "encoder__tail": "stage3"}
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes, training__scst=scst, training__epochs=1, **how)
    start(config, folder=tmp_path / "run", device="cpu")
    assert calls[1::2] == [1] * 4
    run = load_last(tmp_path / "run")
    before, after = Encoder(run.config.encoder).state_dict(), run.network.encoder.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in after if name.startswith("stages.stage3."))


def test_missing_files_of_meteor_are_an_error_before_the_first_epoch(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    load_resources.cache_clear()
    scst = {"start_epoch": 1, "reward": {"meteor": 1.0}}
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes, training__scst=scst, training__epochs=2)
    with pytest.raises(CaptionerError, match="METEOR needs the package pycocoevalcap"):
        start(config, folder=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("dropout", [False, True])
def test_the_stage_has_its_own_rate_and_dropout_only_if_configured(
    dropout: bool, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from captioner.train.batch_loss import BatchLoss

    modes: list[bool] = []
    sampling_modes: list[bool] = []
    real, real_sample = BatchLoss._forward, SelfCritical.sample

    def spy_sample(self: SelfCritical, *args: Any) -> SampledCaptions:
        sampling_modes.append(self.decoder.training)
        return real_sample(self, *args)

    def spy(self: BatchLoss, *args: Any, **how: Any) -> Any:
        modes.append(self.network.decoder.training)
        return real(self, *args, **how)

    monkeypatch.setattr(BatchLoss, "_forward", spy)
    monkeypatch.setattr(SelfCritical, "sample", spy_sample)
    scst = {"start_epoch": 1, "samples": 3, "learning_rate": 0.01, "max_length": 6, "dropout": dropout}
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes, training__scst=scst, training__epochs=2)
    start(config, folder=tmp_path / "run", device="cpu")
    rows = [row for row in tiny_run.read_metrics(tmp_path / "run") if "validation" not in row]
    assert "nll" in rows[0]
    assert "reward" not in rows[0]
    assert rows[1]["reward"] >= 0
    assert rows[1]["rate"] == pytest.approx(0.01 * 4 / 100)  # the fourth step of the stage's warm-up
    assert modes == [True] * 4 + [dropout] * 4
    assert sampling_modes == [False] * 4


def test_more_references_than_any_image_has_is_an_error(shapes: Path, tmp_path: Path) -> None:
    scst = {"start_epoch": 0, "samples": 2, "references": 9}
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes, training__scst=scst)
    with pytest.raises(CaptionerError, match=r"no training image has 9 captions \(training\.scst\.references\)"):
        start(config, folder=tmp_path / "run", device="cpu")


@pytest.mark.parametrize("decoder", ["lstm", "transformer"])
def test_sampling_and_teacher_forcing_have_equal_probabilities_in_bfloat16(decoder: str) -> None:
    """Sampling runs word by word, teacher forcing over whole captions: words must be equally likely in both."""
    torch.manual_seed(0)
    width = 64
    settings: dict[str, Any] = {"embedding_size": width, "hidden_size": width, "annotation_size": width}
    if decoder == "transformer":
        plain = {"score": "scaled_dot", "gate": False, "heads": 4, "size": width}
        settings |= {"decoder": decoder, "attention": plain, "layers": 2}
    network = {"lstm": Decoder, "transformer": TransformerDecoder}[decoder](
        ModelSettings.model_validate(settings), 8, len(VOCABULARY), (2, 2)
    ).eval()
    sentences = [[[RED, DOT] * 8]]
    inputs, targets, lengths = (torch.from_numpy(x) for x in padded_arrays(sentences, VOCABULARY))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        annotations = torch.randn(1, 4, 8)
        read = network(annotations, inputs, targets, lengths).logits.float().log_softmax(-1)
        shared, own = network.begin(annotations)
        if decoder == "transformer":
            assert own["time"].dtype == torch.float32  # bfloat16 lacks some whole numbers above 256
        for t, word in enumerate(inputs[0, 0]):
            logits, own, _ = network.step(shared, own, word.view(1, 1))
            torch.testing.assert_close(logits[0, 0].float().log_softmax(-1), read[t], atol=0.02, rtol=0.02)


@pytest.mark.skipif(not works_on_cpu("bfloat16"), reason="bfloat16 ends in an illegal instruction on this processor")
def test_the_stage_runs_in_bfloat16_and_can_leave_depthwise_convolutions_frozen(shapes: Path, tmp_path: Path) -> None:
    scst = {"start_epoch": 0, "samples": 3, "learning_rate": 0.01, "max_length": 6, "dropout": True}
    how = {"encoder__annotations": ["stage3"], "encoder__tail": "stage3", "training__tune": {"depthwise": False}}
    config = tiny_run.write_config(
        tmp_path / "config.yaml", shapes, training__scst=scst, training__epochs=1, training__precision="bfloat16", **how
    )
    start(config, folder=tmp_path / "run", device="cpu")
    run = load_last(tmp_path / "run")
    before = Encoder(run.config.encoder).state_dict()
    after = run.network.encoder.state_dict()
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    weights = {name for name in after if name.startswith("stages.stage3.") and name.endswith((".weight", ".bias"))}
    assert moved == {name for name in weights if not name.endswith("depthwise.0.weight")}

    with pytest.raises(CaptionerError, match=r"the optimizer of the checkpoint trained other weights"):
        start(None, ["training.tune.depthwise=true", "training.epochs=2"], resume=tmp_path / "run", device="cpu")
