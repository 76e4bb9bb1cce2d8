"""views/children-of/<id>/: the sessions that a session has spawned itself, at whatever depth it lies."""

from __future__ import annotations

from fusefs.views.session_links import GroupedView


class ChildrenOf(GroupedView):
    name = "children-of"
    column = "parent"
    has_none = False
