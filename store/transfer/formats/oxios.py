"""Oxios workspaces: `sessions/<id>.json`, with separate lists of user messages and agent responses.

The two lists are merged by time. Trajectory steps become `trajectory.jsonl`. A thread becomes a child of the session it
was started from. The other documents of the workspace become state documents. A session that oxios could not load is
reported with its line and skipped. What an export (`oxios_export`) needs and a session here has no member for is kept
in its metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pydantic

from store import layout
from store.documents import json_text
from store.errors import InvalidContent
from store.layout import Location
from store.model.record import Record
from store.model.timestamp import Timestamp
from store.sessions.logs import TrajectoryStep
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
)
from store.transfer.formats.importer import (
    Format,
    ImportProblem,
    SessionDraft,
    SessionTree,
    SourceSession,
    StateDocument,
    iter_trees,
    read_problem,
)
from store.transfer.formats.oxios_records import NAME, AgentResponse, OxiosSession, UserMessage
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.source import Source

OWNERS = ("user_id", "active_persona_id", "active_seed_id")  # their names in the metadata of a session too
WITHOUT_SEEDS = "without_seeds"  # metadata: newer versions of oxios have no seeds, and write none
REASONING = f"{layout.ATTACHMENTS}/reasoning.jsonl"


def _sessions(source: Source) -> list[str]:
    base = "sessions" if source.name is None and source.is_dir("sessions") else ""
    names = [e.name for e in source.entries(base) if e.is_file and e.name.endswith(".json")]
    return [f"{base}/{name}" if base else name for name in names]


def recognise(source: Source) -> int | None:
    for raw in source.iter_samples(_sessions(source)):
        if {"id", "user_id"} <= (keys := find_keys(raw)) and keys & {"user_messages", "agent_responses"}:
            return 90
    return None


def iter_records(source: Source) -> Iterator[SessionTree | StateDocument | ImportProblem]:
    yield from iter_trees(source, NAME, (_look(source, path) for path in _sessions(source)), _read)
    if source.name is None and source.is_dir("sessions"):
        yield from _state(source)


def _state(source: Source) -> Iterator[StateDocument | ImportProblem]:
    """Yield all other documents of the workspace: memory, agents, schedules. Hidden files are left out."""
    for path in source.iter_files():
        category, _, name = path.rpartition("/")
        hidden = any(part.startswith(".") for part in path.split("/"))
        if hidden or category in ("", "sessions") or not name.endswith((".json", ".md")):
            continue
        try:
            yield StateDocument(f"{layout.STATE}/{path}", source.read(path), source.display_path(path))
        except (OSError, InvalidContent) as error:
            yield ImportProblem(source.display_path(path), None, str(error))


def _look(source: Source, path: str) -> SourceSession | ImportProblem:
    try:
        record = parse(source.read(path)).value
        if not isinstance(record, dict) or not isinstance(record.get("id"), str):
            raise BadRecord("not a session: expected an object with an id")
        return SourceSession(path, record["id"], as_str(record.get("parent_session_id")) or None)
    except (BadRecord, InvalidContent, OSError) as error:
        return read_problem(source, path, error)


# -- one session ---------------------------------------------------------------------------------------------


class _OxiosProblem(BadRecord):
    def __init__(self, reason: str, *path: str | int) -> None:
        super().__init__(f"{json_text.render_path(path)}: {reason}")
        self.path = path


def _read(
    source: Source, session_file: SourceSession, location: Location, depth: int
) -> Iterator[SessionDraft | ImportProblem]:
    path = source.display_path(session_file.path)
    raw = b""
    try:
        raw = source.read(session_file.path)
        record = as_dict(parse(raw).value)
        builder = SessionBuilder(NAME, location, path, session_file.id)
        if location.child is not None and session_file.parent is not None:
            builder.parent, builder.depth = make_id(NAME, session_file.parent, location.root), depth
        fallback = _apply_record(builder, record)
    except _OxiosProblem as error:
        yield ImportProblem(path, line_of(raw, error.path), f"{error}; session skipped")
    except (BadRecord, InvalidContent, OSError) as error:
        yield read_problem(source, session_file.path, error)
    else:
        yield builder.build(fallback=fallback)


def _apply_record(builder: SessionBuilder, record: dict[str, Any]) -> Timestamp:
    created, updated = (_get_time(record, key) for key in ("created_at", "updated_at"))
    builder.add_time(created)
    builder.add_time(updated)
    lists = [_read_messages(record, "user_messages", "user"), _read_messages(record, "agent_responses", "assistant")]
    for message in _merge_by_time(*lists):
        builder.add_message(message.role, message.content, id=message.id, at=message.at, rest=message.rest)
    _apply_metadata(builder, record)
    _add_jsonl(builder, record, "trajectory_steps", layout.TRAJECTORY)
    _add_jsonl(builder, record, "reasoning_records", REASONING)
    return created


def _apply_metadata(builder: SessionBuilder, record: dict[str, Any]) -> None:
    metadata = as_dict(record.get("metadata"))
    builder.title = make_title(as_str(metadata.get("title")))
    builder.project_id = as_str(record.get("project_id")) or project_in(metadata)
    for key in OWNERS:
        if as_str(record.get(key)):
            builder.metadata[key] = record[key]
    builder.add_metadata("metadata", metadata or None)
    builder.add_metadata("fields", _fields_to_keep(builder, record, metadata) or None)
    parent = as_str(record.get("parent_session_id"))
    if builder.location.child is None or make_id(NAME, parent, builder.location.root) != parent:
        builder.add_metadata("parent_session_id", parent)
    answers = record.get("agent_responses") or ()
    if answers and not any("seed_id" in answer for answer in answers):
        builder.add_metadata(WITHOUT_SEEDS, "true")


def _fields_to_keep(builder: SessionBuilder, record: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """Unknown members, and known ones that the session here does not determine."""
    known = OxiosSession.model_fields
    kept = {key: value for key, value in record.items() if key not in known}
    if builder.location.id != record["id"]:
        kept["id"] = record["id"]
    if record.get("project_id") and project_in(metadata):
        kept["project_id"] = record["project_id"]
    first, last = builder.period
    for key, at in (("created_at", first), ("updated_at", last)):
        if record[key] != at:
            kept[key] = record[key]
    return kept


def project_in(metadata: dict[str, Any]) -> str | None:
    """The project. Newer versions list several, separated by commas, of which a session has the first."""
    listed = as_str(metadata.get("project_ids")).split(",")[0].strip()
    return as_str(metadata.get("project_id")) or listed or None


def _get_time(record: dict[str, Any], key: str, *above: str | int) -> Timestamp:
    at = parse_time(record.get(key)) if isinstance(record.get(key), str) else None
    if at is None:
        raise _OxiosProblem("expected a time", *above, key)
    return at


class _OxiosMessage(NamedTuple):
    role: str
    id: str
    content: str
    at: Timestamp
    rest: dict[str, Any]


def _read_messages(record: dict[str, Any], key: str, role: str) -> list[_OxiosMessage]:
    entries = record.get(key, [])
    if not isinstance(entries, list):
        raise _OxiosProblem("expected an array", key)
    kind = UserMessage if role == "user" else AgentResponse
    found: list[_OxiosMessage] = []
    for number, entry in enumerate(entries):
        _check(kind, entry, key, number)
        rest = {k: v for k, v in entry.items() if k not in ("content", "timestamp") and v is not None}
        at = _get_time(entry, "timestamp", key, number)
        found.append(_OxiosMessage(role, f"{role}-{number}", entry["content"], at, rest))
    return found


def _check(kind: type[Record], entry: Any, *path: str | int) -> None:
    """Raise _OxiosProblem for a record that oxios could not load."""
    try:
        kind.model_validate(entry)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _OxiosProblem(first["msg"], *path, *first["loc"]) from None


def _merge_by_time(questions: list[_OxiosMessage], answers: list[_OxiosMessage]) -> Iterator[_OxiosMessage]:
    """Merge two lists by time, keeping the order of each; a question precedes an answer of the same time."""
    i = j = 0
    while i < len(questions) or j < len(answers):
        if j == len(answers) or (i < len(questions) and questions[i].at.ns <= answers[j].at.ns):
            yield questions[i]
            i += 1
        else:
            yield answers[j]
            j += 1


def _add_jsonl(builder: SessionBuilder, record: dict[str, Any], key: str, name: str) -> None:
    """Add a list of the record as a JSONL file."""
    entries = record.get(key, [])
    if not isinstance(entries, list):
        raise _OxiosProblem("expected an array", key)
    for number, entry in enumerate(entries if name == layout.TRAJECTORY else []):
        _check(TrajectoryStep, entry, key, number)
    if entries:
        data = b"".join(json_text.render_compact(entry) + b"\n" for entry in entries)
        builder.add_file(name, lambda: (data,))


FORMAT = Format(NAME, "an oxios workspace: ~/.oxios/workspace", recognise, iter_records, base="sessions")
