"""Operations of the state machine: choosing targets, writing documents, and checking the predicted result.

The meaning of all written bytes is remembered, because a file may become a document by a rename.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from store.layout import SESSION, Location
from tests.mount.conftest import wait_until
from tests.torture.comparison import Comparison
from tests.torture.model import Model
from tests.torture.model_parts import File
from tests.torture.mounted_home import PATIENCE_S, MountedHome

BACKUP, TEMP, NOTE = "session.json~", "t.json", "notes.txt"

_examples = itertools.count(1)


def text_of(data: dict[str, Any]) -> bytes:
    return json.dumps(data, indent=2, ensure_ascii=False).encode()


def errno_of(work: Callable[[], object]) -> int:
    try:
        work()
    except OSError as error:
        return error.errno or -1
    return 0


class MachineBase(RuleBasedStateMachine):
    grove: ClassVar[MountedHome]  # shared by all examples: mounting is slow

    def __init__(self) -> None:
        super().__init__()
        self.grove.revive()
        self.prefix = f"e{next(_examples)}-"
        self.model = Model()
        self.words = itertools.count(1)
        self.used: list[str] = []
        self.texts: dict[bytes, dict[str, Any]] = {}  # the meaning of bytes that may become a document
        self.readers: list[tuple[int, bytes]] = []
        self.ends = 0
        self.store = self.grove.store
        self.witness = Comparison(self.grove, self.prefix)

    # -- choosing a target -------------------------------------------------------------------------------

    def word(self) -> str:
        self.used.append(f"{self.prefix.replace('-', 'word')}{next(self.words)}")
        return self.used[-1]

    def place(self, name: tuple[str, str | None]) -> Location:
        return Location(self.prefix + name[0], name[1])

    def _one(self, number: int, among: list[Location]) -> Location | None:
        return among[number % len(among)] if among else None

    def some_dir(self, number: int) -> Location | None:
        return self._one(number, list(self.model.dirs))

    def some_session(self, number: int) -> Location | None:
        return self._one(number, list(self.model.sessions()))

    def some_shown(self, number: int) -> Location | None:
        """A session whose session.json is visible in the mount."""
        return self._one(number, [location for location in self.model.dirs if self.model.is_shown(location)])

    def raw(self, location: Location) -> bytes:
        """The bytes of session.json."""
        main = self.model.dirs[location].main
        assert main is not None
        assert main.raw is not None
        return main.raw

    def data(self, location: Location) -> dict[str, Any]:
        main = self.model.dirs[location].main
        assert main is not None
        return main.data

    def path(self, location: Location, name: str = "") -> str:
        return os.path.join(self.grove.mounts[0].path, location.path(name) if name else location.dir)

    def agree(self, wanted: int, work: Callable[[], object]) -> None:
        got = errno_of(work)
        assert got == wanted, f"answered {_named(got)}, not {_named(wanted)}"

    # -- documents ---------------------------------------------------------------------------------------

    def fresh(self, location: Location, parent: str | None = None) -> dict[str, Any]:
        data: dict[str, Any] = {
            "id": location.id,
            "title": f"About {self.word()}",
            "note": {"kept": [1, 2.50, "ü"]},
            "kind": location.kind,
            "root_session_id": location.root,
        }
        if location.child is not None:
            data |= {"parent_session_id": parent or location.root, "spawn_depth": 2 if parent else 1}
        data |= {"messages": [self.message()], "created_at": _stamp(0), "updated_at": _stamp(0)}
        return data

    def message(self) -> dict[str, Any]:
        word = self.word()
        return {"id": f"m-{word}", "role": "user", "content": f"said {word}", "created_at": _stamp(0)}

    def edited(self, location: Location, what: str) -> tuple[bytes, dict[str, Any] | None]:
        """New bytes for session.json and their meaning: None if they are not a valid document."""
        main = self.model.dirs[location].main
        data = dict(main.data) if main is not None else self.fresh(location)
        if what == "same" and main is not None:
            assert main.raw is not None
            return main.raw, main.data
        data["updated_at"] = later(data["updated_at"])
        if what == "broken":
            return text_of(data)[:-20] + self.word().encode(), None
        if what == "type":
            return text_of({**data, "title": 5}), None
        if what == "stranger":
            data |= {"id": "somebody-else", "root_session_id": "somebody-else", "kind": "root"}
        elif what == "older":
            data["updated_at"] = "2001-01-01T00:00:00.5Z"
        elif what == "pin":
            data["pinned"] = not data.get("pinned", False)
        if what == "message":
            data["messages"] = [*data["messages"], self.message()]
        else:
            data["title"] = f"About {self.word()}"
        self.texts[text_of(data)] = data
        return text_of(data), data

    def write_in(self, path: str, raw: bytes, way: str) -> None:
        if way == "r+" and os.path.exists(path):
            with open(path, "r+b", buffering=0) as file:
                file.write(raw)
                file.truncate()
        else:
            with open(path, "wb", buffering=0) as file:
                file.write(raw)

    def rewrite(self, location: Location, raw: bytes, data: dict[str, Any] | None, work: Callable[[], object]) -> None:
        """Other bytes for session.json and their meaning: None if they are not a valid document."""
        if data is not None:
            self.texts[raw] = data
        self.agree(self.model.write(location, raw, data), work)

    def empty(self, location: Location) -> None:
        """Truncate and close: nothing was written, so nothing is committed."""
        self.agree(0, lambda: open(self.path(location, SESSION), "wb").close())

    def make_temp(self, location: Location, raw: bytes) -> None:
        path, files = self.path(location, TEMP), self.model.dirs[location].files
        if TEMP in files:
            os.unlink(path)
        self.model_file(location, TEMP, raw)
        self.write_in(path, raw, "in place")

    def model_file(self, location: Location, name: str, raw: bytes) -> None:
        self.model.dirs[location].files.pop(name, None)
        self.model.dirs[location].files[name] = File(raw, self.model.tick())

    def onto(self, location: Location, name: str) -> None:
        raw = self.model.dirs[location].files[name].data
        wanted = self.model.rename_onto(location, name, self.texts.get(raw))
        self.agree(wanted, lambda: os.rename(self.path(location, name), self.path(location, SESSION)))

    def teardown(self) -> None:
        for fd, _ in self.readers:
            os.close(fd)
        self.readers = []
        self.store.maintenance.erase_all()
        wait_until(lambda: not any(n.startswith(self.prefix) for n in os.listdir(self.grove.sessions)), PATIENCE_S)


def append_to(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _stamp(second: int) -> str:
    return time.strftime("2026-01-01T%H:%M:%S.000000001Z", time.gmtime(second))


def later(stamp: str) -> str:
    """A later timestamp with nine digits, as the API writes it, so that strings compare like times."""
    return f"{int(stamp[:4]) + 1}{stamp[4:]}"


def _named(number: int) -> str:
    return errno.errorcode.get(number, "success") if number else "success"
