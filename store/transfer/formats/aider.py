"""Aider chat histories: `.aider.chat.history.md`, Markdown with one heading per session.

Lines that begin with `####` are prompts, `>` lines are output of the program, and the rest are answers. Times are only
known for the start of a session, and tool calls are not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from store.layout import Location
from store.transfer.formats.coerce import digest, make_id, parse_time
from store.transfer.formats.importer import Format, ImportProblem, SessionTree, SourceUnit, read_units
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.session_files import file_time, file_units
from store.transfer.formats.source import Source

NAME = "aider"
_FILE = ".aider.chat.history.md"
_START = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\s*$", re.MULTILINE)
_MODEL = re.compile(r"^> (?:Main model|Model): (\S+)", re.MULTILINE)


def _histories(source: Source) -> list[str]:
    if source.name is not None:
        return [source.name] if source.name.endswith(".md") else []
    return [_FILE] if source.is_file(_FILE) else []


def recognise(source: Source) -> int | None:
    found = any(b"# aider chat started at" in source.head(path) for path in _histories(source))
    return 80 if found else None


def iter_units(source: Source) -> Iterator[SourceUnit]:
    return file_units(source, _histories(source), _read)


def _read(source: Source, path: str) -> Iterator[SessionTree | ImportProblem]:
    text = source.read(path).decode(errors="replace")
    starts = [*_START.finditer(text)]
    workspace = str(source.root)
    for start, end in zip(starts, [*(m.start() for m in starts[1:]), len(text)], strict=True):
        name = f"{digest(workspace)[:8]}-{start[1]}T{start[2].replace(':', '-')}"
        builder = SessionBuilder(NAME, Location(make_id(NAME, f"aider-{name}")), source.display_path(path), name)
        builder.workspace = workspace
        builder.add_time(parse_time(f"{start[1]}T{start[2]}"))
        body = text[start.end() : end]
        model = _MODEL.search(body)
        builder.model = model[1] if model else ""
        for number, (role, content) in enumerate(_messages(body)):
            builder.add_message(role, content, id=f"message-{number}")
        if builder.messages:
            yield SessionTree(builder.build(fallback=file_time(source, path)))


def _messages(body: str) -> Iterator[tuple[str, str]]:
    """The roles and texts of a session, consecutive lines of one kind together."""
    role, lines = "", list[str]()
    for line in body.splitlines():
        kind, content = _kind(line, role)
        if kind != role:
            if "\n".join(lines).strip():
                yield role, "\n".join(lines).strip()
            role, lines = kind, []
        lines.append(content)
    if "\n".join(lines).strip():
        yield role, "\n".join(lines).strip()


def _kind(line: str, before: str) -> tuple[str, str]:
    if line.startswith("#### "):
        return "user", line.removeprefix("#### ").rstrip()
    if line.startswith("> ") or line == ">":
        return "system", line[2:].rstrip()
    if not line.strip() and before:
        return before, ""
    return "assistant", line


FORMAT = Format(
    NAME,
    "a directory with .aider.chat.history.md, or this file",
    recognise,
    lambda source: read_units(iter_units(source)),
    iter_units=iter_units,
    is_scattered=True,
)
