"""Throttle: sleeps as long as the thread worked, but never longer than a bound."""

from __future__ import annotations

import time

import pytest

from store.search.grep import throttle
from store.search.grep.throttle import Throttle


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
