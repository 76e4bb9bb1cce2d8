"""Opening a home: what must be there, what a crash may have left, and what is done once in its life.

All of it is for one who is alone with the home: the others wait until it is done.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import apsw

from store import layout
from store.commit.core import Core
from store.disk import trash
from store.disk.file import NewFile
from store.documents.sidecar import sidecar_of
from store.errors import NotFound, StoreError
from store.home.watcher import HomeWatcher
from store.index.database import Database, DatabaseUnusable, set_aside
from store.layout import Location
from store.search.grep.freshness import START_S, FreshnessServer
from store.search.grep.maintenance import TrigramIndex
from store.sessions.put import PutOperation

log = logging.getLogger("grovefs.store")

_MARKER_TEXT = b"runtime-sidecar-v1\n"  # Bamboo's own


@dataclass(frozen=True)
class PreviousShutdown:
    """How the home was left."""

    was_clean: bool  # by everyone, and seen before: then index and files agree


def make_home(home: Path) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in (layout.SESSIONS, layout.PRIVATE, layout.TMP, layout.TRASH):
        path = home / name
        if path.is_symlink():
            raise NotFound(f"{path} is a symbolic link; a real directory is needed there")
        path.mkdir(mode=0o700, exist_ok=True)


def open_database(path: Path, *, alone: bool) -> Database:
    """index.db, made anew if it is garbage: the garbage is kept beside it, the sessions have it all."""
    try:
        return Database(path, alone=alone)
    except DatabaseUnusable as error:
        log.warning("%s; renamed to %s.corrupt and rebuilt from the sessions", error, path.name)
        set_aside(path)
        return Database(path, alone=alone)


def new_watcher(core: Core) -> HomeWatcher | None:
    try:
        return HomeWatcher(str(core.home), core.refresh, core.sweep)
    except OSError as error:  # no instances left, or no inotify at all
        log.warning("edits made straight on the home are not noticed by themselves: %s", error)
        return None


def new_freshness_server(trigrams: TrigramIndex) -> FreshnessServer:
    return FreshnessServer(trigrams, START_S)


def set_up(core: Core) -> PreviousShutdown:
    """Finish what was interrupted, clear away what belongs to no one, and note that the home is in use."""
    core.disk.check_rename_works()
    try:
        core.recover_all()
        core.db.probe_tables()
    except apsw.CorruptError as error:  # a damaged page: the sessions have it all
        log.warning("index.db is damaged (%s) and is made anew from the sessions", error)
        core.db.recreate()
    _remove_temporaries(core)
    ended = PreviousShutdown(was_clean=core.db.get_meta("clean", 0) == 1 and core.db.get_meta("epoch") is not None)
    core.db.set_meta(clean=0)
    if not ended.was_clean:
        core.feed.begin_epoch()  # what was told last may not have reached the disk
    trash.purge(core.disk)
    return ended


def _remove_temporaries(core: Core) -> None:
    """Nobody else is here, and no commit is under way: what lies in tmp/ belongs to no one."""
    if core.journal.all_pending():
        return
    for entry in core.disk.entries(layout.TMP):
        core.disk.remove_tree(f"{layout.TMP}/{entry.name}")


# -- the one-shot migration ----------------------------------------------------------------------------


def migrate_sidecars(core: Core, putter: PutOperation) -> int:
    """Make a sidecar for every session that has none, once per home; returns how many were made."""
    core.check_writable()
    if core.disk.stamp(layout.SIDECAR_MARKER) is not None:
        return 0
    count = sum(_migrate(core, putter, location) for location, _ in list(core.index.stamps()))
    core.disk.put(NewFile(layout.SIDECAR_MARKER, [_MARKER_TEXT]))
    core.disk.sync_after_change([""])
    return count


def _migrate(core: Core, putter: PutOperation, location: Location) -> bool:
    with core.locked(location):
        if core.version(location).side is not None:
            return False
        try:
            loaded = core.load(location)
        except StoreError as error:
            log.warning("no sidecar for a session that cannot be read: %s", error)
            return False
        if loaded is None:
            return False
        return putter.put_document(location, layout.RUNTIME, sidecar_of(loaded.main.raw, loaded.main.data))
