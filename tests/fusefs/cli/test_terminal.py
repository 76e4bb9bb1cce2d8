"""Text from agents and file names cannot control the terminal it is shown on."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from pathlib import Path

import pytest

from fusefs.cli.terminal import clean, clean_cell
from store import Message, Store
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs, on_a_terminal

ROOT = Path(__file__).parents[3]
# Clears the screen in two ways: a colour could not be distinguished from those that the commands add themselves.
EVIL = "a\x1b[2J\x9b2J\u202eb\u2066c\u2069"
SHOWN = r"a\u001b[2J\u009b2J\u202eb\u2066c\u2069"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def controls(text: str) -> set[str]:
    """The characters that control a terminal, except for colours and the ends of lines."""
    plain = _COLOUR.sub("", text.replace("\r\n", "\n"))
    return {character for character in plain if unicodedata.category(character) in ("Cc", "Cf")} - {"\n", "\t"}


def test_control_characters_become_escapes() -> None:
    assert clean(EVIL) == SHOWN
    assert clean("one\r\ntwo\rthree\x7f\x00") == "one\ntwo\\u000dthree\\u007f\\u0000"
    assert clean("byte \udcff") == r"byte \udcff"


@pytest.mark.parametrize("text", ["plain", "tab\tand\nnewline", "漢字 👩‍💻 עברית\u200f", "back\\slash"])
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert clean(text) == text


def test_a_cell_is_one_line() -> None:
    assert clean_cell("one\n\ttwo") == "one two"


@pytest.fixture
def hostile(home: Path) -> Path:
    """A home whose titles, messages and file names contain control characters."""
    with Store.open(home, background=False) as store:
        store.save(make_session("one", title="harmless"))
        store.update("one", lambda session: setattr(session, "title", EVIL))
        store.append("one", [Message.user(f"say {EVIL}")])
        store.state.save_markdown("notes", "evil", EVIL)
    stray = home / f"sessions/{EVIL}"
    stray.mkdir()
    (stray / "session.json").write_text("{")
    return home


@pytest.mark.parametrize(
    "command",
    ["ls", "check", "search say", "status", "trash", "show one", "tail one", "log one", "diff one@1"],
)
def test_b3_no_command_prints_control_characters(hostile: Path, command: str) -> None:
    """Piped, and on a terminal without the colours that the command adds itself."""
    grovefs(hostile, "rm", "one") if command == "trash" else None
    piped = grovefs(hostile, *command.split())
    if command not in ("show one", "tail one"):  # these print the transcript as it is stored
        assert not controls(piped.stdout + piped.stderr)
        assert "\x1b" not in piped.stdout + piped.stderr, "a colour"
    code = piped.returncode if command != "status" else None  # it depends on the other mounts of this machine
    shown = on_a_terminal(hostile, *command.split(), returncode=code)
    assert not controls(shown)
    assert "2J" in shown or command == "status", "nothing hostile is shown"


def test_state_documents_are_piped_as_they_are(hostile: Path) -> None:
    assert grovefs(hostile, "state", "show", "notes/evil.md").stdout == EVIL
    assert on_a_terminal(hostile, "state", "show", "notes/evil.md").strip() == SHOWN


def test_json_keeps_the_value(hostile: Path) -> None:
    out = grovefs(hostile, "ls", "--json").stdout
    assert "\u202e" not in out
    assert EVIL in [entry["title"] for entry in json.loads(out)]


def test_commands_print_through_one_function() -> None:
    """Except grep, which must start fast, the prompt of edit, and the formatted pages of help."""
    for path in (ROOT / "fusefs/cli/commands").glob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        named = {ast.unparse(call) for call in calls}
        if path.stem not in ("grep", "edit", "topics"):
            assert not {"print", "typer.echo"} & named, path


@pytest.mark.parametrize("command", ["show one --markdown", "show one", "tail one", "ls", "search say", "status"])
def test_b3_nothing_shown_on_a_terminal_controls_it(hostile: Path, command: str) -> None:
    """Also plain Markdown."""
    shown = on_a_terminal(hostile, *command.split())
    assert not controls(shown)
    assert "2J" in shown or command == "status", "nothing hostile is shown"
    if command.startswith("show"):
        assert r"2J\u202eb\u2066c\u2069" in shown
