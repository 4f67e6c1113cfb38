"""Every mechanism of the attention family against its equation: by hand, or against torch's own layers."""

from __future__ import annotations

from math import cos, exp, log1p, sin, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.attention.cell_sampling import CellChoice, StraightThroughSampling
from captioner.model.attention.heads import ManyHeads
from captioner.model.attention.location import ByContent, ByLocation, Coverage, sharpened
from captioner.model.attention.pool import AttentionPool
from captioner.model.attention.scores import (
    AdditiveScore,
    CosineScore,
    DotScore,
    GaussianScore,
    GeneralScore,
    HeadScores,
    ScaledDotScore,
    make_score,
)
from captioner.model.attention.sentinel import Sentinel
from captioner.model.caption_decoder import expand_state
from captioner.model.decoder import Decoder
from captioner.model.grid_encoder import BidirectionalLSTM, PositionEncoding, SelfAttentionEncoder
from captioner.model.settings import AttentionSettings
from tests.model.tiny_models import make_annotations, make_captions, make_decoder, of_row

# Two places and a state, small enough for arithmetic on paper.
PLACES = torch.tensor([[[1.0, 2.0], [-1.0, 0.5]]], dtype=torch.float64)
STATE = torch.tensor([[[0.5, -1.0]]], dtype=torch.float64)
KEY = torch.tensor([[1.0, 0.0], [1.0, -1.0]], dtype=torch.float64)  # W_a: keys (1, -1) and (-1, -1.5)
QUERY = torch.tensor([[2.0, 0.0], [0.0, -1.0]], dtype=torch.float64)  # W_h: query (1, 1)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def shaken(module: Any, seed: int = 7) -> Any:
    """A module in double precision whose weights are all another random number."""
    module.double()
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(noise(*parameter.shape, seed=seed + number))
    return module.eval()


def scores(module: Any) -> list[float]:
    module.double()
    with torch.no_grad():
        if hasattr(module, "key"):
            module.key.weight.copy_(KEY)
            if module.key.bias is not None:
                module.key.bias.zero_()
        if hasattr(module, "query"):
            module.query.weight.copy_(QUERY)
        found: list[float] = module(module.keys(PLACES), STATE)[0, 0].tolist()
    return found


# --- scores ---------------------------------------------------------------------------------------------


def test_dot_is_the_product_of_annotation_and_state():
    assert scores(DotScore()) == [0.5 - 2.0, -0.5 - 0.5]


def test_scaled_dot_is_the_product_of_key_and_query_by_the_root_of_their_width():
    assert scores(ScaledDotScore(2, 2, 2)) == pytest.approx([(1 - 1) / sqrt(2), (-1 - 1.5) / sqrt(2)])


def test_general_is_a_bilinear_form():
    assert scores(GeneralScore(2, 2)) == pytest.approx([1 * 0.5 - 1 * -1.0, -1 * 0.5 + -1.5 * -1.0])


def test_cosine_is_the_angle_times_a_sharpness_that_the_state_says():
    module = CosineScore(2, 2, 2).double()
    with torch.no_grad():
        module.sharpness.weight.copy_(torch.tensor([[2.0, 1.0]]))
        module.sharpness.bias.fill_(0.25)
    sharpness = log1p(exp(2 * 0.5 - 1.0 + 0.25))
    second = (-1 - 1.5) / (sqrt(1 + 1.5**2) * sqrt(2))
    assert scores(module) == pytest.approx([0.0, sharpness * second], abs=1e-12)


@pytest.mark.parametrize("learned", [False, True])
def test_gaussian_is_the_squared_distance_by_the_width(learned):
    module = GaussianScore(2, 2, 2, 1.5, learned=learned)
    assert scores(module) == pytest.approx([-(0 + 4) / (2 * 1.5**2), -(4 + 6.25) / (2 * 1.5**2)])
    assert ("log_width" in dict(module.named_parameters())) == learned


