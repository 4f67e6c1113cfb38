"""The field's scores of captions against references: BLEU, ROUGE-L, CIDEr, METEOR, SPICE, times 100.

BLEU, ROUGE-L and CIDEr are computed by pycocoevalcap, on the tokens of `captioner.text.tokenizer`. Each score keeps
its per-image parts, so that images can be resampled and the best and worst can be shown.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from captioner.errors import CaptionerError, unknown
from captioner.metrics.bootstrap import SAMPLES, Difference, Interval, difference, interval, resample
from captioner.metrics.cider import CiderReward, DocumentFrequencies
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import UNK

if TYPE_CHECKING:
    from numpy.typing import NDArray

METRICS = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr", "SPICE")
FEW_IMAGES = 500

NEVER = "\ue000"  # stands for <unk>, which must match nothing


@dataclass(frozen=True)
class Score:
    """One metric: its value, each image's own, and the statistics whose mean over the images makes the value."""

    value: float
    per_image: NDArray[np.float64]
    statistics: NDArray[np.float64] = field(repr=False)
    combine: Callable[[NDArray[np.float64]], NDArray[np.float64]] = field(repr=False)


@dataclass(frozen=True)
class Scores:
    """The scores of one system; those that could not be had, with the reason; what to know about them."""

    images: tuple[str, ...]
    metrics: dict[str, Score]
    unavailable: dict[str, str]
    warnings: tuple[str, ...]

    @property
    def values(self) -> dict[str, float]:
        return {name: score.value for name, score in self.metrics.items()}

    def draws(self, *, samples: int = SAMPLES, seed: int = 0) -> dict[str, NDArray[np.float64]]:
        """Each metric's value on sets of images drawn from these with replacement, the same sets for all."""
        distinct = {id(s.statistics): s.statistics for s in self.metrics.values()}
        if not distinct:
            return {}
        widths = np.cumsum([s.shape[1] for s in distinct.values()])[:-1]
        means = resample(np.hstack(list(distinct.values())), samples=samples, seed=seed)
        parts = dict(zip(distinct, np.split(means, widths, axis=1), strict=True))
        return {name: s.combine(parts[id(s.statistics)]) for name, s in self.metrics.items()}

    def intervals(self, *, samples: int = SAMPLES, seed: int = 0) -> dict[str, Interval]:
        """Where each value lies for 95 % of such sets."""
        return {name: interval(values) for name, values in self.draws(samples=samples, seed=seed).items()}

    def minus(self, other: Scores, *, samples: int = SAMPLES, seed: int = 0) -> dict[str, Difference]:
        """How much higher this system scores than another on the same images, metric by metric."""
        if self.images != other.images:
            raise CaptionerError("two systems can only be compared on the same images, in the same order")
        ours, theirs = (system.draws(samples=samples, seed=seed) for system in (self, other))
        return {
            name: difference(ours[name], theirs[name], self.values[name] - other.values[name])
            for name in ours
            if name in theirs
        }


def score(
    results: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    metrics: Sequence[str] = METRICS,
    reference_stats: DocumentFrequencies | None = None,
) -> Scores:
    """Score one caption for each image against the image's references.

    Both are plain text, by image. Every result needs at least one reference; references of other images are not
    looked at, CIDEr's document frequencies included. `metrics` are names; "BLEU" is all four.
    """
    wanted = _wanted(metrics)
    if not results:
        raise CaptionerError("there are no captions to score")
    missing = [image for image in results if not references.get(image)]
    if missing:
        raise CaptionerError(f"{len(missing)} captions have no reference, that of image {missing[0]} for one")
    caption_tokens = {i: [NEVER if t == UNK else t for t in tokenize(c)] for i, c in results.items()}
    reference_tokens = {i: [tokenize(text) for text in references[i]] for i in results}
    captions = {i: " ".join(tokens) for i, tokens in caption_tokens.items()}
    texts = {i: [" ".join(tokens) for tokens in group] for i, group in reference_tokens.items()}

    found: dict[str, Score] = {}
    unavailable: dict[str, str] = {}
    if any(name.startswith("BLEU") for name in wanted):
        found |= _bleu(captions, texts)
    if "METEOR" in wanted:
        _meteor(captions, texts, found, unavailable)
    if "ROUGE-L" in wanted:
        found["ROUGE-L"] = _mean_score(_rouge(captions, texts))
    if "CIDEr" in wanted:
        if reference_stats is None:
            values = _cider(captions, texts)
        else:
            values = CiderReward(reference_tokens, reference_stats)(list(caption_tokens.values()), list(results))
        found["CIDEr"] = _mean_score(values)
    if "SPICE" in wanted:
        _spice(captions, texts, found, unavailable)
    return Scores(
        tuple(results),
        {name: found[name] for name in METRICS if name in found and name in wanted},
        unavailable,
        tuple(_cautions(found, len(results), caption_tokens, reference_stats)),
    )


