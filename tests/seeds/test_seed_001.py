"""Seed 001, bamboo-infrastructure 2026.5.4, the predecessor of seed 000: each of its tests.

Seed 000 has the same tests. Here they run on a home of seed 001's generation: session.json only, no
sidecar, entries without `title_version`. "same" means that our test asserts what the seed asserts, or more.

| seed test | ours |
|---|---|
| test_new_creates_sessions_directory | same, with an existing empty home |
| test_new_creates_index_file | same, with an existing empty home |
| test_save_and_load_session | same, for a session of that generation; our save adds a sidecar |
| test_load_session_returns_none_when_not_found | same, with other sessions present |
| test_list_index_entries_empty | same |
| test_list_index_entries_with_sessions | same; found by their directories, because files are authoritative, not sessions.json (rule 1) |
| test_get_index_entry | same |
| test_get_index_entry_returns_none_when_not_found | same, also for an entry of sessions.json without a directory |
| test_delete_session | same; the session is moved to the trash |
| test_delete_session_returns_false_when_not_found | same |
| test_validate_session_id_empty | same, through the API |
| test_validate_session_id_with_slash | through `save`; in other calls a slash means the exact name `root/child` |
| test_validate_session_id_with_backslash | same, through the API |
| test_validate_session_id_with_double_dot | same, through the API |
| test_validate_session_id_valid | same, through the API |
| test_root_rel_path | same, from the entry |
| test_child_rel_path | same, from the entry |
| test_mime_to_extension | same, by the names of stored files; another valid type is encoded in the extension, an invalid one is rejected instead of becoming `.bin` |
| test_extension_to_mime | same, by reading stored files; an unknown extension is read as octet-stream |
| test_extension_to_mime_case_insensitive | same, by reading stored files |
| test_extension_to_mime_with_whitespace | same, by reading stored files |
"""  # noqa: E501  # a row of a table is one line

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import InvalidName, Session, Store
from store.documents.attachment_names import extension_to_mime
from tests.builders import files_below, make_document, read_json


def old_entry(id: str, **members: object) -> dict[str, object]:
    """An entry of sessions.json of that generation."""
    return {
        "id": id,
        "kind": "root",
        "rel_path": f"sessions/{id}",
        "title": "A title",
        "pinned": False,
        "parent_session_id": None,
        "root_session_id": id,
        "spawn_depth": 0,
        "model": "old-model",
        "created_at": "2026-05-04T10:00:00Z",
        "updated_at": "2026-05-04T10:00:00Z",
        "last_activity_at": "2026-05-04T10:00:00Z",
        "message_count": 1,
        "has_attachments": False,
        **members,
    }


def write_old_home(home: Path, *ids: str) -> None:
    for id in ids:
        directory = home / "sessions" / id
        (directory / "attachments").mkdir(parents=True)
        (directory / "children").mkdir()
        (directory / "session.json").write_bytes(make_document(id, model="old-model"))
    index = {"version": 2, "updated_at": "2026-05-04T10:00:00Z", "sessions": {id: old_entry(id) for id in ids}}
    (home / "sessions.json").write_text(json.dumps(index, indent=2))


@pytest.fixture
def old_home(home: Path) -> Path:
    """A home with two sessions of that generation. List it before `store`, which then opens it."""
    home.mkdir()
    write_old_home(home, "session-1", "session-2")
    return home


# -- opening ---------------------------------------------------------------------------------------------


def test_new_creates_sessions_directory(home: Path) -> None:
    """Opening an empty directory creates the sessions directory in it."""
    home.mkdir()
    with Store.open(home, background=False):
        assert (home / "sessions").is_dir()
        assert list((home / "sessions").iterdir()) == []


def test_new_creates_index_file(home: Path) -> None:
    """sessions.json is created if it is missing, before the first save."""
    home.mkdir()
    with Store.open(home, background=False):
        assert read_json(home / "sessions.json")["sessions"] == {}


# -- save, load, list, delete ----------------------------------------------------------------------------------


def test_save_and_load_session(old_home: Path, store: Store) -> None:
    """A session without a sidecar loads, and gets one when it is changed and saved."""
    session = store.load("session-1")
    assert session is not None
    assert (session.id, session.model) == ("session-1", "old-model")
    assert not (old_home / "sessions/session-1/runtime.json").exists()
    session.model = "new-model"
    store.save(session)
    assert store.load("session-1") == session
    assert read_json(old_home / "sessions/session-1/runtime.json")["model"] == "new-model"


def test_load_session_returns_none_when_not_found(old_home: Path, store: Store) -> None:
    """An unknown id loads as None."""
    assert store.load("nonexistent") is None


def test_list_index_entries_empty(home: Path) -> None:
    """A home with an empty sessions.json has no entries."""
    home.mkdir()
    write_old_home(home)
    with Store.open(home, background=False) as store:
        assert store.entries() == []


def test_list_index_entries_with_sessions(old_home: Path) -> None:
    """Both sessions are listed, with or without sessions.json."""
    with Store.open(old_home, background=False) as store:
        assert sorted(entry.id for entry in store.entries()) == ["session-1", "session-2"]
    (old_home / "sessions.json").unlink()
    with Store.open(old_home, background=False) as store:
        assert sorted(entry.id for entry in store.entries()) == ["session-1", "session-2"]


def test_get_index_entry(old_home: Path, store: Store) -> None:
    """The entry equals the document, with title_version 0 if it is absent."""
    entry = store.entry("session-1")
    assert entry is not None
    assert (entry.id, entry.model, entry.message_count, entry.title_version) == ("session-1", "old-model", 1, 0)


