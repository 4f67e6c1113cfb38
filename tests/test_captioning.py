"""Captioner: one picture, some, or a stream; order, failures, bounded work, options."""

from __future__ import annotations

import doctest
import itertools
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from captioner import Caption, Captioner, CaptionerError, captioning
from captioner.bundle.model_folders import available_models
from captioner.caption import Failure
from captioner.errors import UsageError
from captioner.inference import streaming
from captioner.inference.search import SearchOptions, search
from tests.tiny_bundle import SIDE, write_model

URL = "https://example.com/a.jpg"


@pytest.fixture(scope="module")
def captioner(tmp_path_factory):
    return Captioner.load(write_model(tmp_path_factory.mktemp("models") / "toy").folder, threads=1)


def colors(count: int) -> np.ndarray:
    blocks = np.random.default_rng(0).integers(0, 256, (count, 2, 2, 3), np.uint8)
    return blocks.repeat(SIDE // 2, axis=1).repeat(SIDE // 2, axis=2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for i, pixels in enumerate(colors(40)):
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    return sorted(folder.iterdir())


def test_every_kind_of_source_gives_the_same_caption(captioner, files):
    by_path = captioner(files[0])
    assert isinstance(by_path, Caption) and by_path.picture.path == files[0]
    pixels = colors(1)[0]
    with Image.open(files[0]) as image, files[0].open("rb") as file:
        sources = [str(files[0]), image, file, files[0].read_bytes(), pixels, pixels / 255, np.moveaxis(pixels, 2, 0)]
        for source in sources:
            assert captioner(source).words == by_path.words
        assert [caption.words for caption in captioner(sources[3:])] == [by_path.words] * 4


def test_a_tensor_gives_the_same_caption(captioner, files):
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(colors(1)[0])
    assert captioner(tensor).words == captioner(tensor.permute(2, 0, 1) / 255).words == captioner(files[0]).words


def test_a_caption_has_the_words_score_and_maps_of_the_search(captioner, files):
    pixels = colors(1)
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


def test_an_unreadable_picture_is_a_failure_at_its_position(captioner, files, tmp_path):
    (tmp_path / "bad.jpg").write_text("no picture")
    sources = [files[0], tmp_path / "bad.jpg", files[1], tmp_path / "none.jpg"]
    results = list(captioner.stream(sources))
    assert [isinstance(result, Failure) for result in results] == [False, True, False, True]
    assert results[1].name == str(tmp_path / "bad.jpg") and "not a picture" in results[1].reason
    assert "no such file" in results[3].reason
    with pytest.raises(CaptionerError, match="not a picture"):
        captioner(sources)


def test_one_bad_item_is_one_failure_and_never_the_end_of_the_stream(captioner, files):
    class Broken:
        name = "broken"

        def read(self):
            raise RuntimeError("the line is dead")

    closed = Image.open(files[0])
    closed.close()
    bad = [
        None,
        7,
        object(),
        ["nested"],
        "https://example.com/a.jpg",
        b"",
        b"junk",
        np.zeros((2, 2, 2)),
        Broken(),
        closed,
    ]
    sources = [item for pair in zip(bad, [files[0]] * len(bad), strict=True) for item in pair]
    for stream in (captioner.stream(sources), captioner.stream(iter(sources), batch=3)):
        results = list(stream)
        assert [isinstance(result, Failure) for result in results] == [True, False] * len(bad)
        assert all(result.reason for result in results[::2])


@pytest.mark.parametrize("source", [None, 7, object(), URL, np.zeros((2, 2, 2)), (x for x in "a")])
def test_a_source_that_is_no_picture_is_a_wrong_call(captioner, source):
    with pytest.raises(UsageError):
        captioner(source)
    with pytest.raises(UsageError):
        captioner.force(source, "a cat")


@pytest.mark.parametrize("sources", ["a.jpg", b"jpeg", np.zeros((4, 4, 3)), Image.new("RGB", (2, 2)), 7, None])
def test_a_stream_of_a_single_picture_is_a_wrong_call(captioner, sources):
    with pytest.raises(UsageError, match="stream takes several pictures, not one"):
        captioner.stream(sources)


def test_a_stream_takes_a_batch_of_pictures_in_one_array(captioner, files):
    texts = [caption.text for caption in captioner.stream(colors(5))]
    assert texts == [caption.text for caption in captioner(files[:5])]


def test_a_picture_without_a_caption_that_satisfies_the_constraints_is_a_failure(captioner, files, monkeypatch):
    monkeypatch.setattr(streaming, "search", lambda backend, annotations, options: [[] for _ in annotations.values])
    (result,) = captioner.stream([files[0]])
    assert isinstance(result, Failure) and "no caption satisfies all constraints" in result.reason


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


def test_an_exception_of_the_source_is_raised(captioner, files):
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
    with pytest.raises(UsageError, match="beam must be a whole number, not 'x'"):
        captioner(np.zeros((2, 2), np.uint8), beam="x")
    with pytest.raises(UsageError, match="unknown search option 'beem'"):
        captioner.force(np.zeros((2, 2), np.uint8), "a cat", beem=3)
    with pytest.raises(UsageError, match="n_best must be a whole number"):
        captioner.stream([], n_best="many")
    with pytest.raises(UsageError, match="batch must be a whole number of 1 or more, not 0"):
        captioner.stream([], batch=0)
    with pytest.raises(UsageError, match="pixel_limit must be"):
        captioner.stream([], pixel_limit="large")
    with pytest.raises(UsageError, match="text must be a sentence"):
        captioner.force(np.zeros((2, 2), np.uint8), 7)
    with pytest.raises(UsageError, match="'katt' is not in the model's vocabulary"):
        captioner.stream([], required=["katt"])


def test_a_single_required_word_is_that_word(captioner, files):
    assert captioner.options(required="cat").required == (("cat",),)
    assert "cat" in captioner(files[0], required="cat").text.split()
    assert "cat" not in captioner(files[0], forbidden="cat").text.split()


def test_a_captioner_says_what_it_is(captioner):
    assert repr(captioner) == "Captioner(model='toy', attention='soft', backend=OnnxBackend, threads=1)"


MEASURE = """
import sys
import numpy as np, psutil
from captioner import Captioner

captioner = Captioner.load(sys.argv[1], threads=1)
keep = {"keep_pictures": True} if sys.argv[2] == "keep" else {}
memory = psutil.Process().memory_info
arrays = (np.full((1200, 1600, 3), i, np.uint8) for i in range(150))
captions = list(captioner.stream((next(arrays) for _ in range(20)), batch=4, **keep))  # buffers of threads
before = memory().rss
captions += captioner.stream(arrays, batch=4, **keep)
print((memory().rss - before) / 1e6)
"""


def test_captions_do_not_keep_the_pictures_in_memory_unless_asked(captioner, tmp_path):
    """130 arrays of 1600x1200 have 749 MB; measured in a process of its own."""
    folder = write_model(tmp_path / "toy").folder
    grown = {
        keep: float(
            subprocess.run(
                [sys.executable, "-c", MEASURE, str(folder), keep], capture_output=True, text=True, check=True
            ).stdout
        )
        for keep in ("no", "keep")
    }
    assert grown["no"] < 130 and grown["keep"] > 650


def test_sampling_does_not_depend_on_the_other_pictures(captioner, files):
    options = {"sample": True, "seed": 3, "n_best": 2}
    together = captioner(files[:9], **options)
    backwards = captioner(files[:9][::-1], **options)[::-1]
    assert [caption.text for caption in together] == [caption.text for caption in backwards]
    assert captioner(files[4], **options).text == together[4].text


def test_a_forced_sentence_has_maps_and_probabilities(captioner, files):
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
        Captioner.load(tmp_path / "toy", backend="onx")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--backend torch"):
        Captioner.load(tmp_path / "toy", backend="onnx", device="cuda")
    with pytest.raises(UsageError, match="0 threads"):
        Captioner.load(tmp_path / "toy", threads=0)


def test_the_docstring_runs():
    if "default" not in dict(available_models()):
        pytest.skip("the default model is not installed")
    results = doctest.testmod(captioning)
    assert results.attempted > 0 and results.failed == 0
