"""Rename a session: `mv sessions/a sessions/b` gives it another id.

Ids in the documents match the path (rule 9). One commit moves the directory, rewrites the ids in
its documents, and updates the references in the documents of related sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from store import layout
from store.commit.commit import Commit, IndexRefresh
from store.commit.core import Core
from store.disk.file import NewFile
from store.disk.rejects import Rejects
from store.documents import json_text
from store.documents.document import Members, parse_document, with_identity
from store.documents.json_splice import splice
from store.errors import AlreadyExists, InvalidContent, InvalidName, NotEmpty, NotFound
from store.layout import Location


@dataclass(frozen=True)
class RenameOperation:
    core: Core

    def move(self, source: Location, target: Location) -> None:
        """Move a session, with its files and children, to another id."""
        self.core.check_writable()
        layout.check_new(target)
        with self.lock_both_trees(source, target):
            self._check_allowed(source, target)
            # Remove an empty target first: recovery takes an existing target for a completed move.
            self.core.disk.remove_dirs([target.dir])
            if target.child is not None:  # the empty children/ of a root; a child has none
                self.core.disk.remove_dirs([source.path(layout.CHILDREN)])
            changes = dict(self._changes(source, target))
            files = [file for location, members in changes.items() for file in self._rewritten(location, members)]
            files += self._receipts(source, target)
            self._run(source, target, files, list(changes))

    @contextmanager
    def lock_both_trees(self, source: Location, target: Location) -> Iterator[None]:
        """Hold the locks of both trees."""
        with ExitStack() as stack:
            for root in sorted({source.root, target.root}):  # a fixed order prevents deadlocks
                stack.enter_context(self.core.locked_tree(root))
            yield

    def _check_allowed(self, source: Location, target: Location) -> None:
        if source == Location(target.root) and target.child is not None:
            raise InvalidName(f"{source} cannot become its own child")
        if self.core.disk.stat(source.dir) is None:
            raise NotFound(f"{source.dir} does not exist")
        if self.core.disk.entries(target.dir):
            raise AlreadyExists(f"{target.dir} exists and is not empty")
        below = source.path(layout.CHILDREN) if source.child is None and target.child is not None else None
        # Foreign directories count too: a child has no children/.
        if below is not None and self.core.disk.directories(below):
            raise NotEmpty(f"{source} has children, so it cannot become a child itself")
        if target.child is not None and self.core.disk.stat(Location(target.root).dir) is None:
            raise NotFound(f"there is no session {target.root!r} to be the parent")

    def _children(self, root: Location) -> list[Location]:
        return layout.children_among(root.root, self.core.disk.directories(root.path(layout.CHILDREN)))

    # -- changes to documents ----------------------------------------------------------------------

    def _changes(self, source: Location, target: Location) -> Iterator[tuple[Location, Members]]:
        """Every session whose documents change, with the members to set (None: to remove)."""
        own: Members = {"id": target.id, "kind": target.kind, "root_session_id": target.root}
        if target.child is None:
            own |= {"parent_session_id": None, "spawn_depth": 0}
        elif source.child is None or source.root != target.root:
            own |= {"parent_session_id": target.root, "spawn_depth": 1}
        yield source, own
        if source.child is None:
            for child in self._children(source):
                members: Members = {"root_session_id": target.root}
                if self._parent(child) == source.id:
                    members["parent_session_id"] = target.root
                yield child, members
            return
        for other in self._children(Location(source.root)):
            if other != source and self._parent(other) == source.id:
                if target.child is not None and target.root == source.root:
                    yield other, {"parent_session_id": target.id}
                else:  # it stays in the old tree, whose root becomes its parent
                    yield other, {"parent_session_id": source.root, "spawn_depth": 1}

    def _parent(self, location: Location) -> str | None:
        self.core.refresh(location)  # it may have been added or edited directly on disk
        row = self.core.index.find(location)
        return row.entry.parent_session_id if row else None

    # -- documents ---------------------------------------------------------------------------------

    def _rewritten(self, location: Location, members: Members) -> Iterator[NewFile]:
        for name in (layout.RUNTIME, layout.SESSION):
            path = location.path(name)
            file = self.core.disk.read(path, self.core.limit_bytes)
            if file is None:
                continue
            try:
                document = parse_document(file.data, path)
            except InvalidContent:
                continue  # an invalid document is moved unchanged; `check` reports it
            raw = with_identity(document, members)
            if raw != file.data:
                yield NewFile(path, [raw], file, file.stamp.mtime_ns)

    def _receipts(self, source: Location, target: Location) -> Iterator[NewFile]:
        """The receipts of imported sessions, with their new names: otherwise they would count as copies."""
        children = self._children(source) if source.child is None else []
        moved = {source: target, **{child: Location(target.root, child.child) for child in children}}
        for old, new in moved.items():
            path = old.path(layout.RECEIPT)
            file = self.core.disk.read(path, self.core.limit_bytes)
            try:
                data = json_text.parse(file.data, path) if file else {}
            except InvalidContent:
                continue  # it counts as none
            if file is not None and data.get("session") == str(old):
                raw = splice(file.data, data, {**data, "session": str(new)})
                yield NewFile(path, [raw], file, file.stamp.mtime_ns)

    def _run(self, source: Location, target: Location, files: list[NewFile], changed: list[Location]) -> None:
        inside = [loc for loc in changed if loc == source or (source.child is None and loc.root == source.root)]
        gone = [*inside, *(loc for loc in self.core.index.locations_in_tree(source.root) if source.child is None)]
        moved = [Location(target.root, loc.child if loc != source else target.child) for loc in inside]
        relatives = [loc for loc in changed if loc not in inside]
        touched = list(dict.fromkeys([*gone, *moved, *relatives]))

        dirs = [target.dir.rpartition("/")[0]]
        moves = [(source.dir, target.dir)]
        commit = Commit(source, files, moves, dirs=dirs, touched=touched, whole_tree=True, label="moved")
        self.core.journal.run(commit, IndexRefresh([*moved, *relatives], "moved", gone))
        Rejects(self.core.disk).rename(source, target)
        self.core.on_commit()
