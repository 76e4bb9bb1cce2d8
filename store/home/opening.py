"""Opening a home: directories, index.db, recovery after a crash, and the one-time sidecar migration.

`set_up` runs only in the first process to open a home; the others wait until it has finished.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from store import layout
from store.commit.core import Core
from store.disk import trash
from store.disk.file import NewFile
from store.errors import NotFound, StoreError
from store.index.database import Database, DatabaseUnusable, set_aside
from store.layout import Location

if TYPE_CHECKING:
    from store.home.watcher import HomeWatcher
    from store.search.grep.freshness import FreshnessServer
    from store.search.grep.maintenance import TrigramIndex
    from store.sessions.put import PutOperation

log = logging.getLogger("grovefs.store")

_MARKER_TEXT = b"runtime-sidecar-v1\n"  # as Bamboo writes it


@dataclass(frozen=True)
class PreviousShutdown:
    """The state in which the last process closed the home."""

    was_clean: bool  # every process closed it, and index.db is not new: index and files agree


def make_home(home: Path) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in (layout.SESSIONS, layout.PRIVATE, layout.TMP, layout.TRASH):
        path = home / name
        if path.is_symlink():
            raise NotFound(f"{path} is a symbolic link; it must be a directory")
        path.mkdir(mode=0o700, exist_ok=True)


def open_database(path: Path, *, alone: bool) -> Database:
    """Open index.db. An unusable one is renamed to .corrupt and a new one is built from the sessions."""
    try:
        return Database(path, alone=alone)
    except DatabaseUnusable as error:
        log.warning("%s; renamed to %s.corrupt and rebuilt from the sessions", error, path.name)
        set_aside(path)
        return Database(path, alone=alone)


def new_watcher(core: Core) -> HomeWatcher | None:
    from store.commit.reindex import sweep
    from store.home.watcher import HomeWatcher

    try:
        return HomeWatcher(str(core.home), partial(_refresh, core), partial(sweep, core))
    except OSError as error:  # inotify instance limit reached, or no inotify
        log.warning("changes made by other programs are not detected automatically: %s", error)
        return None


def _refresh(core: Core, location: Location) -> None:
    core.agreement.note_change(location)
    core.refresh(location)


def new_freshness_server(trigrams: TrigramIndex) -> FreshnessServer:
    from store.search.grep.freshness import START_S, FreshnessServer

    return FreshnessServer(trigrams, START_S)


def set_up(core: Core) -> PreviousShutdown:
    """Finish interrupted commits, remove temporary files, and mark the home as in use."""
    core.disk.check_rename_works()
    try:
        core.recover_all()
        core.db.probe_tables()
    except apsw.CorruptError as error:  # a damaged page: everything is in the sessions
        log.warning("index.db is damaged (%s); rebuilding it from the sessions", error)
        core.db.recreate()
    _remove_temporaries(core)
    ended = PreviousShutdown(was_clean=core.db.get_meta("clean", 0) == 1 and core.db.get_meta("epoch") is not None)
    # Synced: after a power cut a home that seems closed would not be compared with its files.
    with core.db.write(durable=True):
        core.db.set_meta(clean=0)
    if not ended.was_clean:
        core.feed.begin_epoch()  # its last rows may not have reached the disk
    trash.purge(core.disk)
    return ended


def _remove_temporaries(core: Core) -> None:
    """Empty tmp/. No other process has the home open; with no commit pending, no file there has an owner."""
    if core.journal.all_pending():
        return
    for entry in core.disk.entries(layout.TMP):
        core.disk.remove_tree(f"{layout.TMP}/{entry.name}")


# -- the one-time sidecar migration ----------------------------------------------------------------------------


def migrate_sidecars(core: Core, putter: PutOperation) -> int:
    """Write a sidecar for every session that has none, once per home; returns how many were written."""
    core.check_writable()
    if core.disk.stamp(layout.SIDECAR_MARKER) is not None:
        return 0
    count = sum(_migrate(core, putter, location) for location, _ in list(core.index.versions()))
    core.disk.put(NewFile(layout.SIDECAR_MARKER, [_MARKER_TEXT]))
    core.disk.sync_after_change([""])
    return count


def _migrate(core: Core, putter: PutOperation, location: Location) -> bool:
    from store.documents.sidecar import sidecar_of

    with core.locked(location):
        if core.version(location).side is not None:
            return False
        try:
            loaded = core.load(location)
        except StoreError as error:
            log.warning("no sidecar written for an unreadable session: %s", error)
            return False
        if loaded is None:
            return False
        return putter.put_document(location, layout.RUNTIME, sidecar_of(loaded.main.raw, loaded.main.data))
