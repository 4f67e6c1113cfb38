"""Beam search in JavaScript against Python's, over a model that is a table: both get the very same numbers.

The table has one row of log-probabilities per state. A word leads from one state to the next by whole numbers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from captioner.captioning import Captioner
from captioner.errors import UsageError
from captioner.inference.backend import Annotations, State, Step
from captioner.inference.search import force, search
from captioner.options import BackendLabel
from captioner.text.vocabulary import SPECIAL, Vocabulary
from captioner.web.web_folder import _search_table

STATES, CELLS = 53, 6
WORDS = ("a", "the", "cat", "dog", "mat", "ball", "runs", "on")
VOCABULARY = Vocabulary(SPECIAL + WORDS, frozenset({"a", "the"}))
SEARCH = """const { Vocabulary, createConstraints } = await import("./constraints.js");
const { beamSearch } = await import("./beam_search.js");
const { searchOptions } = await import("./search_options.js");
const [table, alphas, vocabularyData, searchTable, cases] = args, vocabulary = new Vocabulary(vocabularyData);
const backend = {
  begin: async () => [0],
  step: async (states, words) => {
    const next = states.map((state, k) => (state * 31 + words[k] * 7 + 1) % table.length);
    return { scores: next.map((state) => Float32Array.from(table[state])), alphas: next.map((state) => alphas[state]),
      gates: next.map((state) => state / table.length), cells: null, state: next };
  },
  select: (states, parents) => parents.map((parent) => states[parent]),
};
const results = [];
for (const given of cases) {
  const options = searchOptions(searchTable, given);
  results.push(await beamSearch(backend, null, options, createConstraints(options, vocabulary), { topWords: 5 }));
}
return results;"""


@dataclass
class TableBackend:
    """The same model for Python's search."""

    table: NDArray[np.float32]  # (states, words)
    alphas: NDArray[np.float32]  # (states, cells)
    vocabulary: Vocabulary = VOCABULARY
    image_size: int = 8
    rows: int = 2
    cols: int = 3
    hard: bool = False
    one_by_one: bool = False
    name: BackendLabel = "onnx"

    def encode(self, pixels: NDArray[np.uint8], *, keys: bool = True) -> Annotations:
        raise NotImplementedError

    def begin(self, annotations: Annotations, hard_attention: Any = None, seed: int = 0) -> State:
        return State({}, {"state": np.zeros((len(annotations.values), 1), np.int64)})

    def step(self, state: State, words: NDArray[np.int64]) -> Step:
        after = (state.own["state"] * 31 + words * 7 + 1) % len(self.table)
        own = {"state": after}
        return Step(self.table[after].copy(), replace(state, own=own), self.alphas[after], after / np.float32(STATES))

    def select_hypotheses(self, state: State, parents: NDArray[np.int64]) -> State:
        rows = np.arange(len(parents))[:, None]
        return replace(state, own={"state": state.own["state"][rows, parents]})

    def select_images(self, state: State, images: NDArray[np.int64]) -> State:
        return replace(state, own={"state": state.own["state"][images]})


def table_backend(seed: int) -> TableBackend:
    generator = np.random.default_rng(seed)
    logits = 2 * generator.standard_normal((STATES, len(VOCABULARY)))
    table = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return TableBackend(table.astype(np.float32), generator.dirichlet(np.ones(CELLS), STATES).astype(np.float32))


def random_options(choose: random.Random) -> dict[str, Any]:
    """Options that make sense together most of the time."""
    beam = choose.randint(1, 7)
    options: dict[str, Any] = {
        "beam": beam,
        "n_best": choose.randint(1, beam),
        "length_power": choose.choice([0.0, 0.5, 0.7, 1.0, 2.0]),
        "min_length": choose.choice([0, 1, 1, 3, 5]),
        "max_length": choose.choice([5, 8, 12]),
        "repeat_penalty": choose.choice([0.0, 0.7, 2.0]),
        "no_repeat": choose.choice([0, 0, 1, 2, 3]),
        "allow_unknown": choose.random() < 0.3,
        "forbidden": choose.sample(WORDS, choose.choice([0, 0, 1, 3])),
    }
    if choose.random() < 0.4:
        options["required"] = [choose.sample(WORDS, choose.randint(1, 2)) for _ in range(choose.randint(1, 3))]
    return options


@pytest.mark.parametrize("seed", range(4))
def test_beam_search_gives_pythons_hypotheses_for_random_options(scripts: Any, seed: int):
    choose, backend = random.Random(seed), table_backend(seed)
    captioner = Captioner(backend)
    cases: list[dict[str, Any]] = []
    expected = []
    while len(cases) < 120:
        options = random_options(choose)
        try:
            found = search(backend, Annotations(np.zeros((1, 1, 1)), 2, 3), captioner.options(**options))[0]
        except UsageError:  # a word that is required and forbidden
            continue
        expected.append(found)
        cases.append({_camel(name): value for name, value in options.items()})
    data = {"words": list(VOCABULARY.words), "recurring": sorted(VOCABULARY.recurring)}
    results = scripts(
        SEARCH, backend.table.tolist(), backend.alphas.tolist(), data, _search_table(captioner.defaults), cases
    )
    assert sum(len(found) for found in expected) > 200 and any(not found for found in expected) == any(
        not found for found in results
    )
    for options, hypotheses, result in zip(cases, expected, results, strict=True):
        assert [words_of(found) for found in result] == [h.words for h in hypotheses], options
        for hypothesis, found in zip(hypotheses, result, strict=True):
            assert found["ended"] == hypothesis.ended
            assert found["score"] == pytest.approx(hypothesis.score, rel=1e-12)
            steps = found["steps"]
            assert [step["logProbability"] for step in steps] == hypothesis.log_probabilities.tolist()
            assert np.array_equal(np.array([step["alpha"] for step in steps], np.float32), hypothesis.alphas)
            assert [step["gate"] for step in steps] == pytest.approx(hypothesis.gates.tolist())
        # What else could have been said: the likeliest words after the same words, whatever the constraints.
        lists = [[h.words for h in hypotheses]]
        (forced,) = force(backend, Annotations(np.zeros((1, 1, 1)), 2, 3), lists, top_words=5)
        for given, found in zip(forced, result, strict=True):
            likeliest = [step.get("likeliest") for step in found["steps"]]
            if found["ended"]:
                assert likeliest.pop() is None
            for expected_words, words in zip(given.likeliest, likeliest, strict=False):
                assert [word for word, _ in words] == [word for word, _ in expected_words]
                assert [p for _, p in words] == pytest.approx([p for _, p in expected_words], rel=1e-6)


def words_of(found: dict[str, Any]) -> tuple[int, ...]:
    words = [step["word"] for step in found["steps"]]
    return tuple(words[:-1] if found["ended"] else words)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
