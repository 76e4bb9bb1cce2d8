"""`grovefs log`, `diff`, `show ID@V` and `revert`: what people see of versions."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from store import Message, Store
from store.history.authors import Author, acting_as
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs, on_a_terminal
from tests.store.undo.test_version_lookup import retitle


@pytest.fixture
def edited(home: Path) -> Path:
    """A session with four versions, by an agent, a person with sed, and another user."""
    with Store.open(home, background=False, author="agent") as store:
        store.save(make_session("fix-login", title="teh plan"))
        with acting_as(Author("mount", "sed", 4711, os.getuid())):
            retitle(store, "fix-login", "the plan")
        store.append("fix-login", [Message.assistant("Done."), Message.user("ok")])
        with acting_as(Author("mount", "vim", 12, os.getuid() + 1)):
            store.put_document(
                "fix-login",
                "session.json",
                (home / "sessions/fix-login/session.json").read_bytes().replace(b"msg-0", b"the first"),
            )
        store.state.save_markdown("plans", "today", "one\n")
        store.state.save_markdown("plans", "today", "two\n")
    return home


def test_log_lists_versions_with_author_and_change(edited: Path) -> None:
    result = grovefs(edited, "log", "fix")
    assert (result.returncode, result.stderr) == (0, "")
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [(row[0], row[3]) for row in rows] == [
        ("4", "~1 message"),
        ("3", "+2 messages"),
        ("2", "title: [-teh-]{+the+} plan"),
        ("1", "created, 2 messages"),
    ]
    assert rows[0][2] == f"mount: vim (12) of user {os.getuid() + 1}"
    assert rows[2][2] == "mount: sed (4711)"
    assert rows[3][2].startswith("api: agent (")
    assert grovefs(edited, "log", "fix", "-n", "1").stdout.count("\n") == 1
    assert grovefs(edited, "log", "fix@2").stdout.startswith("2\t")


def test_log_says_how_many_versions_are_older(edited: Path, capfd: pytest.CaptureFixture[str]) -> None:
    on_a_terminal(edited, "log", "fix-login", "-n", "1")
    assert capfd.readouterr().err == "3 older versions; pass --limit N for more.\n"
    on_a_terminal(edited, "log", "fix-login@2", "-n", "1")
    assert capfd.readouterr().err == "1 older version; pass --limit N for more.\n"
    on_a_terminal(edited, "log", "fix-login")
    assert capfd.readouterr().err == ""


def test_changes_by_commands_name_the_command(edited: Path) -> None:
    """`cli:`, the command and its process; of the user who ran it."""
    for command in (["mv", "fix-login", "login"], ["pin", "login"], ["unpin", "login"]):
        done = grovefs(edited, *command)
        assert done.returncode == 0, done.stderr
    authors = [line.split("\t")[2] for line in grovefs(edited, "log", "login", "-n", "3").stdout.splitlines()]
    commands = ["cli: unpin (PID)", "cli: pin (PID)", "cli: mv (PID)"]
    assert [re.sub(r"\([1-9]\d*\)", "(PID)", author) for author in authors] == commands
    [newest] = json.loads(grovefs(edited, "log", "login", "-n", "1", "--json").stdout)
    assert (newest["author"]["via"], newest["author"]["uid"]) == ("cli", os.getuid())


def test_log_json_is_one_array(edited: Path) -> None:
    found = json.loads(grovefs(edited, "log", "fix-login", "--json").stdout)
    assert [version["version"] for version in found] == [4, 3, 2, 1]
    assert found[2]["author"] == {"via": "mount", "program": "sed", "pid": 4711, "uid": os.getuid()}
    assert found[2]["at"].endswith("Z")
    assert found[2]["change"] == "title: [-teh-]{+the+} plan"


def test_log_of_a_state_document(edited: Path) -> None:
    result = grovefs(edited, "log", "state/plans/today.md")
    assert [line.split("\t")[3] for line in result.stdout.splitlines()] == ["+1 line, -1 line", "created"]


def test_unknown_names_are_explained(edited: Path) -> None:
    result = grovefs(edited, "log", "nobody")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "grovefs: there is no session 'nobody'; `grovefs ls` lists them\n"
    result = grovefs(edited, "show", "fix@9")
    assert result.returncode == 1
    assert "fix-login has no version 9: 1 (" in result.stderr
    assert "are kept" in result.stderr


def test_diff_shows_words(edited: Path) -> None:
    """Alone the last change, with one version everything since, with two what lies between."""
    last = grovefs(edited, "diff", "fix").stdout.splitlines()
    assert last[0].startswith("fix-login: version 3 to version 4 (")
    assert last[1:] == ["~ [0] user: [-msg-0-]{+the first+}"]
    since = grovefs(edited, "diff", "fix@1").stdout.splitlines()
    assert since[1:] == [
        "title: [-teh-]{+the+} plan",
        "~ [0] user: [-msg-0-]{+the first+}",
        "+ [2] assistant: Done.",
        "+ [3] user: ok",
    ]
    between = grovefs(edited, "diff", "fix@1", "@2").stdout.splitlines()
    assert between[1:] == ["title: [-teh-]{+the+} plan"]
    back = grovefs(edited, "diff", "fix@-1", "@-2").stdout.splitlines()
    assert back[1:] == ["- [2] assistant: Done.", "- [3] user: ok"]


def test_diff_raw_is_a_unified_diff(edited: Path) -> None:
    """Also of the sidecar; only here `updated_at` is shown."""
    lines = grovefs(edited, "diff", "fix@1", "@2", "--raw").stdout.splitlines()
    assert lines[:2] == ["--- fix-login@1 session.json", "+++ fix-login@2 session.json"]
    assert '-  "title": "teh plan",' in lines
    assert "+++ fix-login@2 runtime.json" in lines
    assert any("updated_at" in line for line in lines)


def test_diff_json(edited: Path) -> None:
    found = json.loads(grovefs(edited, "diff", "fix@1", "@2", "--json").stdout)
    assert (found["id"], found["old"]["version"], found["new"]["version"]) == ("fix-login", 1, 2)
    assert {"path": "title", "old": "teh plan", "new": "the plan"} in found["members"]
    assert found["messages"] == []


def test_diff_of_equal_versions_exits_with_1(edited: Path) -> None:
    result = grovefs(edited, "diff", "fix@2", "@2")
    assert result.returncode == 1


def test_colours_replace_marks_on_a_terminal(edited: Path) -> None:
    """Only there, and not with NO_COLOR."""
    shown = on_a_terminal(edited, "diff", "fix@1")
    assert "\x1b[31mteh\x1b[0m\x1b[32mthe\x1b[0m plan" in shown
    assert "[-" not in shown
    assert "\x1b[32m+ [2] assistant: Done.\x1b[0m" in shown
    assert "\x1b" not in grovefs(edited, "diff", "fix@1").stdout


def test_no_color_keeps_the_marks(edited: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown = on_a_terminal(edited, "diff", "fix@1")
    assert "[-teh-]{+the+} plan" in shown
    assert "\x1b" not in shown


def test_show_prints_a_past_conversation(edited: Path) -> None:
    """As Markdown or JSON; one message of it; a state document as it is."""
    shown = grovefs(edited, "show", "fix@1").stdout
    assert shown.startswith("# teh plan\n")
    assert "Done." not in shown
    assert grovefs(edited, "show", "fix@1", "-m", "0").stdout.startswith("## [0] user")
    found = json.loads(grovefs(edited, "show", "fix@1", "--json").stdout)
    assert (found["title"], len(found["messages"])) == ("teh plan", 2)
    assert grovefs(edited, "show", "state/plans/today.md@1").stdout == "one\n"
    result = grovefs(edited, "show", "fix@1", "--steps")
    assert (result.returncode, "has no versions" in result.stderr) == (2, True)


def test_revert_brings_a_version_back(edited: Path) -> None:
    """As a new one, which can be taken back."""
    result = grovefs(edited, "revert", "fix@1")
    assert result.returncode == 0
    assert result.stdout.startswith("fix-login is as in version 1 (")
    assert result.stdout.endswith("this is version 5\n")
    assert grovefs(edited, "revert", "fix@1").stdout == (
        "fix-login has the content of version 1 already; nothing was changed\n"
    )
    assert grovefs(edited, "log", "fix", "-n", "1").stdout.split("\t")[3].startswith("as in 1: ")
    found = json.loads(grovefs(edited, "revert", "fix@-1", "--json").stdout)
    assert found == {"id": "fix-login", "reverted_to": 4, "changed": True, "version": 6}
    [line] = grovefs(edited, "diff", "fix@4", "@6").stdout.splitlines()[1:]
    assert line.startswith("updated_at: ")


def test_revert_with_dry_run_changes_nothing(edited: Path) -> None:
    before = grovefs(edited, "log", "fix").stdout
    result = grovefs(edited, "revert", "fix@1", "--dry-run")
    assert result.returncode == 0
    assert result.stdout.startswith("fix-login would be as in version 1 (")
    assert result.stdout.endswith("; `grovefs diff fix-login@1` shows what has changed since\n")
    found = json.loads(grovefs(edited, "revert", "fix@1", "-n", "--json").stdout)
    assert found == {"id": "fix-login", "reverted_to": 1, "changed": True, "version": 4}
    assert grovefs(edited, "log", "fix").stdout == before


def test_revert_with_dry_run_says_if_nothing_would_change(edited: Path) -> None:
    assert grovefs(edited, "revert", "fix@4", "--dry-run").stdout == (
        "fix-login has the content of version 4 already; nothing was changed\n"
    )


def test_revert_needs_a_version(edited: Path) -> None:
    result = grovefs(edited, "revert", "fix")
    assert result.returncode == 2
    assert "which version? `grovefs log fix` lists them" in result.stderr


def test_a_session_without_versions_is_explained(home: Path) -> None:
    """Versions begin with the next change after an upgrade."""
    with Store.open(home, background=False, history=False) as store:
        store.save(make_session("old"))
    result = grovefs(home, "log", "old")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "grovefs: old: no version has been recorded; that begins with its next change\n"
    assert grovefs(home, "log", "old", "--json").stdout == "[]\n"
    assert "no version has been recorded" in grovefs(home, "diff", "old").stderr
