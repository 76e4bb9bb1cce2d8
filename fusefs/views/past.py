"""at/<time>/: the documents of all sessions at a moment, by the names they had then.

A moment exists when it is named; `at/` lists nothing. Times are written as for `grovefs show ID@T`.
One that is relative, such as 2h, stays the same moment while it is used. Everything is read-only.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from fusefs.views.base import Item, View, VirtualDir, VirtualFile
from fusefs.views.page_cache import PageCache
from store import InvalidName, PastDir, PastFile, PastTree, Store
from store.undo.versions_spec import parse_moment

MAX_TREES = 2  # rsync --link-dest over two snapshots uses both
MAX_MOMENTS = 256  # names of moments that are remembered
UNUSED_S = 60.0  # a tree or a relative time is forgotten so long after its last use
# A change made outside the store is recorded later, with the time of its file; an old moment is
# looked at again after so long, a young one sooner.
SETTLED_S = 60.0
FRESH_S = 1.0


class _Moment(NamedTuple):
    at_ns: int
    used_s: float


class _CachedTree(NamedTuple):
    tree: PastTree
    made_s: float


class PastView(View):
    is_listed = False

    def __init__(self, store: Store, cache: PageCache) -> None:
        self._store = store
        self._cache = cache
        self._moments: OrderedDict[str, _Moment] = OrderedDict()  # by name, least recently used first
        self._trees: OrderedDict[int, _CachedTree] = OrderedDict()  # by moment, least recently used first
        self._lock = threading.Lock()

    def find(self, path: str) -> Item | None:
        if not path:
            return VirtualDir(0, is_fixed=True)
        name, _, rest = path.partition("/")
        at_ns = self._moment(name)
        if at_ns is None:
            return None
        tree = self._tree(at_ns)
        entry = tree.find(rest)
        return self._item(tree, entry) if entry is not None else None

    def is_slow(self, path: str) -> bool:
        """Making the tree of a moment reads a row for every session."""
        with self._lock:
            known = self._moments.get(path.partition("/")[0])
            return bool(path) and (known is None or known.at_ns not in self._trees)

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        name, _, rest = path.partition("/")
        at_ns = self._moment(name) if name else None
        if at_ns is None:
            return
        tree = self._tree(at_ns)
        for entry_name, entry in tree.iter_entries(rest):
            yield entry_name, self._item(tree, entry)

    def forget(self) -> None:
        self._cache.clear()
        with self._lock:
            self._trees.clear()

    def _item(self, tree: PastTree, entry: PastDir | PastFile) -> Item:
        if isinstance(entry, PastDir):
            return VirtualDir(entry.mtime_ns, mode=entry.mode, owner=entry.owner)
        file = entry
        if file.version is None:  # a live file that was the same then; it may be large
            return VirtualFile(
                file.size,
                file.mtime_ns,
                file.identity,
                lambda: tree.read(file),
                mode=file.mode,
                owner=file.owner,
                source=file.live_path,
                open=lambda: tree.open(file),
            )
        key = (file.version.key, file.is_side)
        return VirtualFile(
            file.size,
            file.mtime_ns,
            file.identity,
            lambda: self._cache.rendered(key, lambda: tree.read(file)),
            mode=file.mode,
            owner=file.owner,
            source=file.live_path,
        )

    # -- moments and trees -----------------------------------------------------------------------------

    def _moment(self, name: str) -> int | None:
        """The moment of a name; None if it is not a time, or nothing of it is kept."""
        now_s = time.monotonic()
        with self._lock:
            known = self._moments.pop(name, None)
            if known is None or now_s - known.used_s > UNUSED_S:
                at_ns = _parsed(name)
                if at_ns is None:
                    return None
                known = _Moment(at_ns, now_s)
            self._moments[name] = known._replace(used_s=now_s)
            while len(self._moments) > MAX_MOMENTS:
                self._moments.popitem(last=False)
        return known.at_ns if self._store.history.is_kept(known.at_ns) else None

    def _tree(self, at_ns: int) -> PastTree:
        now_s = time.monotonic()
        with self._lock:
            cached = self._trees.pop(at_ns, None)
            if cached is not None and now_s - cached.made_s < _lifetime_s(cached):
                self._trees[at_ns] = cached
                return cached.tree
        made = _CachedTree(self._store.history.tree_at(at_ns), now_s)
        with self._lock:
            self._trees[at_ns] = made
            while len(self._trees) > MAX_TREES:
                self._trees.popitem(last=False)
        return made.tree


def _parsed(name: str) -> int | None:
    """The moment of a name. A second that is not over yet is the part of it that is."""
    now_ns = time.time_ns()
    try:
        moment = parse_moment(name, now_ns)
    except InvalidName:
        return None
    return min(moment.end_ns, now_ns) if moment.start_ns <= now_ns else None


def _lifetime_s(cached: _CachedTree) -> float:
    age_s = (time.time_ns() - cached.tree.at_ns) / 1e9
    return SETTLED_S if age_s > SETTLED_S else FRESH_S
