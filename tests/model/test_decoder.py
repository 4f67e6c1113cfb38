"""The decoder against the paper's equations, and whole captions against single steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.caption_decoder import TeacherForced
from captioner.model.decoder import Decoder, mix_words
from tests.model.tiny_models import make_annotations, make_captions, make_decoder, of_row

VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tied": False},
    "two layers": {"layers": 2},
    "three layers": {"layers": 3},
    "no gate": {"attention": {"gate": False}},
    "annotations as they are": {"annotation_size": None},
    "no word in the output": {"output_word": False},
    "no hidden in the output": {"output_hidden": False},
    "no context in the output": {"output_context": False},
    "temperature": {"attention": {"temperature": 0.5}},
}
variants = pytest.mark.parametrize("settings", VARIANTS.values(), ids=list(VARIANTS))


# --- the equations --------------------------------------------------------------------------------------


class Paper:
    """The equations for one image and one caption, step by step, with torch's own LSTM cells.

    Only the decoder's weights are taken from it.
    """

    def __init__(self, decoder: Decoder, annotations: Tensor) -> None:
        self.d = d = decoder
        self.a = torch.relu(d.project(annotations)) if d.project else annotations  # (L, D)
        mean = self.a.mean(0)
        self.h = [torch.tanh(f(mean)) for f in d.start_hidden]
        self.c = [torch.tanh(f(mean)) for f in d.start_cell]
        size, n, m = self.a.shape[1], d.settings.hidden_size, d.settings.embedding_size
        self.cells = [nn.LSTMCell(m + size, n).double()]
        self.cells += [nn.LSTMCell(n, n).double() for _ in d.upper]
        with torch.no_grad():
            wide = d.from_context.weight
            self.cells[0].weight_ih.copy_(torch.cat([d.from_word.weight, wide[:, :size]], 1))
            self.cells[0].weight_hh.copy_(wide[:, size:])
            self.cells[0].bias_ih.copy_(d.from_word.bias)
            for cell, upper in zip(self.cells[1:], d.upper, strict=True):
                cell.weight_ih.copy_(upper.weight[:, :n])
                cell.weight_hh.copy_(upper.weight[:, n:])
                cell.bias_ih.copy_(upper.get_parameter("bias"))
            for lstm in self.cells:
                lstm.bias_hh.zero_()

    def step(self, word: int, cell: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the next word, alpha and beta; with `cell` the context vector is that annotation alone."""
        d, s = self.d, self.d.settings
        query = self.h[-1]
        hidden = torch.tanh(self.a @ d.score.key.weight.T + d.score.key.bias + d.score.query.weight @ query)
        alpha = torch.softmax((hidden @ d.score.weight.weight[0]) / s.attention.temperature, 0)
        z = alpha @ self.a if cell is None else self.a[cell]
        beta = torch.ones(1, dtype=torch.float64)
        if s.attention.gate:
            beta = torch.sigmoid(d.gate.weight @ query + d.gate.bias)
        z = beta * z
        y = d.embedding.weight[word]
        entering, top = torch.cat([y, z]), torch.zeros(())
        for i, lstm in enumerate(self.cells):
            self.h[i], self.c[i] = (x[0] for x in lstm(entering[None], (self.h[i][None], self.c[i][None])))
            top = self.h[i] if i == 0 else self.h[i] + entering  # residual from the second layer on
            entering = top
        total = torch.zeros(s.embedding_size, dtype=torch.float64)
        total = total + (y if s.output_word else 0)
        total = total + (d.hidden_out.weight @ top + d.hidden_out.bias if s.output_hidden else 0)
        total = total + (d.context_out.weight @ z if s.output_context else 0)
        matrix = d.embedding.weight if s.tied else d.output.weight
        return matrix @ total + d.output.bias, alpha, beta


