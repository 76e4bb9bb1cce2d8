"""The request loop: which task holds the lock, and when it polls instead of waiting in trio."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyfuse3
import pytest
import trio
import trio.testing

from fusefs.requests import request_loop
from fusefs.requests.request_loop import RequestLock
from tests.fusefs.requests.harness import wait_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_handler_that_waits_passes_the_lock_to_another_reader(pipe: tuple[int, int]) -> None:
    """Otherwise one slow request would block the whole mount."""
    lock, order = RequestLock(), []

    async def read_requests(name: str, is_slow: trio.Event) -> None:
        async with lock:
            await lock.wait_readable(pipe[0])
            os.read(pipe[0], 1)
        order.append(f"{name} begins")
        await is_slow.wait()
        order.append(f"{name} ends")

    async def scenario() -> None:
        slow, fast = trio.Event(), trio.Event()
        fast.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_requests, "one", slow)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(read_requests, "two", fast)
            await trio.testing.wait_all_tasks_blocked()
            os.write(pipe[1], b"1")
            await trio.testing.wait_all_tasks_blocked()
            os.write(pipe[1], b"2")
            await wait_until(lambda: "two ends" in order)
            slow.set()
        assert order == ["one begins", "two begins", "two ends", "one ends"]

    trio.run(scenario, instruments=[lock])


def test_holder_keeps_the_lock_and_polls_for_the_next_request(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request is read without a pass through trio's scheduler."""
    monkeypatch.setattr(request_loop, "TURN_S", 60.0)
    lock, waits = RequestLock(), []
    wait_readable = trio.lowlevel.wait_readable

    async def counted(fd: int) -> None:
        waits.append(fd)
        await wait_readable(fd)

    monkeypatch.setattr(trio.lowlevel, "wait_readable", counted)

    async def parked() -> None:
        async with lock:
            pass

    async def send_requests() -> None:
        await trio.testing.wait_all_tasks_blocked()  # the other reader is parked
        os.write(pipe[1], b"123")

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parked)
            nursery.start_soon(send_requests)
            for _ in range(3):
                async with lock:
                    await lock.wait_readable(pipe[0])
                    os.read(pipe[0], 1)

    trio.run(scenario, instruments=[lock])
    assert waits == [pipe[0]]


def test_cancelled_reader_leaves_the_queue(pipe: tuple[int, int]) -> None:
    lock = RequestLock()

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(0):
                async with lock:
                    pytest.fail("the lock is held")
            assert not lock._parked
            nursery.cancel_scope.cancel()

    async def hold() -> None:
        async with lock:
            await lock.wait_readable(pipe[0])

    trio.run(scenario, instruments=[lock])


def test_a_request_that_the_extension_waits_for_is_not_polled_for(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_loop, "TURN_S", 60.0)
    monkeypatch.setattr(request_loop, "GRACE_S", 60.0)
    is_awaited: list[bool] = []
    lock = RequestLock(lambda: bool(is_awaited))

    async def parked() -> None:
        async with lock:
            pass

    async def send_request() -> None:
        await trio.testing.wait_all_tasks_blocked()  # the other reader is parked
        os.write(pipe[1], b"1")

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parked)
            nursery.start_soon(send_request)
            async with lock:
                await lock.wait_readable(pipe[0])
                os.read(pipe[0], 1)
                is_awaited.append(True)
                with trio.fail_after(30):
                    await lock.wait_readable(pipe[0])  # returns although there is no request

    trio.run(scenario, instruments=[lock])


@pytest.mark.warns
def test_work_between_requests_is_done_and_cannot_end_the_mount(
    pipe: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """It is called before each wait for a request, also after it failed."""
    calls: list[int] = []

    def work() -> bool:
        calls.append(len(calls))
        raise ZeroDivisionError

    lock = RequestLock(work)

    async def scenario() -> None:
        os.write(pipe[1], b"12")
        for expected in (1, 2):
            async with lock:
                await lock.wait_readable(pipe[0])
                os.read(pipe[0], 1)
            assert len(calls) == expected

    trio.run(scenario, instruments=[lock])
    assert caplog.text.count("work between requests failed") == 2


def test_loop_is_installed_and_removed() -> None:
    instruments = request_loop.install()
    try:
        assert [type(instrument) for instrument in instruments] == [RequestLock]
        assert vars(pyfuse3)["trio"] is not trio
    finally:
        request_loop.uninstall()
    assert vars(pyfuse3)["trio"] is trio


def test_disabled_loop_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROVEFS_WITHOUT", "loop")
    assert request_loop.install() == []
    assert vars(pyfuse3)["trio"] is trio


@pytest.mark.warns
def test_unknown_pyfuse3_is_served_by_its_own_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(vars(pyfuse3), "trio", object())
    assert request_loop.install() == []
    assert "slower loop" in caplog.text
