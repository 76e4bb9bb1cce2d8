"""Import: idempotent, whole sessions only, and never over local changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store import NotFound, Store, Timestamp
from store.errors import InvalidName
from store.transfer.formats.file_position import FilePosition
from store.transfer.formats.importer import ImportProblem
from store.transfer.formats.source import Line, Source
from store.transfer.imports import ImportOutcome
from tests.builders import files_below, location_of, make_session
from tests.store.transfer.foreign import CLAUDE_ID, claude_line, make_claude, write_lines

TURN = {"role": "user", "content": "One more thing"}


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    return make_claude(tmp_path / "dot-claude")


def transcript(claude: Path) -> Path:
    return claude / f"projects/-home-me-shop/{CLAUDE_ID}.jsonl"


def grow(claude: Path) -> None:
    with transcript(claude).open("a") as file:
        file.write(json.dumps(claude_line("user", "u9", TURN, "30:00", parentUuid="u5")) + "\n")


def test_repeated_import_changes_nothing(store: Store, claude: Path) -> None:
    first = store.imports.run(str(claude))
    assert first.format == "claude-code"
    assert first.counts == {"new": 4}
    assert first.problems == []
    before, cursor = files_below(store.home), store.feed.since().cursor
    second = store.imports.run(str(claude))
    assert second.counts == {"unchanged": 4}
    assert files_below(store.home) == before
    assert store.feed.since(cursor).items == []


def test_grown_source_appends(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    was = store.load(CLAUDE_ID)
    grow(claude)
    assert store.imports.run(str(claude)).counts == {"updated": 1, "unchanged": 3}
    now = store.load(CLAUDE_ID)
    assert was is not None
    assert now is not None
    assert now.messages[:-1] == was.messages
    assert now.messages[-1].content == "One more thing"
    assert location_of(store.search("thing")[0]).id == CLAUDE_ID


def test_session_changed_here_goes_on_growing(store: Store, claude: Path) -> None:
    """Rule 8: neither side's change is lost. The title and the pin stay, the new message arrives."""
    store.imports.run(str(claude))
    session = store.load(CLAUDE_ID)
    assert session is not None
    session.title, session.pinned = "Mine", True
    session.messages[0].content = "Edited"
    store.save(session)
    assert store.imports.run(str(claude)).counts == {"unchanged": 4}  # the source has not changed
    grow(claude)
    assert store.imports.run(str(claude)).counts == {"updated": 1, "unchanged": 3}
    assert store.imports.run(str(claude)).counts == {"unchanged": 4}
    now = store.load(CLAUDE_ID)
    assert now is not None
    assert (now.title, now.pinned) == ("Mine", True)
    assert [m.content for m in now.messages] == [*(m.content for m in session.messages), "One more thing"]
    assert location_of(store.search("thing")[0]).id == CLAUDE_ID


