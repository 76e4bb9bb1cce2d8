"""Record files on disk and through the mount. Behaviour common to all backends is tested in test_backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from store import ArtifactSet, Conflict, Corrupt, InvalidContent, NotFound, Protected, Session, Store, TooLarge
from store.commit.write_request import WriteRequest
from store.path_kinds import PathKind, classify_path
from store.sessions.artifacts import MAX_ARTIFACTS
from tests.builders import files_below, make_session, read_json
from tests.records import make_artifact, make_check, make_event, make_report

TRACES = "sessions/s1/traces.json"


@pytest.fixture
def directory(store: Store, home: Path) -> Path:
    store.save(make_session("s1"))
    return home / "sessions/s1"


def put(store: Store, path: str, value: Any, **how: Any) -> bool:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return store.names.commit(WriteRequest(classify_path(path), raw, **how)).is_changed


# -- on disk -----------------------------------------------------------------------------------------------


def test_records_are_stored_in_the_session_in_their_format(store: Store, directory: Path) -> None:
    """Indented JSON: an object with the artifacts in order, and two arrays."""
    store.records.save_artifacts("s1", ArtifactSet.of([make_artifact("b"), make_artifact("a")]))
    store.records.save_traces("s1", [make_event()])
    store.records.save_verification("s1", [make_report()])
    assert [a["artifact_id"] for a in read_json(directory / "artifacts.json")["artifacts"]] == [
        "tool-output:test:b",
        "tool-output:test:a",
    ]
    assert read_json(directory / "traces.json") == [make_event().model_dump()]
    assert read_json(directory / "verification.json")[0]["status"] == "passed"
    assert (directory / "traces.json").read_bytes().startswith(b'[\n  {\n    "schema": "a3s.trace_event.v1",\n')
    assert store.check().findings == []


def test_a_change_keeps_all_other_bytes(store: Store, directory: Path) -> None:
    """Rule 5: layout, unknown members, the form of numbers; in arrays and in the object."""
    event = make_event().model_dump()
    raw = b"[ " + json.dumps({**event, "details": 1.50, "more": "x"}).encode().replace(b"1.5", b"1.50") + b" ]\n"
    put(store, TRACES, raw)
    store.records.add_traces("s1", [make_event("write")])
    text = (directory / "traces.json").read_bytes()
    assert text.startswith(raw[:-3])
    assert text.endswith(b" ]\n")
    assert [e.name for e in store.records.load_traces("s1") or []] == ["read", "write"]
    manifest = b'{"artifacts": [], "strange": 1.50}'
    put(store, "sessions/s1/artifacts.json", manifest)
    store.records.add_artifacts("s1", [make_artifact()])
    assert b'"strange": 1.50' in (directory / "artifacts.json").read_bytes()


def test_saving_the_same_record_changes_nothing(store: Store, directory: Path) -> None:
    """No commit, no entry in the change feed."""
    store.records.save_traces("s1", [make_event()])
    cursor, stamp = store.feed.since().cursor, (directory / "traces.json").stat()
    store.records.save_traces("s1", [make_event()])
    assert store.feed.since(cursor).items == []
    assert (directory / "traces.json").stat().st_mtime_ns == stamp.st_mtime_ns


def test_each_commit_is_in_the_change_feed(store: Store, directory: Path) -> None:
    cursor = store.feed.since().cursor
    store.records.save_traces("s1", [make_event()])
    store.names.remove_file(classify_path(TRACES))
    assert [(c.location.id, c.what) for c in store.feed.since(cursor).items] == [("s1", "record")] * 2


def test_session_documents_do_not_change(store: Store, directory: Path) -> None:
    """Nor does updated_at."""
    before, entry = files_below(store.home), store.entry("s1")
    store.records.save_traces("s1", [make_event()])
    after = files_below(store.home)
    assert {k: v for k, v in after.items() if not k.endswith("traces.json")} == before
    assert store.entry("s1") == entry


def test_the_file_mode_is_kept(store: Store, directory: Path) -> None:
    store.records.save_traces("s1", [])
    (directory / "traces.json").chmod(0o640)
    store.records.save_traces("s1", [make_event()])
    assert (directory / "traces.json").stat().st_mode & 0o777 == 0o640


def test_records_are_deleted_and_restored_with_their_session(store: Store, directory: Path) -> None:
    store.records.save_traces("s1", [make_event()])
    store.delete("s1")
    assert store.records.load_traces("s1") is None
    store.trash.undelete(store.trash.deleted()[0].name)
    assert store.records.load_traces("s1") == [make_event()]


def test_records_move_with_their_session(store: Store, directory: Path) -> None:
    store.records.save_traces("s1", [make_event()])
    store.rename("s1", "s2")
    assert store.records.load_traces("s2") == [make_event()]


# -- limits ------------------------------------------------------------------------------------------------


def test_loading_evicts_nothing(store: Store, directory: Path) -> None:
    """Nor does a copy through the mount; the next save does."""
    many = ArtifactSet.of(make_artifact(str(i)) for i in range(MAX_ARTIFACTS + 5))
    assert put(store, "sessions/s1/artifacts.json", many.model_dump())
    for _ in range(2):
        found = store.records.load_artifacts("s1")
        assert found is not None
        assert len(found) == MAX_ARTIFACTS + 5
    assert len(store.records.add_artifacts("s1", [make_artifact("new")])) == 6


def test_a_record_above_the_document_limit_is_rejected(home: Path) -> None:
    """By API and mount."""
    with Store.open(home, background=False, limit_bytes=10_000) as store:
        store.save(make_session("s1"))
        with pytest.raises(TooLarge):
            store.records.add_artifacts("s1", [make_artifact("a", "x" * 10_000)])
        with pytest.raises(TooLarge):
            put(store, "sessions/s1/artifacts.json", ArtifactSet.of([make_artifact("a", "x" * 10_000)]).model_dump())
        assert store.records.load_artifacts("s1") is None


# -- damage ------------------------------------------------------------------------------------------------


def test_a_corrupt_record_is_reported(store: Store, directory: Path) -> None:
    """Loading raises with the position; `check` reports it and does not change it."""
    path = directory / "traces.json"
    path.write_bytes(b'[\n  {"schema": 5}]')
    with pytest.raises(Corrupt, match=r"sessions/s1/traces\.json:2:14"):
        store.records.load_traces("s1")
    with pytest.raises(Corrupt):
        store.records.add_traces("s1", [make_event()])
    report = store.check(repair=True)
    assert [(f.kind, f.path) for f in report.findings] == [("unparsable", TRACES)]
    assert path.read_bytes() == b'[\n  {"schema": 5}]'
    path.unlink()


def test_replacing_a_corrupt_record_keeps_it_in_the_trash(store: Store, directory: Path) -> None:
    """A user may be able to repair it."""
    (directory / "verification.json").write_bytes(b"[broken")
    store.records.save_verification("s1", [make_report()])
    assert store.records.load_verification("s1") == [make_report()]
    (kept,) = store.trash.deleted()
    assert kept.what == "unreadable record replaced"
    assert (store.home / kept.moves[0][1]).read_bytes() == b"[broken"


def test_a_symlink_in_place_of_a_record_is_not_followed(store: Store, directory: Path, tmp_path: Path) -> None:
    """Neither by reads nor by writes; `check` reports it once."""
    target = tmp_path / "elsewhere"
    target.write_text("[]")
    (directory / "traces.json").symlink_to(target)
    with pytest.raises(Corrupt, match="links are not followed"):
        store.records.load_traces("s1")
    with pytest.raises(Corrupt):
        store.records.save_traces("s1", [make_event()])
    assert [f.kind for f in store.check().findings] == ["not-plain"]
    assert target.read_text() == "[]"
    (directory / "traces.json").unlink()


# -- through the mount -------------------------------------------------------------------------------------


def test_only_three_names_are_records(store: Store) -> None:
    """Directly in the directory of a root or a child."""
    for name in ("artifacts.json", "traces.json", "verification.json"):
        assert classify_path(f"sessions/s1/{name}").kind is PathKind.RECORD
        assert classify_path(f"sessions/s1/children/kid/{name}").kind is PathKind.RECORD
        assert classify_path(f"sessions/s1/notes/{name}").kind is PathKind.FOREIGN
        assert classify_path(f"sessions/s1/{name}~").kind is PathKind.FOREIGN


def test_bytes_are_stored_unchanged(store: Store, directory: Path) -> None:
    """Rule 5. Writing the same bytes again changes nothing."""
    raw = b" [\t]\n"
    assert put(store, TRACES, raw) is True
    assert put(store, TRACES, raw) is False
    assert (directory / "traces.json").read_bytes() == raw


def test_a_rejected_record_is_kept_with_the_reason(store: Store, directory: Path) -> None:
    """Rule 3: the previous version is unchanged, and the bytes are in `.rejected` until the next successful save."""
    put(store, "sessions/s1/verification.json", [make_report().model_dump()])
    before = (directory / "verification.json").read_bytes()
    claimed = make_report("s", make_check("failed")).model_dump() | {"status": "passed"}
    with pytest.raises(InvalidContent, match="derived from the checks and risks"):
        put(store, "sessions/s1/verification.json", [claimed])
    assert (directory / "verification.json").read_bytes() == before
    shown = store.names.rejects.names(classify_path("sessions/s1").path)
    assert set(shown) == {"verification.json.rejected", "verification.json.error"}
    put(store, "sessions/s1/verification.json", [])
    assert store.names.rejects.names("sessions/s1") == {}


def test_a_stale_write_is_rejected(store: Store, directory: Path) -> None:
    """Rule 8."""
    put(store, TRACES, [])
    base = store.names.version(classify_path(TRACES))
    store.records.add_traces("s1", [make_event()])
    with pytest.raises(Conflict, match="the newer version is kept"):
        put(store, TRACES, [make_event("late").model_dump()], base=base)
    assert store.records.load_traces("s1") == [make_event()]
    assert put(store, TRACES, [make_event("late").model_dump()], base=base, on_conflict="overwrite")


def test_a_record_may_be_written_before_its_session(store: Store, home: Path) -> None:
    """rsync copies in the order of names; session.json completes the session."""
    (home / "sessions/s1").mkdir()
    put(store, TRACES, [make_event().model_dump()])
    assert store.exists("s1") is False
    store.save(make_session("s1"))
    assert store.records.load_traces("s1") == [make_event()]


def test_a_removed_record_can_be_restored(store: Store, directory: Path) -> None:
    store.records.save_traces("s1", [make_event()])
    store.names.remove_file(classify_path(TRACES))
    assert store.records.load_traces("s1") is None
    with pytest.raises(NotFound):
        store.names.remove_file(classify_path(TRACES))
    store.trash.undelete(store.trash.deleted()[0].name)
    assert store.records.load_traces("s1") == [make_event()]


def test_a_rename_onto_a_record_is_validated(store: Store, directory: Path) -> None:
    """sed, vim and rsync replace files this way."""
    (directory / ".tmp").write_bytes(b"[]")
    store.moves.move(classify_path("sessions/s1/.tmp"), classify_path(TRACES))
    assert (directory / "traces.json").read_bytes() == b"[]"
    (directory / ".tmp").write_bytes(b"[5]")
    with pytest.raises(InvalidContent):
        store.moves.move(classify_path("sessions/s1/.tmp"), classify_path(TRACES))
    assert (directory / "traces.json").read_bytes() == b"[]"
    (directory / ".tmp").unlink()


def test_a_record_cannot_be_a_directory_or_a_symlink(store: Store, directory: Path) -> None:
    with pytest.raises(Protected):
        store.names.make_dir(classify_path(TRACES))
    with pytest.raises(Protected):
        store.names.symlink(classify_path(TRACES), "elsewhere")


def test_records_of_a_pinned_session_cannot_be_removed(store: Store) -> None:
    """They can be written."""
    store.save(make_session("root"))
    child = Session.new_child("kid", "root", "m", "t")
    child.pinned = True
    store.save(child)
    path = "sessions/root/children/kid/traces.json"
    assert put(store, path, [])
    with pytest.raises(Protected, match="pinned"):
        store.names.remove_file(classify_path(path))


def test_c11_the_status_of_the_caller_is_stored(store: Store) -> None:
    """The agent that verified knows more than its checks say."""
    report = make_report("login", make_check("passed")).model_copy(update={"status": "needs_review"})
    store.save(make_session("s9"))
    store.records.save_verification("s9", [report])
    store.records.add_verification("s9", [report])
    assert [found.status for found in store.records.load_verification("s9") or []] == ["needs_review"] * 2
