"""Inode numbers that documents show, across versions.

Each version of a document is a node with its own number, but editors take a file whose number
changes between stat and open for another file: vim then refuses to save. So a version shows the
number of the version it replaces, if the name is looked up again within a minute. It shows a later
ctime, so programs that compare both, such as cmp and git, still see a change.

The kernel may have forgotten the replaced version by then: it has one node per name, and a writer's
private node takes the place of the version. The number counts all the same, because a program may
have seen it. The same version, looked up again, shows what it showed before.

A process that has an older version open when it calls stat(2) is shown the node's own number:
`tail -F` would not follow the name otherwise. open(2) for writing leads to the number that stat(2)
has shown.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from fusefs.tree.nodes import Node
from fusefs.tree.processes import Process
from store.path_kinds import CHECKED

KEPT_S = 60.0
MAX_KEPT = 10_000  # the kernel may forget all documents of a large home at once


class ShownNumber(NamedTuple):
    """What the last version of a document showed."""

    number: int
    ctime_ns: int
    deadline: float
    version: int  # its own number


class ShownNumbers:
    def __init__(self) -> None:
        self._replaced: OrderedDict[str, ShownNumber] = OrderedDict()  # by path of a document, oldest first
        self._in_use: Counter[int] = Counter()  # by nodes with another number

    def is_reserved(self, number: int) -> bool:
        """Whether a new node must not get this number."""
        return number in self._in_use

    def find(self, path: str) -> int | None:
        """The number that the next version of a document shows."""
        kept = self._replaced.get(path)
        return kept.number if kept is not None and kept.deadline > time.monotonic() else None

    def replaced(self, node: Node) -> None:
        """A node lost its name, or the kernel forgot it: the next version shows the same number."""
        if not _is_document(node):
            return
        kept = self._replaced.get(node.path)
        assert node.info is not None
        shown_ns = max(node.info.st_ctime_ns, node.min_ctime_ns, kept.ctime_ns if kept is not None else 0)
        number = node.inode if node.shown_inode is None else node.shown_inode
        self._replaced[node.path] = ShownNumber(number, shown_ns, time.monotonic() + KEPT_S, node.inode)
        self._replaced.move_to_end(node.path)
        if len(self._replaced) > MAX_KEPT:
            self._replaced.popitem(last=False)

    def inherit(self, node: Node) -> None:
        """Let a new version show what its predecessor showed."""
        number = self.find(node.path)
        if number is None or not _is_document(node):
            return
        last = self._replaced[node.path]
        node.min_ctime_ns = last.ctime_ns if node.inode == last.version else last.ctime_ns + 1
        node.encoded = None
        self.show(node, number)

    def show(self, node: Node, number: int) -> None:
        """Let a node show a number until it is dropped."""
        self.dropped(node)
        if number != node.inode:
            node.shown_inode = number
            self._in_use[number] += 1

    def dropped(self, node: Node) -> None:
        """The node shows its own number again."""
        number, node.shown_inode, node.encoded = node.shown_inode, None, None
        if number is not None and number in self._in_use:
            self._in_use[number] -= 1
            if not self._in_use[number]:
                del self._in_use[number]

    def expire(self) -> None:
        now = time.monotonic()
        while self._replaced and next(iter(self._replaced.values())).deadline <= now:
            self._replaced.popitem(last=False)


def number_for(node: Node, process: Process, older_readers: Iterable[Process]) -> int:
    """The number to show a process. `older_readers` have an older version of the document open."""
    if node.shown_inode is None or process.pid in node.shows_own_to:
        return node.inode
    if any(reader.pid == process.pid for reader in older_readers):
        node.shows_own_to = node.shows_own_to | {process.pid}  # also after it closes the older version
        return node.inode
    return node.shown_inode


def _is_document(node: Node) -> bool:
    return node.is_version and node.disk_path.kind in CHECKED and node.buffer is None and node.info is not None
