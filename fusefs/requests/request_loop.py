"""The request loop: pyfuse3's loop without a scheduler pass per request.

pyfuse3 waits for each request in trio: an epoll_ctl, an epoll_wait and a lock hand-over, three
quarters of the cost of a small request. It uses a module global `trio`. `install` replaces that
global by an object whose lock stays with its holder, and which polls for the next request with
select(2) before it waits in trio. The poll sleeps: spinning, and moving to the caller's CPU, gained
nothing once the kernel and the C extension answered most requests.

    a request was answered without waiting → poll for the next one
    no request for a moment, or some milliseconds passed → wait in trio, so other tasks run
    a handler waits → another reader task takes the lock, otherwise the mount would block until it is done

If pyfuse3 has no such global, its own loop is used and a warning is logged.
"""

from __future__ import annotations

import logging
import select
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from types import SimpleNamespace
from typing import Any, cast

import pyfuse3
import trio
from trio.lowlevel import Abort, Task

from fusefs.requests.errnos import call_guarded
from fusefs.switches import enabled

log = logging.getLogger("grovefs.mount")

GRACE_S = 0.0001  # how long to poll for the next request
# How long other tasks may wait: short while handlers wait for threads, longer for timers.
BUSY_TURN_S = 0.002
TURN_S = 0.01
BUSY_S = 1.0  # after a handler last waited


class _Done:
    """An awaitable that completes immediately, without creating a coroutine."""

    def __await__(self) -> Generator[Any, Any, None]:
        return cast("Generator[Any, Any, None]", iter(()))


_DONE = _Done()


class RequestLock(trio.abc.Instrument):
    """The lock of pyfuse3's reader tasks, and their wait for the next request."""

    def __init__(self, when_idle: Callable[[], bool] = lambda: False) -> None:
        self._when_idle = when_idle  # called after each answer, before the wait for the next request
        self._holder: Task | None = None
        self._parked: deque[Task] = deque()
        self._is_waiting = False  # the holder is in trio's own wait
        self._turn_ends = 0.0
        self._busy_until = 0.0

    # -- the lock --------------------------------------------------------------------------------------

    def __aenter__(self) -> Awaitable[None]:
        task = trio.lowlevel.current_task()
        if self._holder is None or self._holder is task:
            self._holder = task
            return _DONE
        return self._acquire(task)

    async def _acquire(self, task: Task) -> None:
        while self._holder is not None and self._holder is not task:
            await self._park(task)
        self._holder = task

    async def _park(self, task: Task) -> None:
        self._parked.append(task)

        def give_up(_: Any) -> Abort:
            self._parked.remove(task)
            return Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    def __aexit__(self, *_: object) -> Awaitable[None]:
        """Keep the lock: the holder answers the request and comes back."""
        return _DONE

    def after_task_step(self, task: Task) -> None:
        """Pass the lock on if the holder paused in a handler or ended, and does not wait for requests."""
        if self._holder is task and not self._is_waiting:
            self._busy_until = time.monotonic() + BUSY_S
            self._holder = None
            if self._parked:
                trio.lowlevel.reschedule(self._parked.popleft())

    # -- the wait --------------------------------------------------------------------------------------

    def wait_readable(self, fd: int) -> Awaitable[None]:
        is_awaited = call_guarded("work between requests", self._when_idle)
        # Poll only if another reader is parked: pyfuse3 starts one if it has none, and that one
        # must run first.
        may_poll = self._parked and time.monotonic() < self._turn_ends
        if may_poll and (is_awaited or select.select([fd], (), (), GRACE_S)[0]):
            return _DONE
        return self._wait(fd)

    async def _wait(self, fd: int) -> None:
        self._is_waiting = True
        try:
            await trio.lowlevel.wait_readable(fd)
        finally:
            self._is_waiting = False
        now = time.monotonic()
        self._turn_ends = now + (BUSY_TURN_S if now < self._busy_until else TURN_S)


def install(when_idle: Callable[[], bool] = lambda: False) -> list[trio.abc.Instrument]:
    """Install the loop before pyfuse3.init. Returns the instruments for trio.run.

    `when_idle` is called after each answer. It must be short: the next request may wait for it. It returns whether
    the extension waits for the next request itself.
    """
    if not enabled("loop"):
        return []
    if getattr(pyfuse3, "trio", None) is not trio:
        log.warning("this version of pyfuse3 is not supported by the fast request loop; using its own, slower loop")
        return []
    reader = RequestLock(when_idle)
    lowlevel = SimpleNamespace(
        wait_readable=reader.wait_readable,
        current_task=trio.lowlevel.current_task,
        current_trio_token=trio.lowlevel.current_trio_token,
        notify_closing=trio.lowlevel.notify_closing,
    )
    vars(pyfuse3)["trio"] = SimpleNamespace(
        Lock=lambda: reader,
        lowlevel=lowlevel,
        open_nursery=trio.open_nursery,
        ClosedResourceError=trio.ClosedResourceError,
    )
    return [reader]


def uninstall() -> None:
    vars(pyfuse3)["trio"] = trio
