"""State documents: save, load, list, delete, search, and access through the mount."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import Conflict, Corrupt, InvalidContent, InvalidName, NotFound, Protected, Store
from store.commit.write_request import WriteRequest
from store.path_kinds import PathKind, classify_path
from store.workspace.state import JSON, MARKDOWN, State, document_path

processes = multiprocessing.get_context("fork")
DEADLINE_S = 60.0

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.fixture
def state(store: Store) -> State:
    return store.state


def found(store: Store, query: str) -> list[str]:
    return [hit.path for hit in store.search(query)]


def test_the_format_of_saved_json(state: State, home: Path) -> None:
    """Two spaces, no final newline; any JSON value."""
    state.save_json("memory/facts", "f1", {"content": "grüße", "content_hash": 2**64 - 1, "tags": []})
    text = (home / "state/memory/facts/f1.json").read_text()
    assert text == '{\n  "content": "grüße",\n  "content_hash": 18446744073709551615,\n  "tags": []\n}'
    state.save_json("cron", "jobs", [])
    assert state.load_json("cron", "jobs") == []
    assert state.load_json("cron", "other") is None
    assert state.load_json("nowhere", "jobs") is None


def test_markdown_is_saved_unchanged(state: State, home: Path) -> None:
    state.save_markdown("notes", "today", "# Today\n\nneedle\n")
    assert (home / "state/notes/today.md").read_bytes() == b"# Today\n\nneedle\n"
    assert state.load_markdown("notes", "today") == "# Today\n\nneedle\n"
    assert state.load_markdown("notes", "yesterday") is None
    state.save_markdown("notes", "today", "")
    assert state.load_markdown("notes", "today") == ""


def test_names_are_sorted_and_listed_once_per_document(state: State, home: Path) -> None:
    """Without nested categories and foreign files."""
    state.save_json("a", "both", 1)
    state.save_markdown("a", "both", "x")
    state.save_json("a", "b.c", 1)
    state.save_json("a/deeper", "other", 1)
    (home / "state/a/stranger.txt").write_text("x")
    assert state.names("a") == ["b.c", "both", "both"]
    assert state.names("a/deeper") == ["other"]
    assert state.names("nothing") == []
    assert state.categories() == ["a", "a/deeper"]


def test_delete_removes_json_first(store: Store, state: State) -> None:
    """Deleted documents can be restored."""
    state.save_json("a", "x", {"n": 1})
    state.save_markdown("a", "x", "text")
    assert state.delete("a", "x") is True
    assert state.load_json("a", "x") is None
    assert state.load_markdown("a", "x") == "text"
    assert state.delete("a", "x") is True
    assert state.delete("a", "x") is False
    assert state.names("a") == []
    for deleted in store.trash.deleted():
        store.trash.undelete(deleted.name)
    assert state.load_json("a", "x") == {"n": 1}
    assert found(store, "text") == ["state/a/x.md"]


@pytest.mark.parametrize(
    "category", ["", "..", "../etc", "a/../b", "foo\\bar", "/foo", "foo/", "foo//bar", ".", "a/./b"]
)
def test_invalid_categories_are_rejected(state: State, category: str) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: state.save_json(category, "x", 1),
        lambda: state.load_json(category, "x"),
        lambda: state.save_markdown(category, "x", ""),
        lambda: state.load_markdown(category, "x"),
        lambda: state.names(category),
        lambda: state.delete(category, "x"),
    )
    for call in calls:
        with pytest.raises(InvalidName):
            call()


@pytest.mark.parametrize("name", ["..", "a..b", "../x", "a/b", "a\\b", "nul\0", "\udcff", "x" * 253])
def test_invalid_names_are_rejected(state: State, name: str) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: state.save_json("a", name, 1),
        lambda: state.load_markdown("a", name),
    )
    for call in calls:
        with pytest.raises(InvalidName):
            call()


@pytest.mark.parametrize("name", ["", "x", "a.b", "a.", ".hidden", "with space", "漢字", "x.json"])
def test_unusual_names_are_accepted(state: State, name: str) -> None:
    """The empty name too, though lists omit it."""
    state.save_json("a", name, {"name": name})
    assert state.load_json("a", name) == {"name": name}
    assert (name in state.names("a")) == bool(name)
    assert state.delete("a", name)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), max_size=40))
def test_every_accepted_name_is_classified_as_a_document(name: str) -> None:
    """The API and the mount agree about paths."""
    try:
        paths = [document_path("c", name, ending) for ending in (JSON, MARKDOWN)]
    except InvalidName:
        return
    assert [classify_path(path).kind.name for path in paths] == ["STATE_JSON", "STATE_TEXT"]


@given(VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
def test_json_values_round_trip(state: State, value: Any) -> None:
    state.save_json("any", "value", value)
    assert state.load_json("any", "value") == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, object(), "\ud800", 2**64, {"a": {1, 2}}])
def test_a_value_that_is_not_json_is_rejected_and_changes_nothing(state: State, value: Any) -> None:
    state.save_json("a", "x", "before")
    with pytest.raises(InvalidContent, match=r"state/a/x\.json"):
        state.save_json("a", "x", value)
    assert state.load_json("a", "x") == "before"


def test_text_that_is_not_unicode_is_rejected(state: State) -> None:
    with pytest.raises(InvalidContent):
        state.save_markdown("a", "x", "\udcff")


def test_corrupt_documents_are_reported_with_position(store: Store, state: State, home: Path) -> None:
    """They are not changed, and can be deleted."""
    (home / "state/a").mkdir(parents=True)
    (home / "state/a/x.json").write_bytes(b'{"a":\n !}')
    (home / "state/a/x.md").write_bytes(b"fine \xff")
    with pytest.raises(Corrupt, match=r"state/a/x\.json:2:2"):
        state.load_json("a", "x")
    with pytest.raises(Corrupt, match=r"state/a/x\.md:1:6"):
        state.load_markdown("a", "x")
    store.maintenance.sweep()
    assert [f.kind for f in store.check().findings] == ["unparsable"]
    assert state.delete("a", "x")


def test_concurrent_updates_are_not_lost(store: Store, home: Path) -> None:
    """update_json reads, changes and writes under the lock."""

    def work() -> None:
        with Store.open(home, background=False) as mine:
            for _ in range(25):
                mine.state.update_json("counts", "n", lambda n: (n or 0) + 1)

    running = [processes.Process(target=work) for _ in range(4)]
    for process in running:
        process.start()
    for process in running:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in running] == [0] * 4
    assert store.state.load_json("counts", "n") == 100


# -- search and feed -------------------------------------------------------------------------------


def test_every_change_updates_search(store: Store, state: State) -> None:
    """Rule 7: within the same commit."""
    state.save_markdown("notes", "barn", "The needle is here.")
    state.save_json("memory/facts", "f", {"content": "a needle too"})
    assert sorted(found(store, "needle")) == ["state/memory/facts/f.json", "state/notes/barn.md"]
    state.save_markdown("notes", "barn", "Nothing.")
    state.delete("memory/facts", "f")
    assert found(store, "needle") == []


def test_changes_are_in_the_change_feed(store: Store, state: State) -> None:
    cursor = store.feed.since().cursor
    state.save_json("a/b", "x", 1)
    state.save_json("a/b", "x", 1)
    state.delete("a/b", "x")
    assert [(c.location.dir, c.what) for c in store.feed.since(cursor).items] == [("state/a/b", "state")] * 2


def test_direct_edits_are_indexed(store: Store, state: State, home: Path) -> None:
    """By a sweep, by `check`, by a rebuild. Rows of deleted documents are removed."""
    state.save_markdown("notes", "kept", "needle one")
    (home / "state/notes/new.md").write_text("needle two")
    assert {f.kind for f in store.check().findings} == {"search-rows"}
    store.maintenance.sweep()
    assert len(found(store, "needle")) == 2
    (home / "state/notes/new.md").unlink()
    assert store.check(repair=True).exit_code == 1
    assert found(store, "needle") == ["state/notes/kept.md"]
    with store._core.db.write() as db:
        db.execute("DELETE FROM state_documents")
    assert store.check().exit_code == 4
    store.maintenance.rebuild()
    assert found(store, "needle") == ["state/notes/kept.md"]


def test_a_lost_index_is_rebuilt_with_state_documents(home: Path) -> None:
    """Rule 1."""
    with Store.open(home, background=False) as store:
        store.state.save_markdown("notes", "x", "needle")
    for name in ("index.db", "index.db-wal", "index.db-shm"):
        (home / ".grovefs" / name).unlink(missing_ok=True)
    with Store.open(home, background=False) as store:
        assert found(store, "needle") == ["state/notes/x.md"]
        assert store.check().is_clean


# -- through the mount -----------------------------------------------------------------------------


def test_json_written_through_the_mount_is_validated_markdown_is_not(store: Store, home: Path) -> None:
    """Bytes unchanged; rejected bytes are kept (rules 3 and 5)."""
    place = classify_path("state/a/x.json")
    assert store.names.commit(WriteRequest(place, b" [1,  2]\n")).is_changed
    assert (home / place.path).read_bytes() == b" [1,  2]\n"
    assert not store.names.commit(WriteRequest(place, b" [1,  2]\n")).is_changed
    for bad in (b"{", b'{"a":1,"a":2}', b"", b"NaN"):
        with pytest.raises(InvalidContent):
            store.names.commit(WriteRequest(place, bad))
    assert (home / place.path).read_bytes() == b" [1,  2]\n"
    assert set(store.names.rejects.names("state/a")) == {"x.json.rejected", "x.json.error"}
    store.names.commit(WriteRequest(place, b"3"))
    assert store.names.rejects.names("state/a") == {}
    assert store.names.commit(WriteRequest(classify_path("state/a/x.md"), b"\xff\0 anything")).is_changed


def test_a_stale_write_is_rejected(store: Store, state: State) -> None:
    """Rule 8."""
    state.save_json("a", "x", 1)
    place = classify_path("state/a/x.json")
    base = store.names.version(place)
    state.save_json("a", "x", 2)
    with pytest.raises(Conflict, match="changed by another writer"):
        store.names.commit(WriteRequest(place, b"3", base=base))
    assert state.load_json("a", "x") == 2
    assert store.names.commit(WriteRequest(place, b"3", base=base, on_conflict="overwrite")).is_changed


def test_renames_update_the_search_rows(store: Store, state: State, home: Path) -> None:
    """A document, a document to a foreign name and back, a whole category."""
    state.save_markdown("notes", "x", "needle")
    store.moves.move(classify_path("state/notes/x.md"), classify_path("state/notes/y.md"))
    assert found(store, "needle") == ["state/notes/y.md"]
    assert store.trash.deleted() == []
    store.moves.move(classify_path("state/notes/y.md"), classify_path("state/notes/y.md~"))
    assert found(store, "needle") == []
    assert (home / "state/notes/y.md~").read_text() == "needle"
    store.moves.move(classify_path("state/notes/y.md~"), classify_path("state/notes/z.md"))
    assert found(store, "needle") == ["state/notes/z.md"]
    state.save_markdown("notes/deep", "w", "needle")
    store.moves.move(classify_path("state/notes"), classify_path("state/papers"))
    assert sorted(found(store, "needle")) == ["state/papers/deep/w.md", "state/papers/z.md"]
    with pytest.raises(InvalidContent):
        store.moves.move(classify_path("state/papers/z.md"), classify_path("state/papers/z.json"))
    with pytest.raises(Protected):
        store.moves.move(classify_path("state/papers/deep"), classify_path("state/papers/deep.md"))


def test_two_categories_can_be_exchanged(store: Store, state: State) -> None:
    state.save_markdown("a", "x", "needle")
    state.save_markdown("b", "y", "thread")
    store.moves.exchange(classify_path("state/a"), classify_path("state/b"))
    assert (found(store, "needle"), found(store, "thread")) == (["state/b/x.md"], ["state/a/y.md"])


def test_a_document_removed_through_the_mount_can_be_restored(store: Store, state: State) -> None:
    state.save_markdown("notes", "x", "needle")
    store.names.remove_file(classify_path("state/notes/x.md"))
    assert found(store, "needle") == []
    with pytest.raises(NotFound):
        store.names.remove_file(classify_path("state/notes/x.md"))
    store.trash.undelete(store.trash.deleted()[0].name)
    assert found(store, "needle") == ["state/notes/x.md"]


def test_a_git_directory_is_ignored(store: Store, state: State, home: Path) -> None:
    (home / "state/.git").mkdir(parents=True)
    (home / "state/.git/x.json").write_bytes(b"not JSON")
    assert list(state.paths()) == []
    assert classify_path("state/.git/x.json").kind.name == "FOREIGN"
    with pytest.raises(InvalidName):
        state.save_json(".git", "x", 1)


def test_a_name_that_is_not_unicode_is_foreign(store: Store, home: Path) -> None:
    """It can be renamed, and its contents are not indexed."""
    odd = "state/\udcff"
    store.names.create_top_dirs()
    store.names.make_dir(classify_path("state/facts"))
    (home / "state/facts/f.json").write_text("1")
    store.moves.move(classify_path("state/facts"), classify_path(odd))
    assert classify_path(f"{odd}/f.json").kind is PathKind.FOREIGN
    store.moves.move(classify_path(odd), classify_path("state/facts"))
    assert store.state.load_json("facts", "f") == 1
    store.maintenance.sweep()
