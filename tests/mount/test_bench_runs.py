"""`bench mount` on real mounts: it counts requests, compares contenders, and cleans up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.contenders import Contender, GroveFS, Native, Passthrough, Place
from benchmarks.mount import Bench, Settings
from benchmarks.reads import tree_proof
from benchmarks.tree import Shape, write_tree
from rich.progress import Progress

from tests.mount.conftest import daemons_of, wait_until

ROOT = Path(__file__).parent.parent.parent
SMALL = Shape(roots=6, median_bytes=4_000, rare_every=3)

CHANGES = """
set -e
mkdir -p one/two; echo text > one/two/file; echo more >> one/two/file; cp one/two/file copy
mv one/two one/three; mv copy one/three/file; sed -i s/text/other/ one/three/file
ln -s three/file one/link; chmod 640 one/three/file; touch -d @1700000000.123456789 one/three/file
truncate -s 3 one/three/file; touch -d @1700000000.123456789 one/three/file
exec 3<>one/gone; echo kept >&3; rm one/gone; mkdir empty; rmdir empty; mv -n one/three/file one/link
"""


@contextmanager
def mounted(contender: Contender) -> Iterator[Contender]:
    contender.mount()
    try:
        yield contender
    finally:
        contender.unmount()
        assert not os.path.ismount(contender.mountpoint)


def test_the_pass_through_behaves_like_the_disk(place: Path) -> None:
    """Tools make the same changes through it as directly on the disk."""
    there = Place(place / "bench")
    there.make()
    with mounted(Passthrough(there)) as passthrough:
        native = place / "native"
        native.mkdir()
        for directory in (native, passthrough.writable):
            subprocess.run(["bash", "-c", CHANGES], cwd=directory, check=True)
        wanted = tree_proof(native)
        assert wanted.files
        assert tree_proof(passthrough.writable) == tree_proof(passthrough.writable_on_disk) == wanted
        mode = (passthrough.writable / "one/three/file").stat().st_mode
        assert mode == (native / "one/three/file").stat().st_mode
        assert not (passthrough.writable / "nothing").exists()


def test_reading_the_counters_is_not_counted(place: Path) -> None:
    """Without activity the count is zero; opening a file counts one, also where the extension answers it."""
    there = Place(place / "bench")
    there.make()
    write_tree(there.home / "sessions", SMALL)
    with mounted(GroveFS(there)) as grovefs:
        list(grovefs.sessions.iterdir())
        before = grovefs.counted()
        requests = grovefs.requests_since(before)
        assert requests is not None
        assert not requests
        document = next(grovefs.sessions.glob("*/session.json"))
        for _ in range(3):
            before = grovefs.counted()
            assert document.read_bytes()
            requests = grovefs.requests_since(before)
            assert requests is not None
            assert requests["open"] == requests["release"] == 1


def small_bench(place: Path, **settings: object) -> Bench:
    base = place / "bench"
    base.mkdir()
    wanted = {"shape": SMALL, "rounds": 1, "idle_s": 0.1, "contenders": ("native", "grovefs"), **settings}
    return Bench(base, Settings(quick=True, **wanted), Progress(disable=True))  # type: ignore[arg-type]


def test_a_small_run_from_end_to_end(place: Path) -> None:
    """All contenders are in every row, and no mount is left."""
    bench = small_bench(place, only=("find", "edit"), contenders=("native", "grovefs", "passthrough"))
    report = bench.run()
    rows = {(row.workload, row.cache): row for row in report.rows}
    assert list(rows) == [("find", "warm"), ("find", "cold"), ("edit in place", "write")]
    assert set(rows["find", "warm"].times_ms) == {"native", "grovefs", "passthrough"}
    assert set(rows["edit in place", "write"].times_ms) == {"native", "grovefs", "passthrough", "store"}
    assert any("wake-ups" in fact.what for fact in report.facts)
    for contender in bench.contenders:
        assert not os.path.ismount(contender.mountpoint)
        assert not daemons_of(contender.mountpoint)


def test_a_contender_with_a_different_tree_is_not_compared(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no ratio for different work; the mounts are removed anyway."""
    monkeypatch.setattr(Native, "sessions", ROOT / "store")
    bench = small_bench(place, only=("find",), caches=("warm",))
    report = bench.run()
    assert not report.rows
    assert not report.is_met
    assert "grovefs saw" in report.failures[0]
    assert not any(os.path.ismount(contender.mountpoint) for contender in bench.contenders)


def test_ctrl_c_leaves_no_mount_and_no_file(place: Path) -> None:
    """Pressed twice, while something is mounted."""
    command = [sys.executable, "scripts/bench.py", "mount", "--quick", "--only", "find,grep", "--dir", str(place)]
    command += ["--contenders", "native,grovefs,passthrough"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        wait_until(lambda: str(place) in Path("/proc/self/mounts").read_text(), timeout_s=60)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode != 0
    assert str(place) not in Path("/proc/self/mounts").read_text()
    assert not list(place.iterdir())
