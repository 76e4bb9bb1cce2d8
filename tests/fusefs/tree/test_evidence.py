"""Evidence: what counts for a handle, whose it is, and how long it is kept."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from fusefs.tree import evidence
from fusefs.tree.evidence import Evidence
from fusefs.tree.processes import UNKNOWN, Process
from store.disk.file import Stamp

PATH = "sessions/s/session.json"
VIM = Process(10, 1, "vim", 1000, session_id=5, parent=6)
JQ = Process(11, 1, "jq", 1000, session_id=5, parent=6)
MV = Process(12, 1, "mv", 1000, session_id=5, parent=6)
STRANGER = Process(13, 1, "sed", 1000, session_id=7, parent=6)


def stamp(number: int) -> Stamp:
    return Stamp(number, 1, 1, 1)


@pytest.fixture
def known() -> Evidence:
    return Evidence()


def test_version_is_known_by_its_last_stamp(known: Evidence) -> None:
    """chmod and touch change the stamp of a file, and the history keeps the new one."""
    known.note_opened(VIM, PATH, stamp(1))
    known.note_opened(JQ, PATH, stamp(1))
    known.note_restamped(PATH, stamp(1), stamp(2))
    known.note_opened(VIM, PATH, stamp(2))
    assert known.writer(VIM, PATH, known.now).opened == (stamp(2),)
    assert known.writer(JQ, PATH, known.now).opened == (stamp(2),)


def test_all_opened_versions_count_until_the_first_save(known: Evidence) -> None:
    for number in (1, 2, 2, 3):
        known.note_opened(VIM, PATH, stamp(number))
    writer = known.writer(VIM, PATH, known.now)
    assert writer.opened == (stamp(1), stamp(2), stamp(3))
    assert (writer.saved, writer.last_draft, writer.process) == (None, None, (10, 1))
    assert str(writer.author) == "mount: vim (10)"


def test_own_save_replaces_what_was_opened_before(known: Evidence) -> None:
    """As a version if it was stored as typed; as a draft if it was merged."""
    known.note_opened(VIM, PATH, stamp(1))
    known.note_saved(VIM, PATH, stamp(2), None)
    known.note_opened(VIM, PATH, stamp(5))
    writer = known.writer(VIM, PATH, known.now)
    assert (writer.opened, writer.saved) == ((stamp(2), stamp(5)), stamp(2))
    known.note_saved(VIM, PATH, stamp(6), 77)
    writer = known.writer(VIM, PATH, known.now)
    assert (writer.opened, writer.saved, writer.last_draft) == ((), None, 77)


def test_a_text_is_as_old_as_the_first_opening_of_its_version_or_the_last_refusal(known: Evidence) -> None:
    """Not as the last one: an editor reads the present version again, to copy it as a backup."""

    def times(*bases: Stamp | None) -> list[int]:
        return [known.writer(VIM, PATH, known.now).text_ns(base) for base in bases]

    for number, ns in ((1, 100), (1, 200), (2, 300), (2, 350)):
        known.note_opened(VIM, PATH, stamp(number), ns)
    assert times(stamp(1), stamp(2), stamp(3), None) == [100, 300, 100, 100]
    known.note_refused(VIM, PATH)
    assert times(stamp(1), stamp(2)) == [100, 300]
    known.note_opened(VIM, PATH, stamp(2), 400)
    known.note_opened(VIM, PATH, stamp(2), 500)
    assert times(stamp(1), stamp(2)) == [400, 400]
    known.note_saved(VIM, PATH, stamp(3), None, at_ns=600)
    known.note_opened(VIM, PATH, stamp(3), 700)
    known.note_opened(VIM, PATH, stamp(4), 800)
    assert times(stamp(3), stamp(4), None) == [600, 800, 600]


def test_events_after_the_handle_was_opened_do_not_count(known: Evidence) -> None:
    """Neither a newer version that the process reads, nor a save through another handle."""
    known.note_opened(VIM, PATH, stamp(1))
    opened_at = known.now
    known.note_opened(VIM, PATH, stamp(2))
    known.note_saved(VIM, PATH, stamp(3), None)
    writer = known.writer(VIM, PATH, opened_at)
    assert (writer.opened, writer.saved) == ((stamp(1),), None)


def test_relatives_count_only_for_a_process_without_own_evidence(known: Evidence) -> None:
    """In `jq . F > t && mv t F` mv has read nothing. A process of another terminal does not count."""
    known.note_opened(JQ, PATH, stamp(1))
    known.note_opened(STRANGER, PATH, stamp(9))
    known.note_opened(JQ, "sessions/s/runtime.json", stamp(8))
    assert known.writer(MV, PATH, known.now).relatives == (stamp(1),)
    assert known.writer(JQ, PATH, known.now).relatives == ()
    assert known.writer(STRANGER, PATH, known.now).opened == (stamp(9),)


def test_script_counts_for_the_programs_it_runs(known: Evidence) -> None:
    """A script reads the document and lets cp write it."""
    script = Process(30, 1, session_id=5, parent=29)
    cp = Process(32, 2, session_id=5, parent=31, ancestors=(31, 30, 29))
    known.note_opened(script, PATH, stamp(1))
    assert known.writer(cp, PATH, known.now).relatives == (stamp(1),)
    reused = replace(cp, started=0)
    assert known.writer(reused, PATH, known.now).relatives == (), "the script is younger than the program"


def test_processes_of_a_session_begun_outside_of_the_container_are_related_by_their_parent(known: Evidence) -> None:
    known.note_opened(Process(50, 1, session_id=0, parent=49), PATH, stamp(1))
    assert known.writer(Process(51, 1, session_id=0, parent=49), PATH, known.now).relatives == (stamp(1),)
    assert known.writer(Process(52, 1, session_id=0, parent=0), PATH, known.now).relatives == ()


def test_parents_outside_of_the_container_are_not_one_parent(known: Evidence) -> None:
    known.note_opened(Process(53, 1, session_id=0, parent=0), PATH, stamp(1))
    assert known.writer(Process(54, 1, session_id=0, parent=0), PATH, known.now).relatives == ()


def test_shell_that_became_its_last_command_is_related_to_the_others(known: Evidence) -> None:
    """In `bash -c 'cat F > /tmp/t; cp /tmp/t F'` cp has the pid of the shell, and cat was its child."""
    cp = Process(40, 1, session_id=5, parent=39)
    known.note_opened(Process(41, 2, session_id=5, parent=40, ancestors=(40, 39)), PATH, stamp(1))
    assert known.writer(cp, PATH, known.now).relatives == (stamp(1),)


def test_what_a_script_runs_counts_before_other_relatives(known: Evidence) -> None:
    cp = Process(60, 3, session_id=5, parent=59, ancestors=(59, 50))
    relatives = {
        "one shell runs both": Process(71, 1, session_id=5, parent=70, ancestors=(70, 50)),
        "the same parent": Process(61, 1, session_id=5, parent=59, ancestors=(59, 50)),
        "its own child": Process(62, 4, session_id=5, parent=60, ancestors=(60, 59, 50)),
    }
    for number, (relation, process) in enumerate(relatives.items(), start=1):
        known.note_opened(process, PATH, stamp(number))
        writer = known.writer(cp, PATH, known.now)
        assert writer.near_relatives == (stamp(number),), relation
        assert writer.relatives == tuple(stamp(n) for n in range(1, number + 1)), relation
    known.note_opened(Process(50, 1, session_id=5), PATH, stamp(4))
    assert known.writer(cp, PATH, known.now).near_relatives == (stamp(3),), "the shell itself is further away"


def test_versions_that_relatives_read_are_told_from_those_they_saved(known: Evidence) -> None:
    known.note_opened(JQ, PATH, stamp(1))
    sed = replace(JQ, pid=300)
    known.note_opened(sed, PATH, stamp(1))
    known.note_saved(sed, PATH, stamp(2), None)
    writer = known.writer(MV, PATH, known.now)
    assert (writer.relatives, writer.saved_by_relatives) == ((stamp(1),), (stamp(2),))


def test_writer_of_a_file_is_known_by_its_inode(known: Evidence, tmp_path: Path) -> None:
    """Up to its last write: what the process reads later is not in the file."""
    file = tmp_path / "file"
    file.touch()
    known.note_opened(JQ, PATH, stamp(1))
    known.note_written(JQ, file.stat().st_ino)
    written_at = known.now
    known.note_opened(JQ, PATH, stamp(2))
    file = file.rename(tmp_path / "renamed")
    assert known.writer_of_file(file.stat(), MV) == (JQ, written_at)
    assert known.writer_of_file(None, MV) == (MV, known.now)
    for number in range(2 * evidence.MAX_FILES):
        known.note_written(JQ, -number)
    assert len(known._files) == evidence.MAX_FILES


def test_what_a_relative_has_saved_replaces_what_was_read_before(known: Evidence) -> None:
    """The same two commands again: the second copy was made from the first one's result, not from both."""
    for number in (1, 2, 3):
        jq, cp = replace(JQ, pid=100 + number), replace(MV, pid=200 + number)
        known.note_opened(jq, PATH, stamp(number))
        assert known.writer(cp, PATH, known.now).relatives == (stamp(number),)
        known.note_saved(cp, PATH, stamp(number + 1), None, stamp(number))
        assert known.writer(MV, PATH, known.now).saved_by_relatives == (stamp(number + 1),)
    known.note_saved(replace(MV, pid=300), PATH, stamp(5), 77, stamp(4))
    assert known.writer(MV, PATH, known.now).relatives == (), "a merged text is kept as a draft"
    assert known.writer(replace(JQ, pid=103), PATH, known.now).opened == (stamp(3),), "its own buffer is older"


