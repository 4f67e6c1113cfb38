"""Batcher: what is searched together, what waits, what is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from captioner import Captioner
from captioner.caption import Caption, Failure
from captioner.errors import CaptionerError
from captioner.images.reading import load_for_model
from captioner.options import SearchOptions
from captioner.serve import batcher as batcher_module
from captioner.serve.batcher import Batcher, Job, QueueFull
from captioner.serve.service_metrics import ServiceMetrics
from tests.serve.pictures import png

PLAIN, WIDE = SearchOptions(beam=1), SearchOptions(beam=5)


class Model:
    """Stands for a Captioner and its backend: records its batches, and can be held back."""

    def __init__(self, threads: int = 1) -> None:
        self.threads, self.backend, self.confidence = threads, self, None
        self.batches: list[tuple[list[str], SearchOptions]] = []
        self.gate = threading.Event()
        self.gate.set()

    def encode(self, pixels: Any) -> Any:
        return pixels


class Stream:
    """Stands for CaptionStream: the caption of a picture is its name in capitals."""

    def __init__(self, backend: Model, options: SearchOptions, confidence: None) -> None:
        self.backend, self.options = backend, options

    def encode(self, pixels: Any) -> Any:
        return self.backend.encode(pixels)

    def captions(self, pictures: list[Any], annotations: Any) -> list[Any]:
        self.backend.gate.wait(10)
        self.backend.batches.append(([picture.name for picture in pictures], self.options))
        if any(picture.name.startswith("broken") for picture in pictures):
            raise CaptionerError("a picture of this batch is broken")
        return [picture.name.upper() for picture in pictures if picture.name != "lost"]


@pytest.fixture(autouse=True)
def stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "CaptionStream", Stream)


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    started: list[Batcher] = []

    def build(model: Model, **changes: Any) -> Any:
        settings = {"batch": 8, "queue": 16, "max_wait": 0.2, "patience": 60.0, **changes}
        started.append(Batcher("toy", model, ServiceMetrics(), **settings))  # type: ignore[arg-type]
        return started[-1]

    yield build
    for batcher in started:
        batcher.captioner.gate.set()  # type: ignore[attr-defined]
        batcher.close()


def job(name: str, options: SearchOptions = PLAIN) -> Job:
    return Job(SimpleNamespace(name=name), np.zeros((2, 2, 3), np.uint8), options)  # type: ignore[arg-type]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_jobs_that_wait_together_are_searched_together_and_keep_their_results(start: Callable[..., Any]) -> None:
    model = Model()
    model.gate.clear()
    batcher = start(model)
    first = batcher.submit(job("first"))
    wait_until(lambda: not batcher._jobs)
    others = [batcher.submit(job(f"p{i}")) for i in range(5)]
    model.gate.set()
    assert first.result(5) == "FIRST"
    assert [future.result(5) for future in others] == [f"P{i}" for i in range(5)]
    assert [len(names) for names, _ in model.batches] == [1, 5]


def test_a_batch_is_never_larger_than_allowed(start: Callable[..., Any]) -> None:
    model = Model()
    model.gate.clear()
    batcher = start(model, batch=4)
    futures = [batcher.submit(job(f"p{i}")) for i in range(10)]
    model.gate.set()
    assert [future.result(5) for future in futures] == [f"P{i}" for i in range(10)]
    assert max(len(names) for names, _ in model.batches) <= 4


def test_other_options_make_another_batch_and_leave_the_rest_together(start: Callable[..., Any]) -> None:
    model = Model()
    model.gate.clear()
    batcher = start(model)
    batcher.submit(job("first"))
    wait_until(lambda: not batcher._jobs)
    futures = [batcher.submit(job(f"p{i}", WIDE if i == 2 else PLAIN)) for i in range(5)]
    model.gate.set()
    assert [future.result(5) for future in futures] == [f"P{i}" for i in range(5)]
    assert model.batches[1:] == [(["p0", "p1", "p3", "p4"], PLAIN), (["p2"], WIDE)]


def test_jobs_that_ask_for_the_likeliest_words_make_a_batch_of_their_own(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others don't wait for the second pass of the decoder."""
    passes: list[int] = []

    def with_words(self: Batcher, jobs: list[Job], annotations: Any, results: list[Any]) -> list[Any]:
        passes.append(len(jobs))
        return results

    monkeypatch.setattr(Batcher, "_with_words", with_words)
    model = Model()
    model.gate.clear()
    batcher = start(model)
    batcher.submit(job("first"))
    wait_until(lambda: not batcher._jobs)
    futures = [batcher.submit(replace(job(f"p{i}"), word_alternatives=i % 2 == 1)) for i in range(5)]
    model.gate.set()
    assert [future.result(5) for future in futures] == [f"P{i}" for i in range(5)]
    assert [names for names, _ in model.batches[1:]] == [["p0", "p2", "p4"], ["p1", "p3"]]
    assert passes == [2]


