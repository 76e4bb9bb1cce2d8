"""Gemini CLI sessions: `~/.gemini/tmp/<project>/chats/session-*.jsonl`, earlier one .json file per session.

A later line with the id of an earlier message replaces it, and `$set` lines set members of the session. Tool calls are
stored with their results in the message that made them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from store.transfer.formats.anthropic_blocks import make_call
from store.transfer.formats.coerce import BadRecord, as_dict, as_list, as_str, parse, parse_time
from store.transfer.formats.gemini_parts import read_parts, result_text, token_counts
from store.transfer.formats.importer import Format, ImportProblem, Place, SessionTree, SourceUnit, read_units
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.session_files import built, file_units, find_files, new_builder, read_lines
from store.transfer.formats.source import Line, Source

NAME = "gemini-cli"
_ROLES = {"user": "user", "gemini": "assistant"}
_MAPPED = ("id", "timestamp", "type", "content", "thoughts", "toolCalls", "model")


def _chats(source: Source) -> list[str]:
    return find_files(source, lambda path: "session-" in path and path.endswith((".jsonl", ".json")), "tmp", 4)


def _is_chat(source: Source, path: str) -> bool:
    head = source.head(path, 4096)
    return b'"projectHash"' in head and b'"sessionId"' in head


def recognise(source: Source) -> int | None:
    return 92 if any(_is_chat(source, path) for path in _chats(source)) else None


def iter_units(source: Source) -> Iterator[SourceUnit]:
    return file_units(source, [path for path in _chats(source) if _is_chat(source, path)], _read)


def _read(source: Source, path: str) -> Iterator[SessionTree | ImportProblem]:
    chat = _GeminiChat()
    if path.endswith(".json"):
        chat.apply(as_dict(parse(source.read(path)).value))
    else:
        yield from read_lines(source, path, chat.read_line)
    id = as_str(chat.header.get("sessionId")) or path.rpartition("/")[2].partition(".")[0]
    builder = new_builder(NAME, source, path, id)
    for raw in chat.broken:
        builder.keep_raw(raw)
    _apply_header(builder, chat.header)
    for message in chat.messages.values():
        _add_message(builder, message)
    yield from built(source, path, builder)


class _GeminiChat:
    """The session as its lines leave it: the last state of each message."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.messages: dict[str, dict[str, Any]] = {}
        self.broken: list[bytes] = []

    def read_line(self, line: Line) -> None:
        try:
            record = as_dict(parse(line.data or b"").value)
        except BadRecord as error:
            self.broken.append(line.data or b"")
            raise BadRecord(f"{error}; kept as raw text in records.jsonl") from None
        if isinstance(record.get("$set"), dict):
            self.apply(record["$set"])
        elif isinstance(record.get("type"), str) and isinstance(record.get("id"), str):
            self.messages[record["id"]] = record
        else:
            self.apply(record)

    def apply(self, members: dict[str, Any]) -> None:
        for message in map(as_dict, as_list(members.get("messages"))):
            self.messages[as_str(message.get("id")) or f"message-{len(self.messages)}"] = message
        self.header |= {key: value for key, value in members.items() if key != "messages"}


def _apply_header(builder: SessionBuilder, header: dict[str, Any]) -> None:
    builder.add_time(parse_time(header.get("startTime")))
    builder.add_time(parse_time(header.get("lastUpdated")))
    builder.title = as_str(header.get("summary"))
    for key, value in header.items():
        if key not in ("sessionId", "startTime", "lastUpdated"):
            builder.add_metadata(key, value)


def _add_message(builder: SessionBuilder, message: dict[str, Any]) -> None:
    role = _ROLES.get(as_str(message.get("type")), "system")
    at, id = parse_time(message.get("timestamp")), as_str(message.get("id"))
    content = read_parts(message.get("content", ""), builder)
    thoughts = [
        f"{as_str(t.get('subject'))}\n{as_str(t.get('description'))}"
        for t in map(as_dict, as_list(message.get("thoughts")))
    ]
    content.thoughts += thoughts
    calls = [as_dict(call) for call in as_list(message.get("toolCalls"))]
    content.calls += [make_call(as_str(c.get("id")), as_str(c.get("name")), c.get("args", {})) for c in calls]
    if content.results and not content.texts:
        return  # repeats the results that the message with the calls has
    rest = {key: value for key, value in message.items() if key not in _MAPPED}
    if content.unknown:
        rest["parts"] = content.unknown
    if role == "system":
        rest["type"] = message.get("type")
    is_generated = content.text.startswith("<session_context>")
    builder.add_message(
        role,
        content.text,
        id=id,
        at=at,
        rest=rest,
        raw=orjson.dumps(message),
        is_generated=is_generated,
        **content.members(),
    )
    for number, call in enumerate(calls):
        _add_result(builder, call, f"{id}:{number + 1}")
    _add_usage(builder, message)


def _add_result(builder: SessionBuilder, call: dict[str, Any], id: str) -> None:
    found = read_parts(as_list(call.get("result")), builder)
    text = "\n\n".join([*found.texts, *map(result_text, found.results)])
    rest = {key: value for key, value in call.items() if key not in ("id", "name", "args", "result", "timestamp")}
    success = call.get("status") not in ("error", "cancelled")
    builder.add_message(
        "tool",
        text,
        id=id,
        at=parse_time(call.get("timestamp")),
        rest=rest,
        tool_call_id=as_str(call.get("id")),
        tool_success=success,
    )


def _add_usage(builder: SessionBuilder, message: dict[str, Any]) -> None:
    builder.model = as_str(message.get("model")) or builder.model
    tokens = as_dict(message.get("tokens"))
    if tokens:
        counts = token_counts(tokens, "input", "output", "cached", "thoughts")
        builder.logs.add_usage(as_str(message.get("id")), parse_time(message.get("timestamp")), builder.model, counts)


FORMAT = Format(
    NAME,
    "~/.gemini, or one session-*.jsonl file",
    recognise,
    lambda source: read_units(iter_units(source)),
    base="tmp",
    iter_units=iter_units,
    places=(Place("~/.gemini"),),
)
