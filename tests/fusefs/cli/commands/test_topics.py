"""grovefs help: lists the topics, prints pages, and formats them on a terminal only."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fusefs.cli.commands import topics

REQUIRED = {
    *("layout", "promises", "search", "recipes", "limits", "backup", "python", "mount", "numbers", "bamboo"),
    "history",
}
COMMAND = [sys.executable, "-m", "fusefs.cli", "help"]


def help_page(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)


def on_a_terminal(topic: str, **environment: str) -> str:
    """What the command prints on a terminal."""
    leader, follower = pty.openpty()
    env = {**os.environ, "COLUMNS": "80", **environment}
    with subprocess.Popen([*COMMAND, topic], stdin=follower, stdout=follower, stderr=follower, env=env):
        os.close(follower)
        shown = b""
        with suppress(OSError):  # EIO: the command has ended
            while data := os.read(leader, 65536):
                shown += data
    os.close(leader)
    return shown.decode().replace("\r\n", "\n")


def test_topics_are_listed_with_their_titles() -> None:
    """One line per topic, tab-separated when piped."""
    result = help_page()
    assert result.returncode == 0
    rows = dict(line.split("\t") for line in result.stdout.splitlines())
    assert set(rows) >= REQUIRED
    assert list(rows) == topics.topic_names()
    assert rows["limits"] == "Limits: what GroveFS does not do"


@pytest.mark.parametrize("topic", topics.topic_names())
def test_a_piped_page_is_plain_markdown(topic: str) -> None:
    result = help_page(topic)
    assert result.stdout == (topics.PAGES / f"{topic}.md").read_text()
    assert result.stdout.startswith("# ")


def test_a_page_on_a_terminal_is_formatted_and_paged(tmp_path: Path) -> None:
    """$PAGER gets the rendered page; a dumb terminal gets it without a pager."""
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho paged\ncat\n")
    pager.chmod(0o755)
    paged = on_a_terminal("limits", PAGER=str(pager), TERM="xterm")
    assert paged.startswith("paged\n")
    assert "# Limits" not in paged
    assert "\x1b[" in paged
    assert "What GroveFS does not do".lower() in on_a_terminal("limits", PAGER=str(pager), TERM="dumb").lower()
    assert "paged" not in on_a_terminal("limits", PAGER=str(pager), TERM="dumb")


def test_a_missing_pager_prints_the_page() -> None:
    assert "does not do" in on_a_terminal("limits", PAGER="/nonexistent/pager", TERM="xterm")


def test_an_unknown_topic_names_the_topics_or_the_command() -> None:
    unknown = help_page("nonsense")
    assert unknown.returncode == 2
    assert "expected one of backup, bamboo" in unknown.stderr
    command = help_page("tail")
    assert command.returncode == 2
    assert "`grovefs tail --help` describes the command" in command.stderr


def test_json_output() -> None:
    listed = json.loads(help_page("--json").stdout)
    assert set(listed) >= REQUIRED
    assert json.loads(help_page("limits", "--json").stdout) == {
        "topic": "limits",
        "markdown": help_page("limits").stdout,
    }
