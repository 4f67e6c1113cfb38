"""Every score equals pycocoevalcap's, and the values per image add up to it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from nltk.translate.bleu_score import corpus_bleu
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from captioner.errors import CaptionerError
from captioner.metrics import text_scores as scores_module
from captioner.metrics.cider import DocumentFrequencies
from captioner.metrics.meteor import MeteorUnavailableError
from captioner.metrics.text_scores import score
from captioner.text.tokenizer import tokenize

PURE = ("BLEU", "ROUGE-L", "CIDEr")

# Tokens already, so that pycocoevalcap's scorers see the same words without a tokenizer.
RESULTS = {
    "plain": "a man riding a wave on a surfboard",
    "one word": "dog",
    "empty": "",
    "unicode": "ein café in 東京 am morgen",
    "repeated": "a a a a a a",
    "equal references": "two dogs play in the snow",
    "short": "a bus",
    "unrelated": "purple elephants sing",
}
REFERENCES = {
    "plain": ["a man rides a wave on a surfboard", "a surfer riding a large wave", "man on a surfboard"],
    "one word": ["a dog", "the dog sits on a chair"],
    "empty": ["a cat on a sofa", "a cat sleeps"],
    "unicode": ["ein kleines café in 東京", "café am morgen in 東京"],
    "repeated": ["a dog and a cat", "a dog"],
    "equal references": ["two dogs playing in the snow"] * 5,
    "short": ["a red bus on the street", "a bus drives down a street in the city"],
    "unrelated": ["a man sits on a bench", "an old man on a bench"],
}


def pycocoevalcap_scores(
    results: dict[str, str], references: dict[str, list[str]]
) -> tuple[dict[str, float], dict[str, list[float]]]:
    listed = {image: [caption] for image, caption in results.items()}
    bleu, bleus = Bleu(4).compute_score(references, listed, verbose=0)
    rouge, rouges = Rouge().compute_score(references, listed)
    cider, ciders = Cider().compute_score(references, listed)
    names = ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr"]
    return (
        dict(zip(names, [*bleu, rouge, cider], strict=True)),
        dict(zip(names, [*bleus, rouges, ciders], strict=True)),
    )


def test_every_metric_equals_pycocoevalcaps_to_a_millionth() -> None:
    values, per_image = pycocoevalcap_scores(RESULTS, REFERENCES)
    ours = score(RESULTS, REFERENCES, metrics=PURE)
    assert list(ours.values) == list(values)
    for name, value in values.items():
        assert ours.values[name] == pytest.approx(100 * value, abs=1e-6)
        assert ours.metrics[name].per_image == pytest.approx(100 * np.array(per_image[name]), abs=1e-6)


@pytest.mark.parametrize("image", RESULTS)
def test_the_score_of_one_image_equals_pycocoevalcaps(image: str) -> None:
    results, references = {image: RESULTS[image]}, {image: REFERENCES[image]}
    values, _ = pycocoevalcap_scores(results, references)
    ours = score(results, references, metrics=PURE).values
    assert ours == pytest.approx({name: 100 * value for name, value in values.items()}, abs=1e-6)


def test_bleu_equals_nltks_if_captions_have_four_words_and_matches_of_every_order() -> None:
    """docs/metrics.md lists where the two differ."""
    results = {"a": "a man riding a wave on a surfboard", "b": "two dogs play in the snow", "c": "a red bus drives by"}
    references = {
        "a": ["a man riding a wave in the ocean", "a surfer on a big wave on a surfboard today"],
        "b": ["two dogs play in the deep white snow", "dogs in snow"],
        "c": ["a red bus drives down the street", "a bus"],
    }
    hypotheses = [text.split() for text in results.values()]
    tokens = [[text.split() for text in group] for group in references.values()]
    ours = score(results, references, metrics=["BLEU"])
    for n in range(1, 5):
        theirs = corpus_bleu(tokens, hypotheses, weights=(1 / n,) * n)
        assert ours.values[f"BLEU-{n}"] == pytest.approx(100 * theirs, abs=1e-6)


def test_nltk_counts_an_n_gram_for_a_caption_that_is_too_short_to_have_one() -> None:
    """The first documented difference: here BLEU-2 of the corpus loses a half in nltk's."""
    results, references = {"a": "a dog runs", "b": "dog"}, {"a": ["a dog runs"], "b": ["dog"]}
    theirs = corpus_bleu([[["a", "dog", "runs"]], [["dog"]]], [["a", "dog", "runs"], ["dog"]], weights=(0.5, 0.5))
    assert theirs == pytest.approx(math.sqrt(4 / 4 * 2 / 3))
    assert score(results, references, metrics=["BLEU-2"]).values["BLEU-2"] == pytest.approx(100, abs=1e-5)


