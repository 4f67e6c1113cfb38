"""The terms of the loss by hand: reductions, padding, smoothing, reward, entropy, the doubly stochastic term."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Any

import pytest
import torch

from captioner.model.caption_decoder import TeacherForced
from captioner.model.loss import doubly_stochastic_term, loss, mean_of_others, rewards, words_left
from tests.model.tiny_models import make_annotations, make_captions, make_decoder

# Two captions, of three words and of one, with two cells and a vocabulary of three words. Words are ordered as in the
# decoder: by time first.
ROW, TIME = torch.tensor([0, 1, 0, 0]), torch.tensor([0, 0, 1, 2])
P = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5], [0.6, 0.3, 0.1]], dtype=torch.float64)
TARGETS = torch.tensor([0, 1, 2, 1])  # p: 0.5, 0.8, 0.5, 0.3
ALPHA = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.4, 0.6], [0.3, 0.7]], dtype=torch.float64)
PLACE = torch.tensor([0, 1, 1, 0])


def forced_pass(*, sampled: list[bool] | None = None) -> TeacherForced:
    """A pass whose logits and alpha are leaves for gradients. `sampled` is per word."""
    logits, alpha = P.log().requires_grad_(), ALPHA.clone().requires_grad_()
    hard = (PLACE, torch.tensor(sampled)) if sampled is not None else (None, None)
    return TeacherForced(logits, TARGETS, ROW, TIME, alpha, *hard)


NLL = -(log(0.5) + log(0.8) + log(0.5) + log(0.3))
BOTH, FIRST, NONE = [True] * 4, [True, False, True, True], [False] * 4


def test_the_likelihood_is_summed_over_words_and_averaged_over_captions():
    found = loss(forced_pass(), 2)
    assert float(found.total.detach()) == pytest.approx(NLL / 2)
    assert float(found.nll) == pytest.approx(NLL)
    assert float(found.words) == 4


def test_label_smoothing_changes_the_loss_but_not_the_logged_likelihood():
    found = loss(forced_pass(), 2, label_smoothing=0.3)
    uniform = -sum(log(p) for row in P.tolist() for p in row) / 3
    assert float(found.total.detach()) == pytest.approx((0.7 * NLL + 0.3 * uniform) / 2)
    assert float(found.nll) == pytest.approx(NLL)


def test_the_doubly_stochastic_term_by_hand():
    # Caption 0: sums (0.9 + 0.4 + 0.3, 0.1 + 0.6 + 0.7) = (1.6, 1.4); caption 1: (0.5, 0.5).
    term = (0.6**2 + 0.4**2 + 0.5**2 + 0.5**2) / 2
    assert float(doubly_stochastic_term(forced_pass(), 2).detach()) == pytest.approx(term)
    found = loss(forced_pass(), 2, doubly_stochastic=0.7)
    assert float(found.total.detach()) == pytest.approx(NLL / 2 + 0.7 * term)
    assert float(found.coverage) == pytest.approx(term)


def test_the_doubly_stochastic_gradient_by_hand():
    one = forced_pass()
    doubly_stochastic_term(one, 2).backward()
    # d/d alpha_ti = -2 (1 - sum_i) / captions, the same for every word of the caption
    assert one.alpha.grad[0].tolist() == pytest.approx([0.6, 0.4])
    assert one.alpha.grad[3].tolist() == pytest.approx([0.6, 0.4])
    assert one.alpha.grad[1].tolist() == pytest.approx([-0.5, -0.5])


def test_padding_enters_no_term():
    decoder, annotations = make_decoder(), make_annotations(2)
    inputs, targets, lengths = make_captions([[6, 2], [3, 4]])
    together = loss(decoder(annotations, inputs, targets, lengths), 4, doubly_stochastic=1.0)
    apart = []
    for image in range(2):
        for k in range(2):
            n = int(lengths[image, k])
            cut = (inputs[image, k, :n].view(1, 1, n), targets[image, k, :n].view(1, 1, n), torch.tensor([[n]]))
            apart.append(loss(decoder(annotations[image : image + 1], *cut), 1, doubly_stochastic=1.0))
    assert float(together.total.detach()) == pytest.approx(sum(float(each.total.detach()) for each in apart) / 4)
    assert float(together.coverage) == pytest.approx(sum(float(each.coverage) for each in apart) / 4)
    assert float(together.words) == 15


def test_the_doubly_stochastic_term_of_whole_captions_by_hand():
    decoder, annotations = make_decoder(), make_annotations(1)
    inputs, targets, lengths = make_captions([[4, 2]])
    shared, own = decoder.begin(annotations)
    own = {name: state.expand(-1, 2, -1) for name, state in own.items()}
    sums = torch.zeros(2, 9, dtype=torch.float64)
    for t in range(4):
        _, own, attention = decoder.step(shared, own, inputs[:, :, t])
        for k in range(2):
            if t < lengths[0, k]:
                sums[k] += attention.alpha[0, k]
    expected = float(((1 - sums.detach()) ** 2).sum() / 2)
    term = doubly_stochastic_term(decoder(annotations, inputs, targets, lengths), 2)
    assert float(term.detach()) == pytest.approx(expected)


# --- hard attention -------------------------------------------------------------------------------------


def test_the_reward_of_a_cell_is_the_likelihood_of_the_words_from_it_on():
    found = rewards(P.gather(1, TARGETS[:, None])[:, 0].log(), forced_pass())
    assert found.tolist() == pytest.approx([log(0.5 * 0.5 * 0.3), log(0.8), log(0.5 * 0.3), log(0.3)])
    assert words_left(forced_pass()).tolist() == [3, 1, 2, 1]


def score_term(b: float, words: list[int]) -> float:
    """sum_t (R_t - b * words left) log alpha_t,s_t over some words, by hand."""
    reward = [log(0.075), log(0.8), log(0.15), log(0.3)]
    left = [3, 1, 2, 1]
    log_s = [log(0.9), log(0.5), log(0.6), log(0.3)]
    return sum((reward[i] - b * left[i]) * log_s[i] for i in words)


@pytest.mark.parametrize("baseline", [0.0, -0.8])
def test_the_score_function_term_by_hand(baseline):
    found = loss(forced_pass(sampled=BOTH), 2, reward=0.6, baseline=baseline)
    assert float(found.total.detach()) == pytest.approx((NLL - 0.6 * score_term(baseline, [0, 1, 2, 3])) / 2)


def test_captions_with_the_expectation_have_no_score_function_term_and_no_entropy_bonus():
    bonus = sum(-p * log(p) for i in (0, 2, 3) for p in ALPHA[i].tolist())
    some = loss(forced_pass(sampled=FIRST), 2, reward=0.6, entropy=0.2, baseline=-0.8)
    assert float(some.total.detach()) == pytest.approx((NLL - 0.6 * score_term(-0.8, [0, 2, 3]) - 0.2 * bonus) / 2)
    none = loss(forced_pass(sampled=NONE), 2, reward=0.6, entropy=0.2, baseline=-0.8)
    assert float(none.total.detach()) == pytest.approx(NLL / 2)
    assert none.sampled.tolist() == [0, 0]


def test_the_entropy_bonus_by_hand():
    entropies = [sum(-p * log(p) for p in row) for row in ALPHA.tolist()]
    found = loss(forced_pass(sampled=BOTH), 2, reward=0.0, entropy=0.2)
    assert float(found.total.detach()) == pytest.approx((NLL - 0.2 * sum(entropies)) / 2)
    assert float(found.entropy) == pytest.approx(sum(entropies) / 4)


def test_soft_attention_has_neither_reward_nor_entropy_bonus():
    assert float(loss(forced_pass(), 2, reward=3.0, entropy=2.0, baseline=-1.0).total.detach()) == pytest.approx(
        NLL / 2
    )


def test_the_reward_carries_no_gradient():
    plain, weighted = forced_pass(sampled=BOTH), forced_pass(sampled=BOTH)
    loss(plain, 2, reward=0.0).total.backward()
    loss(weighted, 2, reward=50.0, baseline=-0.8).total.backward()
    assert weighted.logits.grad is not None and plain.logits.grad is not None
    assert torch.equal(weighted.logits.grad, plain.logits.grad)
    assert plain.logits.grad.abs().max() > 0.01


def test_the_score_function_gradient_reaches_only_sampled_cells():
    one = forced_pass(sampled=FIRST)
    loss(one, 2, reward=0.6, baseline=-0.8).total.backward()
    expected = torch.zeros_like(ALPHA)
    for i, reward, left in ((0, log(0.075), 3), (2, log(0.15), 2), (3, log(0.3), 1)):
        expected[i, PLACE[i]] = -0.6 * (reward + 0.8 * left) / ALPHA[i, PLACE[i]] / 2
    torch.testing.assert_close(one.alpha.grad, expected)


def test_the_baseline_uses_the_words_of_sampled_captions():
    found = loss(forced_pass(sampled=FIRST), 2, reward=1.0)
    assert found.sampled.tolist() == pytest.approx([log(0.5) + log(0.5) + log(0.3), 3])
    assert not found.sampled.requires_grad


def test_label_smoothing_does_not_change_the_reward():
    sharp, smooth = forced_pass(sampled=BOTH), forced_pass(sampled=BOTH)
    loss(sharp, 2).total.backward()
    loss(smooth, 2, label_smoothing=0.3).total.backward()
    assert sharp.alpha.grad is not None and smooth.alpha.grad is not None
    assert torch.equal(sharp.alpha.grad, smooth.alpha.grad)


def test_the_order_of_words_does_not_matter():
    order = torch.tensor([2, 0, 3, 1])
    one = forced_pass(sampled=BOTH)
    fields = ("logits", "targets", "row", "time", "alpha", "cell", "sampled")
    other = replace(one, **{name: getattr(one, name)[order] for name in fields})
    how: dict[str, Any] = {"doubly_stochastic": 0.5, "reward": 0.7, "entropy": 0.1, "baseline": -1.0}
    assert float(loss(one, 2, **how).total.detach()) == pytest.approx(float(loss(other, 2, **how).total.detach()))


def test_the_other_samples_of_a_caption_are_its_baseline():
    """Two captions of two words and of one, two samples each."""
    row, time = torch.tensor([0, 1, 2, 3, 0, 1]), torch.tensor([0, 0, 0, 0, 1, 1])
    words = TeacherForced(torch.zeros(6, 2), torch.zeros(6, dtype=torch.long), row, time, torch.zeros(6, 2))
    values = torch.tensor([-3.0, -4.0, -5.0, -1.0, -2.0, -1.0])
    assert mean_of_others(values, words, 2).tolist() == [-4, -3, -1, -5, -1, -2]


def test_three_samples_are_each_compared_with_the_mean_of_two():
    row, time = torch.arange(3), torch.zeros(3, dtype=torch.long)
    words = TeacherForced(torch.zeros(3, 2), torch.zeros(3, dtype=torch.long), row, time, torch.zeros(3, 2))
    assert mean_of_others(torch.tensor([1.0, 2.0, 6.0]), words, 3).tolist() == [4, 3.5, 1.5]
