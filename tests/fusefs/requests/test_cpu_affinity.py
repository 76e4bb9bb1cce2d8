"""The daemon follows its caller, and knows when that is in vain; then the loop waits awake."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Any

import pytest

from fusefs.requests import cpu_affinity, request_loop
from fusefs.requests.cpu_affinity import CpuFollower
from fusefs.requests.request_loop import RequestLock


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Where the daemon went, on a machine of two CPUs."""
    made: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: made.append(cpus))
    monkeypatch.setattr(cpu_affinity, "EVERY_S", 0.0)
    return made


def caller_on(cpu: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_affinity, "_cpu_of", lambda _: cpu)


def test_a_caller_that_stays_is_joined(moves: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    mine = CpuFollower()
    caller_on(1, monkeypatch)
    mine.follow(4711)
    mine.follow(4711)
    assert moves == [{1}]
    assert not mine.is_apart


def test_a_caller_that_flees_is_known_to(moves: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    mine = CpuFollower()
    caller_on(1, monkeypatch)
    mine.follow(4711)
    caller_on(0, monkeypatch)
    mine.follow(4711)
    assert moves == [{1}, {0}]
    assert mine.is_apart


def test_a_caller_that_is_gone_changes_nothing(moves: list[set[int]]) -> None:
    mine = CpuFollower()
    mine.follow(2**22 + 1)
    assert moves == []
    assert not mine.is_apart


def test_switched_off_it_stays_where_it_is(moves: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROVEFS_WITHOUT", "companion")
    mine = CpuFollower()
    caller_on(1, monkeypatch)
    mine.follow(4711)
    assert moves == []


@pytest.fixture
def timeouts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """With which patience the loop looked for a request."""
    asked: list[float] = []
    original: Callable[..., object] = select.select

    def recorded(*args: Any) -> object:
        asked.append(args[3])
        return original(*args)

    monkeypatch.setattr(select, "select", recorded)
    return asked


@pytest.mark.parametrize("is_apart", [False, True])
def test_the_loop_spins_only_beside_a_caller_with_a_cpu_of_its_own(is_apart: bool, timeouts: list[float]) -> None:
    mine = CpuFollower()
    mine.is_apart = is_apart
    source, target = os.pipe()
    try:
        reader = RequestLock(mine)
        assert not reader._comes_soon(source)
        assert set(timeouts) == ({0} if is_apart else {request_loop.GRACE_S})
        os.write(target, b"a request")
        assert reader._comes_soon(source)
    finally:
        os.close(source)
        os.close(target)
