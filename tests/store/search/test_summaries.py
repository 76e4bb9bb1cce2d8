"""Session summaries, and iteration over changed sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from store import Location, Message, Session, Store, Timestamp
from store.commit.core import Core
from tests.builders import make_session
from tests.store.tables import dump_tables


def untitled(id: str, *messages: Message, **fields: Any) -> Session:
    session = make_session(id, messages=0, **fields)
    for message in messages:
        session.add_message(message)
    return session


def title_of(store: Store, id: str) -> str:
    return next(s.title for s in store.summaries.page() if s.id == id)


# -- summaries ---------------------------------------------------------------------------------------------


def test_title_is_derived_from_the_first_user_message(store: Store) -> None:
    """A stored title is kept. Without a user message there is no derived title."""
    store.save(untitled("a", Message.system("You are kind."), Message.user("Fix the page\nplease")))
    store.save(untitled("b", Message.user("hello"), title="My title"))
    store.save(untitled("c", Message.user("hello"), title="  "))
    store.save(untitled("d"))
    found = {s.id: (s.title, s.is_derived_title) for s in store.summaries.page()}
    assert found == {
        "a": ("Fix the page", True),
        "b": ("My title", False),
        "c": ("hello", True),
        "d": ("New Session", False),
    }


def test_summary_has_owner_project_and_counters(store: Store) -> None:
    """User, persona, project, and the number of answered user messages."""
    store.save(make_session("s1", messages=5, user_id="ada", persona_id="critic", project_id="atlas", pinned=True))
    (summary,) = store.summaries.page()
    assert (summary.user_id, summary.persona_id, summary.project_id) == ("ada", "critic", "atlas")
    assert (summary.message_count, summary.exchange_count, summary.pinned) == (5, 2, True)
    loaded = store.load("s1")
    assert loaded is not None
    assert loaded.exchange_count() == 2


def test_summaries_can_be_filtered_by_user_and_persona(store: Store) -> None:
    for number, user in enumerate(["ada", "ben", "ada"]):
        store.save(make_session(f"s{number}", user_id=user, persona_id=f"p{number}"))
    assert [s.id for s in store.summaries.page(user="ada", order="created", descending=False)] == ["s0", "s2"]
    assert [s.id for s in store.summaries.page(user="ada", persona="p2")] == ["s2"]
    assert [e.id for e in store.entries(user="ben")] == ["s1"]


def test_summaries_read_no_document(store: Store, home: Path) -> None:
    """The list is the same after every document has become unreadable."""
    store.save(untitled("s1", Message.user("hello")))
    before = store.summaries.page()
    path = home / "sessions/s1/session.json"
    raw = path.read_bytes()
    path.write_bytes(b"{")
    assert store.summaries.page() == before
    path.write_bytes(raw)
    store.maintenance.sweep()


def test_every_change_updates_the_summary(store: Store, home: Path) -> None:
    """Rule 7: append, runtime save, save, put, clear. A rebuild gives the same rows."""
    store.save(untitled("s1", Message.system("x")))
    assert title_of(store, "s1") == "New Session"
    store.append("s1", [Message.assistant("ready"), Message.user("first words")])
    assert title_of(store, "s1") == "first words"
    store.append("s1", [Message.user("second"), Message.assistant("done")])
    assert store.summaries.page()[0].exchange_count == 2
    runtime = store.load_runtime("s1")
    assert runtime is not None
    runtime.user_id = "ada"
    store.save_runtime(runtime)
    assert store.summaries.page()[0].user_id == "ada"
    store.update("s1", lambda session: setattr(session.messages[2], "content", "other words"))
    assert title_of(store, "s1") == "other words"
    raw = store.get_document("s1", "session.json")
    assert raw is not None
    store.put_document("s1", "session.json", raw.replace(b"other words", b"typed words"))
    assert title_of(store, "s1") == "typed words"
    kept = dump_tables(home)
    store.maintenance.rebuild()
    assert dump_tables(home) == kept
    store.clear("s1")
    assert title_of(store, "s1") == "New Session"
    assert store.summaries.page()[0].exchange_count == 0


def test_check_finds_and_repairs_a_wrong_summary(store: Store) -> None:
    store.save(untitled("s1", Message.user("hello")))
    with store._core.db.write() as db:
        db.execute("UPDATE sessions SET opening = 'wrong', asked = 7")
    assert [f.kind for f in store.check().findings] == ["stale-row"]
    assert store.check(repair=True).exit_code == 1
    assert title_of(store, "s1") == "hello"


# -- changed sessions --------------------------------------------------------------------------------------


def test_changed_sessions_come_in_order_of_change(store: Store) -> None:
    """From the given time on, inclusive; children too."""
    for number in range(4):
        store.save(make_session(f"s{number}", updated_at=Timestamp(f"2026-01-0{number + 1}T00:00:00Z")))
    store.save(Session.new_child("kid", "s0", "m", "A child"))
    found = list(store.summaries.iter_changed("2026-01-03T00:00:00Z"))
    assert [s.id for s in found] == ["s2", "s3", "kid"]
    assert [m.content for m in found[0].messages] == ["msg-0", "msg-1"]
    assert list(store.summaries.iter_changed("2999-01-01T00:00:00+08:00")) == []


def test_times_are_compared_to_the_nanosecond(store: Store) -> None:
    """And as instants, whatever their time zones."""
    store.save(make_session("s1", updated_at=Timestamp("2026-01-01T00:00:00.123456789Z")))
    assert [s.id for s in store.summaries.iter_changed("2026-01-01T08:00:00.123456789+08:00")] == ["s1"]
    assert list(store.summaries.iter_changed("2026-01-01T00:00:00.123456790Z")) == []


def test_invalid_time_is_rejected_immediately(store: Store) -> None:
    """Not only when the first session is requested."""
    with pytest.raises(ValueError, match="RFC 3339"):
        store.summaries.iter_changed("yesterday")


def test_sessions_are_loaded_one_by_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each only when requested, and only those that changed."""
    for number in range(5):
        store.save(make_session(f"s{number}"))
    loaded: list[str] = []
    load = Core.load

    def recorded(core: Core, location: Location) -> object:
        loaded.append(location.id)
        return load(core, location)

    monkeypatch.setattr(Core, "load", recorded)
    third = store.entry("s2")
    assert third is not None
    stream = store.summaries.iter_changed(third.updated_at)
    assert loaded == []
    assert next(stream).id == "s2"
    assert loaded == ["s2"]
    assert [s.id for s in stream] == ["s3", "s4"]


