"""Upkeep: what changed is listed, read when there is time, and never out of sight, whatever crashes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from store import Store
from store.index.database import now_ns
from store.search.grep import maintenance
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


def test_a_commit_lists_its_files_within_its_transaction(store: Store) -> None:
    """By every way files are put in place (rule 7)."""
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


def test_what_has_just_changed_is_not_trusted(store: Store) -> None:
    """Its times may stay the same when it changes again: it stays on the list (the racy-git rule)."""
    store.save(make_session("a"))
    now = now_ns()
    assert store.trigrams.merge(before_ns=now + 10**9) == 0
    assert len(listed(store)) == 2
    settle()
    assert store.trigrams.merge() == 2
    assert listed(store) == set()


def test_tidying_waits_until_there_is_enough_and_it_has_settled(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that an agent appends to all the time is not read again each time."""
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


def test_files_with_other_names_and_what_cannot_be_known_are_always_read(store: Store, tmp_path: Path) -> None:
    """A hard link may be written through from elsewhere; a huge file is not worth its index."""
    store.save(make_session("a"))
    os.link(store.home / "sessions/a/session.json", tmp_path / "elsewhere")
    settle()
    store.trigrams.rebuild()
    assert listed(store) == {"sessions/a/session.json"}
    os.unlink(tmp_path / "elsewhere")


def test_a_session_saved_often_leaves_few_segments(store: Store) -> None:
    """Segments are merged by size, and versions that are no more are dropped."""
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


def test_many_versions_do_not_pile_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """When most documents of the segments are no more, all are made one."""
    monkeypatch.setattr(maintenance, "BATCH_FILES", 4)
    monkeypatch.setattr(maintenance, "FEWEST_MERGED", 100)
    for i in range(8):
        store.save(make_session("s", title=f"title {i}"), overwrite=True)
        settle()
        store.trigrams.merge()
    assert len(segments(store)) <= 4
    agree(store.home, "title 7")


def test_files_that_went_are_forgotten(store: Store) -> None:
    """Rows of files that are no more go with the next sweep or merge."""
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


def test_a_crash_at_any_step_of_a_merge_costs_nothing(home: Path) -> None:
    """Every file stays on the list or is in a segment that counts, and the next merge succeeds."""
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


def test_an_edit_while_it_is_being_read_is_not_lost(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading a file and saying that it is known, someone writes: then it is not known."""
    store.save(make_session("a", title="before"))
    settle()
    store.trigrams.sweep()
    write: Callable[..., tuple[str, int]] = store.trigrams._write_segment

    def meanwhile(rows: object) -> tuple[str, int]:
        with (store.home / "sessions/a/session.json").open("a") as file:
            file.write(" ")
        return write(rows)

    monkeypatch.setattr(store.trigrams, "_write_segment", meanwhile)
    store.trigrams.merge()
    assert listed(store) == {"sessions/a/session.json"}


def test_two_merge_at_once(home: Path) -> None:
    """Two processes, and two threads of each, while sessions are saved: nothing is lost, nothing is twice."""
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
    """A reader that finds an old segment gone looks again."""
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
def test_a_damaged_segment_is_made_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging meets the damage: all files are read again, and until then always."""
    for i in range(3):
        store.save(make_session(f"s{i}", title=f"needle{i}"))
        settle()
        store.trigrams.merge()
    for name in segments(store):
        (store.home / ".grovefs/trigrams" / name).write_bytes(b"garbage")
    store.save(make_session("s4"))
    settle()
    monkeypatch.setattr(maintenance, "FEWEST_MERGED", 2)
    store.trigrams.merge()
    assert len(listed(store)) == 8
    agree(store.home, "needle1")
    store.trigrams.merge()
    assert in_process(store.home, ["absent words"])[1] == []


# -- check ------------------------------------------------------------------------------------------------


def spoil_segment(store: Store) -> None:
    path = store.home / ".grovefs/trigrams" / segments(store)[0]
    data = bytearray(path.read_bytes())
    data[10] ^= 0xFF
    path.write_bytes(data)


def leave_out(store: Store) -> None:
    """A segment that is whole, and does not know half of what is in a file."""
    [(document,), *_] = store._core.db.reader.execute("SELECT document FROM grep_files ORDER BY document")
    postings = Postings()
    for number, path in store._core.db.reader.execute("SELECT document, path FROM grep_files ORDER BY document"):
        data = (store.home / os.fsdecode(path)).read_bytes()
        postings.add(number, data[: len(data) // 2] if number == document else data)
    (store.home / ".grovefs/trigrams" / segments(store)[0]).write_bytes(b"".join(render(postings.rows())))


def leave_out_document(store: Store) -> None:
    (store.home / ".grovefs/trigrams" / segments(store)[0]).write_bytes(b"".join(render(Postings().rows())))


def lose_row(store: Store) -> None:
    with store._core.db.write() as db:
        db.execute("DELETE FROM grep_files WHERE document = (SELECT min(document) FROM grep_files)")


@pytest.mark.parametrize("harm", [spoil_segment, leave_out, leave_out_document, lose_row])
def test_check_finds_an_index_that_says_too_little(store: Store, harm: Callable[[Store], None]) -> None:
    """Found, mended, gone."""
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
