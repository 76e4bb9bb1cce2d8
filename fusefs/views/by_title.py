"""views/by-title/: every session under a name that a person recognises."""

from __future__ import annotations

from fusefs.views.session_links import FlatView
from store.search.browse import ALL


class ByTitle(FlatView):
    name = "by-title"
    shelf = ALL
