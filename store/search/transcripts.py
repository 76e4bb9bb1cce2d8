"""Transcripts of sessions: exact sizes from the index, text rendered on read.

A TranscriptInfo describes a transcript at one moment. Its text is rendered later from the current files. If
that text can no longer be the described one, rendering raises Conflict, and the caller has to ask for a new
TranscriptInfo.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import orjson

from store import layout
from store.commit import session_reader
from store.commit.core import Core
from store.commit.session_reader import LoadedSession
from store.disk.file import Stamp
from store.documents import attachment_names, transcript
from store.errors import Conflict, Corrupt, NotFound
from store.index import fulltext, transcript_sizes
from store.index.catalog import Version, mtime_of, unpack_version
from store.index.schema import SHIFT
from store.layout import Location
from store.model.index_entry import IndexEntry

T = TypeVar("T")

# Changes that leave all earlier messages in place and unchanged.
_GROWING = {"appended", "runtime", "attachment", "log"}


_NO_LINKS: Mapping[str, str] = MappingProxyType({})
_SEPARATOR = " "  # between the parts of TranscriptInfo.documents, none of which contains it


class TranscriptInfo(NamedTuple):
    """A transcript's size and version, without its text. A mount keeps one for each that was listed."""

    location: Location
    size_bytes: int
    mtime_ns: int
    documents: str  # version of the renderer, and stamps of session.json and runtime.json as in the index
    entry: str  # JSON of the IndexEntry, for the header
    links: Mapping[str, str]  # attachment reference → link target
    text_digest: int | None  # of title and summary
    seq: int  # position of the change feed

    @property
    def digest(self) -> str:
        """An equal digest means equal text."""
        if not self.links:
            return self.documents
        links = blake2b(repr(sorted(self.links.items())).encode(), digest_size=16).hexdigest()
        return f"{self.documents}{_SEPARATOR}{links}"

    @property
    def main_stamp(self) -> str:
        """The stamp of session.json."""
        return self.documents.split(_SEPARATOR)[1]

    @property
    def indexed_version(self) -> Version:
        """The documents it is rendered from."""
        _, main, side = self.documents.split(_SEPARATOR)
        return unpack_version(main, side)


