"""Revert: a past version committed again, as a new one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Conflict, InvalidContent, Message, NotFound, Session, Store
from store.commit.write_request import WriteRequest
from store.path_kinds import classify_path
from tests.builders import make_document, make_session, read_json
from tests.store.undo.test_version_lookup import retitle


def version_texts(store: Store, id: str, number: int) -> tuple[bytes, bytes]:
    found = store.history.find(id, number)
    assert found is not None
    main, side = store.history.read(found)
    assert main is not None
    assert side is not None
    return main, side


def revert(store: Store, id: str, number: int) -> bool:
    found = store.history.find(id, number)
    assert found is not None
    return store.history.revert(found)


def without_time(text: bytes) -> dict[str, object]:
    return {key: value for key, value in json.loads(text).items() if key != "updated_at"}


def test_both_documents_are_as_then(store: Store, home: Path) -> None:
    """In one commit, with a new `updated_at`; the version that was replaced is kept."""
    store.save(make_session("s1", title="before"))
    store.append("s1", [Message.user("more")])
    session = store.load("s1")
    assert session is not None
    session.last_run_status = "error"
    store.save(session)
    assert revert(store, "s1", 1)
    then, now = version_texts(store, "s1", 1), version_texts(store, "s1", 4)
    assert [without_time(text) for text in now] == [without_time(text) for text in then]
    assert now == tuple((home / "sessions/s1" / name).read_bytes() for name in ("session.json", "runtime.json"))
    assert json.loads(now[0])["updated_at"] > json.loads(version_texts(store, "s1", 3)[0])["updated_at"]
    assert [version.number for version in store.history.log("s1")] == [4, 3, 2, 1]


@pytest.mark.parametrize("name", ["session.json", "runtime.json"])
def test_a_rejected_text_goes_with_the_next_revert(store: Store, name: str) -> None:
    """As with every save by a person. A revert that changes nothing keeps it, and so does an agent that appends."""
    store.save(make_session("s1", title="a"))
    retitle(store, "s1", "b")
    with pytest.raises(InvalidContent):
        store.names.commit(WriteRequest(classify_path(f"sessions/s1/{name}"), b"{ typed"))
    kept = [f"{name}.error", f"{name}.rejected"]
    revert(store, "s1", 2)
    assert sorted(store.names.rejects.names("sessions/s1")) == kept
    store.append("s1", [Message.user("an agent has not seen the rejected text")])
    assert sorted(store.names.rejects.names("sessions/s1")) == kept
    revert(store, "s1", 1)
    assert store.names.rejects.names("sessions/s1") == {}


def test_a_revert_names_itself(store: Store) -> None:
    """As its author, and which version it brought back."""
    store.save(make_session("s1", title="a"))
    retitle(store, "s1", "b")
    revert(store, "s1", 1)
    newest = store.history.newest("s1")
    assert newest is not None
    assert (newest.author.via, newest.what, newest.note) == ("revert", "reverted", "as in 1")
    assert store.history.summaries([newest])[0].startswith("as in 1: title: [-b-]{+a+}")


def test_search_and_index_follow(store: Store) -> None:
    """In the same commit (rule 7)."""
    store.save(make_session("s1", title="findable"))
    retitle(store, "s1", "other")
    revert(store, "s1", 1)
    entry = store.entry("s1")
    assert entry is not None
    assert entry.title == "findable"
    assert [str(hit.location) for hit in store.search("findable")] == ["s1"]
    assert store.search("other") == []


def test_the_same_content_is_not_committed_again(store: Store) -> None:
    """Whatever `updated_at` says."""
    store.save(make_session("s1", title="a"))
    retitle(store, "s1", "b")
    assert revert(store, "s1", 1)
    assert not revert(store, "s1", 1)
    assert len(store.history.log("s1")) == 3


def test_a_renamed_session_keeps_its_new_id(store: Store, home: Path) -> None:
    """Also below another root: parent and depth are today's."""
    store.save(make_session("old", title="then"))
    store.save(make_session("root"))
    retitle(store, "old", "later")
    store.rename("old", "root/kid")
    assert revert(store, "root/kid", 1)
    for name in ("session.json", "runtime.json"):
        found = read_json(home / "sessions/root/children/kid" / name)
        identity = [found[key] for key in ("id", "kind", "root_session_id", "parent_session_id", "title")]
        assert identity == ["kid", "child", "root", "root", "then"]


