"""What changes behind the kernel's back: one inotify watch on each directory it knows.

The kernel caches names and attributes for as long as it likes, so every change made elsewhere (by the API, by
another mount, by an editor straight on the home) must be noticed here. A directory without a watch, since there
are none left, is cached for a moment only. A watch follows its directory through renames, as the node does.
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
    directory: Node | None  # None: the kernel could not keep up, anything may have changed
    name: str  # "" for the directory itself
    is_name: bool  # it came or went; else only its bytes or attributes changed
    is_gone: bool = False  # the directory itself is, and its watch with it


class DirectoryWatches:
    def __init__(self, home: Path) -> None:
        self._home = os.fsencode(home)
        self._inotify = inotify_simple.INotify(nonblocking=True)
        self._nodes: dict[int, Node] = {}
        self._numbers: dict[int, int] = {}  # inode of the node → watch
        self._limit = _half_of_the_systems()

    def fileno(self) -> int:
        return int(self._inotify.fileno())

    def add(self, node: Node) -> bool:
        """Whether changes in this directory will be told from now on."""
        if node.is_watched:
            return True
        if len(self._nodes) >= self._limit:
            return False
        try:
            number = self._inotify.add_watch(os.path.join(self._home, os.fsencode(node.path)), _MASK)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # others have taken the rest
                self._limit = len(self._nodes)
                log.info("no more than %d directories can be watched", self._limit)
            return False  # or it is gone, which the next look will tell
        self._let_go(self._nodes.get(number))
        self._nodes[number], self._numbers[node.inode] = node, number
        node.is_watched, node.encoded = True, None
        return True

    def drop(self, node: Node) -> None:
        """The kernel knows the directory no more."""
        number = self._numbers.pop(node.inode, None)
        if number is not None and self._nodes.pop(number, None) is not None:
            node.is_watched = False
            try:
                self._inotify.rm_watch(number)
            except OSError as error:  # the directory is gone, and its watch with it
                log.debug("watch on %s: %s", node.path, error)

    def read(self) -> list[Event]:
        """What happened since, each thing once."""
        seen: dict[Event, None] = {}
        for event in self._inotify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW:
                seen[Event(None, "", True)] = None
            elif (node := self._nodes.get(event.wd)) is None:
                continue
            elif event.mask & flags.IGNORED:
                self._let_go(node)
                self._nodes.pop(event.wd, None)
                seen[Event(node, "", True, is_gone=True)] = None
            else:
                seen[Event(node, event.name, bool(event.mask & _NAMES))] = None
        return list(seen)

    def _let_go(self, node: Node | None) -> None:
        if node is not None:
            node.is_watched = False
            self._numbers.pop(node.inode, None)

    def close(self) -> None:
        self._inotify.close()


def _half_of_the_systems() -> int:
    """Watches are shared with everyone: half of what a user may have is ours."""
    try:
        return int(_LIMIT_FILE.read_text()) // 2
    except (OSError, ValueError) as error:
        log.info("changes made elsewhere are noticed late: %s", error)
        return 0
