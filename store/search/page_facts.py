"""What a web page shows next to a transcript: neighbours, parent, sub-agents, tokens per message.

Everything but the tokens comes from the index; the tokens come from the session's own `token-usage.jsonl`.
No document is read, so a page's size is known without rendering it.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import orjson

from store import layout
from store.commit.core import Core
from store.disk.file import Stamp
from store.documents import display_names
from store.index.schema import SHIFT
from store.layout import Location
from store.search.prices import TOKENS
from store.search.transcripts import TranscriptInfo, Transcripts
from store.search.usage_log import iter_lines, parse_record

_LINK = "SELECT root, child, title, opening, status, created_ns FROM sessions"


class PageLink(NamedTuple):
    """Another session that a page links to."""

    location: Location
    title: str
    status: str | None
    created_ns: int


class MessageTokens(NamedTuple):
    """The tokens of the model call that wrote a message."""

    message: int  # its index
    input: int
    output: int
    cache_read: int
    cache_write: int


class ListedSession(NamedTuple):
    """A row of the list of all sessions."""

    location: Location
    parent: str | None
    title: str
    pinned: bool
    model: str
    status: str | None
    project: str | None
    created_ns: int
    updated_ns: int
    message_count: int
    children: int  # as many as its page links to; 0 for a child
    tokens: int  # of all calls in its log


@dataclass(frozen=True)
class PageFacts:
    """A session's page without its text."""

    info: TranscriptInfo
    title: str
    newer: PageLink | None
    older: PageLink | None
    parent: PageLink | None
    children: list[PageLink]
    tokens: list[MessageTokens]

    def only(self, is_shown: Callable[[PageLink], bool]) -> PageFacts:
        """Without links to other sessions than these."""
        around = (self.newer, self.older, self.parent)
        newer, older, parent = (link if link and is_shown(link) else None for link in around)
        children = [link for link in self.children if is_shown(link)]
        return replace(self, newer=newer, older=older, parent=parent, children=children)

    def with_titles(self, shown: Callable[[str], str]) -> PageFacts:
        """With every title replaced."""
        around = (self.newer, self.older, self.parent)
        newer, older, parent = (link._replace(title=shown(link.title)) if link else None for link in around)
        children = [link._replace(title=shown(link.title)) for link in self.children]
        title = shown(self.title)
        return replace(self, title=title, newer=newer, older=older, parent=parent, children=children)


