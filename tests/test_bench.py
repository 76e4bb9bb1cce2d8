"""`bench mount` without mounts: its tree is valid, its proofs can fail, its verdicts follow from the numbers."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.agent_logs import LogWriter
from benchmarks.contenders import Native, Place, Wakeups, switches
from benchmarks.importing import ImportScale, measure_import
from benchmarks.mount import Settings, smaller
from benchmarks.reads import READS, Failed, Proof, Subject, lines_in_any_order, tree_proof
from benchmarks.results import Fact, Report, Row, Samples, as_data, main_table, median_requests, row_of
from benchmarks.starting import measure_starting
from benchmarks.tree import RARE, Shape, plan, write_tree
from benchmarks.writes import Files, Itself, Text, writes
from hypothesis import given
from hypothesis import strategies as st

from store import Store

SMALL = Shape(roots=10, median_bytes=4_000, rare_every=5)
SUBJECT = Subject([], "")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path / "bench")
    made.make()
    return made


# -- the tree --------------------------------------------------------------------------------------------


def test_the_tree_has_the_requested_shape() -> None:
    """2,000 roots, 30 % with a child, a median of 40 KB; deterministic."""
    planned = list(plan(Shape()))
    assert planned == list(plan(Shape()))
    roots = {p.root for p in planned}
    assert len(roots) == 2_000
    assert 0.27 < sum(p.child is not None for p in planned) / len(roots) < 0.33
    assert 38_000 < statistics.median(p.size_bytes for p in planned) < 42_000
    assert len({p.directory for p in planned}) == len(planned)


def test_the_store_accepts_every_session_of_the_tree(place: Place) -> None:
    """The tree has files only; the store indexes them."""
    number = write_tree(place.home / "sessions", SMALL)
    assert number == len(list(plan(SMALL)))
    with Store.open(place.home, background=False) as store:
        assert store.count() == number
        assert store.check().is_clean


def test_documents_have_the_planned_size_and_rare_word(place: Place) -> None:
    """Sizes agree within one message."""
    shape = Shape(roots=10)
    write_tree(place.home / "sessions", shape)
    for planned in plan(shape):
        raw = (place.home / "sessions" / planned.directory / "session.json").read_bytes()
        assert abs(len(raw) - planned.size_bytes) < 0.1 * planned.size_bytes + 1_000
        assert (RARE.encode() in raw) == planned.is_rare


# -- proofs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["find", "ls -lR", "grep -r", "rsync -a", "rsync idle", "tar", "jq"])
def test_a_proof_differs_after_a_file_changed(place: Place, name: str) -> None:
    """Each tool gives the same proof twice, and another one after a change."""
    write_tree(place.home / "sessions", SMALL)
    some = next(p for p in plan(SMALL) if p.is_rare)
    contender, read = Native(place), next(read for read in READS if read.name == name)
    subject = Subject([f"{some.directory}/session.json"], "")

    def prove(*, after_change: bool = False) -> Proof:
        read.prepare(contender)
        if after_change:
            _change(contender.sessions / some.directory, name)
        assert read.run(contender, subject) > 0
        return read.proof(contender, subject)

    first = prove()
    assert prove() == first
    assert prove(after_change=True) != first


def _change(directory: Path, workload: str) -> None:
    """Make a change that the workload must detect."""
    if workload in ("find", "tar"):
        (directory / "more").write_bytes(b"x" * 20_000)
    else:
        path = directory / "session.json"
        document = json.loads(path.read_bytes())
        document["messages"].append({**document["messages"][-1], "id": "another"})
        path.write_text(json.dumps(document))


def test_a_failing_tool_raises(place: Place) -> None:
    """grep without a match exits with 1."""
    read = next(read for read in READS if read.name == "grep -r")
    with pytest.raises(Failed, match="grep"):
        read.run(Native(place), SUBJECT)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])), unique=True), st.randoms())
def test_the_order_of_lines_does_not_matter(lines: list[str], chance: object) -> None:
    """Filesystems list directories in different orders; only the names count."""
    shuffled = list(lines)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    contender = Native(Place(Path("/nowhere")))
    one, other = ("".join(f"{line}\n" for line in some).encode() for some in (lines, shuffled))
    assert lines_in_any_order(contender, SUBJECT, one) == lines_in_any_order(contender, SUBJECT, other)
    more = lines_in_any_order(contender, SUBJECT, one + b"more lines than there were\n")
    assert more != lines_in_any_order(contender, SUBJECT, one)


def test_the_proof_of_a_tree_includes_bytes_names_and_times(tmp_path: Path) -> None:
    """A copy that keeps all three has the same proof."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("text")
    subprocess.run(["cp", "-a", "a", "copy"], cwd=tmp_path, check=True)
    wanted = tree_proof(tmp_path / "a")
    assert tree_proof(tmp_path / "copy") == wanted
    os.utime(tmp_path / "copy/b/file", ns=(1, 1))
    assert tree_proof(tmp_path / "copy") != wanted
    shutil.copystat(tmp_path / "a/b/file", tmp_path / "copy/b/file")
    assert tree_proof(tmp_path / "copy") == wanted
    (tmp_path / "copy/b/file").rename(tmp_path / "copy/b/other")
    assert tree_proof(tmp_path / "copy") != wanted


