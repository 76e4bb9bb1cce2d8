"""grovefs resume: the right agent, in the right directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from store import Store
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs
from tests.store.transfer.foreign import CLAUDE_ID, claude_line, make_claude, make_codex, write_lines


def test_agent_is_started_in_the_workspace(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here by a program in its place, which prints where it runs and with what."""
    work = tmp_path / "work space"
    work.mkdir()
    line = claude_line("user", "u1", {"role": "user", "content": "go"}, "00:00", cwd=str(work))
    write_lines(tmp_path / "p/s1.jsonl", [line])
    grovefs(home, "import", str(tmp_path / "p"))
    program = tmp_path / "bin/claude"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert grovefs(home, "resume", "s1").stdout == f"{work} --resume s1\n"
    assert grovefs(home, "resume", "s1", "--dry-run").stdout == f"cd '{work}' && claude --resume s1\n"
    shown = json.loads(grovefs(home, "resume", "s1", "--json").stdout)
    assert shown == {
        "id": "s1",
        "agent": "claude-code",
        "directory": str(work),
        "command": ["claude", "--resume", "s1"],
    }
    work.rmdir()
    assert "does not exist here" in grovefs(home, "resume", "s1").stderr


def test_what_cannot_be_resumed_is_an_error(home: Path, tmp_path: Path) -> None:
    grovefs(home, "import", str(make_claude(tmp_path / "c")))
    grovefs(home, "import", str(make_codex(tmp_path / "x")))
    with Store.open(home, background=False) as store:
        store.save(make_session("mine"))
    assert "was not imported" in grovefs(home, "resume", "mine").stderr
    assert "a sub-agent" in grovefs(home, "resume", f"{CLAUDE_ID}/agent-beef01").stderr
