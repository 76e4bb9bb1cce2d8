"""What an agent did, step by step: `trajectory.jsonl`, one tool call a line, appended and read by range.

A step's number is its line, counted from 0, and stays its number: a line that a crash cut off keeps its place and is
left out when it is read. Appending a batch is one write under the session's lock, so that its steps stay together.
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

import pydantic

from store import layout
from store.commit.core import Core
from store.disk.file_io import iter_chunks
from store.documents import json_text
from store.documents.document import type_problem
from store.errors import Corrupt, InvalidContent, Problem
from store.layout import Location
from store.model.record import U64, Record
from store.model.timestamp import Timestamp
from store.sessions.attachments import Beside

log = logging.getLogger("grovefs.store")

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TrajectoryStep(Record):
    """One call of a tool (FORMATS F.2)."""

    tool_name: str
    tool_args: Any
    output_summary: str
    duration_ms: U64
    is_error: bool
    tool_call_id: str
    timestamp: Timestamp  # when the call began


class StepRange(NamedTuple):
    """The numbers of some steps, the end not included: what an answer may keep to say what was done for it."""

    start: int
    end: int


@dataclass(frozen=True)
class Trajectory:
    core: Core
    beside: Beside

    def append(self, session_id: str, steps: Iterable[TrajectoryStep | dict[str, Any]]) -> StepRange | None:
        """Add steps at the end, all or none; their numbers, or None for an unknown id."""
        lines = [_line(step) for step in steps]
        self.core.check_writable()
        location = self.core.locate(session_id)
        if location is None:
            return None
        with self.core.locked(location):
            start = self._count(location)
            if lines and not self.beside.append_lines(location, layout.TRAJECTORY, b"".join(lines)):
                return None
        return StepRange(start, start + len(lines))

    def read(self, session_id: str, start: int = 0, end: int | None = None) -> list[TrajectoryStep] | None:
        """Steps by number, as a slice takes them: `read(id, -10)` is the last ten. None for an unknown id."""
        location = self.core.locate(session_id)
        if location is None:
            return None
        if start < 0 or (end is not None and end < 0):
            start, end, _ = slice(start, end).indices(self._count(location))
        lines = islice(self._lines(location), start, end)
        path = location.path(layout.TRAJECTORY)
        steps = [_parse(line, path, number) for number, line in enumerate(lines, start)]
        return [step for step in steps if step is not None]

    def count(self, session_id: str) -> int | None:
        """How many steps there are; None for an unknown id."""
        location = self.core.locate(session_id)
        return None if location is None else self._count(location)

    def _count(self, location: Location) -> int:
        """Lines, of which the last may lack its end: the next append begins a new one then."""
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
        """The log piece by piece; nothing if there is none."""
        path = location.path(layout.TRAJECTORY)
        try:
            with self.core.disk.open_dir(location.dir) as parent:
                fd = os.open(layout.TRAJECTORY, _READ, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise Corrupt(path, Problem("not a plain file; links are not followed")) from None
            raise
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Corrupt(path, Problem("not a plain file; links are not followed"))
            yield from iter_chunks(fd)
        finally:
            os.close(fd)


def _line(step: TrajectoryStep | dict[str, Any]) -> bytes:
    """A step as its line; checked as it will be read, for a record takes whatever is assigned to it."""
    members = step.model_dump(warnings=False) if isinstance(step, TrajectoryStep) else step
    try:
        raw = json_text.render_compact(members)
        json_text.parse(raw, layout.TRAJECTORY)
        return json_text.render_compact(TrajectoryStep.model_validate(members).model_dump()) + b"\n"
    except pydantic.ValidationError as error:
        raise InvalidContent(layout.TRAJECTORY, type_problem(error)) from None
    except TypeError as error:  # orjson: a lone surrogate, an object of no JSON type
        raise InvalidContent(layout.TRAJECTORY, Problem(str(error))) from None


def _parse(line: bytes, path: str, number: int) -> TrajectoryStep | None:
    if not line.strip():  # an editor's
        return None
    try:
        return TrajectoryStep.model_validate(json_text.parse(line, path))
    except (InvalidContent, pydantic.ValidationError):
        log.warning("%s: step %d cannot be read and is left out", path, number)
        return None
