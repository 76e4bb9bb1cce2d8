"""Document: a validated session.json or runtime.json. Pure.

Everything that is committed, from the mount or the API, passes `parse_document`, which accepts
only what the owning agent, Bamboo, can load (rule 6). The bytes are kept unchanged, except in a
fork (rule 5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
import pydantic
from pydantic_core import ErrorDetails

from store import layout
from store.documents import json_text
from store.documents.attachment_names import SCHEME
from store.documents.json_splice import same, splice
from store.documents.sidecar import AUTHORITY
from store.errors import InvalidContent, Problem
from store.layout import Location
from store.model.message import Message
from store.model.message_shape import is_usual
from store.model.record import ALIASES
from store.model.session import Session

AUTHORITY_LIMIT = 512 * 1024
MAX_PROBLEMS = 100  # faults of one document that are described
_AUTHORITY_FRAME = re.compile(
    rb'\{"_bamboo_main_authority":\{"version":1,"payload_bytes":"([0-9]{10})","payload":', re.DOTALL
)
_AUTHORITY_ADVICE = f"to save, delete the member {AUTHORITY!r}"
# Members of the document that a sealed header repeats.
_AUTHORITY_FIELDS = (
    "id",
    "created_at",
    "kind",
    "parent_session_id",
    "root_session_id",
    "spawn_depth",
    "metadata_version",
    "root_orchestration_only",
    "root_tool_authority_revision",
    "root_mode_transition_epoch",
    "root_mode_operations",
    "supervisor_management",
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "bool_type": "a boolean",
    "float_type": "a number",
    "finite_number": "a finite number",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "greater_than_equal": "a number >= {ge}",
    "less_than_equal": "a number <= {le}",
    "literal_error": "{expected}",
}


Members = dict[str, Any]

NO_NEW_IDS: Mapping[str, str] = MappingProxyType({})


class Document(NamedTuple):
    """A valid document: its bytes, its members and its record."""

    raw: bytes
    data: dict[str, Any]
    record: Session


def parse_document(raw: bytes, name: str, *, limit: int = json_text.MAX_DOCUMENT_BYTES) -> Document:
    """Parse and validate a document. Raises InvalidContent with reason and position; `name` is used in the error."""
    data = json_text.parse(raw, name, limit=limit)
    try:
        record = Session.model_validate(data)
    except pydantic.ValidationError as error:
        raise InvalidContent(name, type_problem(error, raw)) from None
    return Document(raw, data, record)


def validate_rendered(
    raw: bytes, data: dict[str, Any], name: str, *, limit: int = json_text.MAX_DOCUMENT_BYTES
) -> Document:
    """Like `parse_document`, for a text just rendered from `data`: its syntax and keys need no check.

    The record has no messages.
    """
    json_text.check_size(len(raw), name, limit)
    return _validate_without_messages(raw, data, name)


def parse_to_index(raw: bytes, name: str, *, limit: int = json_text.MAX_DOCUMENT_BYTES) -> Document:
    """Like `parse_document`, with a record without messages, which are only validated: several times faster."""
    return _validate_without_messages(raw, json_text.parse(raw, name, limit=limit), name)


def _validate_without_messages(raw: bytes, data: dict[str, Any], name: str) -> Document:
    """The records of the messages of a long session are large, and take long to make: most are not made at all."""
    messages = data.get("messages")
    try:
        for message in messages if isinstance(messages, list) else ():
            if not is_usual(message):
                Message.model_validate(message)
        if isinstance(messages, list):
            return Document(raw, data, Session.model_validate({**data, "messages": []}))
    except pydantic.ValidationError:
        pass
    return parse_document(raw, name)  # raises the error with its position


def with_current_updated_at(raw: bytes, present: bytes) -> bytes:
    """`raw` with the `updated_at` of the present document if its own is older, since it would be rejected for that."""
    try:
        ours, theirs = parse_document(raw, "yours"), parse_document(present, "theirs")
    except InvalidContent:  # the save will be rejected for this reason
        return raw
    if ours.record.updated_at.ns >= theirs.record.updated_at.ns:
        return raw
    return splice(raw, ours.data, {**ours.data, "updated_at": theirs.data["updated_at"]})


def type_problem(error: pydantic.ValidationError, raw: bytes | None = None) -> Problem:
    """The errors found by pydantic, with their positions if the text is given."""
    found = error.errors(include_url=False)[:MAX_PROBLEMS]
    paths = [tuple(each["loc"]) for each in found]
    positions = json_text.locate_all(raw, paths, ALIASES) if raw is not None else [(None, None)] * len(paths)
    first, *others = [
        Problem(_reason(each), *position, json_text.render_path(path))
        for each, position, path in zip(found, positions, paths, strict=True)
    ]
    return replace(first, others=tuple(others), left_out=error.error_count() - len(found))


def _reason(error: ErrorDetails) -> str:
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    if kind == "missing":
        return "required member is missing"
    if kind == "value_error":
        return str(context["error"])  # without pydantic's prefix
    if kind not in _EXPECTED:
        return error["msg"]
    return f"expected {_EXPECTED[kind].format(**context)}, got {_shown(value, kind)}"


def _shown(value: Any, kind: str) -> str:
    """The value where its type alone would not explain the error, else its type."""
    if kind in ("int_type", "greater_than_equal", "less_than_equal") and type(value) in (int, float):
        return str(value)
    if kind == "literal_error" and isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:40]}…")
    return json_text.kind_of(value)


# -- identity (rule 9) -------------------------------------------------------------------------------


def identity_problem(document: Document, location: Location) -> Problem | None:
    """The first member that contradicts the path of the document. A member absent from an older document does not."""
    path_says = {"id": location.id, "kind": location.kind, "root_session_id": location.root}
    for field, expected in path_says.items():
        found = document.data.get(field)
        # Documents from before session trees have no root_session_id; Bamboo writes "" for them.
        if found is None or found == expected or (field == "root_session_id" and not found):
            continue
        line, column = json_text.locate(document.raw, (field,))
        reason = f"expected {expected!r} as in the path, got {found!r}"
        return Problem(reason, line, column, field)
    if location.child is not None and not document.record.parent_session_id:
        return Problem("required for a child session", *json_text.locate(document.raw, ()), "parent_session_id")
    if location.child is not None and "kind" not in document.data:
        return Problem("expected 'child'; the member is missing", *json_text.locate(document.raw, ()), "kind")
    return None


def fork_document(document: Document, location: Location, new_ids: Mapping[str, str] = NO_NEW_IDS) -> bytes:
    """The document with the identity of its new path. All bytes unrelated to identity are kept.

    `new_ids` are the new ids of the sessions forked with it, by their old ids. References to them
    are updated: the parent, the children it waits for, attachments.
    """
    record = document.record
    members: Members = {"id": location.id, "kind": location.kind, "root_session_id": location.root}
    if location.child is None:
        members["parent_session_id"] = None
        if record.spawn_depth:
            members["spawn_depth"] = 0
    elif _is_below_root(record, location):
        members |= {"parent_session_id": location.root, "spawn_depth": 1}
    elif record.parent_session_id is not None and record.parent_session_id in new_ids:
        members["parent_session_id"] = new_ids[record.parent_session_id]
    members |= _waiting_for(document.data, new_ids)
    return with_identity(document, members, new_ids)


def _waiting_for(data: Members, new_ids: Mapping[str, str]) -> Members:
    """The runtime state with the new ids of the children it waits for."""
    state = data.get("agent_runtime_state") or {}
    waiting = state.get("waiting_for_children") or {}
    old = waiting.get("child_session_ids")
    if not old or not new_ids.keys() & set(old):
        return {}
    waiting = {**waiting, "child_session_ids": [new_ids.get(child, child) for child in old]}
    return {"agent_runtime_state": {**state, "waiting_for_children": waiting}}


def with_identity(document: Document, members: Members, new_ids: Mapping[str, str] = NO_NEW_IDS) -> bytes:
    """The document with these identity members, and with all references to its id updated. None removes a member."""
    data, old_id = document.data, document.record.id
    after = {k: v for k, v in {**data, **members}.items() if k != AUTHORITY and (k not in members or v is not None)}
    new_id = members.get("id", old_id)
    task_list = next((k for k in ("task_list", "todo_list") if isinstance(data.get(k), dict)), None)
    if task_list and "id" in members:
        after[task_list] = {**data[task_list], "session_id": new_id}
    raw = splice(document.raw, data, after)
    return _with_references(raw, {**new_ids, old_id: new_id})


def _is_below_root(record: Session, location: Location) -> bool:
    """Whether the parent of a fork must be the root of its new tree. A session is never its own parent."""
    return record.kind == "root" or record.parent_session_id in (None, "", record.root_session_id, location.id)


def _with_references(raw: bytes, new_ids: Mapping[str, str]) -> bytes:
    """The text with new ids in references to attachments. A string that contains one in escaped form is re-encoded."""
    prefixes = {f"{SCHEME}{old}/": f"{SCHEME}{new}/" for old, new in new_ids.items() if old != new}
    if not prefixes:
        return raw
    for old, new in prefixes.items():
        raw = raw.replace(json_text.render_compact(old)[1:-1], json_text.render_compact(new)[1:-1])

    def replaced(match: re.Match[bytes]) -> bytes:
        text: str = orjson.loads(match[0]) if b"\\" in match[0] else ""
        if not any(old in text for old in prefixes):
            return match[0]
        for old, new in prefixes.items():
            text = text.replace(old, new)
        return json_text.render_compact(text)

    return json_text.STRING.sub(replaced, raw) if b"\\" in raw else raw


# -- Bamboo's sealed header ----------------------------------------------------------------------------


def check_authority(document: Document, name: str) -> None:
    """Reject a sealed header that is not framed exactly like Bamboo does it, or that contradicts the document."""
    if AUTHORITY not in document.data:
        return
    reason = _authority_problem(document, name)
    if reason is not None:
        line, column = json_text.locate(document.raw, (AUTHORITY,))
        raise InvalidContent(name, Problem(f"{reason}; {_AUTHORITY_ADVICE}", line, column, AUTHORITY))


def _authority_problem(document: Document, name: str) -> str | None:
    if name.endswith(layout.RUNTIME):
        return "allowed in session.json only"
    frame = _AUTHORITY_FRAME.match(document.raw)
    sealed = document.data[AUTHORITY]
    if frame is None or not isinstance(sealed, dict) or not isinstance(sealed.get("payload"), dict):
        return "moved or re-formatted; Bamboo would reject the document"
    end = frame.end() + int(frame[1])
    if document.raw[end - 1 : end + 2] != b"}},":  # closing brackets of payload and member, then the next member
        return "payload_bytes is not the length of the payload; Bamboo would reject the document"
    if end > AUTHORITY_LIMIT:
        return f"over the limit of {AUTHORITY_LIMIT} bytes"
    return _authority_mismatch(sealed["payload"], document)


def _authority_mismatch(payload: dict[str, Any], document: Document) -> str | None:
    for field in _AUTHORITY_FIELDS:
        if field in payload and not same(payload[field], getattr(document.record, field)):
            return f"{field} differs from the document"
    if "project_id" in payload and (payload["project_id"] or None) != (document.record.project_id or None):
        return "project_id differs from the document"
    label = _CONTROL.sub("", document.record.title)[:160]
    if "title_label" in payload and payload["title_label"] != label:
        return "title_label differs from the title of the document"
    return None