@dataclass(frozen=True)
class SessionPages:
    """`store.pages`: facts for web pages."""

    core: Core
    transcripts: Transcripts
    _totals: dict[Location, tuple[Stamp, int]] = field(default_factory=dict)  # of logs that were read before

    def find(self, location: Location) -> PageFacts | None:
        info = self.transcripts.find(location)
        own = self._link("root = ? AND child = ?", location.root, location.child or "")
        if info is None or own is None:
            return None
        newer, older = self._neighbours(location)
        parent = self._parent(info)
        return PageFacts(info, own.title, newer, older, parent, self._children(location), self._tokens(location))

    def iter_sessions(self) -> Iterator[ListedSession]:
        """All sessions, last updated first. Only logs that changed since the last call are read."""
        counts = dict(
            self._rows(
                "SELECT root, count(*) FROM sessions AS s WHERE child > '' AND NOT EXISTS "
                "(SELECT 1 FROM sessions WHERE root = s.root AND child = s.parent AND child > '') GROUP BY root"
            )
        )
        rows = self._rows(
            "SELECT root, child, parent, title, opening, pinned, model, status, project, created_ns, updated_ns, "
            "message_count FROM sessions ORDER BY updated_ns DESC, key"
        )
        for root, child, parent, title, opening, pinned, model, status, project, created, updated, count in rows:
            location = Location(root, child or None)
            shown = display_names.shown_title(title, opening)
            children, tokens = 0 if child else counts.get(root, 0), self._total(location)
            kind = (bool(pinned), model, status, project)
            yield ListedSession(location, parent, shown, *kind, created, updated, count, children, tokens)

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self.core.db.reader.execute(query, values).fetchall()

    def _total(self, location: Location) -> int:
        """All tokens in a session's log."""
        stamp = self.core.disk.stamp(location.path(layout.TOKEN_USAGE))
        known = self._totals.get(location)
        if stamp is None:
            return 0
        if known is not None and known[0] == stamp:
            return known[1]
        records = map(parse_record, iter_lines(self.core.disk, location))
        total = sum(sum(record.tokens[name] for name in TOKENS[:4]) for record in records if record is not None)
        self._totals[location] = stamp, total
        return total

    # -- links ---------------------------------------------------------------------------------------

    def _link(self, where: str, *values: Any) -> PageLink | None:
        return next(self._links(where, *values), None)

    def _links(self, where: str, *values: Any) -> Iterator[PageLink]:
        for root, child, title, opening, status, created_ns in self._rows(f"{_LINK} WHERE {where}", values):
            shown = display_names.shown_title(title, opening)
            yield PageLink(Location(root, child or None), shown, status, created_ns)

    def _neighbours(self, location: Location) -> tuple[PageLink | None, PageLink | None]:
        """The next newer and the next older session, in the order of the list: roots, or children of one root."""
        group, values = "child = ''", list[Any]()
        if location.child is not None:
            group, values = "root = ? AND child > ''", [location.root]
        key = (location.root, location.child or "")
        rows = self._rows("SELECT updated_ns, key FROM sessions WHERE root = ? AND child = ?", key)
        if not rows:
            return None, None
        at, order = "(updated_ns, -key)", "ORDER BY updated_ns {0}, key {1} LIMIT 1"
        place = (rows[0][0], -rows[0][1])
        newer = self._link(f"{group} AND {at} > (?, ?) {order.format('ASC', 'DESC')}", *values, *place)
        older = self._link(f"{group} AND {at} < (?, ?) {order.format('DESC', 'ASC')}", *values, *place)
        return newer, older

    def _parent(self, info: TranscriptInfo) -> PageLink | None:
        if info.location.child is None:
            return None
        parent = orjson.loads(info.entry).get("parent_session_id")
        root = info.location.root
        found = self._link("root = ? AND id = ?", root, parent) if parent else None
        return found or self._link("root = ? AND child = ''", root)

    def _children(self, location: Location) -> list[PageLink]:
        """The direct children, oldest first; a root also gets those whose parent is not in its tree."""
        where = "root = ?1 AND child > '' AND parent = ?2"
        if location.child is None:
            where += " OR root = ?1 AND child > '' AND parent NOT IN (SELECT id FROM sessions WHERE root = ?1)"
        return [*self._links(f"{where} ORDER BY created_ns, key", location.root, location.id)]

    # -- tokens ----------------------------------------------------------------------------------------

    def _tokens(self, location: Location) -> list[MessageTokens]:
        """The calls in the session's log, each at the answer that was written nearest to its time."""
        answers = self._answer_times(location)
        if not answers:
            return []
        times = [at_ns for at_ns, _ in answers]
        found: dict[int, list[int]] = {}
        for line in iter_lines(self.core.disk, location):
            record = parse_record(line)
            if record is not None and record.at_ns is not None:
                index = answers[_nearest(times, record.at_ns)][1]
                counts = found.setdefault(index, [0, 0, 0, 0])
                for place, name in enumerate(TOKENS[:4]):
                    counts[place] += record.tokens[name]
        return [MessageTokens(index, *found[index]) for index in sorted(found)]

    def _answer_times(self, location: Location) -> list[tuple[int, int]]:
        """When each answer was written, and its index; sorted by time."""
        rows = self._rows(
            f"SELECT texts.created_ns, (texts.row & {(1 << SHIFT) - 1}) - 1 FROM sessions "
            f"JOIN texts ON texts.row BETWEEN (key << {SHIFT}) + 1 AND (key << {SHIFT}) + {(1 << SHIFT) - 1} "
            "WHERE root = ? AND child = ? AND role = 'assistant' AND texts.created_ns IS NOT NULL",
            (location.root, location.child or ""),
        )
        return sorted((int(at_ns), int(index)) for at_ns, index in rows)


def _nearest(times: list[int], at_ns: int) -> int:
    """The position of the time nearest to `at_ns`; of two equally near ones, the earlier."""
    after = bisect_left(times, at_ns)
    if after == len(times) or (after and at_ns - times[after - 1] <= times[after] - at_ns):
        return after - 1
    return after


# -- embedded images -------------------------------------------------------------------------------------


def embedded_images(message: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """MIME type and bytes of the images inside a message; no bytes if they cannot be decoded."""
    for part in message.get("content_parts") or ():
        url = (part.get("image_url") or {}).get("url", "")
        if url[:5].lower() == "data:":
            yield _decode(url)


def image_extension(mime: str) -> str:
    """The extension of an image's file name; a page computes the same from the MIME type it shows."""
    kind = mime.partition("/")[2].partition("+")[0]
    return kind if kind.isascii() and kind.isalnum() else "bin"


def _decode(url: str) -> tuple[str, bytes]:
    header, _, payload = url[5:].partition(",")
    mime, *options = (part.strip().lower() for part in header.split(";"))
    try:
        data = base64.b64decode(payload) if "base64" in options else unquote_to_bytes(payload)
    except (binascii.Error, ValueError):
        data = b""
    return mime, data
