"""`grovefs state`: saving, listing, printing and deleting documents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from store import Store
from tests.fusefs.cli.test_cli import grovefs


def save(home: Path, document: str, raw: bytes) -> subprocess.CompletedProcess[bytes]:
    code = "from fusefs.cli import main; main()"
    environment = {**os.environ, "GROVEFS_HOME": str(home)}
    command = [sys.executable, "-c", code, "state", "save", document]
    return subprocess.run(command, env=environment, input=raw, capture_output=True, timeout=60)


def test_document_is_saved_listed_shown_found_and_deleted(home: Path) -> None:
    with Store.open(home, background=False):
        pass
    assert save(home, "memory/facts/f1.json", b'{"content": "the barn"}').returncode == 0
    assert save(home, "notes/today.md", b"# Today\n").returncode == 0
    assert grovefs(home, "state", "list").stdout == "memory/facts/f1.json\nnotes/today.md\n"
    assert json.loads(grovefs(home, "state", "list", "notes", "--json").stdout) == ["notes/today.md"]
    assert grovefs(home, "state", "show", "notes/today.md").stdout == "# Today\n"
    assert "state/memory/facts/f1.json" in grovefs(home, "search", "barn").stdout
    assert grovefs(home, "state", "delete", "notes/today.md").returncode == 0
    missing = grovefs(home, "state", "show", "notes/today.md")
    assert (missing.returncode, missing.stderr.startswith("grovefs: there is no state document")) == (1, True)


def test_invalid_documents_are_one_line_errors(home: Path) -> None:
    with Store.open(home, background=False):
        pass
    broken = save(home, "a/x.json", b"{")
    assert (broken.returncode, broken.stderr.startswith(b"grovefs: state/a/x.json:1:")) == (1, True)
    assert save(home, "../x.json", b"1").returncode == 1
    assert save(home, "a/x.txt", b"1").returncode == 2
    assert not (home / "state").exists() or not list((home / "state").rglob("*.json"))