def test_the_softmax_of_gaussian_scores_is_kernel_regression():
    """Nadaraya and Watson: the mean of the values, weighted by a kernel around the query."""
    module = shaken(GaussianScore(3, 4, 2, 0.7, learned=False))
    annotations, state = noise(1, 6, 3, seed=3), noise(1, 1, 4, seed=4)
    alpha = torch.softmax(module(module.keys(annotations), state), -1)[0, 0]
    q, keys = module.query(state)[0, 0].detach(), module.key(annotations)[0].detach()
    kernel = [exp(-float(((q - k) ** 2).sum()) / (2 * 0.7**2)) for k in keys]
    assert alpha.tolist() == pytest.approx([each / sum(kernel) for each in kernel])


# --- heads ----------------------------------------------------------------------------------------------


def test_several_heads_are_torchs_multi_head_attention():
    """Width 8 everywhere, as nn.MultiheadAttention has it."""
    settings = AttentionSettings(score="scaled_dot", heads=2, size=8)
    score, heads = shaken(make_score(settings, 8, 8)), shaken(ManyHeads(2, 8), seed=50)
    assert isinstance(score, HeadScores)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).double()
    with torch.no_grad():
        queries, keys = ([getattr(h, n).weight for h in score.heads] for n in ("query", "key"))
        theirs.in_proj_weight.copy_(torch.cat([*queries, *keys, heads.value.weight]))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.weight.copy_(heads.mix.weight)
        theirs.out_proj.bias.copy_(heads.mix.bias)
    annotations, hidden = noise(2, 5, 8, seed=1), noise(2, 3, 8, seed=2)
    alpha = torch.softmax(score(score.keys(annotations), hidden), -1)
    expected, weights = theirs(hidden, annotations, annotations)
    torch.testing.assert_close(heads(alpha, heads.values(annotations)), expected)
    torch.testing.assert_close(heads.map(alpha), weights)


# --- location -------------------------------------------------------------------------------------------


def turing(content: np.ndarray, last: np.ndarray, g: float, shares: np.ndarray, gamma: float) -> np.ndarray:
    """The Neural Turing Machine's equations on a grid, place by place."""
    rows, cols = content.shape
    mixed = g * content + (1 - g) * last
    moved = np.zeros_like(mixed)
    for row in range(rows):
        for col in range(cols):
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    if 0 <= row - down < rows and 0 <= col - right < cols:
                        moved[row, col] += shares[down + 1, right + 1] * mixed[row - down, col - right]
    return moved**gamma / (moved**gamma).sum()


def test_location_addressing_is_the_neural_turing_machines_place_by_place():
    module = shaken(ByLocation(4, 1, (2, 3)))
    query, last = noise(1, 2, 4, seed=5), torch.softmax(noise(1, 2, 1, 6, seed=6), -1)
    raw = noise(1, 2, 6, seed=8)
    alpha, _, kept = module(raw, query, {"map": last})
    for k in range(2):
        control = module.control(query)[0, k].detach()
        expected = turing(
            torch.softmax(raw[0, k], -1).view(2, 3).numpy(),
            last[0, k, 0].view(2, 3).numpy(),
            1 / (1 + exp(-float(control[0]))),
            torch.softmax(control[2:], -1).view(3, 3).numpy(),
            1 + log1p(exp(float(control[1]))),
        )
        assert alpha[0, k].detach().numpy() == pytest.approx(expected.flatten())
    assert kept["map"].shape == last.shape


def test_a_shift_moves_the_map_and_what_leaves_the_picture_is_lost():
    module = ByLocation(4, 1, (2, 3))
    corner = torch.tensor([[[[0.5, 0.0, 0.0, 0.0, 0.0, 0.5]]]])  # first and last place
    down_right = torch.zeros(1, 1, 1, 9)
    down_right[..., 8] = 1.0
    assert module.shifted(corner, down_right).flatten().tolist() == [0, 0, 0, 0, 0.5, 0]


def test_sharpening_takes_any_power_of_any_map():
    """Where the powers themselves would all be 0 in single precision."""
    even, gone = torch.full((1, 64), 1 / 64), torch.zeros(1, 64)
    for alpha in (even, gone):
        assert sharpened(alpha, torch.tensor(25.0)).tolist() == [pytest.approx([1 / 64] * 64)]
    assert sharpened(torch.tensor([0.2, 0.8]), torch.tensor(2.0)).tolist() == pytest.approx([0.04 / 0.68, 0.64 / 0.68])


