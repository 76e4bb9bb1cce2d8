"""Qwen Code sessions: `~/.qwen/projects/<project>/chats/<session>.jsonl`, with the parts of the Gemini API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from store.transfer.formats.coerce import as_dict, as_str, parse_time
from store.transfer.formats.gemini_parts import read_parts, result_text, token_counts
from store.transfer.formats.importer import Format, ImportProblem, Place, SessionTree, SourceUnit, read_units
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.session_files import file_units, find_files, new_builder, read_records, resume_records
from store.transfer.formats.source import Source

NAME = "qwen-code"
_ROLES = {"user": "user", "assistant": "assistant", "tool_result": "tool"}
_MAPPED = ("type", "uuid", "timestamp", "message", "sessionId", "cwd", "version", "model", "usageMetadata")


def _chats(source: Source) -> list[str]:
    return find_files(source, lambda path: path.endswith(".jsonl"), "projects", 4)


def _is_chat(source: Source, path: str) -> bool:
    head = source.head(path, 16 * 1024)
    return b'"parentUuid"' in head and b'"parts"' in head and b'"isSidechain"' not in head


def recognise(source: Source) -> int | None:
    return 85 if any(_is_chat(source, path) for path in _chats(source)) else None


def iter_units(source: Source) -> Iterator[SourceUnit]:
    return file_units(source, [path for path in _chats(source) if _is_chat(source, path)], _read)


def find_units(source: Source, paths: Iterable[str]) -> Iterator[SourceUnit]:
    return file_units(source, [path for path in paths if path.endswith(".jsonl") and _is_chat(source, path)], _read)


def _read(source: Source, path: str) -> Iterator[SessionTree | ImportProblem]:
    builder = new_builder(NAME, source, path, path.rpartition("/")[2].removesuffix(".jsonl"))
    return read_records(source, path, builder, _add_record)


def _add_record(builder: SessionBuilder, record: dict[str, Any], raw: bytes, number: int) -> bool:
    """Add a record as a message; False if it is not one."""
    at, role = parse_time(record.get("timestamp")), _ROLES.get(as_str(record.get("type")))
    builder.add_time(at)
    builder.workspace = builder.workspace or as_str(record.get("cwd"))
    message = as_dict(record.get("message"))
    if role is None or not isinstance(message.get("parts"), list):
        return False
    content = read_parts(message["parts"], builder)
    rest: dict[str, Any] = {key: value for key, value in record.items() if key not in _MAPPED}
    if content.unknown:
        rest["parts"] = content.unknown
    id = as_str(record.get("uuid")) or f"line-{number}"
    outcome = as_dict(record.get("toolCallResult"))
    for position, result in enumerate(content.results):
        builder.add_message(
            "tool",
            result_text(result),
            id=f"{id}:{position}" if position else id,
            at=at,
            rest={} if position else rest,
            raw=raw,
            tool_call_id=result["id"],
            tool_success=outcome.get("status") not in ("error", "cancelled"),
        )
    if not content.results:
        builder.add_message(role, content.text, id=id, at=at, rest=rest, raw=raw, **content.members())
    _add_usage(builder, record, id)
    return True


def _add_usage(builder: SessionBuilder, record: dict[str, Any], id: str) -> None:
    builder.model = as_str(record.get("model")) or builder.model
    tokens = as_dict(record.get("usageMetadata"))
    if tokens:
        keys = ("promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount", "thoughtsTokenCount")
        builder.logs.add_usage(id, parse_time(record.get("timestamp")), builder.model, token_counts(tokens, *keys))


FORMAT = Format(
    NAME,
    "~/.qwen, or one file in its chats/",
    recognise,
    lambda source: read_units(iter_units(source)),
    base="projects",
    iter_units=iter_units,
    find_units=find_units,
    resume=partial(resume_records, NAME, _add_record),
    places=(Place("~/.qwen"),),
)
