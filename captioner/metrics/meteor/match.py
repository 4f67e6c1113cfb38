"""METEOR's four matchers: which words and phrases of a caption may match which of a reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from captioner.metrics.meteor.align import Match
from captioner.metrics.meteor.resources import Resources, phrases
from captioner.metrics.meteor.stem import stem

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)


@dataclass
class Sentence:
    """A sentence and the positions of its words, stems and phrases."""

    words: list[str]

    @cached_property
    def positions(self) -> dict[str, list[int]]:
        return _positions(self.words)

    @cached_property
    def stem_positions(self) -> dict[str, list[int]]:
        return _positions(map(stem, self.words))

    @cached_property
    def phrases(self) -> list[tuple[int, int, int]]:
        return list(phrases(self.words))

    @cached_property
    def phrase_positions(self) -> dict[int, list[tuple[int, int]]]:
        positions: dict[int, list[tuple[int, int]]] = {}
        for start, length, number in self.phrases:
            positions.setdefault(number, []).append((start, length))
        return positions


def _positions(words: Iterable[str]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for i, word in enumerate(words):
        positions.setdefault(word, []).append(i)
    return positions


@dataclass
class Matcher:
    """Finds candidate matches for the sentences of one corpus. Paraphrases are looked up once per corpus."""

    resources: Resources
    corpus_phrases: set[int]
    with_paraphrases: set[int]  # the phrases of the corpus that have paraphrases
    _paraphrases: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, resources: Resources, sentences: Iterable[Sentence]) -> Matcher:
        """All four matchers, for these sentences only."""
        numbers = {number for s in sentences for _, _, number in phrases(s.words)}
        return cls(resources, numbers, resources.paraphrases.known(numbers))

    @classmethod
    def without_paraphrases(cls, resources: Resources) -> Matcher:
        """Exact words, stems and synonyms only: works for any sentences and takes a fraction of the time."""
        return cls(resources, set(), set())

    def candidates(self, caption: Sentence, reference: Sentence) -> list[list[Match]]:
        """For each word of the reference, the matches that begin there, in METEOR's order."""
        candidates: list[list[Match]] = []
        positions, stem_positions = caption.positions, caption.stem_positions
        senses = [(word, found) for word in positions if (found := self.resources.senses(word))]
        for j, word in enumerate(reference.words):
            matches = [Match(j, 1, i, 1, EXACT) for i in positions.get(word, ())]
            for i in stem_positions.get(stem(word), ()):
                if caption.words[i] != word:
                    matches.append(Match(j, 1, i, 1, STEM))
            word_senses = self.resources.senses(word)
            if word_senses:
                synonyms = [
                    i for w, other in senses if w != word and not word_senses.isdisjoint(other) for i in positions[w]
                ]
                matches.extend(Match(j, 1, i, 1, SYNONYM) for i in sorted(synonyms))
            candidates.append(matches)
        if not self.with_paraphrases:
            return candidates
        for ref, ref_length, number in filter(self._has_paraphrases, reference.phrases):
            for paraphrase in self._paraphrases_of(number):
                for start, length in caption.phrase_positions.get(paraphrase, ()):
                    candidates[ref].append(Match(ref, ref_length, start, length, PARAPHRASE))
        for start, length, number in filter(self._has_paraphrases, caption.phrases):
            for paraphrase in self._paraphrases_of(number):
                for ref, ref_length in reference.phrase_positions.get(paraphrase, ()):
                    candidates[ref].append(Match(ref, ref_length, start, length, PARAPHRASE))
        return candidates

    def _has_paraphrases(self, phrase: tuple[int, int, int]) -> bool:
        return phrase[2] in self.with_paraphrases

    def _paraphrases_of(self, number: int) -> list[int]:
        """Paraphrases that occur in the corpus, in the table's order: a few of up to thousands."""
        if number not in self._paraphrases:
            paraphrases = self.resources.paraphrases[number]
            self._paraphrases[number] = [n for n in paraphrases if n in self.corpus_phrases]
        return self._paraphrases[number]