def test_message_changed_on_both_sides_is_kept_and_reported(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    session = store.load(CLAUDE_ID)
    assert session is not None
    session.messages[0].content = "Edited here"
    store.save(session)
    text = transcript(claude).read_text()
    transcript(claude).write_text(text.replace("Why is the cart empty?", "Edited there"))
    reported: list[ImportOutcome | ImportProblem] = []
    store.imports.run(str(claude), report=reported.append)
    reasons = [item.reason for item in reported if isinstance(item, ImportOutcome) and item.reason]
    assert len(reasons) == 1
    assert "u1" in reasons[0]
    now = store.load(CLAUDE_ID)
    assert now is not None
    assert now.messages[0].content == "Edited here"


def test_overwrite_takes_the_version_of_the_source(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    session = store.load(CLAUDE_ID)
    assert session is not None
    was = session.model_copy(deep=True)
    session.messages[0].content = "Edited here"
    store.save(session)
    assert store.imports.run(str(claude), overwrite=True).counts == {"updated": 1, "unchanged": 3}
    assert store.load(CLAUDE_ID) == was


def test_unchanged_source_is_not_read_again(store: Store, claude: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.imports.run(str(claude))
    read: list[str] = []
    iter_lines = Source.iter_lines

    def noting(self: Source, path: str, position: FilePosition | None = None) -> Iterator[Line]:
        read.append(path)
        return iter_lines(self, path, position)

    monkeypatch.setattr(Source, "iter_lines", noting)
    assert store.imports.run(str(claude)).counts == {"unchanged": 4}
    assert read == []
    store.delete(CLAUDE_ID)
    assert store.imports.run(str(claude), deleted=True).counts == {"new": 4}
    assert read


def test_sessions_older_than_a_time_are_passed_over(store: Store, claude: Path) -> None:
    year = 365 * 86_400 * 10**9
    assert store.imports.run(str(claude), since=Timestamp.from_ns(time.time_ns() + year)).counts == {}
    assert store.imports.run(str(claude), since=Timestamp("2026-02-18T00:00:00Z")).counts == {"new": 4}


def test_local_file_is_not_overwritten_by_a_new_source_file(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    mine = store.home / f"sessions/{CLAUDE_ID}/attachments/notes.txt"
    mine.write_text("mine")
    (claude / f"projects/-home-me-shop/{CLAUDE_ID}/notes.txt").write_text("theirs")
    reported: list[ImportOutcome | ImportProblem] = []
    store.imports.run(str(claude), report=reported.append)
    assert mine.read_text() == "mine"
    assert "notes.txt" in str([item.reason for item in reported if isinstance(item, ImportOutcome)])


def test_file_with_non_unicode_name_is_imported(store: Store, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    write_lines(tmp_path / "p/fine.jsonl", [claude_line("user", "u1", TURN, "00:00")])
    (tmp_path / "p/fine.jsonl").rename(os.fsdecode(os.fsencode(tmp_path / "p") + b"/n\xff.jsonl"))
    for state in ("new", "unchanged"):
        assert store.imports.run(str(tmp_path / "p")).counts == {state: 1}
    assert store.entries()[0].id.startswith("claude-code-")


def test_source_that_lost_messages_removes_none(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    was = store.load(CLAUDE_ID)
    lines = transcript(claude).read_text().splitlines()
    transcript(claude).write_text("\n".join(lines[:4]) + "\n")
    reported: list[ImportOutcome | ImportProblem] = []
    store.imports.run(str(claude), report=reported.append)
    assert any("no longer in the source" in str(item) for item in reported)
    now = store.load(CLAUDE_ID)
    assert was is not None
    assert now is not None
    assert now.messages == was.messages


def test_unrelated_session_with_the_same_id_is_not_overwritten(store: Store, claude: Path) -> None:
    store.save(make_session(CLAUDE_ID))
    before = store.get_document(CLAUDE_ID, "session.json")
    summary = store.imports.run(str(claude))
    assert summary.counts["kept"] == 1
    assert store.get_document(CLAUDE_ID, "session.json") == before


def test_session_that_lost_its_receipt_is_said_to_and_can_be_connected_again(store: Store, claude: Path) -> None:
    """`rm -r` of a pinned session takes the receipt before it fails."""
    store.imports.run(str(claude))
    session = store.load(CLAUDE_ID)
    assert session is not None
    session.title = "mine"
    store.save(session)
    (store.home / f"sessions/{CLAUDE_ID}/.import.json").unlink()
    grow(claude)
    found: list[Any] = []
    store.imports.run(str(claude), report=found.append)
    (reason,) = (item.reason for item in found if isinstance(item, ImportOutcome) and item.state == "kept")
    assert reason is not None
    assert reason.startswith("its .import.json is missing or damaged")
    assert store.imports.run(str(claude), overwrite=True).counts["updated"] == 1
    again = store.load(CLAUDE_ID)
    assert again is not None
    assert len(again.messages) > len(session.messages)
    assert store.imports.run(str(claude)).counts["kept"] == 0


def test_invalid_lines_are_reported_and_kept(store: Store, claude: Path) -> None:
    path = transcript(claude)
    lines = path.read_bytes().splitlines()
    deep = b'{"type":"user","x":' + b"[" * 200 + b"]" * 200 + b"}"
    bad = [b'{"type": "user", "uu', b"[1, 2]", b'{"a": "\xff"}', deep, b"nul \0"]
    path.write_bytes(b"\n".join([*lines[:3], *bad, *lines[3:]]) + b'\n{"type":"assistant","mess')
    summary = store.imports.run(str(claude))
    numbers = [problem.line for problem in summary.problems]
    assert numbers == [4, 5, 6, 7, 8, len(lines) + len(bad) + 1]
    assert {problem.path for problem in summary.problems} == {str(path)}
    assert summary.counts == {"new": 4}
    attached = store.attachments.read(CLAUDE_ID, "records")
    assert attached is not None
    assert all(line in attached[0].splitlines() for line in bad)


def test_links_in_the_source_are_not_followed(store: Store, claude: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    write_lines(secret / "x.jsonl", [claude_line("user", "u1", {"role": "user", "content": "secret"}, "00:00")])
    (claude / "projects/-home-me-shop/linked.jsonl").symlink_to(secret / "x.jsonl")
    (claude / "projects/elsewhere").symlink_to(secret)
    (claude / f"projects/-home-me-shop/{CLAUDE_ID}/tool-results/passwd.txt").symlink_to("/etc/passwd")
    os.mkfifo(claude / "projects/-home-me-shop/pipe.jsonl")
    summary = store.imports.run(str(claude))
    assert summary.counts == {"new": 4}
    assert len([p for p in summary.problems if "link" in p.text]) == 3
    assert store.search("secret") == []


def test_duplicate_id_is_imported_once(store: Store, claude: Path) -> None:
    other = claude / f"projects/-home-me-zoo/{CLAUDE_ID}.jsonl"
    write_lines(other, [claude_line("user", "x1", {"role": "user", "content": "a copy"}, "00:00")])
    for _ in range(2):
        summary = store.imports.run(str(claude))
        assert sum(summary.counts.values()) == 4
        assert len(summary.problems) == 1
    assert "already" in summary.problems[0].text


def test_invalid_ids_are_replaced_by_their_digest(store: Store, tmp_path: Path) -> None:
    """A session with an invalid id is not rejected: it is imported under a digest."""
    lines = [claude_line("user", "u1", {"role": "user", "content": "hi"}, "00:00")]
    for name in ("..x", ".hidden", "a\nb", "é" * 100, "back\\slash", "fine"):
        write_lines(tmp_path / f"p/{name}.jsonl", lines)
    agent = claude_line("user", "a", {"role": "user", "content": "hi"}, "00:00", agentId="../../etc", isSidechain=True)
    write_lines(tmp_path / "p/with-agent.jsonl", [*lines, agent])
    assert store.imports.run(str(tmp_path / "p")).counts == {"new": 8}
    ids = [entry.id for entry in store.entries()]
    assert sum(id.startswith("claude-code-") for id in ids) == 5
    assert store.imports.run(str(tmp_path / "p")).counts == {"unchanged": 8}


def test_dry_run_changes_nothing(store: Store, claude: Path) -> None:
    assert store.imports.run(str(claude), dry_run=True).counts == {"new": 4}
    assert files_below(store.home) == {}
    assert store.count() == 0


def test_unknown_source_error_lists_the_formats(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="claude-code"):
        store.imports.run(str(tmp_path / "empty"))
    with pytest.raises(NotFound, match="no such file or directory"):
        store.imports.run(str(tmp_path / "nowhere"))
    with pytest.raises(InvalidName, match="no format"):
        store.imports.run(str(tmp_path / "empty"), format="morse")
    (tmp_path / "empty/export.zip").write_bytes(b"PK")
    for place in ("empty", "empty/export.zip"):
        with pytest.raises(NotFound, match=r"Unpack the \.zip file first"):
            store.imports.find(str(tmp_path / place))


@pytest.mark.parametrize("stop_at", [1, 4, 7, 12, 19, 25])
def test_import_completes_after_kill(home: Path, claude: Path, stop_at: int) -> None:
    """Rules 2 and 3: every reported session exists, and none is incomplete."""
    program = f"""
import os, signal
from store import Store
steps = 0
def step(name):
    global steps
    steps += 1
    if steps == {stop_at}:
        os.kill(os.getpid(), signal.SIGKILL)
with Store.open({str(home)!r}, background=False) as store:
    pass
with Store.open({str(home)!r}, background=False, step=step) as store:
    store.imports.run({str(claude)!r}, report=lambda item: print(item.location, flush=True))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    with Store.open(home, background=False) as store:
        if run.returncode == -signal.SIGKILL:
            assert all(store.load(line) is not None for line in run.stdout.split())
        assert store.check().is_clean
        store.imports.run(str(claude))
        assert store.imports.run(str(claude)).counts == {"unchanged": 4}
        assert store.check().is_clean


def test_interrupted_import_leaves_complete_sessions(store: Store, claude: Path) -> None:
    def stop(item: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.imports.run(str(claude), report=stop)
    assert store.count() == 1
    assert store.check().is_clean
    assert store.imports.run(str(claude)).counts == {"new": 3, "unchanged": 1}


def test_session_over_the_limit_is_reported_and_the_others_are_imported(tmp_path: Path, claude: Path) -> None:
    """A document has a largest size. What is left out is named, with the size and the limit."""
    line = claude_line("user", "u1", {"role": "user", "content": "x" * 300_000}, "00:00")
    write_lines(claude / "projects/-home-me-shop/large.jsonl", [line])
    with Store.open(tmp_path / "small", limit_bytes=200_000, background=False) as store:
        summary = store.imports.run(str(claude))
        assert summary.counts == {"new": 4}
        [problem] = summary.problems
        assert problem.path.endswith("large.jsonl")
        assert "over the limit of 200000 bytes" in problem.text
        assert store.check().is_clean


def test_damaged_receipt_overwrites_nothing(store: Store, claude: Path) -> None:
    store.imports.run(str(claude))
    (store.home / f"sessions/{CLAUDE_ID}/.import.json").write_text("[1")
    grow(claude)
    assert store.imports.run(str(claude)).counts == {"kept": 1, "unchanged": 3}
