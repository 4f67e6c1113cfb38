"""BLEU-4 and METEOR as rewards, compared with other implementations."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from pycocoevalcap.bleu.bleu_scorer import BleuScorer

from captioner.metrics import meteor
from captioner.metrics.meteor.resources import Table, is_installed, load_resources
from captioner.metrics.rewards import BleuReward, MeteorReward, ObjectReward, RepetitionReward
from captioner.text.vocabulary import SPECIAL, Vocabulary

OWN = ("a", "the", "man", "men", "dog", "big", "large", "runs", "running", "run", "grass", "frisbee", "throws")
VOCABULARY = Vocabulary((*SPECIAL, *OWN))
WORDS, END, UNK = VOCABULARY.words, VOCABULARY.end, VOCABULARY.unk
Tokens = list[list[int]]


def corpus(images: int = 8, captions: int = 4) -> tuple[list[Tokens], Tokens, list[int]]:
    """References of each image, and captions of whole, cut and mixed references, each with its image."""
    chance = random.Random(3)
    references = [
        [[chance.randrange(len(SPECIAL), len(WORDS)) for _ in range(chance.randint(1, 12))] for _ in range(5)]
        for _ in range(images)
    ]
    said, owners = [], []
    for image, group in enumerate(references):
        for _ in range(captions):
            one, other = chance.sample(group, 2)
            said.append((one[: chance.randint(0, len(one))] + other)[: chance.randint(1, 12)])
            owners.append(image)
    return references, said, owners


def test_bleu_is_computed_from_the_counts_of_pycocoevalcap() -> None:
    references, said, owners = corpus()
    found = BleuReward(references, end=END)(said, owners)
    scorer = BleuScorer(n=4)
    for caption, image in zip(said, owners, strict=True):
        scorer += (" ".join(map(str, [*caption, END])), [" ".join(map(str, [*r, END])) for r in references[image]])
    for part, value in zip(scorer.ctest, found, strict=True):
        correct, guess = np.array(part["correct"], float), np.array(part["guess"], float)
        added = np.array([0, 1, 1, 1])
        precisions = (correct + added) / (guess + added)
        closest = min(part["reflen"], key=lambda n: (abs(n - part["testlen"]), n))
        brevity = min(1.0, np.exp(1 - closest / part["testlen"]))
        assert value == pytest.approx(brevity * np.prod(precisions) ** 0.25)
    assert len({round(value, 6) for value in found}) > 10


def test_bleu_equals_nltks_sentence_bleu_with_add_one_smoothing() -> None:
    references, said, owners = corpus()
    pairs = [(caption, image) for caption, image in zip(said, owners, strict=True) if len(caption) >= 3]
    assert len(pairs) > 20
    values = BleuReward(references, end=END)([caption for caption, _ in pairs], [image for _, image in pairs])
    for value, (caption, image) in zip(values, pairs, strict=True):
        ended = [[*reference, END] for reference in references[image]]
        expected = sentence_bleu(ended, [*caption, END], smoothing_function=SmoothingFunction().method2)
        assert value == pytest.approx(expected, rel=1e-12)


def test_bleu_ranks_complete_cut_short_wrong_and_empty_captions() -> None:
    reward = BleuReward([[[4, 5, 6, 7, 8], [4, 5, 6]]], end=END)
    captions = [[4, 5, 6, 7, 8], [4, 5, 6, 7], [4, 5], [9, 10, 11], []]
    whole, broken_off, short, wrong, empty = reward(captions, [0] * len(captions))
    assert whole == pytest.approx(1.0)
    assert whole > broken_off > short > wrong > empty == 0.0


needs_meteor = pytest.mark.skipif(not is_installed(), reason="METEOR's files are not installed")


@needs_meteor
def test_meteor_equals_the_score_without_paraphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    references, said, owners = corpus()
    found = MeteorReward(references, VOCABULARY)(said, owners)
    nothing = np.zeros(0, np.int64)
    bare = replace(load_resources(), paraphrases=Table(nothing, np.zeros(1, np.int32), nothing))
    monkeypatch.setattr(meteor, "load_resources", lambda: bare)
    texts = {str(k): " ".join(WORDS[t] for t in caption) for k, caption in enumerate(said)}
    groups = {str(k): [" ".join(WORDS[t] for t in r) for r in references[image]] for k, image in enumerate(owners)}
    expected = meteor.meteor_scores(meteor.meteor_statistics(texts, groups))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert len({round(value, 6) for value in found}) > 10


@needs_meteor
def test_meteor_matches_stems_and_synonyms() -> None:
    reference, stem, synonym, other, nothing = (
        [WORDS.index(word) for word in text.split()]
        for text in ("a big dog runs", "a big dog running", "a large dog runs", "a frisbee dog runs", "")
    )
    found = MeteorReward([[reference]], VOCABULARY)([reference, stem, synonym, other, nothing], [0] * 5)
    assert found[0] == pytest.approx(1.0)
    assert found[0] > found[2] > found[3] > found[4] == 0.0
    assert found[1] > found[3]


@needs_meteor
def test_an_unknown_word_of_a_reference_matches_nothing() -> None:
    dog, big, runs, grass = (WORDS.index(word) for word in ("dog", "big", "runs", "grass"))
    unknown, other = ([[big, x, dog, runs]] for x in (UNK, grass))
    found = MeteorReward([unknown, other, [[UNK, UNK]]], VOCABULARY)([[big, dog, runs]] * 3, [0, 1, 2])
    assert found[0] == pytest.approx(found[1])
    assert found[0] > found[2] == 0.0


def test_objects_in_the_boxes_pay_and_objects_that_are_not_there_cost() -> None:
    vocabulary = Vocabulary.build(["a puppy and a man on a bench with a cat and a dog near a car"], minimum_count=1)
    references = [[vocabulary.encode("a dog on a bench")], [vocabulary.encode("a dog")]]
    boxed = [["dog", "person"], []]
    reward = ObjectReward(references, vocabulary, lambda image: boxed[image], ["dog", "person", "bench", "cat", "car"])
    captions = [
        ("a dog and a man", 0, 2),
        ("a puppy and a dog", 0, 1),  # one category
        ("a man on a bench", 0, 1),  # a reference has the bench: it costs nothing
        ("a cat and a dog near a car", 0, -1),
        ("a cat", 1, 0),  # the image has no boxes
        ("", 0, 0),
    ]
    found = reward([vocabulary.encode(text) for text, _, _ in captions], [image for _, image, _ in captions])
    assert found.tolist() == [value for _, _, value in captions]
    weighted = ObjectReward(
        references, vocabulary, lambda image: boxed[image], reward.labels, present=0.25, invented=2.0
    )
    assert weighted([vocabulary.encode("a cat and a dog near a car")], [0]).tolist() == [0.25 - 2 * 2.0]


def test_every_repeated_noun_costs() -> None:
    vocabulary = Vocabulary.build(["a dog and a dog and a dog on a white couch near a street"], minimum_count=1)
    texts = ["a dog on a couch", "a dog and a dog and a dog", "a street near a street", "a white white dog"]
    found = RepetitionReward(vocabulary)([vocabulary.encode(text) for text in texts], [0] * 4)
    assert found.tolist() == [0, -2, -1, 0]
