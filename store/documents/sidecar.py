"""Sidecar: merge of session.json and runtime.json, member by member. Pure.

The sidecar runtime.json holds the newest control plane (everything but the messages), and its
members win when a session is loaded. So a change made in session.json must also be applied to
the sidecar, or it would have no effect.

A sidecar with an older `updated_at` than its session.json is stale. Every program that knows
sidecars writes both, so a program that does not (Bamboo before sidecars, an editor on the disk) wrote
session.json after it. A stale sidecar is ignored, and the next save replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from store.documents.json_splice import same, splice
from store.documents.secrets import without_api_key_members
from store.model.mirrored_fields import MIRRORED, mirror_text
from store.model.record import ALIASES
from store.model.session import Session

AUTHORITY = "_bamboo_main_authority"
# Members that newer versions of Bamboo write to session.json only.
SESSION_ONLY = frozenset({"messages", "provider_transcript", AUTHORITY})

# Members that compression sets on a message. Changing them does not count as editing the message.
COMPRESSION_MARKS = ("compressed", "compressed_by_event_id", "never_compress", "compression_level")
# Members computed from the messages, invalid after a message was edited.
DERIVED = ("token_usage", "conversation_summary", "compression_events", "model_context_state")
_PREVIOUS_RESPONSE = "responses.previous_response_id"


def overlay(main: Session, side: Session | None) -> Session:
    """The session as loaded: messages from session.json, everything else from the sidecar.

    A stale sidecar contributes nothing.
    """
    if side is None or is_stale(side, main):
        return main
    merged = side.model_copy()
    merged.messages = main.messages
    merged.provider_transcript = main.provider_transcript
    admission = main.runtime_metadata.session_inbox_admission if main.runtime_metadata else None
    if admission is not None and merged.runtime_metadata is not None:
        merged.runtime_metadata = merged.runtime_metadata.model_copy(update={"session_inbox_admission": admission})
    return merged


def is_stale(side: Session, main: Session) -> bool:
    """Whether session.json was written later than the sidecar, by a program that does not write both."""
    return side.updated_at.ns < main.updated_at.ns


def control_plane(document: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a document that belong in the sidecar, with the spellings used there."""
    plane = {k: v for k, v in document.items() if k not in SESSION_ONLY}
    if ALIASES["task_list"] in plane:
        plane = _renamed(plane, "task_list")
    return plane | _without_admission(document)