def test_a_save_uses_one_of_two_texts_made_from_a_version(known: Evidence) -> None:
    """Two programs read a version, and one text is stored: the other one is still on its way."""
    other, cp = replace(JQ, pid=101), replace(MV, pid=201)
    for jq in (JQ, other):
        known.note_opened(jq, PATH, stamp(1))
    known.note_saved(cp, PATH, stamp(2), None, stamp(1))
    writer = known.writer(MV, PATH, known.now)
    assert (writer.relatives, writer.saved_by_relatives) == ((stamp(1),), (stamp(2),))
    known.note_saved(MV, PATH, stamp(3), None, stamp(1))
    writer = known.writer(replace(MV, pid=202), PATH, known.now)
    assert (writer.relatives, set(writer.saved_by_relatives)) == ((), {stamp(2), stamp(3)})


def test_a_save_of_a_process_that_has_read_itself_uses_nothing_of_its_relatives(known: Evidence) -> None:
    """sed -i between jq and mv."""
    sed = replace(JQ, pid=101)
    known.note_opened(JQ, PATH, stamp(1))
    known.note_opened(sed, PATH, stamp(1))
    known.note_saved(sed, PATH, stamp(2), None, stamp(1))
    writer = known.writer(MV, PATH, known.now)
    assert (writer.relatives, writer.saved_by_relatives) == ((stamp(1),), (stamp(2),))


