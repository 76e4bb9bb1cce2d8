"""grovefs import and export: what people and programs see."""

from __future__ import annotations

import fcntl
import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest

from fusefs.cli.commands import import_export
from store import Store
from store.transfer.formats.registry import FORMATS
from tests.fusefs.cli.test_cli import grovefs
from tests.store.transfer.foreign import CLAUDE_ID, claude_line, make_claude, write_lines


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    return make_claude(tmp_path / "dot-claude")


def test_all_formats_can_be_named(home: Path) -> None:
    assert list(get_args(import_export.FormatName)) == [format.name for format in FORMATS]
    result = grovefs(home, "import", "--format", "bogus", str(home))
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "'claude-code', 'codex'" in result.stderr


def test_import_says_what_it_did(home: Path, claude: Path) -> None:
    """Into a home that it makes; a second time nothing happens."""
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


def test_a_dry_run_makes_no_home(home: Path, claude: Path) -> None:
    result = grovefs(home, "import", "--dry-run", str(claude))
    assert result.stdout == "claude-code: would be 4 new, 0 updated, 0 unchanged, 0 kept; 0 problems\n"
    assert not home.exists()


def test_problems_are_named_and_exit_with_1(home: Path, claude: Path) -> None:
    path = claude / f"projects/-home-me-shop/{CLAUDE_ID}.jsonl"
    path.write_text(path.read_text() + '{"type": "us')
    number = len(path.read_text().splitlines())
    result = grovefs(home, "import", str(claude))
    assert result.returncode == 1
    assert result.stderr.startswith(f"problem: {path}:{number}: ")
    told = json.loads(grovefs(home, "import", str(claude), "--json").stdout)
    assert told["counts"] == {"new": 0, "updated": 0, "unchanged": 4, "kept": 0}
    assert told["problems"][0]["line"] == number


def test_a_session_edited_here_is_named(home: Path, claude: Path) -> None:
    grovefs(home, "import", str(claude))
    with Store.open(home, background=False) as store:
        store.append(CLAUDE_ID, [{"id": "mine", "role": "user", "content": "mine"}])
    path = claude / f"projects/-home-me-shop/{CLAUDE_ID}.jsonl"
    path.write_text(path.read_text() + '{"type":"summary","summary":"x","leafUuid":"u5"}\n')
    result = grovefs(home, "import", str(claude))
    assert result.returncode == 1
    assert f"kept: {CLAUDE_ID}: runtime.json was changed here" in result.stderr or "session.json" in result.stderr


def test_ctrl_c_says_how_far_it_got_and_leaves_no_half_session(home: Path, tmp_path: Path) -> None:
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
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.startswith("interrupted; so far: ")
    told = int(said.split()[3])
    with Store.open(home, background=False) as store:
        assert 3 <= told <= store.count() <= told + 1  # the last may have been saved and not yet told
        assert store.check().is_clean
    done = grovefs(home, "import", str(tmp_path / "p"))
    assert done.returncode == 0
    assert sum(int(word) for word in done.stdout.split() if word.isdigit()) == 400


def test_an_import_that_a_full_disk_ends_says_how_far_it_got(home: Path, tmp_path: Path) -> None:
    """As far as it was told, it is there; the rest comes when there is room."""
    base = tmp_path / "p"
    for name, size in (("a", 10), ("b", 8_000_000), ("c", 10)):
        say = {"role": "user", "content": "x" * size}
        write_lines(base / f"{name}.jsonl", [claude_line("user", "u", say, "00:00")])
    code = "from fusefs.cli import main; main()"
    command = [sys.executable, "-c", code, "import", str(base), "--home", str(home)]
    small = (4_000_000, 4_000_000)  # bytes of any one file: writing more fails, as on a full disk
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, small),
    )
    assert result.returncode == 1
    assert result.stdout.startswith("interrupted; so far: 1 new")
    assert "nothing was changed" in result.stderr
    assert grovefs(home, "check").returncode == 0
    assert grovefs(home, "import", str(base)).stdout.startswith("claude-code: 2 new, 0 updated, 1 unchanged")


def test_a_home_that_a_server_works_on_is_one_clear_error(home: Path, claude: Path) -> None:
    grovefs(home, "import", str(claude))
    with (home / ".session-lifecycle.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = grovefs(home, "import", str(claude))
    assert result.returncode == 1
    assert "a Bamboo server is at work" in result.stderr


def test_two_imports_at_once_take_each_session_once(home: Path, claude: Path) -> None:
    code = "from fusefs.cli import main; main()"
    command = [sys.executable, "-c", code, "import", str(claude), "--home", str(home), "--json"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    counts = [json.loads(process.communicate(timeout=60)[0])["counts"] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sum(count["new"] for count in counts) == 4
    assert sum(count["unchanged"] for count in counts) == 8


def test_what_is_no_source_is_one_clear_error(home: Path, tmp_path: Path) -> None:
    result = grovefs(home, "import", str(tmp_path / "nowhere"))
    assert result.returncode == 1
    assert result.stderr == f"grovefs: no such file or directory: {tmp_path / 'nowhere'}\n"


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


def test_export_to_a_bamboo_home_may_be_repeated(home: Path, claude: Path, tmp_path: Path) -> None:
    grovefs(home, "import", str(claude))
    out = str(tmp_path / "bamboo")
    first = grovefs(home, "export", "--all", "--format", "bamboo", out)
    assert (first.returncode, first.stdout) == (0, "4 new, 0 updated, 0 unchanged, 0 kept; 0 problems\n")
    again = grovefs(home, "export", "--all", "--format", "bamboo", out)
    assert again.stdout == "0 new, 0 updated, 4 unchanged, 0 kept; 0 problems\n"
    assert "Fix the cart" in grovefs(tmp_path / "bamboo", "ls").stdout


def test_export_refuses_what_makes_no_sense(home: Path, claude: Path, tmp_path: Path) -> None:
    grovefs(home, "import", str(claude))
    assert grovefs(home, "export", str(tmp_path / "out")).returncode == 2
    assert grovefs(home, "export", "--all", CLAUDE_ID, str(tmp_path / "out")).returncode == 2
    assert grovefs(home, "export", "--all", "--format", "bamboo", "-").returncode == 2
    missing = grovefs(home, "export", "nobody", str(tmp_path / "out"))
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert not (tmp_path / "out").exists()
    assert grovefs(home, "export", "--all", "--format", "bamboo", str(home)).returncode == 1