def test_iteration_ends_while_sessions_change(store: Store) -> None:
    """Each session comes once, also with a continuous writer. Sessions deleted in the meantime are skipped."""
    for number in range(4):
        store.save(make_session(f"s{number}"))
    seen: list[str] = []
    for session in store.summaries.iter_changed("2000-01-01T00:00:00Z"):
        seen.append(session.id)
        store.append(session.id, [Message.user("more")])
        if session.id == "s1":
            store.delete("s2")
    assert seen == ["s0", "s1", "s3"]


@pytest.mark.warns
def test_unreadable_session_is_skipped(store: Store, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With a warning in the log that names it."""
    for number in range(3):
        store.save(make_session(f"s{number}"))
    path = home / "sessions/s1/session.json"
    raw = path.read_bytes()
    path.write_bytes(b"{")
    assert [s.id for s in store.summaries.iter_changed("2000-01-01T00:00:00Z")] == ["s0", "s2"]
    assert "sessions/s1/session.json" in caplog.text
    path.write_bytes(raw)
    store.maintenance.sweep()


def test_session_from_the_iteration_can_be_saved(store: Store) -> None:
    """It carries the version it was loaded with."""
    store.save(make_session("s1"))
    for session in store.summaries.iter_changed("2000-01-01T00:00:00Z"):
        session.title = "Seen"
        store.save(session)
    assert title_of(store, "s1") == "Seen"


def test_c8_lists_do_not_stop_at_a_page(home: Path) -> None:
    """`limit` and `offset` give pages to programs that want them."""
    with Store.open(home, background=False, durability="normal") as store:
        for number in range(203):
            store.save(make_session(f"s{number:03}", messages=0))
        assert len(store.entries()) == len(store.summaries.page()) == 203
        assert len(store.entries(limit=200)) == len(store.summaries.page(limit=200)) == 200
        assert len(store.entries(limit=200, offset=200)) == 3
