"""html/ in the mount. Lists only index.html and stats.html; every other page exists when it is named.

So `grep -r`, `tar` and `rsync` over a mount do not meet every text once more. A page is looked up in the index and
rendered on read. The list of sessions is rendered at lookup and kept until the next commit; the statistics, which
read the token log of every session, are kept for at least STATS_S.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b

from fusefs.views.base import Item, View, VirtualDir, VirtualFile
from fusefs.views.html import conversation
from fusefs.views.html.names import INDEX, STATS, id_of, parse_name
from fusefs.views.html.session_list import render_list
from fusefs.views.html.stats_page import render_stats
from fusefs.views.page_cache import CACHE_BYTES, PageCache
from store import Cursor, Location, Store
from store.search.page_facts import PageFacts, embedded_images, image_extension

STATS_S = 5.0  # or ten times as long as rendering took, if that is longer


class HtmlView(View):
    def __init__(self, store: Store, cache_bytes: int = CACHE_BYTES) -> None:
        self._store = store
        self._cache = PageCache(cache_bytes)
        self._listed = {
            INDEX: RenderedPage(store, lambda: render_list(store.pages.iter_sessions()), 0.0),
            STATS: RenderedPage(store, lambda: render_stats(store), STATS_S),
        }
        self._images = ImageCache(store)

    def is_slow(self, path: str) -> bool:
        return bool(path)

    def find(self, path: str) -> Item | None:
        if not path:
            return self._folder()
        if path in self._listed:
            return self._listed[path].get()
        first, slash, rest = path.partition("/")
        if not slash:
            return self._named(None, first)
        named = parse_name(None, first)
        if named is not None:
            return self._image(named.location, rest) if named.kind == "images" else None
        root = id_of(first)
        return self._below(root, rest) if root is not None else None

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        if not path:
            yield from ((name, page.get()) for name, page in self._listed.items())

    def _folder(self) -> VirtualDir:
        return VirtualDir(max(self._store.browser.find_newest() or 0, 0))

    def _below(self, root: str, path: str) -> Item | None:
        """In the directory of a root: <child>.html, or <child>.images/<name>."""
        first, slash, rest = path.partition("/")
        if not slash:
            return self._named(root, first)
        named = parse_name(root, first)
        return self._image(named.location, rest) if named is not None and named.kind == "images" else None

    def _named(self, root: str | None, name: str) -> Item | None:
        named = parse_name(root, name)
        if named is None:
            children_of = id_of(name) if root is None else None
            has_some = children_of is not None and self._store.transcripts.find_newest_child(children_of) is not None
            return self._folder() if has_some else None
        if named.kind == "images":
            return self._folder() if self._store.transcripts.find(named.location) is not None else None
        facts = self._store.pages.find(named.location) if named.kind == "page" else None
        return self._page(facts) if facts is not None else None

    def _page(self, facts: PageFacts) -> VirtualFile:
        head = conversation.render_head(facts)
        info, version = facts.info, conversation.version_of(facts, head)

        def render() -> bytes:
            key = (info.location, info.digest)
            return head + self._cache.rendered(key, lambda: self._store.transcripts.render(info, marked=True))

        return VirtualFile(len(head) + info.size_bytes, max(info.mtime_ns, 0), version, render)

    def _image(self, location: Location, name: str) -> VirtualFile | None:
        info = self._store.transcripts.find(location)
        found = self._images.find(location, info.main_stamp, name) if info is not None else None
        if info is None or found is None:
            return None
        return VirtualFile(len(found), max(info.mtime_ns, 0), info.main_stamp, lambda: found)


class RenderedPage:
    """A page that is rendered at lookup, and kept until the next commit, or for some seconds at least."""

    def __init__(self, store: Store, render: Callable[[], bytes], kept_s: float) -> None:
        self._store = store
        self._render = render
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._known: tuple[Cursor, float, VirtualFile] | None = None

    def get(self) -> VirtualFile:
        with self._lock:
            cursor, now_s = self._store.feed.since().cursor, time.monotonic()
            if self._known is None or (self._known[0] != cursor and now_s > self._known[1]):
                data = self._render()
                took_s = time.monotonic() - now_s
                self._known = (
                    cursor,
                    now_s + (max(self._kept_s, 10 * took_s) if self._kept_s else 0.0),
                    self._file(data),
                )
            return self._known[2]

    def _file(self, data: bytes) -> VirtualFile:
        version = blake2b(data, digest_size=12).hexdigest()
        if self._known is not None and self._known[2].version == version:
            return self._known[2]  # with its time
        return VirtualFile(len(data), time.time_ns(), version, lambda: data)


class ImageCache:
    """The images inside the messages of the session that was asked for last: a page asks for all of them in turn."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._key: tuple[Location, str] | None = None
        self._images: dict[str, bytes] = {}

    def find(self, location: Location, stamp: str, name: str) -> bytes | None:
        with self._lock:
            if self._key != (location, stamp):
                self._key, self._images = (location, stamp), images_of(self._store, location)
            return self._images.get(name)


def images_of(store: Store, location: Location) -> dict[str, bytes]:
    """The images inside the messages of a session, by file name."""
    session = store.load(str(location))
    found: dict[str, bytes] = {}
    for index, message in enumerate(session.messages if session else ()):
        if message.content_parts:
            for number, (mime, data) in enumerate(embedded_images(message.model_dump())):
                found[f"{index}-{number}.{image_extension(mime)}"] = data
    return found
