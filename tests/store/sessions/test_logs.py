"""Session logs: the trajectory."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import Corrupt, InvalidContent, Session, StepRange, Store, Timestamp, TrajectoryStep
from store.sessions.logs import _parse_step, _step_line
from tests.builders import NINE_DIGITS, files_below, make_session


def step(name: str = "read", **members: Any) -> TrajectoryStep:
    fields: dict[str, Any] = {
        "tool_name": name,
        "tool_args": {"path": "a.py"},
        "output_summary": "12 lines",
        "duration_ms": 9,
        "is_error": False,
        "tool_call_id": "call-1",
        "timestamp": NINE_DIGITS,
    }
    return TrajectoryStep.model_validate(fields | members)


@pytest.fixture
def log(store: Store, home: Path) -> Path:
    store.save(make_session("s1"))
    return home / "sessions/s1/trajectory.jsonl"


def names(store: Store, *between: int | None) -> list[str]:
    steps = store.trajectory.read("s1", *between)  # type: ignore[arg-type]
    assert steps is not None
    return [s.tool_name for s in steps]


def test_steps_are_appended_and_read_by_range(store: Store, log: Path) -> None:
    """With the semantics of a slice; an append returns the numbers of its steps."""
    assert store.trajectory.append("s1", [step("a"), step("b")]) == StepRange(0, 2)
    assert store.trajectory.append("s1", [step("c"), step("d")]) == StepRange(2, 4)
    assert names(store) == ["a", "b", "c", "d"]
    assert names(store, 1, 3) == ["b", "c"]
    assert names(store, 3) == ["d"]
    assert names(store, -3, -1) == ["b", "c"]
    assert names(store, -1) == ["d"]
    assert names(store, 9) == names(store, 3, 1) == []
    assert store.trajectory.count("s1") == 4
    assert log.read_bytes().count(b"\n") == 4


def test_a_step_keeps_every_member_and_every_digit(store: Store, log: Path) -> None:
    """Rule 5: unknown members too."""
    store.trajectory.append("s1", [step(tool_args=[1, {"ü": None}], more={"b": 1, "a": 2})])
    (read,) = store.trajectory.read("s1") or []
    assert read == step(tool_args=[1, {"ü": None}], more={"b": 1, "a": 2})
    assert json.loads(log.read_bytes())["timestamp"] == NINE_DIGITS
    assert "ü" in log.read_text()


def test_appending_no_steps_changes_nothing(store: Store, log: Path) -> None:
    """It does not create a file."""
    assert store.trajectory.append("s1", []) == StepRange(0, 0)
    assert store.trajectory.read("s1") == []
    assert not log.exists()


def test_an_unknown_session_has_no_steps(store: Store, home: Path) -> None:
    """All methods return None and create nothing."""
    assert store.trajectory.append("nobody", [step()]) is None
    assert store.trajectory.read("nobody") is None
    assert store.trajectory.count("nobody") is None
    assert files_below(home) == {}


def test_a_child_has_a_separate_log(store: Store, home: Path, log: Path) -> None:
    store.save(Session.new_child("kid", "s1", "m", "A child"))
    assert store.trajectory.append("s1/kid", [step("a")]) == StepRange(0, 1)
    assert (home / "sessions/s1/children/kid/trajectory.jsonl").exists()
    assert not log.exists()


@pytest.mark.parametrize(
    "bad",
    [
        {"duration_ms": -1},
        {"duration_ms": 1.5},
        {"is_error": "no"},
        {"timestamp": "yesterday"},
        {"tool_name": None},
        {"tool_args": {"k": object()}},
        {"output_summary": "\ud800"},
    ],
)
def test_an_invalid_step_rejects_the_whole_batch(store: Store, log: Path, bad: dict[str, Any]) -> None:
    """Rule 3: the valid steps before it are not written."""
    store.trajectory.append("s1", [step("a")])
    before = log.read_bytes()
    with pytest.raises(InvalidContent, match=r"trajectory\.jsonl"):
        store.trajectory.append("s1", [step("b"), step("c").model_dump() | bad])
    assert log.read_bytes() == before


def test_a_missing_member_is_rejected(store: Store, log: Path) -> None:
    with pytest.raises(InvalidContent, match="tool_call_id"):
        store.trajectory.append("s1", [{k: v for k, v in step().model_dump().items() if k != "tool_call_id"}])


@pytest.mark.warns
def test_a_line_cut_off_by_a_crash_keeps_its_number(store: Store, log: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next append starts a new line with the next number."""
    store.trajectory.append("s1", [step("a")])
    with log.open("ab") as file:
        file.write(b'{"tool_name": "cut o')
    assert store.trajectory.append("s1", [step("c")]) == StepRange(2, 3)
    assert names(store) == ["a", "c"]
    assert names(store, 2) == ["c"]
    assert "step 1" in caplog.text


def test_blank_lines_are_ignored(store: Store, log: Path) -> None:
    """Editors add some."""
    store.trajectory.append("s1", [step("a")])
    log.write_bytes(log.read_bytes() + b"\n")
    store.trajectory.append("s1", [step("b")])
    assert names(store) == ["a", "b"]


