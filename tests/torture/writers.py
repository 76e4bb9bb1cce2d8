"""Changes that users and tools make in a mount, and how to verify each afterwards.

They use the home of tests/crash/scenarios.py. `done` only looks at files and the API of a newly opened store. A writer
that is `in_parts` makes several system calls with visible changes; any number of them may be done.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store import Store
from tests.builders import make_document
from tests.crash.scenarios import COPY, EDITED, NOTES, PNG

_libc = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
TEXT = "written through the mount"


@dataclass(frozen=True)
class Writer:
    name: str
    write: Callable[[Path], object]  # takes the mount point
    done: Callable[[Store], bool]
    in_parts: bool = False


def save(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write in place, as a shell does; every error is raised."""
    with path.open("wb", buffering=0) as file:
        file.write(data)
        if sync:
            os.fsync(file.fileno())


def _document(id: str, **members: Any) -> bytes:
    return make_document(id, title=TEXT, updated_at=EDITED, **members)


def _rename_onto(mounted: Path) -> None:
    temporary = mounted / "sessions/root/.session.json.tmp"
    save(temporary, _document("root"), sync=True)
    temporary.rename(mounted / "sessions/root/session.json")


def _as_vim(mounted: Path) -> None:
    path = mounted / "sessions/root/session.json"
    backup = path.rename(path.with_name("session.json~"))
    try:
        save(path, _document("root"), sync=True)
    except OSError:
        backup.rename(path)
        raise
    backup.unlink()


def _log(mounted: Path) -> None:
    with (mounted / "sessions/root/token-usage.jsonl").open("ab", buffering=0) as file:
        file.write(b'{"text": "%s"}\n' % TEXT.encode())
        os.fsync(file.fileno())


def _new_session(mounted: Path) -> None:
    (mounted / "sessions/fresh").mkdir()
    save(mounted / "sessions/fresh/session.json", _document("fresh"))


def _exchange(mounted: Path) -> None:
    one, other = (os.fsencode(mounted / path) for path in (NOTES, _attachment(mounted)))
    if _libc.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _attachment(mounted: Path) -> str:
    return f"sessions/root/attachments/{os.listdir(mounted / 'sessions/root/attachments')[0]}"


def _says(id: str) -> Callable[[Store], bool]:
    def says(store: Store) -> bool:
        session = store.load(id)
        return session is not None and session.title == TEXT

    return says


def _holds(path: str) -> Callable[[Store], bool]:
    def holds(store: Store) -> bool:
        file = store.home / path
        return file.is_file() and TEXT in file.read_text()

    return holds


def _is_renamed(store: Store) -> bool:
    old, new, child = store.load("root"), store.load("renamed"), store.load("child")
    assert (old is None) != (new is None), "one of both"
    assert child is not None
    assert child.root_session_id == ("root" if new is None else "renamed")
    return new is not None


WRITERS = [
    Writer("edit in place", lambda m: save(m / "sessions/root/session.json", _document("root")), _says("root")),
    Writer(
        "edit the sidecar",
        lambda m: save(m / "sessions/pinned/runtime.json", _document("pinned", messages=[])),
        _says("pinned"),
    ),
    Writer("rename-replace", _rename_onto, _says("root"), in_parts=True),
    Writer("edit as vim does", _as_vim, _says("root"), in_parts=True),
    Writer("append to a log", _log, _holds("sessions/root/token-usage.jsonl")),
    Writer(
        "attach",
        lambda m: save(m / "sessions/root/attachments/new.txt", TEXT.encode()),
        _holds("sessions/root/attachments/new.txt"),
    ),
    Writer(
        "remove an attachment",
        lambda m: (m / _attachment(m)).unlink(),
        lambda s: not os.listdir(s.home / "sessions/root/attachments"),
    ),
    Writer(
        "move an attachment",
        lambda m: (m / _attachment(m)).rename(m / "sessions/root/children/child/attachments/moved.png"),
        lambda s: (s.home / "sessions/root/children/child/attachments/moved.png").exists(),
    ),
    Writer("exchange", _exchange, lambda s: (s.home / NOTES).read_bytes() == PNG),
    Writer("mkdir and write", _new_session, _says("fresh"), in_parts=True),
    Writer("mv a session", lambda m: (m / "sessions/root").rename(m / "sessions/renamed"), _is_renamed),
    Writer(
        "rm -r a child",
        lambda m: shutil.rmtree(m / "sessions/root/children/grandchild"),
        lambda s: s.load("grandchild") is None,
        in_parts=True,
    ),
    Writer(
        "write a state document",
        lambda m: save(m / "state/facts/g.json", b'{"text": "%s"}' % TEXT.encode()),
        _holds("state/facts/g.json"),
    ),
    Writer(
        "write a payload",
        lambda m: save(m / "projects/k/sessions/p/children/c/session.json", b'{"title": "%s"}' % TEXT.encode()),
        _holds("projects/k/sessions/p/children/c/session.json"),
    ),
    Writer(
        "copy a foreign file", lambda m: shutil.copy(m / COPY, m / f"{COPY}2"), lambda s: (s.home / f"{COPY}2").exists()
    ),
]
