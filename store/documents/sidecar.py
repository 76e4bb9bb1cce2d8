"""session.json and its sidecar: who wins, member by member. Pure.

The sidecar holds the freshest control plane (everything but the messages) and wins when a session is
loaded. So a change made in session.json must be carried into it, or nobody would ever see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from store.documents.json_splice import same, splice
from store.documents.secrets import without_keys
from store.model.mirrored_fields import MIRRORED, mirror_text
from store.model.record import ALIASES
from store.model.session import Session

AUTHORITY = "_bamboo_main_authority"
# What newer Bamboos keep in session.json alone.
SESSION_ONLY = frozenset({"messages", "provider_transcript", AUTHORITY})

# Marks that compression leaves on a message; they do not make it another message.
_COMPRESSION_MARKS = ("compressed", "compressed_by_event_id", "never_compress", "compression_level")
# What was worked out from the messages, and is wrong once one of them has been edited.
DERIVED = ("token_usage", "conversation_summary", "compression_events", "model_context_state")
_PREVIOUS_RESPONSE = "responses.previous_response_id"


def overlay(main: Session, side: Session | None) -> Session:
    """The session as its owner sees it: messages from session.json, everything else from the sidecar."""
    if side is None:
        return main
    merged = side.model_copy()
    merged.messages = main.messages
    merged.provider_transcript = main.provider_transcript
    admission = main.runtime_metadata.session_inbox_admission if main.runtime_metadata else None
    if admission is not None and merged.runtime_metadata is not None:
        merged.runtime_metadata = merged.runtime_metadata.model_copy(update={"session_inbox_admission": admission})
    return merged


def control_plane(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document as the sidecar holds it, under the names the sidecar uses."""
    plane = _renamed({k: v for k, v in document.items() if k not in SESSION_ONLY}, "task_list")
    return plane | _without_admission(document)


def _renamed(members: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The same members, one of them under its name if it was there under its alias."""
    return {name if k == ALIASES[name] else k: v for k, v in members.items()}


def _without_admission(document: Mapping[str, Any]) -> dict[str, Any]:
    """runtime_metadata without the one member of it that session.json keeps for itself."""
    metadata = document.get("runtime_metadata")
    if not isinstance(metadata, dict) or "session_inbox_admission" not in metadata:
        return {}
    return {"runtime_metadata": {k: v for k, v in metadata.items() if k != "session_inbox_admission"}}


def sidecar_of(raw: bytes, document: Mapping[str, Any]) -> bytes:
    """A first sidecar for a session.json: the same text without messages and without legacy child lists."""
    plane: dict[str, Any] = without_keys({k: v for k, v in document.items() if k not in SESSION_ONLY})
    plane |= {"messages": [], **_without_admission(document)}
    state = plane.get("agent_runtime_state")
    if isinstance(state, dict) and state.get("children"):
        plane["agent_runtime_state"] = {**state, "children": {}}
    return splice(raw, document, plane)


def apply_changes_to_sidecar(side: bytes, old: Mapping[str, Any], new: Mapping[str, Any]) -> bytes:
    """The sidecar after session.json changed from `old` to `new`: what differs is carried, the rest stays."""
    before, after = (_with_maps(_with_task_names(control_plane(document))) for document in (old, new))
    return splice(side, before, after, aliases=ALIASES)


def _with_maps(plane: dict[str, Any]) -> dict[str, Any]:
    """A map that session.json has no more, or not yet, is an empty one: what else the sidecar has in it stays."""
    return plane | {name: {} for name in ("metadata", "runtime_metadata") if name not in plane}


def _with_task_names(plane: dict[str, Any]) -> dict[str, Any]:
    """The aliases inside the task list too: session.json and sidecar may use different ones."""
    tasks = plane.get("task_list")
    if not tasks:
        return plane
    items = [_renamed(item, "active_form") for item in tasks["items"]]
    for item in items:
        if "evidence" in item:
            item["evidence"] = [_renamed(evidence, "reference") for evidence in item["evidence"]]
    return {**plane, "task_list": {**tasks, "items": items}}


def merged_main(main: Mapping[str, Any], loaded: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What session.json should say after an API save: the record as it is now.

    Members that only session.json had, unknown to us, stay: the sidecar never knew them, so their
    absence in the loaded record means nothing.
    """
    known = Session.model_fields
    kept = {k: v for k, v in main.items() if k not in known and k not in loaded and k != AUTHORITY}
    return {**kept, **{k: v for k, v in now.items() if k != AUTHORITY}}


# -- what an API save adds to a change --------------------------------------------------------------


def complete_api_changes(loaded: Mapping[str, Any], session: Session) -> dict[str, Any]:
    """Complete what the caller changed: versions, legacy mirrors, derived state (FORMATS A.2, A.9, H.12, H.13).

    Returns the session's dump, without keys.
    """
    complete_control_changes(loaded, session)
    now = without_keys(session.model_dump(warnings=False))
    if same(loaded["messages"], now["messages"]):
        now["messages"] = loaded["messages"]  # one and the same: whoever compares them again is done at once
    elif was_edited(loaded["messages"], now["messages"]):
        _clear_derived(loaded, now, session)
        now = without_keys(session.model_dump(warnings=False))
    return now


def complete_control_changes(loaded: Mapping[str, Any], session: Session) -> None:
    """The same for the control plane alone."""
    _bump_versions(loaded, session)
    _keep_mirrors(loaded, session)


def _bump_versions(loaded: Mapping[str, Any], session: Session) -> None:
    title_changed = session.title != loaded.get("title", "")
    if title_changed and session.title_version <= loaded.get("title_version", 0):
        session.title_version = loaded.get("title_version", 0) + 1
    if title_changed or session.pinned != loaded.get("pinned", False):
        session.metadata_version = max(session.metadata_version, loaded.get("metadata_version", 0) + 1)


def _keep_mirrors(loaded: Mapping[str, Any], session: Session) -> None:
    """A typed runtime field that changed has its legacy text changed with it."""
    before = loaded.get("runtime_metadata") or {}
    now = session.runtime_metadata.model_dump(warnings=False) if session.runtime_metadata else {}
    for name, key in MIRRORED.items():
        if same(before.get(name), now.get(name)):
            continue
        if session.metadata.get(key) != loaded.get("metadata", {}).get(key):
            continue  # the caller has set the mirror himself
        text = mirror_text(name, now.get(name))
        if text is None:
            session.metadata.pop(key, None)
        else:
            session.metadata[key] = text


def was_edited(before: list[Any], after: list[Any]) -> bool:
    """Whether a message that was there is gone or says something else. Appending edits nothing."""
    if len(after) < len(before):
        return True
    return any(not same(_content_of(b), _content_of(a)) for b, a in zip(before, after, strict=False))


def _content_of(message: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in message.items() if k not in _COMPRESSION_MARKS}


def _clear_derived(loaded: Mapping[str, Any], now: Mapping[str, Any], session: Session) -> None:
    """Only what the caller left as it was: who compresses writes messages and summary in one save."""
    for name in DERIVED:
        if same(loaded.get(name), now.get(name)):
            setattr(session, name, [] if name == "compression_events" else None)
    if session.metadata.get(_PREVIOUS_RESPONSE) == loaded.get("metadata", {}).get(_PREVIOUS_RESPONSE):
        session.metadata.pop(_PREVIOUS_RESPONSE, None)
    if not session.compression_events:
        for message in session.messages:
            message.compressed = False
            message.compressed_by_event_id = None
