"""Bamboo homes: documents are imported byte for byte, with all other files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from store import Store
from tests.builders import files_below, make_session
from tests.store.transfer.foreign import PNG, bamboo_document, make_bamboo


@pytest.fixture
def bamboo(tmp_path: Path) -> Path:
    return make_bamboo(tmp_path / "dot-bamboo")


@pytest.fixture
def imported(store: Store, bamboo: Path) -> Store:
    summary = store.imports.run(str(bamboo))
    assert (summary.format, summary.problems, summary.counts) == ("bamboo", [], {"new": 5})
    return store


def test_documents_are_imported_byte_for_byte(imported: Store, bamboo: Path) -> None:
    for path in ("tree/session.json", "tree/runtime.json", "tree/children/kid/session.json", "older/session.json"):
        assert (imported.home / "sessions" / path).read_bytes() == (bamboo / "sessions" / path).read_bytes()
    tree = imported.load("tree")
    assert tree is not None
    assert tree.title == "Fresher"  # from the sidecar


def test_other_files_are_imported(imported: Store) -> None:
    tree = imported.home / "sessions/tree"
    assert (tree / "attachments/5c2f7a54.png").read_bytes() == PNG
    assert (tree / "token-usage.jsonl").read_text() == '{"ts":"2026-06-20T08:15:32Z","total_tokens":3}\n'
    assert (tree / "notes.txt").read_text() == "mine\n"
    assert not list(tree.glob("*.tmp.*"))
    entry = imported.entry("tree")
    assert entry is not None
    assert entry.has_attachments


def test_flat_sessions_are_imported(imported: Store, bamboo: Path) -> None:
    flat = imported.home / "sessions/flat"
    assert (flat / "session.json").read_bytes() == (bamboo / "sessions/flat.json").read_bytes()
    assert (flat / "attachments/events.jsonl").read_text() == '{"event":1}\n'
    kid = imported.load("flat/flat-kid")
    assert kid is not None
    assert kid.parent_session_id == "flat"


def test_repeated_import_updates_only_grown_sessions(imported: Store, bamboo: Path) -> None:
    assert imported.imports.run(str(bamboo)).counts == {"unchanged": 5}
    with Store.open(bamboo, background=False) as other:
        other.append("tree", [{"id": "m2", "role": "assistant", "content": "hi", "created_at": "2026-06-21T00:00:00Z"}])
    assert imported.imports.run(str(bamboo)).counts == {"updated": 1, "unchanged": 4}
    assert (imported.home / "sessions/tree/session.json").read_bytes() == (
        bamboo / "sessions/tree/session.json"
    ).read_bytes()


def test_grovefs_home_can_be_imported(store: Store, tmp_path: Path) -> None:
    with Store.open(tmp_path / "other", background=False) as other:
        other.save(make_session("mine", messages=4))
        attached = other.attach("mine", PNG, "image/png")
    assert store.imports.run(str(tmp_path / "other")).counts == {"new": 1}
    assert store.attachments.resolve(attached.url) == (PNG, "image/png")


def test_broken_documents_are_reported_with_their_line(store: Store, bamboo: Path) -> None:
    """The children of an invalid root are skipped; an invalid sidecar is kept as an attachment."""
    (bamboo / "sessions/tree/session.json").write_bytes(bamboo_document("tree", title=5))
    (bamboo / "sessions/older/runtime.json").write_text('{\n "id": ')
    (bamboo / "sessions/flat.json").write_text("not json")
    summary = store.imports.run(str(bamboo))
    found = {Path(p.path).relative_to(bamboo / "sessions").as_posix(): p for p in summary.problems}
    assert set(found) == {"tree/session.json", "tree/children/kid", "older/runtime.json", "flat.json"}
    assert found["tree/session.json"].line == 3
    assert found["older/runtime.json"].line == 2
    kept = store.attachments.read("older", "unreadable-runtime")
    assert kept is not None
    assert kept[0] == b'{\n "id": '
    assert store.load("tree") is None


def test_identity_is_corrected_to_match_the_path(store: Store, bamboo: Path) -> None:
    (bamboo / "sessions/tree").rename(bamboo / "sessions/wood")
    assert store.imports.run(str(bamboo)).problems == []
    session = store.load("wood")
    assert session is not None
    assert (session.id, session.root_session_id) == ("wood", "wood")
    assert session.model_extra == {"a_field_of_tomorrow": {"x": 1.0}}


@pytest.mark.parametrize("authority", [b'{"_bamboo_main_authority":{"version":1},', b'{ "_bamboo_main_authority": 5,'])
def test_invalid_authority_is_removed(store: Store, tmp_path: Path, authority: bytes) -> None:
    path = tmp_path / "b/sessions/sealed/session.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(authority + bamboo_document("sealed")[1:])
    assert store.imports.run(str(tmp_path / "b")).counts == {"new": 1}
    assert b"authority" not in (store.home / "sessions/sealed/session.json").read_bytes()


def test_non_unicode_file_names_are_replaced(store: Store, bamboo: Path) -> None:
    odd = os.fsencode(bamboo / "sessions/older") + b"/n\xff.txt"
    Path(os.fsdecode(odd)).write_text("odd")
    summary = store.imports.run(str(bamboo))
    assert ["not Unicode" in p.text for p in summary.problems] == [True]
    assert summary.counts == {"new": 5}
    assert any(p.read_text() == "odd" for p in (store.home / "sessions/older/attachments").iterdir())


def test_messages_without_ids_are_not_lost(store: Store, tmp_path: Path) -> None:
    """Without ids only the number of messages can be compared."""
    path = tmp_path / "b/sessions/s/session.json"
    path.parent.mkdir(parents=True)
    say = [{"role": "user", "content": str(i)} for i in range(3)]
    path.write_bytes(bamboo_document("s", messages=say))
    store.imports.run(str(tmp_path / "b"))
    path.write_bytes(bamboo_document("s", messages=say[:2]))
    assert store.imports.run(str(tmp_path / "b")).counts == {"kept": 1}
    path.write_bytes(bamboo_document("s", messages=[*say, say[0]]))
    assert store.imports.run(str(tmp_path / "b")).counts == {"updated": 1}
    data = json.loads((store.home / "sessions/s/session.json").read_bytes())
    assert len(data["messages"]) == 4


def test_api_key_is_left_out_and_reported(store: Store, bamboo: Path) -> None:
    raw = bamboo_document("older", metadata={"api_key": "sk-very-secret", "other": "x"})
    (bamboo / "sessions/older/session.json").write_bytes(raw)
    summary = store.imports.run(str(bamboo))
    assert ["API key" in p.text for p in summary.problems] == [True]
    session = store.load("older")
    assert session is not None
    assert session.metadata == {"other": "x"}


@pytest.mark.parametrize("holder", ["metadata", "llm_config"])
def test_api_key_is_left_out_of_a_merge(store: Store, bamboo: Path, holder: str) -> None:
    """The session was changed here and in the source."""
    path = bamboo / "sessions/older/session.json"
    document = json.loads(bamboo_document("older", **{holder: {"api_key": "sk-very-secret", "other": "x"}}))
    path.write_text(json.dumps(document))
    store.imports.run(str(bamboo))
    store.update("older", lambda session: setattr(session, "title", "Mine"))
    document["messages"].append({**document["messages"][0], "id": "m2", "content": "more"})
    path.write_text(json.dumps(document))
    assert store.imports.run(str(bamboo)).counts["updated"] == 1
    merged = store.load("older")
    assert merged is not None
    assert (merged.title, [message.id for message in merged.messages]) == ("Mine", ["m1", "m2"])
    assert not any(b"sk-very-secret" in data for data in files_below(store.home).values())
    for version in store.history.log("older"):
        texts = store.history.read(version)
        assert b"sk-very-secret" not in (texts.main or b"") + (texts.side or b"")
