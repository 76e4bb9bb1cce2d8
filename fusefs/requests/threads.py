"""The single door from trio to blocking work.

Work on one session queues on a lock of that session before it takes a thread, so that forty writers
waiting for one session cannot hold all the threads that its holder needs. A started commit is never
abandoned: who asked may be gone, the answer is awaited all the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from fusefs.requests.cpu_affinity import CpuFollower

T = TypeVar("T")

_LIMITER = trio.CapacityLimiter(16)


class Threads:
    def __init__(self, companion: CpuFollower) -> None:
        self._companion = companion
        self._queues: dict[object, tuple[trio.Lock, int]] = {}

    async def run(self, work: Callable[[], T], session: object = None) -> T:
        """Do blocking work in a thread, one at a time for each session."""
        async with self.queued(session):
            return await trio.to_thread.run_sync(self._anywhere, work, limiter=_LIMITER)

    def _anywhere(self, work: Callable[[], T]) -> T:
        self._companion.unpin_thread()
        return work()

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
