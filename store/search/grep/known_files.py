"""Which files below sessions/ are known, and in which version: what `grovefs grep` asks before it reads any.

A file is known if its trigrams are in a segment and it still has the stamp it was read with. Every other file
is read, whatever is asked for. This is the reading side, for a process that has just started and will soon end:
index.db is opened read-only, few modules are imported, nothing is changed. `store/upkeep.py` is the other side.
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

# As store/layout.py has them; that module takes longer to import than a search takes.
SESSIONS = b"sessions"
INDEX_DB = ".grovefs/index.db"
SEGMENTS = b".grovefs/trigrams/"
VOUCHER = b".grovefs/voucher"

SCHEMA_VERSION = 2
_ONE_BY_ONE = 8  # times as long to look up one row as to pass it by
_BUSY_MS = 2_000
_PATIENCE_S = 0.5  # with who vouches; comparing every file takes no longer


def ask_freshness(prefix: bytes) -> str | None:
    """The token of a process that watches this home and knows of every change made until now; None without one."""
    import _socket

    try:
        asking = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            asking.settimeout(_PATIENCE_S)
            asking.connect(prefix + VOUCHER)
            return asking.recv(64).decode() or None
        finally:
            asking.close()
    except (OSError, UnicodeDecodeError):
        return None


class IndexUnusable(Exception):
    """There is no index of this home that we could read."""


class KnownFiles:
    """What index.db says at one moment. `prefix` leads to the home: empty, or with a slash at its end."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        try:
            self._db = apsw.Connection(os.fsdecode(prefix) + INDEX_DB, flags=apsw.SQLITE_OPEN_READONLY)
            self._db.set_busy_timeout(_BUSY_MS)
            if self._db.execute("PRAGMA user_version").get != SCHEMA_VERSION:
                raise IndexUnusable("index.db is of another schema")
            self._db.execute("BEGIN")  # one snapshot for all that follows
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
        """The files that some documents are versions of; those that are no more are left out."""
        try:
            if len(documents) * _ONE_BY_ONE < self.count:
                rows = self._db.executemany("SELECT path FROM grep_files WHERE document = ?", ((d,) for d in documents))
                return [path for (path,) in rows]
            everything = self._db.execute("SELECT document, path FROM grep_files")
            return [path for document, path in everything if document in documents]
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
        return self._found_in(stack, found) if stack else found

    def _found_in(self, stack: list[bytes], found: set[bytes]) -> set[bytes]:
        """And what is new in directories that are not as they were."""
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
    """Plain files (False) and directories (True) in a directory; itself with None if it cannot be looked into."""
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
    """Of which grep would have something to say on its walk: plain files, and what it cannot look into.

    Of a directory that it cannot look into it tells once, and knows nothing of what is inside.
    """
    found = []
    closed: list[bytes] = []
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            found.append(path)
            continue
        if stat.S_ISDIR(mode) and not os.access(path, os.R_OK):
            closed.append(path + b"/")
        elif not stat.S_ISREG(mode):
            continue
        found.append(path)
    return [path for path in found if not path.startswith(tuple(closed))] if closed else found
