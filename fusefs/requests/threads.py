"""Worker threads for blocking work.

Work on one session first waits for that session's lock and then takes a thread. Otherwise forty
writers waiting for one session could occupy all threads, including the one its lock holder needs.
Changes have threads of their own: reading does not wait for them.
A started commit is never cancelled, even if the requesting process has ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

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
            return await trio.to_thread.run_sync(work, limiter=_CHANGES_LIMITER if is_change else _LIMITER)
        async with self.queued(session):
            return await trio.to_thread.run_sync(work, limiter=_CHANGES_LIMITER)

    @asynccontextmanager
    async def queued(self, session: object) -> AsyncIterator[None]:
        """Wait until no other work on the session runs, and keep others waiting."""
        if session is None:
            yield
            return
        lock, users = self._queues.get(session, (trio.Lock(), 0))
        self._queues[session] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._queues.pop(session)
            if users > 1:
                self._queues[session] = lock, users - 1
