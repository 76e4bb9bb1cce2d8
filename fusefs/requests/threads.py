"""Worker threads for blocking work.

Work on one session first waits for that session's lock and then takes a thread. Otherwise forty
writers waiting for one session could occupy all threads, including the one its lock holder needs.
Changes have threads of their own: reading does not wait for them.
A started commit is never cancelled, even if the requesting process has ended.

`trio.to_thread` and trio's locks let all other tasks run before the work starts. One of them reads requests, and
waits up to a tenth of a millisecond for the next one. A save had three such pauses. So nothing here pauses unless it
has to wait.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import trio
from trio.lowlevel import Abort

if TYPE_CHECKING:
    from outcome import Outcome

T = TypeVar("T")

_LIMITER = trio.CapacityLimiter(16)
# For changes: in a grove each may wait for the database for ten seconds. Reads must not wait for them.
_CHANGES_LIMITER = trio.CapacityLimiter(16)


class Threads:
    def __init__(self) -> None:
        self._queues: dict[object, tuple[trio.Lock, int]] = {}

    async def run(self, work: Callable[[], T], session: object = None, *, is_change: bool = False) -> T:
        """Run blocking work in a thread, one at a time per session. Work on a session counts as a change."""
        if session is None:
            return await run_in_thread(work, _CHANGES_LIMITER if is_change else _LIMITER)
        async with self.queued(session):
            return await run_in_thread(work, _CHANGES_LIMITER)

    @asynccontextmanager
    async def queued(self, session: object) -> AsyncIterator[None]:
        """Wait until no other work on the session runs, and keep others waiting."""
        if session is None:
            yield
            return
        lock, users = self._queues.get(session, (trio.Lock(), 0))
        self._queues[session] = lock, users + 1
        try:
            try:
                lock.acquire_nowait()
            except trio.WouldBlock:
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, users = self._queues.pop(session)
            if users > 1:
                self._queues[session] = lock, users - 1


async def run_in_thread(work: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    """Run blocking work in one of trio's threads, at once if the limiter allows it. Started work is not cancelled."""
    await trio.lowlevel.checkpoint_if_cancelled()  # pauses only then
    task, token, borrower = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token(), object()
    try:
        limiter.acquire_on_behalf_of_nowait(borrower)
    except trio.WouldBlock:
        await limiter.acquire_on_behalf_of(borrower)
    context = contextvars.copy_context()

    def finish(result: Outcome[T]) -> None:
        limiter.release_on_behalf_of(borrower)
        trio.lowlevel.reschedule(task, result)

    def deliver(result: Outcome[T]) -> None:
        token.run_sync_soon(finish, result)

    try:
        trio.lowlevel.start_thread_soon(lambda: context.run(work), deliver)
    except BaseException:  # no thread can be started
        limiter.release_on_behalf_of(borrower)
        raise
    done: T = await trio.lowlevel.wait_task_rescheduled(lambda _: Abort.FAILED)
    return done
