"""views/by-status/<status>/: sessions by how their last run ended; `none/` for those that never ran."""

from __future__ import annotations

from fusefs.views.session_links import GroupedView


class ByStatus(GroupedView):
    name = "by-status"
    column = "status"
