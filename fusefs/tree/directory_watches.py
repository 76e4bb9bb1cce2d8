"""Inotify watches: one on each directory that the kernel knows.

The kernel caches names and attributes without a timeout. Every change made elsewhere (through the
API, by another mount, by an editor directly in the home) must therefore be noticed here. A
directory without a watch, because the user's limit is reached, is cached for a moment only. A
watch follows its directory through renames, as the node does.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import NamedTuple

import inotify_simple
from inotify_simple import flags

from fusefs.tree.nodes import Node

log = logging.getLogger("grovefs.mount")

_NAMES = flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO
_BYTES = flags.MODIFY | flags.CLOSE_WRITE | flags.ATTRIB
_MASK = _NAMES | _BYTES | flags.ONLYDIR | flags.DONT_FOLLOW
_LIMIT_FILE = Path("/proc/sys/fs/inotify/max_user_watches")


class Event(NamedTuple):
    directory: Node | None  # None: events were lost, anything may have changed
    name: str  # "" for the directory itself
    is_name: bool  # the name was created or removed; otherwise only bytes or attributes changed
    is_gone: bool = False  # the directory itself was removed, and its watch with it


class DirectoryWatches:
    def __init__(self, home: Path) -> None:
        self._home = os.fsencode(home)
        self._inotify = inotify_simple.INotify(nonblocking=True)
        self._nodes: dict[int, Node] = {}
        self._numbers: dict[int, int] = {}  # inode of the node → watch
        self._limit = _watch_limit()

    def fileno(self) -> int:
        return int(self._inotify.fileno())

    def add(self, node: Node) -> bool:
        """Watch a directory. Returns whether changes in it are reported from now on."""
        if node.is_watched:
            return True
        if len(self._nodes) >= self._limit:
            return False
        try:
            number = self._inotify.add_watch(os.path.join(self._home, os.fsencode(node.path)), _MASK)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # other programs use the rest
                self._limit = len(self._nodes)
                log.info(
                    "inotify limit reached: watching %d directories; others are cached for a moment only", self._limit
                )
            return False  # or the directory was removed, which the next lookup finds
        self._clear_watch(self._nodes.get(number))
        self._nodes[number], self._numbers[node.inode] = node, number
        node.is_watched, node.encoded = True, None
        return True

    def drop(self, node: Node) -> None:
        """Stop watching a directory that the kernel has forgotten."""
        number = self._numbers.pop(node.inode, None)
        if number is not None and self._nodes.pop(number, None) is not None:
            node.is_watched = False
            try:
                self._inotify.rm_watch(number)
            except OSError as error:  # the directory was removed, and its watch with it
                log.debug("watch on %s: %s", node.path, error)

    def read(self) -> list[Event]:
        """Events since the last call, without duplicates."""
        seen: dict[Event, None] = {}
        for event in self._inotify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW:
                seen[Event(None, "", True)] = None
            elif (node := self._nodes.get(event.wd)) is None:
                continue
            elif event.mask & flags.IGNORED:
                self._clear_watch(node)
                self._nodes.pop(event.wd, None)
                seen[Event(node, "", True, is_gone=True)] = None
            else:
                seen[Event(node, event.name, bool(event.mask & _NAMES))] = None
        return list(seen)

    def _clear_watch(self, node: Node | None) -> None:
        if node is not None:
            node.is_watched = False
            self._numbers.pop(node.inode, None)
            self.unwatched(node)

    def unwatched(self, node: Node) -> None:
        """Hook, called with each directory whose changes are not reported any more."""

    def close(self) -> None:
        self._inotify.close()


def _watch_limit() -> int:
    """Half of the user's inotify watches: other programs need the rest."""
    try:
        return int(_LIMIT_FILE.read_text()) // 2
    except (OSError, ValueError) as error:
        log.info("cannot read the inotify limit, changes made elsewhere are noticed late: %s", error)
        return 0
