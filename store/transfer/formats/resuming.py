"""Reading on: what a format needs to read only the new lines of a log.

After a session was imported, its receipt has a cursor: the position in the file and the state of the reader. New lines
are read by a reader that is restored from it. Lines that change what earlier lines made (a rewind, a queued prompt that
was delivered, the result of a sub-agent) raise NeedsWholeFile, and the source is imported as a whole.
"""

from __future__ import annotations

from typing import Any, Protocol

import orjson

from store.transfer.formats.file_position import FilePosition
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.source import Line, Source

VERSION = 1  # of the cursors; those of another version are not used
_MAX_BYTES = 1024 * 1024  # of a cursor: it is rewritten with every new line

Cursor = dict[str, Any]


class NeedsWholeFile(Exception):
    """The new lines cannot be imported alone."""


class LineReader(Protocol):
    """Reads lines into a session."""

    @property
    def builder(self) -> SessionBuilder: ...

    def read_line(self, line: Line) -> None:
        """Raises BadRecord for a line that cannot be read."""

    def finish(self) -> None:
        """Complete the session after the last line."""

    def dump(self) -> Any:
        """The state of the reader as JSON, after `finish`; None if the next lines need all lines."""


def make_cursor(source: Source, path: str, position: FilePosition, reader: LineReader) -> Cursor | None:
    """The cursor after a file was read to its end; None if its next lines cannot be read alone."""
    if position.is_short or not position.ends_line:
        return None
    state, builder = reader.dump(), reader.builder.dump()
    if state is None or builder is None:
        return None
    file = {"path": source.display_path(path), **position.to_json()}
    cursor = {"version": VERSION, "file": file, "reader": state, "builder": builder}
    return cursor if len(orjson.dumps(cursor)) <= _MAX_BYTES else None
