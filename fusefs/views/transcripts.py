"""transcripts/: every conversation as Markdown, in `<root>.md` and `<root>/<child>.md`.

A page's size comes from the index; its text is rendered on read. A root has a directory only if it has
descendants. If a root's id ends in `.md`, the name of its directory ends in `.d`, to keep all names unique.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fusefs.views.base import Item, View, VirtualDir, VirtualFile
from fusefs.views.page_cache import CACHE_BYTES, PageCache
from store import Location, Store, layout
from store.search.transcripts import TranscriptInfo

SUFFIX = ".md"

_ENDS_LIKE_A_PAGE = re.compile(r"\.md(\.d)*\Z")


class TranscriptsView(View):
    def __init__(self, store: Store, cache_bytes: int = CACHE_BYTES) -> None:
        self._transcripts = store.transcripts
        self._newest = store.browser.find_newest
        self._cache = PageCache(cache_bytes)

    def find(self, path: str) -> Item | None:
        if not path:
            return VirtualDir(_time(self._newest()))
        folder, slash, name = path.rpartition("/")
        if slash:
            root = _root_of(folder)
            return self._page(root, name) if root is not None else None
        if name.endswith(SUFFIX):
            return self._page(None, name)
        root = _root_of(name)
        newest = self._transcripts.find_newest_child(root) if root is not None else None
        return VirtualDir(_time(newest)) if newest is not None else None

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        if not path:
            for parent, newest in self._transcripts.iter_parents():
                yield _folder_of(parent), VirtualDir(_time(newest))
        root = _root_of(path)
        for info in self._transcripts.iter_roots() if not path else self._transcripts.iter_children(root or ""):
            if _is_nameable(info.location):
                yield f"{info.location.id}{SUFFIX}", self._as_page(info)

    def forget(self) -> None:
        self._cache.clear()

    def _page(self, root: str | None, name: str) -> VirtualFile | None:
        session_id = name.removesuffix(SUFFIX)
        if not name.endswith(SUFFIX) or not layout.is_session_id(session_id):
            return None
        info = self._transcripts.find(Location(session_id) if root is None else Location(root, session_id))
        return self._as_page(info) if info is not None else None

    def _as_page(self, info: TranscriptInfo) -> VirtualFile:
        page = _Page(self, info)
        return VirtualFile(info.size_bytes, _time(info.mtime_ns), info.digest, page, source=info.location.dir)

    def render(self, info: TranscriptInfo) -> bytes:
        return self._cache.rendered((info.location, info.digest), lambda: self._transcripts.render(info))


@dataclass(frozen=True, slots=True)
class _Page:
    """Renders a transcript. Compared by value, so that a node keeps its item while a listing finds an equal one.

    Otherwise each listing of 20,000 transcripts would replace as many items, which cost some 30 MB.
    """

    view: TranscriptsView
    info: TranscriptInfo

    def __call__(self) -> bytes:
        return self.view.render(self.info)


def _folder_of(root: str) -> str:
    return f"{root}.d" if _ENDS_LIKE_A_PAGE.search(root) else root


def _root_of(folder: str) -> str | None:
    """The root whose directory has a name; None if no root's directory can have it."""
    root = folder.removesuffix(".d") if _ENDS_LIKE_A_PAGE.search(folder) else folder
    return root if layout.is_session_id(root) and _folder_of(root) == folder else None


def _is_nameable(location: Location) -> bool:
    """False if the id leaves no room for the suffix; such a session is only in sessions/."""
    return len(location.id.encode()) + len(SUFFIX) <= layout.MAX_NAME_BYTES


def _time(ns: int | None) -> int:
    return max(ns or 0, 0)
