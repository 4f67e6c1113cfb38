"""METEOR's four matchers: which words and phrases of a caption could stand for which of a reference."""

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
    """A sentence and where each of its words, stems and phrases stands in it."""

    words: list[str]

    @cached_property
    def places(self) -> dict[str, list[int]]:
        return _places(self.words)

    @cached_property
    def stem_places(self) -> dict[str, list[int]]:
        return _places(map(stem, self.words))

    @cached_property
    def phrases(self) -> list[tuple[int, int, int]]:
        return list(phrases(self.words))

    @cached_property
    def phrase_places(self) -> dict[int, list[tuple[int, int]]]:
        places: dict[int, list[tuple[int, int]]] = {}
        for start, length, number in self.phrases:
            places.setdefault(number, []).append((start, length))
        return places


def _places(words: Iterable[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for i, word in enumerate(words):
        places.setdefault(word, []).append(i)
    return places


@dataclass
class Matcher:
    """Finds the candidates for sentences of one corpus; what it looked up for one pair serves the next."""

    resources: Resources
    corpus_phrases: set[int]
    with_paraphrases: set[int]  # those of them that the table knows paraphrases of
    _paraphrases: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, resources: Resources, sentences: Iterable[Sentence]) -> Matcher:
        numbers = {number for s in sentences for _, _, number in phrases(s.words)}
        return cls(resources, numbers, resources.paraphrases.known(numbers))

    @classmethod
    def without_paraphrases(cls, resources: Resources) -> Matcher:
        """For any sentences, in a fraction of the time: the other three matchers alone."""
        return cls(resources, set(), set())

    def candidates(self, caption: Sentence, reference: Sentence) -> list[list[Match]]:
        """For each word of the reference the matches that begin there, in METEOR's order."""
        found: list[list[Match]] = []
        places, stem_places = caption.places, caption.stem_places
        senses = [(word, self.resources.senses(word)) for word in places]
        for j, word in enumerate(reference.words):
            here = [Match(j, 1, i, 1, EXACT) for i in places.get(word, ())]
            for i in stem_places.get(stem(word), ()):
                if caption.words[i] != word:
                    here.append(Match(j, 1, i, 1, STEM))
            own = self.resources.senses(word)
            if own:
                alike = [i for w, other in senses if w != word and not own.isdisjoint(other) for i in places[w]]
                here.extend(Match(j, 1, i, 1, SYNONYM) for i in sorted(alike))
            found.append(here)
        if not self.with_paraphrases:
            return found
        for ref, ref_length, number in filter(self._has_paraphrases, reference.phrases):
            for other in self._paraphrases_of(number):
                for start, length in caption.phrase_places.get(other, ()):
                    found[ref].append(Match(ref, ref_length, start, length, PARAPHRASE))
        for start, length, number in filter(self._has_paraphrases, caption.phrases):
            for other in self._paraphrases_of(number):
                for ref, ref_length in reference.phrase_places.get(other, ()):
                    found[ref].append(Match(ref, ref_length, start, length, PARAPHRASE))
        return found

    def _has_paraphrases(self, phrase: tuple[int, int, int]) -> bool:
        return phrase[2] in self.with_paraphrases

    def _paraphrases_of(self, number: int) -> list[int]:
        """In the table's order, those alone that occur in the corpus: a few of up to thousands."""
        if number not in self._paraphrases:
            everywhere = self.resources.paraphrases[number]
            self._paraphrases[number] = [n for n in everywhere if n in self.corpus_phrases]
        return self._paraphrases[number]
