"""Transcripts of the sessions in a home: how long each is, without making it; and the text, when it is read.

A sheet says what a transcript was at one moment. Its text is made later, from the files as they are then; if that
can no longer be the text the sheet speaks of, Conflict says so, and who asks again gets another sheet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
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
from store.index.catalog import Version, unpack_version
from store.index.schema import SHIFT
from store.layout import Location
from store.model.index_entry import IndexEntry

T = TypeVar("T")

# Changes after which all messages that were there before are still there, and say the same.
_GROWING = {"appended", "runtime", "attachment", "log"}


class TranscriptInfo(NamedTuple):
    """What is known of a transcript without making it."""

    location: Location
    size_bytes: int
    mtime_ns: int
    main_stamp: str  # of the documents it is made from, as the index has them
    side_stamp: str | None
    entry: str  # as JSON: the header
    links: Mapping[str, str]  # attachments, and where they were found
    text_digest: int | None  # digest of title and summary
    seq: int  # how far the change feed had come

    @property
    def digest(self) -> str:
        """Equal digest, equal text."""
        documents = f"{transcript.RENDERER_VERSION} {self.main_stamp} {self.side_stamp}"
        if not self.links:
            return documents
        return f"{documents} {blake2b(repr(sorted(self.links.items())).encode(), digest_size=16).hexdigest()}"


@dataclass(frozen=True)
class Transcripts:
    core: Core

    # -- what there is ---------------------------------------------------------------------------------

    def find(self, location: Location) -> TranscriptInfo | None:
        """One indexed read, and a look at the attachments where the text has links to some."""
        rows = self._rows("root = ? AND child = ?", (location.root, location.child or ""))
        return next(self._infos(rows), None)

    def iter_roots(self) -> Iterator[TranscriptInfo]:
        return self._infos(self._rows("child = ''", ()))

    def iter_children(self, root: str) -> Iterator[TranscriptInfo]:
        """All descendants of a root, at any depth."""
        return self._infos(self._rows("root = ? AND child > ''", (root,)))

    def find_newest_child(self, root: str) -> int | None:
        """When a descendant of a root was last updated, in nanoseconds; None if it has none."""
        newest = self.core.db.reader.execute(
            "SELECT max(updated_ns) FROM sessions WHERE root = ? AND child > ''", (root,)
        ).get
        return None if newest is None else int(newest)

    def iter_parents(self) -> Iterator[tuple[str, int]]:
        """Every root that has descendants, and when one of them was last updated."""
        query = "SELECT root, max(updated_ns) FROM sessions WHERE child > '' GROUP BY root"
        rows: list[tuple[Any, ...]] = self.core.db.reader.execute(query).fetchall()
        return ((root, newest) for root, newest in rows)

    def _rows(self, where: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
        columns = "key, root, child, header_bytes + text_bytes, main_stamp, side_stamp, entry"
        told = f"(SELECT digest FROM texts WHERE row = key << {SHIFT})"
        seq = "(SELECT seq FROM sqlite_sequence WHERE name = 'changes')"
        query = f"SELECT {columns}, {told}, {seq} FROM sessions WHERE {where} ORDER BY root, child"
        return self.core.db.reader.execute(query, values).fetchall()

    def _infos(self, rows: list[tuple[Any, ...]]) -> Iterator[TranscriptInfo]:
        linking = transcript_sizes.sessions_with_links(self.core.db.reader) if len(rows) > 1 else None
        finder = _Finder(self.core)
        for key, root, child, size, main, side, entry, told, seq in rows:
            location = Location(root, child or None)
            times = transcript_sizes.links_of(self.core.db.reader, key) if linking is None or key in linking else {}
            links = {url: finder.target(location, url) for url in times}
            size += sum(times[url] * len(link) for url, link in links.items())
            yield TranscriptInfo(location, size, mtime_of(main, side), main, side, entry, links, told, seq or 0)

    # -- the text --------------------------------------------------------------------------------------

    def render(self, sheet: TranscriptInfo) -> bytes:
        """The text that a sheet speaks of: exactly as long as it says."""
        loaded = self._load(sheet.location)
        if loaded is None:
            raise NotFound(f"session {sheet.location} is gone")
        if self._is_same(sheet, loaded):
            data = self._rendered(sheet, loaded)
            if len(data) == sheet.size_bytes:
                return data
        self.core.refresh(sheet.location)
        raise Conflict(f"session {sheet.location} was changed since its transcript was looked at; look again")

    @staticmethod
    def _rendered(sheet: TranscriptInfo, loaded: LoadedSession) -> bytes:
        entry = IndexEntry.model_validate(orjson.loads(sheet.entry))
        messages = loaded.main.data["messages"][: entry.message_count]
        text = transcript.render(entry, _summary(loaded), messages, lambda url: sheet.links.get(url, ""))
        return transcript.encode(text)

    def text(self, location: Location, message: int | None = None) -> str | None:
        """The transcript as it is now, or the piece of one message; None if there is no session."""
        loaded = self.core.load(location)
        if loaded is None:
            return None
        finder, messages = _Finder(self.core), loaded.main.data["messages"]

        def target(url: str) -> str:
            return finder.target(location, url)

        if message is not None:
            index = message + len(messages) if message < 0 else message
            return transcript.render_message(pick(messages, message), index, target).lstrip("\n")
        has_attachments = session_reader.has_attachments(self.core.disk, location)
        entry = session_reader.entry_of(loaded.session, location, len(messages), has_attachments=has_attachments)
        return transcript.render(entry, _summary(loaded), messages, target)

    def _load(self, location: Location) -> LoadedSession | None:
        snapshot = session_reader.read(self.core.disk, location, self.core.limit_bytes)
        return session_reader.parse(snapshot) if snapshot.main is not None else None

    def _is_same(self, sheet: TranscriptInfo, loaded: LoadedSession) -> bool:
        """Whether the beginning of what was read is what the sheet speaks of."""
        present = loaded.snapshot.version
        if _is_version(unpack_version(sheet.main_stamp, sheet.side_stamp), present):
            return True
        known = self.core.index.find_version(sheet.location)
        if known is None or not _is_version(known, present):
            return False  # changed behind our back, or just now: nobody can say how
        title = orjson.loads(sheet.entry)["title"]
        return fulltext.session_digest(title, _summary(loaded)) == sheet.text_digest and self._has_only_grown(sheet)

    def _has_only_grown(self, sheet: TranscriptInfo) -> bool:
        root, child = sheet.location.root, sheet.location.child or ""
        query = "SELECT DISTINCT what FROM changes WHERE seq > ? AND root = ? AND child = ?"
        happened = {what for (what,) in self.core.db.reader.execute(query, (sheet.seq, root, child))}
        return bool(happened) and happened <= _GROWING and self.core.db.get_meta("feed_floor", 0) <= sheet.seq


def pick(messages: Sequence[T], index: int) -> T:
    """One of a session's messages, counted from the end where the index is negative."""
    if not -len(messages) <= index < len(messages):
        raise NotFound(f"there is no message {index}: the session has {len(messages)}")
    return messages[index]