def test_get_index_entry_returns_none_when_not_found(home: Path) -> None:
    """An id that occurs only in sessions.json has no entry: the session does not exist."""
    home.mkdir()
    write_old_home(home)
    index = {"version": 2, "updated_at": "2026-05-04T10:00:00Z", "sessions": {"ghost": old_entry("ghost")}}
    (home / "sessions.json").write_text(json.dumps(index))
    with Store.open(home, background=False) as store:
        assert store.entry("ghost") is None
        assert store.entry("nonexistent") is None


def test_delete_session(old_home: Path, store: Store) -> None:
    """The deleted session is gone; the other one is unchanged."""
    before = files_below(old_home)
    assert store.delete("session-1") is True
    assert store.load("session-1") is None
    assert files_below(old_home) == {"session-2/session.json": before["session-2/session.json"]}


def test_delete_session_returns_false_when_not_found(old_home: Path, store: Store) -> None:
    """Deleting an unknown id returns False and changes nothing."""
    before = files_below(old_home)
    assert store.delete("nonexistent") is False
    assert files_below(old_home) == before


# -- ids and paths ---------------------------------------------------------------------------------------------------


def test_validate_session_id_empty(store: Store) -> None:
    """An empty id is rejected when reading and writing."""
    for call in (lambda: store.load(""), lambda: store.save(Session.new("", "m")), lambda: store.delete("")):
        with pytest.raises(InvalidName):
            call()


def test_validate_session_id_with_slash(store: Store, home: Path) -> None:
    """A session cannot be saved under a path."""
    with pytest.raises(InvalidName):
        store.save(Session.new("session/1", "m"))
    assert files_below(home) == {}


def test_validate_session_id_with_backslash(store: Store) -> None:
    """A backslash is rejected when reading and writing."""
    with pytest.raises(InvalidName):
        store.load("session\\1")
    with pytest.raises(InvalidName):
        store.save(Session.new("session\\1", "m"))


def test_validate_session_id_with_double_dot(store: Store, home: Path) -> None:
    """Two dots are rejected: alone, inside an id and in the exact name of a child."""
    for id in ("..", "session..1", "../session-1", "session-1/.."):
        with pytest.raises(InvalidName):
            store.load(id)
    with pytest.raises(InvalidName):
        store.save(Session.new("session..1", "m"))
    assert files_below(home) == {}


def test_validate_session_id_valid(store: Store) -> None:
    """An ordinary id can be saved and loaded."""
    store.save(Session.new("session-123", "m"))
    assert store.load("session-123") is not None


def test_root_rel_path(old_home: Path, store: Store) -> None:
    """A root is stored directly in sessions/."""
    entry = store.entry("session-1")
    assert entry is not None
    assert entry.rel_path == "sessions/session-1"


def test_child_rel_path(old_home: Path, store: Store) -> None:
    """A child is stored in children/ of its root, like in the old store."""
    store.save(Session.new_child("child-2", "session-1", "m", "c"))
    entry = store.entry("child-2")
    assert entry is not None
    assert entry.rel_path == "sessions/session-1/children/child-2"
    assert (old_home / entry.rel_path / "session.json").is_file()


# -- attachment types --------------------------------------------------------------------------------------------------


def test_mime_to_extension(old_home: Path, store: Store) -> None:
    """The name of a stored file has the extension of its type; of an invalid type it is bin."""
    expected = {
        "image/png": "png",
        "image/jpeg": "jpg",
        "image/webp": "webp",
        "image/gif": "gif",
        "image/bmp": "bmp",
        "application/x-unheard-of": "application_x-unheard-of",
    }
    for mime, extension in expected.items():
        stored = store.attach("session-1", b"bytes", mime)
        assert (old_home / f"sessions/session-1/attachments/{stored.id}.{extension}").read_bytes() == b"bytes"
        assert store.attachments.read("session-1", stored.id) == (b"bytes", mime)
    stored = store.attach("session-1", b"bytes", "unknown/type")
    assert (old_home / f"sessions/session-1/attachments/{stored.id}.bin").read_bytes() == b"bytes"


@pytest.mark.parametrize(
    ("extension", "mime"),
    [
        ("png", "image/png"),
        ("jpg", "image/jpeg"),
        ("jpeg", "image/jpeg"),
        ("webp", "image/webp"),
        ("gif", "image/gif"),
        ("bmp", "image/bmp"),
        ("unknown", "application/octet-stream"),
    ],
)
def test_extension_to_mime(home: Path, extension: str, mime: str) -> None:
    """A file of the old store is read with the type of its extension."""
    assert read_as(home, extension) == mime
    assert extension_to_mime("unknown") is None


@pytest.mark.parametrize(("extension", "mime"), [("PNG", "image/png"), ("JPG", "image/jpeg"), ("JPEG", "image/jpeg")])
def test_extension_to_mime_case_insensitive(home: Path, extension: str, mime: str) -> None:
    """Upper case in a file name does not matter."""
    assert read_as(home, extension) == mime


@pytest.mark.parametrize(("extension", "mime"), [("  png  ", "image/png"), ("\tjpg\t", "image/jpeg")])
def test_extension_to_mime_with_whitespace(home: Path, extension: str, mime: str) -> None:
    """White space in a file name does not matter."""
    assert read_as(home, extension) == mime


def read_as(home: Path, extension: str) -> str:
    home.mkdir()
    write_old_home(home, "session-1")
    (home / f"sessions/session-1/attachments/a1.{extension}").write_bytes(b"bytes")
    with Store.open(home, background=False) as store:
        entry = store.entry("session-1")
        assert entry is not None
        assert entry.has_attachments
        found = store.attachments.read("session-1", "a1")
    assert found is not None
    assert found[0] == b"bytes"
    return found[1]
