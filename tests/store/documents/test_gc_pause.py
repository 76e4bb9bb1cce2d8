"""Python's collector waits for large documents only, and is what it was before when they are done."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from store import Store
from store.documents import gc_pause
from store.errors import InvalidContent
from tests.builders import make_document

LARGE = gc_pause.LARGE_BYTES


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


def test_it_waits_for_a_large_document_only() -> None:
    with gc_pause.gc_paused(LARGE - 1):
        assert gc.isenabled()
    with gc_pause.gc_paused(LARGE):
        assert not gc.isenabled()
        with gc_pause.gc_paused(LARGE):
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_does_without_it_keeps_it_so() -> None:
    gc.disable()
    with gc_pause.gc_paused(LARGE):
        pass
    assert not gc.isenabled()


def test_it_goes_on_after_all_threads_and_after_errors() -> None:
    def work(number: int) -> None:
        with gc_pause.gc_paused(LARGE):
            sum(range(1000))
            if number % 2:
                raise ValueError

    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(work, number) for number in range(400)]
    assert sum(future.exception() is not None for future in done) == 200
    assert gc.isenabled()


def test_a_save_and_a_refusal_leave_it_on(store: Store) -> None:
    large = make_document("s1").replace(b'"messages"', b'"x": "' + b"x" * LARGE + b'", "messages"', 1)
    assert store.put_document("s1", "session.json", large)
    with pytest.raises(InvalidContent):
        store.put_document("s1", "session.json", large + b"}")
    assert gc.isenabled()
