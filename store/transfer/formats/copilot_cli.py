"""Copilot CLI sessions: `~/.copilot/session-state/<session>/events.jsonl`, one event per line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from store.model.timestamp import Timestamp
from store.transfer.formats.anthropic_blocks import make_call
from store.transfer.formats.call_logs import TokenCounts, count_of
from store.transfer.formats.coerce import as_dict, as_list, as_str, parse_time, to_text
from store.transfer.formats.importer import Format, ImportProblem, Place, SessionTree, SourceUnit, read_units
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.session_files import file_units, find_files, new_builder, read_records, resume_records
from store.transfer.formats.source import Source

NAME = "copilot-cli"
_ROLES = {"user.message": "user", "assistant.message": "assistant", "system.message": "system"}


def _logs(source: Source) -> list[str]:
    return find_files(source, lambda path: path.endswith(".jsonl"), "session-state", 2)


def _is_log(source: Source, path: str) -> bool:
    head = source.head(path, 4096)
    return b'"session.start"' in head and b'"data"' in head


def recognise(source: Source) -> int | None:
    return 92 if any(_is_log(source, path) for path in _logs(source)) else None


def iter_units(source: Source) -> Iterator[SourceUnit]:
    return file_units(source, [path for path in _logs(source) if _is_log(source, path)], _read)


def find_units(source: Source, paths: Iterable[str]) -> Iterator[SourceUnit]:
    return file_units(source, [path for path in paths if path.endswith(".jsonl") and _is_log(source, path)], _read)


def _read(source: Source, path: str) -> Iterator[SessionTree | ImportProblem]:
    directory, _, name = path.rpartition("/")
    stem = name.removesuffix(".jsonl")
    builder = new_builder(NAME, source, path, directory.rpartition("/")[2] or stem if stem == "events" else stem)
    return read_records(source, path, builder, _add_event)


def _add_event(builder: SessionBuilder, event: dict[str, Any], raw: bytes, number: int) -> bool:
    """Add an event as a message; False if it is not one."""
    kind, data, at = as_str(event.get("type")), as_dict(event.get("data")), parse_time(event.get("timestamp"))
    builder.add_time(at)
    id = as_str(event.get("id")) or f"line-{number}"
    rest = {"parentId": event.get("parentId"), "type": kind}
    if kind == "session.start":
        context = as_dict(data.get("context"))
        builder.workspace, builder.git_branch = as_str(context.get("cwd")), as_str(context.get("branch"))
        builder.model = as_str(data.get("selectedModel")) or builder.model
    elif kind == "session.usage_record":
        _add_usage(builder, as_dict(data.get("usage")), at, id)
    elif kind in _ROLES:
        _add_message(builder, _ROLES[kind], data, id, at, rest, raw)
        return True
    elif kind == "tool.execution_complete" and isinstance(data.get("toolCallId"), str):
        _add_result(builder, data, id, at, rest, raw)
        return True
    return False


def _add_message(
    builder: SessionBuilder,
    role: str,
    data: dict[str, Any],
    id: str,
    at: Timestamp | None,
    rest: dict[str, Any],
    raw: bytes,
) -> None:
    requests = [as_dict(request) for request in as_list(data.get("toolRequests"))]
    calls = [make_call(as_str(r.get("toolCallId")), as_str(r.get("name")), r.get("arguments", {})) for r in requests]
    other = {key: value for key, value in data.items() if key not in ("content", "reasoningText")}
    builder.model = as_str(data.get("model")) or builder.model
    builder.add_message(
        role,
        as_str(data.get("content")),
        id=id,
        at=at,
        rest={**rest, "data": other},
        raw=raw,
        reasoning=as_str(data.get("reasoningText")) or None,
        tool_calls=calls or None,
    )


def _add_result(
    builder: SessionBuilder, data: dict[str, Any], id: str, at: Timestamp | None, rest: dict[str, Any], raw: bytes
) -> None:
    result = as_dict(data.get("result")) or as_dict(data.get("error"))
    content = result.get("content", result.get("message", ""))
    other = {key: value for key, value in data.items() if key not in ("toolCallId", "success")}
    builder.add_message(
        "tool",
        content if isinstance(content, str) else to_text(content),
        id=id,
        at=at,
        rest={**rest, "data": other},
        raw=raw,
        tool_call_id=data["toolCallId"],
        tool_success=data.get("success") is not False and _exit_code(data) == 0,
    )


def _exit_code(data: dict[str, Any]) -> int:
    code = as_dict(data.get("shellExecution")).get("exitCode")
    return code if isinstance(code, int) else 0


def _add_usage(builder: SessionBuilder, usage: dict[str, Any], at: Timestamp | None, id: str) -> None:
    """Cached tokens are part of the input."""
    cached, written = count_of(usage.get("cacheReadTokens")), count_of(usage.get("cacheWriteTokens"))
    counts = TokenCounts(
        input=max(0, count_of(usage.get("inputTokens")) - cached - written),
        output=count_of(usage.get("outputTokens")),
        cache_read=cached,
        cache_write=written,
    )
    answer = as_str(usage.get("apiCallId")) or id
    builder.logs.add_usage(answer, at, as_str(usage.get("model")) or builder.model, counts)


FORMAT = Format(
    NAME,
    "~/.copilot, or one events.jsonl file",
    recognise,
    lambda source: read_units(iter_units(source)),
    base="session-state",
    iter_units=iter_units,
    find_units=find_units,
    resume=partial(resume_records, NAME, _add_event),
    places=(Place("~/.copilot", "COPILOT_HOME"),),
)
