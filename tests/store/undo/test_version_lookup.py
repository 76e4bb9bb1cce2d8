"""Past versions by the names that people give, and what each changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from store import InvalidName, Message, NotFound, Session, Store
from store.history import thinning
from store.path_kinds import classify_path
from store.undo.versions_spec import local_text
from tests.builders import make_document, make_session


def retitle(store: Store, id: str, title: str) -> None:
    def change(session: Session) -> None:
        session.title = title

    store.update(id, change)


@pytest.fixture
def edited(store: Store) -> Store:
    """A session with three versions."""
    store.save(make_session("fix-login", title="teh plan"))
    retitle(store, "fix-login", "the plan")
    store.append("fix-login", [Message.user("more")])
    return store


def test_names_are_resolved_as_everywhere(edited: Store) -> None:
    """By id, prefix or title, with or without a version."""
    for name in ("fix-login", "fix", "The plan", "sessions/fix-login", "sessions/fix-login/session.json"):
        assert edited.history.resolve(name) == ("sessions/fix-login", None)
        assert edited.history.resolve(f"{name}@2") == ("sessions/fix-login", "2")


def test_an_id_may_look_like_a_version(edited: Store) -> None:
    """The session of that very id is meant, without a version."""
    edited.save(make_session("fix-login@2"))
    assert edited.history.resolve("fix-login@2") == ("sessions/fix-login@2", None)
    assert edited.history.resolve("fix-login@2@1") == ("sessions/fix-login@2", "1")
    assert edited.history.resolve("fix-login@1") == ("sessions/fix-login", "1")


def test_state_documents_are_named_by_their_path(store: Store) -> None:
    """And their versions are read and compared."""
    store.state.save_markdown("plans", "today", "one\n")
    store.state.save_markdown("plans", "today", "one\ntwo\n")
    path, version = store.history.resolve("state/plans/today.md@1")
    assert (path, version) == ("state/plans/today.md", "1")
    assert store.history.read(store.history.get(path, "1")).main == b"one\n"
    assert store.history.summaries(store.history.log(path)) == ["+1 line", "created"]
    with pytest.raises(NotFound, match=r"expected state/CATEGORY/NAME.md or .json"):
        store.history.resolve("state/today.md")


def test_versions_are_found_by_number_and_by_time(edited: Store) -> None:
    """A negative number counts back from the newest; a time finds what was current then."""
    path = "sessions/fix-login"
    newest, middle, oldest = edited.history.log(path)
    assert edited.history.get(path, "2") == edited.history.get(path, "-1") == middle
    assert edited.history.get(path, "-2") == oldest
    assert edited.history.get(path, "0s") == newest
    assert edited.history.get(path, local_text(newest.at_ns)) == newest
    assert (edited.history.before(middle), edited.history.before(oldest)) == (oldest, None)


@pytest.mark.parametrize("version", ["4", "-3", "2020-01-01"])
def test_a_missing_version_says_which_are_kept(edited: Store, version: str) -> None:
    """With their times."""
    with pytest.raises(NotFound, match=rf"fix-login has no version {version}: 1 \(.*\) to 3 \(.*\) are kept"):
        edited.history.get("sessions/fix-login", version)


def test_a_deleted_session_is_explained(edited: Store) -> None:
    """Its history is in the trash with it, and comes back with it."""
    edited.delete("fix-login")
    with pytest.raises(NotFound, match=r"was deleted; `grovefs undelete fix-login` restores it"):
        edited.history.resolve("fix-login@1")
    edited.trash.undelete(edited.trash.deleted()[0].name)
    path, _ = edited.history.resolve("fix-login@1")
    assert edited.history.load(edited.history.get(path, "1")).title == "teh plan"


def test_every_version_says_what_it_changed(edited: Store) -> None:
    """Newest first; also if the list begins in the middle."""
    versions = edited.history.log("fix-login")
    said = ["+1 message", "title: [-teh-]{+the+} plan", "created, 2 messages"]
    assert edited.history.summaries(versions) == said
    assert edited.history.summaries(versions[1:]) == said[1:]
    assert edited.history.summaries(versions[:1]) == said[:1]
    assert edited.history.summaries([]) == []


def test_renames_and_forks_are_named(edited: Store) -> None:
    """The documents alone would not tell."""
    edited.rename("fix-login", "login")
    edited.fork("login", "second")
    assert edited.history.summaries(edited.history.log("login", limit=1))[0] == "renamed from fix-login"
    assert edited.history.summaries(edited.history.log("second")) == ["forked from login@4: created, 3 messages"]


def test_a_session_without_its_sidecar_is_named(edited: Store) -> None:
    """`rm -r` in a mount removes the files of a session one after the other."""
    edited.names.remove_file(classify_path("sessions/fix-login/runtime.json"))
    edited.trash.undelete(edited.trash.deleted()[0].name)
    said = edited.history.summaries(edited.history.log("fix-login", limit=2))
    assert said == ["restored", "removed runtime.json"]


def test_a_cleared_session_is_named(edited: Store) -> None:
    edited.save(make_session("empty", messages=0))
    edited.clear("empty")
    assert edited.history.summaries(edited.history.log("empty", limit=1)) == ["cleared"]


def test_a_wrong_version_of_a_session_is_explained(edited: Store) -> None:
    """The part before the @ is a session, so the part after it is a mistake."""
    with pytest.raises(InvalidName, match="'2026-13-45' is not a version: expected a number"):
        edited.history.resolve("fix-login@2026-13-45")
    with pytest.raises(NotFound, match="there is no session 'other@2026-13-45'"):
        edited.history.resolve("other@2026-13-45")


def test_a_restored_document_is_named(edited: Store) -> None:
    """The version before, in which it was removed, is kept."""
    edited.names.remove_file(classify_path("sessions/fix-login/session.json"))
    edited.trash.undelete(edited.trash.deleted()[0].name)
    said = edited.history.summaries(edited.history.log("fix-login", limit=2))
    assert said == ["restored, 3 messages", "removed"]


def test_a_session_whose_sidecar_comes_first_is_not_called_removed(edited: Store, home: Path) -> None:
    """As `cp -r` copies the files of a directory in any order."""
    source, copy = home / "sessions/fix-login", home / "sessions/copy"
    copy.mkdir()
    for name in ("runtime.json", "session.json"):
        (copy / name).write_bytes((source / name).read_bytes().replace(b'"fix-login"', b'"copy"'))
        edited._core.history.observe("sessions/copy")
    edited.maintenance.sweep()
    said = edited.history.summaries(edited.history.log("sessions/copy"))
    assert said == ["created, 3 messages", "created runtime.json, without session.json"]


def test_a_version_after_one_that_was_thinned_out_says_so(edited: Store) -> None:
    with edited._core.history.database.write() as db:
        thinning.keep_only(db, edited.history.log("fix-login")[0].lineage, {3})
    said = edited.history.summaries(edited.history.log("fix-login"))
    assert said == ["the version before is not kept any more"]


def test_a_change_made_outside_the_store_is_a_version(edited: Store, home: Path) -> None:
    """It is recorded when the session is looked at."""
    path = home / "sessions/fix-login/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-0", b"other"))
    resolved, _ = edited.history.resolve("fix-login")
    newest = edited.history.log(resolved, limit=1)
    assert newest[0].author.via == "outside"
    assert edited.history.summaries(newest) == ["~1 message"]


def test_a_past_session_is_loaded_as_it_was(edited: Store) -> None:
    """Also under another id: its sidecar of then counts."""
    edited.rename("fix-login", "login")
    version = edited.history.get("sessions/login", "1")
    session = edited.history.load(version)
    assert (session.id, session.title, len(session.messages)) == ("fix-login", "teh plan", 2)
    assert edited.history.transcript(version).startswith("# teh plan\n")
    assert edited.history.transcript(version, -1).startswith("## [1] assistant")


def test_versions_without_any_record_are_explained(store: Store, home: Path) -> None:
    """A session that nothing has changed since the history began."""
    (home / "sessions/found").mkdir(parents=True)
    (home / "sessions/found/session.json").write_bytes(make_document("found"))
    store.maintenance.sweep()
    assert store.history.newest("found") is None
    with pytest.raises(NotFound, match="found: no version has been recorded; that begins with its next change"):
        store.history.get_newest("sessions/found")