@variants
def test_steps_equal_the_papers_equations(settings):
    decoder, annotations = make_decoder(**settings), make_annotations(1)
    paper = Paper(decoder, annotations[0])
    shared, own = decoder.begin(annotations)
    for word in (1, 7, 4, 9):
        logits, own, attention = decoder.step(shared, own, torch.tensor([[word]]))
        expected, alpha, beta = paper.step(word)
        torch.testing.assert_close(logits[0, 0], expected)
        torch.testing.assert_close(attention.alpha[0, 0], alpha)
        torch.testing.assert_close(attention.gate[0], beta)
        for i, (h, c) in enumerate(zip(paper.h, paper.c, strict=True)):
            torch.testing.assert_close(own[f"h{i}"][0, 0], h)
            torch.testing.assert_close(own[f"c{i}"][0, 0], c)


@variants
def test_with_a_given_cell_the_context_vector_is_its_annotation(settings):
    attention = {**settings.get("attention", {}), "mode": "hard"}
    decoder, annotations = make_decoder(**{**settings, "attention": attention}), make_annotations(1)
    paper = Paper(decoder, annotations[0])
    inputs, targets, lengths = make_captions([[4]])
    cells = torch.tensor([[[3, 0, 8, 3]]])
    forced = decoder(annotations, inputs, targets, lengths, sampled=torch.ones(1, 1, dtype=torch.bool), cells=cells)
    for t, (word, cell) in enumerate(zip(inputs[0, 0].tolist(), cells[0, 0].tolist(), strict=True)):
        logits, alpha, _ = paper.step(word, cell)
        torch.testing.assert_close(forced.logits[t], logits)
        torch.testing.assert_close(forced.alpha[t], alpha)
    assert forced.cell is not None and forced.cell.tolist() == [3, 0, 8, 3]


def test_each_setting_changes_the_logits():
    """A setting without effect would pass all comparisons above."""
    annotations, words = make_annotations(1), torch.tensor([[5]])
    logits = []
    for settings in VARIANTS.values():
        decoder = make_decoder(**settings)
        logits.append(decoder.step(*decoder.begin(annotations), words)[0].flatten())
    for i, one in enumerate(logits):
        for other in logits[:i]:
            assert not torch.allclose(one, other)


def test_a_tied_output_layer_shares_the_embedding():
    tied, untied = make_decoder(), make_decoder(tied=False)
    assert tied.output.weight is tied.embedding.weight
    assert untied.output.weight is not untied.embedding.weight
    counts = [sum(p.numel() for p in d.parameters()) for d in (tied, untied)]
    assert counts[1] - counts[0] == 11 * 4


def test_initial_weights_have_open_forget_gates_and_an_orthogonal_recurrence():
    settings = make_decoder(layers=3).settings
    decoder = Decoder(settings, 5, 11)
    n = settings.hidden_size
    for layer in (decoder.from_word, *decoder.upper):
        assert layer.bias[n : 2 * n].tolist() == [1.0] * n
    for layer in (decoder.from_context, *decoder.upper):
        for gate in layer.weight[:, -n:].split(n):
            torch.testing.assert_close(gate @ gate.T, torch.eye(n), atol=1e-5, rtol=0)


# --- whole captions -------------------------------------------------------------------------------------


@variants
def test_whole_captions_equal_single_steps(settings):
    decoder, annotations = make_decoder(**settings), make_annotations(2)
    inputs, targets, lengths = make_captions([[5, 3, 2], [4, 4, 1]])
    forced = decoder(annotations, inputs, targets, lengths)
    shared, own = decoder.begin(annotations)
    own = {name: state.expand(-1, 3, -1) for name, state in own.items()}
    seen = 0
    for t in range(5):
        logits, own, attention = decoder.step(shared, own, inputs[:, :, t])
        for row in range(6):
            image, caption = divmod(row, 3)
            at = (forced.row == row) & (forced.time == t)
            assert int(at.sum()) == int(t < lengths[image, caption])
            if at.any():
                torch.testing.assert_close(forced.logits[at][0], logits[image, caption])
                torch.testing.assert_close(forced.alpha[at][0], attention.alpha[image, caption])
                assert forced.targets[at][0] == targets[image, caption, t]
                seen += 1
    assert seen == len(forced.targets) == int(lengths.sum())


