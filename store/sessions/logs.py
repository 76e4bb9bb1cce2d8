"""Append-only logs of a session: `token-usage.jsonl` and `trajectory.jsonl`.

An append writes whole lines under the session's lock, all or none. The trajectory has one line
per tool call. The number of a step is its line number, counted from 0, and never changes: a line
cut short by a crash keeps its number and is skipped by readers.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import orjson
import pydantic

from store import layout
from store.commit.commit import Commit
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.to_trash import NOTHING_KEPT, TrashPart, deletion_reason, is_worth_keeping, to_trash
from store.commit.write_request import UnfinishedCommit
from store.disk import append_log
from store.disk.file import NewFile
from store.disk.trash import LOG_REPLACED
from store.documents import json_text
from store.documents.document import type_problem
from store.errors import InvalidContent, NotFound, Problem
from store.index import changed_files
from store.layout import Location
from store.model.record import U64, Record
from store.model.timestamp import Timestamp

log = logging.getLogger("grovefs.store")


@dataclass(frozen=True)
class Logs:
    core: Core
    commits: Commits

    def append_log(self, session_id: str, name: str, record: str | dict[str, Any]) -> bool:
        """Append one line to a session's log. Returns False for an unknown id."""
        self.core.check_writable()
        location = self.core.locate(session_id)
        if location is None:
            return False
        return self.append_lines(location, name, _log_line(record, name) + b"\n")

    def append_lines(self, location: Location, name: str, lines: bytes) -> bool:
        """Append whole lines, all or none. Returns False if the session was deleted."""
        with self.core.locked(location):
            if self.core.disk.stat(location.path(layout.SESSION)) is None:
                return False
            path = location.path(name)
            # The write transaction begins before the append and commits after it: if it fails, the
            # lines are removed again.
            with append_log.appending(self.core.disk, path) as append, self.core.db.write() as db:
                self.core.feed.add(db, [location], "log")
                changed_files.note(db, [path])
                append(lines)
        self.core.on_commit()
        return True

    def remove_log(self, location: Location, path: str, why: str = "log deleted") -> None:
        """Move a log, or a file that is not the store's, to the trash.

        It is erased if it is not worth keeping.
        """
        with self.core.locked(location):
            info = self.core.disk.stat(path)
            if info is None:
                raise NotFound(f"{path} does not exist")
            if is_worth_keeping(path, info):
                self.commits.move_to_trash(location, path, deletion_reason(path, why), "log")
            else:
                self.commits.discard(location, [path], "log")

    def replace_log(self, location: Location, source: str, path: str) -> None:
        """Rename a file to the name of a log. A log that it replaces goes to the trash.

        Lines that a descriptor of the old log still appends in the home are added to the file in the trash.
        """
        with self.core.locked(location):
            part = self._replaced(location, path)
            commit = Commit(location, part.files, [(source, path)], dirs=part.dirs, links=part.links)
            self.commits.run(commit, None, "log")

    def truncate_log(self, location: Location, path: str, fd: int, size: int) -> None:
        """Truncate a log that is open as `fd`. The trash gets a copy with all of its lines first.

        Not on a full disk: the user is making room.
        """
        with self.core.locked(location):
            info, named = os.fstat(fd), self.core.disk.stat(path)
            if named is not None and named.st_ino == info.st_ino and size < info.st_size:
                part = self._replaced(location, path)
                mode = stat.S_IMODE(info.st_mode)
                copies = [
                    NewFile(kept, self.core.disk.iter_chunks(log), None, info.st_mtime_ns, mode)
                    for log, kept in part.links
                ]
                if copies:
                    self._keep(Commit(location, [*copies, *part.files], dirs=part.dirs))
            os.ftruncate(fd, size)

    def _keep(self, commit: Commit) -> None:
        try:
            self.commits.run(commit, None, "log")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or isinstance(error, UnfinishedCommit):
                raise

    def _replaced(self, location: Location, path: str) -> TrashPart:
        """The part of a commit that keeps the log it replaces."""
        info = self.core.disk.stat(path)
        if info is None or not is_worth_keeping(path, info):
            return NOTHING_KEPT
        row = self.core.index.find(location)
        return to_trash(location, LOG_REPLACED, linked=[path], title=row.entry.title if row else None)


def _log_line(record: str | dict[str, Any], name: str) -> bytes:
    """A record as one line without its newline; the caller may pass text with or without one."""
    try:
        line = record.rstrip("\n").encode() if isinstance(record, str) else orjson.dumps(record)
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidContent(name, Problem(f"the record cannot be encoded: {error}")) from None
    if b"\n" in line:
        raise InvalidContent(name, Problem("the record has more than one line"))
    return line


