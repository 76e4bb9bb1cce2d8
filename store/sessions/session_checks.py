"""Checks of a session that a program saves, shared by save, append and the in-memory backend.

A Session accepts any value assigned to its fields. These functions reject what could not be loaded
again (rule 6), what belongs to another path (rule 9), and stale copies (rule 8). None of them
writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from store import layout
from store.commit.core import Core
from store.commit.session_reader import LoadState
from store.documents import json_text
from store.documents.document import Document, identity_problem, parse_document
from store.documents.json_splice import splice
from store.documents.secrets import without_api_key_members
from store.errors import Conflict, InvalidContent, NotFound, Problem
from store.layout import Location
from store.model.record import ALIASES
from store.model.session import Session
from store.model.timestamp import Timestamp


def locate(core: Core, target: Session | str) -> Location:
    """The location of an existing session. Raises NotFound if it has no session.json."""
    location = location_of(target) if isinstance(target, Session) else core.locate(target)
    if location is None or core.disk.stat(location.path(layout.SESSION)) is None:
        raise NotFound(f"there is no session {target.id if isinstance(target, Session) else target!r}")
    return location


def location_of(session: Session) -> Location:
    """The location that a session's own id, kind and root name."""
    layout.check_id(session.id)
    if session.kind == "root":
        return Location(session.id)
    if session.kind != "child":
        raise InvalidContent(layout.SESSION, Problem(f"expected 'root' or 'child', got {session.kind!r}", field="kind"))
    root, parent = session.root_session_id, session.parent_session_id or ""
    if not root.strip() or not parent.strip():
        raise InvalidContent(layout.SESSION, Problem("a child needs root_session_id and parent_session_id"))
    return Location(layout.check_id(root.strip() if parent == root.strip() else root), session.id)


def require_valid_fields(session: Session) -> None:
    """Check the fields that `save` uses before the whole document is validated."""
    if not isinstance(session, Session):
        raise TypeError(f"save: expected a Session, got {type(session).__name__}")
    kinds = {"messages": list, "metadata": dict, "updated_at": str, "title_version": int, "metadata_version": int}
    for field, kind in kinds.items():
        value = getattr(session, field)
        if not isinstance(value, kind):
            reason = f"expected {kind.__name__}, got {value!r}"
            raise InvalidContent(layout.SESSION, Problem(reason, field=field))
    if session.kind == "child" and isinstance(session.root_session_id, str):
        trimmed = session.root_session_id.strip()  # as Bamboo does to find the directory
        if session.parent_session_id == trimmed:  # an id may begin with a space; the parent tells
            session.root_session_id = trimmed
    try:
        session.updated_at = Timestamp(session.updated_at)
    except ValueError as error:
        raise InvalidContent(layout.SESSION, Problem(str(error), field="updated_at")) from None


def require_no_lost_messages(location: Location, loaded: dict[str, Any], session: Session, *, shorten: bool) -> None:
    """Raise Conflict if the session has fewer messages than were loaded, unless `shorten`."""
    lost = len(loaded["messages"]) - len(session.messages)
    if lost > 0 and not shorten:
        raise Conflict(
            f"saving {location} would drop {lost} message{'s' if lost > 1 else ''}; nothing was changed. "
            "Pass shorten=True to allow it"
        )


def conflict_error(location: Location, origin: LoadState | None, *, of_runtime: bool = False) -> Conflict:
    if origin is None and of_runtime:
        return Conflict(
            f"session {location} already exists and this one was not loaded from it; nothing was changed. "
            "Load it first, with load or load_runtime"
        )
    if origin is None:
        return Conflict(
            f"session {location} already exists and this one was not loaded from it; nothing was changed. "
            "Load it first, or pass overwrite=True"
        )
    return Conflict(
        f"session {location} was changed by another writer since it was loaded; nothing was changed. "
        "Load it again, or use update()"
    )


def next_updated_at(origin: LoadState, wanted: Timestamp) -> Timestamp:
    """`wanted` if it is later than everything committed, else the next moment after that."""
    committed = later(Timestamp(origin.dump["updated_at"]), Timestamp(origin.main["updated_at"]))
    return wanted if wanted.ns > committed.ns else Timestamp.after(committed)


def later(one: Timestamp, other: Timestamp) -> Timestamp:
    return one if one.ns >= other.ns else other


# -- rendering and validating ----------------------------------------------------------------------


def dump(session: Session, *, without_messages: bool = False) -> dict[str, Any]:
    """The members to be written: all but API keys."""
    # No warnings: `checked_document` reports values of a wrong type with the name of the field.
    excluded = {"messages"} if without_messages else None
    return without_api_key_members(session.model_dump(warnings=False, exclude=excluded))


def splice_changes(raw: bytes, before: dict[str, Any], after: dict[str, Any]) -> bytes:
    """Replace in the text only the members that differ between `before` and `after` (rule 5)."""
    return rendered(lambda: splice(raw, before, after, aliases=ALIASES))


def rendered(render: Callable[[], bytes], name: str = layout.SESSION) -> bytes:
    try:
        return render()
    except TypeError as error:  # orjson: a lone surrogate, an integer over 64 bits, a type that JSON does not have
        raise InvalidContent(name, Problem(str(error))) from None


def checked_document(raw: bytes, location: Location, name: str, limit: int) -> Document:
    """Parse what the API is about to write.

    Raises InvalidContent if it cannot be loaded or belongs elsewhere.
    """
    path = location.path(name)
    try:
        document = parse_document(raw, path, limit=limit)
    except InvalidContent as error:  # the caller set fields and never saw this text: line numbers would not help
        raise type(error)(path, error.problem.without_positions()) from None
    problem = identity_problem(document, location)
    if problem is not None:
        raise InvalidContent(path, problem.without_positions())
    return document


def check_rendered(members: dict[str, Any], location: Location, limit: int) -> Document:
    """Render a new session.json with these members and check it."""
    return checked_document(rendered(lambda: json_text.render(members)), location, layout.SESSION, limit)
