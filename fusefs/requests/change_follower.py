"""Invalidates kernel caches after changes made elsewhere, within a fraction of a second.

Changes by the API, by another mount or by an editor directly in the home arrive as inotify events
of the directories that the kernel knows. Changes through this mount cause events too; the tree
and the index know them already, so they cost a few stats each. Each invalidation is sent twice: the reply to an
earlier lookup may still be on its way into the kernel's cache.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import trio
import trio.lowlevel

from fusefs.requests.errnos import spawn_guarded
from fusefs.requests.kernel_cache import invalidate_later
from fusefs.requests.threads import Threads
from fusefs.tree.directory_watches import DirectoryWatches, Event
from fusefs.tree.nodes import Invalidation, Node
from fusefs.tree.tree import Tree
from store.errors import Busy, StoreError
from store.layout import Location
from store.path_kinds import INDEXED, classify_path

log = logging.getLogger("grovefs.mount")

BATCH_S = 0.02  # a save is several events
BUSY_BATCH_S = 0.05  # after a batch with more events than a few saves make: a program saves continuously
_FEW_EVENTS = 32
REPEAT_S = 0.3
_BATCH_SIZE = 500  # names checked before other tasks run


class ChangeFollower:
    def __init__(self, tree: Tree, watches: DirectoryWatches, threads: Threads) -> None:
        self._tree = tree
        self._watches = watches
        self._threads = threads
        self._to_repeat: list[list[Invalidation]] = []  # one list per directory
        self._stale: set[Location] = set()  # sessions whose documents changed on disk
        self._batch_s = BATCH_S
        rejects = tree.store.names.rejects.make_directory()
        self._rejects = Node(0, None, "", rejects, None)  # its files are shown next to their documents
        watches.add(self._rejects)

    async def run(self) -> None:
        """Wait for events and invalidate what changed."""
        with trio.move_on_after(REPEAT_S if self._to_repeat else float("inf")):
            await trio.lowlevel.wait_readable(self._watches.fileno())
            await trio.sleep(self._batch_s)
        events = self._watches.read()
        self._batch_s = BATCH_S if len(events) <= _FEW_EVENTS else BUSY_BATCH_S
        await self._follow(events)

    async def _follow(self, events: Sequence[Event]) -> None:
        by_directory: dict[int, list[Invalidation]] = {}
        for number, event in enumerate(events):
            if number % _BATCH_SIZE == _BATCH_SIZE - 1:
                await trio.lowlevel.checkpoint()
            if event.directory is None:
                by_directory.setdefault(0, []).extend(await self._resync())
            else:
                by_directory.setdefault(event.directory.inode, []).extend(self._handle_event(event.directory, event))
        repeats, self._to_repeat = self._to_repeat, [notices for notices in by_directory.values() if notices]
        # One call per directory: a directory may be locked by a request that waits for a session.
        for notices in (*repeats, *self._to_repeat):
            invalidate_later(notices)
        self._index_stale()

    def _handle_event(self, directory: Node, event: Event) -> list[Invalidation]:
        if directory is self._rejects:
            for node in self._tree.nodes:
                node.invalidate_listing()
            return []
        if event.is_gone:
            return self._tree.directory_gone(directory)
        if event.is_name:
            directory.invalidate_listing()
        else:
            directory.forget_info(event.name)
        notices = self._tree.recheck(directory, event.name) if event.name else []
        # Also if the tree knows the file as it is: a lookup may have been faster than this event, and indexes nothing.
        path_info = classify_path(directory.path_of(event.name))
        if path_info.kind in INDEXED and path_info.location is not None:
            self._stale.add(path_info.location)
        return [*notices, *self._tree.recheck_times(directory)]

    async def _resync(self) -> list[Invalidation]:
        """Recheck everything that the kernel knows, including absent names, after events were lost."""
        log.info("inotify queue overflow: rechecking all known files")
        notices: list[Invalidation] = []
        for number, node in enumerate(self._tree.nodes):
            if number % _BATCH_SIZE == 0:
                await trio.lowlevel.checkpoint()
            node.invalidate_listing()
            for name in list(node.absent):
                notices += self._tree.forget_absent(node, name)
            if node.parent is not None and node.parent.children.get(node.name) is node:
                notices += self._tree.recheck(node.parent, node.name)
        return notices

    def _index_stale(self) -> None:
        """Index changed documents, in one task per session: a busy session must not delay the others."""
        stale, self._stale = self._stale, set()
        for location in stale:
            self._index(location)

    def _index(self, location: Location) -> None:
        spawn_guarded(f"indexing {location}", partial(self._refresh, location))

    async def _refresh(self, location: Location) -> None:
        try:
            await self._threads.run(lambda: self._tree.store.names.refresh(location), location)
        except Busy:
            await trio.sleep(REPEAT_S)
            self._index(location)
        except (StoreError, OSError) as error:
            log.warning("%s: a change on disk is not indexed yet: %s", location, error)
