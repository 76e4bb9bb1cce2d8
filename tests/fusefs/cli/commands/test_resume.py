"""grovefs resume: the right agent, in the right directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fusefs.cli.commands.resume import ADVICE, COMMANDS
from store import Store
from store.transfer.formats import registry
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs
from tests.store.transfer.foreign import (
    CHAT_ID,
    CLAUDE_ID,
    claude_line,
    make_chatgpt,
    make_claude,
    write_lines,
)


def install(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the place of an agent, which prints where it runs and with what."""
    program = place / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_agent_is_started_in_the_workspace(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work space"
    work.mkdir()
    line = claude_line("user", "u1", {"role": "user", "content": "go"}, "00:00", cwd=str(work))
    write_lines(tmp_path / "p/s1.jsonl", [line])
    grovefs(home, "import", str(tmp_path / "p"))
    install(tmp_path, "claude", monkeypatch)
    started = grovefs(home, "resume", "s1")
    assert (started.stdout, started.stderr) == (f"{work} --resume s1\n", "")
    assert grovefs(home, "resume", "s1", "--dry-run").stdout == f"cd '{work}' && claude --resume s1\n"
    shown = json.loads(grovefs(home, "resume", "s1", "--json").stdout)
    assert shown == {
        "id": "s1",
        "agent": "claude-code",
        "directory": str(work),
        "command": ["claude", "--resume", "s1"],
        "changed_messages": 0,
    }
    work.rmdir()
    assert "does not exist here" in grovefs(home, "resume", "s1").stderr


def test_gemini_and_cursor_are_started(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cursor's transcripts do not name the workspace: the agent starts where the command was given."""
    work = tmp_path / "work"
    work.mkdir()
    project = tmp_path / "gemini/tmp/work"
    header = {"sessionId": "gem-1", "projectHash": "e8b9", "startTime": "2026-03-01T10:00:00Z"}
    asked = {"id": "m1", "timestamp": "2026-03-01T10:00:00Z", "type": "user", "content": "go"}
    write_lines(project / "chats/session-1.jsonl", [header, asked])
    (project / ".project_root").write_text(str(work))
    said = {"role": "user", "message": {"content": [{"type": "text", "text": "go"}]}}
    write_lines(tmp_path / "cursor/projects/p/agent-transcripts/cur-1/cur-1.jsonl", [said])
    grovefs(home, "import", str(tmp_path / "gemini"), str(tmp_path / "cursor"))
    for name in ("gemini", "cursor-agent"):
        install(tmp_path, name, monkeypatch)
    assert grovefs(home, "resume", "gem-1").stdout == f"{work} --resume gem-1\n"
    started = grovefs(home, "resume", "cur-1")
    assert started.stdout == f"{Path.cwd()} --resume cur-1\n"
    assert "the workspace is not known" in started.stderr
    assert grovefs(home, "resume", "cur-1", "--dry-run").stdout == "cursor-agent --resume cur-1\n"


def test_changes_that_the_agent_will_not_see_are_named(home: Path, tmp_path: Path) -> None:
    """Until they are exported: then the agent has them."""
    line = claude_line("user", "u1", {"role": "user", "content": "go"}, "00:00", cwd="/home/me/shop")
    write_lines(tmp_path / "p/s1.jsonl", [line])
    grovefs(home, "import", str(tmp_path / "p"))
    grovefs(home, "pin", "s1")
    assert grovefs(home, "resume", "s1", "--dry-run").stderr == ""
    with Store.open(home, background=False) as store:
        session = store.load("s1")
        assert session is not None
        session.messages[0].content = "go on"
        store.save(session)
    shown = grovefs(home, "resume", "s1", "--dry-run")
    export = f"grovefs export --format claude-code s1 {tmp_path}/p"
    warning = f"grovefs: 1 message changed here, which claude-code will not see; `{export}` writes the changes back\n"
    assert (shown.stdout, shown.stderr) == ("cd /home/me/shop && claude --resume s1\n", warning)
    grovefs(home, *export.split()[1:])
    assert grovefs(home, "resume", "s1", "--dry-run").stderr == ""


def test_what_cannot_be_resumed_is_an_error_that_says_what_to_do(home: Path, tmp_path: Path) -> None:
    grovefs(home, "import", str(make_claude(tmp_path / "c")))
    grovefs(home, "import", str(make_chatgpt(tmp_path / "g")))
    (tmp_path / "cursor_chat.md").write_text("# A chat\n_Exported on 3/1/2026 from Cursor (1.2)_\n\n**User**\n\nhi\n")
    grovefs(home, "import", str(tmp_path / "cursor_chat.md"))
    with Store.open(home, background=False) as store:
        store.save(make_session("mine"))
    assert "was not imported" in grovefs(home, "resume", "mine").stderr
    assert f"`grovefs resume {CLAUDE_ID}`" in grovefs(home, "resume", f"{CLAUDE_ID}/agent-beef01").stderr
    assert "open it at chatgpt.com" in grovefs(home, "resume", CHAT_ID).stderr
    assert "open it in Cursor" in grovefs(home, "resume", "A chat").stderr


def test_every_agent_has_a_command_or_advice() -> None:
    assert COMMANDS.keys() | ADVICE.keys() == {format.name for format in registry.FORMATS}
    assert not COMMANDS.keys() & ADVICE.keys()
