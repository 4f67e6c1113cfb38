"""The sampled gradient of hard attention against the exact one, by enumeration of all sequences of cells.

L_s = sum_s p(s | a) log p(y | s, a) has 27 terms for three cells and three words. Its exact gradient is
compared with the average over many samples; what is allowed is the statistical error of that average.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captioner.model.decoder import Decoder
from captioner.model.loss import loss
from tests.model.tiny_models import make_annotations, make_captions, make_decoder, of_row

L = T = 3
CHUNKS, SAMPLES = 120, 200  # averages within chunks; the spread between chunks gives the error


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    sizes: dict[str, Any] = {"annotation_size": None, "embedding_size": 3, "hidden_size": 4}
    return make_decoder(words=7, seed=11, annotation_width=3, attention={"mode": "hard", "size": 3}, **sizes)


@pytest.fixture(scope="module", name="annotations")
def some_annotations() -> Tensor:
    return 2 * make_annotations(1, L, 3, seed=5)


def words(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same caption `count` times."""
    inputs, targets, lengths = make_captions([[T]], words=7)
    return inputs.expand(1, count, T), targets.expand(1, count, T), lengths.expand(1, count)


def gradient(module: nn.Module, value: Tensor) -> Tensor:
    """The gradient with respect to all parameters, as one vector."""
    parameters = list(module.parameters())
    found = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([each.flatten() for each in found])


@dataclass(frozen=True)
class Exact:
    gradient: Tensor
    word: float  # E log p(y | s) / T, the limit of the moving average
    probabilities: Tensor  # (27,)


@pytest.fixture(scope="module")
def exact(decoder, annotations) -> Exact:
    sequences = torch.tensor(list(product(range(L), repeat=T)))  # (27, T)
    sampled = torch.ones(1, len(sequences), dtype=torch.bool)
    forced = decoder(annotations, *words(len(sequences)), sampled=sampled, cells=sequences.unsqueeze(0))
    log_p = torch.log_softmax(forced.logits, -1).gather(1, forced.targets.unsqueeze(1)).squeeze(1)
    log_s = forced.alpha.gather(1, forced.cell.unsqueeze(1)).squeeze(1).log()
    of_words = torch.stack([of_row(forced, row, log_p).sum() for row in range(len(sequences))])
    of_cells = torch.stack([of_row(forced, row, log_s).sum() for row in range(len(sequences))])
    p = of_cells.exp()
    bound = (p * of_words).sum()
    return Exact(gradient(decoder, bound), float(bound.detach()) / T, p.detach())


def estimates(decoder: Decoder, annotations: Tensor, *, seed: int = 0, **how: Any) -> Tensor:
    """Gradients of the sampled objective, (CHUNKS, parameters), with the sign of the bound."""
    generator = torch.Generator().manual_seed(seed)
    sampled = torch.ones(1, SAMPLES, dtype=torch.bool)
    found = []
    for _ in range(CHUNKS):
        forced = decoder(annotations, *words(SAMPLES), sampled=sampled, generator=generator)
        found.append(-gradient(decoder, loss(forced, SAMPLES, **how).total))
    return torch.stack(found)


def deviations(sampled: Tensor, truth: Tensor) -> Tensor:
    """Errors of the average in standard errors, for parameters with a gradient."""
    error = sampled.std(0) / len(sampled) ** 0.5
    moving = error > 1e-9
    torch.testing.assert_close(sampled.mean(0)[~moving], truth[~moving], atol=1e-8, rtol=1e-6)
    return ((sampled.mean(0) - truth)[moving] / error[moving]).abs()


@pytest.fixture(scope="module")
def plain(decoder, annotations) -> Tensor:
    return estimates(decoder, annotations, baseline=0.0)


@pytest.fixture(scope="module")
def with_baseline(decoder, annotations, exact) -> Tensor:
    return estimates(decoder, annotations, baseline=exact.word)


