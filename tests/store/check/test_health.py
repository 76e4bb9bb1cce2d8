"""Health probes of a home."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from store import Store
from store.check.health import Health, Probe
from tests.builders import files_below, make_session


def failed(health: Health) -> dict[str, str]:
    return {probe.name: probe.detail for probe in health.probes if not probe.ok}


def test_working_home_is_healthy(store: Store, home: Path) -> None:
    """Every probe reports a detail, and the trial write leaves no file."""
    store.save(make_session("s1"))
    before = files_below(home)
    health = store.health()
    assert health.ok, health
    assert [p.name for p in health.probes] == ["writable", "index", "commits", "space"]
    assert health.probes[1].detail == "1 sessions"
    assert files_below(home) == before
    assert list((home / ".grovefs/tmp").iterdir()) == []
    assert health.as_dict()["probes"][0]["ok"] is True


def test_one_failed_probe_makes_the_home_unhealthy() -> None:
    """Whatever the other probes say."""
    assert Health("x", (Probe("a", True, ""), Probe("b", False, "no"))).ok is False
    assert Health("x", ()).ok is True


@pytest.mark.parametrize("step", ["write-temp", "sync-temp", "move"])
def test_failing_write_is_reported(home: Path, step: str) -> None:
    """At each step of the trial write, with the reason; the other probes still run."""
    is_broken = False

    def fail(name: str) -> None:
        if is_broken and name == step:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Store.open(home, background=False, step=fail) as store:
        is_broken = True
        health = store.health()
        is_broken = False
        assert failed(health).keys() == {"writable"}
        assert "No space left" in failed(health)["writable"]
        assert list((home / ".grovefs/tmp").iterdir()) == []


def test_wrong_bytes_read_back_are_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that returns other data than was written."""
    monkeypatch.setattr(os, "read", lambda fd, size: b"\0" * (size - 1))
    health = store.health()
    monkeypatch.undo()
    assert "data read back differs" in failed(health)["writable"]


def test_running_bamboo_server_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While writes are rejected, the home is not healthy."""
    monkeypatch.setattr(store._home.bamboo, "activity", lambda: "it holds a lock")
    health = store.health()
    monkeypatch.undo()
    assert "writable" in failed(health)


@pytest.mark.warns
def test_damaged_index_is_reported(home: Path) -> None:
    """`deep`, the default, reads the whole index."""
    with Store.open(home, background=False) as store:
        for number in range(30):
            store.save(make_session(f"s{number}", messages=20))
    path = home / ".grovefs/index.db"
    with Store.open(home, background=False) as store:
        store._core.db.checkpoint()
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(size // 2 // 4096 * 4096)
            file.write(b"\xff" * 4096)
        assert "index" in failed(store.health())
    path.unlink()


def test_deep_false_skips_the_integrity_check(store: Store) -> None:
    """The detail says so."""
    assert "integrity not checked" in store.health(deep=False).probes[1].detail


def test_too_little_free_space_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes or in inodes."""
    assert failed(store.health(min_free_bytes=1 << 62)).keys() == {"space"}
    assert failed(store.health(min_free_inodes=1 << 62)).keys() == {"space"}
    # btrfs does not count inodes.
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_bavail=1 << 40, f_frsize=1, f_files=0, f_favail=0)
    )
    assert store.health(min_free_inodes=1 << 62).ok
