"""Worker threads: one at a time per session, and request statistics."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any

import pytest
import trio
import trio.testing

from fusefs.requests.threads import Threads
from fusefs.requests.timings import Timings
from tests.fusefs.requests.harness import in_trio, wait_until


@in_trio
async def test_work_on_one_session_waits_without_occupying_threads() -> None:
    """Forty writers wait for one session: work on another one still gets a thread."""
    threads, gate, order = Threads(), threading.Event(), []
    started = threading.Event()

    def first() -> None:
        started.set()
        assert gate.wait(20)
        order.append("first")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, first, "s")
        await wait_until(started.is_set)
        for _ in range(40):
            nursery.start_soon(threads.run, lambda: order.append("waiting"), "s")
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(20):
            await threads.run(lambda: order.append("other session"), "t")
        assert order == ["other session"]
        gate.set()
    assert order == ["other session", "first", *["waiting"] * 40]
    assert threads._queues == {}


@in_trio
async def test_exception_in_a_thread_releases_the_session() -> None:
    threads = Threads()
    for _ in range(2):
        try:
            await threads.run(lambda: 1 / 0, "s")
        except ZeroDivisionError:
            continue
    assert await threads.run(lambda: 1, "s") == 1


@in_trio
async def test_work_starts_before_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task that reads requests would look for the next one first."""
    threads, events = Threads(), list[str]()
    start = trio.lowlevel.start_thread_soon

    def noted(*arguments: Any) -> None:
        events.append("started")
        start(*arguments)

    async def other() -> None:
        events.append("other task")

    monkeypatch.setattr(trio.lowlevel, "start_thread_soon", noted)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        async with threads.queued("buffer"):
            await threads.run(lambda: None, "s")
    assert events == ["started", "other task"]


@in_trio
async def test_work_of_a_cancelled_task_does_not_start() -> None:
    ran = list[str]()
    with trio.CancelScope() as scope:
        scope.cancel()
        await Threads().run(lambda: ran.append("work"), "s")
    assert (ran, scope.cancelled_caught) == ([], True)


@in_trio
async def test_work_waits_for_a_free_thread_and_gives_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if no thread can be started."""
    limiter, gate, order = trio.CapacityLimiter(1), threading.Event(), list[str]()
    monkeypatch.setattr("fusefs.requests.threads._LIMITER", limiter)
    threads = Threads()

    def first() -> None:
        assert gate.wait(20)
        order.append("first")

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, first)
            await wait_until(lambda: limiter.borrowed_tokens == 1)
            nursery.start_soon(threads.run, lambda: order.append("second"))
            await trio.testing.wait_all_tasks_blocked()
            assert order == []
            gate.set()
        assert order == ["first", "second"]
        with monkeypatch.context() as patch:
            patch.setattr(trio.lowlevel, "start_thread_soon", raise_runtime_error)
            with pytest.raises(RuntimeError, match="no thread"):
                await threads.run(lambda: None)
        assert limiter.borrowed_tokens == 0
        assert await threads.run(lambda: 1) == 1


def raise_runtime_error(*_: object) -> None:
    raise RuntimeError("no thread")


@in_trio
async def test_started_work_is_not_cancelled() -> None:
    """Its caller gets the result, and its author is known in the thread."""
    threads, gate, results = Threads(), threading.Event(), list[str]()

    def work() -> str:
        assert gate.wait(20)
        return author.get()

    async with trio.open_nursery() as nursery:
        author = ContextVar("author", default="nobody")

        async def save() -> None:
            author.set("ada")
            results.append(await threads.run(work, "s"))

        nursery.start_soon(save)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        gate.set()
    assert results == ["ada"]


def test_timings_are_histograms_by_powers_of_two() -> None:
    timings = Timings()
    for microseconds in (0, 3, 3, 1000):
        timings.note("read", microseconds * 1024)
    timings.note("lookup", 0)
    assert timings.counts() == {"lookup": 1, "read": 4}
    assert timings.snapshot()["read"] == {"<1 us": 1, "<4 us": 2, "<1024 us": 1}


@in_trio
async def test_reading_does_not_wait_for_changes() -> None:
    """Changes of forty sessions wait for a slow database: reading still gets a thread."""
    threads, gate = Threads(), threading.Event()
    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(threads.run, lambda: gate.wait(20), f"s{number}")
        nursery.start_soon(lambda: threads.run(lambda: gate.wait(20), is_change=True))
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(10):
            assert await threads.run(lambda: "read") == "read"
        gate.set()
