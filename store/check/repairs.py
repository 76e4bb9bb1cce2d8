"""Repairs: they rewrite derived data or move bad files to the trash, and never change a
conversation.

A check binds one of them to its arguments and puts it into a Finding; `run_checks` calls it.
"""

from __future__ import annotations

from store import layout
from store.commit.commit import Commit
from store.commit.core import Core
from store.commit.to_trash import to_trash
from store.disk.file import File, NewFile
from store.history import thinning
from store.home.sessions_json import SessionsJson
from store.index import fulltext
from store.layout import Location


def reindex(core: Core, location: Location) -> None:
    """Read a session, project or state category again and write its index rows."""
    with core.locked(location):
        core.reread(location)


def rewrite_search_rows(core: Core, location: Location, key: int) -> None:
    """Rewrite all search rows of a session: rows with the right digest may be wrong in another way."""
    with core.locked(location):
        scans = core.read_again([location])
        with core.db.write() as db:
            fulltext.purge_session(db, key)
            core.put_scans(db, scans)
        core.on_commit()


def remove_stray_search_rows(core: Core) -> None:
    with core.db.write() as db:
        fulltext.purge_strays(db)


def export_sessions_json(sessions_json: SessionsJson) -> None:
    """Write sessions.json; unknown keys of a foreign one are kept."""
    if sessions_json.is_foreign():
        sessions_json.keep_unknown_keys()
    sessions_json.export()


def drop_unreadable_versions(core: Core, key: int, path: str) -> None:
    """Remove versions that cannot be read, keep the others, and record the present files as found."""
    with core.history.database.write(durable=True) as db:
        thinning.keep_only(db, key, thinning.decodable(db, key))
    core.history.observe(path)


def trash_session_file(core: Core, location: Location, path: str) -> None:
    """Move a leftover file of a session to the trash."""
    part = to_trash(location, "leftover", moved=[path])
    core.journal.run(Commit(location, part.files, part.moves, part.dirs))


def replace_sidecar(core: Core, location: Location, bad: File, raw: bytes) -> None:
    """Write a new sidecar and copy the bad one to the trash in the same commit."""
    path = location.path(layout.RUNTIME)
    part = to_trash(location, "bad sidecar", copied=[(path, bad)])
    core.journal.run(Commit(location, [*part.files, NewFile(path, [raw], bad)], dirs=part.dirs))
    core.reread(location)
