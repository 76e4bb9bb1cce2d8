"""Checks of the history: damage is found and repaired, files that are not recorded, and secrets of the past."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from store import Location, Message, Store
from store.check.finding import Finding
from tests.builders import make_document, make_session

KEY = "sk-ant-api03-" + "abcdefghijklmnopqrstuvwxyz0123456789"


def findings(store: Store, *, secrets: bool = False) -> list[Finding]:
    return store.check(secrets=secrets).findings


def filled(store: Store) -> None:
    store.save(make_session("s1"))
    for number in range(4):
        store.append("s1", [Message.user(f"message {number}")])


@pytest.mark.parametrize("column", ["main_data", "side_data"])
def test_a_version_that_does_not_decode_is_removed_and_the_others_stay(home: Path, column: str) -> None:
    """The present files are recorded as found, so the next versions have a base."""
    with Store.open(home, background=False) as store:
        filled(store)
        with store._core.history.database.write() as db:
            db.execute(f"UPDATE versions SET {column} = x'ff' WHERE number = 3")
        [finding] = findings(store)
        assert (finding.kind, finding.path) == ("history", "sessions/s1")
        assert "versions 3 to 5 cannot be read" in finding.text
        report = store.check(repair=True)
        assert report.exit_code == 1
        assert findings(store) == []
        assert [version.number for version in store.history.log("s1")] == [6, 2, 1]
        newest = store.history.newest("s1")
        assert newest is not None
        assert newest.what == "found"
        assert store.history.read(newest).main == (home / "sessions/s1/session.json").read_bytes()


def test_a_text_with_another_digest_is_found(home: Path) -> None:
    with Store.open(home, background=False) as store:
        filled(store)
        with store._core.history.database.write() as db:
            db.execute("UPDATE versions SET main_digest = x'0102' WHERE number = 1")
        [finding] = findings(store)
        assert "digest" in finding.text
        store.check(repair=True)
        assert findings(store) == []


def test_a_file_that_is_not_the_newest_version_is_a_note(home: Path) -> None:
    """Another program wrote it; recording it is offered as a repair."""
    with Store.open(home, background=False) as store:
        filled(store)
        store.state.save_markdown("notes", "plan", "first")
        path = home / "state/notes/plan.md"
        info = path.stat()
        path.write_text("by hand")
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))  # so that the search index does not notice
        behind = [finding for finding in findings(store) if finding.kind == "history-behind"]
        assert [finding.path for finding in behind] == ["state/notes/plan.md"]
        assert not behind[0].is_damage
        store.check(repair=True)
        assert not [finding for finding in findings(store) if finding.kind == "history-behind"]
        newest = store.history.newest("state/notes/plan.md")
        assert newest is not None
        assert store.history.read(newest).main == b"by hand"


def test_a_session_changed_by_another_program_is_reported_once(home: Path) -> None:
    """Indexing it again, which is another repair, records it."""
    with Store.open(home, background=False) as store:
        filled(store)
        (home / "sessions/s1/session.json").write_bytes(make_document("s1", title="by hand"))
        assert "history-behind" not in {finding.kind for finding in findings(store)}
        store.check(repair=True)
        newest = store.history.newest("s1")
        assert newest is not None
        assert newest.what == "found"


def test_secrets_of_the_past_are_found(home: Path) -> None:
    """With the numbers of the versions, without the secret. The present version is reported as a file."""
    with Store.open(home, background=False) as store:
        filled(store)
        store.append("s1", [Message.user(f"use {KEY} please")])
        store.append("s1", [Message.user("and go on")])
        assert {finding.kind for finding in findings(store, secrets=True)} == {"secret", "secret-in-history"}
        session = store.load("s1")
        assert session is not None
        session.messages[-2].content = "use … please"
        store.save(session)
        assert findings(store) == []
        [finding] = findings(store, secrets=True)
        assert (finding.kind, finding.path) == ("secret-in-history", "sessions/s1")
        assert finding.text.startswith("versions 6 to 7: looks like an Anthropic key; ")
        assert "grovefs history purge" in finding.text
        assert KEY not in str(finding)
        store.history.purge("s1", matching=KEY)
        assert findings(store, secrets=True) == []
        assert [version.number for version in store.history.log("s1")] == [8, 5, 4, 3, 2, 1]


@pytest.mark.warns
def test_a_history_that_cannot_be_read_is_reported(home: Path) -> None:
    with Store.open(home, background=False) as store:
        filled(store)
    path = home / ".grovefs/history.db"
    path.unlink()
    path.mkdir()
    with Store.open(home, background=False) as store:
        [finding] = findings(store)
        assert (finding.kind, finding.path) == ("history", ".grovefs/history.db")
        store._core.refresh(Location("s1"))


def test_a_history_that_is_turned_off_is_not_checked(home: Path) -> None:
    with Store.open(home, background=False) as store:
        filled(store)
    with Store.open(home, background=False, history=False) as store:
        store.append("s1", [Message.user("not recorded")])
        assert findings(store) == []
