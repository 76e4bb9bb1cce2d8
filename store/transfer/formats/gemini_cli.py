"""Gemini CLI sessions: `~/.gemini/tmp/<project>/chats/session-*.jsonl`, earlier one .json file per session.

A later line with the id of an earlier message replaces it, `$set` lines set members of the session, and `$rewindTo`
names the first message that a rewind abandoned. Tool calls are stored with their results in the message that made them.
Sub-agents are in `chats/<session>/<agent>.jsonl`; the call that started one has its id as `agentId`. The workspace is
in `<project>/.project_root`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson

from store.errors import InvalidContent
from store.layout import Location
from store.transfer.formats.anthropic_blocks import make_call
from store.transfer.formats.coerce import BadRecord, as_dict, as_list, as_str, parse, parse_time
from store.transfer.formats.gemini_parts import read_parts, result_text, token_counts
from store.transfer.formats.importer import (
    Format,
    ImportProblem,
    Place,
    SessionDraft,
    SourceSession,
    SourceUnit,
    group_by_root,
    read_problem,
    read_tree,
    read_units,
)
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.session_files import file_time, find_files, read_lines
from store.transfer.formats.source import Line, Source

NAME = "gemini-cli"
_ID = re.compile(rb'"sessionId":\s*"([^"]+)"')
_ROLES = {"user": "user", "gemini": "assistant"}
_MAPPED = ("id", "timestamp", "type", "content", "thoughts", "toolCalls", "model")


def _chats(source: Source) -> list[str]:
    """The files of sessions and sub-agents. A .json file that was continued as .jsonl is left out: all is in that."""
    found = set(find_files(source, lambda path: path.endswith((".jsonl", ".json")), "tmp", 4))
    return sorted(path for path in found if f"{path}l" not in found and _is_chat(source, path))


def _is_chat(source: Source, path: str) -> bool:
    if not (source.name or path.rpartition("/")[2].startswith("session-") or _is_agent(source, path)):
        return False
    head = source.head(path, 4096)
    return b'"projectHash"' in head and b'"sessionId"' in head


def _is_agent(source: Source, path: str) -> bool:
    """Whether a file is one of `chats/<session>/`."""
    return path.endswith(".jsonl") and f"{source.root.name}/{path}".split("/")[-3:-2] == ["chats"]


def recognise(source: Source) -> int | None:
    return 92 if _chats(source) else None


def iter_units(source: Source) -> Iterator[SourceUnit]:
    for root, below in group_by_root([_find_session(source, path) for path in _chats(source)]):
        files = (root.path, *(agent.path for agent, _ in below))
        workspace = _workspace(source, root.path)
        calls: dict[str, str] = {}
        read = partial(_read, workspace=workspace, calls=calls)
        yield SourceUnit(root.path, files, partial(read_tree, source, NAME, root, below, read), state=workspace)


def _find_session(source: Source, path: str) -> SourceSession:
    directory, _, name = path.rpartition("/")
    id = _ID.search(source.head(path, 4096))
    parent = directory.rpartition("/")[2] if _is_agent(source, path) else None
    return SourceSession(path, id[1].decode(errors="replace") if id else name.partition(".")[0], parent)


def _workspace(source: Source, path: str) -> str:
    project, chats, _ = f"/{path}".rpartition("/chats/")
    return source.head(f"{project}/.project_root"[1:]).decode(errors="replace").strip() if chats else ""


def _read(
    source: Source, session: SourceSession, location: Location, depth: int, *, workspace: str, calls: dict[str, str]
) -> Iterator[SessionDraft | ImportProblem]:
    """Read one file. `calls` are those that started sub-agents, by the id of the agent; the session's are added."""
    chat = _GeminiChat()
    try:
        if session.path.endswith(".json"):
            chat.apply(as_dict(parse(source.read(session.path)).value))
        else:
            yield from read_lines(source, session.path, chat.read_line)
    except (OSError, BadRecord, InvalidContent) as error:
        yield read_problem(source, session.path, error)
        return
    builder = SessionBuilder(NAME, location, source.display_path(session.path), session.id)
    builder.workspace = workspace
    builder.depth = max(depth, 1)
    builder.spawned_by = calls.get(session.id)
    for raw in chat.broken:
        builder.keep_raw(raw)
    _apply_header(builder, chat.header)
    for id, message in chat.messages.items():
        known = len(builder.messages)
        _add_message(builder, message)
        if id in chat.abandoned:
            for added in builder.messages[known:]:
                builder.note(added, "abandoned", True)
        calls |= {
            as_str(call["agentId"]): as_str(call.get("id"))
            for call in map(as_dict, as_list(message.get("toolCalls")))
            if "agentId" in call
        }
    if builder.messages:
        yield builder.build(fallback=file_time(source, session.path))


class _GeminiChat:
    """The session as its lines leave it: the last state of each message."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.messages: dict[str, dict[str, Any]] = {}
        self.abandoned: set[str] = set()  # ids of messages before which the session continued
        self.broken: list[bytes] = []

    def read_line(self, line: Line) -> None:
        try:
            record = as_dict(parse(line.data or b"").value)
        except BadRecord as error:
            self.broken.append(line.data or b"")
            raise BadRecord(f"{error}; kept as raw text in records.jsonl") from None
        if isinstance(record.get("$set"), dict):
            self.apply(record["$set"])
        elif isinstance(record.get("$rewindTo"), str):
            self._rewind(record["$rewindTo"])
        elif isinstance(record.get("type"), str) and isinstance(record.get("id"), str):
            self._put(record["id"], record)
        else:
            self.apply(record)

    def _rewind(self, id: str) -> None:
        """Abandon the messages from this one on; all of them if it is unknown, as Gemini CLI does."""
        ids = [*self.messages]
        self.abandoned |= {*ids[ids.index(id) if id in self.messages else 0 :]}

    def _put(self, id: str, message: dict[str, Any]) -> None:
        if id in self.abandoned:  # said again, after the rewind
            self.abandoned.remove(id)
            del self.messages[id]
        self.messages[id] = message

    def apply(self, members: dict[str, Any]) -> None:
        for message in map(as_dict, as_list(members.get("messages"))):
            self._put(as_str(message.get("id")) or f"message-{len(self.messages)}", message)
        self.header |= {key: value for key, value in members.items() if key != "messages"}


def _apply_header(builder: SessionBuilder, header: dict[str, Any]) -> None:
    builder.add_time(parse_time(header.get("startTime")))
    builder.add_time(parse_time(header.get("lastUpdated")))
    builder.title = as_str(header.get("summary"))
    builder.workspace = builder.workspace or next(map(as_str, as_list(header.get("directories"))), "")
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
