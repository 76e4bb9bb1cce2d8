"""search/<query>/: links to the sessions that match, best first, and results.md with the matches.

A query's directory exists once it is looked up; `search/` itself lists nothing. In a query, write a
slash as %2F and a percent sign as %25. Results are cached until the next commit.
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
from fusefs.views.search_page import MAX_PLACES, PAGE, links_of, render
from store import Cursor, Store, layout
from store.search.query import Query, parse_query
from store.search.results import EmptyQuery

MAX_SESSIONS = 1_000  # links in a query's directory; results.md says if there are more
MAX_CACHED = 32  # queries
CACHED_S = 60.0  # after the last lookup
STALE_S = 0.5  # how old links may be while sessions are written: `ls -l` of 1,000 links must not search 1,000 times

_ESCAPED = re.compile("%(2[Ff5])")


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a query."""

    cursor: Cursor  # position of the change feed before the search
    at_s: float
    links: dict[str, VirtualLink]
    page: VirtualFile


class SearchView(View):
    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: OrderedDict[str, Found] = OrderedDict()  # by query, least recently used first
        self._used_s: dict[str, float] = {}
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
        return self._found(query, stale_s=STALE_S).links.get(name)

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

    # -- cached results ------------------------------------------------------------------------------

    def _found(self, query: Query, stale_s: float = 0.0) -> Found:
        cursor, now_s = self._store.feed.since().cursor, time.monotonic()
        with self._lock:
            cached = self._cache.get(query.text)
            self._expire(now_s)
            if cached is not None and (cached.cursor == cursor or now_s - cached.at_s < stale_s):
                self._put(query.text, cached, now_s)
                return cached
        found = self._search(query, cursor)
        with self._lock:
            self._put(query.text, found, now_s)
        return found

    def _search(self, query: Query, cursor: Cursor) -> Found:
        """`cursor` was read before the search: a commit during the search makes the next lookup search again."""
        sessions = self._store.search(query, limit=MAX_SESSIONS, by_session=True, snippets=0)
        places = self._store.search(query, limit=MAX_PLACES)
        data = render(query, sessions, places, is_all=len(sessions) < MAX_SESSIONS).encode(errors="replace")
        version = blake2b(data, digest_size=8).hexdigest()
        page = VirtualFile(len(data), self._folder().mtime_ns, version, lambda: data, is_cacheable=False)
        return Found(cursor, time.monotonic(), links_of(sessions), page)

    def _put(self, query: str, found: Found, now_s: float) -> None:
        self._cache[query] = found
        self._cache.move_to_end(query)
        self._used_s[query] = now_s
        while len(self._cache) > MAX_CACHED:
            self._drop(next(iter(self._cache)))

    def _expire(self, now_s: float) -> None:
        while self._cache and now_s - self._used_s[oldest := next(iter(self._cache))] > CACHED_S:
            self._drop(oldest)

    def _drop(self, query: str) -> None:
        del self._cache[query], self._used_s[query]


def query_of(folder: str) -> Query:
    """The query in a directory's name. Raises EmptyQuery if there is nothing to search for."""
    if len(os.fsencode(folder)) > layout.MAX_NAME_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), folder)
    query = parse_query(_ESCAPED.sub(lambda found: "%" if found[1] == "25" else "/", folder))
    if query.is_empty:
        raise EmptyQuery(f"search/{folder}: nothing to search for; give a word, a phrase or a filter")
    return query
