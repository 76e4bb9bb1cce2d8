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
from typing import Any

from fusefs.views.audience import current_reader, may_see
from fusefs.views.base import Item, View, VirtualDir, VirtualFile, VirtualLink
from fusefs.views.search_page import MAX_PLACES, PAGE, links_of, render
from store import Cursor, Hit, Store, layout
from store.namespace.reader import Reader
from store.search.query import Query, parse_query
from store.search.results import EmptyQuery

MAX_SESSIONS = 1_000  # links in a query's directory; results.md says if there are more
MAX_CACHED = 32  # queries
CACHED_S = 60.0  # after the last lookup
STALE_S = 0.5  # how old links may be while sessions are written: `ls -l` of 1,000 links must not search 1,000 times

HIDDEN_FACTOR = 100  # for other users search more hits: any of them may be hidden from the user

CacheKey = tuple[str, Reader | None]  # the query, and the user for whom it was searched

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
        self._cache: OrderedDict[CacheKey, Found] = OrderedDict()  # least recently used first
        self._used_s: dict[CacheKey, float] = {}
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
        key = query.text, current_reader()
        with self._lock:
            cached = self._cache.get(key)
            self._expire(now_s)
            if cached is not None and (cached.cursor == cursor or now_s - cached.at_s < stale_s):
                self._put(key, cached, now_s)
                return cached
        found = self._search(query, cursor)
        with self._lock:
            self._put(key, found, now_s)
        return found

    def _search(self, query: Query, cursor: Cursor) -> Found:
        """`cursor` was read before the search: a commit during the search makes the next lookup search again."""
        sessions = self._visible(query, MAX_SESSIONS, by_session=True, snippets=0)
        places = self._visible(query, MAX_PLACES)
        data = render(query, sessions, places, is_all=len(sessions) < MAX_SESSIONS).encode(errors="replace")
        version = blake2b(data, digest_size=8).hexdigest()
        page = VirtualFile(len(data), self._folder().mtime_ns, version, lambda: data, is_cacheable=False)
        return Found(cursor, time.monotonic(), links_of(sessions), page)

    def _visible(self, query: Query, limit: int, **options: Any) -> list[Hit]:
        """The best hits that the reader may see."""
        if current_reader() is None:
            return self._store.search(query, limit=limit, **options)
        found = self._store.search(query, limit=limit * HIDDEN_FACTOR, **options)
        return [hit for hit in found if may_see(self._store, hit.path)][:limit]

    def _put(self, key: CacheKey, found: Found, now_s: float) -> None:
        self._cache[key] = found
        self._cache.move_to_end(key)
        self._used_s[key] = now_s
        while len(self._cache) > MAX_CACHED:
            self._drop(next(iter(self._cache)))

    def _expire(self, now_s: float) -> None:
        while self._cache and now_s - self._used_s[oldest := next(iter(self._cache))] > CACHED_S:
            self._drop(oldest)

    def _drop(self, key: CacheKey) -> None:
        del self._cache[key], self._used_s[key]


def query_of(folder: str) -> Query:
    """The query in a directory's name. Raises EmptyQuery if there is nothing to search for."""
    if len(os.fsencode(folder)) > layout.MAX_NAME_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), folder)
    query = parse_query(_ESCAPED.sub(lambda found: "%" if found[1] == "25" else "/", folder))
    if query.is_empty:
        raise EmptyQuery(f"search/{folder}: nothing to search for; give a word, a phrase or a filter")
    return query
