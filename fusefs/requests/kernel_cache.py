"""Tells the kernel what changed, never from inside the handler it would block.

Forgetting an entry waits for the directory's lock, which the caller of rename, create, unlink, mkdir and rmdir
holds until we answer; forgetting pages waits for a read that we have yet to answer. So it is always done in a
thread of its own limiter, never with a session's lock held, and only flush and fsync may await it.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence

import pyfuse3
import trio

from fusefs.requests.errnos import spawn_guarded
from fusefs.tree.nodes import Invalidation

log = logging.getLogger("grovefs.mount")

_LIMITER = trio.CapacityLimiter(4)
_SOON_LIMITER = trio.CapacityLimiter(32)  # these may wait long: for a directory whose lock waits for a session's


async def invalidate(notices: Sequence[Invalidation]) -> None:
    if notices:
        await trio.to_thread.run_sync(_invalidate, notices, limiter=_LIMITER)


def invalidate_later(notices: Sequence[Invalidation]) -> None:
    """For handlers that must answer first."""
    if notices:
        spawn_guarded(
            "telling the kernel", lambda: trio.to_thread.run_sync(_invalidate, notices, limiter=_SOON_LIMITER)
        )


def _invalidate(notices: Sequence[Invalidation]) -> None:
    for notice in notices:
        try:
            if notice.name is not None:
                pyfuse3.invalidate_entry(notice.inode, notice.name)
            else:
                pyfuse3.invalidate_inode(notice.inode, attr_only=not notice.pages)
        except OSError as error:
            if error.errno == errno.ENOENT:
                continue  # it knew nothing of it
            log.warning("the kernel could not be told of a change: %s", error)
