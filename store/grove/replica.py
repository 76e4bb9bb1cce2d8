"""grove.db: what this home knows of its grove.

It holds the membership (which host of which grove this home is), the agreed version of every unit
and the stamp and SHA-256 of its files, how far the log was followed, and the units that could not
be brought up to date. It is data, not derived: with it lost, the home has to rejoin. A home without
the file has not joined, and nothing of this package is imported for it.

Agreed versions and cursors are in one database, so a power failure sets them back together. Rows of
the log are then applied again, which changes nothing.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from store import layout
from store.commit.commit import AgreedVersion
from store.disk.file import Stamp
from store.errors import Busy, StoreError
from store.grove.units import escape_path, location_of, unescape_path
from store.index.database import DISK_ERRORS, create_private, disk_errno, require_regular_file

MACHINE_ID = Path("/etc/machine-id")

APPLICATION_ID = 0x47525652  # "GRVR"
VERSION = 4
BUSY_MS = 10_000
_NO_STAMP = Stamp(0, 0, 0, 0)

_SCHEMA = """
CREATE TABLE membership (
    host TEXT NOT NULL,              -- uuid of this home in the grove
    name TEXT NOT NULL,              -- shown to people
    url TEXT NOT NULL,               -- as libpq takes it, without a password
    epoch TEXT NOT NULL,             -- uuid of the grove's history
    shards INTEGER NOT NULL,
    machine TEXT NOT NULL,           -- /etc/machine-id of the host that joined
    home_inode INTEGER NOT NULL,     -- of .grovefs: a copied home has another one
    joined_ns INTEGER NOT NULL,
    problem TEXT NOT NULL DEFAULT '' -- why this home must rejoin before it may write
) STRICT;
CREATE TABLE units (
    unit TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    token TEXT NOT NULL,             -- of the commit that made this version
    is_gone INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE files (
    unit TEXT NOT NULL,
    path TEXT NOT NULL,              -- relative to the unit, escaped
    sha256 BLOB NOT NULL,
    inode INTEGER NOT NULL,          -- of the file that had this content; 0: not known
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    PRIMARY KEY (unit, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE claims (                -- messages in cur/ of a mailbox
    unit TEXT NOT NULL,
    path TEXT NOT NULL,
    host TEXT NOT NULL,              -- that claimed it
    PRIMARY KEY (unit, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE cursors (
    shard INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,            -- the last row that was taken in
    token TEXT NOT NULL
) STRICT;
CREATE TABLE acknowledged (          -- the newest row of this home's own commits
    shard INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    token TEXT NOT NULL
) STRICT;
CREATE TABLE behind (
    unit TEXT PRIMARY KEY,
    why TEXT NOT NULL,
    since_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
_SECOND = """
CREATE TABLE waiting (               -- files that were edited on disk, to be confirmed
    path TEXT PRIMARY KEY            -- relative to the home, escaped
) STRICT, WITHOUT ROWID;
"""
_THIRD = """
CREATE TABLE unsure_claims (         -- messages that this home may have claimed: the answer was lost
    unit TEXT NOT NULL,
    path TEXT NOT NULL,              -- in cur/
    PRIMARY KEY (unit, path)
) STRICT, WITHOUT ROWID;
"""
_FOURTH = """
CREATE TABLE unsynced (              -- units whose files a power failure may have emptied: joining was not finished
    unit TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
"""
_MIGRATIONS = (_SCHEMA, _SECOND, _THIRD, _FOURTH)


class NotJoined(StoreError):
    """The home belongs to no grove."""


class Membership(NamedTuple):
    """Which host of which grove this home is."""

    host: str
    name: str
    url: str
    epoch: str
    shards: int
    machine: str
    home_inode: int  # of .grovefs
    joined_ns: int
    problem: str = ""


class AgreedUnit(NamedTuple):
    """The version of a unit that this home has."""

    version: int
    token: str
    is_gone: bool = False


class AgreedFile(NamedTuple):
    """A file of a unit as it was agreed."""

    sha256: bytes
    stamp: Stamp | None  # of the file on disk when it was recorded


class LogPosition(NamedTuple):
    """The last row of a shard's log that was taken in."""

    seq: int
    token: str


class BehindUnit(NamedTuple):
    """A unit that could not be brought up to date."""

    unit: str
    why: str
    since_ns: int


class Replica:
    """grove.db of one home. Safe to use from many threads and processes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / layout.GROVE_DB
        self._lock = threading.RLock()
        self._is_writing = False
        self._is_durable = True  # the present setting of PRAGMA synchronous
        if not self.path.exists():
            raise NotJoined(f"{home} has not joined a grove; see `grovefs help grove`")
        self._db = _connect(self.path)
        self._check_version()

    @classmethod
    def create(cls, home: Path, membership: Membership) -> Replica:
        """Record that a home joins a grove. The file appears complete or not at all."""
        path = home / layout.GROVE_DB
        if path.exists():
            raise StoreError(f"{home} has joined a grove already; leave it first: `grovefs grove leave`")
        temporary = path.with_name(f"{path.name}.new")
        temporary.unlink(missing_ok=True)
        db = _connect(temporary, mode="DELETE")
        try:
            db.execute(f"BEGIN; {''.join(_MIGRATIONS)} PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            _insert_membership(db, membership)
            db.execute("COMMIT")
        finally:
            db.close()
        os.rename(temporary, path)
        _sync_dir(path.parent)
        return cls(home)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _check_version(self) -> None:
        found = int(self._db.execute("PRAGMA user_version").get)
        if self._db.execute("PRAGMA application_id").get != APPLICATION_ID or found > VERSION:
            self._db.close()
            raise StoreError(f"{self.path} is not a grove.db of this GroveFS (schema {found}, supported {VERSION})")
        if found < VERSION:
            self._upgrade()

    def _upgrade(self) -> None:
        """Add the tables of newer schemas. Another process may have done it meanwhile."""
        with self.write(durable=True):
            found = int(self._db.execute("PRAGMA user_version").get)
            self._db.execute("".join(_MIGRATIONS[found:]) + f"PRAGMA user_version = {VERSION}")

    # -- transactions ------------------------------------------------------------------------------

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[None]:
        """One transaction for all changes of the block. Nested calls join the outer one."""
        with self._lock:
            if self._is_writing:
                yield
                return
            self._is_writing = True
            try:
                self._begin(durable=durable)
                yield
                self._db.execute("COMMIT")
            except BaseException as error:
                number = disk_errno(self._db, error)
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if number is not None:
                    raise OSError(number, os.strerror(number), str(self.path)) from error
                raise
            finally:
                self._is_writing = False

    def _rows(self, sql: str, bindings: tuple[object, ...] = ()) -> list[Any]:
        with self._lock:
            return self._db.execute(sql, bindings).fetchall()

    def _begin(self, *, durable: bool) -> None:
        if durable != self._is_durable:
            self._is_durable = False  # an interrupt in between must not leave it True: then it is set again
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            raise Busy(f"{self.path} is locked by another process; nothing was changed, try again") from error

    # -- membership --------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        [row] = self._rows("SELECT * FROM membership")
        return Membership(*row)

    def set_problem(self, problem: str) -> None:
        """Record why this home must rejoin before it writes again; "" if it need not."""
        with self.write(durable=True):
            self._db.execute("UPDATE membership SET problem = ?", (problem,))

    def problem(self) -> str:
        """Why this home must rejoin before it writes again; "" if it need not.

        A copy of a home has the same host id as the original, and both would write as one host.
        """
        found = self.membership
        if found.problem:
            return found.problem
        if (found.machine, found.home_inode) != (machine_id(), private_inode(self.home)):
            return "this home was copied from another place or restored from a backup"
        return ""

    def replace_membership(self, membership: Membership) -> None:
        """Join again: forget versions, cursors and units that are behind."""
        with self.write(durable=True):
            for table in (
                "membership",
                "units",
                "files",
                "claims",
                "cursors",
                "acknowledged",
                "behind",
                "unsure_claims",
                "unsynced",
            ):
                self._db.execute(f"DELETE FROM {table}")
            _insert_membership(self._db, membership)

    # -- agreed versions -----------------------------------------------------------------------------

    def find_unit(self, unit: str) -> AgreedUnit | None:
        """The version of a unit that this home has; None if it never had one."""
        rows = self._rows("SELECT version, token, is_gone FROM units WHERE unit = ?", (unit,))
        return next((AgreedUnit(version, token, bool(gone)) for version, token, gone in rows), None)

    def units(self) -> dict[str, AgreedUnit]:
        rows = self._rows("SELECT unit, version, token, is_gone FROM units")
        return {unit: AgreedUnit(version, token, bool(gone)) for unit, version, token, gone in rows}

    def units_of(self, root: str) -> list[str]:
        """The units of a root session, or of all state documents, that exist."""
        units = [unit for unit, known in self.units().items() if not known.is_gone]
        return [unit for unit in units if location_of(unit).root == root]

    def files(self, unit: str) -> dict[str, AgreedFile]:
        """The files of a unit, by path below it."""
        rows = self._rows("SELECT path, sha256, inode, size, mtime_ns, ctime_ns FROM files WHERE unit = ?", (unit,))
        return {unescape_path(path): _agreed_file(digest, *stamp) for path, digest, *stamp in rows}

    def file(self, unit: str, path: str) -> AgreedFile | None:
        return self.files(unit).get(path)

    def claim_of(self, unit: str, path: str) -> str | None:
        """The host that claimed a message in cur/."""
        rows = self._rows("SELECT host FROM claims WHERE unit = ? AND path = ?", (unit, escape_path(path)))
        return next((host for (host,) in rows), None)

    def record_agreed(self, versions: Sequence[AgreedVersion], stamps: Mapping[str, Stamp | None]) -> None:
        """Record versions whose files are in place.

        `stamps` are those of files that are known to have the agreed content, by path relative to the home. The
        stamp of another file must not be recorded: a text that another program has put there would never be noticed.
        An older version than the recorded one, or another one of its number, is left out: two
        processes may have applied it.
        """
        with self.write():
            for version in versions:
                known = self.find_unit(version.unit)
                newest = (known.version, known.token) if known is not None else (0, "")
                if version.version > newest[0] or (version.version, version.token) == newest:
                    self._record(version, stamps)

    def _record(self, agreed: AgreedVersion, stamps: Mapping[str, Stamp | None]) -> None:
        unit = agreed.unit
        row = (unit, agreed.version, agreed.token, agreed.is_gone)
        self._db.execute("INSERT OR REPLACE INTO units VALUES (?, ?, ?, ?)", row)
        for table in ("files", "claims") if agreed.is_gone or agreed.is_whole else ():
            self._db.execute(f"DELETE FROM {table} WHERE unit = ?", (unit,))
        for path, digest in agreed.digests.items():
            file = AgreedFile(bytes.fromhex(digest), stamps.get(f"{unit}/{path}")) if digest is not None else None
            self._put_file(unit, path, file)
        for path, host in agreed.claims.items():
            self._put_claim(unit, path, host)
        self._acknowledge(agreed.shard, LogPosition(agreed.seq, agreed.token))

    def note_unsynced(self, units: Iterable[str]) -> None:
        """Record units before their files are written without being synced.

        The versions that are recorded afterwards are not in grove.db without this, whenever power fails.
        """
        with self.write():
            self._db.executemany("INSERT OR IGNORE INTO unsynced VALUES (?)", [(unit,) for unit in units])

    def forget_unsynced(self, units: Iterable[str]) -> None:
        """Record that the files of these units are synced, or have been compared with what was agreed."""
        with self.write():
            self._db.executemany("DELETE FROM unsynced WHERE unit = ?", [(unit,) for unit in units])

    def unsynced(self) -> list[str]:
        """The units whose files a power failure may have emptied."""
        return [unit for (unit,) in self._rows("SELECT unit FROM unsynced ORDER BY unit")]

    def is_unsynced(self, unit: str) -> bool:
        return bool(self._rows("SELECT 1 FROM unsynced WHERE unit = ?", (unit,)))

    def distrust_unsynced(self) -> None:
        """Compare the content of the files of these units again, whatever their stamps."""
        if self.unsynced():
            with self.write(durable=True):
                self._db.execute("UPDATE files SET inode = 0 WHERE unit IN (SELECT unit FROM unsynced)")

    def restamp(self, unit: str, path: str, file: AgreedFile) -> None:
        """Record the new stamp of a file whose content did not change."""
        with self.write():
            self._put_file(unit, path, file)

    def _put_file(self, unit: str, path: str, file: AgreedFile | None) -> None:
        key = (unit, escape_path(path))
        if file is None:
            self._db.execute("DELETE FROM files WHERE unit = ? AND path = ?", key)
        else:
            row = (*key, file.sha256, *(file.stamp or _NO_STAMP))
            self._db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def _put_claim(self, unit: str, path: str, host: str | None) -> None:
        key = (unit, escape_path(path))
        if host is None:
            self._db.execute("DELETE FROM claims WHERE unit = ? AND path = ?", key)
        else:
            self._db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (*key, host))

    # -- the log -----------------------------------------------------------------------------------

    def cursors(self) -> dict[int, LogPosition]:
        """How far each shard's log was taken in. A shard that is missing has not been read yet."""
        return self._positions("cursors")

    def set_cursors(self, positions: Mapping[int, LogPosition]) -> None:
        with self.write():
            rows = [(shard, *position) for shard, position in positions.items()]
            self._db.executemany("INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)", rows)

    def acknowledged(self) -> dict[int, LogPosition]:
        """The newest row of each shard that the database acknowledged to this home.

        It may be newer than the cursor. A database without that row has lost history.
        """
        return self._positions("acknowledged")

    def newest_known(self, shard: int) -> LogPosition | None:
        """The newest row of a shard that this home has followed, or that was acknowledged to it."""
        rows = self._rows(
            "SELECT seq, token FROM cursors WHERE shard = ?1 UNION ALL "
            "SELECT seq, token FROM acknowledged WHERE shard = ?1 ORDER BY seq DESC LIMIT 1",
            (shard,),
        )
        return next((LogPosition(*row) for row in rows), None)

    def _acknowledge(self, shard: int, position: LogPosition) -> None:
        self._db.execute(
            "INSERT INTO acknowledged VALUES (?, ?, ?) ON CONFLICT (shard) DO UPDATE "
            "SET seq = excluded.seq, token = excluded.token WHERE excluded.seq > seq",
            (shard, *position),
        )

    def _positions(self, table: str) -> dict[int, LogPosition]:
        rows = self._rows(f"SELECT shard, seq, token FROM {table}")
        return {shard: LogPosition(seq, token) for shard, seq, token in rows}

    # -- units that are behind -----------------------------------------------------------------------

    def note_behind(self, unit: str, why: str) -> None:
        """Record a unit that could not be brought up to date. It is tried again until it has its newest version."""
        with self.write():
            self._db.execute(
                "INSERT INTO behind VALUES (?, ?, ?) ON CONFLICT (unit) DO UPDATE SET why = excluded.why",
                (unit, why, time.time_ns()),
            )

    def forget_behind(self, unit: str) -> None:
        with self.write():
            self._db.execute("DELETE FROM behind WHERE unit = ?", (unit,))

    def is_behind(self, unit: str) -> bool:
        return bool(self._rows("SELECT 1 FROM behind WHERE unit = ?", (unit,)))

    def behind(self) -> list[BehindUnit]:
        """The units that could not be brought up to date, the longest waiting first."""
        rows = self._rows("SELECT unit, why, since_ns FROM behind ORDER BY since_ns")
        return [BehindUnit(*row) for row in rows]

    # -- mail --------------------------------------------------------------------------------------

    def note_unsure(self, unit: str, paths: Iterable[str]) -> None:
        """Remember messages that may have been claimed, before the caller gets the error "outcome unknown"."""
        with self.write(durable=True):
            rows = [(unit, escape_path(path)) for path in paths]
            self._db.executemany("INSERT OR IGNORE INTO unsure_claims VALUES (?, ?)", rows)

    def unsure_claims(self, unit: str) -> list[str]:
        """These messages, oldest first."""
        rows = self._rows("SELECT path FROM unsure_claims WHERE unit = ? ORDER BY path", (unit,))
        return [unescape_path(path) for (path,) in rows]

    def forget_unsure(self, unit: str, paths: Iterable[str]) -> None:
        with self.write():
            rows = [(unit, escape_path(path)) for path in paths]
            self._db.executemany("DELETE FROM unsure_claims WHERE unit = ? AND path = ?", rows)

    # -- outside edits -------------------------------------------------------------------------------

    def set_waiting(self, paths: Sequence[str]) -> None:
        """Record the files whose outside edits wait to be confirmed."""
        wanted = sorted(map(escape_path, paths))
        if wanted != [path for (path,) in self._rows("SELECT path FROM waiting ORDER BY path")]:
            with self.write():
                self._db.execute("DELETE FROM waiting")
                self._db.executemany("INSERT INTO waiting VALUES (?)", [(path,) for path in wanted])

    def waiting(self) -> list[str]:
        """The files whose outside edits wait to be confirmed."""
        return [unescape_path(path) for (path,) in self._rows("SELECT path FROM waiting ORDER BY path")]


def is_joined(home: Path) -> bool:
    """Whether a home has joined a grove."""
    return os.path.lexists(home / layout.GROVE_DB)


def machine_id() -> str:
    try:
        return MACHINE_ID.read_text().strip()
    except OSError:  # a container may have none
        return ""


def private_inode(home: Path) -> int:
    return os.stat(home / layout.PRIVATE).st_ino


def _agreed_file(sha256: bytes, *stamp: int) -> AgreedFile:
    return AgreedFile(sha256, Stamp(*stamp) if stamp[0] else None)


def _insert_membership(db: apsw.Connection, membership: Membership) -> None:
    db.execute("INSERT INTO membership VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", membership)


def _connect(path: Path, mode: str = "WAL") -> apsw.Connection:
    require_regular_file(path)
    create_private(path)
    try:
        db = apsw.Connection(str(path))
        db.set_busy_timeout(BUSY_MS)
        db.execute(f"PRAGMA journal_mode = {mode}; PRAGMA synchronous = FULL").fetchall()
    except apsw.CantOpenError as error:
        raise OSError(errno.EIO, "cannot be opened as a database", str(path)) from error
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise StoreError(f"{path} is damaged ({error}); remove it and rejoin: `grovefs grove rejoin`") from error
    except tuple(DISK_ERRORS) as error:
        number = disk_errno(None, error) or errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error
    return db


def _sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
