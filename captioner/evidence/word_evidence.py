"""Evidence for the words of a caption: what else the model could have said, and what each word relied on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from captioner.caption import Caption, Evidence, Word
from captioner.captioning import Captioner
from captioner.errors import CaptionerError
from captioner.evidence.curves import curves as measure_curves
from captioner.evidence.occlusion import Occlusion, occlusion
from captioner.images.pixels import Pixels, squash
from captioner.inference.backend import Annotations, Backend
from captioner.inference.search import SearchOptions, force
from captioner.metrics.rank_correlation import rank_correlation
from captioner.text.nouns import is_content_word
from captioner.text.vocabulary import UNK

ALTERNATIVES = 5  # likeliest words per position


def with_alternatives(captioner: Captioner, caption: Caption, options: SearchOptions | None = None) -> Caption:
    """The caption, and its alternatives, with the likeliest words at each position."""
    return _with_alternatives(captioner, caption, _pixels(captioner, caption), options or captioner.defaults)


def with_evidence(
    captioner: Captioner, caption: Caption, options: SearchOptions | None = None, *, curves: bool = False
) -> Caption:
    """As `with_alternatives`, and the content words have evidence; with `curves`, deletion and insertion curves too.

    `options` are those that the caption was made with: `hard_attention` and `seed` matter.
    """
    options = options or captioner.defaults
    pixels = _pixels(captioner, caption)
    caption = _with_alternatives(captioner, caption, pixels, options)
    measured = [i for i, word in enumerate(caption.words) if is_content_word(word.text)]
    if not measured:
        return caption
    backend = captioner.backend
    numbers = _numbers(backend, caption)
    occluded = occlusion(backend, pixels, numbers, options, threads=captioner.threads)
    by_word = (
        measure_curves(
            backend,
            pixels,
            numbers,
            [word.alpha for word in caption.words],
            measured,
            options,
            threads=captioner.threads,
        )
        if curves
        else {}
    )
    words = list(caption.words)
    for i in measured:
        words[i] = replace(words[i], evidence=replace(_evidence(words[i], occluded, i), curves=by_word.get(i)))
    return replace(caption, words=tuple(words))


def _evidence(word: Word, occluded: Occlusion, i: int) -> Evidence:
    relied = occluded.relied[i]
    correlation = rank_correlation(word.alpha, relied)
    return Evidence(relied, float(occluded.seen[i]), float(occluded.blurred[i]), correlation)


def _with_alternatives(captioner: Captioner, caption: Caption, pixels: Pixels, options: SearchOptions) -> Caption:
    backend = captioner.backend
    (named,) = with_likeliest_words(backend, backend.encode(pixels[None]), [caption], options)
    return named


def with_likeliest_words(
    backend: Backend, annotations: Annotations, captions: Sequence[Caption], options: SearchOptions
) -> list[Caption]:
    """Captions, one per picture, and their alternatives, with the likeliest words at each position."""
    lists = [[caption, *caption.alternatives] for caption in captions]
    numbers = [[_numbers(backend, each) for each in of_picture] for of_picture in lists]
    texts = backend.vocabulary.words
    results = []
    for of_picture, hypotheses in zip(
        lists, force(backend, annotations, numbers, options, top_words=ALTERNATIVES), strict=True
    ):
        best, *others = (
            replace(
                each,
                words=tuple(
                    replace(word, alternatives=tuple((texts[number], p) for number, p in likeliest))
                    for word, likeliest in zip(each.words, hypothesis.likeliest, strict=False)  # the end has some too
                ),
            )
            for each, hypothesis in zip(of_picture, hypotheses, strict=True)
        )
        results.append(replace(best, alternatives=tuple(others)))
    return results


def _pixels(captioner: Captioner, caption: Caption) -> Pixels:
    if caption.picture is None:
        raise CaptionerError("the caption has no picture to examine; make it with Captioner")
    size = captioner.backend.image_size
    return squash(caption.picture.open(min_side=2 * size), size)


def _numbers(backend: Backend, caption: Caption) -> list[int]:
    index = backend.vocabulary.index
    return [index.get(word.text, index[UNK]) for word in caption.words]
