"""Read-ahead: while a program walks a tree, read the directories that it will come to next.

find, grep and rsync go through the subdirectories of a directory in the order of its listing, tar in the
order of their inode numbers, rg from the last one to the first. Each of them goes down into a directory
before it reads the next one.

Two things are done ahead. Without help each directory waits for the disk in turn: a worker thread
reads into the kernel's caches, in C, without the interpreter's lock, the directories and those
below them, such as child sessions, up to a limit. Nothing it reads is used here.

And a program waits while a directory is listed, then the mount waits while the program processes the
names. So the mount lists the very next directory meanwhile, and makes the nodes of its names. The
listing is one like any other: the directory is watched, and every change drops it. Between the two
the program asks for the end of the listing it has, and must not wait for that.
"""

from __future__ import annotations

import logging
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
from store.errors import StoreError

log = logging.getLogger("grovefs.mount")

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

    def after(self, name: str) -> list[str]:
        """The names that may come right after this one."""
        place = self._places.get(name)
        return [] if place is None else self._names[place + 1 : place + 1 + MAX_STEP]


class _Walk:
    """A directory whose subdirectories are being read."""

    def __init__(self, directory: Node, listing: Listing) -> None:
        self.listing = listing
        known = directory.children
        numbers = {name: known[name].shown_inode or known[name].inode for name in listing.names if name in known}
        by_number = sorted(numbers, key=numbers.__getitem__)
        self._orders = [_Order(listing.names), _Order(by_number), _Order(reversed(listing.names))]
        self._order = self._orders[0]  # the one that the program follows

    def next_names(self, name: str) -> list[str]:
        found = [(order, order.next_names(name)) for order in self._orders]
        for order, names in found:
            if names is not None:
                self._order = order
                return names
        return []

    def after(self, name: str) -> list[str]:
        return self._order.after(name)


@dataclass
class ReadAhead:
    home: Path
    threads: Threads
    count_opens: Callable[[], int]  # files opened so far
    list_directory: Callable[[Node], object]  # lists a directory that is not large; the listing is cached
    make_nodes: Callable[[Node], list[Node]]  # of the names in a listed directory
    drop_node: Callable[[Node], object]  # if the kernel does not know it
    # Lets the extension answer the request for the end of a listing, and return then. False: it is not in use.
    pause_after_end: Callable[[], bool]
    _walks: dict[int, _Walk] = field(default_factory=dict)  # by node of the directory
    _opens: int = 0
    # Nodes of directories, in order: read lately, and listed ahead, with the nodes that were made in them.
    _recent: dict[int, list[Node]] = field(default_factory=dict)
    _expected: dict[int, list[Node]] = field(default_factory=dict)
    _next: Node | None = None  # to be listed as soon as there is time
    _listed: Node | None = None  # its nodes are to be made as soon as there is time
    _awaits_end: bool = False  # the program is about to ask for the end of the last listing

    # -- the kernel's caches ---------------------------------------------------------------------

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

    # -- the next listing ------------------------------------------------------------------------

    def directory_listed(self, directory: Node, listing: Listing) -> None:
        """A program got the names in this directory. If it walks a tree, choose the directory that comes next."""
        parent = directory.parent
        is_walk = directory.inode in self._expected or (parent is not None and parent.inode in self._recent)
        self._drop_unread(self._expected.pop(directory.inode, []))
        _note(self._recent, directory.inode)
        if is_walk and _IS_ENABLED:
            self._next = self._next_directory(directory, listing)
            self._awaits_end = self._next is not None and self.pause_after_end()

    def between_requests(self) -> bool:
        """Work ahead while a program is busy. Called after each answer.

        First the program processes the reply with the names, then it asks for the end of the listing, then it opens
        the next directory. Returns whether the extension has to wait for the end of a listing.
        """
        if self._next is not None:
            self.list_next()
        elif self._listed is not None:
            self.make_next()
        awaits_end, self._awaits_end = self._awaits_end, False
        return awaits_end

    def _next_directory(self, directory: Node, listing: Listing) -> Node | None:
        """The first subdirectory, or the one after this directory, or after one of those around it."""
        found = _first_unread(directory, listing.names)
        node = directory
        while found is None and node.parent is not None and node.parent.listing is not None:
            found = _first_unread(node.parent, self._after(node.parent, node.parent.listing, node.name))
            node = node.parent
        return found

    def _after(self, parent: Node, listing: Listing, name: str) -> list[str]:
        walk = self._walks.get(parent.inode)
        if walk is not None and walk.listing is listing:
            return walk.after(name)
        return _Order(listing.names).after(name) if len(listing.names) < MIN_NAMES else []

    def list_next(self) -> None:
        """List the chosen directory."""
        node, self._next = self._next, None
        if node is None or node.listing is not None or not node.is_watched:
            return
        self._drop_unread(_note(self._expected, node.inode))
        try:
            self.list_directory(node)
            self._listed = node
        except (StoreError, OSError) as error:  # removed or unreadable: a request for it will report that
            log.debug("not listed ahead: %s: %s", node.path, error)

    def make_next(self) -> None:
        """Make the nodes of the directory that was listed, unless it has been read since."""
        node, self._listed = self._listed, None
        if node is None or node.inode not in self._expected or not node.is_watched:
            return
        self._drop_unread(self._expected[node.inode])
        try:
            self._expected[node.inode] = self.make_nodes(node)
        except (StoreError, OSError) as error:
            log.debug("no nodes made ahead: %s: %s", node.path, error)

    def _drop_unread(self, nodes: Iterable[Node]) -> None:
        """Drop those of the nodes made ahead that the kernel has not read: it will not forget them."""
        for node in nodes:
            self.drop_node(node)


def _note(nodes: dict[int, list[Node]], inode: int) -> list[Node]:
    """Remember a directory as the last one. Returns what was made in the oldest, which is forgotten."""
    nodes[inode] = nodes.pop(inode, [])
    return nodes.pop(next(iter(nodes))) if len(nodes) > _MAX_WALKS else []


def _first_unread(parent: Node, names: Iterable[str]) -> Node | None:
    """The first of these names that is a directory without a listing."""
    nodes = (parent.children.get(name) for name in names)
    return next((node for node in nodes if node is not None and node.is_dir and node.listing is None), None)


def _is_unread(parent: Node, listing: Listing, name: str) -> bool:
    node = parent.children.get(name)
    if node is not None:
        return node.is_dir and node.listing is None
    info = listing.infos.get(name)
    return info is not None and stat.S_ISDIR(info.st_mode)
