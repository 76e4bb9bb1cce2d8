"""Sessions of a project, and the records of its index files. Pure.

The format of payloads is unknown to the store, so an extractor reads the indexed fields from
them. Fields it does not find keep the value they have in the index. The file formats and the key
of a workspace are shared with other implementations and must not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, get_args

from pydantic import Field

from store import layout
from store.layout import Location
from store.model.record import U32, Record
from store.model.timestamp import Timestamp

ChildStatus = Literal["pending", "running", "idle", "completed", "error", "cancelled"]
STATUSES: tuple[str, ...] = get_args(ChildStatus)

_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


class ProjectSession(NamedTuple):
    """A session of a project: a parent, or a child of one."""

    key: str
    parent: str
    child: str | None = None

    @property
    def location(self) -> Location:
        return layout.project_location(self.key, self.parent, self.child)

    @property
    def payload(self) -> str:
        return self.location.path(layout.SESSION)

    @property
    def set_entry(self) -> str:
        """The file with the index entry that an upsert set. It counts until the payload changes."""
        return self.location.path(layout.ENTRY)

    @property
    def removed_marker(self) -> str:
        """The file that marks a child as removed from the indices."""
        return self.location.path(layout.REMOVED)


def member_of(location: Location) -> ProjectSession | None:
    """The session of a project at a location; None for the project itself."""
    parts = location.dir.split("/")
    if len(parts) == 4:
        return ProjectSession(parts[1], parts[3])
    return ProjectSession(parts[1], parts[3], parts[5]) if len(parts) == 6 else None


# -- keys ------------------------------------------------------------------------------------------


def render_key(path: str) -> str:
    """The key of a workspace path: its letters and digits, and 32 bits of its FNV-1a hash."""
    readable = "".join(char if char.isascii() and char.isalnum() else "-" for char in path)
    return f"{readable}-{_fnv1a64(path.encode()) & 0xFFFFFFFF:08x}"


def _fnv1a64(raw: bytes) -> int:
    digest = _FNV_OFFSET
    for byte in raw:
        digest = (digest ^ byte) * _FNV_PRIME % 2**64
    return digest


# -- entries ---------------------------------------------------------------------------------------


class RootEntry(Record):
    session_id: str
    title: str = ""
    updated_at: Timestamp


class ChildEntry(Record):
    child_id: str
    subagent_type: str = ""
    status: ChildStatus = "pending"
    title: str = ""
    responsibility: str = ""
    updated_at: Timestamp


class ProjectIndex(Record):
    """index.json"""

    version: U32 = 0
    roots: list[RootEntry] = Field(default_factory=list)
    child_lookup: dict[str, str] = Field(default_factory=dict)  # child → parent

    def find(self, session_id: str) -> RootEntry | None:
        return next((entry for entry in self.roots if entry.session_id == session_id), None)

    def put(self, session_id: str, entry: RootEntry | None) -> None:
        """Insert or replace an entry, sorted by id; None removes it."""
        kept = [other for other in self.roots if other.session_id != session_id]
        self.roots = sorted([*kept, entry] if entry else kept, key=lambda e: e.session_id)

    @property
    def is_empty(self) -> bool:
        return not self.roots and not self.child_lookup

    def dump(self) -> dict[str, Any]:
        return {**self.model_dump(), "child_lookup": dict(sorted(self.child_lookup.items()))}


class ChildrenIndex(Record):
    """children.json"""

    version: U32 = 0
    children: list[ChildEntry] = Field(default_factory=list)

    def find(self, child_id: str) -> ChildEntry | None:
        return next((entry for entry in self.children if entry.child_id == child_id), None)

    def put(self, child_id: str, entry: ChildEntry | None) -> None:
        kept = [other for other in self.children if other.child_id != child_id]
        self.children = sorted([*kept, entry] if entry else kept, key=lambda e: e.child_id)

    @property
    def is_empty(self) -> bool:
        return not self.children

    def dump(self) -> dict[str, Any]:
        return self.model_dump()


# -- extractors ------------------------------------------------------------------------------------


class RootFields(NamedTuple):
    """Fields of a payload that are indexed. None: not in the payload."""

    title: str | None = None
    updated_at: Timestamp | None = None


class ChildFields(NamedTuple):
    subagent_type: str | None = None
    status: str | None = None
    title: str | None = None
    responsibility: str | None = None
    updated_at: Timestamp | None = None


class Extractor(Protocol):
    """Reads the indexed fields from a payload."""

    def root(self, session_id: str, payload: Mapping[str, Any]) -> RootFields: ...
    def child(self, child_id: str, payload: Mapping[str, Any]) -> ChildFields: ...


class TopLevelExtractor:
    """The default: members at the top level with the names of the fields and the right type."""

    def root(self, session_id: str, payload: Mapping[str, Any]) -> RootFields:
        return RootFields(_text(payload, "title"), _instant(payload))

    def child(self, child_id: str, payload: Mapping[str, Any]) -> ChildFields:
        texts = {name: _text(payload, name) for name in ("subagent_type", "status", "title", "responsibility")}
        return ChildFields(**texts, updated_at=_instant(payload))


def _text(payload: Mapping[str, Any], name: str) -> str | None:
    value = payload.get(name)
    return value if isinstance(value, str) else None


def _instant(payload: Mapping[str, Any]) -> Timestamp | None:
    text = _text(payload, "updated_at")
    try:
        return Timestamp(text) if text is not None else None
    except ValueError:
        return None


def root_entry(session_id: str, fields: RootFields, mtime_ns: int, known: RootEntry | None) -> RootEntry:
    """The entry for a payload. Without `updated_at` the time is that of its file."""
    title = fields.title if fields.title is not None else known.title if known else ""
    return RootEntry(session_id=session_id, title=title, updated_at=_utc(fields.updated_at, mtime_ns))


def child_entry(child_id: str, fields: ChildFields, mtime_ns: int, known: ChildEntry | None) -> ChildEntry:
    entry = known.model_dump() if known else {}
    entry |= {name: value for name, value in fields._asdict().items() if value is not None}
    if entry.get("status") not in STATUSES:  # as other implementations do
        entry["status"] = "pending"
    return ChildEntry.model_validate({**entry, "child_id": child_id, "updated_at": _utc(fields.updated_at, mtime_ns)})


def _utc(moment: Timestamp | None, mtime_ns: int) -> Timestamp:
    """A time in the form of the index files: UTC with a Z, and 0, 3, 6 or 9 fractional digits."""
    return Timestamp.clamped(moment.ns if moment is not None else mtime_ns)


def normalize_entry(entry: RootEntry | ChildEntry) -> RootEntry | ChildEntry:
    """An entry with its time in the form of the index files."""
    return entry.model_copy(update={"updated_at": _utc(entry.updated_at, 0)})


def payload_members(entry: RootEntry | ChildEntry) -> dict[str, Any]:
    """The members of a payload that yield this entry."""
    return {name: value for name, value in entry.model_dump().items() if name not in ("session_id", "child_id")}


def newest_parent(parents: Iterable[tuple[str, ChildEntry]]) -> str | None:
    """Of several parents with a child of the same id, the one whose child changed last."""
    ranked = sorted(parents, key=lambda found: (found[1].updated_at.ns, found[0]))
    return ranked[-1][0] if ranked else None
