"""The user for whom a view is being rendered, on a mount that is shared with --allow-other.

The tree sets the reader around every call of a view and hides items of sessions that the reader may
not see. A view whose content comes from several sessions asks `may_see` for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fusefs.views.base import Item, View, VirtualDir, VirtualLink
from store import Store
from store.namespace.reader import Reader

_READER: ContextVar[Reader | None] = ContextVar("reader", default=None)


@contextmanager
def shown_to(reader: Reader | None) -> Iterator[None]:
    """Render for this reader; None is the owner of the home and sees everything."""
    token = _READER.set(reader)
    try:
        yield
    finally:
        _READER.reset(token)


def current_reader() -> Reader | None:
    return _READER.get()


def may_see(store: Store, path: str) -> bool:
    """Whether the reader may see what a file, or the session.json of a session's directory, contains."""
    reader = _READER.get()
    return reader is None or store.names.may_read(reader, path)


def is_visible(store: Store, view: View, path: str, item: Item) -> bool:
    """Whether a view shows an item to the reader. A directory needs a visible item in it."""
    if _READER.get() is None:
        return True
    if isinstance(item, VirtualDir):
        return view.is_always_shown(path) or _has_visible(store, view, path)
    if isinstance(item, VirtualLink):
        return item.is_public or may_see(store, _linked(item.target))
    return item.source is None or may_see(store, item.source)


def _has_visible(store: Store, view: View, path: str) -> bool:
    items = ((f"{path}/{name}", item) for name, item in view.iter_items(path))
    return any(is_visible(store, view, below, item) for below, item in items)


def _linked(target: str) -> str:
    """The path in the home to which a relative link leads."""
    while target.startswith("../"):
        target = target[3:]
    return target
