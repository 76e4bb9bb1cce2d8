"""`grovefs open`: the page of a session, in a mount or exported, in the browser of the user."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from store import Session, Store
from tests.builders import make_session
from tests.fusefs.cli.commands.test_modify import run


@pytest.fixture
def filled(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        root = make_session("one", title="The first")
        store.save(root)
        store.save(Session.new_child_of("sub", root, "m", "A child"))
        store.save(make_session("two#2", title="Number #2"))
    return home


def opened(home: Path, tmp_path: Path, *arguments: str) -> tuple[Path, str]:
    """The file and the anchor that the command prints; it exports to `tmp_path`."""
    result = run(home, "open", "--print", *arguments, TMPDIR=str(tmp_path))
    assert (result.returncode, result.stderr) == (0, "")
    parts = urlsplit(result.stdout.strip())
    assert parts.scheme == "file"
    return Path(unquote(parts.path)), parts.fragment


def test_without_a_mount_the_session_is_exported(filled: Path, tmp_path: Path) -> None:
    """With its children and its history, and nothing else; only the user can read it."""
    page, anchor = opened(filled, tmp_path, "one#1")
    assert (page.name, anchor) == ("one.html", "m1")
    assert b"<title>The first</title>" in page.read_bytes()
    conversations = {"index.html", "one.html", "sub.html"}
    history = {"one.log.html", "one.diff-1.html", "sub.log.html", "sub.diff-1.html"}
    assert {path.name for path in page.parent.rglob("*.html")} == conversations | history
    assert page.parent.stat().st_mode & 0o077 == 0
    assert "two" not in (page.parent / "index.html").read_text()


def test_list_of_all_sessions(filled: Path, tmp_path: Path) -> None:
    page, anchor = opened(filled, tmp_path)
    assert (page.name, anchor) == ("index.html", "")
    assert {path.name for path in page.parent.glob("*.html")} == {"index.html", "stats.html", "one.html", "two#2.html"}


def test_child_and_names_with_a_number_sign(filled: Path, tmp_path: Path) -> None:
    """A session whose own name ends like a message number wins."""
    assert opened(filled, tmp_path, "sub")[0].parts[-2:] == ("one", "sub.html")
    page, anchor = opened(filled, tmp_path, "Number #2")
    assert (page.name, anchor) == ("two#2.html", "")
    assert opened(filled, tmp_path, "two#2#m1")[1] == "m1"


def test_json_has_the_address(filled: Path, tmp_path: Path) -> None:
    found = json.loads(run(filled, "open", "one", "--json", TMPDIR=str(tmp_path)).stdout)
    assert (found["address"].endswith("/one.html"), found["is_mounted"]) == (True, False)


def test_browser_of_the_user_is_started(filled: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    result = run(filled, "open", "one", BROWSER=f"{browser} %s", TMPDIR=str(tmp_path))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "opened").read_text().strip().endswith("/one.html")


def test_missing_browser_and_session_are_errors(filled: Path, tmp_path: Path) -> None:
    result = run(filled, "open", "one", BROWSER="/bin/false", PATH="/nowhere", TMPDIR=str(tmp_path))
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "no browser could be started; open file://" in result.stderr
    assert run(filled, "open", "nobody").returncode == 1
