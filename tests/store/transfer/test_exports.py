"""Export: self-contained JSON and Markdown, and a Bamboo home byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import InvalidName, Message, NotFound, Session, Store
from store.model.message import ImageUrl, MessagePart
from store.transfer.exports import ExportedFile
from store.transfer.formats.importer import ImportProblem
from store.transfer.imports import ImportOutcome
from tests.builders import files_below, make_document, make_session
from tests.store.transfer.foreign import PNG


@pytest.fixture
def filled(store: Store) -> Store:
    """A root with an attachment, a child, and another root with an unknown member."""
    root = make_session("root", title="With a picture")
    picture = store.attach(root, PNG, "image/png")
    shown = Message.user("look")
    shown.content_parts = [MessagePart(type="image_url", image_url=ImageUrl(url=picture.url))]
    root.add_message(shown)
    store.save(root)
    store.save(Session.new_child_of("kid", root, "m", "A child"))
    store.put_document("other", "session.json", make_document("other", tomorrow={"n": 1.0}))
    store.usage.append("root", {"ts": "2026-01-01T00:00:00Z", "total_tokens": 3})
    return store


def write(store: Store, format: str, dest: Path, *ids: str) -> list[ExportedFile | ImportProblem]:
    return [*store.exports.write(store.exports.select(ids or None), format, dest)]  # type: ignore[arg-type]


def test_json_export_is_the_merged_session(filled: Store, tmp_path: Path) -> None:
    written = write(filled, "json", tmp_path / "out")
    assert [str(w.location) for w in written if isinstance(w, ExportedFile)] == ["other", "root", "root/kid"]
    found = json.loads((tmp_path / "out/root.json").read_text())
    session = filled.load("root")
    assert session is not None
    assert Session.model_validate(found) == session
    assert json.loads((tmp_path / "out/other.json").read_text())["tomorrow"] == {"n": 1.0}
    assert json.loads((tmp_path / "out/root/kid.json").read_text())["parent_session_id"] == "root"
    [picture] = (tmp_path / "out/root/attachments").iterdir()
    assert picture.read_bytes() == PNG


def test_markdown_links_to_exported_attachments(filled: Store, tmp_path: Path) -> None:
    write(filled, "markdown", tmp_path / "out", "root")
    text = (tmp_path / "out/root.md").read_text()
    assert text.startswith("# With a picture")
    link = text.partition("](")[2].partition(")")[0]
    assert (tmp_path / "out" / link).read_bytes() == PNG
    assert (tmp_path / "out/root/kid.md").is_file()
    assert not (tmp_path / "out/other.md").exists()


def test_rendered_markdown_links_into_the_home(filled: Store) -> None:
    [location] = [found for found in filled.exports.select(["root"]) if found.child is None]
    text = filled.exports.render_markdown(location).decode()
    link = text.partition("](")[2].partition(")")[0]
    assert Path(link).read_bytes() == PNG


def test_bamboo_export_copies_byte_for_byte_and_updates(filled: Store, tmp_path: Path) -> None:
    reported: list[ImportOutcome | ImportProblem] = []
    with Store.open(tmp_path / "bamboo", background=False) as other:
        filled.exports.copy(filled.exports.select(), other.imports, reported.append)
        assert [item.state for item in reported if isinstance(item, ImportOutcome)] == ["new"] * 3
        ours, theirs = files_below(filled.home), files_below(other.home)
        assert {k: v for k, v in theirs.items() if not k.endswith(".import.json")} == ours
        filled.append("root", [Message.user("more")])
        filled.exports.copy(filled.exports.select(), other.imports, reported.append)
        assert [item.state for item in reported[3:] if isinstance(item, ImportOutcome)] == [
            "unchanged",
            "updated",
            "unchanged",
        ]
        other.append("root", [Message.user("theirs")])
        filled.append("root", [Message.user("ours")])
        filled.exports.copy(filled.exports.select(["root"]), other.imports, reported.append)
        assert [item.state for item in reported[6:] if isinstance(item, ImportOutcome)] == ["updated", "unchanged"]
        assert other.check().is_clean
    index = json.loads((tmp_path / "bamboo/sessions.json").read_text())
    assert set(index["sessions"]) == {"root", "kid", "other"}


def test_export_into_the_same_home_is_rejected(filled: Store) -> None:
    with pytest.raises(InvalidName, match="is this home"):
        filled.exports.copy(filled.exports.select(), filled.imports, lambda item: None)


def test_bamboo_export_of_a_child_needs_its_root(filled: Store, tmp_path: Path) -> None:
    with Store.open(tmp_path / "bamboo", background=False) as other:
        with pytest.raises(InvalidName, match="the root session 'root'"):
            filled.exports.copy(filled.exports.select(["root/kid"]), other.imports, lambda item: None)
        assert other.count() == 0


def test_unknown_session_exports_nothing(filled: Store) -> None:
    with pytest.raises(NotFound, match="nothing was exported"):
        filled.exports.select(["root", "nobody"])


@pytest.mark.warns
def test_damaged_session_is_reported_and_skipped(home: Path, tmp_path: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session("good"))
        store.save(make_session("bad"))
        (home / "sessions/bad/session.json").write_text("{")
        store.maintenance.sweep()
        results = write(store, "json", tmp_path / "out")
        assert [type(item).__name__ for item in results] == ["ExportedFile", "ImportProblem"]
        reported: list[ImportOutcome | ImportProblem] = []
        with Store.open(tmp_path / "bamboo", background=False) as other:
            store.exports.copy(store.exports.select(), other.imports, reported.append)
        assert [type(item).__name__ for item in reported] == ["ImportOutcome", "ImportProblem"]


def test_link_at_the_target_is_replaced_not_followed(filled: Store, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out/other.json").symlink_to(tmp_path / "precious")
    write(filled, "json", tmp_path / "out", "other")
    assert (tmp_path / "precious").read_text() == "mine"
    assert json.loads((tmp_path / "out/other.json").read_text())["id"] == "other"
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]
