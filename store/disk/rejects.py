"""What was refused and why, kept until it is mended.

The bytes someone typed are never thrown away (rule 3): they lie under `.grovefs/rejects/`, with the
reason in plain words beside them, and go when the same document is committed next, or by hand. A slot
holds what belongs beside the documents of one directory, which may be that of a session or any other.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from store import layout
from store.disk.disk import Disk
from store.disk.file import NewFile
from store.documents.secrets import SecretRefused
from store.errors import Conflict, InvalidContent, StoreError
from store.layout import Location
from store.model.timestamp import Timestamp

log = logging.getLogger("grovefs.store")

REJECTED = ".rejected"
REASON = ".error"
RECENT = "recent.jsonl"
KEPT_LINES = 500
_CONTEXT_LINES = 2
_DIRECTORY = "directory"  # in a slot: which one it is for


@dataclass(frozen=True)
class Rejects:
    """`where` is a directory, by its path in the home or as the location that it is."""

    disk: Disk

    def store(self, where: Location | str, name: str, raw: bytes, error: StoreError | OSError) -> None:
        """Keep refused bytes and the reason; a later refusal of the same document replaces it."""
        directory = _path(where)
        slot = _slot(directory)
        reason = explain(directory, name, raw, error)
        with self._alone():
            self.disk.make_dirs(slot)
            if self.disk.stat(f"{slot}/{_DIRECTORY}") is None:
                self._write(f"{slot}/{_DIRECTORY}", directory.encode(errors="surrogateescape"))
            for part, data in ((REJECTED, raw), (REASON, reason.encode(errors="replace"))):
                self._write(f"{slot}/{_short(name)}{part}", data)
            self._note(f"{directory}/{name}", error)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One at a time in all processes: slots come and go with what is in them. For the public methods only."""
        self.disk.make_dirs(layout.REJECTS)
        with self.disk.open_dir(layout.REJECTS) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)  # gone with the descriptor
            yield

    def _write(self, path: str, data: bytes) -> None:
        self.disk.put(NewFile(path, [data]))

    def _note(self, path: str, error: StoreError | OSError) -> None:
        line = {"at": Timestamp.now(), "path": _printable(path), "reason": _printable(str(error))}
        recent = f"{layout.REJECTS}/{RECENT}"
        present = self.disk.read(recent)
        lines = present.data.splitlines(keepends=True) if present else []
        lines = [*lines[-KEPT_LINES + 1 :], orjson.dumps(line) + b"\n"]
        self._write(recent, b"".join(lines))

    def prepare(self) -> str:
        """The directory everything is kept in, for who wants to watch it."""
        self.disk.make_dirs(layout.REJECTS)
        return layout.REJECTS

    def recent(self) -> bytes:
        """One JSON object a line: the latest refusals, the newest last."""
        file = self.disk.read(f"{layout.REJECTS}/{RECENT}")
        return file.data if file else b""

    def names(self, where: Location | str) -> dict[str, str]:
        """What is kept for the documents of a directory: the name to show it under, and where it lies."""
        slot = _slot(_path(where))
        return {e.name: f"{slot}/{e.name}" for e in self.disk.entries(slot) if e.name.endswith((REJECTED, REASON))}

    def path(self, where: Location | str, shown: str) -> str | None:
        """Where `session.json.rejected` or `session.json.error` lies; None if there is none."""
        if not shown.endswith((REJECTED, REASON)) or "/" in shown:
            return None
        path = f"{_slot(_path(where))}/{shown}"
        return path if self.disk.stat(path) is not None else None

    def remove(self, where: Location | str, shown: str) -> None:
        """Take one of the two away, by hand."""
        if self.path(where, shown) is not None:
            with self._alone():
                self._remove(_path(where), shown)

    def _remove(self, directory: str, shown: str) -> None:
        self.disk.remove(f"{_slot(directory)}/{shown}")
        if not self.names(directory):
            self.disk.remove_tree(_slot(directory))

    def clear(self, where: Location | str, name: str) -> None:
        """The document was mended, or is gone: nothing is kept of it any more."""
        with _log_only():
            for part in (REJECTED, REASON):
                self.remove(where, f"{_short(name)}{part}")

    def clear_all(self, where: Location | str) -> None:
        """The directory is gone, and with it all that was kept for it and for those in it."""
        with _log_only():
            if self.disk.directories(layout.REJECTS):
                with self._alone():
                    self._drop_below(_path(where))

    def _drop_below(self, directory: str) -> None:
        for below in list(self._below(directory)):
            self.disk.remove_tree(_slot(below))

    def rename(self, where: Location | str, target: Location | str) -> None:
        """The directory has another name: what was typed for it, and in it, is to be found there."""
        with _log_only():
            if self.disk.directories(layout.REJECTS):
                with self._alone():
                    self._rename(_path(where), _path(target))

    def _rename(self, old: str, new: str) -> None:
        self._drop_below(new)
        for directory in list(self._below(old)):
            moved = new + directory.removeprefix(old)
            self.disk.move(_slot(directory), _slot(moved))
            self._write(f"{_slot(moved)}/{_DIRECTORY}", moved.encode(errors="surrogateescape"))

    def _below(self, directory: str) -> Iterator[str]:
        """The directory and those in it, as far as something is kept for them. Few slots there are."""
        for name in self.disk.directories(layout.REJECTS):
            file = self.disk.read(f"{layout.REJECTS}/{name}/{_DIRECTORY}")
            path = file.data.decode(errors="surrogateescape") if file else ""
            if path == directory or path.startswith(f"{directory}/"):
                yield path


