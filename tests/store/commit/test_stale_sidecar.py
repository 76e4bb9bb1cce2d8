"""A sidecar older than its session.json: another program wrote session.json, and its changes count."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from store import Conflict, Message, Session, Store
from tests.builders import make_session, read_json

LATER = "2037-01-01T00:00:00Z"


def write_like_another_program(home: Path, **members: Any) -> None:
    """Replace members of session.json and leave the sidecar alone, as Bamboo 5.4 does."""
    path = home / "sessions/s1/session.json"
    path.write_text(json.dumps({**read_json(path), "updated_at": LATER, **members}))


@pytest.fixture
def foreign(home: Path, store: Store) -> Store:
    """A session that another program retitled; the sidecar still has the old title."""
    store.save(make_session(title="old", model="m-old"))
    write_like_another_program(home, title="new")
    store.maintenance.sweep()
    return store


def loaded(store: Store) -> Session:
    session = store.load("s1")
    assert session is not None
    return session


def repaired(store: Store) -> Store:
    """Leave no finding: the store fixture requires a clean check."""
    store.check(repair=True)
    return store


def test_a13_newer_session_json_wins_over_the_sidecar(foreign: Store) -> None:
    """load, load_runtime and the index show what the other program wrote."""
    runtime, entry = foreign.load_runtime("s1"), foreign.entry("s1")
    assert runtime is not None
    assert entry is not None
    assert (loaded(foreign).title, runtime.title, entry.title) == ("new", "new", "new")
    repaired(foreign)


@pytest.mark.parametrize("how", ["save", "save_runtime", "append", "put", "put_runtime"])
def test_a13_no_writer_undoes_the_newer_session_json(foreign: Store, home: Path, how: str) -> None:
    """The next save of any kind keeps the other program's title in both documents."""
    session = loaded(foreign)
    session.model = "m-new"
    if how == "append":
        foreign.append("s1", [Message.user("hi")])
    elif how == "put":
        raw = foreign.get_document("s1", "session.json")
        assert raw is not None
        foreign.put_document("s1", "session.json", raw.replace(b"m-old", b"m-new"))
    elif how == "put_runtime":
        side = read_json(home / "sessions/s1/runtime.json")
        raw = json.dumps({**side, "title": "new", "model": "m-new", "updated_at": LATER}).encode()
        foreign.put_document("s1", "runtime.json", raw)
    else:
        getattr(foreign, how)(session)
    assert loaded(foreign).title == "new"
    assert read_json(home / "sessions/s1/runtime.json")["title"] == "new"
    if how != "append":
        assert loaded(foreign).model == "m-new"


def test_a13_session_loaded_before_the_foreign_write_cannot_be_saved(home: Path, store: Store) -> None:
    """Neither save nor save_runtime: both would hide what the other program wrote."""
    store.save(make_session(title="old"))
    session, runtime = loaded(store), store.load_runtime("s1")
    assert runtime is not None
    write_like_another_program(home, title="new")
    session.model = runtime.model = "other"
    with pytest.raises(Conflict):
        store.save(session)
    for outdated in (session, runtime):
        with pytest.raises(Conflict):
            store.save_runtime(outdated)
    assert loaded(repaired(store)).title == "new"


def test_a13_an_older_sidecar_put_with_overwrite_is_ignored(store: Store) -> None:
    """The index says the same as load."""
    store.save(make_session(title="now"))
    side = json.loads(store.get_document("s1", "runtime.json") or b"")
    old = json.dumps({**side, "title": "past", "updated_at": "2020-01-01T00:00:00Z"}).encode()
    store.put_document("s1", "runtime.json", old, on_conflict="overwrite")
    entry = store.entry("s1")
    assert entry is not None
    assert (loaded(store).title, entry.title) == ("now", "now")
    repaired(store)


def test_a13_a_stale_sidecar_is_no_warning(foreign: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Working with an older Bamboo is normal use."""
    loaded(foreign)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    repaired(foreign)
