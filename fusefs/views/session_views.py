"""views/: directories of links into sessions/, each grouping the sessions in another way."""

from __future__ import annotations

from collections.abc import Iterator

from fusefs.views.base import Item, View, VirtualDir
from fusefs.views.by_date import ByDate
from fusefs.views.projects import ProjectsView
from fusefs.views.session_links import ByModel, ByStatus, ByTitle, ChildrenOf, Links, Pinned
from store import Generated, Store


class ViewsOfSessions(View):
    def __init__(self, store: Store) -> None:
        self._newest = store.browser.find_newest
        kinds: list[type[Links]] = [ByTitle, ByDate, ByStatus, ByModel, Pinned, ChildrenOf, ProjectsView]
        self._views = {kind.name: kind(store) for kind in kinds}

    def find(self, path: str) -> Item | None:
        if not path:
            return VirtualDir(max(self._newest() or 0, 0))
        name, _, rest = path.partition("/")
        view = self._views.get(name)
        return view.find(rest) if view is not None else None

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        name, _, rest = path.partition("/")
        if name:
            view = self._views.get(name)
            yield from view.iter_items(rest) if view is not None else ()
            return
        for name, view in self._views.items():
            item = view.find("")
            assert item is not None  # the top directory of a view always exists
            yield name, item

    def is_always_shown(self, path: str) -> bool:
        return "/" not in path

    def move(self, source: str, target: str) -> None:
        (view, _, rest), (other, _, new_rest) = source.partition("/"), target.partition("/")
        if view != other or view not in self._views:
            raise Generated(f"{source} is a generated view and cannot be changed")
        self._views[view].move(rest, new_rest)
