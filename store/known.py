"""Which files below sessions/ are known, and in which version: what `grovefs grep` asks before it reads any.

A file is known if its trigrams are in a segment and it still has the stamp it was read with. Every other file
is read, whatever is asked for. This is the reading side, for a process that has just started and will soon end:
index.db is opened read-only, few modules are imported, nothing is changed. `store/upkeep.py` is the other side.
"""

from __future__ import annotations

import os
import stat
import struct

import apsw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyroaring import BitMap

# As store/layout.py has them; that module takes longer to import than a search takes.
SESSIONS = b"sessions"
INDEX_DB = ".grovefs/index.db"
SEGMENTS = b".grovefs/trigrams/"
VOUCHER = b".grovefs/voucher"

SCHEMA_VERSION = 2
_STAMP = struct.Struct("<QQqq")
NEVER = bytes(_STAMP.size)  # the stamp of no file
# A file changed this shortly before it was looked at may change again without its times showing it.
_RACY_NS = 50_000_000
_ONE_BY_ONE = 8  # times as long to look up one row as to pass it by
_BUSY_MS = 2_000
_WORTH_SHARING = 10_000  # files and directories to be looked at
_PATIENCE_S = 0.5  # with who vouches; comparing every file takes no longer


def pack(info: os.stat_result) -> bytes:
    """A stamp, as the tables have it."""
    return _STAMP.pack(info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def pack_if_sure(info: os.stat_result, now_ns: int) -> bytes:
    """The stamp, or one that equals no file's, if it may change again unnoticed (racy-git's rule)."""
    return pack(info) if now_ns - max(info.st_mtime_ns, info.st_ctime_ns) > _RACY_NS else NEVER


def ask_voucher(prefix: bytes) -> str | None:
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


class Unusable(Exception):
    """There is no index of this home that we could read."""


class Known:
    """What index.db says at one moment. `prefix` leads to the home: empty, or with a slash at its end."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        try:
            self._db = apsw.Connection(os.fsdecode(prefix) + INDEX_DB, flags=apsw.SQLITE_OPEN_READONLY)
            self._db.set_busy_timeout(_BUSY_MS)
            if self._db.execute("PRAGMA user_version").get != SCHEMA_VERSION:
                raise Unusable("index.db is of another schema")
            self._db.execute("BEGIN")  # one snapshot for all that follows
            token = self._db.execute("SELECT value FROM meta WHERE key = 'grep_token'").fetchone()
            self.token: object = token[0] if token else None
            self.segments: list[str] = [name for (name,) in self._db.execute("SELECT name FROM grep_segments")]
            self.changed: set[bytes] = {path for (path,) in self._db.execute("SELECT path FROM grep_changed")}
            self.count: int = self._db.execute("SELECT count(*) FROM grep_files").get
        except apsw.Error as error:
            raise Unusable(str(error)) from error

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
            raise Unusable(str(error)) from error

    def differing(self) -> set[bytes]:
        """Look at every file and directory there is: the paths that are not known as they are now.

        A directory that cannot be looked into is among them: grep shall say so.
        """
        try:
            folders: dict[bytes, bytes] = {}
            folders.update(self._db.execute("SELECT path, stamp FROM grep_folders"))
            files = [(path, stamp) for path, stamp in self._db.execute("SELECT path, stamp FROM grep_files")]
        except apsw.Error as error:
            raise Unusable(str(error)) from error
        known = {path for path, _ in files} | self.changed
        altered = self._altered([*files, *folders.items()])
        found = {path for path in altered if path not in folders}
        stack = [path for path in altered if path in folders]
        if SESSIONS not in folders:
            stack.append(SESSIONS)
        while stack:
            for path, is_folder in entries_of(self._prefix, stack.pop()):
                if is_folder is None:
                    found.add(path)
                elif is_folder and path not in folders:
                    stack.append(path)
                elif not is_folder and path not in known:
                    found.add(path)
        return found

    def _altered(self, rows: list[tuple[bytes, bytes]]) -> list[bytes]:
        """Those that have another stamp now. Two processes share what takes long."""
        if len(rows) < _WORTH_SHARING or len(os.sched_getaffinity(0)) < 2:
            return _altered(self._prefix, rows)
        half = len(rows) // 2
        reads, writes = os.pipe()
        helper = os.fork()
        if not helper:
            try:
                data = b"\0".join(_altered(self._prefix, rows[:half]))  # no name holds a NUL
                while data:
                    data = data[os.write(writes, data) :]
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writes)
        mine = _altered(self._prefix, rows[half:])
        told = b"".join(iter(lambda: os.read(reads, 1 << 16), b""))
        os.close(reads)
        if os.waitpid(helper, 0)[1]:  # it was killed, say
            return mine + _altered(self._prefix, rows[:half])
        return mine + [path for path in told.split(b"\0") if path]


def _altered(prefix: bytes, rows: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Written for a hundred thousand rows: no call that can be spared."""
    found = []
    lstat, packed = os.lstat, _STAMP.pack
    for path, stamp in rows:
        try:
            info = lstat(prefix + path)
        except OSError:  # gone, or out of reach: to be looked at again either way
            found.append(path)
            continue
        if packed(info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns) != stamp:
            found.append(path)
    return found


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


def readable_places(paths: list[bytes]) -> list[bytes]:
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