def test_a_picture_without_a_caption_has_no_likeliest_words_and_its_neighbours_have_theirs(model: Path) -> None:
    captioner = Captioner.load(model)
    batcher = Batcher("toy", captioner, ServiceMetrics(), batch=4, queue=4, max_wait=0, patience=60)
    options, failure = captioner.defaults, Failure("b", "no caption")
    try:
        loaded = [load_for_model(png(seed), captioner.backend.image_size) for seed in range(3)]
        jobs = [Job(picture, pixels, options, word_alternatives=True) for picture, pixels in loaded]
        annotations = captioner.backend.encode(np.stack([job.pixels for job in jobs]))
        captions: list[Any] = [captioner(png(seed)) for seed in range(3)]
        alone = [
            batcher._with_words([job], annotations, [one])[0]
            for job, one, annotations in zip(jobs, captions, annotations.singly(), strict=True)
        ]
        found = batcher._with_words(jobs, annotations, [captions[0], failure, captions[2]])
    finally:
        batcher.close()
    assert found[1] is failure
    for one, same in ((found[0], alone[0]), (found[2], alone[2])):
        assert isinstance(one, Caption) and isinstance(same, Caption)
        assert [word.alternatives for word in one.words] == [word.alternatives for word in same.words]
        assert all(len(word.alternatives) == 5 for word in one.words)


def test_one_broken_picture_does_not_fail_its_neighbours(start: Callable[..., Any]) -> None:
    model = Model()
    model.gate.clear()
    batcher = start(model)
    batcher.submit(job("first"))
    wait_until(lambda: not batcher._jobs)
    futures = [batcher.submit(job(name)) for name in ("a", "broken", "c")]
    model.gate.set()
    assert futures[0].result(5) == "A" and futures[2].result(5) == "C"
    assert isinstance(futures[1].result(5), Failure)


def test_a_batch_waits_for_a_request_that_is_being_read(start: Callable[..., Any]) -> None:
    model = Model()
    batcher = start(model, max_wait=60)
    wait_until(lambda: batcher._idle == 1)
    with batcher.arriving():
        first = batcher.submit(job("first"))
        second = batcher.submit(job("second"))
    assert first.result(5) == "FIRST" and second.result(5) == "SECOND"
    assert [len(names) for names, _ in model.batches] == [2]


def test_a_batch_does_not_wait_long_for_a_request_that_is_being_read(start: Callable[..., Any]) -> None:
    batcher = start(Model(), max_wait=0.05)
    wait_until(lambda: batcher._idle == 1)
    with batcher.arriving():
        assert batcher.submit(job("first")).result(5) == "FIRST"


def test_a_batch_waits_for_requests_whose_bodies_are_being_received(start: Callable[..., Any]) -> None:
    """Before, clients that answered together got batches of one picture, which cost more time per picture."""
    model, coming = Model(), [True]
    batcher = start(model, max_wait=60, coming=lambda: coming[0])
    wait_until(lambda: batcher._idle == 1)
    first = batcher.submit(job("first"))
    coming[0] = False
    second = batcher.submit(job("second"))
    assert first.result(5) == "FIRST" and second.result(5) == "SECOND"
    assert [len(names) for names, _ in model.batches] == [2]


