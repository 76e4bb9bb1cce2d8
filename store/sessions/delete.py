"""Taking away: delete, clear, clean up, and having it back.

Nothing is erased at once: what goes is moved to the trash in one commit, together with its rows.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from store import layout
from store.commit.core import Core
from store.commit.journal import Commit
from store.commit.to_trash import to_trash
from store.disk import trash
from store.disk.rejects import Rejects
from store.disk.trash import TrashSlot
from store.errors import AlreadyExists, Busy, Corrupt, NotFound, Protected
from store.layout import Location
from store.model.index_entry import IndexEntry
from store.path_kinds import classify_path
from store.sessions import prune_plan
from store.sessions.prune_plan import CleanupMode, CleanupResult, Plan

log = logging.getLogger("grovefs.store")


@dataclass(frozen=True)
class DeleteOperations:
    core: Core

    # -- delete ------------------------------------------------------------------------------------------

    def delete(self, session_id: str, *, force: bool = False) -> bool:
        """A session with all its descendants; Protected if one of them is pinned, unless forced."""
        self.core.check_writable()
        location = self.core.locate(session_id)
        if location is None:
            return False
        with self.core.locked_tree(location.root):
            return self._delete(location, force=force)

    def _delete(self, location: Location, *, force: bool) -> bool:
        if self.core.disk.stat(location.dir) is None:
            return False
        going = self._with_descendants(location)
        if not force:
            self._refuse_pinned(location, going)
        # A root's directory contains its descendants; those of a child are its siblings on disk.
        moved = [location] if location.child is None else going
        self._run(location, moved, going)
        return True

    def delete_one(self, location: Location) -> None:
        """Only the session that is named; what descends from it stays, and `check` will find it."""
        self.core.check_writable()
        with self.core.locked_tree(location.root):
            self._refuse_pinned(location, [location])
            self._run(location, [location], [location])

    def _with_descendants(self, location: Location) -> list[Location]:
        for known in {
            *self.core.index.tree(location.root),
            *self._children_in(location.root, Location(location.root).dir),
        }:
            self.core.refresh(known)  # an edit behind our back may have pinned one, or made a new one
        entries = {loc: row.entry for loc in self.core.index.tree(location.root) if (row := self.core.index.find(loc))}
        below = prune_plan.descendants(location, entries)
        if location.child is None:  # those that cannot be read go too
            below = [other for other in self.core.index.tree(location.root) if other != location]
        return [location, *below]

    def _children_in(self, root: str, directory: str) -> list[Location]:
        """The descendants of a root, whose directory may lie in the trash."""
        try:
            found = self.core.disk.directories(f"{directory}/{layout.CHILDREN}")
        except Corrupt:  # a link of that name leads to nobody's children
            return []
        return layout.children_among(root, found)

    def _refuse_pinned(self, location: Location, going: Sequence[Location]) -> None:
        pinned = [p for p in self.core.index.pinned_in(location.root) if p in going]
        if not pinned:
            return
        which = "it is pinned" if pinned[0] == location else f"{pinned[0]}, which would go with it, is pinned"
        raise Protected(f"{location} was not deleted: {which}. Unpin it, or force the deletion")

    def _run(self, location: Location, moved: Sequence[Location], going: Sequence[Location]) -> None:
        def finish(db: Any) -> None:
            for gone in going:
                self.core.index.forget(db, gone)
            self.core.feed.add(db, going, "deleted")

        row = self.core.index.find(location)
        title = row.entry.title if row else None
        part = to_trash(location, "deleted", moved=[gone.dir for gone in moved], title=title, numbered=True)
        commit = Commit(location, part.files, part.moves, part.dirs, touched=going, whole_tree=True)
        self.core.journal.run(commit, finish)
        for gone in going:
            Rejects(self.core.disk).clear_all(gone)
        self.core.on_commit()

    # -- undelete ------------------------------------------------------------------------------------------

    def undelete(self, name: str) -> list[Location]:
        """Put back what a slot of the trash holds; refused where something lies in its place by now."""
        self.core.check_writable()
        slot = next((d for d in trash.deleted(self.core.disk) if d.name == name), None)
        if slot is None:
            raise NotFound(f"there is nothing named {name!r} in the trash")
        restored = self._contents(slot)
        if not restored:
            raise NotFound(f"{name!r} in the trash belongs to no session")
        with self.core.locked_tree(restored[0].root):
            self._put_back(slot, restored)
        return restored

    def _put_back(self, slot: TrashSlot, restored: list[Location]) -> None:
        displaced: list[str] = []
        for original, _ in slot.moves:
            self._require_parent_session(original)
            info = self.core.disk.stat(original)
            if info is not None and stat.S_ISREG(info.st_mode):
                displaced.append(original)
            elif info is not None and not self._has_no_files(original):
                raise AlreadyExists(f"{original} exists again; move it away first")
            elif info is not None:
                self.core.disk.remove_tree(original)
        back = [(kept, original) for original, kept in slot.moves if self.core.disk.stat(kept) is not None]
        part = to_trash(restored[0], "displaced", moved=displaced, numbered=True)
        dirs = list(dict.fromkeys([*(original.rpartition("/")[0] for original, _ in slot.moves), *part.dirs]))
        commit = Commit(restored[0], part.files, [*part.moves, *back], dirs, touched=restored, whole_tree=True)

        def finish(db: Any) -> None:
            for location in restored:
                self.core.reread(location)

        self.core.journal.run(commit, finish)
        try:
            self.core.disk.remove_tree(f"{layout.TRASH}/{slot.name}")
        except OSError as error:  # everything is back; an empty slot goes when its days are over
            log.info("an emptied slot stays in the trash: %s", error)

    def _has_no_files(self, path: str) -> bool:
        """A directory in which there is nothing but directories: what was left behind, not what was made."""
        try:
            entries = self.core.disk.entries(path)
        except Corrupt:  # no directory at all
            return False
        return all(entry.is_dir and self._has_no_files(f"{path}/{entry.name}") for entry in entries)

    def _require_parent_session(self, original: str) -> None:
        """What belongs into a session's directory cannot come back before that session."""
        place = layout.locate_path(original)
        if place is None:
            return
        above = place[0] if place[1] else Location(place[0].root)
        is_itself = not place[1] and place[0].child is None
        in_trash = any(d.session_id == str(above) and d.what == "deleted" for d in trash.deleted(self.core.disk))
        if not is_itself and in_trash and self.core.disk.stat(above.path(layout.SESSION)) is None:
            raise NotFound(f"session {above}, to which {original} belongs, is gone; have that back first")

    def _contents(self, slot: TrashSlot) -> list[Location]:
        """The sessions in a slot: those that were named, and the descendants in a root's directory."""
        found: list[Location] = []
        for original, kept in slot.moves:
            place = layout.locate_path(original)
            if place is None:  # of another part of the home
                other = classify_path(original).location
                found += [other] if other is not None else []
                continue
            found.append(place[0])
            if not place[1] and place[0].child is None:
                found += self._children_in(place[0].root, kept)
        return list(dict.fromkeys(found))

    def empty_trash(self) -> int:
        """Erase all slots, each alone with whom it belongs to: nobody is just having it back."""
        self.core.check_writable()
        slots = trash.deleted(self.core.disk)
        for slot in slots:
            self._purge_slot(slot.name)
        return len(slots)

    def purge(self, names: Iterable[str]) -> None:
        """Erase slots; one with which somebody is at work, another time."""
        for name in names:
            with suppress(Busy):
                self._purge_slot(name, timeout_s=0)

    def _purge_slot(self, name: str, timeout_s: float | None = None) -> None:
        slot = trash.find(self.core.disk, name)
        owners = self._contents(slot) if slot is not None else []
        with self.core.locked_tree(owners[0].root, timeout_s=timeout_s) if owners else nullcontext():
            self.core.disk.remove_tree(f"{layout.TRASH}/{name}")

    # -- cleanup -----------------------------------------------------------------------------------------------

    def plan_cleanup(self, mode: CleanupMode, *, keep_pinned: bool) -> Plan:
        return prune_plan.plan_cleanup(self.core.index.all_entries(), mode, keep_pinned=keep_pinned)

    def apply(self, plan: Plan, progress: Callable[[int, int], None] | None = None) -> CleanupResult:
        """Carry out a plan; what has become pinned, or is no longer empty, since it was made is spared."""
        self.core.check_writable()
        gone: set[Location] = set()
        doomed = set(plan.to_delete)
        for done, location in enumerate(sorted(plan.to_delete, key=lambda loc: (loc.root, loc.child or ""))):
            if location not in gone:
                gone.update(self._apply_one(location, plan, doomed))
            if progress is not None:
                progress(done + 1, len(plan.to_delete))
        return CleanupResult(len(gone), sorted(location.id for location in gone))

    def _apply_one(self, location: Location, plan: Plan, doomed: set[Location]) -> list[Location]:
        def is_agreed(known: dict[Location, IndexEntry], going: list[Location]) -> bool:
            still = prune_plan.plan_cleanup(known.items(), plan.mode, keep_pinned=plan.keep_pinned)
            # What was not in the plan when a person agreed to it is not deleted by it either.
            return all(loc in doomed and loc in still.to_delete for loc in going)

        return self.delete_if(location, is_agreed)

    def delete_if(
        self, location: Location, is_agreed: Callable[[dict[Location, IndexEntry], list[Location]], bool]
    ) -> list[Location]:
        """Delete a session if that is still wanted, seen alone with its tree: its entries, and which would go."""
        with self.core.locked_tree(location.root):
            going = self._with_descendants(location)
            tree = self.core.index.tree(location.root)
            known = {loc: row.entry for loc in tree if (row := self.core.index.find(loc))}
            if not is_agreed(known, going):
                return []
            return going if self._delete(location, force=True) else []