def _renamed(members: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The members, with `name` instead of its alias."""
    return {name if k == ALIASES[name] else k: v for k, v in members.items()}


def _without_admission(document: Mapping[str, Any]) -> dict[str, Any]:
    """runtime_metadata without the one member that only session.json has."""
    metadata = document.get("runtime_metadata")
    if not isinstance(metadata, dict) or "session_inbox_admission" not in metadata:
        return {}
    return {"runtime_metadata": {k: v for k, v in metadata.items() if k != "session_inbox_admission"}}


def sidecar_of(raw: bytes, document: Mapping[str, Any]) -> bytes:
    """A new sidecar for a session.json: the same text without messages and legacy child lists."""
    plane: dict[str, Any] = without_api_key_members({k: v for k, v in document.items() if k not in SESSION_ONLY})
    plane |= {"messages": [], **_without_admission(document)}
    state = plane.get("agent_runtime_state")
    if isinstance(state, dict) and state.get("children"):
        plane["agent_runtime_state"] = {**state, "children": {}}
    return splice(raw, document, plane)


def apply_changes_to_sidecar(side: bytes, old: Mapping[str, Any], new: Mapping[str, Any]) -> bytes:
    """The sidecar with the difference between `old` and `new` session.json applied. All else is kept."""
    return splice(side, _comparable_plane(old), _comparable_plane(new), aliases=ALIASES)


def _comparable_plane(document: Mapping[str, Any]) -> dict[str, Any]:
    """The control plane with the same spellings in all documents.

    A map absent from session.json counts as empty, so that other entries in the sidecar are kept.
    """
    plane = _with_task_names(control_plane(document))
    plane.setdefault("metadata", {})
    plane.setdefault("runtime_metadata", {})
    return plane


def _with_task_names(plane: dict[str, Any]) -> dict[str, Any]:
    """Replace aliases inside the task list: session.json and sidecar may use different spellings."""
    tasks = plane.get("task_list")
    if not tasks:
        return plane
    items = [_renamed(item, "active_form") for item in tasks["items"]]
    for item in items:
        if "evidence" in item:
            item["evidence"] = [_renamed(evidence, "reference") for evidence in item["evidence"]]
    return {**plane, "task_list": {**tasks, "items": items}}


def merged_main(main: Mapping[str, Any], loaded: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The members of session.json after an API save: those of the record now.

    Unknown members that only session.json has are kept. The sidecar never had them, so their
    absence from the loaded record does not mean that they were removed.
    """
    known = Session.model_fields
    kept = {k: v for k, v in main.items() if k not in known and k not in loaded and k != AUTHORITY}
    return {**kept, **{k: v for k, v in now.items() if k != AUTHORITY}}


# -- changes that follow from an API save -----------------------------------------------------------


def complete_api_changes(loaded: Mapping[str, Any], session: Session) -> dict[str, Any]:
    """Update what follows from the caller's changes: versions, mirrored fields, derived state.

    Returns the dump of the session, without API keys.
    """
    complete_control_changes(loaded, session)
    now = without_api_key_members(session.model_dump(warnings=False))
    if same(loaded["messages"], now["messages"]):
        now["messages"] = loaded["messages"]  # the same object: later comparisons return at once
    elif was_edited(loaded["messages"], now["messages"]):
        _clear_derived(loaded, now, session)
        now = without_api_key_members(session.model_dump(warnings=False))
    return now


def complete_control_changes(loaded: Mapping[str, Any], session: Session) -> None:
    """Like `complete_api_changes`, for the control plane only."""
    _bump_versions(loaded, session)
    _update_mirrors(loaded, session)


def _bump_versions(loaded: Mapping[str, Any], session: Session) -> None:
    title_changed = session.title != loaded.get("title", "")
    if title_changed and session.title_version <= loaded.get("title_version", 0):
        session.title_version = loaded.get("title_version", 0) + 1
    if title_changed or session.pinned != loaded.get("pinned", False):
        session.metadata_version = max(session.metadata_version, loaded.get("metadata_version", 0) + 1)


def _update_mirrors(loaded: Mapping[str, Any], session: Session) -> None:
    """Update the string in metadata of each typed runtime field that changed."""
    before = loaded.get("runtime_metadata") or {}
    now = session.runtime_metadata.model_dump(warnings=False) if session.runtime_metadata else {}
    for name, key in MIRRORED.items():
        if same(before.get(name), now.get(name)):
            continue
        if session.metadata.get(key) != loaded.get("metadata", {}).get(key):
            continue  # the caller changed the string too
        text = mirror_text(name, now.get(name))
        if text is None:
            session.metadata.pop(key, None)
        else:
            session.metadata[key] = text


def was_edited(before: list[Any], after: list[Any]) -> bool:
    """Whether an existing message was removed or changed. Appending is not an edit."""
    if len(after) < len(before):
        return True
    return any(not same(_content_of(b), _content_of(a)) for b, a in zip(before, after, strict=False))


def _content_of(message: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in message.items() if k not in COMPRESSION_MARKS}


def _clear_derived(loaded: Mapping[str, Any], now: Mapping[str, Any], session: Session) -> None:
    """Clear derived members that the caller did not change. Compression changes messages and summary in one save."""
    for name in DERIVED:
        if same(loaded.get(name), now.get(name)):
            setattr(session, name, [] if name == "compression_events" else None)
    if session.metadata.get(_PREVIOUS_RESPONSE) == loaded.get("metadata", {}).get(_PREVIOUS_RESPONSE):
        session.metadata.pop(_PREVIOUS_RESPONSE, None)
    if not session.compression_events:
        for message in session.messages:
            message.compressed = False
            message.compressed_by_event_id = None