@contextmanager
def _log_only() -> Iterator[None]:
    """The change is made, and this only follows it: a disk that fails now is no reason to say that it was not."""
    try:
        yield
    except OSError as error:
        log.warning("what was refused earlier is kept where it was: %s", error)


def is_reject(name: str) -> bool:
    """Whether something kept here may be shown under that name."""
    return name.endswith((REJECTED, REASON))


def _path(where: Location | str) -> str:
    return where.dir if isinstance(where, Location) else where


def _slot(directory: str) -> str:
    digest = blake2b(directory.encode(errors="surrogateescape"), digest_size=12).hexdigest()
    return f"{layout.REJECTS}/{digest}"


def _short(name: str) -> str:
    """The name, or what fits with the longer ending behind it."""
    raw = name.encode(errors="surrogateescape")
    if len(raw) + len(REJECTED) <= layout.MAX_NAME_BYTES:
        return name
    return f"{raw[:200].decode(errors='ignore')}-{blake2b(raw, digest_size=4).hexdigest()}"


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()


def explain(where: Location | str, name: str, raw: bytes, error: StoreError | OSError) -> str:
    """The reason as a person wants to read it: what, where, the lines in question, and what to do."""
    lines = [f"{_path(where)}/{name} was not saved; the version before it stands.", "", f"  {error}", ""]
    if isinstance(error, InvalidContent):
        lines += excerpt(raw, error)
    if isinstance(error, Conflict):
        lines += ["Someone else saved a newer version meanwhile. Read it again, and make your change there.", ""]
    lines += [f"What was to be saved is in {_short(name)}{REJECTED}; both files go with the next successful save.", ""]
    return "\n".join(lines)


def excerpt(raw: bytes, error: InvalidContent) -> list[str]:
    """The lines in question with a mark below the place, and a blank one; none where no place is known."""
    if error.problem.line is None or isinstance(error, SecretRefused):  # the reason is no second copy of a secret
        return []
    return [*_excerpt(raw, error.problem.line, error.problem.column or 1), ""]


def _excerpt(raw: bytes, line: int, column: int) -> list[str]:
    text = raw.decode(errors="replace").split("\n")
    first = max(1, line - _CONTEXT_LINES)
    shown: list[str] = []
    for number in range(first, min(len(text), line + _CONTEXT_LINES) + 1):
        content = text[number - 1]
        start = max(0, column - 60) if number == line else 0
        shown.append(f"  {number:>6} | {content[start : start + 100]}")
        if number == line:
            shown.append(" " * (11 + column - 1 - start) + "^")
    return shown
