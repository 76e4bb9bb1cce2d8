"""views/projects/<id>/: sessions by project, `none/` for those of none. The one view that can be changed:

`mv` of a link from one project to another files the session there, in its documents and in the index.
"""

from __future__ import annotations

from fusefs.views.session_links import GroupedView
from store import Generated, NotFound, Store
from store.documents import display_names
from store.search.browse import SessionFilter


class ProjectsView(GroupedView):
    name = "projects"
    column = "project"
    is_open = True

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._store = store

    def keeps(self, shelf: SessionFilter) -> bool:
        """`none/` always, for one must be able to move something there."""
        return True

    def move(self, source: str, target: str) -> None:
        """Only from project to project, under the same name: the name is the session's title."""
        (before, _, name), (after, _, new_name) = source.partition("/"), target.partition("/")
        if not name or name != new_name:
            raise Generated(f"{target}: only links move here, from project to project, and keep their names")
        shelf = self.filter_of(before)
        card = self.shelves.find(shelf, name) if shelf is not None else None
        if card is None or self.filter_of(after) is None:
            raise NotFound(f"{source if card is None else after} does not exist")
        project = None if after == display_names.NONE else self.value_of(after)
        if not self._store.move_to_project(str(card.location), project):
            raise NotFound(f"session {card.location} is gone")
