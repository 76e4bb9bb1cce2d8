"""Maintenance of the trigram index: every changed file is listed and later indexed, and no crash loses one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from store import Store
from store.index.database import now_ns
from store.search.grep import maintenance, segment_files
from store.search.grep.segment_files import SegmentFiles
from store.search.grep.segments import Postings, Segment, render
from tests.builders import make_document, make_session
from tests.store.search.grep.test_grep import ROOT, gnu, in_process, settle


def listed(store: Store) -> set[str]:
    return {os.fsdecode(path) for (path,) in store._core.db.reader.execute("SELECT path FROM grep_changed")}


def indexed(store: Store) -> set[str]:
    return {os.fsdecode(path) for (path,) in store._core.db.reader.execute("SELECT path FROM grep_files")}


def segments(store: Store) -> list[str]:
    return [name for (name,) in store._core.db.reader.execute("SELECT name FROM grep_segments")]


def agree(home: Path, *patterns: str) -> None:
    for pattern in patterns:
        assert in_process(home, [pattern])[0] == gnu(home, [pattern])


def test_commit_lists_its_files_in_its_transaction(store: Store) -> None:
    """For every operation that writes files (rule 7)."""
    store.save(make_session("a"))
    assert listed(store) == {"sessions/a/session.json", "sessions/a/runtime.json"}
    attached = store.attach("a", b"x", "image/png")
    store.usage.append("a", {"n": 1})
    assert {"sessions/a/token-usage.jsonl", f"sessions/a/attachments/{attached.id}.png"} < listed(store)
    settle()
    assert store.trigrams.rebuild() == 4
    assert listed(store) == set()
    assert len(indexed(store)) == 4
    session = store.load("a")
    assert session is not None
    session.title = "new"
    store.save_runtime(session)
    assert listed(store) == {"sessions/a/runtime.json"}
    store.put_document("b", "session.json", make_document("b"))
    assert "sessions/b/session.json" in listed(store)


def test_recently_changed_file_is_not_indexed(store: Store) -> None:
    """Another change may leave its times equal, so it stays on the list (git's racy rule)."""
    store.save(make_session("a"))
    now = now_ns()
    assert store.trigrams.merge(before_ns=now + 10**9) == 0
    assert len(listed(store)) == 2
    settle()
    assert store.trigrams.merge() == 2
    assert listed(store) == set()


def test_merge_waits_for_enough_settled_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that an agent keeps appending to is not indexed again each time."""
    for i in range(10):
        store.save(make_session(f"s{i}"))
    settle()
    store.trigrams.merge_if_due()
    assert not segments(store)
    monkeypatch.setattr(maintenance, "SETTLED_NS", 0)
    store.trigrams.merge_if_due()
    assert len(segments(store)) == 1
    store.save(make_session("one"))
    settle()
    store.trigrams.merge_if_due()  # only two files
    assert len(listed(store)) == 2
    monkeypatch.setattr(maintenance, "OVERDUE_NS", 0)
    store.trigrams.merge_if_due()
    assert not listed(store)


def test_file_with_a_second_hard_link_is_not_indexed(store: Store, tmp_path: Path) -> None:
    """It could be changed unnoticed through the other link."""
    store.save(make_session("a"))
    os.link(store.home / "sessions/a/session.json", tmp_path / "elsewhere")
    settle()
    store.trigrams.rebuild()
    assert listed(store) == {"sessions/a/session.json"}
    os.unlink(tmp_path / "elsewhere")


def test_many_merges_leave_few_segments(store: Store) -> None:
    """Segments of similar size are merged, and obsolete versions are dropped."""
    for i in range(30):
        store.save(make_session(f"s{i}", title=f"title number{i}"))
        settle()
        store.trigrams.merge()
    assert len(segments(store)) <= 8
    assert len(indexed(store)) == 60
    for i in range(0, 30, 7):
        found, files = in_process(store.home, [f"number{i}\\b"])
        assert found == gnu(store.home, [f"number{i}\\b"])
        assert files is not None
        assert len(files) <= 2 * 11


def test_obsolete_versions_are_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If most documents are obsolete, all segments are merged into one."""
    monkeypatch.setattr(segment_files, "OBSOLETE_DOCUMENTS", 4)
    monkeypatch.setattr(segment_files, "MIN_MERGED", 100)
    for i in range(8):
        store.save(make_session("s", title=f"title {i}"), overwrite=True)
        settle()
        store.trigrams.merge()
    assert len(segments(store)) <= 4
    agree(store.home, "title 7")


def test_rows_of_deleted_files_are_removed(store: Store) -> None:
    """By the next sweep or merge."""
    store.save(make_session("a"))
    store.save(make_session("b"))
    settle()
    store.trigrams.rebuild()
    store.delete("a")
    store.trigrams.sweep()
    assert indexed(store) == {"sessions/b/session.json", "sessions/b/runtime.json"}
    assert not listed(store)
    agree(store.home, "msg-0")


class Crash(Exception):
    """The process ends here."""


def test_crash_at_any_step_of_a_merge_loses_nothing(home: Path) -> None:
    """Every file stays listed or is in a valid segment, and the next merge succeeds."""
    steps: list[str] = []
    stop_at = [0]

    def step(name: str) -> None:
        steps.append(name)
        if len(steps) == stop_at[0]:
            raise Crash

    with Store.open(home, background=False, step=step) as store:
        for i in range(12):
            store.save(make_session(f"s{i}", title=f"needle{i}"))
        settle()
        store.trigrams.sweep()
        while True:
            stop_at[0] += 1
            steps.clear()
            try:
                store.trigrams.merge()
            except Crash:
                assert len(listed(store) | indexed(store)) == 24
                agree(home, "needle7", "absent words")
                continue
            break
        assert stop_at[0] > 3
        assert not listed(store)
        agree(home, "needle7", "absent words")
        stop_at[0] = 0
        assert in_process(home, ["absent words"])[1] == []


def test_edit_during_a_merge_keeps_the_file_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file changes after it was read and before its row is written."""
    store.save(make_session("a", title="before"))
    settle()
    store.trigrams.sweep()
    write = SegmentFiles.write

    def edit_then_write(self: SegmentFiles, rows: Iterable[segment_files.Row]) -> tuple[str, int]:
        with (store.home / "sessions/a/session.json").open("a") as file:
            file.write(" ")
        return write(self, rows)

    monkeypatch.setattr(SegmentFiles, "write", edit_then_write)
    store.trigrams.merge()
    assert listed(store) == {"sessions/a/session.json"}


def test_concurrent_merges(home: Path) -> None:
    """Two processes with two threads each, while sessions are saved: nothing is lost or duplicated."""
    program = """
import sys, threading
from store import Store
from store.index.database import now_ns
with Store.open(sys.argv[1], background=False) as store:
    threads = [threading.Thread(target=lambda: [store.trigrams.merge() for _ in range(12)]) for _ in range(2)]
    [t.start() for t in threads]; [t.join() for t in threads]
"""
    with Store.open(home, background=False) as store:
        for i in range(60):
            store.save(make_session(f"s{i}", title=f"needle{i}"))
        settle()
        command = [sys.executable, "-c", program, str(home)]
        workers = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
        for i in range(20):
            store.save(make_session(f"t{i}", title=f"needle{i}"))
        assert [worker.wait(120) for worker in workers] == [0, 0]
        settle()
        store.trigrams.merge()
        assert not listed(store)
        assert len(indexed(store)) == 160
        agree(home, "needle1", "needle19", "absent words")
        for name in segments(store):
            Segment(str(home / ".grovefs/trigrams" / name)).close()


def test_grep_while_segments_are_replaced(home: Path) -> None:
    """A reader whose segment was removed tries again."""
    with Store.open(home, background=False) as store:
        for i in range(40):
            store.save(make_session(f"s{i}", title=f"needle{i}"))
        settle()
        stop = threading.Event()

        def churn() -> None:
            with Store.open(home, background=False) as other:
                while not stop.is_set():
                    other.trigrams.rebuild()

        thread = threading.Thread(target=churn)
        thread.start()
        try:
            for i in range(15):
                agree(home, f"needle{i}\\b")
        finally:
            stop.set()
            thread.join()


@pytest.mark.warns
def test_damaged_segment_is_rebuilt(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge that finds the damage lists all files as changed, and the next merge indexes them."""
    for i in range(3):
        store.save(make_session(f"s{i}", title=f"needle{i}"))
        settle()
        store.trigrams.merge()
    for name in segments(store):
        (store.home / ".grovefs/trigrams" / name).write_bytes(b"garbage")
    store.save(make_session("s4"))
    settle()
    monkeypatch.setattr(segment_files, "MIN_MERGED", 2)
    store.trigrams.merge()
    assert len(listed(store)) == 8
    agree(store.home, "needle1")
    store.trigrams.merge()
    assert in_process(store.home, ["absent words"])[1] == []


# -- check ------------------------------------------------------------------------------------------------


def corrupt_segment(store: Store) -> None:
    path = store.home / ".grovefs/trigrams" / segments(store)[0]
    data = bytearray(path.read_bytes())
    data[10] ^= 0xFF
    path.write_bytes(data)


def drop_half_of_a_file(store: Store) -> None:
    """Write a valid segment that lacks half of the trigrams of a file."""
    [(document,), *_] = store._core.db.reader.execute("SELECT document FROM grep_files ORDER BY document")
    postings = Postings()
    for number, path in store._core.db.reader.execute("SELECT document, path FROM grep_files ORDER BY document"):
        data = (store.home / os.fsdecode(path)).read_bytes()
        postings.add(number, data[: len(data) // 2] if number == document else data)
    (store.home / ".grovefs/trigrams" / segments(store)[0]).write_bytes(b"".join(render(postings.rows())))


def drop_all_documents(store: Store) -> None:
    (store.home / ".grovefs/trigrams" / segments(store)[0]).write_bytes(b"".join(render(Postings().rows())))


def delete_row(store: Store) -> None:
    with store._core.db.write() as db:
        db.execute("DELETE FROM grep_files WHERE document = (SELECT min(document) FROM grep_files)")


@pytest.mark.parametrize("harm", [corrupt_segment, drop_half_of_a_file, drop_all_documents, delete_row])
def test_check_finds_and_repairs_an_incomplete_index(store: Store, harm: Callable[[Store], None]) -> None:
    for i in range(5):
        store.save(make_session(f"s{i}", title=f"needle{i}"))
    settle()
    store.trigrams.rebuild()
    store.trigrams.sweep()
    assert store.check().is_clean
    harm(store)
    report = store.check()
    assert {finding.kind for finding in report.findings} == {"trigrams"}
    assert store.check(repair=True).exit_code == 1
    assert store.check().is_clean
    agree(store.home, *(f"needle{i}" for i in range(5)))
