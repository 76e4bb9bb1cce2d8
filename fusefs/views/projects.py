"""views/projects/<id>/: sessions by project, with `none/` for sessions without one. The only writable view.

`mv` of a link from one project to another assigns the session to that project, in its documents and in the index.
"""

from __future__ import annotations

from fusefs.views.session_links import GroupedView
from store import Generated, NotFound, Store
from store.documents import display_names
from store.search.browse import SessionFilter


class ProjectsView(GroupedView):
    name = "projects"
    column = "project"
    is_writable = True

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._store = store

    def keeps(self, where: SessionFilter) -> bool:
        """`none/` always exists, as the target of a move out of all projects."""
        return True

    def move(self, source: str, target: str) -> None:
        """Assign a session to another project. The link keeps its name, which is the session's title."""
        (before, _, name), (after, _, new_name) = source.partition("/"), target.partition("/")
        if not name or name != new_name:
            raise Generated(f"{target}: a link can only be moved to another project, under the same name")
        where = self.filter_of(before)
        link = self.browser.find(where, name) if where is not None else None
        if link is None or self.filter_of(after) is None:
            raise NotFound(f"{source if link is None else after} does not exist")
        project = None if after == display_names.NONE else self.value_of(after)
        if not self._store.move_to_project(str(link.location), project):
            raise NotFound(f"session {link.location} was deleted")
