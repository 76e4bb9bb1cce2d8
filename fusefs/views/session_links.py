"""Views made of links to sessions: one flat directory, or one directory for each value of a column."""

from __future__ import annotations

from collections.abc import Iterator

from fusefs.views.base import Item, View, VirtualDir, VirtualLink
from store import Store
from store.documents import display_names
from store.search.browse import ALL, PINNED, Column, SessionBrowser, SessionFilter, SessionLink, with_value


class Links(View):
    """Base class of the directories in views/."""

    name: str  # of the directory in views/
    is_writable: bool = False  # whether links may be moved between its directories

    def __init__(self, store: Store) -> None:
        self.browser: SessionBrowser = store.browser

    def folder(self, newest_ns: int | None = None, *, is_writable: bool = False) -> VirtualDir:
        """A directory. Its default mtime is the last change of any session: any change may add or remove links."""
        newest = self.browser.find_newest() if newest_ns is None else newest_ns
        return VirtualDir(max(newest or 0, 0), is_writable)

    def link(self, where: SessionFilter, name: str, depth: int) -> VirtualLink | None:
        found = self.browser.find(where, name)
        return as_link(found, depth) if found is not None else None

    def links(self, where: SessionFilter, depth: int) -> Iterator[tuple[str, Item]]:
        return ((found.name, as_link(found, depth)) for found in self.browser.links(where))


def as_link(session: SessionLink, depth: int) -> VirtualLink:
    """`depth`: the number of directories between the top of the mount and the link."""
    return VirtualLink("../" * depth + session.location.dir, max(session.mtime_ns, 0))


# -- one directory of links -----------------------------------------------------------------------


class FlatView(Links):
    """views/<name>/<session>."""

    where: SessionFilter

    def find(self, path: str) -> Item | None:
        return self.link(self.where, path, 2) if path else self.folder()

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        return self.links(self.where, 2)


class ByTitle(FlatView):
    """views/by-title/: all sessions, under names made from their titles."""

    name = "by-title"
    where = ALL


class Pinned(FlatView):
    """views/pinned/: the sessions protected from deletion."""

    name = "pinned"
    where = PINNED


# -- a directory for each value of a column ---------------------------------------------------------


class GroupedView(Links):
    """views/<name>/<value>/<session>. A directory exists only while a session has its value."""

    column: Column
    has_none: bool = True  # whether sessions without a value are listed, in `none/`

    def find(self, path: str) -> Item | None:
        if not path:
            return self.folder()
        label, slash, name = path.partition("/")
        where = self.filter_of(label)
        if where is None:
            return None
        return self.link(where, name, 3) if slash else self.folder(is_writable=self.is_writable)

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        if path:
            where = self.filter_of(path)
            yield from self.links(where, 3) if where is not None else ()
            return
        folder = self.folder(is_writable=self.is_writable)
        yield from ((display_names.label(value), folder) for value in self.browser.values(self.column))
        if self.filter_of(display_names.NONE) is not None:
            yield display_names.NONE, folder

    def filter_of(self, label: str) -> SessionFilter | None:
        """The sessions listed in a directory; None if the directory does not exist."""
        if label == display_names.NONE:
            where = with_value(self.column, None)
            return where if self.has_none and self.keeps(where) else None
        value = self.value_of(label)
        return with_value(self.column, value) if value is not None else None

    def keeps(self, where: SessionFilter) -> bool:
        """Whether `none/` exists; by default not if it would be empty."""
        return not self.browser.is_empty(where)

    def value_of(self, label: str) -> str | None:
        """The column value of a directory name; None if no session has it."""
        if display_names.label(label) == label:  # most values are their own label
            return label if not self.browser.is_empty(with_value(self.column, label)) else None
        if display_names.split_suffix(label) is None:
            return None
        return next((value for value in self.browser.values(self.column) if display_names.label(value) == label), None)


class ByModel(GroupedView):
    """views/by-model/<model>/."""

    name = "by-model"
    column = "model"


class ByStatus(GroupedView):
    """views/by-status/<status>/: sessions by the result of their last run; `none/` if they never ran."""

    name = "by-status"
    column = "status"


class ChildrenOf(GroupedView):
    """views/children-of/<id>/: the direct children of a session, which may be a child itself."""

    name = "children-of"
    column = "parent"
    has_none = False