def test_lines_longer_than_a_chunk_are_read_whole(store: Store, log: Path) -> None:
    """A chunk is 1 MiB."""
    big = "x" * 1_500_000
    store.trajectory.append("s1", [step("a", output_summary=big), step("b"), step("c", output_summary=big)])
    assert [len(s.output_summary) for s in store.trajectory.read("s1") or []] == [1_500_000, 8, 1_500_000]
    assert names(store, -1) == ["c"]


def test_a_symlink_in_place_of_the_log_is_not_followed(store: Store, log: Path, tmp_path: Path) -> None:
    """Neither by reads nor by appends."""
    target = tmp_path / "elsewhere"
    target.write_text("")
    log.symlink_to(target)
    for attempt in (lambda: store.trajectory.read("s1"), lambda: store.trajectory.append("s1", [step()])):
        with pytest.raises(Corrupt, match="links are not followed"):
            attempt()
    assert target.read_text() == ""
    log.unlink()


def test_steps_are_deleted_and_restored_with_their_session(store: Store, log: Path) -> None:
    store.trajectory.append("s1", [step("a")])
    store.delete("s1")
    assert not log.exists()
    store.trash.undelete(store.trash.deleted()[0].name)
    assert names(store) == ["a"]


def test_an_append_is_in_the_change_feed(store: Store, log: Path) -> None:
    cursor = store.feed.since().cursor
    store.trajectory.append("s1", [step(timestamp=now())])
    assert [(c.location.id, c.what) for c in store.feed.since(cursor).items] == [("s1", "log"), ("s1", "runtime")]


def test_concurrent_batches_are_not_interleaved(store: Store, log: Path) -> None:
    """Each batch has the numbers its append returned, and no step is lost."""
    ranges: dict[str, StepRange | None] = {}

    def work(name: str) -> None:
        ranges[name] = store.trajectory.append("s1", [step(name) for _ in range(5)])

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.trajectory.count("s1") == 40
    for name, between in ranges.items():
        assert between is not None
        assert names(store, *between) == [name] * 5


APPEND = """
import sys, itertools
from store import Store
with Store.open(sys.argv[1], background=False, durability="normal") as store:
    for number in itertools.count():
        store.trajectory.append("s1", [{
            "tool_name": str(number), "tool_args": "x" * 5000, "output_summary": "", "duration_ms": 1,
            "is_error": False, "tool_call_id": "c", "timestamp": "2026-01-01T00:00:00Z"}] * 3)
        print(number, flush=True)
"""


def test_an_acknowledged_append_survives_a_kill(store: Store, home: Path, log: Path) -> None:
    """Rule 2: complete and in order."""
    with subprocess.Popen([sys.executable, "-c", APPEND, str(home)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(20)]
        process.kill()
        acknowledged += process.stdout.read().splitlines()
    found = names(store)
    assert found[: 3 * len(acknowledged)] == [str(i) for i in range(len(acknowledged)) for _ in range(3)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.text(st.characters(exclude_categories=["Cs"])))
def test_a_step_round_trips_as_one_line(arguments: Any, output: str) -> None:
    wanted = step(tool_args=arguments, output_summary=output)
    line = _step_line(wanted)
    assert line.count(b"\n") == 1
    assert _parse_step(line[:-1], "trajectory.jsonl", 0) == wanted


def test_c9_new_steps_count_as_activity(store: Store) -> None:
    """Lists, iter_changed and prune see it; a Session that was loaded before can still be saved."""
    session = make_session("s9")
    store.save(session)
    before = session.updated_at
    store.trajectory.append("s9", [step(timestamp=now())])
    entry = store.entry("s9")
    assert entry is not None
    assert entry.updated_at.ns > before.ns
    changed = store.summaries.iter_changed(Timestamp.from_ns(before.ns + 1))
    assert [found.id for found in changed] == ["s9"]
    session.title = "changed by the holder"
    store.save(session)
    store.trajectory.append("s9", [step(timestamp=now())])
    session.title = "again"
    store.save_runtime(session)
    loaded = store.load("s9")
    assert loaded is not None
    assert (loaded.title, loaded.updated_at.ns > entry.updated_at.ns) == ("again", True)


@pytest.mark.parametrize("later_s", [-3600, 3600])
def test_a_session_was_used_when_its_last_step_started(store: Store, later_s: int) -> None:
    """Steps of an imported or replayed run do not make a session look used today, nor in the future."""
    session = make_session("s9")
    session.created_at = session.updated_at = Timestamp.from_ns(now().ns - 2 * 3600 * 10**9)
    store.save(session)
    at = Timestamp.from_ns(now().ns + later_s * 10**9)
    store.trajectory.append("s9", [step(timestamp=at), step()])
    entry = store.entry("s9")
    assert entry is not None
    assert entry.updated_at.ns == at.ns if later_s < 0 else entry.updated_at.ns <= now().ns
    store.trajectory.append("s9", [step()])
    assert store.entry("s9") == entry, "an older step changes nothing"


def now() -> Timestamp:
    return Timestamp.from_ns(time.time_ns())