def assert_same_rows(one: TeacherForced, row: int, other: TeacherForced, other_row: int) -> None:
    """Two teacher-forced passes have the same results for a caption."""
    for name in ("logits", "targets", "time", "alpha"):
        found, expected = (of_row(r, i, getattr(r, name)) for r, i in ((one, row), (other, other_row)))
        assert len(expected)
        torch.testing.assert_close(found, expected, msg=name)


@variants
def test_a_batch_equals_its_images_one_by_one(settings):
    decoder, annotations = make_decoder(**settings), make_annotations(3)
    captions = make_captions([[6, 2], [3, 3], [4, 5]])
    together = decoder(annotations, *captions)
    for image in range(3):
        alone = decoder(annotations[image : image + 1], *(each[image : image + 1] for each in captions))
        for k in range(2):
            assert_same_rows(alone, k, together, 2 * image + k)


@variants
def test_captions_together_equal_captions_one_by_one(settings):
    decoder, annotations = make_decoder(**settings), make_annotations(2)
    captions = make_captions([[6, 2, 4], [3, 5, 1]])
    together = decoder(annotations, *captions)
    for k in range(3):
        apart = decoder(annotations, *(each[:, k : k + 1] for each in captions))
        for image in range(2):
            assert_same_rows(apart, image, together, 3 * image + k)


STATEFUL: dict[str, dict[str, Any]] = {
    "hard": {"attention": {"mode": "hard"}},
    "coverage and locations": {"attention": {"location": "both"}, "grid": (3, 3)},
    "several heads": {"attention": {"heads": 2}},
    "sentinel, sparse, last word": {"attention": {"sentinel": True, "normalizer": "entmax15", "last_word": True}},
    "keys are the annotations": {"attention": {"score": "dot"}, "annotation_size": None, "hidden_size": 5},
}


@pytest.mark.parametrize("settings", [*VARIANTS.values(), *STATEFUL.values()], ids=[*VARIANTS, *STATEFUL])
def test_losses_and_gradients_of_a_batch_are_those_of_each_caption_alone(settings):
    """Captions and images that have ended leave the batch, from its end, its beginning and its middle."""
    decoder, annotations = make_decoder(**settings), make_annotations(5).requires_grad_()
    inputs, targets, lengths = make_captions([[2, 1], [5, 3], [7, 2], [1, 1], [4, 6]])
    hard: dict[str, Tensor] = {}
    if decoder.hard:
        cells = torch.randint(9, inputs.shape, generator=torch.Generator().manual_seed(4))
        hard = {"sampled": torch.tensor([[True, False]] * 5), "cells": cells}

    def nll(images: slice, captions: slice) -> Tensor:
        part = (images, captions)
        rows = {name: values[part] for name, values in hard.items()}
        forced = decoder(annotations[images], inputs[part], targets[part], lengths[part], **rows)
        assert len(forced.targets) == lengths[part].sum()
        log_p = forced.logits.log_softmax(-1).gather(1, forced.targets.unsqueeze(1))
        return -log_p.sum() + forced.alpha.square().sum()

    def gradients(loss: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss, [annotations, *decoder.parameters()], allow_unused=True)

    whole = nll(slice(None), slice(None))
    apart = torch.stack([nll(slice(i, i + 1), slice(k, k + 1)) for i in range(5) for k in range(2)]).sum()
    torch.testing.assert_close(whole, apart)
    for found, expected in zip(gradients(whole), gradients(apart), strict=True):
        assert (found is None) == (expected is None)
        if found is not None:
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_captions_may_have_any_order(order):
    """Longest first is only the fastest order."""
    decoder, annotations = make_decoder(), make_annotations(2)
    captions = make_captions([[6, 4, 2], [5, 3, 1]])
    sorted_rows = decoder(annotations, *captions)
    mixed = decoder(annotations, *(each[:, list(order)] for each in captions))
    for image in range(2):
        for k, position in enumerate(order):
            assert_same_rows(mixed, 3 * image + k, sorted_rows, 3 * image + position)


