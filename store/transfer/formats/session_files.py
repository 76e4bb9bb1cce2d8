"""Formats with one file per session: find the files, read each, report what cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from store.errors import InvalidContent
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.coerce import BadRecord, make_id
from store.transfer.formats.file_position import FilePosition
from store.transfer.formats.importer import ImportProblem, ResumedFile, SessionTree, SourceUnit, read_problem
from store.transfer.formats.resuming import Cursor, make_cursor
from store.transfer.formats.session_builder import SessionBuilder, parse_line
from store.transfer.formats.source import Line, Source

ReadFile = Callable[[Source, str], Iterator[SessionTree | ImportProblem]]


def find_files(source: Source, wanted: Callable[[str], bool], base: str = "", levels: int = 6) -> list[str]:
    """The files below the base directory of an agent's home, or below the source, that are wanted by their path."""
    if source.name is not None:
        return [source.name]
    start = base if base and source.is_dir(base) else ""
    return [path for path in source.iter_files(start, levels) if wanted(path)]


def file_units(source: Source, paths: Iterable[str], read: ReadFile) -> Iterator[SourceUnit]:
    for path in paths:
        yield SourceUnit(path, (path,), partial(_read_file, source, path, read))


def _read_file(source: Source, path: str, read: ReadFile) -> Iterator[SessionTree | ImportProblem]:
    try:
        yield from read(source, path)
    except (OSError, BadRecord, InvalidContent) as error:
        yield read_problem(source, path, error)


def new_builder(format: str, source: Source, path: str, id: str) -> SessionBuilder:
    return SessionBuilder(format, Location(make_id(format, id)), source.display_path(path), id)


def built(source: Source, path: str, builder: SessionBuilder, cursor: Cursor | None = None) -> Iterator[SessionTree]:
    """The finished session; nothing if it has no messages."""
    if builder.messages:
        yield SessionTree(builder.build(fallback=file_time(source, path), cursor=cursor))


def file_time(source: Source, path: str) -> Timestamp:
    return Timestamp.from_ns(source.mtime_ns(path))


def read_lines(
    source: Source, path: str, read_line: Callable[[Line], None], position: FilePosition | None = None
) -> Iterator[ImportProblem]:
    """Read each line of a file. A line that cannot be read is a problem."""
    for line in source.iter_lines(path, position):
        try:
            read_line(line)
        except BadRecord as error:
            yield ImportProblem(source.display_path(path), line.number, str(error))


AddRecord = Callable[[SessionBuilder, dict[str, Any], bytes, int], bool]


@dataclass(frozen=True)
class RecordReader:
    """Read the lines of a JSONL file. `add` returns False for a record that is not a message: it is kept as raw text.

    It knows nothing of earlier lines but what the builder has, so it can be resumed anywhere.
    """

    builder: SessionBuilder
    add: AddRecord

    def read_line(self, line: Line) -> None:
        for raw, record, exact in parse_line(self.builder, line):
            if not self.add(self.builder, record, raw, line.number) or not exact:
                self.builder.keep_raw(raw)

    def finish(self) -> None:
        """Nothing is left to do after the last line."""

    def dump(self) -> dict[str, Any]:
        return {}


def read_records(
    source: Source, path: str, builder: SessionBuilder, add: AddRecord
) -> Iterator[SessionTree | ImportProblem]:
    """The session in a JSONL file."""
    reader, position = RecordReader(builder, add), FilePosition()
    yield from read_lines(source, path, reader.read_line, position)
    yield from built(source, path, builder, make_cursor(source, path, position, reader))


def resume_records(format: str, add: AddRecord, file: ResumedFile) -> RecordReader:
    path = file.source.display_path(file.path)
    return RecordReader(SessionBuilder(format, file.location, path, file.source_id), add)
