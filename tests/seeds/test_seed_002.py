"""Seed 002, oxios-kernel `StateStore`: each of its tests, as a truth about our store.

Names are the seed's. "same" means that ours asserts what the seed asserts, or more; else the reason for the difference
follows. All of the seed's tests are about sessions; it has none for its plain documents, and what it does with those
is in test_seed_002_state.py, one test for each function.

| seed test | ours |
|---|---|
| test_session_creation_and_persistence | same; user messages and responses are messages of one conversation here, not two lists |
| test_session_list_sorts_by_updated | same, without loading a session; the title made from the first message is cut by columns, not by bytes |
| test_delete_session | same; it goes to the trash rather than for good, and an id is checked before it becomes a path |
| test_get_or_create_session_existing | same |
| test_get_or_create_session_new | same |
| test_prune_sessions_by_count | same; pinned ones stay, children go with their root, and all goes to the trash |
| test_prune_sessions_by_ttl | same; "no limit" is None here: 0, which means that there, is refused, because it reads like its opposite |
| test_load_sessions_for_promotion_filters_by_cutoff | same, one session in memory at a time, and none is opened to find that it is too old |

What the seed offers beyond its tests, and where that is tested:

| seed function | ours |
|---|---|
| save_session_with_prune, PruneConfig::default | `Store.open(auto_prune=…)`, and no default: 100 sessions and seven days would lose work silently (test_pruning) |
| PruneThrottle | the rest between automatic runs, one for all processes, not for each (test_pruning) |
| prune_agents_by_config | `store.agents`; a batch bounds one commit, not what one call may delete (test_agents) |
| update_session_with, update_session | `update` and `save`; the second refuses an outdated copy instead of winning (test_store) |
| move_session_to_project | `move_to_project` (test_owners); also `mv` in views/projects/ |
| extend_trajectory, trajectory | `store.trajectory`: lines of a log, so that a step costs no rewrite of the session; `updated_at` stays (test_trajectory) |
| exchange_count, is_empty, user_id, active_persona_id | `exchange_count()`, `messages`, `user_id`, `persona_id` (test_gist, test_owners) |
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
    """What is saved is loaded: the user, and what was said."""
    session = new_session("s1", "user-123", "Hello")
    store.save(session)
    loaded = store.load("s1")
    assert loaded is not None
    assert loaded.user_id == "user-123"
    assert [message.content for message in loaded.messages] == ["Hello"]
    assert loaded == session


def test_session_list_sorts_by_updated(store: Store) -> None:
    """The one that was changed last comes first, whoever was created when."""
    for number in range(3):
        store.save(new_session(f"s{number}", f"user-{number}", f"Message {number}"))
    assert users(store) == ["user-2", "user-1", "user-0"]
    store.append("s0", [Message.user("again")])
    summaries = store.summaries.page()
    assert [s.user_id for s in summaries] == ["user-0", "user-2", "user-1"]
    assert [s.title for s in summaries] == ["Message 0", "Message 2", "Message 1"]
    assert [s.message_count for s in summaries] == [2, 1, 1]


def test_delete_session(store: Store, home: Path) -> None:
    """It is gone, and said to be; a second time there is nothing to delete."""
    store.save(new_session("s1", "user-123"))
    assert store.delete("s1") is True
    assert store.load("s1") is None
    assert not (home / "sessions/s1").exists()
    assert store.delete("s1") is False


def test_get_or_create_session_existing(store: Store) -> None:
    """The session of that id, as it is."""
    existing = new_session("s1", "user-123", "Original message")
    store.save(existing)
    retrieved = store.get_or_create("s1", user_id="user-123")
    assert retrieved.id == existing.id
    assert [message.content for message in retrieved.messages] == ["Original message"]


def test_get_or_create_session_new(store: Store) -> None:
    """A new one of that user, empty and saved already."""
    session = store.get_or_create(user_id="user-456")
    assert session.user_id == "user-456"
    assert session.messages == []
    assert store.load(session.id) == session


def test_prune_sessions_by_count(store: Store) -> None:
    """Of five the oldest two go."""
    for number in range(5):
        store.save(new_session(f"s{number}", f"user-{number}", f"Message {number}"))
    result = store.prune.apply(store.prune.plan(Keep(newest=3)))
    assert len(result.deleted) == 2
    assert users(store) == ["user-4", "user-3", "user-2"]


def test_prune_sessions_by_ttl(store: Store) -> None:
    """What was not changed for a day goes; the rest stays, however many they are."""
    store.save(new_session("s1", "old-user", hours_old=48))
    store.save(new_session("s2", "recent-user", "Hello"))
    result = store.prune.apply(store.prune.plan(Keep(days=1)))
    assert [str(location) for location in result.deleted] == ["s1"]
    assert users(store) == ["recent-user"]


def test_load_sessions_for_promotion_filters_by_cutoff(store: Store, home: Path) -> None:
    """Only what changed since; an older one is not even opened, shown by making it unreadable."""
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
