"""Seed 002, oxios-kernel `StateStore`: each of its tests, for our store.

The names are those of the seed. "same" means that our test asserts what the seed asserts, or more. Otherwise the
difference and its reason follow. All of the seed's tests are about sessions. It has none for its state documents;
test_seed_002_state.py has one test per function for those.

| seed test | ours |
|---|---|
| test_session_creation_and_persistence | same; user messages and responses are messages of one conversation here, not two lists |
| test_session_list_sorts_by_updated | same, without loading a session; the derived title is shortened by columns, not by bytes |
| test_delete_session | same; the session is moved to the trash, and its id is validated before use as a path |
| test_get_or_create_session_existing | same |
| test_get_or_create_session_new | same |
| test_prune_sessions_by_count | same; pinned sessions are kept, children are deleted with their root, and everything is moved to the trash |
| test_prune_sessions_by_ttl | same; "no limit" is None here. 0, which means that in the seed, is rejected as ambiguous |
| test_load_sessions_for_promotion_filters_by_cutoff | same, with one session in memory at a time, and without opening sessions that are too old |

Functions of the seed without tests there, and where ours are tested:

| seed function | ours |
|---|---|
| save_session_with_prune, PruneConfig::default | `Store.open(auto_prune=…)`, without a default: 100 sessions and seven days would silently delete work (test_prune) |
| PruneThrottle | the interval between automatic runs, shared by all processes (test_prune) |
| prune_agents_by_config | `store.prune.plan_agents`; a batch limits one commit, not one call (test_agent_records) |
| update_session_with, update_session | `update` and `save`; `save` rejects a stale copy instead of overwriting (test_store) |
| move_session_to_project | `move_to_project` (test_ownership); also `mv` in views/projects/ |
| extend_trajectory, trajectory | `store.trajectory`: a log, so a step does not rewrite the session; `updated_at` is unchanged (test_logs) |
| exchange_count, is_empty, user_id, active_persona_id, set_active_seed | `exchange_count()`, `messages`, `user_id`, `persona_id`, `seed_id` (test_preview, test_ownership, test_oxios) |
"""  # noqa: E501  # a row of a table is one line

from __future__ import annotations

import time
from pathlib import Path

from store import Keep, Message, Session, Store, Timestamp
from store.sessions.prune import DAY_NS


def new_session(id: str, user_id: str, *messages: str, hours_old: float = 0) -> Session:
    session = Session.new(id)
    session.user_id = user_id
    for text in messages:
        session.add_message(Message.user(text))
    if hours_old:
        session.updated_at = Timestamp.from_ns(time.time_ns() - int(hours_old * DAY_NS / 24))
    return session


def users(store: Store) -> list[str | None]:
    return [summary.user_id for summary in store.summaries.page()]


def test_session_creation_and_persistence(store: Store) -> None:
    """User and messages are loaded as they were saved."""
    session = new_session("s1", "user-123", "Hello")
    store.save(session)
    loaded = store.load("s1")
    assert loaded is not None
    assert loaded.user_id == "user-123"
    assert [message.content for message in loaded.messages] == ["Hello"]
    assert loaded == session


def test_session_list_sorts_by_updated(store: Store) -> None:
    """The last changed session comes first, regardless of creation time."""
    for number in range(3):
        store.save(new_session(f"s{number}", f"user-{number}", f"Message {number}"))
    assert users(store) == ["user-2", "user-1", "user-0"]
    store.append("s0", [Message.user("again")])
    summaries = store.summaries.page()
    assert [s.user_id for s in summaries] == ["user-0", "user-2", "user-1"]
    assert [s.title for s in summaries] == ["Message 0", "Message 2", "Message 1"]
    assert [s.message_count for s in summaries] == [2, 1, 1]


def test_delete_session(store: Store, home: Path) -> None:
    """The session is gone and True is returned; the second call returns False."""
    store.save(new_session("s1", "user-123"))
    assert store.delete("s1") is True
    assert store.load("s1") is None
    assert not (home / "sessions/s1").exists()
    assert store.delete("s1") is False


def test_get_or_create_session_existing(store: Store) -> None:
    """Returns the existing session unchanged."""
    existing = new_session("s1", "user-123", "Original message")
    store.save(existing)
    retrieved = store.get_or_create("s1", user_id="user-123")
    assert retrieved.id == existing.id
    assert [message.content for message in retrieved.messages] == ["Original message"]


def test_get_or_create_session_new(store: Store) -> None:
    """Returns a new session of the user, without messages and already saved."""
    session = store.get_or_create(user_id="user-456")
    assert session.user_id == "user-456"
    assert session.messages == []
    assert store.load(session.id) == session


def test_prune_sessions_by_count(store: Store) -> None:
    """The oldest two of five are deleted."""
    for number in range(5):
        store.save(new_session(f"s{number}", f"user-{number}", f"Message {number}"))
    result = store.prune.apply(store.prune.plan(Keep(newest=3)))
    assert len(result.deleted) == 2
    assert users(store) == ["user-4", "user-3", "user-2"]


def test_prune_sessions_by_ttl(store: Store) -> None:
    """Sessions unchanged for a day are deleted; the others are kept, regardless of their number."""
    store.save(new_session("s1", "old-user", hours_old=48))
    store.save(new_session("s2", "recent-user", "Hello"))
    result = store.prune.apply(store.prune.plan(Keep(days=1)))
    assert [str(location) for location in result.deleted] == ["s1"]
    assert users(store) == ["recent-user"]


def test_load_sessions_for_promotion_filters_by_cutoff(store: Store, home: Path) -> None:
    """Only sessions changed since the cutoff. An older one is not opened, as an unreadable file shows."""
    store.save(new_session("s1", "old-user", hours_old=48))
    store.save(new_session("s2", "recent-user"))
    path = home / "sessions/s1/session.json"
    raw = path.read_bytes()
    path.write_bytes(b"{")
    cutoff = Timestamp.from_ns(time.time_ns() - DAY_NS)
    assert [session.user_id for session in store.summaries.iter_changed(cutoff)] == ["recent-user"]
    path.write_bytes(raw)
    store.maintenance.sweep()
    long_ago = Timestamp.from_ns(time.time_ns() - 365 * DAY_NS)
    assert [session.user_id for session in store.summaries.iter_changed(long_ago)] == ["old-user", "recent-user"]
