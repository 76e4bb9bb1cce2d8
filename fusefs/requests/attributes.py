"""Attributes of nodes as EntryAttributes, with their cache timeouts."""

from __future__ import annotations

import os
import stat

import pyfuse3

from fusefs.fast import EXTENSION
from fusefs.requests.entry_numbers import CAN_SHOW_NUMBERS, show_number
from fusefs.switches import enabled
from fusefs.tree.nodes import Node
from fusefs.views.base import Item, VirtualDir, VirtualFile, VirtualLink

# In a watched directory every change is followed by an invalidation. The timeout is finite, so an
# invalidation lost to a bug has an effect for an hour only.
WATCHED_S = 3600.0 if enabled("timeouts") else 0.0
# Without a watch (the limit is reached) changes made elsewhere must still be visible within a
# second.
UNWATCHED_S = 0.5
# Views are generated from the index, which every commit changes. They may be at most a second late.
VIEW_S = 0.5
# A name being written has another node after the commit.
UNCACHED_S = 0.0
# A writer's second open follows its lookup at once.
BEFORE_OPEN_S = 1.0

_MODES = {VirtualDir: stat.S_IFDIR | 0o555, VirtualLink: stat.S_IFLNK | 0o777, VirtualFile: stat.S_IFREG | 0o444}


def attributes(node: Node, *, cached: bool = True) -> pyfuse3.EntryAttributes:
    """Attributes for the kernel. Pass cached=False while the name is being written."""
    if node.encoded is not None and cached:
        encoded: pyfuse3.EntryAttributes = node.encoded
        return encoded
    attrs = pyfuse3.EntryAttributes()
    attrs.st_ino = node.inode
    attrs.generation = 0
    attrs.st_blksize = 4096
    attrs.st_rdev = 0
    if node.item is not None:
        _fill_virtual(attrs, node)
    else:
        _fill_stored(attrs, node)
    attrs.entry_timeout, attrs.attr_timeout = _timeouts(node) if cached else (UNCACHED_S, UNCACHED_S)
    if node.shown_inode is not None:
        show_number(attrs, node.shown_inode)
        attrs.attr_timeout = UNCACHED_S  # getattr, which knows the process, decides
    elif EXTENSION is None and cached and node.buffer is None and attrs.entry_timeout == WATCHED_S:
        node.encoded = attrs  # with the extension the kernel keeps listings and rarely asks again
    return attrs


def attributes_with_number(node: Node, number: int, *, cached: bool) -> pyfuse3.EntryAttributes:
    """Attributes for getattr, whose reply names no node, of a node that shows another number."""
    attrs = attributes(node)
    attrs.st_ino = number
    attrs.attr_timeout = _timeouts(node)[1] if cached else UNCACHED_S
    return attrs


def attributes_before_open(node: Node) -> pyfuse3.EntryAttributes:
    """Attributes of a private node for the lookup before its writer's open.

    An open that truncates needs only mode and owner of them. The kernel forgets the size and times then, but not
    the number: a wrong one must not be cached.
    """
    attrs = attributes(node)
    shows_number = node.shown_inode is None or CAN_SHOW_NUMBERS
    if node.buffer is not None and node.buffer.awaits_truncation and shows_number:
        attrs.attr_timeout = BEFORE_OPEN_S
    return attrs


def absent() -> pyfuse3.EntryAttributes:
    """A negative cache entry: git, vim and shells look up many absent names."""
    attrs = pyfuse3.EntryAttributes()
    attrs.st_ino = 0
    attrs.entry_timeout = WATCHED_S
    return attrs


def _timeouts(node: Node) -> tuple[float, float]:
    """Entry timeout and attribute timeout."""
    if node.buffer is not None:
        return UNCACHED_S, UNCACHED_S
    if node.item is not None:
        return (_item_timeout(node.item),) * 2
    parent = node.parent
    # The top directories sessions/, projects/ and state/ never change while mounted.
    is_noticed = parent is None or parent.is_watched or parent.parent is None
    if node.info is not None and node.info.st_nlink > 1 and not node.is_dir:
        is_noticed = False  # a change through its other hard link is not reported
    entry_s = WATCHED_S if is_noticed else UNWATCHED_S
    if node.is_dir:  # its times change with its entries, which only its own watch reports
        return entry_s, WATCHED_S if node.is_watched else UNWATCHED_S
    return entry_s, entry_s


def _item_timeout(item: Item) -> float:
    if isinstance(item, VirtualFile) and not item.is_cacheable:
        return UNCACHED_S
    return WATCHED_S if isinstance(item, VirtualDir) and item.is_fixed else VIEW_S


def _fill_virtual(attrs: pyfuse3.EntryAttributes, node: Node) -> None:
    item = node.item
    assert item is not None
    mode = _MODES[type(item)] | (stat.S_IWUSR if isinstance(item, VirtualDir) and item.is_writable else 0)
    if isinstance(item, VirtualLink):
        attrs.st_mode = mode
    elif item.mode is not None:
        attrs.st_mode = stat.S_IFMT(mode) | stat.S_IMODE(item.mode)
    else:
        attrs.st_mode = mode & ~(0o777 & ~node.shown_to)
    attrs.st_nlink = 2 if isinstance(item, VirtualDir) else 1
    owner = None if isinstance(item, VirtualLink) else item.owner
    attrs.st_uid, attrs.st_gid = owner or (os.geteuid(), os.getegid())
    attrs.st_size = _size(item)
    attrs.st_blocks = (attrs.st_size + 511) // 512
    attrs.st_atime_ns = attrs.st_mtime_ns = attrs.st_ctime_ns = item.mtime_ns


def _fill_stored(attrs: pyfuse3.EntryAttributes, node: Node) -> None:
    info, buffer = node.info, node.buffer
    if info is not None:
        attrs.st_mode, attrs.st_nlink = info.st_mode, info.st_nlink
        attrs.st_uid, attrs.st_gid = info.st_uid, info.st_gid
        attrs.st_size, attrs.st_blocks = info.st_size, info.st_blocks
        attrs.st_atime_ns, attrs.st_mtime_ns = info.st_atime_ns, info.st_mtime_ns
        attrs.st_ctime_ns = max(info.st_ctime_ns, node.min_ctime_ns)
    else:
        attrs.st_mode, attrs.st_nlink = stat.S_IFREG | 0o600, 1
        attrs.st_uid, attrs.st_gid = os.geteuid(), os.getegid()
        attrs.st_size = attrs.st_blocks = 0
        attrs.st_atime_ns = attrs.st_mtime_ns = attrs.st_ctime_ns = node.created_ns or 0
    if buffer is not None:
        attrs.st_size = buffer.size
        if info is None:
            attrs.st_blocks = (attrs.st_size + 511) // 512
        if buffer.mode is not None:
            attrs.st_mode = stat.S_IFREG | stat.S_IMODE(buffer.mode)
        if buffer.mtime_ns is not None:
            attrs.st_mtime_ns = buffer.mtime_ns


def _size(item: Item) -> int:
    if isinstance(item, VirtualFile):
        return item.size
    return len(os.fsencode(item.target)) if isinstance(item, VirtualLink) else 0
