"""views/by-model/<model>/: sessions by the model they talk to."""

from __future__ import annotations

from fusefs.views.session_links import GroupedView


class ByModel(GroupedView):
    name = "by-model"
    column = "model"
