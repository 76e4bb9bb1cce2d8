"""The command line: output for people and programs, and exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fusefs.cli import errors, load
from store import Message, Store, Timestamp
from tests.builders import make_session


@pytest.fixture
def filled(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        store.save(make_session("first", title="About trees"))
        store.save(make_session("second", title="About 漢字", pinned=True, last_run_status="error"))
        store.append("first", [Message.user("where is foo-bar?")])
    return home


def grovefs(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real command in a new process."""
    code = "from fusefs.cli import main; main()"
    environment = {**os.environ, "GROVEFS_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def on_a_terminal(
    home: Path, *arguments: str, returncode: int | None = 0, typed: bytes = b"", columns: int = 200
) -> str:
    """Output on a terminal, with colours. With `typed`, the terminal is also the keyboard. `returncode` None: any."""
    leader, follower = pty.openpty()
    code = "from fusefs.cli import main; main()"
    environment = {**os.environ, "GROVEFS_HOME": str(home), "TERM": "xterm-256color", "COLUMNS": str(columns)}
    keyboard = follower if typed else None
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, stdin=keyboard, stdout=follower
    )
    os.close(follower)
    os.write(leader, typed)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the terminal was closed
        while chunk := os.read(leader, 65536):
            shown += chunk
    os.close(leader)
    assert process.wait(60) == returncode or returncode is None
    return shown.decode()


def test_ls_lists_newest_first_and_filters(filled: Path) -> None:
    lines = grovefs(filled, "ls").stdout.splitlines()
    assert [line.split("\t")[1] for line in lines] == ["first", "second"]
    assert "second" in grovefs(filled, "ls", "--pinned").stdout
    assert [e["id"] for e in json.loads(grovefs(filled, "ls", "--status", "error", "--json").stdout)] == ["second"]


def test_unknown_status_is_rejected(filled: Path) -> None:
    """A typo is a usage error, not an empty list; a known status that no session has now is valid."""
    result = grovefs(filled, "ls", "--status", "eror")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "unknown status 'eror'; known: error, completed" in result.stderr
    assert grovefs(filled, "ls", "--status", "suspended").returncode == 0


def test_unknown_option_hints_at_double_dash(filled: Path) -> None:
    result = grovefs(filled, "search", "--sessions", "-race", "x y")
    assert result.returncode == 2
    assert "put -- before it: `grovefs search --sessions -- -race 'x y'`" in result.stderr
    assert "put --" not in grovefs(filled, "ls", "-race").stderr  # takes no arguments
    assert grovefs(filled, "search", "--", "-race").returncode == 0


def test_search_prints_hints_about_likely_mistakes(filled: Path) -> None:
    result = grovefs(filled, "search", "role:bogus", "trees")
    assert (result.returncode, result.stdout) == (1, "")
    hint, outcome = result.stderr.splitlines()
    assert hint == "grovefs: unknown role 'bogus'; expected one of system, user, assistant, tool"
    assert outcome == "grovefs: nothing found"
    result = grovefs(filled, "search", "--json", '"trees')
    assert [hit["id"] for hit in json.loads(result.stdout)] == ["first"]
    assert result.stderr == "grovefs: unclosed quote before 'trees'; everything after it is read as one phrase\n"


def test_ls_shows_first_words_of_untitled_sessions(filled: Path) -> None:
    with Store.open(filled, background=False) as store:
        store.get_or_create("third", user_id="ada")
        store.append("third", [Message.user("Why is the sky blue?\nIn short.")])
    lines = grovefs(filled, "ls", "--user", "ada").stdout.splitlines()
    assert [line.split("\t")[1:] for line in lines] == [["third", "1", "", "Why is the sky blue?"]]


