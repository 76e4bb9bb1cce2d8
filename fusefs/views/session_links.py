"""What the directories of views/ have in common: links to sessions, in one directory or in one for each value."""

from __future__ import annotations

from collections.abc import Iterator

from fusefs.views.base import Item, View, VirtualDir, VirtualLink
from store import Store
from store.documents import display_names
from store.search.browse import Column, SessionBrowser, SessionFilter, SessionLink, with_value


class Links(View):
    """Anything that is made of links to sessions."""

    name: str  # of the directory in views/
    is_open: bool = False  # whether links may be moved from one directory in it to another

    def __init__(self, store: Store) -> None:
        self.shelves: SessionBrowser = store.browser

    def folder(self, newest_ns: int | None = None, *, is_open: bool = False) -> VirtualDir:
        """By default as old as the last change of any session: with it, what a view holds may have changed."""
        newest = self.shelves.find_newest() if newest_ns is None else newest_ns
        return VirtualDir(max(newest or 0, 0), is_open)

    def link(self, shelf: SessionFilter, name: str, depth: int) -> VirtualLink | None:
        card = self.shelves.find(shelf, name)
        return as_link(card, depth) if card is not None else None

    def links(self, shelf: SessionFilter, depth: int) -> Iterator[tuple[str, Item]]:
        return ((card.name, as_link(card, depth)) for card in self.shelves.links(shelf))


def as_link(card: SessionLink, depth: int) -> VirtualLink:
    """`depth`: how many directories below the top of the mount the link itself lies."""
    return VirtualLink("../" * depth + card.location.dir, max(card.mtime_ns, 0))


class FlatView(Links):
    """A directory of links."""

    filter: SessionFilter

    def find(self, path: str) -> Item | None:
        return self.link(self.filter, path, 2) if path else self.folder()

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        return self.links(self.filter, 2)


class GroupedView(Links):
    """A directory for each value of a column, and in it the sessions that have it."""

    column: Column
    has_none: bool = True  # whether sessions without a value have a directory too

    def find(self, path: str) -> Item | None:
        if not path:
            return self.folder()
        label, slash, name = path.partition("/")
        shelf = self.filter_of(label)
        if shelf is None:
            return None
        return self.link(shelf, name, 3) if slash else self.folder(is_open=self.is_open)

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        if path:
            shelf = self.filter_of(path)
            yield from self.links(shelf, 3) if shelf is not None else ()
            return
        folder = self.folder(is_open=self.is_open)
        yield from ((display_names.label(value), folder) for value in self.shelves.values(self.column))
        if self.filter_of(display_names.NONE) is not None:
            yield display_names.NONE, folder

    def filter_of(self, label: str) -> SessionFilter | None:
        """What stands in a directory; None if there is no such directory."""
        if label == display_names.NONE:
            shelf = with_value(self.column, None)
            return shelf if self.has_none and self.keeps(shelf) else None
        value = self.value_of(label)
        return with_value(self.column, value) if value is not None else None

    def keeps(self, shelf: SessionFilter) -> bool:
        """Whether a directory is there: an empty one is not."""
        return not self.shelves.is_empty(shelf)

    def value_of(self, label: str) -> str | None:
        """The value that a directory stands for; None if no session has it."""
        if display_names.label(label) == label:  # it is its own label, as nearly all are
            return label if not self.shelves.is_empty(with_value(self.column, label)) else None
        if display_names.split_suffix(label) is None:
            return None
        return next((value for value in self.shelves.values(self.column) if display_names.label(value) == label), None)
