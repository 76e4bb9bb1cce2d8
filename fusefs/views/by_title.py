"""views/by-title/: every session under a name that a person recognises."""

from __future__ import annotations

from fusefs.views.shelf import OneShelf
from store.shelves import ALL


class ByTitle(OneShelf):
    name = "by-title"
    shelf = ALL