def test_check_lists_likely_secrets_without_printing_them(filled: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    with Store.open(filled, background=False) as store:
        store.append("first", [Message.user(f"push with {token}")])
    assert grovefs(filled, "check").returncode == 0
    result = grovefs(filled, "check", "--secrets")
    assert result.returncode == 4
    place = "sessions/first/session.json: messages[3].content: looks like a GitHub token [secret]"
    assert result.stdout.splitlines() == [place, "2 sessions: 1 likely secret found in 1 session"]
    (filled / "state/notes").mkdir(parents=True)
    (filled / "state/notes/keys.md").write_text(f"{token}\n")
    (filled / "sessions/second/runtime.json").write_text("{ broken")
    *lines, totals = grovefs(filled, "check", "--secrets").stdout.splitlines()
    assert sum(line.endswith("[secret]") for line in lines) == len(lines) - 2 == 2
    assert totals == ("2 sessions: 2 problems found, 0 repaired; 2 likely secrets found in 1 session and 1 other file")
    assert token not in result.stdout + grovefs(filled, "check", "--secrets", "--json").stdout


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("search", "--limit", "abc", "x"), "'--limit' / '-n': expected a whole number, got 'abc'"),
        (("search", "--limit", "0", "x"), "'--limit' / '-n': expected at least 1, got 0"),
        (("prune", "--days", "soon"), "'--days': expected a number, got 'soon'"),
    ],
)
def test_wrong_number_is_reported_in_plain_words(filled: Path, options: tuple[str, ...], problem: str) -> None:
    result = grovefs(filled, *options)
    advice = f"see `grovefs {options[0]} --help`"
    assert (result.returncode, result.stderr) == (2, f"grovefs: invalid value for {problem}; {advice}\n")


def test_rm_of_a_pinned_session_names_one_remedy(filled: Path) -> None:
    result = grovefs(filled, "rm", "second")
    reason = "grovefs: second was not deleted: it is pinned; use `grovefs unpin` or `grovefs rm --force second`\n"
    assert (result.returncode, result.stderr) == (1, reason)


def test_help_shows_the_default_home_without_parentheses(filled: Path) -> None:
    shown = " ".join(grovefs(filled, "ls", "--help").stdout.replace("│", " ").split())
    assert "Default: $GROVEFS_HOME, $BAMBOO_DATA_DIR or ~/.grovefs." in shown
    assert "($GROVEFS_HOME" not in shown


def test_check_suggests_remedies_for_remaining_damage(filled: Path) -> None:
    (filled / "sessions/first/session.json").write_text("{ broken")
    (filled / "sessions/second/runtime.json").write_text("{ broken")
    advice = (
        "grovefs: `grovefs revert first@-1` brings the version before back; `grovefs edit first` opens the file\n"
        "grovefs: `grovefs restore BACKUP first` restores the session from a backup\n"
    )
    result = grovefs(filled, "check")
    assert result.returncode == 4
    assert result.stderr.endswith(f"grovefs: `grovefs check --repair` repairs derived files and the index\n{advice}")
    result = grovefs(filled, "check", "--repair")
    assert (result.returncode, "--repair" in result.stderr) == (4, False)
    assert result.stderr.endswith(advice)


def test_show_prints_a_conversation(filled: Path) -> None:
    shown = grovefs(filled, "show", "first").stdout
    assert "About trees" in shown
    assert "where is foo-bar?" in shown
    assert json.loads(grovefs(filled, "show", "first", "--json").stdout)["id"] == "first"


def test_show_piped_is_the_transcript(filled: Path) -> None:
    """The same text as in transcripts/ of a mount and from the API."""
    with Store.open(filled, background=False) as store:
        text = store.transcript("second")
    assert text is not None
    assert grovefs(filled, "show", "second").stdout == text
    assert grovefs(filled, "show", "second", "--markdown").stdout == text


def test_show_numbers_messages_like_search(filled: Path) -> None:
    found = grovefs(filled, "search", "foo-bar").stdout
    assert found.startswith("first#2\t")
    shown = grovefs(filled, "show", "first", "--message", "2").stdout
    assert shown.startswith("## [2] user · ")
    assert shown.endswith("\n\nwhere is foo-bar?\n")
    assert grovefs(filled, "show", "first", "-m", "-1").stdout == shown
    assert json.loads(grovefs(filled, "show", "first", "-m", "2", "--json").stdout)["content"] == "where is foo-bar?"
    assert grovefs(filled, "show", "first", "-m", "3").stderr == "grovefs: no message 3: the session has 3 messages\n"