def _wanted(metrics: Sequence[str]) -> list[str]:
    wanted = []
    for name in metrics:
        if name not in (*METRICS, "BLEU"):
            raise unknown("metric", name, ("BLEU", *METRICS))
        wanted += [m for m in METRICS if m == name or m.startswith(f"{name}-")]
    return wanted


def _cautions(
    found: Mapping[str, Score],
    images: int,
    captions: Mapping[str, list[str]],
    reference_stats: DocumentFrequencies | None,
) -> list[str]:
    cautions = []
    if "CIDEr" in found and reference_stats is None and images < FEW_IMAGES:
        cautions.append(
            f"CIDEr is unreliable on {images} image{'s' if images > 1 else ''}: it weighs words by how many of "
            f"the images they occur with. Give the weights of a larger corpus (--reference-stats)."
        )
    empty = sum(not tokens for tokens in captions.values())
    if empty:
        cautions.append(f"{empty} of {images} captions are empty; they score 0.")
    return cautions


def _mean_score(values: NDArray[np.float64]) -> Score:
    hundredfold = 100 * np.asarray(values, np.float64)
    return Score(float(hundredfold.mean()), hundredfold, hundredfold[:, None], lambda means: means[..., 0])


def _bleu(captions: Mapping[str, str], references: Mapping[str, list[str]]) -> dict[str, Score]:
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer

    scorer = BleuScorer(n=4)
    for image, caption in captions.items():
        scorer += (caption, references[image])
    values, per_image = scorer.compute_score(option="closest")
    statistics = np.array(
        [
            [part["testlen"], min((abs(n - part["testlen"]), n) for n in part["reflen"])[1]]
            + part["guess"]
            + part["correct"]
            for part in scorer.ctest
        ],
        np.float64,
    )
    return {
        f"BLEU-{n}": Score(
            100 * values[n - 1],
            100 * np.array(per_image[n - 1]),
            statistics,
            partial(_bleu_of, n=n),
        )
        for n in range(1, 5)
    }


def _bleu_of(means: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """BLEU-n from mean lengths (caption, reference), numbers of n-grams and of right ones; ratios only."""
    length, reference_length = means[..., 0], means[..., 1]
    guesses, correct = means[..., 2 : 2 + n], means[..., 6 : 6 + n]
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.exp(np.log(correct / guesses).mean(axis=-1))
        brevity = np.exp(np.minimum(0.0, 1 - reference_length / length))
        bleu: NDArray[np.float64] = np.nan_to_num(100 * precision * brevity)
    return bleu


def _rouge(captions: Mapping[str, str], references: Mapping[str, list[str]]) -> NDArray[np.float64]:
    from pycocoevalcap.rouge.rouge import Rouge

    # To that scorer an empty text has one word, the empty one, which it may find in an empty reference.
    rouge = Rouge()
    return np.array([rouge.calc_score([c], references[i]) if c else 0.0 for i, c in captions.items()])


def _cider(captions: Mapping[str, str], references: Mapping[str, list[str]]) -> NDArray[np.float64]:
    from pycocoevalcap.cider.cider import Cider

    _, values = Cider().compute_score(dict(references), {i: [c] for i, c in captions.items()})
    return np.asarray(values, np.float64)


def _meteor(
    captions: Mapping[str, str],
    references: Mapping[str, list[str]],
    found: dict[str, Score],
    unavailable: dict[str, str],
) -> None:
    from captioner.metrics.meteor import MeteorUnavailableError, meteor_scores, meteor_statistics

    try:
        statistics = meteor_statistics(captions, references)
    except MeteorUnavailableError as error:
        unavailable["METEOR"] = str(error)
        return
    found["METEOR"] = Score(
        float(100 * meteor_scores(statistics.sum(axis=0))),
        100 * meteor_scores(statistics),
        statistics,
        lambda means: 100 * meteor_scores(means),
    )


def _spice(
    captions: Mapping[str, str],
    references: Mapping[str, list[str]],
    found: dict[str, Score],
    unavailable: dict[str, str],
) -> None:
    from captioner.metrics.spice import spice_missing, spice_scores

    reason = spice_missing()
    if reason is None:
        try:
            found["SPICE"] = _mean_score(spice_scores(captions, references))
            return
        except (subprocess.CalledProcessError, OSError, ValueError, KeyError) as error:
            reason = f"its Java program failed ({error})"
    unavailable["SPICE"] = reason
