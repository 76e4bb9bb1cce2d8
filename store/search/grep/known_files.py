"""The files that the trigram index covers, as `grovefs grep` reads them from index.db.

A file is known if its trigrams are in a segment and it still has the stamp it was indexed with. Grep reads
every other file, whatever the pattern. This module serves a short-lived process: it opens index.db
read-only, imports little and changes nothing. `maintenance` writes the tables.
"""

from __future__ import annotations

import os
import stat

import apsw

from store.search.grep.file_stamps import changed_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pyroaring import BitMap

# Copies from store/layout.py, which takes longer to import than a search takes.
SESSIONS = b"sessions"
INDEX_DB = ".grovefs/index.db"
SEGMENTS = b".grovefs/trigrams/"
FRESHNESS_SOCKET = b".grovefs/voucher"

SCHEMA_VERSION = 5
_LOOKUP_COST = 8  # one row by key, relative to one row of a full scan
_BUSY_MS = 2_000
_ANSWER_TIMEOUT_S = 0.5  # comparing every file takes no longer


def ask_freshness(prefix: bytes) -> str | None:
    """The token of the freshness server, given after it has recorded every change so far; None without a server."""
    import _socket

    try:
        client = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            client.settimeout(_ANSWER_TIMEOUT_S)
            client.connect(prefix + FRESHNESS_SOCKET)
            return client.recv(64).decode() or None
        finally:
            client.close()
    except (OSError, UnicodeDecodeError):
        return None


class IndexUnusable(Exception):
    """index.db is missing, unreadable or of another schema."""


class KnownFiles:
    """A snapshot of the grep tables in index.db. `prefix` is the home's path: empty, or ending in a slash."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        try:
            self._db = apsw.Connection(os.fsdecode(prefix) + INDEX_DB, flags=apsw.SQLITE_OPEN_READONLY)
            self._db.set_busy_timeout(_BUSY_MS)
            if self._db.execute("PRAGMA user_version").get != SCHEMA_VERSION:
                raise IndexUnusable("index.db has another schema version")
            self._db.execute("BEGIN")  # one snapshot for all queries
            token = self._db.execute("SELECT value FROM meta WHERE key = 'grep_token'").fetchone()
            self.token: object = token[0] if token else None
            self.segments: list[str] = [name for (name,) in self._db.execute("SELECT name FROM grep_segments")]
            self.changed: set[bytes] = {path for (path,) in self._db.execute("SELECT path FROM grep_changed")}
            self.count: int = self._db.execute("SELECT count(*) FROM grep_files").get
        except apsw.Error as error:
            raise IndexUnusable(str(error)) from error

    def close(self) -> None:
        self._db.close()

    def paths_of(self, documents: BitMap) -> list[bytes]:
        """The files of some documents, without files that have been deleted or have changed since."""
        try:
            if len(documents) * _LOOKUP_COST < self.count:
                rows = self._db.executemany("SELECT path FROM grep_files WHERE document = ?", ((d,) for d in documents))
                return [path for (path,) in rows]
            rows = self._db.execute("SELECT document, path FROM grep_files")
            return [path for document, path in rows if document in documents]
        except apsw.Error as error:
            raise IndexUnusable(str(error)) from error

    def differing(self) -> set[bytes]:
        """Paths whose stamps differ from those in index.db, and unknown paths: compares every file and directory.

        Includes directories that cannot be read, because grep reports those.
        """
        found = set(changed_paths(self._prefix, self._rows("SELECT path, stamp FROM grep_files")))
        stack = changed_paths(self._prefix, self._rows("SELECT path, stamp FROM grep_folders"))
        if not self._rows("SELECT 1 FROM grep_folders WHERE path = ?", SESSIONS):
            stack.append(SESSIONS)
        return self._add_unknown(stack, found) if stack else found

    def _add_unknown(self, stack: list[bytes], found: set[bytes]) -> set[bytes]:
        """Add the unknown files in changed directories."""
        folders = {path for (path,) in self._rows("SELECT path FROM grep_folders")}
        known = {path for (path,) in self._rows("SELECT path FROM grep_files")} | self.changed
        while stack:
            for path, is_folder in entries_of(self._prefix, stack.pop()):
                if is_folder is None:
                    found.add(path)
                elif is_folder and path not in folders:
                    stack.append(path)
                elif not is_folder and path not in known:
                    found.add(path)
        return found

    def _rows(self, query: str, *values: bytes) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except apsw.Error as error:
            raise IndexUnusable(str(error)) from error


def entries_of(prefix: bytes, folder: bytes) -> Iterator[tuple[bytes, bool | None]]:
    """Regular files (False) and directories (True) in a directory; (folder, None) if it cannot be read."""
    try:
        with os.scandir(prefix + folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder or entry.is_file(follow_symlinks=False):
                    yield folder + b"/" + entry.name, is_folder
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        yield folder, None


def existing_files(paths: list[bytes]) -> list[bytes]:
    """The paths that a walk by grep would report: regular files, and whatever cannot be read.

    Grep reports an unreadable directory once and nothing inside it.
    """
    found = []
    unreadable: list[bytes] = []
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            found.append(path)
            continue
        if stat.S_ISDIR(mode) and not os.access(path, os.R_OK):
            unreadable.append(path + b"/")
        elif not stat.S_ISREG(mode):
            continue
        found.append(path)
    return [path for path in found if not path.startswith(tuple(unreadable))] if unreadable else found
