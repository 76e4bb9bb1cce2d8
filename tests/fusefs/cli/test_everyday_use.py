"""What people do every day with the commands: name messages, page, list, pipe JSON."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store import Message, Session, Store, Timestamp
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs

ROOT = Path(__file__).parents[3]
TOPICS = ROOT / "fusefs/cli/topics"


@pytest.fixture
def filled(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        store.save(make_session("fix-login", title="Fix", model="m1", project_id="web", messages=3))
        store.save(Session.new_child("worker", "fix-login", "m2", "Work"))
        old = make_session("old", title="Aged", model="m2", messages=0)
        old.updated_at = Timestamp("2020-01-01T00:00:00Z")
        store.save(old)
        store.append("fix-login", [Message.user("the certificate expired")])
    return home


def parsed(home: Path, *arguments: str) -> Any:
    done = grovefs(home, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_d4_a_message_is_named_as_search_prints_it(filled: Path) -> None:
    place = grovefs(filled, "search", "certificate").stdout.split("\t")[0]
    assert place == "fix-login#3"
    shown = grovefs(filled, "show", place)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == grovefs(filled, "show", "fix-login", "-m", "3").stdout
    assert "the certificate expired" in shown.stdout
    assert grovefs(filled, "show", "fix-login#9").returncode == 1


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """Every member of every object in a JSON value."""
    if isinstance(value, dict):
        yield from value.items()
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from members(inner)


@pytest.mark.parametrize(
    "command",
    [
        *("ls", "search certificate", "tail fix-login", "status", "stats", "log fix-login", "diff fix-login"),
        *("history size", "snapshot monday", "trash", "check", "fork old new", "pin old", "undo --since 1h --dry-run"),
        *("revert fix-login@1", "rm old", "cleanup empty --dry-run", "prune --keep 1 --dry-run"),
    ],
)
def test_d8_d12_json_names_sessions_by_id_and_has_no_large_numbers(filled: Path, command: str) -> None:
    """jq reads numbers as doubles: nanoseconds since 1970 have too many digits."""
    shown = grovefs(filled, *command.split(), "--json").stdout  # one value, or one in each line
    values = [json.loads(shown)] if command != "tail fix-login" else [*map(json.loads, shown.splitlines())]
    for name, value in members(values):
        assert name not in ("session", "session_id", "location", "root")
        assert not name.endswith("_ns")
        assert not isinstance(value, int) or abs(value) <= 2**53, name


def test_d8_times_are_text(filled: Path) -> None:
    (hit,) = parsed(filled, "search", "certificate")
    assert Timestamp(hit["created_at"]).ns <= Timestamp(hit["updated_at"]).ns


def test_d11_search_says_that_nothing_was_found_and_offers_spellings(filled: Path) -> None:
    done = grovefs(filled, "search", "certifcate")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "grovefs: nothing found; did you mean certificate?\n"
    line = grovefs(filled, "search", "--dates", "certificate").stdout.split("\t")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", line[1])


def test_d11_ls_selects_and_sorts(filled: Path) -> None:
    def listed(*options: str) -> list[str]:
        return [line.split("\t")[1] for line in grovefs(filled, "ls", *options).stdout.splitlines()]

    assert listed("--since", "7d") == ["fix-login", "fix-login/worker"]
    assert set(listed("--model", "m2")) == {"fix-login/worker", "old"}
    assert listed("--project", "web") == ["fix-login"]
    assert listed("--sort", "title") == ["old", "fix-login", "fix-login/worker"]
    assert listed("--sort", "messages")[0] == "fix-login"
    assert grovefs(filled, "ls", "--since", "someday").returncode == 2


def test_d12_a_session_is_named_id_in_all_json(filled: Path) -> None:
    """The exact name, which every command accepts."""
    assert {entry["id"] for entry in parsed(filled, "ls")} == {"fix-login", "fix-login/worker", "old"}
    assert [hit["id"] for hit in parsed(filled, "search", "certificate")] == ["fix-login"]
    assert parsed(filled, "new", "fresh", "-m", "hi") == {"id": "fresh"}
    assert parsed(filled, "append", "fresh", "more")["id"] == "fresh"
    assert parsed(filled, "mv", "fresh", "stale") == {"id": "stale"}
    assert [result["id"] for result in parsed(filled, "rm", "stale")] == ["stale"]
    assert [deletion["id"] for deletion in parsed(filled, "trash")] == ["stale"]


def test_d9_limits_say_how_to_follow_a_transcript() -> None:
    assert "`grovefs tail -f SESSION`" in (TOPICS / "limits.md").read_text()


def test_d14_rejected_texts_can_be_left_out_of_copies(tmp_path: Path) -> None:
    """With the options that the page names."""
    options = re.findall(r"--exclude='[^']+'", (TOPICS / "limits.md").read_text())
    assert options == ["--exclude='*.rejected'", "--exclude='*.error'"]
    source = tmp_path / "s"
    source.mkdir()
    for name in ("session.json", "session.json.rejected", "session.json.error"):
        (source / name).touch()
    command = f"tar -C {source} {' '.join(options)} -cf - . | tar -tf -"
    listed = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == ["./", "./session.json"]


def copy_scripts(base: Path) -> dict[str, str]:
    """The scripts in a directory of their own, and an environment in which they install nothing.

    `python3 -m venv` makes an interpreter that logs its arguments to installed.log.
    """
    for name in ("scripts/mount", "scripts/setup", "pyproject.toml", "constraints.txt", "fusefs/_fast.c"):
        (base / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, base / name)
    log = base / "installed.log"
    logging = f"printf '#!/bin/sh\\necho \"$@\" >> {log}\\n' > .venv/bin/python"
    venv = f"mkdir -p .venv/bin; {logging}; chmod +x .venv/bin/python"
    programs = {
        "python3": f'case "$*" in "-m venv"*) {venv} ;; *) exec {sys.executable} "$@" ;; esac',
        "npm": f'echo npm "$@" >> {log}',
        "apt-get": f'echo apt-get "$@" >> {log}',
    }
    (base / "bin").mkdir()
    for name, text in programs.items():
        (base / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (base / "bin" / name).chmod(0o755)
    return {**os.environ, "PATH": f"{base / 'bin'}:{os.environ['PATH']}"}


def test_d10_the_demo_installs_only_what_running_needs(tmp_path: Path) -> None:
    """No linters and no test tools: scripts/mount asks for them neither directly nor as dependencies."""
    environment = copy_scripts(tmp_path)
    subprocess.run(["scripts/mount"], cwd=tmp_path, env=environment, capture_output=True)
    installed = (tmp_path / "installed.log").read_text().splitlines()
    assert [line.split()[-2:] for line in installed if "pip install" in line] == [["-e", "."]]
    assert not [line for line in installed if line.startswith("npm")]
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert not re.search(r"\b(mypy|ruff|pytest|hypothesis|selenium)\b", " ".join(needed))


def test_mount_script_stops_where_nothing_is_imported(tmp_path: Path) -> None:
    """A directory without sessions: no home is created and nothing is mounted."""
    environment = copy_scripts(tmp_path) | {"GROVEFS_HOME": str(tmp_path / "home")}
    (tmp_path / "scripts/setup").write_text("#!/bin/sh\n")
    program = tmp_path / ".venv/bin/grovefs"
    program.parent.mkdir(parents=True)
    code = "from fusefs.cli import main; main()"
    program.write_text(f'#!/bin/sh\n[ "$1" != mount ] || echo MOUNTED\nexec {sys.executable} -c "{code}" "$@"\n')
    program.chmod(0o755)
    (tmp_path / "nothing").mkdir()
    done = subprocess.run(["scripts/mount", "nothing"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no sessions recognised" in done.stderr
    assert "nothing was imported from nothing, and nothing was mounted" in done.stderr
    assert not (tmp_path / "home").exists()


def test_demo_explains_itself(tmp_path: Path) -> None:
    """--help creates no home of that name."""
    command = [sys.executable, str(ROOT / "scripts/demo.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.startswith("usage:")) == (0, True)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("command", [["ls"], ["mount"], ["import"], ["grove", "join"]])
def test_d13_flags_are_shown_without_a_type(command: list[str]) -> None:
    environment = {**os.environ, "COLUMNS": "200", "TERM": "dumb"}
    code = "from fusefs.cli import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", code, *command, "--help"], env=environment, capture_output=True, text=True
    )
    assert "--json" in shown.stdout
    assert "<bool>" not in shown.stdout


@pytest.mark.parametrize("command", [["show", "fix-login"], ["show", "fix-login", "--markdown"]])
def test_d16_show_pages_on_a_terminal(filled: Path, tmp_path: Path, command: list[str]) -> None:
    """Through $PAGER, with LESS=FRX unless the user has set it."""
    pager, paged = tmp_path / "pager", tmp_path / "paged"
    pager.write_text(f"#!/bin/sh\nprintenv LESS > {paged}\ncat >> {paged}\n")
    pager.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k != "LESS"}
    environment |= {"GROVEFS_HOME": str(filled), "PAGER": str(pager), "TERM": "xterm-256color"}
    leader, follower = pty.openpty()
    code = "from fusefs.cli import main; main()"
    process = subprocess.run(
        [sys.executable, "-c", code, *command], env=environment, stdin=follower, stdout=follower, timeout=60
    )
    os.close(follower)
    os.close(leader)
    assert process.returncode == 0
    assert paged.read_text().startswith("FRX\n")
    assert "the certificate expired" in paged.read_text()
