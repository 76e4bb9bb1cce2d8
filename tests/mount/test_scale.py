"""Twenty thousand sessions: mounting is fast, everything can be listed, and memory stays small."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from benchmarks.tree import RARE, Shape, write_tree

from store import Store
from tests.mount.conftest import Mount, daemons_of, grovefs, wait_until

MountHome = Callable[..., Mount]

MANY, FEW = 20_000, 200
FILES = 2 * MANY  # session.json and its sidecar
LIMIT_KB = 300 << 10
ROUNDS = 4


def make_home(home: Path, roots: int) -> Path:
    """A home written as plain files and indexed once, for grep too, so no background work remains."""
    (home / "sessions").mkdir(parents=True)
    write_tree(home / "sessions", Shape(roots=roots, with_child=0.0, median_bytes=1_000, rare_every=roots // 10))
    with Store.open(home, background=False, durability="normal") as store:
        assert store.count() == roots
        store.trigrams.rebuild()
    return home


@pytest.fixture(scope="module")
def homes() -> Iterator[tuple[Path, Path]]:
    """Two homes that no test changes: one with many sessions, one with few."""
    base = Path(tempfile.mkdtemp(prefix="grovefs-scale-", dir="/var/tmp"))
    yield make_home(base / "many", MANY), make_home(base / "few", FEW)
    rmtree(base)


def ready_s(home: Path, mountpoint: Path) -> float:
    """Seconds until a home is mounted and its sessions can be listed."""
    began = time.perf_counter()
    assert grovefs("mount", "--home", home, mountpoint).returncode == 0
    assert (mountpoint / "sessions").is_dir()
    took = time.perf_counter() - began
    assert grovefs("umount", mountpoint).returncode == 0
    wait_until(lambda: not daemons_of(mountpoint), 60)
    return took


@pytest.mark.timeout(900)
def test_mount_time_does_not_grow_with_sessions(homes: tuple[Path, Path], place: Path) -> None:
    """At most three times the time of a small home, measured alternately: nothing is scanned at start."""
    (place / "mnt").mkdir()
    times = [(ready_s(homes[0], place / "mnt"), ready_s(homes[1], place / "mnt")) for _ in range(ROUNDS)]
    many, few = (min(column) for column in zip(*times, strict=True))
    assert many <= 3 * few, times


def memory_kb(mount: Mount) -> tuple[int, int]:
    """The current and the peak memory of the daemon."""
    (pid,) = daemons_of(mount.path)
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]), int(lines["VmHWM"].split()[0])


def lines_of(command: str, directory: Path) -> int:
    """The number of lines a command prints."""
    done = subprocess.run(["sh", "-c", f"{command} | wc -l"], cwd=directory, capture_output=True, text=True, check=True)
    assert not done.stderr
    return int(done.stdout)


@pytest.mark.timeout(900)
def test_listing_everything_uses_little_memory(homes: tuple[Path, Path], mount_home: MountHome) -> None:
    """find, ls -lR and grep -r over everything, twice: correct counts, and no more memory the second time."""
    mount = mount_home(homes[0])
    assert lines_of("ls", mount.sessions) == MANY
    measured = []
    for _ in range(2):
        assert lines_of("find .", mount.sessions) == 1 + MANY + FILES
        assert lines_of("ls -lR | grep '^-'", mount.sessions) == FILES
        assert lines_of(f"grep -r {RARE} .", mount.sessions) == 10
        measured.append(memory_kb(mount))
    assert max(high for _, high in measured) < LIMIT_KB, measured
    assert measured[-1][0] < measured[0][0] * 1.05 + 4096, measured


@pytest.mark.timeout(900)
def test_listing_all_views_uses_little_memory(homes: tuple[Path, Path], mount_home: MountHome) -> None:
    """Repeated listings of transcripts/ and views/by-title show every session, with sizes and targets."""
    mount = mount_home(homes[0])
    peaks: list[int] = []
    # By the peak: the kernel may forget names at any time, and current memory then falls and rises again. The first
    # rounds fill caches, the more of them the busier the machine is; a leak raises the peak in every round.
    while len(peaks) < 4 or peaks[-1] >= peaks[-4] * 1.02 + 1024:
        assert lines_of("ls -l | grep '^-'", mount.path / "transcripts") == MANY
        assert lines_of("ls -l | grep '^l'", mount.path / "views/by-title") == MANY
        peaks.append(memory_kb(mount)[1])
        assert peaks[-1] < LIMIT_KB, peaks
        assert len(peaks) < 20, peaks
