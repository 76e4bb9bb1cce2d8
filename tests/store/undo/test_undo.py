"""Undo: the changes of a span of time taken back in many sessions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from store import Message, Store, UndoPlan, UndoResult
from store.history.authors import Author, acting_as
from tests.builders import make_session, read_json
from tests.store.undo.test_version_lookup import retitle

SED = Author("mount", "sed", 4711, 0)
AGENT = Author("api", "agent", 12, 0)

SESSIONS = 100
LIVE = 20  # sessions in which agents keep writing


def sed(store: Store, home: Path, id: str, old: str = "teh", new: str = "the") -> None:
    """What `sed -i` through a mount does: the bytes are replaced as typed."""
    path = home / "sessions" / id / "session.json"
    with acting_as(SED):
        store.put_document(id, "session.json", path.read_bytes().replace(old.encode(), new.encode()))


def plan(store: Store, **request: Any) -> UndoPlan:
    return store.history.plan_undo(**{"since": "1h", **request})


def undo(store: Store, **request: Any) -> UndoResult:
    return store.history.undo(plan(store, **request))


def contents(home: Path) -> dict[str, Any]:
    """All documents without `updated_at`."""
    found = {}
    for path in sorted((home / "sessions").rglob("*.json")):
        document = read_json(path)
        document.pop("updated_at", None)
        found[str(path.relative_to(home))] = document
    return found


def made(store: Store, id: str, text: str = "because of teh test", **fields: Any) -> None:
    with acting_as(AGENT):
        store.save(make_session(id, messages=0, **fields))
        store.append(id, [Message.user(text)])


def test_a_wrong_sed_over_many_sessions(home: Path) -> None:
    """Sessions in which agents wrote afterwards are refused; --merge undoes those too and keeps what the agents said.
    Then the undo is undone."""
    undo_a_wrong_sed(home, SESSIONS, LIVE)


def undo_a_wrong_sed(home: Path, count: int, live_count: int) -> None:
    """Also run by scripts/torture, with more sessions."""
    with Store.open(home, background=False, durability="normal") as store:
        for number in range(count):
            made(store, f"s{number:04}")
        before = contents(home)
        for id in store.ids():
            sed(store, home, id)
        wrong = contents(home)
        live = [f"s{number:04}" for number in range(0, count, count // live_count)]
        for id in live:
            with acting_as(AGENT):
                store.append(id, [Message.assistant("the answer")])
        planned = plan(store, by="sed")
        assert (len(planned.to_undo), len(planned.refused)) == (count - live_count, live_count)
        assert {refusal.reason for refusal in planned.refused} == {
            "changed since by agent; --merge keeps those changes"
        }
        first = store.history.undo(planned)
        assert (len(first.undone), first.refused, first.unchanged) == (count - live_count, [], [])
        merged = plan(store, by="sed", merge=True)
        assert (len(merged.to_undo), len(merged.refused), len(merged.unchanged)) == (live_count, 0, count - live_count)
        assert len(store.history.undo(merged).undone) == live_count
        after = contents(home)
        for id in live:
            messages = after[f"sessions/{id}/session.json"]["messages"]
            assert [message["content"] for message in messages] == ["because of teh test", "the answer"]
            for name in ("session.json", "runtime.json"):
                after.pop(f"sessions/{id}/{name}")
                before.pop(f"sessions/{id}/{name}")
                wrong.pop(f"sessions/{id}/{name}")
        assert after == before
        assert len(undo(store, by="revert*").undone) == count
        assert {path: found for path, found in contents(home).items() if path in wrong} == wrong
        assert store.check().is_clean


def test_a_plan_changes_nothing(store: Store, home: Path) -> None:
    """It lists what would be done."""
    made(store, "s1")
    sed(store, home, "s1")
    before = contents(home)
    planned = plan(store, by="sed")
    assert [(item.path, item.target.number, len(item.bad)) for item in planned.to_undo] == [("sessions/s1", 2, 1)]
    assert contents(home) == before
    assert len(store.history.log("s1")) == 3


def test_several_changes_are_taken_back_together(store: Store, home: Path) -> None:
    """Back to the version before the first of them."""
    made(store, "s1")
    sed(store, home, "s1")
    sed(store, home, "s1", "test", "toast")
    assert [len(item.bad) for item in undo(store, by="sed").undone] == [2]
    session = store.load("s1")
    assert session is not None
    assert session.messages[0].content == "because of teh test"
    newest = store.history.newest("s1")
    assert newest is not None
    assert newest.note == "undid 3 to 4"


def test_the_window_counts(store: Store, home: Path) -> None:
    """What was done before it stays."""
    made(store, "s1")
    sed(store, home, "s1")
    first = store.history.newest("s1")
    assert first is not None
    time.sleep(0.01)
    sed(store, home, "s1", "test", "toast")
    planned = plan(store, since=_exact(first.at_ns + 1), by="sed")
    assert [item.target.number for item in planned.to_undo] == [3]
    only_first = plan(store, until=_exact(first.at_ns), by="sed")
    assert only_first.to_undo == ()
    assert [refusal.reason for refusal in only_first.refused] == ["changed since by sed; --merge keeps those changes"]


def _exact(at_ns: int) -> str:
    seconds, fraction = divmod(at_ns, 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{fraction:09}Z"


def test_only_named_sessions_are_undone(store: Store, home: Path) -> None:
    """By any name that means them."""
    for id in ("s1", "s2"):
        made(store, id, title=f"Title of {id}")
        sed(store, home, id)
    assert [item.path for item in undo(store, by="sed", names=["title of s2"]).undone] == ["sessions/s2"]


def test_what_is_as_before_is_counted_only(store: Store, home: Path) -> None:
    """A second undo of the same does nothing."""
    made(store, "s1")
    sed(store, home, "s1")
    undo(store, by="sed")
    again = plan(store, by="sed")
    assert (again.to_undo, again.refused, again.unchanged) == ((), (), ("sessions/s1",))
    merged = plan(store, by="sed", merge=True)
    assert (merged.to_undo, merged.refused, merged.unchanged) == ((), (), ("sessions/s1",))


def test_sessions_made_or_deleted_meanwhile_are_refused(store: Store, home: Path) -> None:
    """With the reason, and under a name that people know."""
    made(store, "gone")
    sed(store, home, "gone")
    store.delete("gone")
    with acting_as(SED):
        store.save(make_session("new"))
    refused = plan(store, by="sed").refused
    assert {store.history.name_of(refusal.path): refusal.reason for refusal in refused} == {
        "gone (deleted)": "it is in the trash now; `grovefs undelete` restores it",
        "new": "it was made in that time; `grovefs rm` deletes it",
    }


def test_a_renamed_session_is_undone_under_its_new_name(store: Store, home: Path) -> None:
    """The rename stays."""
    made(store, "old")
    sed(store, home, "old")
    store.rename("old", "new")
    assert [item.path for item in undo(store, by="sed").undone] == ["sessions/new"]
    session = store.load("new")
    assert session is not None
    assert session.messages[0].content == "because of teh test"


def test_what_changed_since_the_plan_is_decided_again(store: Store, home: Path) -> None:
    """Under the lock: an agent that writes meanwhile is not overwritten."""
    for id in ("busy", "deleted", "quiet"):
        made(store, id)
        sed(store, home, id)
    planned = plan(store, by="sed")
    with acting_as(AGENT):
        store.append("busy", [Message.assistant("the answer")])
    store.delete("deleted")
    result = store.history.undo(planned)
    assert [item.path for item in result.undone] == ["sessions/quiet"]
    reasons = {refusal.path: refusal.reason for refusal in result.refused}
    assert reasons["sessions/busy"].startswith("changed since by agent")
    assert reasons["sessions/deleted"] == "it was deleted or renamed since the plan was made"
    session = store.load("busy")
    assert session is not None
    assert [message.content for message in session.messages] == ["because of the test", "the answer"]


def test_a_change_outside_the_store_counts_as_a_change_since(store: Store, home: Path) -> None:
    """It is noticed before anything is replaced."""
    made(store, "s1")
    sed(store, home, "s1")
    planned = plan(store, by="sed")
    path = home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"test", b"toast"))
    result = store.history.undo(planned)
    assert [refusal.reason for refusal in result.refused] == ["changed since by outside; --merge keeps those changes"]
    assert b"toast" in path.read_bytes()


def test_a_merge_takes_changes_out_one_by_one(store: Store, home: Path) -> None:
    """Newest first, from between those of an agent, in both documents."""
    made(store, "s1", "teh first", title="teh title")
    sed(store, home, "s1", "teh first", "the first")
    with acting_as(AGENT):
        store.append("s1", [Message.assistant("second")])
    sed(store, home, "s1", "teh title", "the title")
    with acting_as(AGENT):
        store.append("s1", [Message.user("third")])
    assert [item.is_merge for item in undo(store, by="sed", merge=True).undone] == [True]
    session = store.load("s1")
    assert session is not None
    assert session.title == "teh title"
    assert [message.content for message in session.messages] == ["teh first", "second", "third"]
    assert read_json(home / "sessions/s1/runtime.json")["title"] == "teh title"


def test_a_clash_is_refused_with_its_version_and_place(store: Store, home: Path) -> None:
    """An agent changed the same member since; nothing is changed."""
    made(store, "s1", title="teh title")
    sed(store, home, "s1", "teh title", "the title")
    with acting_as(AGENT):
        retitle(store, "s1", "another title")
    before = contents(home)
    planned = plan(store, by="sed", merge=True)
    assert planned.to_undo == ()
    reason = planned.refused[0].reason
    assert reason.startswith("version 3 cannot be taken out: ")
    assert "title" in reason
    assert contents(home) == before


def test_state_documents_are_undone(store: Store, home: Path) -> None:
    """JSON can be merged, plain text cannot."""
    with acting_as(AGENT):
        store.state.save_json("plans", "facts", {"a": 1, "b": 1})
        store.state.save_markdown("plans", "today", "one\n")
        store.state.save_markdown("plans", "other", "one\n")
    with acting_as(SED):
        store.state.save_json("plans", "facts", {"a": 2, "b": 1})
        store.state.save_markdown("plans", "today", "two\n")
        store.state.save_markdown("plans", "other", "two\n")
    with acting_as(AGENT):
        store.state.save_json("plans", "facts", {"a": 2, "b": 2})
        store.state.save_markdown("plans", "other", "three\n")
    planned = plan(store, by="sed", merge=True)
    assert [refusal.reason for refusal in planned.refused] == [
        "version 2 cannot be taken out: only JSON documents can be merged; `grovefs revert` brings a version back"
    ]
    assert len(store.history.undo(planned).undone) == 2
    assert read_json(home / "state/plans/facts.json") == {"a": 1, "b": 2}
    assert (home / "state/plans/today.md").read_text() == "one\n"


@pytest.mark.parametrize("merge", [False, True])
def test_pinned_sessions_are_undone_too(store: Store, home: Path, merge: bool) -> None:
    """Pinning protects from deletion, not from changes."""
    made(store, "s1", pinned=True)
    sed(store, home, "s1")
    assert len(undo(store, by="sed", merge=merge).undone) == 1
