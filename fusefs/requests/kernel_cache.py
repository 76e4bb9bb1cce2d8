"""Invalidation of kernel caches, without deadlocks.

Invalidating an entry waits for the directory's lock, which the kernel holds during rename,
create, unlink, mkdir and rmdir until we answer. Invalidating pages waits for reads that we have
not answered yet. So invalidations run in threads with their own limiter, never with a session's
lock held, and only flush, fsync and setattr may await them.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from functools import partial

import pyfuse3
import trio

from fusefs.requests.errnos import spawn_guarded
from fusefs.requests.threads import run_in_thread
from fusefs.tree.nodes import Invalidation

log = logging.getLogger("grovefs.mount")

_LIMITER = trio.CapacityLimiter(4)
_LISTINGS_LIMITER = trio.CapacityLimiter(4)  # never waits for those: they may wait for a directory that is held
_LATER_LIMITER = trio.CapacityLimiter(32)  # these may wait for a directory locked by a request that waits for a session


async def invalidate(notices: Sequence[Invalidation]) -> None:
    if notices:
        await run_in_thread(partial(_invalidate, notices), _LIMITER)


async def invalidate_held_listing(directory: int) -> None:
    """Drop the listing of a directory that the kernel holds for a rename: nobody reads it, so this does not wait."""
    notice = Invalidation(directory, pages=True)
    await run_in_thread(partial(_invalidate, [notice]), _LISTINGS_LIMITER)


def invalidate_later(notices: Sequence[Invalidation]) -> None:
    """Invalidate after the handler has answered."""
    if notices:
        spawn_guarded("kernel cache invalidation", lambda: run_in_thread(partial(_invalidate, notices), _LATER_LIMITER))


def _invalidate(notices: Sequence[Invalidation]) -> None:
    for notice in notices:
        try:
            if notice.name is not None:
                pyfuse3.invalidate_entry(notice.inode, notice.name)
            else:
                pyfuse3.invalidate_inode(notice.inode, attr_only=not notice.pages)
        except OSError as error:
            if error.errno == errno.ENOENT:
                continue  # not in the kernel's cache
            log.warning("kernel cache invalidation failed: %s", error)