def test_location_before_the_first_word_is_even_and_a_wrong_grid_is_refused():
    module = ByLocation(4, 2, (2, 3))
    assert module.begin(noise(3, 6, 5))["map"].unique().tolist() == [1 / 6]
    with pytest.raises(CaptionerError, match="7 annotations do not fit a grid of 2x3"):
        module.begin(noise(3, 7, 5))


def test_coverage_adds_the_sum_of_past_maps_to_the_scores():
    module = shaken(Coverage(4, 1, ByContent()))
    own = module.begin(noise(1, 3, 5))
    assert own["covered"].tolist() == [[[0.0] * 3]]
    raw, total = noise(3, 1, 1, 3, seed=1), torch.zeros(3, dtype=torch.float64)
    for t in range(3):
        query = noise(1, 1, 4, seed=10 + t)
        alpha, scores, own = module(raw[t], query, own)
        weight = query[0, 0] @ module.weight.weight[0] + module.weight.bias[0]
        torch.testing.assert_close(scores[0, 0], raw[t, 0, 0] + weight * total)
        torch.testing.assert_close(alpha[0, 0], torch.softmax(raw[t, 0, 0] + weight * total, -1))
        total = total + alpha[0, 0]


@pytest.mark.parametrize("location", ["ntm", "coverage", "both"])
@pytest.mark.parametrize("heads", [1, 2])
def test_later_maps_depend_on_earlier_ones(location, heads):
    """The same state and scores twice: without memory the two maps would be the same."""
    decoder = make_decoder(attention={"location": location, "heads": heads}, grid=(3, 3))
    shared, own = decoder.begin(make_annotations(1))
    first, own, _ = decoder.attention(shared, own, CellChoice())
    second, *_ = decoder.attention(shared, own, CellChoice())
    assert (first - second).abs().max() > 1e-3


# --- draws ----------------------------------------------------------------------------------------------


def test_straight_through_looks_at_one_place_and_learns_through_the_softmax():
    alpha = torch.softmax(noise(1, 4, 5), -1).requires_grad_()
    drawn = noise(1, 4, 5, seed=1)
    values, sampled = noise(4, 5, seed=2), torch.ones(1, 4, dtype=torch.bool)
    weights, place = StraightThroughSampling(0.6).train()(alpha, CellChoice(sampled, drawn))
    assert place is not None
    torch.testing.assert_close(weights.detach(), nn.functional.one_hot(place, 5).double())
    (found,) = torch.autograd.grad((weights * values).sum(), alpha)
    same = alpha.detach().requires_grad_()
    relaxed = torch.softmax((same.log() + drawn) / 0.6, -1)
    (expected,) = torch.autograd.grad((relaxed * values).sum(), same)
    torch.testing.assert_close(found, expected)
    assert expected.abs().max() > 0.1


def test_gumbel_readings_carry_no_places_to_be_rewarded():
    decoder = make_decoder(attention={"mode": "gumbel"}).train()
    captions, sampled = make_captions([[4, 3]]), torch.ones(1, 2, dtype=torch.bool)
    forced = decoder(make_annotations(1), *captions, sampled=sampled, generator=torch.Generator().manual_seed(0))
    assert forced.cell is None and forced.sampled is None
    forced.logits.sum().backward()
    assert decoder.score.query.weight.grad.abs().max() > 0


def test_gumbel_learns_where_to_look_from_places_that_were_drawn_before():
    """As the self-critical stage reads its samples again: without dropout, all rows at their places."""
    decoder = make_decoder(attention={"mode": "gumbel"}).eval()
    captions, sampled = make_captions([[4, 3]]), torch.ones(1, 2, dtype=torch.bool)
    places = torch.tensor([[[0, 3, 8, 2], [5, 5, 1, 0]]])
    forced = decoder(make_annotations(1), *captions, sampled=sampled, cells=places)
    nn.functional.cross_entropy(forced.logits, forced.targets).backward()
    assert decoder.score.query.weight.grad.abs().max() > 0


