"""A model of a home in plain Python: directories, documents, files, and hidden names.

It knows nothing of the implementation: each operation states the promised result in a few lines. It changes the model
and returns the errno that the real operation must return, 0 for success.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from store.layout import ATTACHMENTS, CHILDREN, RUNTIME, SESSION, TOKEN_USAGE, Location
from tests.torture import model_parts
from tests.torture.model_parts import Dir, Doc, File, Hidden, Rejected


@dataclass
class Model:
    dirs: dict[Location, Dir] = field(default_factory=dict)
    hidden: dict[Location, Hidden] = field(default_factory=dict)  # hidden by the mount, present on disk
    number: int = 0

    def tick(self) -> int:
        self.number += 1
        return self.number

    # -- queries -----------------------------------------------------------------------------------------

    def record(self, location: Location) -> dict[str, Any] | None:
        """The session as the agent loads it; None if there is none."""
        found = self.dirs.get(location)
        if found is None or found.main is None:
            return None
        return {**(found.side or found.main).data, "messages": found.main.data["messages"]}

    def sessions(self) -> dict[Location, dict[str, Any]]:
        records = {location: self.record(location) for location in self.dirs}
        return {location: record for location, record in records.items() if record is not None}

    def children(self, root: Location) -> list[Location]:
        return [location for location in self.dirs if location.root == root.root and location.child is not None]

    def is_pinned(self, location: Location) -> bool:
        return bool((self.record(location) or {}).get("pinned"))

    def is_protected(self, location: Location) -> bool:
        """Whether a session is pinned, or is a root with a pinned descendant."""
        below = self.children(location) if location.child is None else []
        return any(map(self.is_pinned, [location, *below]))

    def is_shown(self, location: Location) -> bool:
        """Whether session.json is visible in the mount."""
        return location in self.dirs and self.dirs[location].main is not None and location not in self.hidden

    def has_place(self, location: Location) -> bool:
        """Whether a directory can be created there: its parent exists."""
        above = self.dirs.get(Location(location.root))
        return location.child is None or (above is not None and above.has_children)

    # -- documents -----------------------------------------------------------------------------------------

    def write(self, location: Location, raw: bytes, data: dict[str, Any] | None) -> int:
        """Close session.json after opening it by name, or rename a new file onto it.

        `data` is the meaning of the bytes, None if they are not a valid document.
        """
        place, hidden = self.dirs[location], self.hidden.get(location)
        if data is None:
            return self._refuse(location, SESSION, raw, errno.EBADMSG)
        if place.main is not None and place.main.raw == raw:
            self.hidden.pop(location, None)
            return 0
        if place.main is not None and not model_parts.is_same_session(data, place.main.data):
            return self._refuse(location, SESSION, raw, errno.EBADMSG)
        if hidden is not None and place.main is not None and place.main is not hidden.doc:
            return self._refuse(location, SESSION, raw, errno.ESTALE)  # removed before the newer version existed
        return self._commit(location, raw, data, was_deleted=hidden is not None and hidden.was_deleted)

    def _commit(self, location: Location, raw: bytes, data: dict[str, Any], *, was_deleted: bool) -> int:
        place = self.dirs[location]
        if place.main is None:
            place.main = self._placed(location, raw, data)
            return self._done(location, SESSION)
        is_older = data["updated_at"] < place.main.data["updated_at"]
        if is_older and not was_deleted:
            return self._refuse(location, SESSION, raw, errno.ESTALE)
        if place.side is None:
            place.side = Doc({**data, "messages": []}, None, self.tick())
        elif not is_older:
            self._carry(place, data)
        place.main = Doc(data, raw, self.tick())
        self._lay_out(location)
        return self._done(location, SESSION)

    def _carry(self, place: Dir, new: dict[str, Any]) -> None:
        """Apply the changes since the previously committed session.json to the sidecar; the rest of it stays."""
        assert place.main is not None
        assert place.side is not None
        old, carried = place.main.data, dict(place.side.data)
        for name in {*old, *new} - {"messages"}:
            if old.get(name) != new.get(name):
                carried[name] = new.get(name)
        if carried != place.side.data:
            place.side = Doc(carried, None, self.tick())

    def _placed(self, location: Location, raw: bytes, data: dict[str, Any]) -> Doc:
        """The document unchanged, or as a fork if its path differs from its identity."""
        if model_parts.is_at_home(data, location):
            return Doc(data, raw, self.tick())
        return Doc(model_parts.forked(data, location), None, self.tick())

    def write_side(self, location: Location, raw: bytes, data: dict[str, Any] | None) -> int:
        place = self.dirs[location]
        if data is None or data["messages"]:
            return self._refuse(location, RUNTIME, raw, errno.EBADMSG)
        if place.side is not None and place.side.raw == raw:
            return 0
        place.side = Doc(data, raw, self.tick()) if place.side is not None else self._placed(location, raw, data)
        return self._done(location, RUNTIME)

    def _refuse(self, location: Location, name: str, raw: bytes, error: int) -> int:
        """Restore the old version under its name and keep the rejected bytes."""
        self.dirs[location].rejected[name] = Rejected(raw)
        return self._shown(location, name, error)

    def _done(self, location: Location, name: str) -> int:
        self.dirs[location].rejected.pop(name, None)
        return self._shown(location, name, 0)

    def _shown(self, location: Location, name: str, answer: int) -> int:
        if name == SESSION:
            self.hidden.pop(location, None)
        return answer

    def rename_onto(self, location: Location, name: str, data: dict[str, Any] | None) -> int:
        """Rename a file next to it onto session.json."""
        place = self.dirs[location]
        file, hidden = place.files[name], self.hidden.get(location)
        is_news = hidden is None or place.main is not hidden.doc
        if place.main is not None and is_news and file.number < place.main.number:
            return self._refuse(location, SESSION, file.data, errno.ESTALE)
        answer = self._onto(location, file.data, data)
        if answer == 0:
            del place.files[name]
        return answer

    def _onto(self, location: Location, raw: bytes, data: dict[str, Any] | None) -> int:
        """Like `write`, but a file created after a version may replace it, even if that is hidden."""
        place, hidden = self.dirs[location], self.hidden.get(location)
        if hidden is not None and place.main is not None:
            hidden = replace(hidden, doc=place.main)
            self.hidden[location] = hidden
        return self.write(location, raw, data)

    # -- hidden names ---------------------------------------------------------------------------------------------

    def unlink(self, location: Location) -> int:
        if not self.is_shown(location):
            return errno.ENOENT
        if self.is_protected(location):
            return errno.EPERM
        return self._hide(location, was_deleted=True)

    def rename_away(self, location: Location, name: str) -> int:
        if not self.is_shown(location):
            return errno.ENOENT
        place = self.dirs[location]
        assert place.main is not None
        assert place.main.raw is not None
        place.files[name] = File(place.main.raw, self.tick())
        return self._hide(location, was_deleted=False)

    def _hide(self, location: Location, *, was_deleted: bool) -> int:
        main = self.dirs[location].main
        assert main is not None
        self.hidden[location] = Hidden(main, was_deleted)
        return 0

    def unlink_side(self, location: Location) -> int:
        place = self.dirs[location]
        if place.side is None:
            return errno.ENOENT
        if self.is_protected(location):
            return errno.EPERM
        place.side = None
        return 0

    def expire_hidden(self) -> None:
        """The mount ends: hidden documents that were not replaced are deleted."""
        for location, hidden in self.hidden.items():
            place = self.dirs.get(location)
            if place is not None and place.main is hidden.doc and not self.is_protected(location):
                place.main = None
        self.reveal_hidden()

    def reveal_hidden(self) -> None:
        """The daemon was killed: hidden documents are visible again."""
        self.hidden.clear()

    # -- directories -----------------------------------------------------------------------------------------

    def make_dir(self, location: Location) -> int:
        if not self.has_place(location):
            return errno.ENOENT
        if location in self.dirs:
            return errno.EEXIST
        self.dirs[location] = Dir()
        self._arrive(location)
        return 0

    def _arrive(self, location: Location) -> None:
        """A new directory: names hidden at the same path before do not apply to it."""
        for hidden in list(self.hidden):
            if hidden == location or (location.child is None and hidden.root == location.root):
                del self.hidden[hidden]

    def make_inner(self, location: Location, name: str) -> int:
        place = self.dirs[location]
        if name == CHILDREN:
            if location.child is not None:
                return errno.EPERM
            if place.has_children:
                return errno.EEXIST
            place.has_children = True
            return 0
        if place.attachments is not None:
            return errno.EEXIST
        place.attachments = {}
        return 0

    def remove_dir(self, location: Location) -> int:
        if location not in self.dirs:
            return errno.ENOENT
        place, hidden = self.dirs[location], self.hidden.get(location)
        if hidden is not None and place.main is not hidden.doc:
            self.hidden.pop(location)  # not the version that was hidden: it is not deleted with it
            hidden = None
        if place.has_more or (place.main is not None and hidden is None):
            return errno.ENOTEMPTY
        if self.is_protected(location):
            return errno.EPERM
        self._forget(location)
        return 0

    def _forget(self, location: Location) -> None:
        self.dirs.pop(location)
        self.hidden.pop(location, None)

    def remove_tree(self, location: Location) -> None:
        """`rm -r` of an unprotected directory."""
        for child in self.children(location) if location.child is None else []:
            self._forget(child)
        self._forget(location)

    def move(self, source: Location, target: Location) -> int:
        """`mv` of a session's directory: the sessions in it get a new identity."""
        error = self._cannot_move(source, target)
        if error or source == target:
            return error
        orphaned = [] if source.child is None else self._below(source)
        inside = [source, *(self.children(source) if source.child is None else [])]
        self.dirs.pop(target, None)
        self._arrive(target)
        for location in inside:
            there = target if location == source else Location(target.root, location.child)
            self._relocate(location, there, source, target)
        for location in orphaned:
            stays = source.root == target.root and target.child is not None
            parent = {"parent_session_id": target.id} if stays else model_parts.below_root(source.root)
            self._respell(self.dirs[location], parent)
        return 0

    def _cannot_move(self, source: Location, target: Location) -> int:
        if source not in self.dirs or not self.has_place(target):
            return errno.ENOENT
        if source == target:
            return 0
        if source == Location(target.root):
            return errno.EINVAL
        if target == Location(source.root):
            return errno.ENOTEMPTY
        if self.is_protected(source):
            return errno.EPERM
        if target in self.dirs and (self.dirs[target].main or self.dirs[target].has_more):
            return errno.EEXIST
        if source.child is None and target.child is not None and self.children(source):
            return errno.ENOTEMPTY
        return 0

    def _below(self, source: Location) -> list[Location]:
        """The children of a session."""
        others = {other: self.record(other) for other in self.children(source) if other != source}
        return [o for o, record in others.items() if record is not None and record["parent_session_id"] == source.id]

    def _relocate(self, location: Location, there: Location, source: Location, target: Location) -> None:
        place, hidden = self.dirs.pop(location), self.hidden.pop(location, None)
        record = {**(place.side or place.main or Doc({}, None, 0)).data} if place.main is not None else {}
        is_gone_for = hidden is not None and hidden.doc is place.main
        self.dirs[there] = place
        place.has_children = place.has_children and there.child is None
        if location == source:
            self._respell(place, model_parts.identity_at(source, target))
        else:
            follows = record.get("parent_session_id") == source.id
            self._respell(
                place, {"root_session_id": there.root, **({"parent_session_id": there.root} if follows else {})}
            )
        if hidden is not None and is_gone_for and place.main is not None:
            self.hidden[there] = replace(hidden, doc=place.main)

    def _respell(self, place: Dir, members: dict[str, Any]) -> None:
        for name in ("main", "side"):
            doc = getattr(place, name)
            if doc is None:
                continue
            data = model_parts.spelled(doc.data, members)
            if data != doc.data:
                setattr(place, name, Doc(data, None, self.tick()))

    def copy(self, source: Location, target: Location) -> None:
        """`cp -r` to a new name: a fork, root to root or child to child; hidden files are not copied."""
        inside = [source, *(self.children(source) if source.child is None else [])]
        self._arrive(target)
        for location in inside:
            there = target if location == source else Location(target.root, location.child)
            self._copy_one(location, there)

    def _copy_one(self, source: Location, target: Location) -> None:
        old, new = self.dirs[source], Dir()
        self.dirs[target] = new
        new.has_children = old.has_children
        new.attachments = None if old.attachments is None else dict(old.attachments)
        if old.side is not None:
            new.side = self._copied(old.side, target)
        if old.main is not None and source not in self.hidden:
            new.main = self._copied(old.main, target)
        new.files = {name: File(file.data, self.tick()) for name, file in old.files.items()}
        for name, rejected in old.rejected.items():  # files generated next to a document are plain files to cp
            assert rejected.reason is not None
            new.files[f"{name}.rejected"] = File(rejected.data, self.tick())
            new.files[f"{name}.error"] = File(rejected.reason, self.tick())

    def _copied(self, doc: Doc, target: Location) -> Doc:
        assert doc.raw is not None
        return self._placed(target, doc.raw, doc.data)

    # -- the API ---------------------------------------------------------------------------------------------

    def api_change(self, location: Location, change: Callable[[dict[str, Any]], None]) -> None:
        """Save: both documents contain the record."""
        place, record = self.dirs[location], self.record(location)
        assert record is not None
        assert place.main is not None
        record = {**place.main.data, **record}
        change(record)
        place.side = Doc({**record, "messages": []}, None, self.tick(), is_loose=True)
        place.main = Doc(record, None, self.tick(), is_loose=True)
        self._lay_out(location)

    def api_append(self, location: Location, message: dict[str, Any]) -> None:
        """Append: the rest of session.json stays unchanged. Without a sidecar it is a save."""
        place = self.dirs[location]
        assert place.main is not None
        if place.side is None:
            return self.api_change(location, lambda record: record.update(messages=[*record["messages"], message]))
        said = [*place.main.data["messages"], message]
        place.side = Doc(place.side.data, None, self.tick(), is_loose=True)
        place.main = Doc({**place.main.data, "messages": said}, None, self.tick(), is_loose=True)

    def _lay_out(self, location: Location) -> None:
        """Create Bamboo's subdirectories; not for the first session.json through a mount, because cp creates them."""
        place = self.dirs[location]
        place.attachments = {} if place.attachments is None else place.attachments
        place.has_children = place.has_children or location.child is None

    def api_create(self, location: Location, data: dict[str, Any]) -> None:
        place = self.dirs.setdefault(location, Dir())
        if location.child is not None:
            self.dirs.setdefault(Location(location.root), Dir()).has_children = True
        place.main = place.side = Doc(data, None, self.tick(), is_loose=True)
        self.api_change(location, lambda record: None)

    def api_delete(self, location: Location) -> int:
        """Delete with all descendants; names hidden in the mount stay hidden."""
        going = [location, *(self.children(location) if location.child is None else self._descendants(location))]
        if any(map(self.is_pinned, going)):
            return errno.EPERM
        for gone in going:
            self.dirs.pop(gone)
        return 0

    def _descendants(self, location: Location) -> list[Location]:
        found = [location]
        for parent in found:  # the list grows while it is walked; two sessions may be each other's parents
            found += [child for child in self._below(parent) if child not in found]
        return found[1:]

    # -- expectations -----------------------------------------------------------------------------------------------

    def findings(self) -> set[tuple[str, str]]:
        """The expected findings of `check`, by kind and path."""
        return {finding for location in self.dirs for finding in self._findings(location)}

    def _findings(self, location: Location) -> Iterator[tuple[str, str]]:
        place = self.dirs[location]
        for name in place.files:
            if name != TOKEN_USAGE:
                yield "foreign-file", location.path(name)
        if place.main is None:
            if location.child is None and self.children(location):
                yield "orphan-child", location.dir
            if place.side or place.attachments:
                yield "incoming", location.dir
            return
        record = self.record(location)
        assert record is not None
        parent = record.get("parent_session_id")
        if location.child is not None and parent:
            above = Location(location.root, None if parent == location.root else parent)
            if above not in self.dirs or self.dirs[above].main is None:
                yield "orphan-child", location.dir

    def files(self, *, in_mount: bool) -> dict[str, Doc | Rejected | bytes | None]:
        """Every path with its content; None for a directory."""
        found: dict[str, Doc | Rejected | bytes | None] = {}
        for location, place in self.dirs.items():
            found[location.dir] = None
            found |= {location.path(name): file.data for name, file in place.files.items()}
            if place.has_children:
                found[location.path(CHILDREN)] = None
            if place.attachments is not None:
                found[location.path(ATTACHMENTS)] = None
                found |= {location.path(f"{ATTACHMENTS}/{name}"): data for name, data in place.attachments.items()}
            if place.side is not None:
                found[location.path(RUNTIME)] = place.side
            if place.main is not None and not (in_mount and location in self.hidden):
                found[location.path(SESSION)] = place.main
            for name, rejected in place.rejected.items() if in_mount else ():
                found[location.path(f"{name}.rejected")] = rejected.data
                found[location.path(f"{name}.error")] = rejected
        return found
