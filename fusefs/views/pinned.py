"""views/pinned/: the sessions that are protected from deletion."""

from __future__ import annotations

from fusefs.views.shelf import OneShelf
from store.shelves import PINNED


class Pinned(OneShelf):
    name = "pinned"
    shelf = PINNED
