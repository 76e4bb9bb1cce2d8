"""Read-ahead: while a program walks a tree, read the directories that it will come to next.

find, grep and rsync go through the subdirectories of a directory in the order of its listing, tar in the
order of their inode numbers. Without help each directory waits for the disk in turn. A worker thread
reads ahead into the kernel's caches, in C, without the interpreter's lock: the directories and those
below them, such as child sessions, up to a limit. Nothing it reads is used
here, so it cannot make anything stale.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fusefs.fast import EXTENSION
from fusefs.requests.errnos import spawn_guarded
from fusefs.requests.threads import Threads
from fusefs.switches import enabled
from fusefs.tree.nodes import Listing, Node

WINDOW = 64  # directories per turn
MIN_NAMES = 16  # in a smaller directory there is little to gain
MAX_STEP = 3  # files may be between two directories of a walk
_MAX_WALKS = 8
_IS_ENABLED = enabled("ahead")


class _Order:
    """An order in which a program may read the subdirectories of a directory."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._last: int | None = None  # place of the subdirectory that was read last
        self._reached = 0  # those before this place were read ahead

    def next_names(self, name: str) -> list[str] | None:
        """The names to read ahead now that `name` is read; None if it is not the next one in this order."""
        place, last = self._places.get(name), self._last
        self._last = place
        if place is None or last is None or not 0 < place - last <= MAX_STEP:
            return None
        if self._reached > place + WINDOW // 2:
            return []
        first, self._reached = max(place + 1, self._reached), place + 1 + WINDOW
        return self._names[first : self._reached]


class _Walk:
    """A directory whose subdirectories are being read."""

    def __init__(self, directory: Node, listing: Listing) -> None:
        self.listing = listing
        known = directory.children
        numbers = {name: known[name].shown_inode or known[name].inode for name in listing.names if name in known}
        self.orders = [_Order(listing.names), _Order(sorted(numbers, key=numbers.__getitem__))]

    def next_names(self, name: str) -> list[str]:
        found = [order.next_names(name) for order in self.orders]
        return next((names for names in found if names is not None), [])


@dataclass
class ReadAhead:
    home: Path
    threads: Threads
    count_opens: Callable[[], int]  # files opened so far
    _walks: dict[int, _Walk] = field(default_factory=dict)  # by node of the directory
    _opens: int = 0

    def directory_read(self, directory: Node) -> None:
        """A program reads this directory for the first time. Read ahead if it is the next one of a walk."""
        parent = directory.parent
        if EXTENSION is None or parent is None or parent.listing is None or directory.name not in parent.children:
            return
        if len(parent.listing.names) >= MIN_NAMES and _IS_ENABLED:
            names = self._walk(parent, parent.listing).next_names(directory.name)
            self._start(parent, parent.listing, names)

    def _walk(self, parent: Node, listing: Listing) -> _Walk:
        walk = self._walks.get(parent.inode)
        if walk is None or walk.listing is not listing:
            while len(self._walks) >= _MAX_WALKS:
                del self._walks[next(iter(self._walks))]
            walk = self._walks[parent.inode] = _Walk(parent, listing)
        return walk

    def _start(self, parent: Node, listing: Listing, names: list[str]) -> None:
        paths = tuple(os.fsencode(parent.path_of(name)) for name in names if _is_unread(parent, listing, name))
        if not paths:
            return
        opens = self.count_opens()
        reads_files, self._opens = opens > self._opens, opens  # grep and tar do, find and ls do not
        assert EXTENSION is not None
        work = partial(EXTENSION.prefetch, os.fsencode(self.home), paths, reads_files)
        spawn_guarded("reading ahead", partial(self.threads.run, work))


def _is_unread(parent: Node, listing: Listing, name: str) -> bool:
    node = parent.children.get(name)
    if node is not None:
        return node.is_dir and node.listing is None
    info = listing.infos.get(name)
    return info is not None and stat.S_ISDIR(info.st_mode)
