"""grovefs history thin, purge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Message, Store
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs

SECRET = "hunter2-hunter2"


@pytest.fixture
def filled(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
        store.append("s1", [Message.user(SECRET)])
        session = store.load("s1")
        assert session is not None
        session.messages[-1].content = "redacted"
        store.save(session)
    return home


def versions(home: Path) -> list[int]:
    with Store.open(home, background=False) as store:
        return [version.number for version in store.history.log("s1")]


def test_thin_reports_what_it_removed(filled: Path) -> None:
    assert grovefs(filled, "history", "thin").stdout == "0 versions removed\n"
    assert json.loads(grovefs(filled, "history", "thin", "--json").stdout) == {"removed": 0}


def test_purge_of_a_pattern(filled: Path) -> None:
    """Only the version that holds it goes."""
    result = grovefs(filled, "history", "purge", "--matching", "hunter2-.*", "--yes")
    assert result.stdout == "removed: 1 version, 0 drafts, 0 rejected texts, 0 deletions in the trash\n"
    assert (result.returncode, versions(filled)) == (0, [3, 1])


def test_purge_of_a_session(filled: Path) -> None:
    result = grovefs(filled, "history", "purge", "s1", "--yes", "--json")
    assert json.loads(result.stdout)["versions"] == 2
    assert versions(filled) == [3]


def test_purge_does_not_touch_the_present_file(filled: Path) -> None:
    """It says what to do, and exits with 1."""
    result = grovefs(filled, "history", "purge", "--matching", "redacted", "--yes")
    assert result.returncode == 1
    assert "sessions/s1: the present file matches" in result.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [([], "name sessions"), (["--matching", "("], "--matching"), (["s1"], "--yes"), (["nobody", "--yes"], "nobody")],
)
def test_purge_needs_a_target_and_consent(filled: Path, options: list[str], reason: str) -> None:
    """Nothing is removed by accident."""
    result = grovefs(filled, "history", "purge", *options)
    assert result.returncode != 0
    assert reason in result.stderr
    assert versions(filled) == [3, 2, 1]
