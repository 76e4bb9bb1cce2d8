"""`grovefs health`: output and exit codes for monitoring. (`grovefs check` is in test_cli.py.)"""

from __future__ import annotations

import json
from pathlib import Path

from store import Store
from tests.builders import files_below, make_session
from tests.fusefs.cli.test_cli import grovefs


def test_working_home_passes_all_probes(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session())
    before = files_below(home)
    result = grovefs(home, "health")
    assert result.returncode == 0, result.stdout + result.stderr
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["ok", name] for name in ("writable", "index", "commits", "space")
    ]
    assert files_below(home) == before
    found = json.loads(grovefs(home, "health", "--json", "--fast").stdout)
    assert found["ok"] is True
    assert [probe["ok"] for probe in found["probes"]] == [True] * 4


def test_low_disk_space_fails(home: Path) -> None:
    """The other probes are still printed."""
    with Store.open(home, background=False):
        pass
    result = grovefs(home, "health", "--min-free", str(1 << 40))
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1].startswith("NOT OK space")
    assert result.stdout.count("ok ") == 3


def test_home_that_cannot_be_opened_fails(home: Path, tmp_path: Path) -> None:
    """A missing home, or one whose index is a directory, prints one line or JSON, not a traceback."""
    missing = grovefs(tmp_path / "nowhere", "health")
    assert (missing.returncode, missing.stderr) == (1, "")
    assert "there is no home" in missing.stdout
    with Store.open(home, background=False):
        pass
    for path in (home / ".grovefs").glob("index.db*"):
        path.unlink()
    (home / ".grovefs/index.db").mkdir()
    broken = grovefs(home, "health", "--json")
    assert broken.returncode == 1
    assert json.loads(broken.stdout)["probes"][0]["name"] == "open"
