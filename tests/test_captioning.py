"""Captioner: one picture, some, or a stream; order, failures, bounded work, options."""

from __future__ import annotations

import doctest
import itertools
import threading
import time
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from captioner import Caption, Captioner, CaptionerError
from captioner import captioning as pipeline
from captioner.bundle import storage as bundle
from captioner.captioning import Failure
from captioner.errors import UsageError
from captioner.inference.search import SearchOptions, search
from tests.tiny_bundle import SIDE, write_model


@pytest.fixture(scope="module")
def captioner(tmp_path_factory):
    return Captioner.load(write_model(tmp_path_factory.mktemp("models") / "toy").folder, threads=1)


def colours(count: int) -> np.ndarray:
    blocks = np.random.default_rng(0).integers(0, 256, (count, 2, 2, 3), np.uint8)
    return blocks.repeat(SIDE // 2, axis=1).repeat(SIDE // 2, axis=2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for i, pixels in enumerate(colours(40)):
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    return sorted(folder.iterdir())


def test_a_path_an_image_and_an_array_give_the_same_caption(captioner, files):
    by_path = captioner(files[0])
    with Image.open(files[0]) as image:
        by_image = captioner(image)
    by_array = captioner(colours(1)[0])
    assert isinstance(by_path, Caption)
    assert by_path.text == by_image.text == by_array.text == captioner(str(files[0])).text
    assert by_path.picture.path == files[0] and by_array.picture.image is not None


def test_a_caption_carries_what_search_found(captioner, files):
    pixels = colours(1)
    options = captioner.options(n_best=2)
    (found,) = search(captioner.backend, captioner.backend.encode(pixels), options)
    caption = captioner(files[0], n_best=2)
    vocabulary = captioner.backend.vocabulary
    assert caption.text == vocabulary.decode(found[0].words)
    assert caption.score == pytest.approx(found[0].score)
    assert caption.alternatives[0].text == vocabulary.decode(found[1].words)
    assert (caption.end is not None) == found[0].ended
    total = sum(word.log_probability for word in caption.words) + (caption.end.log_probability if caption.end else 0)
    assert caption.log_probability == pytest.approx(total)
    for word, alpha in zip(caption.words, found[0].alphas, strict=False):
        assert np.array_equal(word.alpha, alpha.reshape(2, 2))


def test_a_list_gives_a_list_in_order(captioner, files):
    captions = captioner(files)
    assert [caption.picture.path for caption in captions] == files
    assert [caption.text for caption in captions] == [captioner(path).text for path in files]
    assert len({caption.text for caption in captions}) > 3
    assert captioner([]) == []


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_a_stream_keeps_the_order_whatever_the_batch(captioner, files, batch):
    names = [caption.picture.name for caption in captioner.stream(iter(files), batch=batch)]
    assert names == [str(path) for path in files]


def test_a_bad_picture_is_a_failure_in_its_place(captioner, files, tmp_path):
    (tmp_path / "bad.jpg").write_text("no picture")
    sources = [files[0], tmp_path / "bad.jpg", files[1], tmp_path / "none.jpg"]
    results = list(captioner.stream(sources))
    assert [isinstance(result, Failure) for result in results] == [False, True, False, True]
    assert results[1].name == str(tmp_path / "bad.jpg") and "not a picture" in results[1].reason
    assert "no such file" in results[3].reason
    with pytest.raises(CaptionerError, match="not a picture"):
        captioner(sources)


def test_constraints_that_a_picture_cannot_meet_are_its_failure(captioner, files, monkeypatch):
    monkeypatch.setattr(pipeline, "search", lambda backend, annotations, options: [[] for _ in annotations.values])
    (result,) = captioner.stream([files[0]])
    assert isinstance(result, Failure) and "no sentence meets all constraints" in result.reason


def test_a_stream_reads_only_a_little_ahead(captioner, files):
    taken = itertools.count()
    last = 0

    def endless():
        nonlocal last
        for path in itertools.cycle(files):
            last = next(taken)
            yield path

    stream = captioner.stream(endless(), batch=4)
    for _ in range(10):
        next(stream)
    time.sleep(0.3)
    assert last < 10 + 4 * 12  # the batches in work, those waiting, and the queue
    stream.close()
    time.sleep(0.1)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("read", "caption"))]


