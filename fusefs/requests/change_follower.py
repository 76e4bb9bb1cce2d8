"""What others change is told to the kernel, within a fraction of a second.

The API, another mount, an editor straight on the home: all of it arrives as events of the directories the kernel
knows. Our own changes do too, but what they changed is known already and costs no more than a look. Each
announcement is made twice: a lookup answered just before it may still be on its way into the kernel's cache.
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

GATHER_S = 0.05  # a save is several events, and whoever saves without end must not wake us each time
AGAIN_S = 0.3
_AT_ONCE = 500  # names looked at before others get their turn


class ChangeFollower:
    def __init__(self, tree: Tree, watches: DirectoryWatches, threads: Threads) -> None:
        self._tree = tree
        self._watches = watches
        self._threads = threads
        self._again: list[list[Invalidation]] = []  # by directory
        self._behind: set[Location] = set()  # sessions whose documents changed on disk
        kept = tree.store.names.rejects.make_directory()
        self._rejects = Node(0, None, "", kept, None)  # what is in it is shown in other directories
        watches.add(self._rejects)

    async def run(self) -> None:
        """Wait until something changes, and see to it that it is told."""
        with trio.move_on_after(AGAIN_S if self._again or self._behind else float("inf")):
            await trio.lowlevel.wait_readable(self._watches.fileno())
            await trio.sleep(GATHER_S)
        await self._follow(self._watches.read())

    async def _follow(self, events: Sequence[Event]) -> None:
        heard: dict[int, list[Invalidation]] = {}
        for number, event in enumerate(events):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            if event.directory is None:
                heard.setdefault(0, []).extend(await self._resync())
            else:
                heard.setdefault(event.directory.inode, []).extend(self._handle_event(event.directory, event))
        repeated, self._again = self._again, [notices for notices in heard.values() if notices]
        # One directory may be locked by who waits for a session; the others need not wait with it.
        for notices in (*repeated, *self._again):
            invalidate_later(notices)
        self._catch_up()

    def _handle_event(self, directory: Node, event: Event) -> list[Invalidation]:
        if directory is self._rejects:
            for node in self._tree.nodes:
                node.invalidate_listing()
            return []
        if event.is_gone:
            return self._tree.directory_gone(directory)
        if event.is_name:
            directory.invalidate_listing()
        notices = self._tree.recheck(directory, event.name) if event.name else []
        if notices or event.name not in directory.children:
            place = classify_path(directory.path_of(event.name))
            if place.kind in INDEXED and place.location is not None:
                self._behind.add(place.location)
        return [*notices, *self._tree.recheck_times(directory)]

    async def _resync(self) -> list[Invalidation]:
        """Events were lost: everything the kernel knows is looked at again, and what it takes for absent."""
        log.info("changes came faster than they could be followed; looking at everything again")
        notices: list[Invalidation] = []
        for number, node in enumerate(self._tree.nodes):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            node.invalidate_listing()
            for name in list(node.absent):
                notices += self._tree.forget_absent(node, name)
            if node.parent is not None and node.parent.children.get(node.name) is node:
                notices += self._tree.recheck(node.parent, node.name)
        return notices

    def _catch_up(self) -> None:
        """The index follows too; who is at work on a session is waited for, but not by the others."""
        behind, self._behind = self._behind, set()
        for location in behind:
            spawn_guarded(f"reading {location} again", partial(self._read_again, location))

    async def _read_again(self, location: Location) -> None:
        try:
            await self._threads.run(lambda: self._tree.store.names.refresh(location), location)
        except Busy:
            self._behind.add(location)
        except (StoreError, OSError) as error:
            log.warning("a change of %s on disk is not indexed yet: %s", location, error)
