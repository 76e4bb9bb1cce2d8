"""search/<query>/: links to the sessions found, the best first, and results.md with the places in them.

A query's directory is there when it is named; `search/` itself lists none. A slash in a query is written %2F and a
percent sign %25. What was found is kept while it is asked for, and found again once something was committed.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from fusefs.views.base import Item, View, VirtualDir, VirtualFile, VirtualLink
from fusefs.views.search_page import PAGE, SHOWN, links_of, render
from store import Cursor, Store, layout
from store.search.query import parse_query
from store.search.results import EmptyQuery

MOST_SESSIONS = 1_000  # links in a query's directory; results.md says if there are more
KEPT = 32  # queries whose results are remembered,
KEPT_S = 60.0  #   and for how long after they were last asked for
LATE_S = 0.5  # how late links may be while others write: `ls -l` of a thousand must not search a thousand times

_ESCAPED = re.compile("%(2[Ff5])")


@dataclass(frozen=True, slots=True)
class Found:
    """What a query leads to, as of a moment."""

    cursor: Cursor
    at_s: float
    links: dict[str, VirtualLink]
    page: VirtualFile


class SearchView(View):
    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, Found] = OrderedDict()  # by query, the one asked for last at the end
        self._asked_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def find(self, path: str) -> Item | None:
        folder, slash, name = path.partition("/")
        if not path:
            return self._folder()
        if folder.startswith(".") or "/" in name:
            return None
        query = query_of(folder)
        if not slash:
            return self._folder()
        if name == PAGE:
            return self._found(query).page
        return self._found(query, late_s=LATE_S).links.get(name)

    def is_slow(self, path: str) -> bool:
        return "/" in path

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        if not path or path.startswith(".") or "/" in path:
            return
        found = self._found(query_of(path))
        yield from found.links.items()
        yield PAGE, found.page

    def _folder(self) -> VirtualDir:
        return VirtualDir(max(self._store.browser.find_newest() or 0, 0))

    # -- what was found ------------------------------------------------------------------------------

    def _found(self, query: str, late_s: float = 0.0) -> Found:
        cursor, now_s = self._store.changes().cursor, time.monotonic()
        with self._lock:
            known = self._kept.get(query)
            self._forget(now_s)
            if known is not None and (known.cursor == cursor or now_s - known.at_s < late_s):
                self._keep(query, known, now_s)
                return known
        found = self._look(query, cursor)
        with self._lock:
            self._keep(query, found, now_s)
        return found

    def _look(self, query: str, cursor: Cursor) -> Found:
        """`cursor` was read before: what is committed meanwhile makes the next one look again."""
        sessions = self._store.search(query, limit=MOST_SESSIONS, by_session=True, snippets=0)
        places = self._store.search(query, limit=SHOWN)
        is_all, notes = len(sessions) < MOST_SESSIONS, parse_query(query).notes
        data = render(query, sessions, places, is_all=is_all, notes=notes).encode(errors="replace")
        version = blake2b(data, digest_size=8).hexdigest()
        page = VirtualFile(len(data), self._folder().mtime_ns, version, lambda: data, is_cacheable=False)
        return Found(cursor, time.monotonic(), links_of(sessions), page)

    def _keep(self, query: str, found: Found, now_s: float) -> None:
        self._kept[query] = found
        self._kept.move_to_end(query)
        self._asked_s[query] = now_s
        while len(self._kept) > KEPT:
            self._drop(next(iter(self._kept)))

    def _forget(self, now_s: float) -> None:
        """Drop what nobody asked for lately."""
        while self._kept and now_s - self._asked_s[oldest := next(iter(self._kept))] > KEPT_S:
            self._drop(oldest)

    def _drop(self, query: str) -> None:
        del self._kept[query], self._asked_s[query]


def query_of(folder: str) -> str:
    """The query that a directory's name stands for, if it is one."""
    if len(os.fsencode(folder)) > layout.MAX_NAME_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), folder)
    query = _ESCAPED.sub(lambda found: "%" if found[1] == "25" else "/", folder)
    if parse_query(query).is_empty:
        raise EmptyQuery(f"search/{folder} holds nothing to look for; give a word, a phrase or a filter")
    return query
