"""views/pinned/: the sessions that are protected from deletion."""

from __future__ import annotations

from fusefs.views.session_links import OneShelf
from store.search.browse import PINNED


class Pinned(OneShelf):
    name = "pinned"
    shelf = PINNED
