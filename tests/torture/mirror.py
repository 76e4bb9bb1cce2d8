"""A mount compared with the disk below it, right after each of many random changes through it.

Names, types, modes, sizes, times and bytes of everything below `sessions/` are read through the mount, from whatever
the kernel has cached, and must be those on the disk: at once, not after a moment (except NOTIFIED_LATER). A rejected
change counts too: it may leave the rejected text and its reason.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from store import Store
from store.disk.rejects import is_reject
from store.disk.syscalls import exchange
from tests.builders import make_document, make_session
from tests.mount.conftest import wait_until
from tests.torture.attack import Case
from tests.torture.mounts import mounted

CHANGES = 500
CASES = 20
SESSIONS = ("one", "two")
FILES = (
    *("note.txt", "session.json.tmp", "plan.md", "goal.json", "trace.jsonl", "token-usage.jsonl"),
    *("attachments/x.png", "attachments/y.txt", "folder/file"),
)
FOLDERS = ("folder", "folder/inner", "attachments")
# The kernel holds the directory until a rename is answered. Only after that can it be notified that documents other
# than the renamed one changed. A program that opens them gets the new bytes even before.
NOTIFIED_LATER = ("_save_by_rename", "_exchange", "_move_session", "_other_session")


def cases(seed: int) -> Iterator[Case]:
    for number in range(CASES):
        yield Case(f"mirror-{number}", partial(compare, CHANGES, seed + number))


def compare(changes: int, seed: int) -> int:
    """Make random changes through one mount and compare after each. Returns how many were accepted."""

    def fill(home: Path) -> None:
        with Store.open(home, background=False) as store:
            for name in SESSIONS:
                store.save(make_session(name, messages=3))

    with mounted(fill) as mount, mount.store() as store:
        mirror = Mirror(mount.sessions, mount.home / "sessions", random.Random(seed))
        find = partial(differences, mount.sessions, mount.home / "sessions", store)
        for number in range(changes):
            way, error = mirror.change()
            found = find()
            is_only_late = way in NOTIFIED_LATER and all(is_late(*both) for both in found.values())
            assert not found or is_only_late, (number, way, error, found)
            if found:
                wait_until(lambda: not find())
        return mirror.accepted


def differences(shown_top: Path, stored_top: Path, store: Store) -> dict[str, tuple[Any, Any]]:
    """What is shown and what is stored, by path, where they differ."""

    def rejects_of(directory: str) -> Iterable[str]:
        return store.names.rejects.names(os.path.normpath(f"sessions/{directory}"))

    shown, stored = look(shown_top), look(stored_top, rejects_of)
    paths = sorted(shown.keys() | stored.keys())
    return {path: (shown.get(path), stored.get(path)) for path in paths if shown.get(path) != stored.get(path)}


def is_late(shown: Any, stored: Any) -> bool:
    """Whether a document has its new bytes, and only its attributes are still the old ones."""
    match shown, stored:
        case (_, (_, _, bytes() as one)), (_, (_, _, bytes() as other)):
            return one == other
    return False


def look(top: Path, rejects_of: Callable[[str], Iterable[str]] = lambda _: ()) -> dict[str, object]:
    """Everything below a directory, by path. Rejected texts and reasons by name only, with those stored elsewhere."""
    found: dict[str, object] = {}
    for directory, folders, files in os.walk(top):
        below = os.path.relpath(directory, top)
        rejects = set(filter(is_reject, files))
        found[f"rejects of {below}"] = {*rejects, *rejects_of(below)}
        for name in {*folders, *files} - rejects:
            path = os.path.join(directory, name)
            info = os.lstat(path)
            content: object = info.st_mtime_ns
            if stat.S_ISREG(info.st_mode):
                content = info.st_size, info.st_mtime_ns, Path(path).read_bytes()
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            found[f"{below}/{name}"] = info.st_mode, content
    return found


class Mirror:
    def __init__(self, sessions: Path, on_disk: Path, draw: random.Random) -> None:
        self._sessions, self._on_disk, self._draw = sessions, on_disk, draw
        self._number = 0
        self.accepted = 0
        self._ways: list[Callable[[], object]] = [
            *(self._save_in_place, self._save_by_rename, self._exchange, self._remove_and_save, self._save_rejected),
            *[self._change_file] * 5,
            *(self._change_folder, self._append_to_log, self._write_attachment),
            *(self._other_session, self._move_session, self._copy_session),
        ]

    def change(self) -> tuple[str, str]:
        """Change something. Returns what, and the error if it was refused."""
        self._number += 1
        way = self._draw.choice(self._ways)
        try:
            way()
        except OSError as error:
            return way.__name__, str(error)
        self.accepted += 1
        return way.__name__, ""

    def _session(self) -> Path:
        return self._sessions / self._draw.choice(SESSIONS)

    def _edited(self, document: Path) -> bytes:
        edited = json.loads(document.read_bytes()) | {"title": f"Title {self._number}"}
        return json.dumps(edited, indent=self._draw.choice((None, 1))).encode()

    def _write(self, path: Path, data: bytes, flags: int = os.O_TRUNC) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
        try:
            os.write(fd, data)
            if self._draw.random() < 0.3:
                os.fsync(fd)
        finally:
            os.close(fd)

    # -- documents -------------------------------------------------------------------------------

    def _save_in_place(self) -> None:
        document = self._session() / self._draw.choice(("session.json", "session.json", "runtime.json"))
        self._write(document, self._edited(document))

    def _save_by_rename(self) -> None:
        document = self._session() / "session.json"
        draft = document.with_name(f"session.json.{self._draw.randrange(3)}")
        self._write(draft, self._edited(document))
        draft.rename(document)

    def _exchange(self) -> None:
        document = self._session() / "session.json"
        other = document.with_name("other")
        self._write(other, self._edited(document))
        exchange(-1, str(other), -1, str(document))

    def _remove_and_save(self) -> None:
        """Save as editors do that keep a backup. The process that removed the document does not see it any more."""
        document = self._session() / "session.json"
        data = self._edited(document)
        if self._draw.random() < 0.5:
            document.unlink()
        else:
            document.rename(document.with_name("session.json~"))
        assert not document.exists()
        assert document.name not in os.listdir(document.parent)
        self._write(document, data)

    def _save_rejected(self) -> None:
        document = self._session() / "session.json"
        other = document.with_name("other")
        way = self._draw.randrange(5)
        if way == 0:
            self._write(document, b"not JSON")
        elif way == 1:
            os.truncate(document, self._draw.randrange(1, 50))
        elif way == 2:
            with document.open("r+b", buffering=0) as file:
                file.truncate(self._draw.randrange(1, 50))
        elif way == 3:
            self._write(other, b"not JSON")
            exchange(-1, str(other), -1, str(document))
        else:
            self._write(other, b"not JSON")
            other.rename(document)

    # -- other files -----------------------------------------------------------------------------

    def _change_file(self) -> None:
        path = self._session() / self._draw.choice(FILES)
        data = b'{"number": %d}\n' % self._number * self._draw.randrange(1, 200 if path.suffix != ".json" else 2)
        way = self._draw.randrange(8)
        if way == 0:
            self._write(path, data)
        elif way == 1:
            self._write(path, data, os.O_APPEND)
        elif way == 2:
            path.unlink()
        elif way == 3:
            os.truncate(path, self._draw.randrange(200))
        elif way == 4:
            path.chmod(self._draw.choice((0o600, 0o640, 0o644)))
        elif way == 5:
            os.utime(path, ns=(10**18 + self._number, 10**18 + self._number))
        elif way == 6:
            path.rename(self._session() / self._draw.choice(FILES))
        else:
            path.with_name(f"link{self._draw.randrange(3)}").symlink_to(path.name)

    def _change_folder(self) -> None:
        folder = self._session() / self._draw.choice(FOLDERS)
        if self._draw.random() < 0.6:
            folder.mkdir()
        else:
            folder.rmdir()

    def _append_to_log(self) -> None:
        log = self._session() / "token-usage.jsonl"
        on_disk = self._on_disk / log.relative_to(self._sessions)
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for _ in range(3):
                os.write(fd, b'{"model": "m", "input_tokens": 1, "output_tokens": 1, "total_tokens": 2}\n')
                assert os.fstat(fd).st_size == on_disk.stat().st_size
        finally:
            os.close(fd)

    def _write_attachment(self) -> None:
        """Write an attachment, and sometimes truncate, rename or chmod it while it is open."""
        path = self._session() / f"attachments/{self._draw.choice('abc')}.png"
        path.parent.mkdir(exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.write(fd, self._draw.randbytes(self._draw.randrange(1, 9000)))
            if self._draw.random() < 0.4:
                os.ftruncate(fd, self._draw.randrange(100))
            if self._draw.random() < 0.4:
                path.rename(path.with_suffix(".gif"))
            if self._draw.random() < 0.2:
                os.fchmod(fd, 0o640)
        finally:
            os.close(fd)

    # -- sessions --------------------------------------------------------------------------------

    def _other_session(self) -> None:
        """Create, remove or rename a session, or a child."""
        root = self._draw.choice(SESSIONS)
        is_child = self._draw.random() < 0.5
        above = self._sessions / root / "children" if is_child else self._sessions
        name, new_name = (f"other{self._draw.randrange(3)}" for _ in range(2))
        way = self._draw.randrange(3)
        if way == 0:
            (above / name).mkdir(parents=True, exist_ok=True)
            members: dict[str, Any] = {}
            if is_child:
                members = {"kind": "child", "parent_session_id": root, "root_session_id": root}
            self._write(above / name / "session.json", make_document(name, **members))
        elif way == 1:
            shutil.rmtree(above / name)
        else:
            (above / name).rename(above / new_name)

    def _move_session(self) -> None:
        session = self._session()
        moved = self._sessions / "moved"
        session.rename(moved)
        assert json.loads((moved / "session.json").read_bytes())["id"] == "moved"
        moved.rename(session)

    def _copy_session(self) -> None:
        copy = self._sessions / "copy"
        with suppress(FileNotFoundError):
            shutil.rmtree(copy)
        shutil.copytree(self._session(), copy, symlinks=True)
        assert json.loads((copy / "session.json").read_bytes())["id"] == "copy"
