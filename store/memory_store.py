"""MemoryStore: an in-memory test double for programs that use a store.

It validates what is saved, rejects stale copies (rule 8) and isolates saved sessions from later
changes of the caller's objects, exactly as Store does; nothing is written to disk. It implements
`Backend`, a small part of Store: it cannot be mounted or searched. Safe to use from many threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from store import layout
from store.check.health import Health, Probe
from store.commit.session_reader import LoadState, entry_of
from store.disk.file import Stamp
from store.documents import json_text, sidecar
from store.documents.document import Document, parse_document
from store.documents.json_splice import same
from store.documents.secrets import without_api_key_members
from store.errors import Ambiguous, Conflict, NotFound, Protected
from store.index.catalog import Version
from store.layout import ARTIFACTS, TRACES, VERIFICATION, Location
from store.model.index_entry import IndexEntry
from store.model.session import Session
from store.sessions import artifacts
from store.sessions.artifacts import ArtifactSet, ToolArtifact, TraceEvent, VerificationReport
from store.sessions.delete import descendants
from store.sessions.records import render_record
from store.sessions.refresh import merge_into
from store.sessions.save import OnStale
from store.sessions.session_checks import (
    check_rendered,
    conflict_error,
    location_of,
    next_updated_at,
    require_no_lost_messages,
    require_valid_fields,
)


@dataclass
class _HeldSession:
    """One session: its document, the number of the save that wrote it, its records by file name."""

    document: Document
    number: int
    entry: IndexEntry
    records: dict[str, bytes] = field(default_factory=dict)

    @property
    def version(self) -> Version:
        return Version(Stamp(self.number, len(self.document.raw), 0, 0), None)


class MemoryStore:
    """Sessions in a dictionary. `store.backend.Backend` documents the methods."""

    backend_name = "memory"

    def __init__(self, *, limit_bytes: int = json_text.MAX_DOCUMENT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.lock = threading.RLock()
        self._held: dict[Location, _HeldSession] = {}
        self._saves = 0
        self.records = MemoryRecords(self)

    # -- sessions ----------------------------------------------------------------------------------------

    def save(
        self,
        session: Session,
        *,
        overwrite: bool = False,
        shorten: bool = False,
        on_conflict: OnStale = "raise",
    ) -> None:
        require_valid_fields(session)
        location = location_of(session)
        with self.lock:
            held = self._held.get(location)
            if held is None:
                self._create(session, location, overwrite=overwrite)
            else:
                origin: LoadState | None = session._origin
                is_stale = origin is not None and origin.version != held.version
                if on_conflict == "merge" and not overwrite and origin is not None and is_stale:
                    require_no_lost_messages(location, origin.dump, session, shorten=shorten)
                    merge_into(session, _loaded(held, location))
                    shorten = True
                self._rewrite(session, location, held, overwrite=overwrite, shorten=shorten)

    def refresh(self, session: Session) -> bool:
        require_valid_fields(session)
        location, origin = location_of(session), session._origin
        with self.lock:
            held = self._held.get(location)
            if origin is None:
                raise conflict_error(location, None)
            if held is None:
                raise NotFound(f"session {location} was deleted since it was loaded")
            if origin.version == held.version:
                return False
            merge_into(session, _loaded(held, location))
        return True

    def _create(self, session: Session, location: Location, *, overwrite: bool) -> None:
        if session._origin is not None and not overwrite:
            raise Conflict(
                f"session {location} was deleted since it was loaded; pass overwrite=True to create it again"
            )
        layout.check_new(location)
        self._put(session, location, session.model_dump(warnings=False), {})

    def _rewrite(
        self, session: Session, location: Location, held: _HeldSession, *, overwrite: bool, shorten: bool
    ) -> None:
        origin: LoadState | None = session._origin
        if overwrite or origin is None or origin.version != held.version:
            if not overwrite:
                raise conflict_error(location, origin)
            origin = _origin(held, held.document.record.model_dump())
        now = sidecar.complete_api_changes(origin.dump, session)
        if same(origin.dump, now):
            return
        require_no_lost_messages(location, origin.dump, session, shorten=shorten)
        session.updated_at = now["updated_at"] = next_updated_at(origin, session.updated_at)
        self._put(session, location, now, held.records)

    def _put(self, session: Session, location: Location, now: dict[str, Any], records: dict[str, bytes]) -> None:
        now = without_api_key_members({name: value for name, value in now.items() if name != sidecar.AUTHORITY})
        document = check_rendered(now, location, self.limit_bytes)
        entry = entry_of(document.record, location, len(document.record.messages), has_attachments=False)
        self._saves += 1
        self._held[location] = held = _HeldSession(document, self._saves, entry, records)
        session._origin = _origin(held, now)

    def load(self, session_id: str) -> Session | None:
        with self.lock:
            location = self._locate(session_id)
            if location is None:
                return None
            held = self._held[location]
        return _loaded(held, location)

    def delete(self, session_id: str, *, force: bool = False) -> bool:
        with self.lock:
            location = self._locate(session_id)
            if location is None:
                return False
            entries = {loc: held.entry for loc, held in self._held.items() if loc.root == location.root}
            deleted = [location, *descendants(location, entries)]
            if location.child is None:
                deleted = list(entries)
            pinned = [loc for loc in deleted if entries[loc].pinned]
            if pinned and not force:
                raise Protected(f"{location} was not deleted: {pinned[0]} is pinned")
            for loc in deleted:
                del self._held[loc]
        return True

    def ids(self) -> list[str]:
        with self.lock:
            return sorted(map(str, self._held))

    def exists(self, session_id: str) -> bool:
        with self.lock:
            return self._locate(session_id) is not None

    def health(self) -> Health:
        return Health(self.backend_name, (Probe("memory", True, f"{len(self._held)} sessions"),))

    def _locate(self, session_id: str) -> Location | None:
        exact = layout.parse_location(session_id)
        if exact is not None:
            return exact if exact in self._held else None
        root = Location(layout.check_id(session_id))
        found = [root] if root in self._held else [loc for loc in self._held if loc.id == session_id]
        if len(found) > 1:
            raise Ambiguous(session_id, map(str, found))
        return found[0] if found else None

    def held(self, session_id: str) -> _HeldSession:
        """Return a session that must exist. The caller holds the lock."""
        location = self._locate(session_id)
        if location is None:
            raise NotFound(f"there is no session {session_id!r}")
        return self._held[location]


def _loaded(held: _HeldSession, location: Location) -> Session:
    """Parsed for each call, so that callers do not share one record."""
    session = parse_document(held.document.raw, location.path(layout.SESSION)).record
    session._origin = _origin(held, session.model_dump())
    return session


def _origin(held: _HeldSession, dump: dict[str, Any]) -> LoadState:
    return LoadState(held.version, dump, dump, has_side=False)


class MemoryRecords:
    """Records of the sessions in memory, each stored as the bytes of its file."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def load_artifacts(self, session_id: str) -> ArtifactSet | None:
        found: ArtifactSet | None = self._load(session_id, ARTIFACTS)
        return found

    def save_artifacts(self, session_id: str, found: ArtifactSet) -> list[str]:
        found = found.model_copy()
        with self._store.lock:
            held = self._store.held(session_id)
            gone = found.evict()
            self._put(held, ARTIFACTS, found)
        return [artifact.artifact_uri for artifact in gone]

    def add_artifacts(self, session_id: str, added: Iterable[ToolArtifact]) -> list[str]:
        with self._store.lock:
            self._store.held(session_id)
            found = self.load_artifacts(session_id) or ArtifactSet.of()
            for artifact in added:
                found.put(artifact)
            return self.save_artifacts(session_id, found)

    def load_traces(self, session_id: str) -> list[TraceEvent] | None:
        found: list[TraceEvent] | None = self._load(session_id, TRACES)
        return found

    def save_traces(self, session_id: str, events: Iterable[TraceEvent]) -> None:
        self._save(session_id, TRACES, list(events), add=False)

    def add_traces(self, session_id: str, events: Iterable[TraceEvent]) -> None:
        self._save(session_id, TRACES, list(events), add=True)

    def load_verification(self, session_id: str) -> list[VerificationReport] | None:
        found: list[VerificationReport] | None = self._load(session_id, VERIFICATION)
        return found

    def save_verification(self, session_id: str, reports: Iterable[VerificationReport]) -> None:
        self._save(session_id, VERIFICATION, list(reports), add=False)

    def add_verification(self, session_id: str, reports: Iterable[VerificationReport]) -> None:
        self._save(session_id, VERIFICATION, list(reports), add=True)

    def _load(self, session_id: str, name: str) -> Any:
        with self._store.lock:
            raw = self._store.held(session_id).records.get(name) if self._store.exists(session_id) else None
        return None if raw is None else artifacts.parse_record(name, raw, name)

    def _save(self, session_id: str, name: str, items: list[Any], *, add: bool) -> None:
        with self._store.lock:
            held = self._store.held(session_id)
            present = (self._load(session_id, name) or []) if add else []
            self._put(held, name, [*present, *items])

    def _put(self, held: _HeldSession, name: str, record: Any) -> None:
        held.records[name] = render_record(name, record, name, self._store.limit_bytes)
