"""grovefs import: output and exit codes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest

from fusefs.cli.commands import imports
from store import Store
from store.transfer.formats.registry import FORMATS
from tests.fusefs.cli.test_cli import grovefs
from tests.store.transfer.foreign import (
    CLAUDE_ID,
    claude_line,
    make_chatgpt,
    make_claude,
    make_codex,
    write_lines,
)


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    return make_claude(tmp_path / "dot-claude")


def test_all_formats_can_be_selected(home: Path) -> None:
    assert list(get_args(imports.AgentName)) == [format.name for format in FORMATS]
    result = grovefs(home, "import", "--format", "bogus", str(home))
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "'claude-code', 'codex'" in result.stderr


def test_import_prints_a_summary(home: Path, claude: Path) -> None:
    """It creates the home; importing again changes nothing."""
    first = grovefs(home, "import", str(claude))
    assert (first.returncode, first.stdout, first.stderr) == (
        0,
        "claude-code: 4 new, 0 updated, 0 unchanged, 0 kept; 0 problems\n",
        "",
    )
    assert "Fix the cart" in grovefs(home, "ls").stdout
    assert (
        grovefs(home, "import", str(claude)).stdout
        == "claude-code: 0 new, 0 updated, 4 unchanged, 0 kept; 0 problems\n"
    )


def test_dry_run_does_not_create_a_home(home: Path, claude: Path) -> None:
    result = grovefs(home, "import", "--dry-run", str(claude))
    assert result.stdout == "claude-code: dry run: 4 new, 0 updated, 0 unchanged, 0 kept; 0 problems\n"
    assert not home.exists()


def test_problems_are_reported_and_exit_with_1(home: Path, claude: Path) -> None:
    path = claude / f"projects/-home-me-shop/{CLAUDE_ID}.jsonl"
    path.write_text(path.read_text() + '{"type": "us')
    number = len(path.read_text().splitlines())
    result = grovefs(home, "import", str(claude))
    assert result.returncode == 1
    assert result.stderr.startswith(f"problem: {path}:{number}: ")
    printed = json.loads(grovefs(home, "import", str(claude), "--json").stdout)
    assert printed["counts"] == {"new": 0, "updated": 0, "unchanged": 4, "kept": 0, "deleted": 0}
    assert printed["problems"][0]["line"] == number


def test_message_changed_on_both_sides_is_reported(home: Path, claude: Path) -> None:
    grovefs(home, "import", str(claude))
    with Store.open(home, background=False) as store:
        session = store.load(CLAUDE_ID)
        assert session is not None
        session.messages[0].content = "Edited here"
        store.save(session)
    path = claude / f"projects/-home-me-shop/{CLAUDE_ID}.jsonl"
    path.write_text(path.read_text().replace("Why is the cart empty?", "Edited there"))
    result = grovefs(home, "import", str(claude))
    assert f"{CLAUDE_ID}: 1 message changed both here and in the source, kept as here: u1" in result.stderr
    assert "Edited here" in grovefs(home, "show", CLAUDE_ID).stdout
    assert grovefs(home, "import", str(claude), "--overwrite").returncode == 0
    assert "Edited there" in grovefs(home, "show", CLAUDE_ID).stdout


def test_all_agents_in_a_directory_are_imported(home: Path, tmp_path: Path) -> None:
    """Hidden directories included. Logs of an unknown kind are reported, and never taken for a known agent's."""
    user = tmp_path / "user"
    make_claude(user / ".claude")
    make_codex(user / ".codex")
    make_chatgpt(user / "Downloads/chatgpt")
    write_lines(user / ".other/logs/x.jsonl", [{"sessionId": "x", "type": "user", "text": "hello"}])
    result = grovefs(home, "import", str(user))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "claude-code: 4 new, 0 updated, 0 unchanged, 0 kept; 0 problems",
        "codex: 4 new, 0 updated, 0 unchanged, 0 kept; 0 problems",
        "chatgpt: 4 new, 0 updated, 0 unchanged, 0 kept; 0 problems",
        "total: 12 new, 0 updated, 0 unchanged, 0 kept; 0 problems",
    ]
    assert f"not imported: {user}/.other/logs: 1 log of an unknown kind" in result.stderr
    only = grovefs(home, "import", str(user), "--agent", "codex")
    assert only.stdout == "codex: 0 new, 0 updated, 4 unchanged, 0 kept; 0 problems\n"
    assert only.stderr == ""  # other agents' logs are not of an unknown kind


