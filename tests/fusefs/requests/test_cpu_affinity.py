"""The request thread follows its caller's CPU; if the caller moves away, the request loop spins."""

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
    """CPU sets that the daemon moved to, on a machine with two CPUs."""
    cpu_sets: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: cpu_sets.append(cpus))
    monkeypatch.setattr(cpu_affinity, "CHECK_EVERY_S", 0.0)
    return cpu_sets


def caller_on(cpu: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_affinity, "_cpu_of", lambda _: cpu)


def test_daemon_moves_to_the_callers_cpu(moves: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    follower = CpuFollower()
    caller_on(1, monkeypatch)
    follower.follow(4711)
    follower.follow(4711)
    assert moves == [{1}]
    assert not follower.is_apart


def test_caller_that_moves_away_is_noticed(moves: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    follower = CpuFollower()
    caller_on(1, monkeypatch)
    follower.follow(4711)
    caller_on(0, monkeypatch)
    follower.follow(4711)
    assert moves == [{1}, {0}]
    assert follower.is_apart


def test_ended_caller_changes_nothing(moves: list[set[int]]) -> None:
    follower = CpuFollower()
    follower.follow(2**22 + 1)
    assert moves == []
    assert not follower.is_apart


def test_disabled_follower_never_moves(moves: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROVEFS_WITHOUT", "companion")
    follower = CpuFollower()
    caller_on(1, monkeypatch)
    follower.follow(4711)
    assert moves == []


@pytest.fixture
def timeouts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Timeouts of the request loop's select calls."""
    timeouts: list[float] = []
    original: Callable[..., object] = select.select

    def recorded(*args: Any) -> object:
        timeouts.append(args[3])
        return original(*args)

    monkeypatch.setattr(select, "select", recorded)
    return timeouts


@pytest.mark.parametrize("is_apart", [False, True])
def test_loop_spins_only_if_the_caller_runs_on_another_cpu(is_apart: bool, timeouts: list[float]) -> None:
    follower = CpuFollower()
    follower.is_apart = is_apart
    source, target = os.pipe()
    try:
        reader = RequestLock(follower)
        assert not reader._comes_soon(source)
        assert set(timeouts) == ({0} if is_apart else {request_loop.GRACE_S})
        os.write(target, b"a request")
        assert reader._comes_soon(source)
    finally:
        os.close(source)
        os.close(target)
