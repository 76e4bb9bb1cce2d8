"""Background work gives way to other threads that work, and not for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from store.search.grep import throttle
from store.search.grep.throttle import Throttle


@pytest.fixture
def busy_thread() -> Iterator[None]:
    """Another thread that never rests."""
    is_over = threading.Event()

    def spin() -> None:
        while not is_over.is_set():
            sum(range(1_000))

    thread = threading.Thread(target=spin)
    thread.start()
    yield
    is_over.set()
    thread.join()


def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it slept each time; it really does."""
    taken: list[float] = []
    sleep = time.sleep

    def recorded(seconds: float) -> None:
        taken.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", recorded)
    return taken


def work() -> None:
    ends = time.perf_counter() + 2 * throttle.STRETCH_S
    while time.perf_counter() < ends:
        sum(range(100))


def test_it_rests_as_long_as_it_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, mine = naps(monkeypatch), Throttle()
    work()
    mine.pause()
    assert len(taken) == 1
    assert taken[0] >= 2 * throttle.STRETCH_S


def test_a_short_stretch_of_work_needs_no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "STRETCH_S", 60.0)
    taken, mine = naps(monkeypatch), Throttle()
    mine.pause()
    assert taken == []


@pytest.mark.usefixtures("busy_thread")
def test_it_rests_on_while_others_work_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "LONGEST_REST_S", 0.3)
    taken, mine = naps(monkeypatch), Throttle()
    work()
    mine.pause()
    assert len(taken) > 1
