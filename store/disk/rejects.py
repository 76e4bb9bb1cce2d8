"""Rejected writes, kept with the reason until the next successful save.

Rejected bytes are never thrown away (rule 3). They are stored under `.grovefs/rejects/` with a text
file that explains the reason, until the same document is committed or a user deletes them. Each
directory that has rejected documents, a session's or any other, has one slot.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from store import layout
from store.disk.disk import Disk
from store.disk.file import NewFile
from store.errors import Conflict, FileGone, InvalidContent, StoreError, Unsure
from store.layout import Location
from store.model.timestamp import Timestamp

log = logging.getLogger("grovefs.store")

REJECTED = ".rejected"
REASON = ".error"
RECENT = "recent.jsonl"
KEPT_LINES = 500
_CONTEXT_LINES = 2
_DIRECTORY = "directory"  # file in a slot: the path of its directory


@dataclass(frozen=True)
class Rejects:
    """The rejected writes of a home.

    `where` is a directory: a path relative to the home, or a Location.
    """

    disk: Disk

    def store(
        self, where: Location | str, name: str, content: bytes | Iterable[bytes], error: StoreError | OSError
    ) -> None:
        """Store rejected bytes and the reason, replacing earlier ones of the same document."""
        raw = content if isinstance(content, bytes) else b""  # only a document's text is shown with the reason
        directory = _path(where)
        slot = _slot(directory)
        is_new = self.disk.stat(f"{directory}/{name}") is None
        reason = explain(directory, name, raw, error, is_new=is_new)
        with self._exclusive():
            self.disk.make_dirs(slot)
            if self.disk.stat(f"{slot}/{_DIRECTORY}") is None:
                self._write(f"{slot}/{_DIRECTORY}", directory.encode(errors="surrogateescape"))
            parts = [content] if isinstance(content, bytes) else content
            self.disk.put(NewFile(f"{slot}/{_short(name)}{REJECTED}", parts))
            self._write(f"{slot}/{_short(name)}{REASON}", reason.encode(errors="replace"))
            self._note(f"{directory}/{name}", error)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Exclude other processes: a slot is deleted with its last file.

        Not re-entrant; only public methods use it.
        """
        self.disk.make_dirs(layout.REJECTS)
        with self.disk.open_dir(layout.REJECTS) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)  # released with the descriptor
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

    def make_directory(self) -> str:
        """Create the directory of all slots, to be watched; returns its path."""
        self.disk.make_dirs(layout.REJECTS)
        return layout.REJECTS

    def recent(self) -> bytes:
        """The latest rejections as JSON lines, newest last."""
        file = self.disk.read(f"{layout.REJECTS}/{RECENT}")
        return file.data if file else b""

    def names(self, where: Location | str) -> dict[str, str]:
        """The rejected files of a directory: displayed name → stored path."""
        slot = _slot(_path(where))
        return self._names(slot) if self.disk.is_there(slot) else {}  # a mount asks for each directory it lists

    def _names(self, slot: str) -> dict[str, str]:
        return {e.name: f"{slot}/{e.name}" for e in self.disk.entries(slot) if e.name.endswith((REJECTED, REASON))}

    def path(self, where: Location | str, shown: str) -> str | None:
        """The stored path of `session.json.rejected`, `session.json.error` and the like, or None."""
        if not shown.endswith((REJECTED, REASON)) or "/" in shown:
            return None
        path = f"{_slot(_path(where))}/{shown}"
        return path if self.disk.stat(path) is not None else None

    def remove(self, where: Location | str, shown: str) -> None:
        """Delete one file, on behalf of the user."""
        if self.path(where, shown) is not None:
            with self._exclusive():
                self._remove(_path(where), shown)

    def _remove(self, directory: str, shown: str) -> None:
        self.disk.remove(f"{_slot(directory)}/{shown}")
        if not self._names(_slot(directory)):
            self.disk.remove_tree(_slot(directory))

    def clear(self, where: Location | str, name: str) -> None:
        """Delete both files of a document that was saved or deleted."""
        with _log_only():
            if self.disk.stat(_slot(_path(where))) is None:  # mostly there are none
                return
            for part in (REJECTED, REASON):
                self.remove(where, f"{_short(name)}{part}")

    def clear_all(self, where: Location | str) -> None:
        """Delete the files of a deleted directory and of the directories below it."""
        with _log_only():
            if self.disk.directories(layout.REJECTS):
                with self._exclusive():
                    self._drop_below(_path(where))

    def _drop_below(self, directory: str) -> None:
        for below in list(self._below(directory)):
            self.disk.remove_tree(_slot(below))

    def purge(self, is_purged: Callable[[str, bytes], bool]) -> int:
        """Delete the rejected files for which `is_purged` is true of their path and content; returns their number.

        A text and its reason are deleted together. Matching lines of the list of recent rejections go too.
        """
        count = 0
        with self._exclusive():
            for slot in self.disk.directories(layout.REJECTS):
                count += self._purge_slot(f"{layout.REJECTS}/{slot}", is_purged)
            lines = self.recent().splitlines(keepends=True)
            kept = [line for line in lines if not is_purged(_path_in(line), line)]
            if len(kept) < len(lines):
                self._write(f"{layout.REJECTS}/{RECENT}", b"".join(kept))
        return count

    def _purge_slot(self, slot: str, is_purged: Callable[[str, bytes], bool]) -> int:
        found = self.disk.read(f"{slot}/{_DIRECTORY}")
        directory = found.data.decode(errors="surrogateescape") if found else ""
        names = {e.name.removesuffix(REJECTED).removesuffix(REASON) for e in self.disk.entries(slot)} - {_DIRECTORY}
        count = 0
        for name in names:
            files = [f"{slot}/{name}{part}" for part in (REJECTED, REASON)]
            contents = [file.data for path in files if (file := self.disk.read(path)) is not None]
            if any(is_purged(f"{directory}/{name}", data) for data in contents):
                count += 1
                for path in files:
                    if self.disk.stat(path) is not None:
                        self.disk.remove(path)
        if [entry.name for entry in self.disk.entries(slot)] == [_DIRECTORY]:
            self.disk.remove_tree(slot)
        return count

    def rename(self, where: Location | str, target: Location | str) -> None:
        """Move the files of a renamed directory and of the directories below it."""
        with _log_only():
            if self.disk.directories(layout.REJECTS):
                with self._exclusive():
                    self._rename(_path(where), _path(target))

    def _rename(self, old: str, new: str) -> None:
        self._drop_below(new)
        for directory in list(self._below(old)):
            moved = new + directory.removeprefix(old)
            self.disk.move(_slot(directory), _slot(moved))
            self._write(f"{_slot(moved)}/{_DIRECTORY}", moved.encode(errors="surrogateescape"))

    def _below(self, directory: str) -> Iterator[str]:
        """The directories at or below `directory` that have a slot.

        Scans all slots, which are few.
        """
        for name in self.disk.directories(layout.REJECTS):
            file = self.disk.read(f"{layout.REJECTS}/{name}/{_DIRECTORY}")
            path = file.data.decode(errors="surrogateescape") if file else ""
            if path == directory or path.startswith(f"{directory}/"):
                yield path