@pytest.mark.parametrize("own_words", [0.0, 1.0])
def test_padding_changes_nothing(own_words):
    decoder, annotations = make_decoder(), make_annotations(2)
    inputs, targets, lengths = make_captions([[5, 3], [2, 4]])

    def read(inputs: Tensor, targets: Tensor) -> TeacherForced:
        generator = torch.Generator().manual_seed(0)
        return decoder(annotations, inputs, targets, lengths, own_words=own_words, generator=generator)

    expected = read(inputs, targets)
    padding = torch.arange(5) >= lengths.unsqueeze(-1)
    junk = read(inputs.masked_fill(padding, 8), targets.masked_fill(padding, 9))
    longer = read(*(torch.cat([each, torch.full((2, 2, 3), 6)], -1) for each in (inputs, targets)))
    for row in range(4):
        assert_same_rows(junk, row, expected, row)
        assert_same_rows(longer, row, expected, row)
    assert len(junk.targets) == len(longer.targets) == int(lengths.sum())


def test_padding_gets_no_gradient():
    decoder, annotations = make_decoder(output_word=False, tied=False), make_annotations(1)
    inputs, targets, lengths = make_captions([[3, 5]])
    inputs[0, 0, 3:] = 10  # a word that occurs nowhere else
    inputs[0, 1] = torch.tensor([1, 4, 5, 6, 7])
    decoder(annotations, inputs, targets, lengths).logits.square().sum().backward()
    touched = decoder.embedding.weight.grad.abs().sum(-1) > 0
    assert touched[[1, 4, 5, 6, 7]].all()
    assert not touched[10]


# --- scheduled sampling, dropout, seeds ------------------------------------------------------------------


def test_scheduled_sampling_feeds_the_word_of_a_model_with_one_certain_word():
    decoder, annotations = make_decoder(), make_annotations(2)
    with torch.no_grad():
        decoder.output.bias[9] = 1e4
    inputs, targets, lengths = make_captions([[5, 3], [4, 2]])
    found = decoder(annotations, inputs, targets, lengths, own_words=1.0, generator=torch.Generator().manual_seed(0))
    fed = torch.full_like(inputs, 9)
    fed[..., 0] = 1
    expected = decoder(annotations, fed, targets, lengths)
    for row in range(4):
        assert_same_rows(found, row, expected, row)


def test_scheduled_sampling_changes_later_steps_but_not_the_first():
    decoder, annotations = make_decoder(), make_annotations(2)
    captions = make_captions([[6, 5], [6, 5]])
    forced = decoder(annotations, *captions)
    own = decoder(annotations, *captions, own_words=1.0, generator=torch.Generator().manual_seed(0))
    first = forced.time == 0
    torch.testing.assert_close(own.logits[first], forced.logits[first])
    assert not torch.allclose(own.logits[~first], forced.logits[~first])
    assert torch.equal(own.targets, forced.targets)


def test_scheduled_sampling_replaces_words_with_the_given_probability_by_the_models_distribution():
    words = torch.full((1, 20_000), 4)
    predicted = torch.zeros(1, 20_000, 11, dtype=torch.float64)
    predicted[..., 7], predicted[..., 8] = 0.75, 0.25
    mixed = mix_words(words, predicted, 0.4, torch.Generator().manual_seed(0))
    shares = torch.bincount(mixed.flatten(), minlength=11) / 20_000
    assert shares[[4, 7, 8]].tolist() == pytest.approx([0.6, 0.3, 0.1], abs=0.015)


