"""A damaged sessions.json is rebuilt and never stops the store."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from store import Message
from tests.builders import files_below, make_session
from tests.store.rejection import open_store

GARBAGE = [b"garbage", b"[]", b'{"sessions": []}', b'{"sessions": {"s1": 7}}', b"\xff\xfe", b"{", b"null"]


@pytest.mark.warns
@pytest.mark.parametrize("garbage", [*GARBAGE, b"", None])
def test_damaged_sessions_json_is_rebuilt(home: Path, garbage: bytes | None) -> None:
    """Garbage, empty or missing: rebuilt from the sessions, and the home is writable at once."""
    with open_store(home) as store:
        store.save(make_session("s1"))
    before = files_below(home)
    export = home / "sessions.json"
    export.unlink()
    if garbage is not None:
        export.write_bytes(garbage)
    with open_store(home) as store:
        assert files_below(home) == before
        assert [entry.id for entry in store.entries()] == ["s1"]
        store.append("s1", [Message.user("still here")])
        assert store.check(repair=True) is not None
    assert set(json.loads(export.read_bytes())["sessions"]) == {"s1"}
    with open_store(home) as store:
        assert store.check().is_clean


@pytest.mark.parametrize("garbage", [b"garbage", b'{"sessions": {"s1": {"x": 1}}, "mine": 1'])
@pytest.mark.warns
def test_garbage_sessions_json_is_kept_in_the_trash(home: Path, garbage: bytes) -> None:
    """Whatever the user typed is kept somewhere (rule 3)."""
    open_store(home).close()
    (home / "sessions.json").write_bytes(garbage)
    open_store(home).close()
    kept = [p.read_bytes() for p in (home / ".grovefs/trash").rglob("sessions.json")]
    assert kept == [garbage]


@pytest.mark.warns
@pytest.mark.parametrize("kind", ["directory", "link", "dangling", "fifo"])
@pytest.mark.timeout(60)
def test_sessions_json_that_is_not_a_file_does_not_stop_the_store(home: Path, tmp_path: Path, kind: str) -> None:
    """Sessions can be read and written; nothing is written through a link."""
    with open_store(home) as store:
        store.save(make_session("s1"))
    export, secret = home / "sessions.json", tmp_path / "secret.json"
    export.unlink()
    secret.write_bytes(b'{"sessions": {}}')
    if kind == "directory":
        export.mkdir()
        (export / "mine").write_text("precious")
    elif kind == "fifo":
        os.mkfifo(export)
    else:
        export.symlink_to(secret if kind == "link" else tmp_path / "nothing")
    with open_store(home) as store:
        store.append("s1", [Message.user("still here")])
        loaded = store.load("s1")
        assert loaded is not None
        assert len(loaded.messages) == 3
        store.check()
    assert secret.read_bytes() == b'{"sessions": {}}'
    assert not (tmp_path / "nothing").exists()
    assert kind != "directory" or [p.read_text() for p in home.rglob("mine")] == ["precious"]