def mtime_of(main_stamp: str, side_stamp: str | None) -> int:
    """When a session was last written: later of its two documents, so that no change goes without notice."""
    return max(int(stamp.split(":")[2]) for stamp in (main_stamp, side_stamp) if stamp)


def _is_version(known: Version, present: Version) -> bool:
    return _is_stamp(known.main, present.main) and _is_stamp(known.side, present.side)


def _is_stamp(known: Stamp | None, present: Stamp | None) -> bool:
    """A stamp that was too young to be trusted is known without its ctime."""
    if known is None or present is None or known.ctime_ns:
        return known == present
    return known == present._replace(ctime_ns=0)


def _summary(loaded: LoadedSession) -> str:
    summary = loaded.session.conversation_summary
    return summary.content if summary else ""


@dataclass(frozen=True)
class _Finder:
    """Where attachments lie, each directory listed once."""

    core: Core
    _names: dict[Location, list[str]] = field(default_factory=dict)

    def target(self, location: Location, url: str) -> str:
        """The path from a session's transcript to an attachment; the reference itself if that leads nowhere."""
        reference = attachment_names.parse_reference(url)
        owner = self._owner(location, reference[0]) if reference else None
        name = attachment_names.find_name(reference[1], self._listed(owner)) if owner and reference else None
        if owner is None or name is None:
            return transcript.quote_path(url)
        up = "../" if location.child is None else "../../"
        return up + transcript.quote_name(f"{owner.path(layout.ATTACHMENTS)}/{name}")

    def _owner(self, location: Location, session_id: str) -> Location | None:
        """As `Core.locate`, but from the index alone: who only looks waits for nobody."""
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
            except (Corrupt, PermissionError):  # no directory of ours; `check` tells of it
                entries = []
            self._names[owner] = [entry.name for entry in entries if entry.is_file]
        return self._names[owner]