def test_what_relatives_read_after_the_output_was_opened_counts(known: Evidence) -> None:
    """A shell opens the output of a pipeline before the first program reads the document."""
    opened_at = known.now
    known.note_opened(JQ, PATH, stamp(1))
    assert known.writer(MV, PATH, opened_at).relatives == (stamp(1),)


def test_unknown_processes_leave_no_evidence(known: Evidence) -> None:
    """All processes of other pid namespaces look alike."""
    known.note_opened(UNKNOWN, PATH, stamp(1))
    known.note_opened(Process(14), PATH, stamp(1))
    writer = known.writer(UNKNOWN, PATH, known.now)
    assert (writer.opened, writer.relatives, writer.process) == ((), (), None)
    assert known.now == 0


def test_ended_processes_are_forgotten_after_ten_minutes(known: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    start = now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    known.note_opened(JQ, PATH, stamp(1))
    known.note_opened(VIM, PATH, stamp(2))
    known.sweep(lambda process: process is VIM)
    now = start + evidence.ENDED_S - 1
    known.sweep(lambda process: process is VIM)
    assert known.writer(MV, PATH, known.now).relatives == (stamp(1), stamp(2))
    now = start + evidence.ENDED_S + 1
    known.sweep(lambda process: process is VIM)
    assert known.writer(JQ, PATH, known.now).opened == ()
    assert known.writer(MV, PATH, known.now).relatives == (), "too long ago, though vim still runs"
    assert known.writer(VIM, PATH, known.now).opened == (stamp(2),)


def test_every_process_is_checked_in_turn(known: Evidence) -> None:
    processes = [Process(number, 1) for number in range(1, 201)]
    for process in processes:
        known.note_opened(process, PATH, stamp(1))
    asked: set[int] = set()

    def is_running(process: Process) -> bool:
        asked.add(process.pid)
        return True

    for _ in range(4):
        known.sweep(is_running)
        time.sleep(0.002)
    assert len(asked) == 200


def test_memory_is_bounded(known: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    """grep -r reads everything. What an editor has opened stays known."""
    monkeypatch.setattr(evidence, "MAX_PROCESSES", 100)
    grep = Process(20, 1)
    known.note_opened(VIM, PATH, stamp(1))
    for number in range(1000):
        known.note_opened(grep, f"sessions/{number}/session.json", stamp(number))
        known.note_opened(VIM, PATH, stamp(number))
    assert len(known._known[20, 1].documents) == evidence.MAX_DOCUMENTS
    opened = known.writer(VIM, PATH, known.now).opened
    assert len(opened) <= evidence.MAX_EVENTS
    assert (opened[0], opened[-1]) == (stamp(1), stamp(999))
    for number in range(1000):
        known.note_opened(Process(1000 + number, 1), PATH, stamp(1))
    assert len(known._known) == 100