def test_the_probabilities_of_all_sequences_sum_to_one_and_none_dominates(exact):
    assert float(exact.probabilities.sum()) == pytest.approx(1)
    assert len(exact.probabilities) == 27
    assert exact.probabilities.max() < 0.6  # otherwise sampling would hardly matter


def test_the_average_gradient_without_baseline_is_the_exact_one(plain, exact):
    off = deviations(plain, exact.gradient)
    assert off.max() < 4.5
    assert off.square().mean() < 2  # 1 is expected


def test_the_average_gradient_with_baseline_is_the_exact_one(with_baseline, exact):
    off = deviations(with_baseline, exact.gradient)
    assert off.max() < 4.5
    assert off.square().mean() < 2


def test_the_baseline_lowers_the_variance(plain, with_baseline):
    assert with_baseline.var(0).sum() < 0.7 * plain.var(0).sum()


def test_the_average_gradient_with_other_samples_as_baseline_is_the_exact_one(decoder, annotations, exact, plain):
    leave_one_out = estimates(decoder, annotations, samples=4)
    off = deviations(leave_one_out, exact.gradient)
    assert off.max() < 4.5
    assert off.square().mean() < 2
    assert leave_one_out.var(0).sum() < 0.7 * plain.var(0).sum()


def test_the_comparison_detects_a_wrong_weight_of_the_score_function(decoder, annotations, exact):
    """With half of the term the comparison fails clearly."""
    off = deviations(estimates(decoder, annotations, reward=0.5, baseline=exact.word), exact.gradient)
    assert off.max() > 10


def test_without_the_score_function_attention_gets_no_gradient(decoder, annotations, exact):
    """No gradient passes through the sampling of cells."""
    names = [name for name, p in decoder.named_parameters() for _ in range(p.numel())]
    of_score = torch.tensor([name.startswith("score.") for name in names])
    sampled = torch.ones(1, SAMPLES, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    forced = decoder(annotations, *words(SAMPLES), sampled=sampled, generator=generator)
    assert not gradient(decoder, loss(forced, SAMPLES, reward=0.0).total)[of_score].any()
    assert exact.gradient[of_score].abs().max() > 0.1


def test_sequences_of_cells_are_sampled_with_their_probabilities(decoder, annotations, exact):
    count = 20_000
    sampled = torch.ones(1, count, dtype=torch.bool)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        forced = decoder(annotations, *words(count), sampled=sampled, generator=generator)
    assert forced.cell is not None
    numbers = sum(forced.cell[forced.time == t] * L ** (T - 1 - t) for t in range(T))
    shares = torch.bincount(numbers, minlength=L**T) / count
    error = (exact.probabilities * (1 - exact.probabilities) / count).sqrt()
    assert ((shares - exact.probabilities).abs() < 4.5 * error + 1e-4).all()


def test_captions_with_the_expectation_have_the_soft_gradient(decoder, annotations):
    generator = torch.Generator().manual_seed(0)
    mixed = decoder(annotations, *words(2), sampled=torch.zeros(1, 2, dtype=torch.bool), generator=generator)
    soft = decoder(annotations, *words(2))
    how: dict[str, Any] = {"reward": 1.0, "entropy": 0.3, "baseline": -1.0}
    found, expected = (gradient(decoder, loss(forced, 2, **how).total) for forced in (mixed, soft))
    torch.testing.assert_close(found, expected)


def test_sampled_and_expected_captions_do_not_influence_each_other(decoder, annotations):
    """Each caption of a mixed batch has the same results as alone."""
    sampled = torch.tensor([[True, False, True]])
    cells = torch.tensor([[[0, 2, 1], [0, 0, 0], [2, 2, 2]]])
    together = decoder(annotations, *words(3), sampled=sampled, cells=cells)
    for row in range(3):
        alone = decoder(annotations, *words(1), sampled=sampled[:, row : row + 1], cells=cells[:, row : row + 1])
        torch.testing.assert_close(of_row(together, row, together.logits), of_row(alone, 0, alone.logits))
    assert together.sampled is not None
    assert of_row(together, 1, together.sampled).tolist() == [False] * T
