"""`grovefs snapshot` and `grovefs history`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Store
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs


@pytest.fixture
def filled(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
    return home


def test_snapshots_are_made_listed_and_deleted(filled: Path) -> None:
    made = grovefs(filled, "snapshot", "monday").stdout
    assert made.startswith("monday: 20")
    assert made.endswith("; snapshots/monday in a mount\n")
    assert grovefs(filled, "snapshot").stdout.startswith("monday\t20")
    assert [found["name"] for found in json.loads(grovefs(filled, "snapshot", "--json").stdout)] == ["monday"]
    result = grovefs(filled, "snapshot", "monday")
    assert (result.returncode, "there is a snapshot 'monday' already" in result.stderr) == (1, True)
    assert grovefs(filled, "snapshot", "monday", "--delete").stdout == "deleted the snapshot monday\n"
    assert grovefs(filled, "snapshot", "--json").stdout == "[]\n"
    assert grovefs(filled, "snapshot", "monday", "--delete").returncode == 1


def test_wrong_names_are_rejected(filled: Path) -> None:
    result = grovefs(filled, "snapshot", "a/b")
    assert (result.returncode, "cannot be the name of a snapshot" in result.stderr) == (1, True)
    assert grovefs(filled, "snapshot", "--delete").returncode == 2


def test_the_size_of_the_history(filled: Path) -> None:
    shown = grovefs(filled, "history", "size").stdout
    assert shown.startswith("1 version in 0.")
    assert json.loads(grovefs(filled, "history", "size", "--json").stdout)["versions"] == 1
