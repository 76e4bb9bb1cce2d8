"""Builders of sessions and documents for tests. A test passes only the members it is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from store import AgentRuntimeState, Hit, Location, Message, Session, Store

NINE_DIGITS = "2026-06-20T08:15:30.123456789Z"


def make_session(id: str = "s1", *, messages: int = 2, run_id: str | None = None, **fields: Any) -> Session:
    session = Session.new(id, fields.pop("model", "test-model"))
    for i in range(messages):
        session.add_message(Message.user(f"msg-{i}") if i % 2 == 0 else Message.assistant(f"msg-{i}"))
    if run_id is not None:
        session.agent_runtime_state = AgentRuntimeState.new(run_id)
    for name, value in fields.items():
        setattr(session, name, value)
    return session


def make_document(id: str = "s1", *, indent: int | None = 2, **members: Any) -> bytes:
    """A minimal valid session.json with additional members."""
    data: dict[str, Any] = {
        "id": id,
        "title": "A title",
        "kind": "root",
        "root_session_id": id,
        "messages": [{"id": "m1", "role": "user", "content": "hello", "created_at": NINE_DIGITS}],
        "created_at": NINE_DIGITS,
        "updated_at": NINE_DIGITS,
    }
    data.update(members)
    return json.dumps(data, indent=indent, ensure_ascii=False).encode()


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def location_of(hit: Hit) -> Location:
    """The session of a search result. Only for tests that do not search state documents."""
    assert hit.location is not None
    return hit.location


def files_below(home: Path) -> dict[str, bytes]:
    """Contents of all files in sessions/, projects/ and state/ by path, to show that nothing changed."""
    bases = {home / "sessions": home / "sessions", home / "projects": home, home / "state": home}
    found = [(p, base) for part, base in bases.items() for p in sorted(part.rglob("*")) if p.is_file()]
    return {str(p.relative_to(base)): p.read_bytes() for p, base in found}


def ids(store: Store) -> set[str]:
    return {entry.id for entry in store.entries()}


def pin(store: Store, session_id: str) -> None:
    store.update(session_id, lambda session: setattr(session, "pinned", True))


def make_grove(store: Store) -> Store:
    """Root r with children a, b; a1 below a, a2 below a1; and another root q with a child k."""
    for root in ("r", "q"):
        store.save(make_session(root, title=f"root {root}"))
    for id, parent in (("a", "r"), ("b", "r"), ("a1", "a"), ("a2", "a1"), ("k", "q")):
        above = store.load(parent)
        assert above is not None
        child = Session.new_child_of(id, above, "m", f"child {id}")
        for text in ("one", f"unique-{id}"):
            child.add_message(Message.user(text))
        store.save(child)
    store.attach("a1", b"picture", "image/png")
    return store
