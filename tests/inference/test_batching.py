"""Batches: nothing is lost, turned round or made too large; the last ones are even."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.inference.batching import in_threads, rounds


@given(count=st.integers(0, 300), size=st.integers(1, 40), workers=st.integers(1, 9))
def test_a_sequence_is_divided_in_order_and_evenly_at_the_end(count, size, workers):
    found = list(rounds(list(range(count)), size, workers))
    batches = [batch for some in found for batch in some]
    assert [each for batch in batches for each in batch] == list(range(count))
    assert all(1 <= len(batch) <= size for batch in batches)
    assert all(len(some) == 1 and len(some[0]) == size for some in found[:-1])
    if found:
        sizes = [len(batch) for batch in found[-1]]
        assert len(sizes) <= workers and max(sizes) - min(sizes[:-1] or sizes) == 0


def test_a_fast_source_gives_full_batches():
    found = [some[0] for some in rounds(iter(range(10)), 4, 2) if some]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_slow_source_gives_incomplete_batches_without_waiting():
    more = threading.Event()

    def slow():
        yield 1
        assert more.wait(10)
        yield 2

    coming = rounds(slow(), 4, 2)
    assert next(coming) == [[1]]
    assert next(coming) == []  # nothing more just now
    more.set()
    assert list(coming) == [[[2]]]


def test_only_a_few_batches_are_read_ahead():
    taken = itertools.count()
    coming: Any = rounds(iter(lambda: next(taken), None), 4, 2)
    next(coming)
    threading.Event().wait(0.2)
    assert next(taken) < 4 * 6
    coming.close()


def test_several_threads_process_parts_and_the_results_keep_their_order():
    meeting = threading.Barrier(3, timeout=20)

    def work(number):
        meeting.wait()  # passes only where three are at it at once
        time.sleep(0.01 * (3 - number % 3))
        return number * 10

    assert list(in_threads(work, range(9), 3)) == [10 * number for number in range(9)]


def test_only_a_few_parts_are_taken_ahead():
    taken: list[int] = []

    def parts():
        for number in range(100):
            taken.append(number)
            yield number

    done: Any = in_threads(lambda number: number, parts(), 2)
    assert [next(done), next(done)] == [0, 1]
    assert len(taken) <= 4
    done.close()


def test_an_exception_in_a_thread_is_raised():
    def work(number):
        raise ValueError(f"part {number}")

    with pytest.raises(ValueError, match="part 0"):
        list(in_threads(work, range(5), 2))