# --- places ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["after", "both"])
def test_a_step_that_looks_after_the_lstm(place):
    """With torch's own LSTM cell; only the weights are taken from the decoder."""
    d, annotations = make_decoder(attention={"attend": place, "gate": False}), make_annotations(1)
    assert d.project is not None
    a = torch.relu(d.project(annotations[0]))
    h, c = (torch.tanh(start[0](a.mean(0))) for start in (d.start_hidden, d.start_cell))
    size = 6 if place == "both" else 0
    cell = nn.LSTMCell(4 + size, 7).double()
    with torch.no_grad():
        cell.weight_ih.copy_(torch.cat([d.from_word.weight, d.from_context.weight[:, :size]], 1))
        cell.weight_hh.copy_(d.from_context.weight[:, size:])
        cell.bias_ih.copy_(d.from_word.bias)
        cell.bias_hh.zero_()

    def look(state: Tensor) -> Tensor:
        hidden = torch.tanh(a @ d.score.key.weight.T + d.score.key.bias + d.score.query.weight @ state)
        return torch.softmax(hidden @ d.score.weight.weight[0], 0)

    shared, own = d.begin(annotations)
    for word in (1, 6, 4):
        logits, own, attention = d.step(shared, own, torch.tensor([[word]]))
        y, maps = d.embedding.weight[word], []
        entering = y
        if place == "both":
            maps.append(look(h))
            entering = torch.cat([y, maps[0] @ a])
        h, c = (x[0] for x in cell(entering[None], (h[None], c[None])))
        maps.append(look(h))
        z = maps[-1] @ a
        total = y + d.hidden_out.weight @ h + d.hidden_out.bias + d.context_out.weight @ z
        torch.testing.assert_close(logits[0, 0], d.embedding.weight @ total + d.output.bias)
        torch.testing.assert_close(attention.alpha[0, 0], torch.stack(maps).mean(0))


# --- sentinel -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_sentinel_is_one_more_place_of_the_softmax(temperature):
    sentinel, score = shaken(Sentinel(4, 3, temperature)), shaken(AdditiveScore(3, 4, 5), seed=30)
    a, query, memory = noise(2, 6, 3), noise(2, 3, 4, seed=1), noise(2, 3, 4, seed=2)
    raw = score(score.keys(a), query) / temperature
    z, gate = noise(2, 3, 3, seed=9), torch.full((2, 3), 0.8, dtype=torch.float64)
    found, told = sentinel(z, gate, query, memory, raw, score)
    for b in range(2):
        for k in range(3):
            s = sentinel.project(torch.sigmoid(sentinel.gate(query[b, k])) * torch.tanh(memory[b, k]))
            own = score(score.keys(s.view(1, 1, 3)), query[b, k].view(1, 1, 4)).flatten() / temperature
            weights = torch.softmax(torch.cat([raw[b, k], own]), 0)
            torch.testing.assert_close(found[b, k], weights[:-1].sum() * z[b, k] + weights[-1] * s)
            torch.testing.assert_close(told[b, k], 0.8 * (1 - weights[-1]))


def test_places_that_are_covered_lose_to_the_sentinel_too():
    decoder = make_decoder(attention={"location": "coverage", "sentinel": True, "gate": False}, grid=(3, 3))
    with torch.no_grad():
        decoder.location.weight.weight.zero_()
        decoder.location.weight.bias.fill_(-50.0)
    shared, own = decoder.begin(make_annotations(1))
    told = []
    for covered in (0.0, 5.0):
        now = {**own, "covered": torch.full_like(own["covered"], covered)}
        told.append(float(decoder.attention(shared, now, CellChoice())[2].gate.detach()))
    assert told[0] > 0.5
    assert told[1] < 1e-6


# --- pool and context -----------------------------------------------------------------------------------


def test_attention_pooling_by_hand():
    pool = AttentionPool(2).double()
    with torch.no_grad():
        pool.query.copy_(torch.tensor([1.0, -1.0]))
    first = exp((1 - 2) / sqrt(2)) / (exp((1 - 2) / sqrt(2)) + exp((-1 - 0.5) / sqrt(2)))
    expected = [first - (1 - first), 2 * first + 0.5 * (1 - first)]
    assert pool(PLACES)[0, 0].tolist() == pytest.approx(expected)