def test_a_slow_source_gets_its_captions_without_waiting_for_a_full_batch(captioner, files):
    waiting = threading.Event()

    def slow():
        yield files[0]
        assert waiting.wait(10), "the first caption did not come before the second picture"
        yield files[1]

    stream = captioner.stream(slow(), batch=16)
    assert next(stream).picture.path == files[0]
    waiting.set()
    assert next(stream).picture.path == files[1]
    assert list(stream) == []


def test_an_error_of_the_source_is_raised_after_what_came_before(captioner, files):
    def broken():
        yield files[0]
        raise RuntimeError("the list broke off")

    stream = captioner.stream(broken())
    with pytest.raises(RuntimeError, match="the list broke off"):
        list(stream)


def test_the_models_own_defaults_are_used(captioner):
    assert captioner.options() == SearchOptions(beam=2, length_power=0.8, max_length=7)
    assert captioner.options(n_best=5).beam == 5
    assert captioner.options(groups=3).beam == 3
    assert captioner.options(required=["cat|dog", ("mat",)]).required == (("cat", "dog"), ("mat",))


def test_the_models_own_repeat_penalty_is_used(tmp_path, files):
    decoding = SearchOptions(beam=1, max_length=7, repeat_penalty=30.0)
    captioner = Captioner.load(write_model(tmp_path / "toy", decoding=decoding).folder)
    assert captioner.options().repeat_penalty == 30.0

    def repeated(**options) -> int:
        captions = [[word.text for word in caption.words] for caption in captioner(files, **options)]
        return sum(max(Counter(word for word in words if word != "the").values()) > 1 for words in captions)

    assert repeated() == 0 < repeated(repeat_penalty=0.0)


def test_wrong_options_are_named_at_once(captioner):
    with pytest.raises(UsageError, match=r"unknown search option 'beams'.*Did you mean 'beam'"):
        captioner.stream([], beams=3)
    with pytest.raises(UsageError, match="'katt' is not in the model's vocabulary"):
        captioner.stream([], required=["katt"])


def test_sampling_does_not_depend_on_the_company(captioner, files):
    options = {"sample": True, "seed": 3, "n_best": 2}
    together = captioner(files[:9], **options)
    backwards = captioner(files[:9][::-1], **options)[::-1]
    assert [caption.text for caption in together] == [caption.text for caption in backwards]
    assert captioner(files[4], **options).text == together[4].text


def test_a_given_sentence_gets_maps_and_probabilities(captioner, files):
    caption = captioner.force(files[0], "A cat on the zebra.")
    assert [word.text for word in caption.words] == ["a", "cat", "on", "the", "zebra"]
    assert caption.end is not None and caption.words[0].alpha.shape == (2, 2)
    best = captioner(files[0], beam=50, length_power=0)
    assert caption.log_probability < best.log_probability
    again = captioner.force(files[0], best.text, length_power=0)
    assert best.end is None or again.score == pytest.approx(best.score, rel=1e-4)


def test_a_wrong_backend_or_device_is_named(captioner, tmp_path, monkeypatch):
    write_model(tmp_path / "toy")
    with pytest.raises(UsageError, match="unknown backend 'onx'"):
        Captioner.load(tmp_path / "toy", backend="onx")
    with pytest.raises(UsageError, match="--backend torch"):
        Captioner.load(tmp_path / "toy", backend="onnx", device="cuda")
    with pytest.raises(UsageError, match="0 threads"):
        Captioner.load(tmp_path / "toy", threads=0)


def test_the_docstring_runs():
    if "default" not in dict(bundle.available()):
        pytest.skip("the default model is not at hand")
    results = doctest.testmod(pipeline)
    assert results.attempted > 0 and results.failed == 0