def test_an_agent_with_an_old_copy_gets_a_conflict(store: Store) -> None:
    """It must not bring the reverted version back without noticing (rule 8)."""
    store.save(make_session("s1", title="a"))
    held = store.load("s1")
    assert held is not None
    retitle(store, "s1", "b")
    revert(store, "s1", 1)
    held.title = "mine"
    with pytest.raises(Conflict):
        store.save(held)


@pytest.mark.warns
def test_a_damaged_session_is_repaired(store: Store, home: Path) -> None:
    """The history does not depend on the live file."""
    store.save(make_session("s1", title="safe"))
    (home / "sessions/s1/session.json").write_bytes(b"{ damaged")
    assert revert(store, "s1", 1)
    loaded = store.load("s1")
    assert loaded is not None
    assert loaded.title == "safe"


@pytest.mark.warns
def test_a_version_that_is_damaged_is_refused(store: Store, home: Path) -> None:
    """Nothing is changed (rule 3)."""
    store.save(make_session("s1", title="a"))
    path = home / "sessions/s1/session.json"
    good = path.read_bytes()
    path.write_bytes(b"{ damaged")
    store.history.resolve("s1")
    path.write_bytes(good)
    store.history.resolve("s1")
    with pytest.raises(InvalidContent, match=r"session.json:1:3"):
        revert(store, "s1", 2)
    assert path.read_bytes() == good


def test_state_documents_are_reverted(store: Store, home: Path) -> None:
    """Byte for byte."""
    for text in ("one\n", "two\n"):
        store.state.save_markdown("plans", "today", text)
    store.state.save_json("plans", "facts", {"a": 1})
    store.state.save_json("plans", "facts", {"a": 2})
    assert revert(store, "state/plans/today.md", 1)
    assert not revert(store, "state/plans/today.md", 1)
    assert revert(store, "state/plans/facts.json", 1)
    assert (home / "state/plans/today.md").read_text() == "one\n"
    assert read_json(home / "state/plans/facts.json") == {"a": 1}
    newest = store.history.newest("state/plans/today.md")
    assert newest is not None
    assert newest.author.via == "revert"


def test_a_deleted_session_is_not_made_again(store: Store) -> None:
    """It has to be restored first: its children and attachments are in the trash too."""
    store.save(make_session("s1", title="a"))
    retitle(store, "s1", "b")
    version = store.history.find("s1", 1)
    assert version is not None
    store.delete("s1")
    with pytest.raises(NotFound, match="was deleted or renamed; nothing was changed"):
        store.history.revert(version)
    assert not store.exists("s1")


def test_a_session_without_sidecar_then_gets_one(store: Store, home: Path) -> None:
    """It has one now, and agents would read it."""
    directory = home / "sessions/s1"
    directory.mkdir(parents=True)
    (directory / "session.json").write_bytes(make_document("s1", title="bare"))
    store.maintenance.sweep()
    retitle(store, "s1", "with sidecar")
    first = store.history.log("s1")[-1]
    assert first.side_bytes is None
    assert store.history.revert(first)
    assert read_json(directory / "runtime.json")["title"] == "bare"
    assert isinstance(store.load("s1"), Session)


def test_attachments_come_back_from_the_trash(store: Store, home: Path) -> None:
    """`clear` moves them there; a message of the past that shows one shows it again."""
    store.save(make_session("s1"))
    attachment = store.attach("s1", b"image", "image/png")
    image = {"type": "image_url", "image_url": {"url": attachment.url}}
    store.append("s1", [{"id": "m2", "role": "user", "content": "look", "content_parts": [image]}])
    store.clear("s1")
    assert list((home / "sessions/s1/attachments").iterdir()) == []
    assert revert(store, "s1", 2)
    assert [path.read_bytes() for path in (home / "sessions/s1/attachments").iterdir()] == [b"image"]
