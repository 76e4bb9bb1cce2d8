"""Codex sessions: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, one thread per file.

There are two generations: lines of `{timestamp, type, payload}`, and older files with bare items after a first line of
session metadata. Response items become messages in file order. Events (which repeat them for display), turn contexts
and everything else are kept in records.jsonl. A thread spawned by another becomes a child below the same root, at any
depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from store.documents import attachment_names
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.anthropic_blocks import make_call
from store.transfer.formats.coerce import BadRecord, as_dict, as_list, as_str, make_id, parse, parse_time, to_text
from store.transfer.formats.importer import (
    Format,
    ImportProblem,
    SessionDraft,
    SessionTree,
    SourceSession,
    iter_trees,
    read_problem,
)
from store.transfer.formats.session_builder import SessionBuilder, parse_line
from store.transfer.formats.source import Line, Source

NAME = "codex"
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system", "tool": "tool"}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_CALLS |= {"web_search_call": "action", "tool_search_call": "arguments"}


@dataclass(frozen=True)
class _Thread(SourceSession):
    """A rollout file with the metadata that its first lines state."""

    meta: dict[str, Any]


def _rollouts(source: Source) -> list[str]:
    base = "sessions" if source.name is None and source.is_dir("sessions") else ""
    archived = "archived_sessions" if source.name is None and source.is_dir("archived_sessions") else ""
    found = [*source.iter_files(base), *(source.iter_files(archived) if archived and base else ())]
    return [path for path in found if path.rpartition("/")[2].startswith("rollout-") and path.endswith(".jsonl")]


def recognise(source: Source) -> int | None:
    return 95 if any(_find_meta(source, path) for path in _rollouts(source)) else None


def _find_meta(source: Source, path: str) -> dict[str, Any] | None:
    """The session metadata in the first 20 lines of a file; None if there is none."""
    try:
        for line in source.iter_lines(path):
            if line.number > 20:
                break
            try:
                record = as_dict(parse(line.data or b"").value)
            except BadRecord:
                continue
            if record.get("type") == "session_meta":
                return as_dict(record.get("payload"))
            if "type" not in record and isinstance(record.get("id"), str):
                return record
    except OSError:
        return None
    return None


def _read_thread(source: Source, path: str) -> _Thread:
    meta = _find_meta(source, path) or {}
    name = path.rpartition("/")[2].removeprefix("rollout-").removesuffix(".jsonl")
    parent = as_str(_spawn_record(meta).get("parent_thread_id")) or as_str(meta.get("parent_thread_id"))
    return _Thread(path, as_str(meta.get("id")) or name, parent or None, meta)


def _spawn_record(meta: dict[str, Any]) -> dict[str, Any]:
    """How another thread spawned this one; empty for a root."""
    return as_dict(as_dict(as_dict(meta.get("source")).get("subagent")).get("thread_spawn"))


def iter_records(source: Source) -> Iterator[SessionTree | ImportProblem]:
    return iter_trees(source, NAME, (_read_thread(source, path) for path in _rollouts(source)), _read)


# -- one file --------------------------------------------------------------------------------------------


def _read(source: Source, thread: _Thread, location: Location, depth: int) -> Iterator[SessionDraft | ImportProblem]:
    """Yield the problems of a file, then its draft."""
    path = source.display_path(thread.path)
    builder = SessionBuilder(NAME, location, path, thread.id)
    if location.child is not None and thread.parent is not None:
        builder.parent, builder.depth = make_id(NAME, thread.parent), depth
    _apply_meta(builder, thread.meta)
    lines = 0
    try:
        for line in source.iter_lines(thread.path):
            lines += 1
            try:
                _read_line(builder, line)
            except BadRecord as error:
                yield ImportProblem(path, line.number, str(error))
    except OSError as error:
        yield read_problem(source, thread.path, error)
        return
    if lines:
        yield builder.build(fallback=Timestamp.from_ns(source.mtime_ns(thread.path)))
    else:
        yield ImportProblem(path, None, "no records")


def _apply_meta(builder: SessionBuilder, meta: dict[str, Any]) -> None:
    builder.add_time(parse_time(meta.get("timestamp")))
    builder.workspace = as_str(meta.get("cwd"))
    builder.subagent_type = as_str(_spawn_record(meta).get("agent_role")) or None
    for key in ("originator", "cli_version", "model_provider", "git", "forked_from_id", "parent_thread_id"):
        builder.add_metadata(key, meta.get(key))


def _read_line(builder: SessionBuilder, line: Line) -> None:
    raw, record, exact = parse_line(builder, line)
    at = parse_time(record.get("timestamp"))
    builder.add_time(at)
    is_wrapped = isinstance(record.get("payload"), dict)
    item = record["payload"] if is_wrapped and record.get("type") == "response_item" else record
    if is_wrapped and record.get("type") == "turn_context":
        builder.model = as_str(record["payload"].get("model")) or builder.model
    is_mapped = (not is_wrapped or item is not record) and _add_item(builder, item, at, line)
    if not is_mapped or not exact:
        builder.keep_raw(raw)


def _add_item(builder: SessionBuilder, item: dict[str, Any], at: Timestamp | None, line: Line) -> bool:
    """Add a conversation item as a message; False if it is not one."""
    kind = as_str(item.get("type"))
    if kind == "message":
        return _add_message(builder, item, at, line)
    if kind == "reasoning":
        return _add_reasoning(builder, item, at, line)
    if kind in _CALLS:
        return _add_call(builder, item, kind, at, line)
    if kind.endswith("_output") and isinstance(item.get("call_id"), str):
        return _add_output(builder, item, at, line)
    return False


def _add(
    builder: SessionBuilder,
    role: str,
    content: str,
    item: dict[str, Any],
    at: Timestamp | None,
    line: Line,
    *mapped: str,
    **members: Any,
) -> bool:
    rest = {key: value for key, value in item.items() if key not in mapped}
    if rest == {"type": "message"}:
        rest = {}
    builder.add_message(role, content, id=f"line-{line.number}", at=at, rest=rest, raw=line.data, **members)
    return True


def _add_message(builder: SessionBuilder, item: dict[str, Any], at: Timestamp | None, line: Line) -> bool:
    role = _ROLES.get(as_str(item.get("role")))
    if role is None or not isinstance(item.get("content"), list | str):
        return False
    parsed = _CodexContent(builder, item["content"])
    mapped = ["content"] if parsed.is_complete else []
    if item["role"] == role:
        mapped.append("role")
    return _add(builder, role, parsed.text, item, at, line, *mapped, content_parts=parsed.content_parts)


class _CodexContent:
    """A list of typed parts: texts and images. `is_complete` is False if there is anything else."""

    def __init__(self, builder: SessionBuilder, content: list[Any] | str) -> None:
        self.parts: list[dict[str, Any]] = []
        self.is_complete = True
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            self.is_complete &= self._add_part(builder, as_dict(part))

    def _add_part(self, builder: SessionBuilder, part: dict[str, Any]) -> bool:
        if isinstance(part.get("text"), str):
            self.parts.append({"type": "text", "text": part["text"]})
            return set(part) <= {"type", "text"}
        url = part.get("image_url")
        if not isinstance(url, str):
            return False
        self.parts.append({"type": "image_url", "image_url": {"url": _store_image(builder, url)}})
        return set(part) <= {"type", "image_url"}

    @property
    def text(self) -> str:
        return "\n\n".join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def content_parts(self) -> list[dict[str, Any]] | None:
        is_plain = len(self.parts) < 2 and all(part["type"] == "text" for part in self.parts)
        return None if is_plain else self.parts


def _store_image(builder: SessionBuilder, url: str) -> str:
    """Store a `data:` URL as an attachment and return its reference; return any other URL unchanged."""
    header, comma, data = url.partition(",")
    if not (comma and header.lower().startswith("data:") and ";base64" in header.lower()):
        return url
    return builder.attach_base64(data, header[5:].partition(";")[0] or attachment_names.OCTET_STREAM) or url


def _add_reasoning(builder: SessionBuilder, item: dict[str, Any], at: Timestamp | None, line: Line) -> bool:
    parts = [*as_list(item.get("summary")), *as_list(item.get("content"))]
    text = "\n\n".join(as_str(as_dict(part).get("text")) for part in parts)
    return _add(builder, "assistant", "", item, at, line, reasoning=text or None)


def _add_call(builder: SessionBuilder, item: dict[str, Any], kind: str, at: Timestamp | None, line: Line) -> bool:
    id = as_str(item.get("call_id")) or as_str(item.get("id")) or f"call-{line.number}"
    call = make_call(id, as_str(item.get("name")) or kind.removesuffix("_call"), item.get(_CALLS[kind], ""))
    return _add(builder, "assistant", "", item, at, line, "call_id", "name", _CALLS[kind], tool_calls=[call])


def _add_output(builder: SessionBuilder, item: dict[str, Any], at: Timestamp | None, line: Line) -> bool:
    output = item.get("output")
    inner = as_dict(output)
    content = inner.get("content", output)
    parsed = _CodexContent(builder, content) if isinstance(content, list | str) else None
    success = inner.get("success")
    is_complete = parsed is not None and parsed.is_complete and set(inner) <= {"content", "success"}
    return _add(
        builder,
        "tool",
        parsed.text if parsed else to_text(content) if content is not None else "",
        item,
        at,
        line,
        "call_id",
        *(["output"] if is_complete else []),
        tool_call_id=item["call_id"],
        tool_success=success if isinstance(success, bool) else True,
        content_parts=parsed.content_parts if parsed else None,
    )


FORMAT = Format(
    NAME, "~/.codex, ~/.codex/sessions, or one rollout-*.jsonl file", recognise, iter_records, base="sessions"
)