def test_files_and_the_store_write_the_same(place: Place) -> None:
    """All four workloads, twice: the proofs are equal and the store is clean."""
    with Store.open(place.home, background=False) as store:
        files, itself, text = Files(Native(place)), Itself(store), Text()
        for write in writes(quick=True):
            for turn in range(2):
                time_ms, proof = write.run(files, text, turn)
                assert time_ms > 0
                assert proof.files > 0
                assert write.run(itself, text, turn)[1] == proof
        assert store.check().is_clean


# -- starting and importing ----------------------------------------------------------------------------------


def test_start_bench_measures_every_target(tmp_path: Path) -> None:
    """Commands against importing typer, and a mount until it answers."""
    rows = measure_starting(tmp_path, sessions=10, rounds=2)
    assert [row.workload.split()[1] for row in rows] == ["--help", "ls", "search", "mount"]
    assert all(row.target is not None and row.ours > 0 for row in rows)


def test_import_bench_measures_every_target(tmp_path: Path) -> None:
    """Each row has a target and a positive value."""
    rows = measure_import(tmp_path, ImportScale(2, 20_000, 40_000, 2, lines=1, rounds=1))
    assert len(rows) == 6
    assert all(row.target is not None and row.ours > 0 for row in rows)


def test_every_generated_line_is_imported(tmp_path: Path) -> None:
    """The logs are valid: no problem, and as many messages as records with a conversation."""
    LogWriter().write(tmp_path / "logs/projects/-home-ada-work", 2, 30_000)
    with Store.open(tmp_path / "home", background=False) as store:
        assert store.imports.run(str(tmp_path / "logs")).problems == []
        lines = [line for path in (tmp_path / "logs").rglob("*.jsonl") for line in path.read_bytes().splitlines()]
        messages = sum(json.loads(line)["type"] != "system" for line in lines)
        assert sum(entry.message_count for entry in store.entries()) == messages
        assert store.check().is_clean


# -- rows and verdicts -----------------------------------------------------------------------------------


def sampled(*times_ms: float) -> Samples:
    samples = Samples()
    for time_ms in times_ms:
        samples.add(time_ms, 0.01, Counter(open=4), Proof(3, 30))
    return samples


def test_a_row_has_medians_and_their_ratio() -> None:
    """An outlier changes neither."""
    row = row_of("find", "warm", {"native": sampled(1, 2, 900), "grovefs": sampled(6, 5, 7)})
    assert row.times_ms == {"native": 2, "grovefs": 6}
    assert row.ratio("native") == 3
    assert row.requests == {"open": 4}
    assert (row.files, row.bytes, row.rounds) == (3, 30, 3)


@pytest.mark.parametrize("other", [Proof(2, 30), Proof(3, 31), Proof(3, 30, "another")])
def test_different_proofs_give_no_ratio(other: Proof) -> None:
    """A difference in files, bytes or content in a single round is enough."""
    samples = {"native": sampled(1, 1), "grovefs": sampled(1, 1)}
    samples["grovefs"].proofs[1] = other
    with pytest.raises(Failed, match=r"find, round 2: grovefs saw"):
        row_of("find", "warm", samples)