def test_home_below_the_source_is_passed_over(tmp_path: Path) -> None:
    """`grovefs import ~` finds ~/.grovefs too, into which it imports."""
    user = tmp_path / "user"
    home = user / ".grovefs"
    make_claude(user / ".claude")
    make_codex(user / ".codex")
    transcript = user / ".cursor/projects/shop/agent-transcripts/c1/c1.jsonl"
    parts = {"content": [{"type": "text", "text": "Wash the grapes"}]}
    write_lines(transcript, [{"role": "user", "message": parts}, {"role": "assistant", "message": parts}])
    for states in ("9 new, 0 updated, 0 unchanged", "0 new, 0 updated, 9 unchanged"):
        result = grovefs(home, "import", str(user))
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.splitlines()[-1] == f"total: {states}, 0 kept; 0 problems"
        assert "bamboo" not in result.stdout
    only = grovefs(home, "import", "--agent", "claude-code", str(user))  # records.jsonl of the home looks like a log
    assert only.stdout == "claude-code: 0 new, 0 updated, 4 unchanged, 0 kept; 0 problems\n"
    itself = grovefs(home, "import", str(home))
    assert (itself.returncode, "is the home that sessions are imported into" in itself.stderr) == (1, True)


def test_agents_are_found_in_their_usual_places(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables of the agents are honoured."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    make_claude(tmp_path / "user/.claude")
    make_codex(tmp_path / "elsewhere")
    unasked = grovefs(home, "import")
    assert (unasked.returncode, unasked.stdout) == (2, "")
    assert "not a terminal: pass --yes" in unasked.stderr
    assert not (home / "sessions").exists()
    result = grovefs(home, "import", "--yes")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "total: 8 new, 0 updated, 0 unchanged, 0 kept; 0 problems"
    assert f"kB in {tmp_path}/user/.claude" in result.stderr
    assert f"kB in {tmp_path}/elsewhere" in result.stderr


@pytest.mark.parametrize(("answer", "is_imported"), [("y\n", True), ("\n", True), ("n\n", False)])
def test_import_without_a_source_asks(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, is_imported: bool
) -> None:
    """It shows what it found, with counts and sizes. A refusal changes nothing."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    make_claude(tmp_path / "user/.claude")
    write_lines(tmp_path / "user/.claude/projects/-home-me-shop/big.jsonl", [{"type": "mode", "x": "y" * 3_400_000}])
    make_codex(tmp_path / "user/.codex")
    status, shown = on_a_terminal(home, answer)
    assert f"claude-code  6 files, 3.4 MB in {tmp_path}/user/.claude" in shown
    size_bytes = sum(path.stat().st_size for path in (tmp_path / "user/.codex").rglob("rollout-*"))
    assert f"codex        4 files, {size_bytes / 1000:.1f} kB in {tmp_path}/user/.codex" in shown
    assert shown.index("Import them? [Y/n]") > shown.index("kB in")
    assert ("total: 8 new" in shown) == is_imported
    assert ("nothing was imported" in shown, "interrupted" in shown) == (not is_imported, False)
    assert (status, (home / "sessions").exists()) == ((0, True) if is_imported else (1, False))


def test_deleted_sessions_are_counted_and_imported_again_on_request(home: Path, tmp_path: Path) -> None:
    """The summary and --help say so."""
    claude = make_claude(tmp_path / "claude")
    grovefs(home, "import", str(claude))
    assert grovefs(home, "rm", CLAUDE_ID).returncode == 0
    again = grovefs(home, "import", str(claude))
    deleted = "1 deleted here (--deleted imports them again)"
    assert again.returncode == 0
    assert again.stdout == f"claude-code: 0 new, 0 updated, 0 unchanged, 0 kept, {deleted}; 0 problems\n"
    assert json.loads(grovefs(home, "import", "--json", str(claude)).stdout)["counts"]["deleted"] == 1
    back = grovefs(home, "import", "--deleted", str(claude))
    assert back.stdout == "claude-code: 4 new, 0 updated, 0 unchanged, 0 kept; 0 problems\n"
    help = " ".join(grovefs(home, "import", "--help").stdout.split())
    assert "A session that was deleted here is not imported again, unless --deleted is given" in help


def on_a_terminal(home: Path, typed: str) -> tuple[int, str]:
    """Run `grovefs import` on a terminal, type something, and return its exit status and what it shows."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", "from fusefs.cli import main; main()", "import", "--home", str(home)]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True) as process:
        os.close(follower)
        os.write(leader, typed.encode())
        shown = b""
        with suppress(OSError):  # EIO: the command has ended
            while data := os.read(leader, 65_536):
                shown += data
    os.close(leader)
    return process.returncode, shown.decode().replace("\r", "")