def test_positions_add_waves_of_row_and_column():
    found = PositionEncoding(4, (2, 3))(torch.zeros(1, 6, 4, dtype=torch.float64))[0]
    assert found[5].tolist() == pytest.approx([sin(1), cos(1), sin(2), cos(2)])  # row 1, column 2
    assert len({tuple(row) for row in found.tolist()}) == 6
    wide = PositionEncoding(12, (2, 3))(torch.zeros(1, 6, 12, dtype=torch.float64))[0, 5, 6:]  # column 2 in six numbers
    slow, slower = 2 / 10000 ** (1 / 3), 2 / 10000 ** (2 / 3)
    assert wide.tolist() == pytest.approx([sin(2), sin(slow), sin(slower), cos(2), cos(slow), cos(slower)], rel=1e-5)
    with pytest.raises(CaptionerError, match="5 annotations do not fit a grid of 2x3"):
        PositionEncoding(4, (2, 3))(torch.zeros(1, 5, 4))


def test_the_lstm_context_reads_the_grid_forwards_and_backwards():
    """Each half against a cell that walks the places by itself."""
    context = shaken(BidirectionalLSTM(6))
    annotations = noise(1, 5, 6)
    found = context(annotations)[0]
    for suffix, order, half in (("", range(5), slice(0, 3)), ("_reverse", range(4, -1, -1), slice(3, 6))):
        cell = nn.LSTMCell(6, 3).double()
        with torch.no_grad():
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(cell, name).copy_(getattr(context.lstm, f"{name}_l0{suffix}"))
        h = c = torch.zeros(1, 3, dtype=torch.float64)
        for i in order:
            h, c = cell(annotations[:, i], (h, c))
            torch.testing.assert_close(found[i, half], h[0])


def copy_attention(ours: Any, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.pair.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.pair.bias]))
        theirs.out_proj.load_state_dict(ours.mix.state_dict())


def test_the_self_attention_context_is_torchs_encoder_layer_on_annotations_with_positions():
    context = shaken(SelfAttentionEncoder(8, (2, 3), 1, 2, 0.1))
    theirs = nn.TransformerEncoderLayer(8, 2, 32, 0.0, batch_first=True, norm_first=True).double()
    block = context.blocks[0]
    copy_attention(block.attend, theirs.self_attn)
    for ours, other in (("wide", "linear1"), ("narrow", "linear2")):
        getattr(theirs, other).load_state_dict(getattr(block.feed, ours).state_dict())
    theirs.norm1.load_state_dict(block.attend_norm.state_dict())
    theirs.norm2.load_state_dict(block.feed_norm.state_dict())
    annotations = noise(2, 6, 8)
    expected = context.norm(theirs(context.positions(annotations)))
    torch.testing.assert_close(context(annotations), expected)


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
    own, said, maps = expand_state(own, 2), [], []
    for t in range(5):
        logits, own, attention = decoder.step(shared, own, inputs[:, :, t])
        said.append(logits)
        maps.append(attention.alpha)
    for row in range(4):
        image, caption = divmod(row, 2)
        count = int(lengths[image, caption])
        expected = torch.stack(said)[:count, image, caption], torch.stack(maps)[:count, image, caption]
        torch.testing.assert_close(of_row(forced, row, forced.logits), expected[0])
        torch.testing.assert_close(of_row(forced, row, forced.alpha), expected[1])


# --- the ground -----------------------------------------------------------------------------------------


def test_with_the_defaults_first_weights_are_drawn_as_before_there_was_a_family():
    """Names, order and draws: those of the layers of the paper's decoder, made one after the other."""
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
    ("settings", "said"),
    [
        ({"attention": {"score": "dot"}}, "annotations of width 5 with states of model.hidden_size=7"),
        ({"attention": {"heads": 2}}, "heads=2 does not divide annotations of width 5"),
        ({"grid_encoder": "lstm"}, "a width of 5 can't be divided by 2"),
        ({"attention": {"location": "ntm"}}, "needs the rows and columns"),
        ({"grid_encoder": "positions"}, "needs the rows and columns"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_encoder_is_refused_when_the_decoder_is_built(settings, said):
    """Where annotations are not projected, the settings alone can't know their width."""
    with pytest.raises(CaptionerError, match=said):
        make_decoder(annotation_size=None, **settings)
