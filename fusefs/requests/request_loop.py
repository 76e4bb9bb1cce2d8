"""The request loop: pyfuse3's own, without a scheduler pass per request.

pyfuse3 waits for each request in trio: an epoll_ctl, an epoll_wait and a hand-over of its lock, three quarters of
what a small request costs. It looks `trio` up as a global of its own; what is put there instead keeps the lock with
who has it, and looks for the next request with select(2) before it goes back to trio. It sleeps in it where the caller
needs our CPU to go on, and spins where the caller has one of its own: to wake a CPU that went to sleep takes several
times what answering does, above all in a virtual machine.

    a request answered at once → the next one, at once
    nothing came for a moment, or some milliseconds have passed → trio's own wait: the others get their turn
    a handler waits for something → another reader takes over, or the mount would stand still until it is done

Where pyfuse3 has no such hook its own loop serves, and the log says so.
"""

from __future__ import annotations

import logging
import select
import time
from collections import deque
from collections.abc import Awaitable, Generator
from types import SimpleNamespace
from typing import Any, cast

import pyfuse3
import trio
from trio.lowlevel import Abort, Task

from fusefs.requests.cpu_affinity import CpuFollower
from fusefs.switches import enabled

log = logging.getLogger("grovefs.mount")

GRACE_S = 0.0001  # how long to look for the next request, asleep
SPIN_S = 0.0002  # … awake: what grep or tar do with a file before they open the next takes less
# At the latest then everybody else gets their turn: soon while handlers wait for threads, else timers can wait longer.
BUSY_TURN_S = 0.002
TURN_S = 0.01
BUSY_S = 1.0  # since a handler waited last


class _Done:
    """Awaited, it is over at once, without a coroutine made for it."""

    def __await__(self) -> Generator[Any, Any, None]:
        return cast("Generator[Any, Any, None]", iter(()))


_DONE = _Done()


class RequestLock(trio.abc.Instrument):
    """Who reads requests: the lock that pyfuse3's tasks pass round, and the wait they do with it."""

    def __init__(self, companion: CpuFollower) -> None:
        self._companion = companion
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
        """It stays with its holder, who is about to answer and to come back."""
        return _DONE

    def after_task_step(self, task: Task) -> None:
        """Its holder stopped, and not to wait for requests: a handler waits for something, or it is gone."""
        if self._holder is task and not self._is_waiting:
            self._busy_until = time.monotonic() + BUSY_S
            self._holder = None
            if self._parked:
                trio.lowlevel.reschedule(self._parked.popleft())

    # -- the wait --------------------------------------------------------------------------------------

    def wait_readable(self, fd: int) -> Awaitable[None]:
        # Only with another reader parked: pyfuse3 starts one whenever it sees none, and it has to get there first.
        if self._parked and time.monotonic() < self._turn_ends and self._comes_soon(fd):
            return _DONE
        return self._wait(fd)

    def _comes_soon(self, fd: int) -> bool:
        if not self._companion.is_apart:
            return bool(select.select([fd], (), (), GRACE_S)[0])
        ends = time.perf_counter() + SPIN_S
        while not select.select([fd], (), (), 0)[0]:
            if time.perf_counter() > ends:
                return False
        return True

    async def _wait(self, fd: int) -> None:
        self._is_waiting = True
        try:
            await trio.lowlevel.wait_readable(fd)
        finally:
            self._is_waiting = False
        now = time.monotonic()
        self._turn_ends = now + (BUSY_TURN_S if now < self._busy_until else TURN_S)


def install(companion: CpuFollower) -> list[trio.abc.Instrument]:
    """Put the loop in place, before pyfuse3.init; returns what trio.run must be given as instruments."""
    if not enabled("loop"):
        return []
    if getattr(pyfuse3, "trio", None) is not trio:
        log.warning("this pyfuse3 looks trio up in another way: requests are served by its own, slower loop")
        return []
    reader = RequestLock(companion)
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
