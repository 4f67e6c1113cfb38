"""One step of attention in the decoder: alpha, when attention runs, and which settings fit the encoder."""

from __future__ import annotations

from math import exp, tanh
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.attention.heads import OneHead
from captioner.model.attention.scores import AdditiveScore
from captioner.model.caption_decoder import expand_state
from captioner.model.decoder import Decoder
from tests.model.tiny_models import make_annotations, make_captions, make_decoder, of_row


def first_alpha(decoder, annotations, hidden=None):
    shared, own = decoder.begin(annotations)
    own = own if hidden is None else dict.fromkeys(own, hidden)
    return decoder.step(shared, own, torch.ones(own["h0"].shape[:2], dtype=torch.long))[2].alpha


def test_an_attention_step_by_hand():
    """Two cells, D = 2, n = 1, A = 2, worked out with plain arithmetic."""
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


def test_alpha_is_a_distribution_over_cells():
    alpha = first_alpha(make_decoder(), make_annotations(3))
    assert alpha.shape == (3, 1, 9)
    assert (alpha > 0).all()
    torch.testing.assert_close(alpha.sum(-1), torch.ones(3, 1, dtype=torch.float64))
    assert alpha.std(-1).min() > 0.01  # a flat map would pass all tests here


def test_alpha_depends_on_the_hidden_state():
    """A score of the annotations alone would give the same map for every word, a known mistake."""
    decoder, annotations = make_decoder(), make_annotations(2)
    hidden = torch.randn(2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    alpha = first_alpha(decoder, annotations, hidden)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert ((alpha[:, one] - alpha[:, other]).abs().amax(-1) > 0.01).all()


def test_alpha_depends_only_on_the_annotations_of_its_own_image():
    decoder, annotations = make_decoder(), make_annotations(2)
    other = annotations.clone()
    other[1] = make_annotations(1, seed=9)[0]
    hidden = torch.ones(2, 1, 7, dtype=torch.float64)
    before, after = first_alpha(decoder, annotations, hidden), first_alpha(decoder, other, hidden)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


def test_alpha_moves_with_the_annotations():
    decoder, annotations = make_decoder(), make_annotations(1)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(
        first_alpha(decoder, annotations[:, order]), first_alpha(decoder, annotations)[..., order]
    )


@pytest.mark.parametrize("temperature", [0.25, 4.0])
def test_the_temperature_divides_the_scores(temperature):
    annotations = make_annotations(2)
    plain = first_alpha(make_decoder(), annotations)
    tempered = first_alpha(make_decoder(attention={"temperature": temperature}), annotations)
    raised = plain ** (1 / temperature)  # softmax(e / T) is proportional to softmax(e)^(1/T)
    torch.testing.assert_close(tempered, raised / raised.sum(-1, keepdim=True))


# --- when attention runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("attend", ["after", "both"])
def test_a_step_with_attention_after_the_lstm_equals_the_equations(attend):
    """With torch's own LSTM cell; only the weights are taken from the decoder."""
    d, annotations = make_decoder(attention={"attend": attend, "gate": False}), make_annotations(1)
    assert d.project is not None
    a = torch.relu(d.project(annotations[0]))
    h, c = (torch.tanh(start[0](a.mean(0))) for start in (d.start_hidden, d.start_cell))
    size = 6 if attend == "both" else 0
    lstm = nn.LSTMCell(4 + size, 7).double()
    with torch.no_grad():
        lstm.weight_ih.copy_(torch.cat([d.from_word.weight, d.from_context.weight[:, :size]], 1))
        lstm.weight_hh.copy_(d.from_context.weight[:, size:])
        lstm.bias_ih.copy_(d.from_word.bias)
        lstm.bias_hh.zero_()

    def attention_map(state: Tensor) -> Tensor:
        hidden = torch.tanh(a @ d.score.key.weight.T + d.score.key.bias + d.score.query.weight @ state)
        return torch.softmax(hidden @ d.score.weight.weight[0], 0)

    shared, own = d.begin(annotations)
    for word in (1, 6, 4):
        logits, own, attention = d.step(shared, own, torch.tensor([[word]]))
        y, maps = d.embedding.weight[word], []
        lstm_input = y
        if attend == "both":
            maps.append(attention_map(h))
            lstm_input = torch.cat([y, maps[0] @ a])
        h, c = (x[0] for x in lstm(lstm_input[None], (h[None], c[None])))
        maps.append(attention_map(h))
        z = maps[-1] @ a
        total = y + d.hidden_out.weight @ h + d.hidden_out.bias + d.context_out.weight @ z
        torch.testing.assert_close(logits[0, 0], d.embedding.weight @ total + d.output.bias)
        torch.testing.assert_close(attention.alpha[0, 0], torch.stack(maps).mean(0))


# --- whole captions -------------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "ntm and coverage": {"attention": {"location": "both"}},
    "heads that remember": {"attention": {"heads": 2, "location": "both", "score": "cosine"}},
    "after, sentinel": {"attention": {"attend": "after", "sentinel": True}},
    "both, two layers": {"layers": 2, "attention": {"attend": "both", "location": "coverage"}},
}


