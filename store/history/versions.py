"""Values of the history: a saved version, its texts, drafts, snapshots, and the state of the history. Pure.

A lineage is the history of one path: of a session's directory, whose versions hold session.json and
runtime.json together, or of any other kept file. It follows its path through renames, into the trash
and back. Versions of a lineage are numbered from 1; a number is never used twice.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

from store import layout
from store.disk.file import NewFile, Stamp
from store.history.authors import Author
from store.layout import Location
from store.model.timestamp import Timestamp
from store.path_kinds import PathKind, classify_path

FOUND = "found"  # kind of a change that another program made
DIGEST_BYTES = 16
# Longer texts get their digest when idle: hashing 10 MB takes longer than appending to it.
DIGEST_LIMIT_BYTES = 1 << 20

_MAX_INT64 = 0x7FFFFFFFFFFFFFFF
_KEPT = frozenset({PathKind.RECORD, PathKind.PAYLOAD, PathKind.STATE_JSON, PathKind.STATE_TEXT})


@dataclass(frozen=True)
class SavedVersion:
    """One version of a lineage. `said_ns`, `mark` and `main_digest` are of session.json or the kept file."""

    lineage: int
    key: int  # grows with every version of the whole history
    number: int
    at_ns: int
    author: Author
    what: str  # kind of change: saved, appended, moved, found, …
    path: str  # of the lineage, as it is named now; below .grovefs/trash if deleted
    main_bytes: int | None  # None: no such file in this version
    side_bytes: int | None
    main_digest: bytes  # b"" if not known: most appends, and texts over DIGEST_LIMIT_BYTES
    said_ns: int | None  # the document's updated_at
    mark: int  # 64 bits of the file's stamp
    note: str = ""  # such as `forked from a@3`
    agreed: int | None = None  # number in the grove; negative: this host alone has it; None: there is no grove
    made_ns: int | None = None  # when another host made it; None: here, at `at_ns`

    @property
    def shown_number(self) -> int | None:
        """The number that people use: that of the grove, the same on all hosts; None if it has none there."""
        if self.agreed is None:
            return self.number
        return self.agreed if self.agreed > 0 else None

    @property
    def label(self) -> str:
        """The number as a text; of a version that only this host of a grove has, `local-3`."""
        return f"local-{self.number}" if self.shown_number is None else str(self.shown_number)

    @property
    def made_at_ns(self) -> int:
        """When it was made, on whichever host."""
        return self.at_ns if self.made_ns is None else self.made_ns


class AgreedNumber(NamedTuple):
    """The number of a version in a grove, and when another host made it (None: this host, now)."""

    number: int
    made_ns: int | None = None


class PastVersion(NamedTuple):
    """A version that a home never had, from the log of its grove."""

    agreed: AgreedNumber
    what: str
    author: Author
    main: bytes | None  # None: no such file in this version
    side: bytes | None


class VersionTexts(NamedTuple):
    """The bytes of a version; None for a file it does not have."""

    main: bytes | None
    side: bytes | None


class Draft(NamedTuple):
    """A text as it was typed, if a merge stored something else."""

    key: int
    text: bytes
    name: str  # session.json or runtime.json
    process: tuple[int, int] | None  # thread group id and start time
    uid: int
    at_ns: int


class Snapshot(NamedTuple):
    """A named moment."""

    name: str
    at_ns: int


class HistoryState(NamedTuple):
    """Whether versions are being kept, and how much of the past there is."""

    is_working: bool
    problem: str  # why not; "" if it works
    since_ns: int | None  # of the problem
    bytes: int
    versions: int
    oldest_ns: int | None
    set_aside: tuple[str, ...] = ()  # names in .grovefs/ of damaged databases

    def as_json(self) -> dict[str, Any]:
        """The same with times as text: many programs round integers of this size."""
        times = {"since": self.since_ns, "oldest": self.oldest_ns}
        shown = {name: Timestamp.from_ns(ns) if ns is not None else None for name, ns in times.items()}
        others = {name: value for name, value in self._asdict().items() if not name.endswith("_ns")}
        return {**others, **shown}


class Splice(NamedTuple):
    """`removed` bytes at `start` of the old text are replaced by `text`."""

    start: int
    removed: int
    text: bytes


class KnownChange(NamedTuple):
    """What a caller knows of its change to a text, which then is neither compared nor parsed."""

    said_ns: int  # updated_at of the new text
    splices: tuple[Splice, ...] | None = None  # in ascending order; None: the texts are compared


class LineagePlace(NamedTuple):
    """The lineage a file belongs to, and whether it is the sidecar of a session."""

    dir: str
    is_side: bool


@lru_cache(maxsize=4096)  # a commit asks for the same two files a dozen times
def place_of(path: str) -> LineagePlace | None:
    """The lineage of a file; None if its versions are not kept.

    Kept: both documents of a session, its records, project payloads and state documents.
    """
    info = classify_path(path)
    if info.kind is PathKind.DOCUMENT and info.location is not None:
        return LineagePlace(info.location.dir, info.name == layout.RUNTIME)
    return LineagePlace(path, False) if info.kind in _KEPT else None


def is_session_dir(path: str) -> bool:
    """Whether a lineage of this path has two documents."""
    return classify_path(path).kind is PathKind.SESSION


def lineage_path(path: str | Location) -> str:
    """The path of the lineage of a session's directory, of one of its documents, or of a kept file."""
    if isinstance(path, Location):
        return path.dir
    place = place_of(path)
    return place.dir if place is not None else path


def digest_of(text: bytes | bytearray) -> bytes:
    """The first half of the SHA-256, which processors compute faster than BLAKE2."""
    return sha256(text).digest()[:DIGEST_BYTES]


def mark_of(stamp: Stamp) -> int:
    """64 bits that identify a stamp, as an integer SQLite can store."""
    inode, size, mtime_ns, ctime_ns = stamp
    raw = struct.pack("<4q", inode & _MAX_INT64, size & _MAX_INT64, mtime_ns & _MAX_INT64, ctime_ns & _MAX_INT64)
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "little", signed=True)


@dataclass(frozen=True)
class FileChanges:
    """A commit, as the history sees it: `files` are written, then `moves` are made."""

    files: Sequence[NewFile] = ()
    moves: Sequence[tuple[str, str]] = ()
    what: str = "saved"
    known: Mapping[str, KnownChange] = field(default_factory=dict)  # by path of a file
    # By path of a lineage. Directories that arrive from tmp/ are recorded if they have a note.
    notes: Mapping[str, str] = field(default_factory=dict)


def owner_of(path: str) -> Location | None:
    """The location whose lock the commits of a lineage hold; None in the trash, or set aside."""
    if path.startswith(f"{layout.PRIVATE}/"):
        return None
    location = classify_path(path).location
    if location is not None and path.startswith(f"{layout.PROJECTS}/"):
        return Location(location.root)  # a project has one lock
    return location
