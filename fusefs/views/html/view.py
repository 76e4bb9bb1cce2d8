"""html/ in the mount. Lists only index.html and stats.html; every other page exists when it is named.

So `grep -r`, `tar` and `rsync` over a mount do not meet every text once more. A page is looked up in the index and
rendered on read. The list of sessions is rendered at lookup and kept until the next commit; the statistics, which
read the token log of every session, are kept for at least STATS_S. Pages of the history are rendered at lookup.

On a shared mount a user finds the pages of sessions whose session.json this user may read, and links only to those.
Statistics count all sessions, so only the owner of the home finds them.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusefs.views.audience import current_reader, may_see
from fusefs.views.base import Item, View, VirtualDir, VirtualFile
from fusefs.views.html import conversation
from fusefs.views.html.history_pages import render_diff, render_log
from fusefs.views.html.names import INDEX, STATS, PageName, id_of, parse_name
from fusefs.views.html.rendered import ImageCache, RenderedPage, as_file
from fusefs.views.html.session_list import render_list
from fusefs.views.html.stats_page import render_stats
from fusefs.views.page_cache import CACHE_BYTES, PageCache
from store import Location, Store
from store.search.page_facts import PageFacts

STATS_S = 5.0  # or ten times as long as rendering took, if that is longer


class HtmlView(View):
    def __init__(self, store: Store, cache_bytes: int = CACHE_BYTES) -> None:
        self._store = store
        self._cache = PageCache(cache_bytes)
        self._images = ImageCache(store)
        self._listed = {
            INDEX: RenderedPage(store, self._render_list, 0.0),
            STATS: RenderedPage(store, lambda: render_stats(store), STATS_S),
        }

    def forget(self) -> None:
        self._cache.clear()

    def is_slow(self, path: str) -> bool:
        return bool(path)

    def is_always_shown(self, path: str) -> bool:
        """`find` has decided already: the directories list nothing from which the tree could tell."""
        return True

    def find(self, path: str) -> Item | None:
        if not path:
            return self._folder()
        if path in self._listed:
            return self._listed[path].get() if path == INDEX or current_reader() is None else None
        first, slash, rest = path.partition("/")
        if not slash:
            return self._named(None, first)
        named = parse_name(None, first)
        if named is not None:
            return self._image(named, rest)
        root = id_of(first)
        return self._below(root, rest) if root is not None else None

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        for name in self._listed if not path else ():
            page = self.find(name)
            if page is not None:
                yield name, page

    def _folder(self) -> VirtualDir:
        return VirtualDir(max(self._store.browser.find_newest() or 0, 0))

    def _below(self, root: str, path: str) -> Item | None:
        """In the directory of a root: <child>.html, or <child>.images/<name>."""
        first, slash, rest = path.partition("/")
        if not slash:
            return self._named(root, first)
        named = parse_name(root, first)
        return self._image(named, rest) if named is not None else None

    def _named(self, root: str | None, name: str) -> Item | None:
        named = parse_name(root, name)
        if named is None:
            parent = id_of(name) if root is None else None
            return self._folder() if parent is not None and self._has_children(parent) else None
        if not may_see(self._store, named.location.dir):
            return None
        if named.kind == "images":
            return self._folder() if self._store.transcripts.find(named.location) is not None else None
        if named.kind != "page":
            return self._past(named)
        facts = self._store.pages.find(named.location)
        return self._page(facts) if facts is not None else None

    def _has_children(self, root: str) -> bool:
        if current_reader() is None:
            return self._store.transcripts.find_newest_child(root) is not None
        return any(may_see(self._store, info.location.dir) for info in self._store.transcripts.iter_children(root))

    # -- files ---------------------------------------------------------------------------------------

    def _render_list(self) -> bytes:
        sessions = self._store.pages.iter_sessions()
        if current_reader() is None:
            return render_list(sessions)
        return render_list(one for one in sessions if may_see(self._store, one.location.dir))

    def _page(self, facts: PageFacts) -> VirtualFile:
        facts = facts.only(lambda link: may_see(self._store, link.location.dir))
        info = facts.info
        has_log = self._store.history.newest(info.location.dir) is not None
        head = conversation.render_head(facts, has_log=has_log)

        def render() -> bytes:
            key = (info.location, info.digest)
            return head + self._cache.rendered(key, lambda: self._store.transcripts.render(info, marked=True))

        size, version = len(head) + info.size_bytes, conversation.version_of(facts, head)
        return VirtualFile(size, max(info.mtime_ns, 0), version, render, source=info.location.dir)

    def _past(self, named: PageName) -> VirtualFile | None:
        """The log, or a difference of two versions. Past versions do not change, so the newest one is the key."""
        newest = self._store.history.newest(named.location.dir)
        if newest is None:
            return None
        key = (named, newest.key)
        data = self._cache.get(key)
        if data is None:
            location, versions = named.location, named.versions
            made = (
                render_log(self._store, location) if versions is None else render_diff(self._store, location, *versions)
            )
            if made is None:
                return None
            data = made
            self._cache.put(key, data)
        return as_file(data, newest.at_ns, named.location.dir)

    def _image(self, named: PageName, name: str) -> VirtualFile | None:
        location: Location = named.location
        if named.kind != "images" or not may_see(self._store, location.dir):
            return None
        info = self._store.transcripts.find(location)
        found = self._images.find(location, info.main_stamp, name) if info is not None else None
        if info is None or found is None:
            return None
        mtime_ns = max(info.mtime_ns, 0)
        return VirtualFile(len(found), mtime_ns, info.main_stamp, lambda: found, source=location.dir)
