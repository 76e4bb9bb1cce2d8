"""views/pinned/: the sessions that are protected from deletion."""

from __future__ import annotations

from fusefs.views.session_links import FlatView
from store.search.browse import PINNED


class Pinned(FlatView):
    name = "pinned"
    shelf = PINNED