@pytest.mark.parametrize("how", ["cells", "words"])
def test_the_same_seed_gives_the_same_samples(how):
    decoder, annotations = make_decoder(attention={"mode": "hard"}), make_annotations(2)
    captions = make_captions([[6, 5, 4], [6, 5, 4]])
    rows: dict[str, Any] = {"sampled": torch.ones(2, 3, dtype=torch.bool)} if how == "cells" else {"own_words": 0.5}

    def read(seed: int) -> TeacherForced:
        return decoder(annotations, *captions, generator=torch.Generator().manual_seed(seed), **rows)

    one, same, other = read(5), read(5), read(6)
    assert torch.equal(one.logits, same.logits)
    assert not torch.equal(one.logits, other.logits)
    if how == "cells":
        assert one.cell is not None and other.cell is not None and same.cell is not None
        assert torch.equal(one.cell, same.cell)
        assert not torch.equal(one.cell, other.cell)


DROPOUTS = [{"dropout": 0.5}, {"embedding_dropout": 0.5}, {"annotation_dropout": 0.5}, {"dropout": 0.5, "layers": 2}]


@pytest.mark.parametrize("settings", DROPOUTS, ids=str)
def test_dropout_is_active_only_in_train_mode(settings):
    decoder, annotations, captions = make_decoder(**settings), make_annotations(2), make_captions([[4], [3]])
    plain = make_decoder(**dict.fromkeys(settings, 0.0) | {"layers": settings.get("layers", 1)})
    torch.testing.assert_close(decoder(annotations, *captions).logits, plain(annotations, *captions).logits)
    decoder.train()
    torch.manual_seed(0)
    one, other = decoder(annotations, *captions).logits, decoder(annotations, *captions).logits
    assert not torch.allclose(one, other)
    torch.manual_seed(0)
    assert torch.equal(decoder(annotations, *captions).logits, one)


def test_dropout_before_the_output_layer_preserves_the_expectation():
    decoder = make_decoder(dropout=0.5)
    plain = decoder.logits(*(torch.ones(1, size, dtype=torch.float64) for size in (4, 7, 6)))
    decoder.train()
    torch.manual_seed(0)
    many = decoder.logits(*(torch.ones(40_000, size, dtype=torch.float64) for size in (4, 7, 6)))
    error = many.std(0) / 40_000**0.5
    assert ((many.mean(0) - plain[0]).abs() < 5 * error).all()


# --- wrong sizes ----------------------------------------------------------------------------------


def test_annotations_of_another_width_are_refused_with_both_widths():
    with pytest.raises(CaptionerError, match="width 6 do not fit a decoder built for 5"):
        make_decoder().begin(make_annotations(1, width=6))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("targets", (2, 3, 4), r"targets of size \(2, 3, 4\) .* \(2, 3, 5\): needed \(2, 3, 5\)"),
        ("lengths", (2, 2), r"lengths of size \(2, 2\) .* \(2, 3, 5\): needed \(2, 3\)"),
        ("annotations", (1, 9, 5), r"annotations of size \(1,\) .* \(2, 3, 5\): needed \(2,\)"),
        ("sampled", (2, 1), r"sampled of size \(2, 1\) .* \(2, 3, 5\): needed \(2, 3\)"),
        ("cells", (1, 3, 5), r"cells of size \(1, 3\) .* \(2, 3, 5\): needed \(2, 3\)"),
        ("cells", (2, 3, 4), r"captions of up to 5 words do not fit 4 steps"),
    ],
)
def test_captions_that_do_not_fit_are_refused_with_both_sizes(name, shape, message):
    inputs, targets, lengths = make_captions([[5, 3, 2], [4, 4, 1]])
    given = {"annotations": make_annotations(2), "inputs": inputs, "targets": targets, "lengths": lengths}
    given |= {"sampled": torch.ones(2, 3, dtype=torch.bool), "cells": torch.zeros(2, 3, 5, dtype=torch.long)}
    given[name] = torch.ones(shape, dtype=given[name].dtype)
    with pytest.raises(CaptionerError, match=message):
        make_decoder(attention={"mode": "hard"})(**given)


@pytest.mark.parametrize("length", [0, 6])
def test_lengths_outside_the_captions_are_refused(length):
    inputs, targets, lengths = make_captions([[5]])
    with pytest.raises(CaptionerError, match=f"up to {length} words do not fit 5 steps"):
        make_decoder()(make_annotations(1), inputs, targets, torch.full_like(lengths, length))
