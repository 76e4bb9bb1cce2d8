"""get_or_create, the user of a session, and its project."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from store import Conflict, InvalidContent, InvalidName, Location, Message, Session, Store
from tests.builders import files_below, make_document, make_session, read_json

# -- get_or_create ---------------------------------------------------------------------------------


def test_get_or_create_creates_once_and_then_gets(store: Store, home: Path) -> None:
    """The first call saves a session of that user; the second returns its current version."""
    made = store.get_or_create("s1", user_id="ada", model="m", title="Mine")
    assert (made.user_id, made.model, made.title) == ("ada", "m", "Mine")
    store.append("s1", [Message.user("hello")])
    got = store.get_or_create("s1", user_id="someone else", model="other")
    assert (got.user_id, got.model, len(got.messages)) == ("ada", "m", 1)
    assert read_json(home / "sessions/s1/session.json")["metadata"] == {"user_id": "ada"}


def test_the_returned_session_can_be_changed_and_saved(store: Store) -> None:
    """Created or loaded."""
    for _ in range(2):
        session = store.get_or_create("s1")
        session.add_message(Message.user("more"))
        store.save(session)
    loaded = store.load("s1")
    assert loaded is not None
    assert len(loaded.messages) == 2


def test_without_an_id_a_new_session_is_created(store: Store) -> None:
    """With a unique id."""
    assert store.get_or_create(user_id="ada").id != store.get_or_create(user_id="ada").id
    assert store.count() == 2


def test_get_or_create_finds_a_child(store: Store) -> None:
    """By its id or `root/child`; it does not create a root with that id."""
    store.save(make_session("root"))
    store.save(Session.new_child("kid", "root", "m", "A child"))
    assert store.get_or_create("kid").title == store.get_or_create("root/kid").title == "A child"
    assert store.count() == 2


@pytest.mark.parametrize("bad", ["", "a\\b", "..", ".hidden", "a\nb"])
def test_get_or_create_rejects_an_invalid_id(store: Store, home: Path, bad: str) -> None:
    """It creates nothing."""
    with pytest.raises(InvalidName):
        store.get_or_create(bad)
    assert files_below(home) == {}


def test_a_user_id_that_is_not_a_string_is_rejected(store: Store, home: Path) -> None:
    """metadata has string values only."""
    with pytest.raises(InvalidContent):
        store.get_or_create("s1", user_id=5)
    assert files_below(home) == {}


def test_concurrent_threads_create_one_session(store: Store) -> None:
    """Sixteen threads get the same session."""
    found: list[str] = []

    def ask(number: int) -> None:
        found.append(store.get_or_create("shared", user_id=f"user-{number}").user_id or "")

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1


ASK = """
import sys
from store import Store
with Store.open(sys.argv[1], background=False) as store:
    print(store.get_or_create("shared", user_id=sys.argv[2]).user_id)
"""


def test_concurrent_processes_create_one_session(home: Path) -> None:
    """The lock is shared by all processes."""
    with Store.open(home, background=False):
        asking = [
            subprocess.Popen([sys.executable, "-c", ASK, str(home), f"user-{i}"], stdout=subprocess.PIPE, text=True)
            for i in range(4)
        ]
        answers = {process.communicate(timeout=120)[0] for process in asking}  # which closes its pipe
    assert len(answers) == 1
    assert answers.pop().startswith("user-")


# -- user and persona ------------------------------------------------------------------------------


def test_user_and_persona_are_stored_and_removed(store: Store) -> None:
    """In metadata; None removes them."""
    session = make_session("s1", user_id="ada", persona_id="critic")
    store.save(session)
    loaded = store.load("s1")
    assert loaded is not None
    assert (loaded.user_id, loaded.persona_id) == ("ada", "critic")
    loaded.persona_id = None
    store.save(loaded)
    loaded = store.load("s1")
    assert loaded is not None
    assert loaded.metadata == {"user_id": "ada"}


# -- projects --------------------------------------------------------------------------------------


def test_a_session_moves_to_a_project_and_out_of_it(store: Store, home: Path) -> None:
    """Both documents and the index change, in the old and in the new field."""
    store.save(make_session("s1"))
    assert store.move_to_project("s1", "atlas")
    for name in ("session.json", "runtime.json"):
        document = read_json(home / "sessions/s1" / name)
        assert document["runtime_metadata"]["project_id"] == "atlas"
        assert document["metadata"]["project_id"] == "atlas"
    assert [e.id for e in store.entries(project="atlas")] == ["s1"]
    assert store.move_to_project("s1", None)
    assert b"atlas" not in b"".join(files_below(home).values())
    assert store.entries(project="atlas") == []


def test_moving_to_a_project_changes_nothing_else(store: Store, home: Path) -> None:
    """Unknown members and messages keep their bytes; updated_at advances."""
    store.put_document("s1", "session.json", make_document(strange={"b": 1, "a": 2}))
    before = store.load("s1")
    store.move_to_project("s1", "atlas")
    after = store.load("s1")
    assert before is not None
    assert after is not None
    assert after.updated_at.ns > before.updated_at.ns
    assert after.messages == before.messages
    assert b'"strange": {\n    "b": 1,\n    "a": 2\n  }' in (home / "sessions/s1/session.json").read_bytes()


def test_moving_to_the_same_project_changes_nothing(store: Store, home: Path) -> None:
    """Not even updated_at."""
    store.save(make_session("s1"))
    store.move_to_project("s1", "atlas")
    before = files_below(home)
    assert store.move_to_project("s1", "atlas")
    assert files_below(home) == before


def test_moving_a_child_does_not_move_its_root(store: Store) -> None:
    """A project groups sessions, not trees."""
    store.save(make_session("root"))
    store.save(Session.new_child("kid", "root", "m", "A child"))
    assert store.move_to_project("root/kid", "atlas")
    assert [e.id for e in store.entries(project="atlas")] == ["kid"]


def test_moving_an_unknown_session_returns_false(store: Store, home: Path) -> None:
    assert store.move_to_project("nobody", "atlas") is False
    assert files_below(home) == {}


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_project_is_rejected(store: Store, blank: str) -> None:
    """The index would treat it as none."""
    store.save(make_session("s1"))
    with pytest.raises(InvalidName, match="blank"):
        store.move_to_project("s1", blank)


def test_concurrent_moves_and_appends_lose_nothing(store: Store) -> None:
    """Rule 8: both take the session's lock."""
    store.save(make_session("s1", messages=0))
    threads = [threading.Thread(target=store.move_to_project, args=("s1", f"p{i}")) for i in range(8)]
    threads += [threading.Thread(target=store.append, args=("s1", [Message.user(f"m{i}")])) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loaded = store.load("s1")
    assert loaded is not None
    assert {m.content for m in loaded.messages} == {f"m{i}" for i in range(8)}
    assert loaded.project_id in {f"p{i}" for i in range(8)}


def test_c12_save_runtime_names_only_its_own_parameters(store: Store) -> None:
    store.save(make_session("s9"))
    with pytest.raises(Conflict, match="Load it first, with load or load_runtime"):
        store.save_runtime(make_session("s9"))


def test_c12_blanks_around_root_session_id_are_removed(store: Store) -> None:
    """As Bamboo does when it finds the directory."""
    store.save(make_session("r9"))
    child = Session.new_child("kid9", "r9", "m", "t")
    child.root_session_id = " r9 "
    store.save(child)
    assert store.location("kid9") == Location("r9", "kid9")
    loaded = store.load("kid9")
    assert loaded is not None
    assert loaded.root_session_id == "r9"
