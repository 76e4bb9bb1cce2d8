"""Backup units: each file of a home belongs to exactly one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from store.disk.disk import Disk
from store.transfer.backup.units import iter_units, location_of, lock_of, scan_unit, unit_of

FILES = {
    "sessions.json": "",
    "sessions/loose.txt": "sessions",
    "sessions/a..b/x": "sessions",  # not a valid id: foreign
    "sessions/r/session.json": "sessions/r",
    "sessions/r/attachments/p.png": "sessions/r",
    "sessions/r/mailbox/new/1.json": "sessions/r",
    "sessions/r/notes/deep/x": "sessions/r",
    "sessions/r/children/loose": "sessions/r",
    "sessions/r/children/a..b/x": "sessions/r",
    "sessions/r/children/c/session.json": "sessions/r/children/c",
    "sessions/r/children/c/children/x/y": "sessions/r/children/c",
    "projects/loose": "projects",
    "projects/k/index.json": "projects/k",
    "projects/k/sessions/p/children/c/session.json": "projects/k",
    "state/loose.md": "state",
    "state/agents/a.json": "state/agents",
    "state/agents/deep/a.json": "state/agents/deep",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for path in FILES:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    return tmp_path


@pytest.mark.parametrize(("path", "unit"), FILES.items())
def test_unit_of_a_path(path: str, unit: str) -> None:
    assert unit_of(path) == unit


def test_every_file_is_in_exactly_one_unit(home: Path) -> None:
    disk = Disk(home)
    closed: dict[str, str] = {}
    found = {path: unit for unit in iter_units(disk, closed) for path in scan_unit(disk, unit)[0]}
    disk.close()
    assert found == FILES
    assert not closed


def test_lock_of_each_unit() -> None:
    assert str(location_of("sessions/r/children/c")) == "r/c"
    assert lock_of("sessions/r") == location_of("sessions/r")
    assert (lock_of("projects/k"), lock_of("state/agents"), location_of("projects/k")) == (
        ("/projects/k", None),
        None,
        None,
    )


def test_pipes_are_listed_and_links_are_not_followed(home: Path, tmp_path: Path) -> None:
    os.mkfifo(home / "sessions/r/pipe")
    (home / "sessions/r/away").symlink_to("/etc")
    (home / "sessions/linked").symlink_to(home / "sessions/r")
    disk = Disk(home)
    files, others = scan_unit(disk, "sessions/r")
    units = list(iter_units(disk, {}))
    disk.close()
    assert others == ["sessions/r/pipe"]
    assert files["sessions/r/away"].is_link
    assert "sessions/linked" not in units