def row(workload: str = "find", cache: str = "warm", **times_ms: float) -> Row:
    return Row(workload, cache, 5, times_ms, {"grovefs": 1.0}, None, 1, 1)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (row(native=10, grovefs=13, bindfs=13, passthrough=39), "yes"),
        (row(native=1, grovefs=9, bindfs=9, passthrough=30), "no: 9× native"),
        (row(native=10, grovefs=12, bindfs=10, passthrough=40), "no: 1.2× bindfs"),
        (row(native=10, grovefs=10, bindfs=20, passthrough=20), "no: 0.5× passthrough"),
        (row(native=1, grovefs=1), "yes"),  # contenders that did not take part are not judged
        (row("cat", native=1, grovefs=1.2, bindfs=3), "yes"),
        (row("cat", "cold", native=1, grovefs=3.5), "no: 3.5× native"),
        (row("tar", "cold", native=1, grovefs=2.4), "yes"),
        (row("create", "write", native=1, grovefs=26, store=20), "yes"),
        (row("edit in place", "write", native=1, grovefs=50, store=20), "no: 2.5× store"),
        (row("jq", native=1, grovefs=90), ""),
    ],
)
def test_the_verdict_follows_from_the_ratios(measured: Row, verdict: str) -> None:
    """Each contender has its own bound."""
    assert measured.verdict == verdict


def test_one_missed_target_fails_the_report() -> None:
    """A row or a fact."""
    good, bad = row(native=1, grovefs=1), row(native=1, grovefs=20)
    fits, grows = Fact("memory", 200, "MB", 300), Fact("memory", 400, "MB", 300)
    assert Report([good], [fits], {}).is_met
    assert not Report([good, bad], [fits], {}).is_met
    assert not Report([good], [fits, grows], {}).is_met


def test_json_output_is_complete() -> None:
    """It has everything that the table shows, and the requests by name."""
    report = Report([row(native=1, grovefs=20)], [Fact("memory", 400, "MB", 300)], {"CPUs": 2})
    data = json.loads(json.dumps(as_data(report)))
    assert data["rows"][0]["ratios_to_native"] == {"native": 1, "grovefs": 20}
    assert data["rows"][0]["demands"] == [{"versus": "native", "at_most": 1.3, "ratio": 20, "met": False}]
    assert data["facts"][0]["met"] is False
    assert data["met"] is False
    assert main_table(report.rows).row_count == 1


def test_requests_are_medians_by_name() -> None:
    """A request seen in one round only has the median 0 and is left out."""
    counted = [Counter(open=3, read=1), Counter(open=5), Counter(open=4)]
    assert median_requests(counted) == {"open": 4}


def test_workloads_are_selected_by_prefix() -> None:
    """The number of runs, for the progress bar, follows from the selection."""
    settings = Settings(only=("rsync", "edit"), rounds=5, contenders=("native", "grovefs"))
    assert [read.name for read in settings.reads] == ["rsync -a", "rsync idle"]
    assert [write.name for write in settings.writes] == ["edit in place"]
    assert settings.runs == 2 * 6 * 2 + 2 * 5 * 2 + 1 * 6 * 3
    assert smaller(settings, None).runs == 2 * 3 * 2 + 0 + 1 * 3 * 3


# -- wake-ups --------------------------------------------------------------------------------------------


def test_wakeups_of_ended_threads_are_not_subtracted() -> None:
    """A thread that ended with 905 switches made the difference of two sums negative."""
    counted = Wakeups({1: 5, 2: 900})
    counted.note({1: 7, 2: 905})
    counted.note({1: 8})
    counted.note({1: 8, 3: 2})
    assert counted.total == 2 + 5 + 1 + 2


def test_wakeups_of_a_real_thread_are_counted_after_it_ended() -> None:
    begin, end = threading.Event(), threading.Event()
    waits = [threading.Event() for _ in range(50)]

    def work() -> None:
        begin.wait()
        for wait in waits:
            wait.wait(0.001)
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    counted = Wakeups(switches(os.getpid()))
    begin.set()
    while switches(os.getpid()).get(thread.native_id or 0, 0) < len(waits):
        assert thread.is_alive()
    counted.note(switches(os.getpid()))
    end.set()
    thread.join()
    counted.note(switches(os.getpid()))
    assert counted.total >= len(waits) // 2
