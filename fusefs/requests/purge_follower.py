"""Drops cached texts of the past once they were purged, by this or another process.

A purge is announced in the change feed. It is rare, so the feed is read once a second only.
"""

from __future__ import annotations

import trio

from fusefs.requests.kernel_cache import invalidate_later
from fusefs.requests.threads import Threads
from fusefs.tree.tree import Tree

EVERY_S = 1.0


class PurgeFollower:
    def __init__(self, tree: Tree, threads: Threads) -> None:
        self._tree = tree
        self._threads = threads
        self._cursor = tree.store.feed.cursor()

    async def run(self) -> None:
        """Wait, then look for purges since the last time."""
        await trio.sleep(EVERY_S)
        await self.look()

    async def look(self) -> None:
        found = await self._threads.run(lambda: self._tree.store.feed.since(self._cursor))
        self._cursor = found.cursor
        if found.resync or any(change.what == "purged" for change in found.items):
            invalidate_later(self._tree.forget_views())
