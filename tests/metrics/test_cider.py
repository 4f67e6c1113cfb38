"""CIDEr-D equals pycocoevalcap's, with the document frequencies of any corpus."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pytest
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.cider.cider_scorer import CiderScorer

from captioner.errors import CaptionerError
from captioner.metrics.cider import CiderReward, DocumentFrequencies

WORDS = "a the man dog on of with red two in street bus riding wave cat next to and is".split()  # noqa: SIM905


def sentences(seed: int, images: int, each: int) -> dict[str, list[list[str]]]:
    generator = random.Random(seed)
    return {str(i): [generator.choices(WORDS, k=generator.randint(1, 14)) for _ in range(each)] for i in range(images)}


def test_reward_equals_pycocoevalcap_to_a_millionth() -> None:
    references = sentences(0, 60, 5)
    captions = {image: group[0] for image, group in sentences(1, 60, 1).items()}
    captions["0"], captions["1"], captions["2"] = [], ["dog"], list(references["2"][0])
    joined = {image: [" ".join(t) for t in group] for image, group in references.items()}
    _, theirs = Cider().compute_score(joined, {image: [" ".join(t)] for image, t in captions.items()})
    ours = CiderReward(references)(list(captions.values()), list(captions))
    assert ours == pytest.approx(np.array(theirs), abs=1e-6)


def test_document_frequencies_of_another_corpus_give_pycocoevalcaps_scores() -> None:
    corpus, references = sentences(2, 200, 3), sentences(3, 10, 4)
    captions = [group[0] for group in sentences(4, 10, 1).values()]
    scorer = CiderScorer()
    for group in corpus.values():
        scorer += (" ".join(group[0]), [" ".join(t) for t in group])
    scorer.compute_doc_freq()
    # The scorer takes the number of images from its own list: pad it to the corpus' size with the corpus itself.
    own = list(zip([" ".join(c) for c in captions], references.values(), strict=True))
    for caption, group in own:
        scorer += (caption, [" ".join(t) for t in group])
    scorer.crefs, scorer.ctest = scorer.crefs[10:], scorer.ctest[10:]
    theirs = scorer.compute_cider()[-10:]
    ours = CiderReward(references, DocumentFrequencies.of(corpus.values()))(captions, list(references))
    assert ours == pytest.approx(np.array(theirs), abs=1e-6)


def test_words_and_their_numbers_give_the_same_reward() -> None:
    references = sentences(5, 20, 5)
    captions = [group[0] for group in sentences(6, 20, 1).values()]
    numbers = [[[WORDS.index(w) for w in t] for t in group] for group in references.values()]
    by_word = CiderReward(references)(captions, list(references))
    by_number = CiderReward(numbers)([[WORDS.index(w) for w in t] for t in captions], range(20))
    assert by_word.tolist() == by_number.tolist()


def test_with_an_end_token_a_caption_that_breaks_off_loses() -> None:
    references = {"i": [["a", "man", "on", "a", "horse"]], **sentences(7, 30, 3)}
    whole, cut = references["i"][0], references["i"][0][:4]
    plain, ended = CiderReward(references), CiderReward(references, end="<end>")
    assert ended([whole], ["i"])[0] == pytest.approx(10)
    assert ended([cut], ["i"])[0] < plain([cut], ["i"])[0]
    spelled = {image: [[*t, "<end>"] for t in group] for image, group in references.items()}
    assert ended([cut], ["i"]) == pytest.approx(CiderReward(spelled)([[*cut, "<end>"]], ["i"]))


def test_a_batch_of_160_captions_takes_less_than_a_tenth_of_a_second() -> None:
    references = sentences(8, 32, 5)
    reward = CiderReward(references)
    captions = [group[0] for _ in range(5) for group in sentences(9, 32, 1).values()]
    images = list(references) * 5
    began = time.process_time()
    reward(captions, images)
    assert time.process_time() - began < 0.1


def test_document_frequencies_are_equal_after_writing_and_reading(tmp_path: Path) -> None:
    corpus = sentences(10, 50, 4)
    frequencies = DocumentFrequencies.of(corpus.values())
    for name in ("stats.json", "stats.json.gz"):
        frequencies.save(tmp_path / name)
        assert DocumentFrequencies.load(tmp_path / name) == frequencies
    assert (tmp_path / "stats.json.gz").stat().st_size < (tmp_path / "stats.json").stat().st_size


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": "x"}', b"\x1f\x8b broken"])
def test_the_error_for_another_kind_of_file_names_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "stats.json"
    file.write_bytes(content)
    with pytest.raises(CaptionerError, match=r"stats\.json: (not a file of reference statistics|can't be read)"):
        DocumentFrequencies.load(file)
