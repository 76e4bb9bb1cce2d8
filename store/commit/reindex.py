"""Index many sessions at once: the sweep that finds changed files, and the rebuild of every row.

Many sessions share one transaction, which makes the first index of a home fast. A crash loses whole
transactions only, and the next sweep finds the sessions they contained.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import apsw

from store import layout
from store.commit import session_reader
from store.commit.core import Core
from store.commit.session_reader import SessionScan
from store.disk.disk import Disk
from store.errors import Busy, Corrupt
from store.index import fulltext
from store.layout import Location

log = logging.getLogger("grovefs.store")

# Limits of one transaction. Other writers wait while it runs: about a second at most.
BATCH = 512
BATCH_BYTES = 8 << 20

Progress = Callable[[int, int], None]


def iter_on_disk(disk: Disk) -> Iterator[Location]:
    """Every directory that holds or could hold a session.

    The only scan of the sessions directory.
    """
    for root in disk.directories(layout.SESSIONS):
        if layout.is_session_dir(root):
            yield Location(root)
            yield from _iter_children(disk, root)


def _iter_children(disk: Disk, root: str) -> Iterator[Location]:
    try:
        children = disk.directories(f"{layout.SESSIONS}/{root}/{layout.CHILDREN}")
    except Corrupt:  # not a directory; `check` reports it
        return
    except PermissionError as error:
        log.warning("skipped, cannot be read: %s", error)
        return
    yield from layout.children_among(root, children)


def sweep(core: Core, progress: Progress | None = None) -> int:
    """Index again every session whose files differ from its row. Returns their number."""
    changed, missing = _compare(core)
    _index_again(core, [*changed, *missing], progress)
    for area in core.area_refreshers:
        core.refresh(Location(f"/{area}"))
    return len(changed) + len(missing)


def _compare(core: Core) -> tuple[list[Location], list[Location]]:
    """Sessions whose files differ from their rows, oldest first, and those without files."""
    known = dict(core.index.versions())
    attached = dict(core.index.attachment_flags())
    changed = []
    for location in iter_on_disk(core.disk):
        try:
            version = core.version(location)
        except PermissionError as error:  # its row stays
            log.warning("skipped, cannot be read: %s", error)
            known.pop(location, None)
            continue
        if version.main is None:
            continue  # incoming: not a session yet
        row = known.pop(location, None)
        if row != version or attached.get(location) != session_reader.has_attachments(core.disk, location):
            changed.append((version.main.mtime_ns, location))
    # Oldest first, so that search stores the newest last.
    changed.sort(key=lambda found: (found[0], found[1].root, found[1].child or ""))
    return [location for _, location in changed], list(known)


def rebuild(core: Core, progress: Progress | None = None) -> None:
    """Write every row again from the files. Each session stays indexed meanwhile."""
    indexed = (location for location, _ in core.index.versions())
    locations = list(dict.fromkeys([*iter_on_disk(core.disk), *indexed]))
    _index_again(core, locations, progress, purge=True)
    with core.db.write() as db:
        fulltext.purge_strays(db)


def _index_again(core: Core, locations: list[Location], progress: Progress | None, *, purge: bool = False) -> None:
    """Like `Core.reread`, with many sessions in one transaction."""
    waiting = deque(locations)
    while waiting:
        with ExitStack() as held:
            batch = _lock_and_scan(core, waiting, held)
            core.observe(batch, only_known=True)
            with core.db.write() as db:
                if purge:
                    _purge(core, db, batch)
                core.put_scans(db, batch)
        core.on_commit()
        if progress is not None:
            progress(len(locations) - len(waiting), len(locations))


def _purge(core: Core, db: apsw.Connection, batch: list[SessionScan]) -> None:
    for row in filter(None, (core.index.find(scan.location) for scan in batch)):
        fulltext.purge_session(db, row.key)


def _lock_and_scan(core: Core, waiting: deque[Location], held: ExitStack) -> list[SessionScan]:
    """Take sessions off the queue, scan them, and keep them locked until they are indexed.

    Only the first lock is waited for. Waiting while holding other locks could deadlock. Waiting
    inside the transaction could too: the holder of the lock needs the database to finish.
    """
    held.enter_context(core.locked(waiting[0]))
    batch = [session_reader.scan(core.disk, waiting.popleft(), core.limit_bytes)]
    size_bytes = batch[0].size_bytes
    while waiting and len(batch) < BATCH and size_bytes < BATCH_BYTES:
        try:
            held.enter_context(core.locked(waiting[0], timeout_s=0))
        except Busy:
            break  # it is the first of the next batch
        batch.append(session_reader.scan(core.disk, waiting.popleft(), core.limit_bytes))
        size_bytes += batch[-1].size_bytes
    return batch
