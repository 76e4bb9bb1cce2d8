"""Housekeeping: jobs run after a change, and again when they ask for it."""

from __future__ import annotations

import threading

import pytest

from store.home.housekeeping import Housekeeper


def test_a_job_runs_again_without_a_change_when_it_asks_for_it() -> None:
    """Such as a history that did not work: nobody may save for hours."""
    runs = threading.Semaphore(0)
    answers = [0.01, 0.01, None]

    def job() -> float | None:
        runs.release()
        return answers.pop(0) if answers else None

    keeper = Housekeeper([job])
    keeper.notify()
    try:
        assert all(runs.acquire(timeout=60) for _ in range(3))
        assert not runs.acquire(timeout=0.2), "a job that asks for nothing waits for a change"
    finally:
        keeper.stop()


@pytest.mark.warns
def test_a_failing_job_does_not_stop_the_others() -> None:
    is_run = threading.Event()

    def fail() -> None:
        raise OSError("no space")

    keeper = Housekeeper([fail, is_run.set])
    keeper.notify()
    try:
        assert is_run.wait(60)
    finally:
        keeper.stop()