def test_no_agent_in_the_usual_places_is_an_error(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    result = grovefs(home, "import")
    assert result.returncode == 1
    assert "no sessions of known agents found" in result.stderr


def test_since_passes_over_older_sessions(home: Path, claude: Path) -> None:
    assert grovefs(home, "import", str(claude), "--since", "2999-01-01").stdout.startswith("claude-code: 0 new")
    assert grovefs(home, "import", str(claude), "--since", "1d").stdout.startswith("claude-code: 0 new")
    assert grovefs(home, "import", str(claude), "--since", "2026-01-01").stdout.startswith("claude-code: 4 new")
    assert "is not a time" in grovefs(home, "import", str(claude), "--since", "soon").stderr


def test_interrupted_import_prints_counts_and_leaves_whole_sessions(home: Path, tmp_path: Path) -> None:
    for number in range(400):
        say = [claude_line("user", f"u{i}", {"role": "user", "content": "words " * 200}, "00:00") for i in range(20)]
        write_lines(tmp_path / f"p/s{number:03}.jsonl", say)
    code = "from fusefs.cli import main; main()"
    command = [sys.executable, "-c", code, "import", str(tmp_path / "p"), "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (home / "sessions/s003/session.json").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output.startswith("claude-code: interrupted; so far: ")
    counted = int(output.split()[4])
    with Store.open(home, background=False) as store:
        assert 3 <= counted <= store.count() <= counted + 1  # the last may be saved but not counted
        assert store.check().is_clean
    done = grovefs(home, "import", str(tmp_path / "p"))
    assert done.returncode == 0
    assert sum(int(word) for word in done.stdout.split() if word.isdigit()) == 400


def test_import_that_fills_the_disk_prints_counts(home: Path, tmp_path: Path) -> None:
    """Counted sessions are saved; the next run imports the rest."""
    base = tmp_path / "p"
    for name, size in (("a", 10), ("b", 8_000_000), ("c", 10)):
        say = {"role": "user", "content": "x" * size}
        write_lines(base / f"{name}.jsonl", [claude_line("user", "u", say, "00:00")])
    code = "from fusefs.cli import main; main()"
    command = [sys.executable, "-c", code, "import", str(base), "--home", str(home)]
    small = (4_000_000, 4_000_000)  # maximum file size in bytes: larger writes fail, as on a full disk
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, small),
    )
    assert result.returncode == 1
    assert result.stdout.startswith("claude-code: interrupted; so far: 1 new")
    assert "nothing was changed" in result.stderr
    assert grovefs(home, "check").returncode == 0
    assert grovefs(home, "import", str(base)).stdout.startswith("claude-code: 2 new, 0 updated, 1 unchanged")


def test_import_into_a_home_used_by_a_server_is_one_error(home: Path, claude: Path) -> None:
    grovefs(home, "import", str(claude))
    with (home / ".session-lifecycle.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = grovefs(home, "import", str(claude))
    assert result.returncode == 1
    assert "a Bamboo server is using" in result.stderr


def test_concurrent_imports_import_each_session_once(home: Path, claude: Path) -> None:
    code = "from fusefs.cli import main; main()"
    command = [sys.executable, "-c", code, "import", str(claude), "--home", str(home), "--json"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    counts = [json.loads(process.communicate(timeout=60)[0])["counts"] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sum(count["new"] for count in counts) == 4
    assert sum(count["unchanged"] for count in counts) == 8


def test_missing_source_is_one_error(home: Path, tmp_path: Path) -> None:
    result = grovefs(home, "import", str(tmp_path / "nowhere"))
    assert result.returncode == 1
    assert result.stderr == f"grovefs: no such file or directory: {tmp_path / 'nowhere'}\n"
