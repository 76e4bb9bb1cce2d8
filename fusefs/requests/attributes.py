"""Node → EntryAttributes; every cache timeout with its reason."""

from __future__ import annotations

import os
import stat

import pyfuse3

from fusefs.switches import enabled
from fusefs.tree.nodes import Node
from fusefs.views.base import Item, VirtualDir, VirtualFile, VirtualLink

# What is watched is cached for as long as the kernel likes: every change is announced. Not for ever, so that an
# announcement lost to a bug heals by itself.
ANNOUNCED_S = 3600.0 if enabled("timeouts") else 0.0
# Without a watch (there are none left) changes by others are to be seen within a second all the same.
UNWATCHED_S = 0.5
# Views are made from the index, which every commit changes: they too may be a second late, and no more.
VIEW_S = 0.5
# A name that a writer is on may lead elsewhere the next moment.
FLEETING_S = 0.0

_MODES = {VirtualDir: stat.S_IFDIR | 0o555, VirtualLink: stat.S_IFLNK | 0o777, VirtualFile: stat.S_IFREG | 0o444}


def attributes(node: Node, *, cached: bool = True) -> pyfuse3.EntryAttributes:
    """What the kernel is told of a node; not `cached` while someone is writing under its name."""
    if node.encoded is not None and cached:
        kept: pyfuse3.EntryAttributes = node.encoded
        return kept
    attrs = pyfuse3.EntryAttributes()
    attrs.st_ino = node.inode
    attrs.generation = 0
    attrs.st_blksize = 4096
    attrs.st_rdev = 0
    if node.item is not None:
        _made(attrs, node)
    else:
        _stored(attrs, node)
    attrs.entry_timeout, attrs.attr_timeout = _timeouts(node) if cached else (FLEETING_S, FLEETING_S)
    if cached and node.buffer is None and attrs.entry_timeout == ANNOUNCED_S:
        node.encoded = attrs
    return attrs


def absent() -> pyfuse3.EntryAttributes:
    """A name that leads nowhere, which the kernel may remember: git, vim and shells ask for many."""
    attrs = pyfuse3.EntryAttributes()
    attrs.st_ino = 0
    attrs.entry_timeout = ANNOUNCED_S
    return attrs


def _timeouts(node: Node) -> tuple[float, float]:
    """For how long the name leads here, and for how long it looks so."""
    if node.buffer is not None:
        return FLEETING_S, FLEETING_S
    if node.item is not None:
        return (_item_s(node.item),) * 2
    parent = node.parent
    # At the top nothing comes or goes: sessions/, projects/ and state/ are there as long as the mount is.
    is_sure = parent is None or parent.is_watched or parent.parent is None
    if node.info is not None and node.info.st_nlink > 1 and not node.is_dir:
        is_sure = False  # it has another name, and nobody tells what is done under that
    named_s = ANNOUNCED_S if is_sure else UNWATCHED_S
    if node.is_dir:  # its times change with what is in it, which only its own watch tells
        return named_s, ANNOUNCED_S if node.is_watched else UNWATCHED_S
    return named_s, named_s


def _item_s(item: Item) -> float:
    if isinstance(item, VirtualFile) and not item.is_cacheable:
        return FLEETING_S
    return ANNOUNCED_S if isinstance(item, VirtualDir) and item.is_fixed else VIEW_S


def _made(attrs: pyfuse3.EntryAttributes, node: Node) -> None:
    item = node.item
    assert item is not None
    mode = _MODES[type(item)] | (stat.S_IWUSR if isinstance(item, VirtualDir) and item.is_writable else 0)
    attrs.st_mode = mode if isinstance(item, VirtualLink) else mode & ~(0o777 & ~node.shown_to)
    attrs.st_nlink = 2 if isinstance(item, VirtualDir) else 1
    attrs.st_uid, attrs.st_gid = os.geteuid(), os.getegid()
    attrs.st_size = _size(item)
    attrs.st_blocks = (attrs.st_size + 511) // 512
    attrs.st_atime_ns = attrs.st_mtime_ns = attrs.st_ctime_ns = item.mtime_ns


def _stored(attrs: pyfuse3.EntryAttributes, node: Node) -> None:
    info, shadow = node.info, node.buffer
    if info is not None:
        attrs.st_mode, attrs.st_nlink = info.st_mode, info.st_nlink
        attrs.st_uid, attrs.st_gid = info.st_uid, info.st_gid
        attrs.st_size, attrs.st_blocks = info.st_size, info.st_blocks
        attrs.st_atime_ns, attrs.st_mtime_ns, attrs.st_ctime_ns = info.st_atime_ns, info.st_mtime_ns, info.st_ctime_ns
    else:
        attrs.st_mode, attrs.st_nlink = stat.S_IFREG | 0o600, 1
        attrs.st_uid, attrs.st_gid = os.geteuid(), os.getegid()
        attrs.st_size = attrs.st_blocks = 0
        attrs.st_atime_ns = attrs.st_mtime_ns = attrs.st_ctime_ns = node.created_ns or 0
    if shadow is not None:
        attrs.st_size = shadow.size
        if info is None:
            attrs.st_blocks = (attrs.st_size + 511) // 512
        if shadow.mode is not None:
            attrs.st_mode = stat.S_IFREG | stat.S_IMODE(shadow.mode)
        if shadow.mtime_ns is not None:
            attrs.st_mtime_ns = shadow.mtime_ns


def _size(item: Item) -> int:
    if isinstance(item, VirtualFile):
        return item.size
    return len(os.fsencode(item.target)) if isinstance(item, VirtualLink) else 0
