"""OpenCode sessions: the tables session, message and part of `~/.local/share/opencode/opencode.db`.

The database is opened read-only and never locked for writing. A message becomes one message and one more for each tool
result. Sessions with a parent become children.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apsw

from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.anthropic_blocks import make_call
from store.transfer.formats.call_logs import TokenCounts, count_of
from store.transfer.formats.codex_records import store_image
from store.transfer.formats.coerce import BadRecord, as_dict, as_str, make_id, make_title, parse, parse_time, to_text
from store.transfer.formats.importer import (
    Format,
    ImportProblem,
    Place,
    SessionDraft,
    SessionTree,
    SourceSession,
    iter_trees,
)
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.source import Source

NAME = "opencode"
_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True)
class _OpenCodeSession(SourceSession):
    """A row of the table session."""

    members: dict[str, Any]


def _databases(source: Source) -> list[str]:
    names = [entry.name for entry in source.entries() if entry.is_file and entry.name.endswith(".db")]
    return [name for name in names if "opencode" in name or source.name is not None]


def recognise(source: Source) -> int | None:
    for name in _databases(source):
        if source.head(name, 16) == _MAGIC:
            try:
                with _OpenCodeDatabase(source, name) as database:
                    return 94 if database.has_sessions() else None
            except apsw.Error:
                continue
    return None


def iter_records(source: Source) -> Iterator[SessionTree | ImportProblem]:
    for name in _databases(source):
        try:
            with _OpenCodeDatabase(source, name) as database:
                yield from iter_trees(source, NAME, database.iter_sessions(), database.read)
        except apsw.Error as error:
            yield ImportProblem(source.display_path(name), None, f"cannot be read as a database: {error}")
        source.done_bytes += source.size(name)


class _OpenCodeDatabase:
    """A database opened read-only: no journal is written, and a writer is never blocked."""

    def __init__(self, source: Source, name: str) -> None:
        self.path = source.display_path(name)
        self._db = apsw.Connection(
            f"file:{_quoted(str(source.root / name))}?mode=ro", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        self._db.set_busy_timeout(5_000)

    def __enter__(self) -> _OpenCodeDatabase:
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()

    def has_sessions(self) -> bool:
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        return {"session", "message", "part"} <= tables

    def iter_sessions(self) -> Iterator[_OpenCodeSession]:
        for row in self._rows("SELECT * FROM session ORDER BY id"):
            yield _OpenCodeSession(self.path, as_str(row.get("id")), as_str(row.get("parent_id")) or None, row)

    def _rows(self, query: str, *values: str) -> list[dict[str, Any]]:
        cursor, found = self._db.execute(query, values), []
        for row in cursor:
            names = [column[0] for column in cursor.get_description()]
            found.append(dict(zip(names, row, strict=True)))
        return found

    def read(
        self, source: Source, session: _OpenCodeSession, location: Location, depth: int
    ) -> Iterator[SessionDraft | ImportProblem]:
        builder = SessionBuilder(NAME, location, self.path, session.id)
        if location.child is not None and session.parent is not None:
            builder.parent, builder.depth = make_id(NAME, session.parent, location.root), depth
        _apply_session(builder, session.members)
        parts: dict[str, list[dict[str, Any]]] = {}
        for row in self._rows("SELECT * FROM part WHERE session_id = ? ORDER BY id", session.id):
            parts.setdefault(as_str(row.get("message_id")), []).append(row)
        for row in self._rows("SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id", session.id):
            try:
                _OpenCodeMessage(builder, row, parts.get(as_str(row.get("id")), [])).add()
            except BadRecord as error:
                yield ImportProblem(self.path, None, f"message {row.get('id')}: {error}; skipped")
        if builder.messages:
            yield builder.build(fallback=_milliseconds(session.members.get("time_updated")) or Timestamp.from_ns(0))


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _apply_session(builder: SessionBuilder, row: dict[str, Any]) -> None:
    builder.title = make_title(as_str(row.get("title")))
    builder.workspace = as_str(row.get("directory"))
    builder.subagent_type = (as_str(row.get("agent")) or None) if builder.location.child else None
    for key in ("time_created", "time_updated"):
        builder.add_time(_milliseconds(row.get(key)))
    for key, value in row.items():
        if key not in ("id", "parent_id", "title", "directory", "time_created", "time_updated") and value not in (
            None,
            0,
            "",
        ):
            builder.add_metadata(key, value)


class _OpenCodeMessage:
    """One row of the table message, with its parts."""

    def __init__(self, builder: SessionBuilder, row: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        self.builder = builder
        self.id = as_str(row.get("id"))
        self.data = _json(row.get("data"))
        self.at = _milliseconds(row.get("time_created"))
        self.parts = [_json(part.get("data")) for part in parts]

    def add(self) -> None:
        texts, thoughts, images, tools, other = [], [], [], [], []
        for part in self.parts:
            kind = part.get("type")
            if kind == "text" and isinstance(part.get("text"), str):
                texts.append(part["text"])
            elif kind == "reasoning" and isinstance(part.get("text"), str):
                thoughts.append(part["text"])
            elif kind == "tool" and isinstance(part.get("callID"), str):
                tools.append(part)
            elif kind == "file" and isinstance(part.get("url"), str):
                images.append({"type": "image_url", "image_url": {"url": store_image(self.builder, part["url"])}})
                other.append({key: value for key, value in part.items() if key != "url"})
            else:
                other.append(part)
        calls = [make_call(t["callID"], as_str(t.get("tool")), as_dict(t.get("state")).get("input", {})) for t in tools]
        rest = {key: value for key, value in self.data.items() if key != "role"}
        if other:
            rest["parts"] = other
        content = "\n\n".join(texts)
        shown = [{"type": "text", "text": text} for text in texts]
        self.builder.add_message(
            "assistant" if self.data.get("role") == "assistant" else "user",
            content,
            id=self.id,
            at=self.at,
            rest=rest,
            reasoning="\n\n".join(thoughts) or None,
            content_parts=[*shown, *images] if images else None,
            tool_calls=calls or None,
        )
        for number, tool in enumerate(tools):
            self._add_result(tool, f"{self.id}:{number + 1}")
        self._add_usage()

    def _add_result(self, tool: dict[str, Any], id: str) -> None:
        state = as_dict(tool.get("state"))
        if state.get("status") not in ("completed", "error"):
            return  # still running
        output = state.get("output", state.get("error", ""))
        rest = {key: value for key, value in state.items() if key not in ("input", "output", "error")}
        self.builder.add_message(
            "tool",
            output if isinstance(output, str) else to_text(output),
            id=id,
            at=_milliseconds(as_dict(state.get("time")).get("end")),
            rest=rest,
            tool_call_id=tool["callID"],
            tool_success=state.get("status") == "completed",
        )

    def _add_usage(self) -> None:
        self.builder.model = as_str(self.data.get("modelID")) or self.builder.model
        tokens = as_dict(self.data.get("tokens"))
        if not tokens:
            return
        cache, cost = as_dict(tokens.get("cache")), self.data.get("cost")
        reasoning = count_of(tokens.get("reasoning"))
        counts = TokenCounts(
            input=count_of(tokens.get("input")),
            output=count_of(tokens.get("output")) + reasoning,
            cache_read=count_of(cache.get("read")),
            cache_write=count_of(cache.get("write")),
            reasoning=reasoning,
        )
        priced = float(cost) if isinstance(cost, int | float) else None
        self.builder.logs.add_usage(self.id, self.at, self.builder.model, counts, priced)


def _json(text: Any) -> dict[str, Any]:
    return as_dict(parse(text.encode() if isinstance(text, str) else bytes(text or b"")).value)


def _milliseconds(value: Any) -> Timestamp | None:
    return parse_time(value / 1000) if isinstance(value, int) and not isinstance(value, bool) else None


FORMAT = Format(
    NAME,
    "~/.local/share/opencode, or its opencode.db",
    recognise,
    iter_records,
    places=(Place("~/.local/share", "XDG_DATA_HOME", "opencode"),),
)