def test_bleu_equals_a_hand_computed_example() -> None:
    # "the cat the cat on the mat" against "the cat is on the mat" and "there is a cat on the mat":
    # 7 words, right ones the x2 (no reference has three), cat, on, mat: 5 of 7.
    # Bigrams: the cat, on the, the mat, cat on are right once each: 4 of 6. The closest length is 7: no penalty.
    ours = score(
        {"i": "the cat the cat on the mat"},
        {"i": ["the cat is on the mat", "there is a cat on the mat"]},
        metrics=["BLEU"],
    ).values
    assert ours["BLEU-1"] == pytest.approx(100 * 5 / 7, abs=1e-5)
    assert ours["BLEU-2"] == pytest.approx(100 * math.sqrt(5 / 7 * 4 / 6), abs=1e-5)


def test_bleu_of_a_short_caption_has_the_brevity_penalty() -> None:
    # Both words right, 2 of 6: exp(1 - 6/2).
    ours = score({"i": "the cat"}, {"i": ["the cat is on the mat"]}, metrics=["BLEU-1"]).values
    assert ours == {"BLEU-1": pytest.approx(100 * math.exp(-2), abs=1e-5)}


def test_rouge_equals_a_hand_computed_example() -> None:
    # Longest common subsequence of "police killed the gunman" and "police kill the gunman": 3 of 4 and 4 words;
    # precision = recall = 3/4, hence F = 3/4 for any beta. Against "the gunman": P = 2/4, R = 2/2.
    # The best precision (3/4) and the best recall (1) count, beta = 1.2.
    first = score({"i": "police killed the gunman"}, {"i": ["police kill the gunman"]}, metrics=["ROUGE-L"])
    assert first.values["ROUGE-L"] == pytest.approx(75)
    both = score(
        {"i": "police killed the gunman"},
        {"i": ["police kill the gunman", "the gunman"]},
        metrics=["ROUGE-L"],
    )
    assert both.values["ROUGE-L"] == pytest.approx(100 * 2.44 * 0.75 / (1 + 1.44 * 0.75))


def test_a_perfect_caption_scores_the_maximum() -> None:
    texts = {"a": "a man riding a wave", "b": "two dogs play in snow", "c": "a red bus on a street"}
    ours = score(texts, {image: [text] for image, text in texts.items()}, metrics=(*PURE, "METEOR")).values
    assert ours["CIDEr"] == pytest.approx(1000)
    assert all(ours[f"BLEU-{n}"] == pytest.approx(100, abs=1e-4) for n in range(1, 5))
    assert ours["ROUGE-L"] == ours["METEOR"] == pytest.approx(100)


def test_an_unknown_word_does_not_match_even_itself() -> None:
    references = {"a": ["a <unk> on a <unk>"], "b": ["<unk>"]}
    ours = score({"a": "<unk> <unk>", "b": "<unk>"}, references, metrics=(*PURE, "METEOR"))
    assert all(value == pytest.approx(0, abs=1e-6) for value in ours.values.values())


def test_an_empty_caption_scores_0_even_against_an_empty_reference() -> None:
    ours = score({"a": "...", "b": "a dog"}, {"a": ["!"], "b": ["a dog"]}, metrics=PURE)
    assert [ours.metrics[name].per_image[0] for name in ours.metrics] == pytest.approx([0] * 6, abs=1e-6)
    assert any("1 of 2 captions are empty" in warning for warning in ours.warnings)


def test_the_statistics_of_the_images_give_the_score() -> None:
    for name, metric in score(RESULTS, REFERENCES, metrics=(*PURE, "METEOR")).metrics.items():
        together = float(metric.combine(metric.statistics.mean(axis=0)))
        assert together == pytest.approx(metric.value, abs=1e-3), name


