"""Node → EntryAttributes; every cache timeout with its reason."""

from __future__ import annotations

import os
import stat

import pyfuse3

from fusefs.nodes import Node

# Changes by others (the API, another mount, an editor on the home) are to be seen within a second.
CACHED_S = 0.5
# A name that a writer is on, or that is generated, may lead elsewhere the next moment.
UNCACHED_S = 0.0

_READ_ONLY_FILE = stat.S_IFREG | 0o444
_READ_ONLY_DIR = stat.S_IFDIR | 0o555


def attributes(node: Node, *, cached: bool = True) -> pyfuse3.EntryAttributes:
    attrs = pyfuse3.EntryAttributes()
    attrs.st_ino = node.inode
    attrs.generation = 0
    is_fleeting = node.is_generated or node.shadow is not None
    timeout = CACHED_S if cached and not is_fleeting else UNCACHED_S
    attrs.entry_timeout = attrs.attr_timeout = timeout
    attrs.st_blksize = 4096
    attrs.st_rdev = 0
    if node.is_generated:
        _generated(attrs, node)
    else:
        _stored(attrs, node)
    return attrs


def _generated(attrs: pyfuse3.EntryAttributes, node: Node) -> None:
    attrs.st_mode = _READ_ONLY_FILE if node.data is not None else _READ_ONLY_DIR
    attrs.st_nlink = 1 if node.data is not None else 2
    attrs.st_uid, attrs.st_gid = os.geteuid(), os.getegid()
    attrs.st_size = len(node.data or b"")
    attrs.st_blocks = (attrs.st_size + 511) // 512
    moment = node.created_ns or (node.info.st_mtime_ns if node.info else 0)
    attrs.st_atime_ns = attrs.st_mtime_ns = attrs.st_ctime_ns = moment


def _stored(attrs: pyfuse3.EntryAttributes, node: Node) -> None:
    info, shadow = node.info, node.shadow
    attrs.st_mode = info.st_mode if info is not None else stat.S_IFREG | 0o600
    attrs.st_uid = info.st_uid if info is not None else os.geteuid()
    attrs.st_gid = info.st_gid if info is not None else os.getegid()
    attrs.st_nlink = 1 if info is None else info.st_nlink
    attrs.st_size = shadow.size if shadow is not None else info.st_size if info is not None else 0
    attrs.st_blocks = info.st_blocks if info is not None else (attrs.st_size + 511) // 512
    now = node.created_ns or 0
    attrs.st_atime_ns = info.st_atime_ns if info is not None else now
    attrs.st_mtime_ns = info.st_mtime_ns if info is not None else now
    attrs.st_ctime_ns = info.st_ctime_ns if info is not None else now
    if shadow is not None and shadow.mode is not None:
        attrs.st_mode = stat.S_IFREG | stat.S_IMODE(shadow.mode)
    if shadow is not None and shadow.mtime_ns is not None:
        attrs.st_mtime_ns = shadow.mtime_ns
