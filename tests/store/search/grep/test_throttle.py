"""Throttle: sleeps as long as the thread worked, but never longer than a bound."""

from __future__ import annotations

import time

import pytest

from store.search.grep import throttle
from store.search.grep.throttle import GiveWay, Throttle


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The length of every sleep. The calls really sleep."""
    taken: list[float] = []
    sleep = time.sleep

    def recorded(seconds: float) -> None:
        taken.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", recorded)
    return taken


def work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(100))


def test_sleeps_as_long_as_it_worked(sleeps: list[float]) -> None:
    throttled = Throttle()
    work(2 * throttle.WORK_S)
    throttled.pause()
    assert len(sleeps) == 1
    assert sleeps[0] >= 2 * throttle.WORK_S


def test_takes_at_most_half_of_the_time(sleeps: list[float]) -> None:
    """All the work but the last stretch is followed by a sleep of the same length."""
    throttled = Throttle()
    for _ in range(100):
        work(0.001)
        throttled.pause()
    assert sum(sleeps) >= 0.1 - throttle.WORK_S


def test_short_work_needs_no_sleep(monkeypatch: pytest.MonkeyPatch, sleeps: list[float]) -> None:
    monkeypatch.setattr(throttle, "WORK_S", 60.0)
    Throttle().pause()
    assert sleeps == []


def test_a_sleep_is_bounded(monkeypatch: pytest.MonkeyPatch, sleeps: list[float]) -> None:
    """Otherwise one long step (a large file) would hold up the work, and closing the store, for as long again."""
    monkeypatch.setattr(throttle, "MAX_SLEEP_S", 0.005)
    throttled = Throttle()
    work(2 * throttle.WORK_S)
    throttled.pause()
    assert sleeps == [0.005]


# -- giving way --------------------------------------------------------------------------------------


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """CPU time of the other threads: the last number of the list."""
    used = [0.0]
    monkeypatch.setattr(throttle, "_cpu_of_others", lambda: used[-1])
    monkeypatch.setattr(throttle, "LOOK_S", 0.0)
    return used


def test_gives_way_until_the_other_threads_are_idle(others: list[float]) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(0.001)
        if len(waits) < 3:
            others.append(others[-1] + 1.0)

    giving = GiveWay(wait)
    others.append(1.0)
    giving.pause()
    assert waits == [throttle.GIVE_WAY_S] * 3
    giving.pause()
    assert len(waits) == 3, "they are idle now"


def test_a_process_that_is_always_busy_does_not_prevent_the_work(others: list[float]) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        others.append(others[-1] + 1000.0)

    giving = GiveWay(wait)
    others.append(1000.0)
    giving.pause()
    assert sum(waits) == pytest.approx(throttle.MAX_GIVE_WAY_S)
    others.append(others[-1] + 1000.0)
    giving.pause()
    assert sum(waits) == pytest.approx(throttle.MAX_GIVE_WAY_S)


def test_the_work_of_the_thread_itself_does_not_count() -> None:
    waits: list[float] = []
    giving = GiveWay(waits.append)
    before = throttle._cpu_of_others()
    work(2 * throttle.LOOK_S)
    assert throttle._cpu_of_others() - before < throttle.LOOK_S
    giving.pause()
    assert waits == []
