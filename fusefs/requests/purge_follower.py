"""Drops cached texts of the past once they were purged, by this or another process.

A purge is announced in the change feed. It is rare, so the caller looks once a second only. If nothing was
committed since, no thread is woken: an idle mount should let the CPU sleep.
"""

from __future__ import annotations

from fusefs.requests.kernel_cache import invalidate_later
from fusefs.requests.threads import Threads
from fusefs.tree.tree import Tree


class PurgeFollower:
    def __init__(self, tree: Tree, threads: Threads) -> None:
        self._tree = tree
        self._threads = threads
        self._cursor = tree.store.feed.cursor()

    async def look(self) -> None:
        """Look for purges since the last time."""
        if self._tree.store.feed.cursor() == self._cursor:
            return
        found = await self._threads.run(lambda: self._tree.store.feed.since(self._cursor))
        self._cursor = found.cursor
        if found.resync or any(change.what == "purged" for change in found.items):
            invalidate_later(self._tree.forget_views())
