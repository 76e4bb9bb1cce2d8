"""Removing versions: those that stay have the same bytes, and damage is not made worse."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import Message, Store
from store.errors import Corrupt
from store.history import thinning
from store.history.history import History
from store.history.versions import VersionTexts
from tests.builders import make_session


def filled(store: Store, count: int = 12) -> dict[int, VersionTexts]:
    """A session with versions of every kind of step; returns all texts."""
    store.save(make_session("s1"))
    for number in range(count):
        if number % 4 == 3:
            session = store.load_runtime("s1")
            assert session is not None
            session.last_run_status = f"run {number}"
            store.save_runtime(session)
        elif number % 4 == 2:
            store.update("s1", lambda session: setattr(session, "title", f"title {session.title}"))
        else:
            store.append("s1", [Message.user(f"message {number} " + random.randbytes(40).hex())])
    return texts_of(store._core.history)


def texts_of(history: History) -> dict[int, VersionTexts]:
    return {version.number: history.read(version) for version in history.log("sessions/s1", limit=1000)}


def keep(store: Store, kept: set[int]) -> int:
    with store._core.history.database.write() as db:
        key = db.execute("SELECT key FROM lineages WHERE dir = ?", (b"sessions/s1",)).get
        return thinning.keep_only(db, key, kept)


@settings(max_examples=25)
@given(st.sets(st.integers(1, 13)))
def test_any_choice_of_versions_stays_readable(tmp_path_factory: pytest.TempPathFactory, kept: set[int]) -> None:
    """Both documents of each, byte for byte. The next commit continues from the newest."""
    with Store.open(tmp_path_factory.mktemp("thin") / "home", background=False, durability="normal") as store:
        before = filled(store)
        assert keep(store, kept) == 13 - len(kept)
        assert texts_of(store._core.history) == {number: before[number] for number in kept}
        store.append("s1", [Message.user("afterwards")])
        newest = store.history.newest("s1")
        assert newest is not None
        assert newest.number == (14 if 13 in kept else 15)  # 14 records the present as found
        assert store.history.read(newest).main == (store.home / "sessions/s1/session.json").read_bytes()
        assert not [finding for finding in store.check().findings if finding.kind == "history"]


def test_a_damaged_version_is_not_kept_silently(store: Store) -> None:
    """Thinning that would need it changes nothing."""
    before = filled(store)
    with store._core.history.database.write() as db:
        db.execute("UPDATE versions SET main_data = x'ff' WHERE number = 6")
    with pytest.raises(Corrupt, match="@6"):
        keep(store, {1, 6, 13})
    with store._core.history.database.write() as db:
        key = db.execute("SELECT key FROM lineages").get
        readable = thinning.decodable(db, key)
    assert readable == {1, 2, 3, 4, 5}
    keep(store, readable)
    assert texts_of(store._core.history) == {number: before[number] for number in readable}
    store.append("s1", [Message.user("afterwards")])
    newest = store.history.newest("s1")
    assert newest is not None
    assert newest.number == 15


def test_a_text_with_another_digest_is_not_readable(store: Store) -> None:
    filled(store)
    with store._core.history.database.write() as db:
        db.execute("UPDATE versions SET main_digest = x'00' WHERE number = 3")
        key = db.execute("SELECT key FROM lineages").get
        assert 3 not in thinning.decodable(db, key)
    store.history.purge("s1")


def test_whole_texts_of_long_documents_are_stored_when_idle(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of a long document adds steps only."""
    from store.history import planning

    monkeypatch.setattr(planning, "WHOLE_IN_COMMIT_BYTES", 0)
    monkeypatch.setattr(planning, "MAX_STEPS", 5)
    monkeypatch.setattr(thinning, "MAX_STEPS", 5)
    with Store.open(home, background=False) as store:
        before = filled(store)
        database = store._core.history.database

        def kinds() -> list[int]:
            return [kind for (kind,) in database.reader.execute("SELECT main_kind FROM versions ORDER BY number")]

        assert kinds().count(1) == 1
        store._home.upkeep.tidy()
        assert kinds().count(1) == 2
        assert kinds()[-1] == 1
        assert texts_of(store._core.history) == before
        store._home.upkeep.tidy()
        assert kinds().count(1) == 2
        store.append("s1", [Message.user("afterwards")])
        assert kinds()[-1] == 3
        assert store.check().is_clean
