"""What may become a document: session.json or runtime.json as its owner, Bamboo, will load it. Pure.

Everything that is committed passes `parse_document` (rule 6), whether it came through the mount or the
API. The bytes themselves are kept as they are; the one exception is a fork (rule 5).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson
import pydantic

from store import layout
from store.documents import json_text
from store.documents.attachment_names import SCHEME
from store.documents.json_splice import same, splice
from store.documents.sidecar import AUTHORITY
from store.errors import InvalidContent, Problem
from store.layout import Location
from store.model.record import ALIASES
from store.model.session import Session

AUTHORITY_LIMIT = 512 * 1024
_AUTHORITY_FRAME = re.compile(
    rb'\{"_bamboo_main_authority":\{"version":1,"payload_bytes":"([0-9]{10})","payload":', re.DOTALL
)
_AUTHORITY_ADVICE = f"delete the member {AUTHORITY!r}: a document without it is accepted"
# What a sealed header repeats of the document, as it stands there or by default.
_SEALED = (
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

_EXPLAINED = {
    "missing": "the member is missing",
    "string_type": "a text is expected",
    "int_type": "a whole number is expected",
    "bool_type": "true or false is expected",
    "float_type": "a number is expected",
    "list_type": "an array is expected",
    "dict_type": "an object is expected",
    "model_type": "an object is expected",
    "model_attributes_type": "an object is expected",
}


Members = dict[str, Any]


class Document(NamedTuple):
    """A document that may be committed: its bytes, its members, and the record they make."""

    raw: bytes
    data: dict[str, Any]
    record: Session


def parse_document(raw: bytes, name: str, *, limit: int = json_text.MAX_DOCUMENT_BYTES) -> Document:
    """The record in `raw`; InvalidContent says what is wrong and where. `name` is for the message."""
    data = json_text.parse(raw, name, limit=limit)
    try:
        record = Session.model_validate(data)
    except pydantic.ValidationError as error:
        raise InvalidContent(name, type_problem(error, raw)) from None
    return Document(raw, data, record)


def with_current_updated_at(raw: bytes, present: bytes) -> bytes:
    """A document with the `updated_at` of the one that stands, if its own is older: it is refused for that alone."""
    try:
        ours, theirs = parse_document(raw, "yours"), parse_document(present, "theirs")
    except InvalidContent:  # which is what it will be refused for
        return raw
    if ours.record.updated_at.ns >= theirs.record.updated_at.ns:
        return raw
    return splice(raw, ours.data, {**ours.data, "updated_at": theirs.data["updated_at"]})


def type_problem(error: pydantic.ValidationError, raw: bytes | None = None) -> Problem:
    """The first fault pydantic found, in plain words; its place too, if the text is given."""
    first = error.errors(include_url=False)[0]
    path = tuple(first["loc"])
    line, column = json_text.locate(raw, path, ALIASES) if raw is not None else (None, None)
    reason = _EXPLAINED.get(first["type"], first["msg"])
    more = error.error_count() - 1
    if more:
        reason += f" (and {more} more fault{'s' if more > 1 else ''})"
    return Problem(reason, line, column, json_text.render_path(path))


# -- identity (rule 9) -------------------------------------------------------------------------------


def identity_problem(document: Document, location: Location) -> Problem | None:
    """Where a document contradicts the path it lies at; older ones that leave a member out do not."""
    path_says = {"id": location.id, "kind": location.kind, "root_session_id": location.root}
    for field, expected in path_says.items():
        found = document.data.get(field)
        # Before there were trees no document had a root_session_id, and Bamboo fills it in as "".
        if found is None or found == expected or (field == "root_session_id" and not found):
            continue
        line, column = json_text.locate(document.raw, (field,))
        reason = f"{found!r} does not agree with the path, which says {expected!r}"
        return Problem(reason, line, column, field)
    if location.child is not None and not document.record.parent_session_id:
        return Problem("a child needs a parent_session_id", *json_text.locate(document.raw, ()), "parent_session_id")
    if location.child is not None and "kind" not in document.data:
        return Problem("a child must say that its kind is child", *json_text.locate(document.raw, ()), "kind")
    return None


def fork(document: Document, location: Location) -> bytes:
    """The document as it must read at its new path; every byte that says nothing of identity is kept."""
    record = document.record
    members: Members = {"id": location.id, "kind": location.kind, "root_session_id": location.root}
    if location.child is None:
        members["parent_session_id"] = None
        if record.spawn_depth:
            members["spawn_depth"] = 0
    elif _is_below_root(record, location):
        members |= {"parent_session_id": location.root, "spawn_depth": 1}
    return with_identity(document, members)


def with_identity(document: Document, members: Members) -> bytes:
    """A document that says something else of who it is, and all in it that follows from its id (None: gone)."""
    data, old_id = document.data, document.record.id
    after = {k: v for k, v in {**data, **members}.items() if k != AUTHORITY and (k not in members or v is not None)}
    new_id = members.get("id", old_id)
    task_list = next((k for k in ("task_list", "todo_list") if isinstance(data.get(k), dict)), None)
    if task_list and "id" in members:
        after[task_list] = {**data[task_list], "session_id": new_id}
    raw = splice(document.raw, data, after)
    return _with_references(raw, f"{SCHEME}{old_id}/", f"{SCHEME}{new_id}/")


def _is_below_root(record: Session, location: Location) -> bool:
    """Whether a fork has no other parent than the root of its new tree; nobody is his own parent."""
    return record.kind == "root" or record.parent_session_id in (None, "", record.root_session_id, location.id)


def _with_references(raw: bytes, old: str, new: str) -> bytes:
    """The text with the prefix of references changed; a string that spells it with escapes is written anew."""
    if old == new:
        return raw
    raw = raw.replace(json_text.render_compact(old)[1:-1], json_text.render_compact(new)[1:-1])

    def mended(match: re.Match[bytes]) -> bytes:
        text: str = orjson.loads(match[0]) if b"\\" in match[0] else ""
        return json_text.render_compact(text.replace(old, new)) if old in text else match[0]

    return json_text.STRING.sub(mended, raw) if b"\\" in raw else raw


# -- Bamboo's sealed header (FORMATS C.6) --------------------------------------------------------------


def check_authority(document: Document, name: str) -> None:
    """A sealed header must be exactly as Bamboo framed it, and say what the document says."""
    if AUTHORITY not in document.data:
        return
    reason = _authority_fault(document, name)
    if reason is not None:
        line, column = json_text.locate(document.raw, (AUTHORITY,))
        raise InvalidContent(name, Problem(f"{reason}; {_AUTHORITY_ADVICE}", line, column, AUTHORITY))


def _authority_fault(document: Document, name: str) -> str | None:
    if name.endswith(layout.RUNTIME):
        return "it belongs in session.json only"
    frame = _AUTHORITY_FRAME.match(document.raw)
    sealed = document.data[AUTHORITY]
    if frame is None or not isinstance(sealed, dict) or not isinstance(sealed.get("payload"), dict):
        return "it has been moved or re-formatted, and Bamboo would refuse the document"
    end = frame.end() + int(frame[1])
    if document.raw[end - 1 : end + 2] != b"}},":  # the payload's own bracket, the member's, the next member
        return "its length is not what it says, and Bamboo would refuse the document"
    if end > AUTHORITY_LIMIT:
        return f"it is over {AUTHORITY_LIMIT} bytes"
    return _contradiction(sealed["payload"], document)


def _contradiction(payload: dict[str, Any], document: Document) -> str | None:
    for field in _SEALED:
        if field in payload and not same(payload[field], getattr(document.record, field)):
            return f"its {field} is not that of the document"
    if "project_id" in payload and (payload["project_id"] or None) != (document.record.project_id or None):
        return "its project_id is not that of the document"
    label = _CONTROL.sub("", document.record.title)[:160]
    if "title_label" in payload and payload["title_label"] != label:
        return "its title_label is not the title of the document"
    return None
