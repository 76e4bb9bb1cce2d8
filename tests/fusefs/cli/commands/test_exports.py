"""grovefs export: output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Message, Store
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs
from tests.store.transfer.foreign import (
    CLAUDE_ID,
    make_claude,
)


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    return make_claude(tmp_path / "dot-claude")


def test_export_writes_files_or_to_standard_output(home: Path, claude: Path, tmp_path: Path) -> None:
    grovefs(home, "import", str(claude))
    done = grovefs(home, "export", CLAUDE_ID, str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (0, f"4 sessions written to {tmp_path / 'out'}\n")
    assert json.loads((tmp_path / f"out/{CLAUDE_ID}.json").read_text())["title"] == "Fix the cart"
    lines = grovefs(home, "export", "--all", "-").stdout.splitlines()
    assert json.loads(lines[0])["id"] == CLAUDE_ID
    assert len(lines) == 4
    page = grovefs(home, "export", f"{CLAUDE_ID}/agent-cafe02", "--format", "markdown", "-").stdout
    assert "# Dig for carts" in page


def test_exporting_to_a_bamboo_home_again_changes_nothing(home: Path, claude: Path, tmp_path: Path) -> None:
    grovefs(home, "import", str(claude))
    out = str(tmp_path / "bamboo")
    first = grovefs(home, "export", "--all", "--format", "bamboo", out)
    assert (first.returncode, first.stdout) == (0, "4 new, 0 updated, 0 unchanged, 0 kept; 0 problems\n")
    again = grovefs(home, "export", "--all", "--format", "bamboo", out)
    assert again.stdout == "0 new, 0 updated, 4 unchanged, 0 kept; 0 problems\n"
    assert "Fix the cart" in grovefs(tmp_path / "bamboo", "ls").stdout


def test_export_writes_a_site(home: Path, claude: Path, tmp_path: Path) -> None:
    """Without names, of all sessions, with statistics."""
    grovefs(home, "import", str(claude))
    done = grovefs(home, "export", "--format", "html", str(tmp_path / "site"))
    assert (done.returncode, done.stdout) == (0, f"4 sessions written to {tmp_path / 'site'}\n")
    assert {"index.html", "stats.html", f"{CLAUDE_ID}.html"} <= {path.name for path in (tmp_path / "site").iterdir()}
    one = grovefs(home, "export", "--format", "html", CLAUDE_ID, str(tmp_path / "one"), "--json")
    assert f"{tmp_path}/one/{CLAUDE_ID}.html" in json.loads(one.stdout)["files"]
    assert not (tmp_path / "one/stats.html").exists()
    assert grovefs(home, "export", "--all", "--format", "html", "-").returncode == 2


def test_export_rejects_contradictory_arguments(home: Path, claude: Path, tmp_path: Path) -> None:
    grovefs(home, "import", str(claude))
    assert grovefs(home, "export", str(tmp_path / "out")).returncode == 2
    assert grovefs(home, "export", "--all", CLAUDE_ID, str(tmp_path / "out")).returncode == 2
    assert grovefs(home, "export", "--all", "--format", "bamboo", "-").returncode == 2
    missing = grovefs(home, "export", "nobody", str(tmp_path / "out"))
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert not (tmp_path / "out").exists()
    assert grovefs(home, "export", "--all", "--format", "bamboo", str(home)).returncode == 1


def test_export_redacts_secrets(home: Path, tmp_path: Path) -> None:
    """In texts, in tool arguments and in text attachments."""
    key = "sk-ant-api03-" + "aB3dE5fG7hJ9kL1mN3pQ5rS7"
    private = "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----"
    with Store.open(home, background=False) as store:
        store.save(make_session("s1", messages=0))
        store.append("s1", [Message.user(f"use {key} and {private} please")])
        store.attach("s1", f"key={key}".encode(), "text/plain")
    for format in ("json", "markdown"):
        out = tmp_path / format
        assert grovefs(home, "export", "s1", "--format", format, "--redact", str(out)).returncode == 0
        written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
        assert key.encode() not in written
        assert b"MIIEvQ" not in written
        assert b"[redacted: an Anthropic key]" in written
        assert b"please" in written
    printed = grovefs(home, "export", "s1", "--redact", "-").stdout
    assert key not in printed
    assert "please" in printed
    assert grovefs(home, "export", "s1", "--format", "bamboo", "--redact", str(tmp_path / "b")).returncode == 2