def test_a_single_request_waits_for_nobody(start: Callable[..., Any]) -> None:
    model = Model()
    batcher = start(model, max_wait=30)
    assert batcher.submit(job("alone")).result(5) == "ALONE"


def test_the_queue_is_bounded_and_room_comes_back(start: Callable[..., Any]) -> None:
    batcher = start(Model(), queue=3)
    with batcher.reserve(2):
        with pytest.raises(QueueFull), batcher.reserve(2):
            pass
        with batcher.reserve(1):
            pass
    with batcher.reserve(3):
        pass


def test_a_slow_model_accepts_only_what_it_answers_in_time(start: Callable[..., Any]) -> None:
    batcher = start(Model(), queue=100, patience=1.0)
    batcher.pace = 0.3
    with batcher.reserve(3), batcher.reserve(1), pytest.raises(QueueFull), batcher.reserve(1):  # 4 x 0.3 s wait
        pass
    with batcher.reserve(5):  # nothing waits
        pass


def test_the_pace_is_that_of_the_last_batches(start: Callable[..., Any]) -> None:
    model = Model()
    model.gate.clear()
    batcher = start(model)
    future = batcher.submit(job("slow"))
    time.sleep(0.2)
    model.gate.set()
    future.result(5)
    wait_until(lambda: batcher.pace > 0.1)
    for number in range(20):
        batcher.submit(job(f"fast {number}")).result(5)
    wait_until(lambda: batcher.pace < 0.1)


def test_a_cancelled_job_is_not_searched(start: Callable[..., Any]) -> None:
    model = Model()
    model.gate.clear()
    batcher = start(model)
    batcher.submit(job("first"))
    wait_until(lambda: not batcher._jobs)
    gone, stays = batcher.submit(job("gone")), batcher.submit(job("stays"))
    assert gone.cancel()
    model.gate.set()
    assert stays.result(5) == "STAYS"
    assert model.batches[1:] == [(["stays"], PLAIN)]


def test_a_defect_fails_its_own_batch_and_the_thread_lives_on(start: Callable[..., Any]) -> None:
    model = Model()
    model.encode = lambda pixels: 1 / 0  # type: ignore[method-assign]
    batcher = start(model)
    with pytest.raises(ZeroDivisionError):
        batcher.submit(job("first")).result(5)
    model.encode = lambda pixels: pixels  # type: ignore[method-assign]
    assert batcher.submit(job("second")).result(5) == "SECOND"


def test_a_defect_after_some_results_fails_only_the_rest_and_the_thread_lives_on(start: Callable[..., Any]) -> None:
    model = Model()
    model.gate.clear()
    batcher = start(model)
    batcher.submit(job("first"))
    wait_until(lambda: not batcher._jobs)
    answered, lost = batcher.submit(job("answered")), batcher.submit(job("lost"))
    model.gate.set()
    assert answered.result(5) == "ANSWERED"
    with pytest.raises(ValueError, match="zip"):
        lost.result(5)
    assert batcher.submit(job("next")).result(5) == "NEXT"


def test_closing_finishes_what_is_queued() -> None:
    model = Model()
    model.gate.clear()
    batcher: Any = Batcher("toy", model, ServiceMetrics(), batch=2, queue=16, max_wait=0, patience=60)  # type: ignore[arg-type]
    futures = [batcher.submit(job(f"p{i}")) for i in range(5)]
    model.gate.set()
    batcher.close()
    assert [future.result(0) for future in futures] == [f"P{i}" for i in range(5)]


def test_idle_threads_share_the_work(start: Callable[..., Any]) -> None:
    model = Model(threads=2)
    model.gate.clear()
    batcher = start(model, max_wait=60)
    wait_until(lambda: batcher._idle == 2)
    with batcher.arriving():
        futures = [batcher.submit(job(f"p{i}")) for i in range(8)]
    wait_until(lambda: not batcher._jobs)
    model.gate.set()
    for future in futures:
        future.result(5)
    assert [len(names) for names, _ in model.batches] == [4, 4]
