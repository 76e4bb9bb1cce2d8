"""Listings in the kernel's page cache: read without a handle, and invalidated on every change.

With the C extension the kernel opens directories by itself and keeps what it has read. It reads a
listing again if it changed the directory itself, if the directory's mtime changed, or if it is
notified. So everything that changes a listing without the kernel must call
`Node.invalidate_listing`, which leads here.

A notice may overtake a reply that is still on its way into the cache. Each notice is therefore
repeated. Generated and unwatched directories change without an event: the kernel forgets their
listings soon after it read them.

Without a handle a large directory is read in parts that have nothing in common but a position. The
position names the listing it belongs to, so a reader continues in the listing it began.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from itertools import cycle

import trio

from fusefs.fast import LAST_POSITION
from fusefs.requests.errnos import spawn_guarded
from fusefs.requests.kernel_cache import invalidate, invalidate_held_listing
from fusefs.tree.nodes import Invalidation, Listing, Node
from fusefs.views.base import VirtualDir

REPEAT_S = 0.3
FORGET_S = 0.5  # as long as the attributes of generated and unwatched directories are cached
# A position has 31 bits, for 32-bit programs: the number of a listing, LAST_POSITION, and the index of the next name.
# So a listing has at most 8 million names. Numbers are used again long after their listing was dropped.
_INDEX_BITS = 24
_INDEX = LAST_POSITION - 1
_NUMBERS = 127
_MAX_NAMES = 100_000  # in all listings that are being read in parts


class KernelListings:
    def __init__(self) -> None:
        self._numbers = cycle(range(1, _NUMBERS + 1))
        self._unfinished: OrderedDict[tuple[int, int], Listing] = OrderedDict()  # by directory and number
        self._outdated: dict[int, None] = {}  # the kernel is to be notified
        self._repeated: dict[int, None] = {}  # and again by the next task
        self._is_scheduled = False
        self._read_lately: dict[int, bool] = {}  # unwatched directories → read since the last notice

    # -- positions -------------------------------------------------------------------------------

    def position_after(self, listing: Listing, index: int) -> int:
        """The position after the name with this index in a listing."""
        if listing.number == 0:
            listing.number = next(self._numbers)
        is_last = index == len(listing.names) - 1
        return listing.number << _INDEX_BITS | (LAST_POSITION if is_last else 0) | (index + 1)

    def index_of(self, position: int) -> int:
        return position & _INDEX

    def keep(self, directory: Node, listing: Listing) -> None:
        """Keep a listing of which the kernel has read a part. Of older ones, only the names are kept."""
        key = directory.inode, listing.number
        if key not in self._unfinished:
            self._drop_items(directory.inode)
        self._unfinished[key] = listing
        self._unfinished.move_to_end(key)
        while len(self._unfinished) > 1 and sum(len(kept.names) for kept in self._unfinished.values()) > _MAX_NAMES:
            self._unfinished.popitem(last=False)

    def _drop_items(self, directory: int) -> None:
        for key, kept in self._unfinished.items():
            if key[0] == directory and kept.items:
                self._unfinished[key] = Listing(kept.names, changes=kept.changes, number=kept.number)

    def begun(self, directory: Node, position: int) -> Listing | None:
        """The listing that a position belongs to; None at the beginning, or if it was dropped."""
        return self._unfinished.get((directory.inode, position >> _INDEX_BITS))

    # -- invalidation ----------------------------------------------------------------------------

    def will_read(self, directory: Node) -> None:
        """The kernel is about to read this directory: from now on it is notified of changes."""
        directory.on_outdated = self._add

    def was_read(self, directory: Node, listing: Listing, *, is_for_all: bool = True) -> None:
        """The kernel has a part of this listing in its cache from now on.

        A listing that is not for all leaves out what its reader renamed away, and is dropped again.
        So is one that changed while it was made.
        """
        if not is_for_all or listing.is_stale or listing.changes != directory.changes:
            self._add(directory)
        is_fixed = isinstance(directory.item, VirtualDir) and directory.item.is_fixed
        if not directory.is_watched and not is_fixed:
            is_known = directory.inode in self._read_lately
            self._read_lately[directory.inode] = True
            if not is_known:
                spawn_guarded("forgetting a listing", partial(self._forget, directory.inode))

    async def _forget(self, inode: int) -> None:
        """Make the kernel forget a listing, until nobody has read it for a while."""
        while self._read_lately[inode]:
            self._read_lately[inode] = False
            await trio.sleep(FORGET_S)
            await invalidate([Invalidation(inode, pages=True)])
        del self._read_lately[inode]
        self._drop_items(inode)

    def _add(self, directory: Node) -> None:
        self._outdated[directory.inode] = self._repeated[directory.inode] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            spawn_guarded("invalidating listings", self._invalidate_twice)

    async def _invalidate_twice(self) -> None:
        self._is_scheduled = False
        repeated, self._repeated = self._repeated, {}
        await self.invalidate_outdated()
        await trio.sleep(REPEAT_S)
        await invalidate([Invalidation(inode, pages=True) for inode in repeated])

    async def invalidate_outdated(self) -> None:
        """Make the kernel read outdated listings again, before the caller's request is answered."""
        await invalidate(self.take_outdated())

    def take_outdated(self) -> list[Invalidation]:
        """Take the notices for outdated listings. The caller must send them; a task repeats them later."""
        outdated, self._outdated = self._outdated, {}
        return [Invalidation(inode, pages=True) for inode in outdated]

    async def held_directories_changed(self, *directories: Node) -> None:
        """A rename or rmdir failed. Directories that the kernel holds for it may list other names; it does not know.

        A failed rename may add a rejected text and its reason: to the directory of the target, or of the source, whose
        open file is committed first, and which may have the document of an exchange.
        """
        for directory in set(directories):
            directory.invalidate_listing()
            if directory.on_outdated is not None:
                await invalidate_held_listing(directory.inode)
