"""A3S stores, in the layout of the first releases (`<id>.json`) or of v1 (`v1/sessions/id_<base64>.json`).

Content blocks become messages and tool results. The state becomes the status of the last run, the plan a task list,
costs and tokens the usage log. Artifacts, traces and verification reports become the record files of the session.
All other members of the session record are kept in its metadata, where an export (`a3s_export`) finds them; except
API keys, which are left out and reported. Encrypted sessions are reported and skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from store import layout
from store.documents import json_text
from store.errors import InvalidContent
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.a3s_blocks import NAME, ORIGINAL, RENDERED, WHOLE, digest_of, render_message
from store.transfer.formats.a3s_plans import add_usage, read_tasks
from store.transfer.formats.a3s_records import SessionData
from store.transfer.formats.anthropic_blocks import UNMAPPED, BlockContent, add_results, read_blocks
from store.transfer.formats.coerce import (
    BadRecord,
    as_dict,
    as_str,
    find_keys,
    line_of,
    make_id,
    make_title,
    parse,
    parse_time,
    record_problem,
)
from store.transfer.formats.importer import (
    Format,
    ImportProblem,
    SessionDraft,
    SessionTree,
    SourceSession,
    iter_trees,
    read_problem,
)
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.source import Source

_ENCRYPTED_MAGIC = b"A3SE"
_V1 = "v1/sessions"
_ROLES = ("user", "assistant", "system", "tool")
_MAPPED = {"id", "messages", "created_at", "updated_at"}
STATUSES = {"Active": "running", "Paused": "suspended", "Completed": "completed", "Error": "error"}


def _files(source: Source) -> list[str]:
    """Session files, v1 first: a session in both layouts was migrated, and its older file is ignored."""
    newer = [e.name for e in source.entries(_V1) if e.is_file and e.name.endswith(".json")] if not source.name else []
    older = [e.name for e in source.entries() if e.is_file and e.name.endswith(".json") and not e.name.startswith(".")]
    return [*(f"{_V1}/{name}" for name in newer), *older]


def recognise(source: Source) -> int | None:
    if source.name is None and source.is_dir(_V1) and _files(source):
        return 90
    for raw in source.iter_samples(_files(source)):
        keys = find_keys(raw)
        if {"id", "config", "messages"} <= keys or {"schema_version", "session"} <= keys:
            return 90
    return None


def iter_records(source: Source) -> Iterator[SessionTree | ImportProblem]:
    return iter_trees(source, NAME, _find_sessions(source), _read)


def _find_sessions(source: Source) -> Iterator[SourceSession | ImportProblem]:
    """Yield each session; the older file of a migrated one is left out."""
    migrated: set[str] = set()
    for path in _files(source):
        found = _look(source, path)
        if isinstance(found, SourceSession):
            if found.id in migrated:
                continue
            if path.startswith(_V1):
                migrated.add(found.id)
        yield found


def _look(source: Source, path: str) -> SourceSession | ImportProblem:
    try:
        _, session = _parse(source.read(path))
    except (BadRecord, InvalidContent, OSError) as error:
        return read_problem(source, path, error)
    parent = as_str(session.get("parent_id")) or as_str(as_dict(session.get("config")).get("parent_id"))
    return SourceSession(path, session["id"], parent or None)


def _parse(raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """A snapshot and the session in it; for the first layout, an empty snapshot and the session."""
    if raw.startswith(_ENCRYPTED_MAGIC):
        raise BadRecord("encrypted; only A3S has the key")
    record = parse(raw).value
    if not isinstance(record, dict):
        raise BadRecord("expected an object")
    is_snapshot = "schema_version" in record or "session" in record
    snapshot, session = (record, record.get("session")) if is_snapshot else ({}, record)
    if is_snapshot and record.get("schema_version") != 1:
        raise BadRecord(f"unknown schema version {record.get('schema_version')!r}")
    if not isinstance(session, dict) or not isinstance(session.get("id"), str):
        raise BadRecord("not a session: expected an object with an id")
    if not isinstance(session.get("messages"), list):
        raise BadRecord("messages: expected an array")
    return snapshot, session


# -- one session ---------------------------------------------------------------------------------------------


def _read(
    source: Source, session_file: SourceSession, location: Location, depth: int
) -> Iterator[SessionDraft | ImportProblem]:
    path = source.display_path(session_file.path)
    try:
        raw = source.read(session_file.path)
        snapshot, session = _parse(raw)
    except (BadRecord, InvalidContent, OSError) as error:
        yield read_problem(source, session_file.path, error)
        return
    builder = SessionBuilder(NAME, location, path, session_file.id)
    if location.child is not None and session_file.parent is not None:
        builder.parent, builder.depth = make_id(NAME, session_file.parent, location.root), depth
    invalid = _add_messages(builder, session["messages"])
    if invalid is not None:
        at = (("session",) if snapshot else ()) + invalid
        yield ImportProblem(path, line_of(raw, at), f"{json_text.render_path(at)}: not a message; session skipped")
        return
    if _apply_session(builder, session):
        yield ImportProblem(path, None, "an API key was left out; GroveFS does not store API keys")
    yield from _add_records(source, builder, session_file, snapshot)
    yield builder.build(fallback=Timestamp.from_ns(source.mtime_ns(session_file.path)))


def _add_messages(builder: SessionBuilder, messages: list[Any]) -> tuple[str | int, ...] | None:
    """Add all messages. Returns the path of the first invalid one, or None."""
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            return ("messages", number)
        if not isinstance(message.get("content"), list | str):
            return ("messages", number, "content")
        start = len(builder.messages)
        _add_message(builder, message, f"message-{number}")
        _note_original(builder, message, builder.messages[start:])
    return None


def _add_message(builder: SessionBuilder, message: dict[str, Any], id: str) -> None:
    """Add a message of A3S: one for each tool result in it, and one for all its other blocks."""
    blocks = read_blocks(message["content"], builder)
    is_spoken = bool(blocks.texts or blocks.parts or blocks.calls or blocks.thinking) or not blocks.results
    role = message["role"] if message["role"] in _ROLES else "user"
    mapped = {"content", *(["role"] if role == message["role"] and (is_spoken or role == "user") else [])}
    if is_spoken and not blocks.thinking and isinstance(message.get("reasoning_content"), str):
        mapped.add("reasoning_content")
    rest = {key: value for key, value in message.items() if key not in mapped}
    rest |= blocks.unmapped() | _order_note(blocks)
    _add_results(builder, blocks, id, {WHOLE: rest} if rest else {})
    if is_spoken:
        members = blocks.members()
        if "reasoning_content" in mapped:
            members["reasoning"] = message["reasoning_content"]
        builder.add_message(role, blocks.content, id=id, rest={} if blocks.results else rest, **members)


def _order_note(blocks: BlockContent) -> dict[str, list[str]]:
    """The order of blocks, if an export would not find it in the messages."""
    parts = ["image" if part["type"] == "image_url" else "text" for part in blocks.parts]
    usual = ["tool_result"] * len(blocks.results)
    usual += (parts if blocks.content or "image" in parts else []) + ["tool_use"] * len(blocks.calls)
    has_unmapped = UNMAPPED in blocks.order and len(blocks.order) > 1
    return {"order": blocks.order} if has_unmapped or [k for k in blocks.order if k != UNMAPPED] != usual else {}


def _add_results(builder: SessionBuilder, blocks: BlockContent, id: str, rest: dict[str, Any]) -> None:
    start = len(builder.messages)
    add_results(builder, blocks, id, None, rest=rest, raw=b"")
    for block, message in zip(blocks.results, builder.messages[start:], strict=True):
        notes: dict[str, Any] = {"is_error": None} if block.get("is_error") is None else {}
        if isinstance(block.get("content"), list) and "content_parts" not in message:
            notes["content"] = "blocks"
        _add_notes(builder, message, notes)


def _add_notes(builder: SessionBuilder, message: dict[str, Any], notes: dict[str, Any]) -> None:
    if notes:
        kept = as_dict(as_dict(message.get("metadata")).get(NAME))
        builder.note(message, NAME, {**kept, **notes})


def _note_original(builder: SessionBuilder, message: dict[str, Any], added: list[dict[str, Any]]) -> None:
    """Keep a message that an export could not write as it was, to be used while it is not changed here."""
    rendered = render_message(added, builder.resolve)
    if rendered != message and isinstance(message["content"], list):
        _add_notes(builder, added[0], {ORIGINAL: message, RENDERED: digest_of(rendered)})


def _apply_session(builder: SessionBuilder, session: dict[str, Any]) -> bool:
    """Apply everything but the messages. Returns True if an API key was left out."""
    config, llm = as_dict(session.get("config")), as_dict(session.get("llm_config"))
    builder.title = make_title(as_str(config.get("name")))
    builder.model = as_str(session.get("model_name")) or as_str(llm.get("model"))
    builder.workspace = as_str(config.get("workspace"))
    builder.status = STATUSES.get(as_str(session.get("state")))
    builder.add_time(parse_time(session.get("created_at")))
    builder.add_time(parse_time(session.get("updated_at")))
    builder.task_list = read_tasks(session, builder.location.id)
    add_usage(builder, session)
    if builder.location.id != session["id"]:
        builder.add_metadata("id", session["id"])
    return _keep_members(builder, session)


def _keep_members(builder: SessionBuilder, session: dict[str, Any]) -> bool:
    """Keep the members that only A3S has a use for. Returns True if an API key was left out."""
    found_secret = False
    unknown: dict[str, Any] = {}
    for key, value in session.items():
        if key in _MAPPED:
            continue
        if isinstance(value, dict) and "api_key" in value:
            found_secret |= bool(value["api_key"])
            value = {k: v for k, v in value.items() if k != "api_key"}
        if key == "api_key":
            found_secret = True
        elif key in SessionData.model_fields:
            builder.add_metadata(key, value)
        else:
            unknown[key] = value
    builder.add_metadata("fields", unknown or None)
    return found_secret


# -- artifacts, traces, verification and the like ------------------------------------------------------------


_EMBEDDED = {"trace_events": layout.TRACES, "verification_reports": layout.VERIFICATION}
_KEPT = ("run_records", "subagent_tasks")


def _add_records(
    source: Source, builder: SessionBuilder, session_file: SourceSession, snapshot: dict[str, Any]
) -> Iterator[ImportProblem]:
    """Add the records of the snapshot, and those in separate files that the snapshot lacks."""
    embedded = {name: snapshot[key] for key, name in _EMBEDDED.items() if snapshot.get(key)}
    if snapshot.get("artifacts"):
        uris = snapshot.get("retained_artifact_uris")
        embedded[layout.ARTIFACTS] = {"artifacts": snapshot["artifacts"], **({"retained_uris": uris} if uris else {})}
    embedded |= {f"{layout.ATTACHMENTS}/{key}.json": snapshot[key] for key in _KEPT if snapshot.get(key)}
    for name, value in embedded.items():
        yield from _add_record(builder, name, json_text.render(value), source.display_path(session_file.path))
    for path, name in _fragments(session_file).items():
        if name not in embedded and source.is_file(path):
            try:
                data = source.read(path)
            except (OSError, InvalidContent) as error:
                yield ImportProblem(source.display_path(path), None, str(error))
            else:
                yield from _add_record(builder, name, data, source.display_path(path))


def _fragments(session_file: SourceSession) -> dict[str, str]:
    """The separate files of a session, and their names in ours."""
    stem = session_file.path.rpartition("/")[2].removesuffix(".json")
    base = "v1/" if session_file.path.startswith(_V1) else ""
    kinds = {"traces": layout.TRACES, "verification": layout.VERIFICATION}
    kinds |= {kind: f"{layout.ATTACHMENTS}/{kind}.json" for kind in ("runs", "subagent_tasks")}
    found = {f"{base}{kind}/{stem}.json": name for kind, name in kinds.items()}
    return found | {f"{base}artifacts/{stem}/artifacts.json": layout.ARTIFACTS}


def _add_record(builder: SessionBuilder, name: str, data: bytes, path: str) -> Iterator[ImportProblem]:
    """Add a record file. An invalid session_file is reported and kept as an attachment."""
    problem = record_problem(name, data) if name in layout.RECORDS else None
    if problem is not None:
        yield ImportProblem(path, problem.line, f"{problem.reason}: not a valid {name}; kept as an attachment")
        name = f"{layout.ATTACHMENTS}/unreadable-{name}"
    builder.add_file(name, lambda: (data,))


FORMAT = Format(NAME, "an A3S Code session store, not encrypted", recognise, iter_records)