@contextmanager
def _log_only() -> Iterator[None]:
    """Log an OSError instead of raising it: the change itself has been committed."""
    try:
        yield
    except OSError as error:
        log.warning("earlier rejected files were not removed or moved: %s", error)


def is_reject(name: str) -> bool:
    """Whether a file name has the suffix of a rejected file."""
    return name.endswith((REJECTED, REASON))


def _path(where: Location | str) -> str:
    return where.dir if isinstance(where, Location) else where


def _slot(directory: str) -> str:
    digest = blake2b(directory.encode(errors="surrogateescape"), digest_size=12).hexdigest()
    return f"{layout.REJECTS}/{digest}"


def _short(name: str) -> str:
    """The name, shortened if it would be too long with the longer suffix."""
    raw = name.encode(errors="surrogateescape")
    if len(raw) + len(REJECTED) <= layout.MAX_NAME_BYTES:
        return name
    return f"{raw[:200].decode(errors='ignore')}-{blake2b(raw, digest_size=4).hexdigest()}"


def _path_in(line: bytes) -> str:
    """The path that a line of the list of recent rejections names."""
    try:
        return str(orjson.loads(line).get("path"))
    except (orjson.JSONDecodeError, AttributeError):
        return ""


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()


def explain(where: Location | str, name: str, raw: bytes, error: StoreError | OSError, *, is_new: bool = False) -> str:
    """The text of the .error file: path, reason, an excerpt of the document, and what to do."""
    from store.documents.merge import MergeConflict

    state = "nothing was created" if is_new else "the previous version is unchanged"
    outcome = f"was rejected; {state}"
    if isinstance(error, Unsure):
        outcome = "may or may not have been stored"
    if isinstance(error, FileGone):
        outcome = "was rejected; nothing was stored"
    lines = [f"{_path(where)}/{name} {outcome}.", "", *_reasons(error), ""]
    if isinstance(error, InvalidContent):
        lines += excerpt(raw, error)
    if isinstance(error, MergeConflict):
        lines += ["You and another writer changed the same thing:", "", *error.explain(), ""]
    if isinstance(error, FileGone):
        lines += [
            "If it was deleted, `grovefs trash` lists it and `grovefs undelete` restores it.",
            "Then, or under its new name, repeat your change.",
            "",
        ]
    elif isinstance(error, Conflict):
        lines += ["Read the present version and repeat your change.", ""]
    lines += [f"The rejected text is in {_short(name)}{REJECTED}; the next successful save deletes both files.", ""]
    return "\n".join(lines)


def _reasons(error: StoreError | OSError) -> Iterator[str]:
    """One line for each fault of a document, or the text of another error."""
    if not isinstance(error, InvalidContent) or not error.problem.others:
        yield f"  {error}"
        return
    for problem in (error.problem, *error.problem.others):
        yield f"  {error.name}:{'' if problem.line is not None else ' '}{problem.alone}"
    if error.problem.left_out:
        yield f"  and {error.problem.left_out} more"


def excerpt(raw: bytes, error: InvalidContent) -> list[str]:
    """The lines around the error with a caret below its position, and a blank line.

    Empty if the error has no position.
    """
    from store.documents.secrets import SecretRefused

    if error.problem.line is None or isinstance(error, SecretRefused):  # do not copy a secret into the text
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
