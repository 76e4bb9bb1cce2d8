"""A state machine that uses a mounted home as users and programs do, compared with a model.

After every step the files on disk and in the mount, the index, the search rows, sessions.json and `check` are
compared with the model. Hypothesis draws the steps and shrinks a failing sequence.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from store import Message, Protected, Session
from store.layout import ATTACHMENTS, CHILDREN, RUNTIME, SESSION, TOKEN_USAGE, Location
from tests.torture.machine_base import BACKUP, NOTE, TEMP, MachineBase, append_to, errno_of, later, text_of
from tests.torture.model_parts import Doc, File

LIMBO_S = "3600"  # hidden names expire when the mount ends, not at an unpredictable time

pick = st.integers(0, 11)  # selects one of the existing targets, see `_one`
root_names = st.sampled_from("abc")
names = st.one_of(st.tuples(root_names, st.none()), st.tuples(root_names, st.sampled_from("xy")))
edits = st.sampled_from(["title", "message", "title", "same", "pin", "broken", "type", "stranger", "older", "empty"])
ways = st.sampled_from(["in place", "r+", "rename", "unlink", "away"])
short_bytes = st.binary(min_size=1, max_size=40)


class GroveMachine(MachineBase):
    @rule(number=pick, what=edits, way=ways)
    def edit(self, number: int, what: str, way: str) -> None:
        """Edit session.json in any of the ways that tools use."""
        location = self.some_dir(number)
        if location is None:
            return
        if what == "empty":
            return self.empty(location)
        raw, data = self.edited(location, what)
        path, model = self.path(location, SESSION), self.model
        if way == "unlink" and model.is_shown(location):
            self.agree(model.unlink(location), lambda: os.unlink(path))
        if way == "away" and model.is_shown(location):
            self.agree(model.rename_away(location, BACKUP), lambda: os.rename(path, self.path(location, BACKUP)))
        if way == "rename":
            self.make_temp(location, raw)
            return self.onto(location, TEMP)
        self.agree(model.write(location, raw, data), lambda: self.write_in(path, raw, way))

    @rule(number=pick, what=edits)
    def prepare_temp(self, number: int, what: str) -> None:
        """Create a temporary file, to be renamed in a later step."""
        location = self.some_dir(number)
        if location is not None and what != "empty":
            self.make_temp(location, self.edited(location, what)[0])

    @rule(number=pick, name=st.sampled_from([TEMP, BACKUP]))
    def rename_onto(self, number: int, name: str) -> None:
        location = self._one(number, [where for where, place in self.model.dirs.items() if name in place.files])
        if location is not None:
            self.onto(location, name)

    @rule(number=pick, by_rename=st.booleans())
    def take_away(self, number: int, by_rename: bool) -> None:
        location = self.some_session(number)
        if location is None:
            return
        path = self.path(location, SESSION)
        if by_rename:
            wanted = self.model.rename_away(location, BACKUP)
            self.agree(wanted, lambda: os.rename(path, self.path(location, BACKUP)))
        else:
            self.agree(self.model.unlink(location), lambda: os.unlink(path))

    @rule(number=pick, tail=st.sampled_from([b"\n", b" \n", b"}", b"x"]))
    def append(self, number: int, tail: bytes) -> None:
        """`>>`: appended white space makes a new version, anything else is rejected."""
        if (location := self.some_shown(number)) is not None:
            raw, data = self.raw(location) + tail, self.data(location) if tail.isspace() else None
            self.rewrite(location, raw, data, lambda: append_to(self.path(location, SESSION), tail))

    @rule(number=pick, cut=st.sampled_from([0, 1, 30]))
    def truncate(self, number: int, cut: int) -> None:
        """truncate(2) is a separate commit; it can only remove what was appended."""
        if (location := self.some_shown(number)) is not None:
            old = self.raw(location)
            raw = old[: len(old) - cut]
            data = self.data(location) if raw.rstrip() == old.rstrip() else None
            self.rewrite(location, raw, data, lambda: os.truncate(self.path(location, SESSION), len(raw)))

    @rule(number=pick, what=st.sampled_from(["title", "broken", "messages", "unlink"]))
    def edit_side(self, number: int, what: str) -> None:
        location = self.some_dir(number)
        if location is None:
            return
        path, place = self.path(location, RUNTIME), self.model.dirs[location]
        if what == "unlink":
            return self.agree(self.model.unlink_side(location), lambda: os.unlink(path))
        base = place.side or place.main
        data = dict(base.data) if base is not None else self.fresh(location)
        newest = max([data["updated_at"], *([place.main.data["updated_at"]] if place.main else [])])
        data |= {"messages": [], "updated_at": later(newest), "title": f"About {self.word()}"}
        if what == "messages":
            data["messages"] = [self.message()]
        raw = text_of(data) if what != "broken" else text_of(data)[:-9]
        wanted = self.model.write_side(location, raw, data if what != "broken" else None)
        self.agree(wanted, lambda: self.write_in(path, raw, "in place"))

    # -- directories and other files ---------------------------------------------------------------------

    @rule(name=names)
    def mkdir(self, name: tuple[str, str | None]) -> None:
        location = self.place(name)
        self.agree(self.model.make_dir(location), lambda: os.mkdir(self.path(location)))

    @rule(number=pick, name=st.sampled_from([ATTACHMENTS, CHILDREN]))
    def mkdir_inside(self, number: int, name: str) -> None:
        location = self.some_dir(number)
        if location is not None:
            self.agree(self.model.make_inner(location, name), lambda: os.mkdir(self.path(location, name)))

    @rule(name=names)
    def rmdir(self, name: tuple[str, str | None]) -> None:
        location = self.place(name)
        self.agree(self.model.remove_dir(location), lambda: os.rmdir(self.path(location)))

    @rule(number=pick)
    def rm_r(self, number: int) -> None:
        location = self.some_dir(number)
        if location is None or self.model.is_protected(location) or self._has_hidden_document(location):
            return
        self.model.remove_tree(location)
        shutil.rmtree(self.path(location))

    def _has_hidden_document(self, location: Location) -> bool:
        """Whether a hidden document prevents removing the directory."""
        hidden = [h for h in self.model.hidden if h == location or (location.child is None and h.root == location.root)]
        return any(self.model.dirs[h].main is not self.model.hidden[h].doc for h in hidden if h in self.model.dirs)

    @rule(number=pick, name=names)
    def mv(self, number: int, name: tuple[str, str | None]) -> None:
        source, target = self.some_dir(number), self.place(name)
        if source is not None:
            self.agree(self.model.move(source, target), lambda: os.rename(self.path(source), self.path(target)))

    @rule(number=pick, name=names)
    def cp_r(self, number: int, name: tuple[str, str | None]) -> None:
        source, target = self.some_dir(number), self.place(name)
        if source is None or target in self.model.dirs or not self.model.has_place(target):
            return
        if source.kind != target.kind or self._has_temporaries(source):
            return
        self.model.copy(source, target)
        subprocess.run(["cp", "-r", self.path(source), self.path(target)], check=True, capture_output=True)

    def _has_temporaries(self, source: Location) -> bool:
        """Whether cp's order on disk makes the result of a copy unpredictable."""
        inside = [source, *(self.model.children(source) if source.child is None else [])]
        return any(name in self.model.dirs[where].files for where in inside for name in (TEMP, BACKUP))

    @rule(number=pick, name=st.sampled_from(["one.png", "two"]), data=short_bytes, what=st.sampled_from("wwur"))
    def attach(self, number: int, name: str, data: bytes, what: str) -> None:
        """Write an attachment with any bytes; `u` removes it, `r` renames it."""
        location = self._one(
            number, [where for where, place in self.model.dirs.items() if place.attachments is not None]
        )
        if location is None:
            return
        attached, path = self.model.dirs[location].attachments, self.path(location, f"{ATTACHMENTS}/{name}")
        assert attached is not None
        if what == "w":
            attached[name] = data
            self.write_in(path, data, "in place")
        elif name in attached:
            renamed = self.path(location, f"{ATTACHMENTS}/renamed")
            wanted = errno.EPERM if self.model.is_protected(location) else 0
            self.agree(wanted, lambda: os.unlink(path) if what == "u" else os.rename(path, renamed))
            if not wanted:
                old = attached.pop(name)
                attached |= {"renamed": old} if what == "r" else {}

    @rule(number=pick, data=short_bytes, unlink=st.booleans())
    def foreign(self, number: int, data: bytes, unlink: bool) -> None:
        location = self.some_dir(number)
        if location is None:
            return
        files, path = self.model.dirs[location].files, self.path(location, NOTE)
        if unlink and NOTE in files:
            del files[NOTE]
            os.unlink(path)
        else:
            self.model_file(location, NOTE, data)
            self.write_in(path, data, "in place")

    @rule(number=pick, by_api=st.booleans())
    def log(self, number: int, by_api: bool) -> None:
        """Append a line to a log, through the mount or the API."""
        location = self.some_session(number)
        if location is None:
            return
        line = json.dumps({"event": self.word()})
        files = self.model.dirs[location].files
        before = files[TOKEN_USAGE].data if TOKEN_USAGE in files else b""
        files[TOKEN_USAGE] = File(before + line.encode() + b"\n", self.model.tick())
        if by_api:
            assert self.store.usage.append(str(location), line)
        else:
            append_to(self.path(location, TOKEN_USAGE), line.encode() + b"\n")

    # -- the API, in another process than the mount's -------------------------------------------------------

    @rule(name=names, below=st.booleans())
    def api_create(self, name: tuple[str, str | None], below: bool) -> None:
        location = self.place(name)
        if (location in self.model.dirs and self.model.dirs[location].main is not None) or self._is_headless(location):
            return
        other = Location(location.root, "x" if location.child == "y" else "y")
        data = self.fresh(location, other.child if below and other in self.model.sessions() else None)
        self.model.api_create(location, data)
        self.store.save(Session.model_validate(data))

    def _is_headless(self, location: Location) -> bool:
        """A child without a parent session: possible, but rarely intended."""
        return location.child is not None and Location(location.root) not in self.model.dirs

    def _api(self, number: int, change: Callable[[dict[str, Any]], None], work: Callable[[str], object]) -> None:
        location = self.some_session(number)
        if location is None:
            return
        self.model.api_change(location, change)
        work(str(location))

    @rule(number=pick)
    def api_title(self, number: int) -> None:
        title = f"About {self.word()}"
        self._api(
            number,
            lambda record: record.update(title=title),
            lambda name: self.store.update(name, lambda session: setattr(session, "title", title)),
        )

    @rule(number=pick)
    def api_append(self, number: int) -> None:
        location, message = self.some_session(number), self.message()
        if location is not None:
            self.model.api_append(location, message)
            self.store.append(str(location), [Message.model_validate(message)])

    @rule(number=pick)
    def api_pin(self, number: int) -> None:
        def turn(session: Session) -> None:
            session.pinned = not session.pinned

        self._api(
            number,
            lambda record: record.update(pinned=not record.get("pinned", False)),
            lambda name: self.store.update(name, turn),
        )

    @rule(number=pick)
    def api_runtime(self, number: int) -> None:
        """Save only the sidecar."""
        location = self.some_session(number)
        if location is None:
            return
        record = self.model.record(location)
        assert record is not None
        title = f"About {self.word()}"
        data = {**record, "title": title, "messages": []}
        self.model.dirs[location].side = Doc(data, None, self.model.tick(), is_loose=True)
        session = self.store.load_runtime(str(location))
        assert session is not None
        session.title = title
        self.store.save_runtime(session)

    @rule(number=pick, data=short_bytes)
    def api_attach(self, number: int, data: bytes) -> None:
        location = self.some_session(number)
        if location is None:
            return
        made = self.store.attach(str(location), data, "image/png")
        place = self.model.dirs[location]
        place.attachments = {**(place.attachments or {}), f"{made.id}.png": data}

    @rule(number=pick)
    def api_delete(self, number: int) -> None:
        location = self.some_session(number)
        if location is None:
            return
        wanted = self.model.api_delete(location)
        try:
            assert self.store.delete(str(location))
        except Protected:
            assert wanted
        else:
            assert not wanted

    # -- the life cycle of the mount, and long-lived readers --------------------------------------------------------

    @precondition(lambda self: self.ends < 2)
    @rule(by_kill=st.booleans(), number=pick)
    def remount(self, by_kill: bool, number: int) -> None:
        """Unmount as a user does, or kill the daemon while half a document is written."""
        self.ends += 1
        self.release_readers()
        if not by_kill:
            self.model.expire_hidden()
            return self.grove.remount(self.grove.mounts[0])
        location = self.some_shown(number)
        fd = os.open(self.path(location, SESSION), os.O_WRONLY | os.O_TRUNC) if location else os.open("/", os.O_RDONLY)
        if location:
            os.write(fd, b'{"id": "half a docu')
        self.model.reveal_hidden()
        try:
            self.grove.kill(self.grove.mounts[0])
        finally:
            errno_of(lambda: os.close(fd))
        self.witness.clear_temporaries(self.model)

    @rule(number=pick)
    def hold_reader(self, number: int) -> None:
        location = self.some_shown(number)
        if location is not None and len(self.readers) < 3:
            self.readers.append((os.open(self.path(location, SESSION), os.O_RDONLY), self.raw(location)))

    @rule()
    def release_readers(self) -> None:
        """Rule 4: a reader sees the version it opened, whatever happened since."""
        readers, self.readers = self.readers, []
        found = [(os.pread(fd, 1 << 20, 0), raw) for fd, raw in readers]
        for fd, _ in readers:
            os.close(fd)
        for got, raw in found:
            assert got == raw

    # -- invariants ------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """Start with a tree created by the API and a root created through the mount."""
        self.api_create(("a", None), False)
        self.api_create(("a", "x"), False)
        self.mkdir(("b", None))
        self.edit(len(self.model.dirs) - 1, "title", "in place")

    @invariant()
    def everything_agrees(self) -> None:
        self.witness.see(self.model, self.used[-30:], self.texts)