@dataclass(frozen=True)
class Transcripts:
    core: Core

    # -- sizes -----------------------------------------------------------------------------------------

    def find(self, location: Location) -> TranscriptInfo | None:
        """One indexed read, plus a listing of the attachments if the text links to some."""
        rows = self._rows("root = ? AND child = ?", (location.root, location.child or ""))
        return next(self._infos(rows), None)

    def iter_roots(self) -> Iterator[TranscriptInfo]:
        return self._infos(self._rows("child = ''", ()))

    def iter_children(self, root: str) -> Iterator[TranscriptInfo]:
        """All descendants of a root, at any depth."""
        return self._infos(self._rows("root = ? AND child > ''", (root,)))

    def find_newest_child(self, root: str) -> int | None:
        """The latest update of a root's descendants, in nanoseconds; None if it has none."""
        newest = self.core.db.reader.execute(
            "SELECT max(updated_ns) FROM sessions WHERE root = ? AND child > ''", (root,)
        ).get
        return None if newest is None else int(newest)

    def iter_parents(self) -> Iterator[tuple[str, int]]:
        """Every root with descendants, and their latest update."""
        query = "SELECT root, max(updated_ns) FROM sessions WHERE child > '' GROUP BY root"
        rows: list[tuple[Any, ...]] = self.core.db.reader.execute(query).fetchall()
        return ((root, newest) for root, newest in rows)

    def _rows(self, where: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
        columns = "key, root, child, header_bytes + text_bytes, main_stamp, side_stamp, entry"
        digest = f"(SELECT digest FROM texts WHERE row = key << {SHIFT})"
        seq = "(SELECT seq FROM sqlite_sequence WHERE name = 'changes')"
        query = f"SELECT {columns}, {digest}, {seq} FROM sessions WHERE {where} ORDER BY root, child"
        # The entries are made small one by one: those of all sessions as they are stored would need more memory.
        return [
            (*row[:4], mtime_of(row[4], row[5]), _documents(row[4], row[5]), _compact(row[6]), *row[7:])
            for row in self.core.db.reader.execute(query, values)
        ]

    def _infos(self, rows: list[tuple[Any, ...]]) -> Iterator[TranscriptInfo]:
        linking = transcript_sizes.sessions_with_links(self.core.db.reader) if len(rows) > 1 else None
        finder = _AttachmentFinder(self.core)
        for key, root, child, size, mtime_ns, documents, entry, digest, seq in rows:
            location = Location(root, child or None)
            times = transcript_sizes.links_of(self.core.db.reader, key) if linking is None or key in linking else {}
            links = {url: finder.target(location, url) for url in times} or _NO_LINKS
            size += sum(times[url] * len(link) for url, link in links.items())
            yield TranscriptInfo(location, size, mtime_ns, documents, entry, links, digest, seq or 0)

    # -- the text --------------------------------------------------------------------------------------

    def render(self, info: TranscriptInfo, *, marked: bool = False) -> bytes:
        """The text that `info` describes, with exactly its size. Raises Conflict if it has changed."""
        loaded = self._load(info.location)
        if loaded is None:
            raise NotFound(f"session {info.location} was deleted")
        if self._is_same(info, loaded):
            data = self._rendered(info, loaded, marked=marked)
            if len(data) == info.size_bytes:
                return data
        self.core.refresh(info.location)
        raise Conflict(f"session {info.location} changed since its transcript was looked up; retry")

    @staticmethod
    def _rendered(info: TranscriptInfo, loaded: LoadedSession, *, marked: bool) -> bytes:
        entry = IndexEntry.model_validate(orjson.loads(info.entry))
        messages = loaded.main.data["messages"][: entry.message_count]

        def target(url: str) -> str:
            return info.links.get(url, "")

        text = transcript.render(entry, _summary(loaded), messages, target, marked=marked)
        return transcript.encode(text)

    def text(self, location: Location, message: int | None = None, *, marked: bool = False) -> str | None:
        """The current transcript, or that of one message; None if there is no such session."""
        loaded = self.core.load(location)
        return self.text_of(loaded, message, marked=marked) if loaded is not None else None

    def text_of(self, loaded: LoadedSession, message: int | None = None, *, marked: bool = False) -> str:
        """The transcript of a session that was loaded, now or from the history, or that of one message."""
        location = loaded.pair.location
        finder, messages = _AttachmentFinder(self.core), loaded.main.data["messages"]

        def target(url: str) -> str:
            return finder.target(location, url)

        if message is not None:
            index = message + len(messages) if message < 0 else message
            return transcript.render_message(pick(messages, message), index, target, marked=marked).lstrip("\n")
        has_attachments = session_reader.has_attachments(self.core.disk, location)
        entry = session_reader.entry_of(loaded.session, location, len(messages), has_attachments=has_attachments)
        return transcript.render(entry, _summary(loaded), messages, target, marked=marked)

    def _load(self, location: Location) -> LoadedSession | None:
        snapshot = session_reader.read(self.core.disk, location, self.core.limit_bytes)
        return session_reader.parse(snapshot) if snapshot.main is not None else None

    def _is_same(self, info: TranscriptInfo, loaded: LoadedSession) -> bool:
        """Whether the loaded session begins with the described text."""
        present = loaded.pair.version
        if _is_version(info.indexed_version, present):
            return True
        known = self.core.index.find_version(info.location)
        if known is None or not _is_version(known, present):
            return False  # changed outside the store, or just now: what changed is unknown
        title = orjson.loads(info.entry)["title"]
        return fulltext.session_digest(title, _summary(loaded)) == info.text_digest and self._has_only_grown(info)

    def _has_only_grown(self, info: TranscriptInfo) -> bool:
        root, child = info.location.root, info.location.child or ""
        query = "SELECT DISTINCT what FROM changes WHERE seq > ? AND root = ? AND child = ?"
        changes = {what for (what,) in self.core.db.reader.execute(query, (info.seq, root, child))}
        return bool(changes) and changes <= _GROWING and self.core.db.get_meta("feed_floor", 0) <= info.seq


def _documents(main: str, side: str | None) -> str:
    return _SEPARATOR.join((str(transcript.RENDERER_VERSION), main, side or ""))


def _compact(entry: str) -> str:
    """An index entry without optional members that are null, false, 0 or empty: these are their defaults."""
    required = _required_members()
    said = {name: value for name, value in orjson.loads(entry).items() if value or name in required}
    return orjson.dumps(said).decode()  # not bytes: those of orjson keep a buffer of a kilobyte


@cache
def _required_members() -> frozenset[str]:
    return frozenset(name for name, info in IndexEntry.model_fields.items() if info.is_required())


def pick(messages: Sequence[T], index: int) -> T:
    """A session's message by index; a negative index counts from the end."""
    if not -len(messages) <= index < len(messages):
        raise NotFound(f"no message {index}: the session has {len(messages)} messages")
    return messages[index]


def _is_version(known: Version, present: Version) -> bool:
    return _is_stamp(known.main, present.main) and _is_stamp(known.side, present.side)


def _is_stamp(known: Stamp | None, present: Stamp | None) -> bool:
    """A stamp that was too recent to be trusted is stored without its ctime."""
    if known is None or present is None or known.ctime_ns:
        return known == present
    return known == present._replace(ctime_ns=0)


def _summary(loaded: LoadedSession) -> str:
    summary = loaded.session.conversation_summary
    return summary.content if summary else ""


@dataclass(frozen=True)
class _AttachmentFinder:
    """Finds attachments; lists each directory once."""

    core: Core
    _names: dict[Location, list[str]] = field(default_factory=dict)

    def target(self, location: Location, url: str) -> str:
        """The relative path from a session's transcript to an attachment; the reference itself if not found."""
        reference = attachment_names.parse_reference(url)
        owner = self._owner(location, reference[0]) if reference else None
        name = attachment_names.find_name(reference[1], self._listed(owner)) if owner and reference else None
        if owner is None or name is None:
            return transcript.quote_path(url)
        up = "../" if location.child is None else "../../"
        return up + transcript.quote_name(f"{owner.path(layout.ATTACHMENTS)}/{name}")

    def _owner(self, location: Location, session_id: str) -> Location | None:
        """Like `Core.locate`, but from the index only: a lookup must not wait for locks."""
        if session_id in (location.id, location.root):
            return location if session_id == location.id else Location(location.root)
        found = self.core.index.locate(session_id)
        if Location(session_id) in found:
            return Location(session_id)
        return found[0] if len(found) == 1 else None

    def _listed(self, owner: Location) -> list[str]:
        if owner not in self._names:
            try:
                entries = self.core.disk.entries(owner.path(layout.ATTACHMENTS))
            except (Corrupt, PermissionError):  # not a directory, or unreadable; `check` reports it
                entries = []
            self._names[owner] = [entry.name for entry in entries if entry.is_file]
        return self._names[owner]
