"""Attention: the score by hand, alpha as a distribution, samples as often as alpha says."""

from __future__ import annotations

from math import exp, log, tanh

import pytest
import torch

from captioner.model.attention.cell_sampling import gumbel_noise, select_cell
from captioner.model.attention.heads import OneHead
from captioner.model.attention.scores import AdditiveScore
from tests.model.tiny_models import make_annotations, make_decoder


def first_alpha(decoder, annotations, hidden=None):
    shared, own = decoder.begin(annotations)
    own = own if hidden is None else dict.fromkeys(own, hidden)
    return decoder.step(shared, own, torch.ones(own["h0"].shape[:2], dtype=torch.long))[2].alpha


def test_an_attention_step_by_hand():
    """Two places, D = 2, n = 1, A = 2, worked out with plain arithmetic."""
    score = AdditiveScore(2, 1, 2).double()
    with torch.no_grad():
        score.key.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0]]))  # W_a
        score.key.bias.copy_(torch.tensor([0.5, 0.25]))  # b
        score.query.weight.copy_(torch.tensor([[3.0], [-2.0]]))  # W_h
        score.weight.weight.copy_(torch.tensor([[2.0, -1.0]]))  # w
    annotations = torch.tensor([[[0.1, 0.2], [-0.3, 0.4]]], dtype=torch.float64)  # a_1, a_2
    hidden = torch.tensor([[[0.2]]], dtype=torch.float64)
    scores = score(score.keys(annotations), hidden)
    # W_a a_1 + b = (1 * 0.1 + 2 * 0.2 + 0.5, -1 * 0.2 + 0.25) = (1.0, 0.05); W_h h = (0.6, -0.4)
    e1 = 2 * tanh(1.0 + 0.6) - tanh(0.05 - 0.4)
    # W_a a_2 + b = (-0.3 + 0.8 + 0.5, -0.4 + 0.25) = (1.0, -0.15)
    e2 = 2 * tanh(1.0 + 0.6) - tanh(-0.15 - 0.4)
    assert scores[0, 0].tolist() == pytest.approx([e1, e2], abs=1e-12)
    alpha = torch.softmax(scores, -1)
    share = exp(e1) / (exp(e1) + exp(e2))
    z = OneHead()(alpha, annotations)[0, 0].tolist()
    assert z == pytest.approx([share * 0.1 - (1 - share) * 0.3, share * 0.2 + (1 - share) * 0.4], abs=1e-12)


def test_alpha_is_a_distribution_over_places():
    alpha = first_alpha(make_decoder(), make_annotations(3))
    assert alpha.shape == (3, 1, 9)
    assert (alpha > 0).all()
    torch.testing.assert_close(alpha.sum(-1), torch.ones(3, 1, dtype=torch.float64))
    assert alpha.std(-1).min() > 0.01  # or it would be flat, and nothing here could fail


def test_alpha_depends_on_the_hidden_state():
    """Mistake seen elsewhere: a score of the annotations alone, so that maps are the same for every word."""
    decoder, annotations = make_decoder(), make_annotations(2)
    hidden = torch.randn(2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    alpha = first_alpha(decoder, annotations, hidden)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert ((alpha[:, one] - alpha[:, other]).abs().amax(-1) > 0.01).all()


def test_alpha_depends_on_the_annotations_alone_of_its_own_image():
    decoder, annotations = make_decoder(), make_annotations(2)
    other = annotations.clone()
    other[1] = make_annotations(1, seed=9)[0]
    hidden = torch.ones(2, 1, 7, dtype=torch.float64)
    before, after = first_alpha(decoder, annotations, hidden), first_alpha(decoder, other, hidden)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


def test_places_move_with_the_annotations():
    decoder, annotations = make_decoder(), make_annotations(1)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(
        first_alpha(decoder, annotations[:, order]), first_alpha(decoder, annotations)[..., order]
    )


@pytest.mark.parametrize("temperature", [0.25, 4.0])
def test_the_temperature_divides_the_scores(temperature):
    annotations = make_annotations(2)
    plain = first_alpha(make_decoder(), annotations)
    found = first_alpha(make_decoder(attention={"temperature": temperature}), annotations)
    raised = plain ** (1 / temperature)  # softmax(e / T) is proportional to softmax(e)^(1/T)
    torch.testing.assert_close(found, raised / raised.sum(-1, keepdim=True))


def test_without_noise_the_likeliest_cell_is_selected():
    alpha = torch.tensor([[[0.2, 0.5, 0.3], [0.4, 0.35, 0.25]]])
    assert select_cell(alpha, None).tolist() == [[1, 0]]


def test_with_noise_cells_are_sampled_with_the_probabilities_alpha():
    alpha = torch.tensor([0.6, 0.25, 0.1, 0.05, 0.0])
    draws = 40_000
    noise = gumbel_noise((1, draws, 5), torch.Generator().manual_seed(0), alpha.device)
    counts = torch.bincount(select_cell(alpha.expand(1, draws, 5), noise).flatten(), minlength=5)
    for count, p in zip(counts.tolist(), alpha.tolist(), strict=True):
        assert abs(count - draws * p) < 4 * (draws * p * (1 - p)) ** 0.5 + 1e-9


def test_noise_is_finite_and_has_the_gumbel_distribution():
    """P(g < x) = exp(-exp(-x)); half precision would have too few numbers to draw a rare place."""
    noise = gumbel_noise((200, 500), torch.Generator().manual_seed(1), torch.device("cpu"))
    assert noise.isfinite().all()
    for x in (-1.0, 0.0, 2.0, 7.0):
        p = exp(-exp(-x))
        assert float((noise < x).float().mean()) == pytest.approx(p, abs=4 * (p * (1 - p) / 1e5) ** 0.5)
    assert float(noise.max()) > log(1e5) - 2
    assert noise.unique().numel() > 90_000


def test_the_same_seed_samples_the_same_cells():
    one, same, other = (gumbel_noise((4, 5), torch.Generator().manual_seed(s), torch.device("cpu")) for s in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