def test_show_on_a_terminal_renders_markdown(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is interpreted as a style of the terminal library, and times are local."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    with Store.open(filled, background=False) as store:
        message = Message.user("**bold** [red]not a style[/red]\n\n## [9] system\n\n```python\ncode = 1\n```")
        message.created_at = Timestamp("2026-06-20T20:15:30Z")
        store.append("first", [message])
    shown = on_a_terminal(filled, "show", "first")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "\x1b[1mbold" in shown
    assert "**" not in plain
    assert "[red]not a style[/red]" in plain
    assert "code = 1" in plain
    assert "## [3] user · 2026-06-21 05:15:30 JST".removeprefix("## ") in plain
    assert shown.count("\x1b[1;32m[") == sum("user" in line for line in plain.splitlines() if line.startswith("["))


def test_search_names_the_page_of_a_message(filled: Path) -> None:
    (hit, *_) = json.loads(grovefs(filled, "search", "foo-bar", "--json").stdout)
    assert hit["page"] == "html/first.html#m2"


def test_show_takes_the_number_that_search_prints(filled: Path) -> None:
    """A session whose title ends like a number is found by its title."""
    text = grovefs(filled, "show", "first", "-m", "2").stdout
    assert grovefs(filled, "show", "first#2").stdout == text
    assert grovefs(filled, "show", "first#m2").stdout == text
    assert grovefs(filled, "show", "first#-1").stdout == text
    assert "cannot be combined" in grovefs(filled, "show", "first#2", "-m", "1").stderr
    with Store.open(filled, background=False) as store:
        store.update("first", lambda session: setattr(session, "title", "Number #2"))
    assert grovefs(filled, "show", "Number #2").stdout.startswith("# Number #2\n")


def test_missing_session_is_a_one_line_error_with_a_hint(filled: Path) -> None:
    result = grovefs(filled, "show", "third")
    assert result.returncode == 1
    assert result.stderr == "grovefs: there is no session 'third'; `grovefs ls` lists them\n"


def test_search_prints_place_role_and_match(filled: Path) -> None:
    result = grovefs(filled, "search", "foo-bar")
    assert result.stdout == "first#2\tuser\twhere is [foo-bar]?\n"
    assert json.loads(grovefs(filled, "search", "漢字", "--json").stdout)[0]["id"] == "second"
    assert grovefs(filled, "search", "nowhere").returncode == 1
    by_session = grovefs(filled, "search", "--sessions", "where", "is").stdout.split("\t")
    assert by_session[1:] == ["first", "About trees", "[where] [is] foo-bar?\n"]
    assert len(json.loads(grovefs(filled, "search", "role:user OR role:assistant", "--json", "-n", "2").stdout)) == 2
    long = grovefs(filled, "search", "x" * 100_000)
    assert (long.returncode, long.stderr.count("\n")) == (1, 1)
    assert "too long" in long.stderr
    empty = grovefs(filled, "search", "")
    assert empty.returncode == 1
    assert "nothing to search for" in empty.stderr


def test_check_uses_the_exit_codes_of_fsck(filled: Path) -> None:
    """0 clean, 4 damage left, 1 repaired, 8 could not run."""
    assert grovefs(filled, "check").returncode == 0
    side = filled / "sessions/first/runtime.json"
    side.write_text("{")
    found = grovefs(filled, "check")
    assert found.returncode == 4
    assert "sessions/first/runtime.json" in found.stdout
    assert grovefs(filled, "check", "--repair").returncode == 1
    assert json.loads(grovefs(filled, "check", "--json").stdout)["clean"] is True
    (filled / ".grovefs/index.db").unlink()
    (filled / ".grovefs/index.db").mkdir()
    assert grovefs(filled, "check").returncode == 8


def test_rebuild_recreates_the_index(filled: Path) -> None:
    for leftover in (filled / ".grovefs").glob("index.db*"):
        leftover.unlink()
    assert grovefs(filled, "rebuild").stdout == "2 sessions indexed\n"


@pytest.mark.parametrize(("command", "label"), [(["rebuild"], b"rebuilding"), (["search", "about"], b"indexing")])
def test_long_operations_show_a_progress_bar_on_a_terminal(filled: Path, command: list[str], label: bytes) -> None:
    """Rebuilding the index, on request or because it is missing, shows a bar on standard error only."""
    for leftover in (filled / ".grovefs").glob("index.db*"):
        leftover.unlink()
    terminal, end = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-c", "from fusefs.cli import main; main()", *command, "--home", str(filled)],
        stdout=subprocess.PIPE,
        stderr=end,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(end)
    shown = b""
    with suppress(OSError):  # EIO: the terminal was closed
        while data := os.read(terminal, 65536):
            shown += data
    os.close(terminal)
    output = run.communicate(timeout=60)[0]
    assert run.returncode == 0
    assert label in shown
    assert b"100%" in shown
    assert label not in output


def test_reading_commands_do_not_create_a_home(tmp_path: Path) -> None:
    result = grovefs(tmp_path / "nowhere", "ls")
    assert result.returncode == 1
    assert "there is no home" in result.stderr
    assert not (tmp_path / "nowhere").exists()
    assert grovefs(tmp_path / "nowhere", "check").returncode == 8
    assert grovefs(tmp_path, "ls").returncode == 1  # a directory, but not a home
    assert list(tmp_path.iterdir()) == []


WRONG = {
    "no-such-command": "no such command 'no-such-command'; see `grovefs --help`",
    "show": "missing argument 'SESSION[@V]'; see `grovefs show --help`",
    "ls --limit many": "invalid value for '--limit' / '-n': ",
    "ls --colour": "no such option: --colour",
    "mail send first": "missing argument 'TEXT'; see `grovefs mail send --help`",
    "mv first": "pass a new id, --title or --project; see `grovefs mv --help`",
}


@pytest.mark.parametrize("line", WRONG)
def test_usage_errors_are_one_line_and_exit_with_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert here(*line.split()) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.startswith(f"grovefs: {WRONG[line]}")


def here(*arguments: str) -> int:
    """Run the command in this process, which is faster."""
    app = load()
    return errors.run(lambda: app(list(arguments), prog_name="grovefs", standalone_mode=False))


def test_home_option_may_precede_or_follow_the_command(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in (["ls", "--home", str(filled)], ["--home", str(filled), "ls"]):
        monkeypatch.setenv("GROVEFS_HOME", str(tmp_path / "nowhere"))
        assert here(*line) == 0
        assert len(capsys.readouterr().out.splitlines()) == 2
    found = grovefs(tmp_path / "nowhere", "--home", str(filled), "grep", "-l", "foo-bar").stdout
    assert found == "sessions/first/session.json\n"


def test_closed_pipe_is_not_an_error_message(filled: Path) -> None:
    """`grovefs ls | head -1` prints no error."""
    command = [sys.executable, "-c", "from fusefs.cli import main; main()", "ls", "--home", str(filled)]
    reads, writes = os.pipe()
    os.close(reads)
    result = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writes)
    assert (result.returncode, result.stderr) == (1, "")


def commands(group: Any, *names: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command


def test_every_command_has_an_example_and_json_output() -> None:
    """The example may be in the help of its group. Exceptions: commands that print foreign or formatted text."""
    group: Any = get_command(load())
    for name, command in commands(group):
        above = group.commands[name.split()[0]]
        if name not in ("grep", "man"):
            assert "Example: " in (command.help or "") + (above.help or ""), name
            assert "--json" in {option for parameter in command.params for option in parameter.opts}, name


def test_show_steps_lists_tool_calls(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line per tool call."""
    step = {"tool_name": "Bash", "tool_args": {"command": "make"}, "output_summary": "made\nit", "duration_ms": 7}
    with Store.open(filled, background=False) as store:
        more = {"is_error": True, "tool_call_id": "c1", "timestamp": Timestamp.now()}
        store.trajectory.append("first", [{**step, **more}])
    assert here("show", "--home", str(filled), "first", "--steps") == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.split("\t")[2:] == ["Bash", "error", "7 ms", '{"command":"make"}', "made it"]
    [printed] = json.loads(grovefs(filled, "show", "first", "--steps", "--json").stdout)
    assert printed["tool_args"] == {"command": "make"}
    assert here("show", "--home", str(filled), "second", "--steps") == 0
    assert capsys.readouterr().out == ""