# -- trajectory ------------------------------------------------------------------------------------


class TrajectoryStep(Record):
    """One tool call."""

    tool_name: str
    tool_args: Any
    output_summary: str
    duration_ms: U64
    is_error: bool
    tool_call_id: str
    timestamp: Timestamp  # start of the call


class StepRange(NamedTuple):
    """A half-open range of step numbers.

    A message can store one to name the steps that led to its answer.
    """

    start: int
    end: int


@dataclass(frozen=True)
class Trajectory:
    core: Core
    logs: Logs

    def append(self, session_id: str, steps: Iterable[TrajectoryStep | dict[str, Any]]) -> StepRange | None:
        """Append steps, all or none. Returns their numbers, or None for an unknown id.

        The session was used when the last step started: its `updated_at` is set to that time, if
        it is not later already.
        """
        checked = [_checked_step(step) for step in steps]
        lines = [_step_line(step) for step in checked]
        self.core.check_writable()
        location = self.core.locate(session_id)
        if location is None:
            return None
        with self.core.locked(location):
            start = self._count(location)
            if lines and not self.logs.append_lines(location, layout.TRAJECTORY, b"".join(lines)):
                return None
            if lines:
                self.logs.commits.touch(location, max((step.timestamp for step in checked), key=lambda at: at.ns))
        return StepRange(start, start + len(lines))

    def read(self, session_id: str, start: int = 0, end: int | None = None) -> list[TrajectoryStep] | None:
        """Steps in a range, with the semantics of a slice: `read(id, -10)` returns the last ten.

        Returns None for an unknown id.
        """
        location = self.core.locate(session_id)
        if location is None:
            return None
        if start < 0 or (end is not None and end < 0):
            start, end, _ = slice(start, end).indices(self._count(location))
        lines = islice(self._lines(location), start, end)
        path = location.path(layout.TRAJECTORY)
        steps = [_parse_step(line, path, number) for number, line in enumerate(lines, start)]
        return [step for step in steps if step is not None]

    def count(self, session_id: str) -> int | None:
        """Number of steps, or None for an unknown id."""
        location = self.core.locate(session_id)
        return None if location is None else self._count(location)

    def unreadable(self, location: Location) -> Iterator[tuple[int, str]]:
        """Lines that readers skip: their number, starting at 1, and why."""
        path = location.path(layout.TRAJECTORY)
        for number, line in enumerate(self._lines(location), 1):
            try:
                _parse_line(line, path)
            except InvalidContent as error:
                yield number, error.problem.without_positions().alone

    def _count(self, location: Location) -> int:
        """Number of lines.

        The last may lack its newline: the next append then starts a new line.
        """
        count, last = 0, b"\n"
        for chunk in self._chunks(location):
            count += chunk.count(b"\n")
            last = chunk[-1:]
        return count + (last != b"\n")

    def _lines(self, location: Location) -> Iterator[bytes]:
        rest = b""
        for chunk in self._chunks(location):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
        if rest:
            yield rest

    def _chunks(self, location: Location) -> Iterator[bytes]:
        """The log in chunks; nothing if there is no log."""
        try:
            yield from self.core.disk.iter_chunks(location.path(layout.TRAJECTORY))
        except FileNotFoundError:
            return


def _checked_step(step: TrajectoryStep | dict[str, Any]) -> TrajectoryStep:
    """A step validated as a reader would: assigning to a record's field checks nothing."""
    members = step.model_dump(warnings=False) if isinstance(step, TrajectoryStep) else step
    try:
        raw = json_text.render_compact(members)
        json_text.parse(raw, layout.TRAJECTORY)
        return TrajectoryStep.model_validate(members)
    except pydantic.ValidationError as error:
        raise InvalidContent(layout.TRAJECTORY, type_problem(error)) from None
    except TypeError as error:  # orjson: a lone surrogate, or an object without a JSON type
        raise InvalidContent(layout.TRAJECTORY, Problem(str(error))) from None


def _step_line(step: TrajectoryStep) -> bytes:
    return json_text.render_compact(step.model_dump()) + b"\n"


def _parse_step(line: bytes, path: str, number: int) -> TrajectoryStep | None:
    try:
        return _parse_line(line, path)
    except InvalidContent:
        log.warning("%s: skipping step %d: it cannot be parsed", path, number)
        return None


def _parse_line(line: bytes, path: str) -> TrajectoryStep | None:
    """The step of a line; None for an empty line, which an editor may add."""
    if not line.strip():
        return None
    try:
        return TrajectoryStep.model_validate(json_text.parse(line, path))
    except pydantic.ValidationError as error:
        raise InvalidContent(path, type_problem(error)) from None
