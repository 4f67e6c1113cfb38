"""The standard scores of captions against references, times 100: BLEU, METEOR, ROUGE-L, CIDEr, SPICE.

pycocoevalcap computes BLEU, ROUGE-L and CIDEr, on the tokens of `captioner.text.tokenizer`. Each score keeps its
values per image: the bootstrap resamples them, and reports show the best and worst images.
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

UNMATCHABLE = "\ue000"  # replaces <unk>, which must match nothing


@dataclass(frozen=True)
class Score:
    """One metric: its value, the value of each image, and the statistics whose mean over images gives the value."""

    value: float
    per_image: NDArray[np.float64]
    statistics: NDArray[np.float64] = field(repr=False)
    combine: Callable[[NDArray[np.float64]], NDArray[np.float64]] = field(repr=False)


@dataclass(frozen=True)
class Scores:
    """The scores of one system, the metrics that are unavailable with the reason, and warnings."""

    images: tuple[str, ...]
    metrics: dict[str, Score]
    unavailable: dict[str, str]
    warnings: tuple[str, ...]

    @property
    def values(self) -> dict[str, float]:
        return {name: score.value for name, score in self.metrics.items()}

    def bootstrap_values(self, *, samples: int = SAMPLES, seed: int = 0) -> dict[str, NDArray[np.float64]]:
        """The value of each metric on bootstrap samples of the images. All metrics use the same samples."""
        distinct = {id(s.statistics): s.statistics for s in self.metrics.values()}
        if not distinct:
            return {}
        widths = np.cumsum([s.shape[1] for s in distinct.values()])[:-1]
        means = resample(np.hstack(list(distinct.values())), samples=samples, seed=seed)
        parts = dict(zip(distinct, np.split(means, widths, axis=1), strict=True))
        return {name: s.combine(parts[id(s.statistics)]) for name, s in self.metrics.items()}

    def intervals(self, *, samples: int = SAMPLES, seed: int = 0) -> dict[str, Interval]:
        """The 95 % interval of each metric."""
        return {name: interval(values) for name, values in self.bootstrap_values(samples=samples, seed=seed).items()}

    def minus(self, other: Scores, *, samples: int = SAMPLES, seed: int = 0) -> dict[str, Difference]:
        """How much higher this system scores than another on the same images, per metric."""
        if self.images != other.images:
            raise CaptionerError("two systems can only be compared on the same images in the same order")
        ours, theirs = (system.bootstrap_values(samples=samples, seed=seed) for system in (self, other))
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
    """Score one caption per image against the references of the image. Both are plain text.

    Every caption needs at least one reference. References of images without a caption are ignored, also for CIDEr's
    document frequencies. `metrics` are names; "BLEU" means all four.
    """
    wanted = _wanted(metrics)
    if not results:
        raise CaptionerError("there are no captions to score")
    missing = [image for image in results if not references.get(image)]
    if missing:
        raise CaptionerError(
            f"{len(missing)} captions have no reference, for example the caption of image {missing[0]}"
        )
    caption_tokens = {i: [UNMATCHABLE if t == UNK else t for t in tokenize(c)] for i, c in results.items()}
    reference_tokens = {i: [tokenize(text) for text in references[i]] for i in results}
    captions = {i: " ".join(tokens) for i, tokens in caption_tokens.items()}
    texts = {i: [" ".join(tokens) for tokens in group] for i, group in reference_tokens.items()}

    scores: dict[str, Score] = {}
    unavailable: dict[str, str] = {}
    if any(name.startswith("BLEU") for name in wanted):
        scores |= _bleu(captions, texts)
    if "METEOR" in wanted:
        _meteor(captions, texts, scores, unavailable)
    if "ROUGE-L" in wanted:
        scores["ROUGE-L"] = _mean_score(_rouge(captions, texts))
    if "CIDEr" in wanted:
        if reference_stats is None:
            values = _cider(captions, texts)
        else:
            values = CiderReward(reference_tokens, reference_stats)(list(caption_tokens.values()), list(results))
        scores["CIDEr"] = _mean_score(values)
    if "SPICE" in wanted:
        _spice(captions, texts, scores, unavailable)
    return Scores(
        tuple(results),
        {name: scores[name] for name in METRICS if name in scores and name in wanted},
        unavailable,
        tuple(_warnings(scores, len(results), caption_tokens, reference_stats)),
    )


def _wanted(metrics: Sequence[str]) -> list[str]:
    wanted = []
    for name in metrics:
        if name not in (*METRICS, "BLEU"):
            raise unknown("metric", name, ("BLEU", *METRICS))
        wanted += [m for m in METRICS if m == name or m.startswith(f"{name}-")]
    return wanted


def _warnings(
    scores: Mapping[str, Score],
    images: int,
    captions: Mapping[str, list[str]],
    reference_stats: DocumentFrequencies | None,
) -> list[str]:
    warnings = []
    if "CIDEr" in scores and reference_stats is None and images < FEW_IMAGES:
        warnings.append(
            f"CIDEr is unreliable on {images} image{'s' if images > 1 else ''}: it weights words by the number of "
            f"images whose references contain them. Give the statistics of a larger corpus (--reference-stats)."
        )
    empty = sum(not tokens for tokens in captions.values())
    if empty:
        warnings.append(f"{empty} of {images} captions are empty; they score 0.")
    return warnings


def _mean_score(values: NDArray[np.float64]) -> Score:
    percent = 100 * np.asarray(values, np.float64)
    return Score(float(percent.mean()), percent, percent[:, None], lambda means: means[..., 0])


def _bleu(captions: Mapping[str, str], references: Mapping[str, list[str]]) -> dict[str, Score]:
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer

    scorer = BleuScorer(n=4)
    for image, caption in captions.items():
        scorer += (caption, references[image])
    values, per_image = scorer.compute_score(option="closest")
    statistics = np.array(
        [
            [counts["testlen"], min((abs(n - counts["testlen"]), n) for n in counts["reflen"])[1]]
            + counts["guess"]
            + counts["correct"]
            for counts in scorer.ctest
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
    """BLEU-n from means over images: lengths of caption and reference, numbers of n-grams, numbers of matches."""
    length, reference_length = means[..., 0], means[..., 1]
    guesses, correct = means[..., 2 : 2 + n], means[..., 6 : 6 + n]
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.exp(np.log(correct / guesses).mean(axis=-1))
        brevity = np.exp(np.minimum(0.0, 1 - reference_length / length))
        bleu: NDArray[np.float64] = np.nan_to_num(100 * precision * brevity)
    return bleu


def _rouge(captions: Mapping[str, str], references: Mapping[str, list[str]]) -> NDArray[np.float64]:
    from pycocoevalcap.rouge.rouge import Rouge

    # That scorer gives an empty text one empty word, which would match an empty reference.
    rouge = Rouge()
    return np.array([rouge.calc_score([c], references[i]) if c else 0.0 for i, c in captions.items()])


def _cider(captions: Mapping[str, str], references: Mapping[str, list[str]]) -> NDArray[np.float64]:
    from pycocoevalcap.cider.cider import Cider

    _, values = Cider().compute_score(dict(references), {i: [c] for i, c in captions.items()})
    return np.asarray(values, np.float64)


def _meteor(
    captions: Mapping[str, str],
    references: Mapping[str, list[str]],
    scores: dict[str, Score],
    unavailable: dict[str, str],
) -> None:
    from captioner.metrics.meteor import MeteorUnavailableError, meteor_scores, meteor_statistics

    try:
        statistics = meteor_statistics(captions, references)
    except MeteorUnavailableError as error:
        unavailable["METEOR"] = str(error)
        return
    scores["METEOR"] = Score(
        float(100 * meteor_scores(statistics.sum(axis=0))),
        100 * meteor_scores(statistics),
        statistics,
        lambda means: 100 * meteor_scores(means),
    )


def _spice(
    captions: Mapping[str, str],
    references: Mapping[str, list[str]],
    scores: dict[str, Score],
    unavailable: dict[str, str],
) -> None:
    from captioner.metrics.spice import spice_missing, spice_scores

    reason = spice_missing()
    if reason is None:
        try:
            scores["SPICE"] = _mean_score(spice_scores(captions, references))
            return
        except (subprocess.CalledProcessError, OSError, ValueError, KeyError) as error:
            reason = f"its Java program failed ({error})"
    unavailable["SPICE"] = reason