@pytest.mark.parametrize("settings", KINDS.values(), ids=list(KINDS))
def test_whole_captions_equal_single_steps(settings):
    decoder, annotations = make_decoder(**settings, grid=(3, 3)), make_annotations(2)
    inputs, targets, lengths = make_captions([[5, 3], [4, 1]])
    forced = decoder(annotations, inputs, targets, lengths)
    shared, own = decoder.begin(annotations)
    own, logits_by_step, maps = expand_state(own, 2), [], []
    for t in range(5):
        logits, own, attention = decoder.step(shared, own, inputs[:, :, t])
        logits_by_step.append(logits)
        maps.append(attention.alpha)
    for row in range(4):
        image, caption = divmod(row, 2)
        count = int(lengths[image, caption])
        expected = torch.stack(logits_by_step)[:count, image, caption], torch.stack(maps)[:count, image, caption]
        torch.testing.assert_close(of_row(forced, row, forced.logits), expected[0])
        torch.testing.assert_close(of_row(forced, row, forced.alpha), expected[1])


# --- building -------------------------------------------------------------------------------------------


def test_the_default_decoder_has_the_names_order_and_initial_weights_of_the_papers_layers():
    """Checkpoints rely on the order. The layers are created one after the other with the same seed."""
    settings = make_decoder().settings
    torch.manual_seed(11)
    decoder = Decoder(settings, 5, 11)
    torch.manual_seed(11)
    layers = {
        "project": nn.Linear(5, 6),
        "start_hidden.0": nn.Linear(6, 7),
        "start_cell.0": nn.Linear(6, 7),
        "embedding": nn.Embedding(11, 4),
        "score.key": nn.Linear(6, 8),
        "score.query": nn.Linear(7, 8, bias=False),
        "score.weight": nn.Linear(8, 1, bias=False),
        "gate": nn.Linear(7, 1),
        "from_word": nn.Linear(4, 28),
        "from_context": nn.Linear(13, 28, bias=False),
        "hidden_out": nn.Linear(7, 4),
        "context_out": nn.Linear(6, 4, bias=False),
        "output": nn.Linear(4, 11),
    }
    expected = [f"{name}.{kind}" for name, layer in layers.items() for kind, _ in layer.named_parameters()]
    assert list(decoder.state_dict()) == expected
    for name in ("project", "score.key", "score.query", "score.weight", "gate", "hidden_out", "context_out"):
        assert torch.equal(decoder.get_parameter(f"{name}.weight"), layers[name].get_parameter("weight")), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": {"score": "dot"}}, "annotations of width 5 with states of model.hidden_size=7"),
        ({"attention": {"heads": 2}}, "heads=2 does not divide annotations of width 5"),
        ({"grid_encoder": "lstm"}, "a width of 5 can't be divided by 2"),
        ({"attention": {"location": "ntm"}}, "needs the rows and columns"),
        ({"grid_encoder": "positions"}, "needs the rows and columns"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_the_encoder_are_refused_when_the_decoder_is_built(settings, message):
    """Without a projection the settings do not determine the width of the annotations."""
    with pytest.raises(CaptionerError, match=message):
        make_decoder(annotation_size=None, **settings)