def test_the_interval_equals_that_of_scoring_each_sample_of_images_again() -> None:
    """Compared with a plain bootstrap that scores each sample with pycocoevalcap."""
    generator = np.random.default_rng(3)
    images = list(RESULTS)
    bootstrap_scores: dict[str, list[float]] = {"BLEU-1": [], "ROUGE-L": []}
    for _ in range(400):
        sampled_images = generator.choice(images, size=len(images))
        results = {str(k): RESULTS[image] for k, image in enumerate(sampled_images)}
        references = {str(k): REFERENCES[image] for k, image in enumerate(sampled_images)}
        values, _ = pycocoevalcap_scores(results, references)
        for name, found in bootstrap_scores.items():
            found.append(100 * values[name])
    intervals = score(RESULTS, REFERENCES, metrics=("BLEU-1", "ROUGE-L")).intervals(samples=4000, seed=1)
    for name, found in bootstrap_scores.items():
        low, high = np.quantile(found, [0.025, 0.975])
        assert (intervals[name].low, intervals[name].high) == pytest.approx((low, high), abs=6)


def test_the_same_seed_gives_the_same_interval() -> None:
    ours = score(RESULTS, REFERENCES, metrics=PURE)
    assert ours.intervals(seed=4) == ours.intervals(seed=4) != ours.intervals(seed=5)


def test_a_system_does_not_differ_from_itself() -> None:
    ours = score(RESULTS, REFERENCES, metrics=PURE)
    for gap in ours.minus(ours).values():
        assert (gap.difference, gap.interval.low, gap.interval.high, gap.p) == (0, 0, 0, 1)


def test_a_system_that_is_better_on_every_image_is_significantly_better() -> None:
    images = {str(i): f"a number {i} and {i + 1} on a wall" for i in range(40)}
    references = {image: [text] for image, text in images.items()}
    worse = {image: " ".join(text.split()[:4]) for image, text in images.items()}
    good, bad = (score(system, references, metrics=PURE) for system in (images, worse))
    for name, gap in good.minus(bad).items():
        assert gap.difference == pytest.approx(good.values[name] - bad.values[name])
        assert gap.interval.low > 0 and gap.p == 0, name


def test_systems_with_different_images_are_an_error() -> None:
    some = score({"a": "a dog"}, {"a": ["a dog"]}, metrics=["BLEU"])
    other = score({"b": "a dog"}, {"b": ["a dog"]}, metrics=["BLEU"])
    with pytest.raises(CaptionerError, match="same images"):
        some.minus(other)


def test_few_images_give_a_warning_unless_a_larger_corpus_gives_the_weights() -> None:
    texts = [[tokenize(text) for text in group] for group in REFERENCES.values()]
    frequencies = DocumentFrequencies.of(texts)
    assert any("CIDEr is unreliable on 8 images" in w for w in score(RESULTS, REFERENCES, metrics=PURE).warnings)
    larger = score(RESULTS, REFERENCES, metrics=["CIDEr"], reference_stats=frequencies)
    assert not any("CIDEr" in warning for warning in larger.warnings)
    assert larger.values == pytest.approx(score(RESULTS, REFERENCES, metrics=["CIDEr"]).values, abs=1e-6)


def test_a_metric_without_its_files_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MeteorUnavailableError("METEOR needs a file")

    monkeypatch.setattr("captioner.metrics.meteor.meteor_statistics", fail)
    monkeypatch.setattr("captioner.metrics.spice.shutil.which", lambda _: None)
    ours = score(RESULTS, REFERENCES)
    assert ours.unavailable == {
        "METEOR": "METEOR needs a file",
        "SPICE": "needs Java, which is not on the path",
    }
    assert "METEOR" not in ours.values and "SPICE" not in ours.values


def test_captions_without_references_and_unknown_metrics_are_errors() -> None:
    with pytest.raises(CaptionerError, match="2 captions have no reference"):
        score({"a": "x", "b": "y", "c": "z"}, {"a": ["x"], "b": []})
    with pytest.raises(CaptionerError, match="no captions"):
        score({}, {})
    with pytest.raises(CaptionerError, match="Did you mean 'CIDEr'"):
        score({"a": "x"}, {"a": ["x"]}, metrics=["CIDER"])


def test_scores_have_the_standard_order() -> None:
    assert [*score(RESULTS, REFERENCES, metrics=("CIDEr", "BLEU")).values] == [
        name for name in scores_module.METRICS if name.startswith(("BLEU", "CIDEr"))
    ]
