"""Shell completion of commands, options, sessions and files, in the protocol of each shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import typer

from fusefs.cli import completion
from store import Session, Store
from tests.builders import make_session

CODE = "import sys; sys.argv[0] = 'grovefs'; from fusefs.cli import main; main()"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "home", background=False) as store:
        root = make_session("fix-login", title="Fix the login: it's $broken")
        store.save(root)
        store.save(Session.new_child_of("look", root, "m", "Look around"))
        store.save(make_session("other", title="Über 漢字"))
    return tmp_path / "home"


def bash(home: Path, *words: str) -> list[str]:
    """Candidates that bash gets for the last word."""
    request = {"_GROVEFS_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return _ask(home, request)


def _ask(home: Path, request: dict[str, str]) -> list[str]:
    environment = {**os.environ, "GROVEFS_HOME": str(home), **request}
    result = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout.splitlines()


def candidates(home: Path, word: str) -> list[str]:
    """Candidates for a session name, in a shell that quotes them itself."""
    return [
        value for value, _ in completion.sessions(cast(typer.Context, SimpleNamespace(params={"home": home})), word)
    ]


def test_commands_options_and_sessions_are_completed(home: Path) -> None:
    assert bash(home, "grovefs", "backu") == ["backup"]
    assert bash(home, "grovefs", "backup", "--k") == ["--keep-deleted"]
    assert bash(home.parent / "nowhere", "grovefs", "rm", "--home", str(home), "other", "fi") == ["fix-login"]


def test_commands_that_take_a_version_complete_sessions(home: Path) -> None:
    """Before the @."""
    for command in ("log", "diff", "revert", "show"):
        assert bash(home, "grovefs", command, "fi") == ["fix-login"], command
    assert bash(home, "grovefs", "undo", "--since", "1h", "fi") == ["fix-login"]


def test_sessions_are_completed_by_id(home: Path) -> None:
    assert set(candidates(home, "")) == {"fix-login", "look", "other"}
    assert candidates(home, "fix") == ["fix-login"]
    assert candidates(home, "lo") == ["look"]
    assert candidates(home, "fix-login/") == ["fix-login/look"]
    assert candidates(home, "fix-login/x") == []


def test_titles_are_completed_if_no_id_matches(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For bash they are escaped, unless the word is quoted."""
    assert candidates(home, "Fix the") == candidates(home, "Fix") == ["Fix the login: it's $broken"]
    monkeypatch.setenv("_GROVEFS_COMPLETE", "complete_bash")
    assert candidates(home, "Fix") == ["Fix\\ the\\ login:\\ it\\'s\\ \\$broken"]
    assert candidates(home, "Fix the") == ["Fix the login: it's $broken"]


def test_the_number_of_candidates_is_limited_newest_first(tmp_path: Path) -> None:
    with Store.open(tmp_path / "many", background=False, durability="normal") as store:
        for number in range(completion.MAX_CANDIDATES + 10):
            store.save(make_session(f"s{number:03}", messages=0))
    found = candidates(tmp_path / "many", "s")
    assert (len(found), found[0]) == (completion.MAX_CANDIDATES, f"s{completion.MAX_CANDIDATES + 9:03}")


def test_zsh_and_fish_show_titles_with_ids(home: Path) -> None:
    fish = {
        "_GROVEFS_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": "grovefs show o",
    }
    assert _ask(home, fish) == ["other\tÜber 漢字"]
    zsh = {"_GROVEFS_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "grovefs show o"}
    assert _ask(home, zsh) == ['_arguments \'*: :(("other":"Über 漢字"))\'']


def test_file_names_are_completed_by_the_shell(home: Path) -> None:
    """Without candidates from us the shell completes file names."""
    assert bash(home, "grovefs", "backup", "/t") in ([], [""])
    assert bash(home, "grovefs", "ls", "--home", "/t") in ([], [""])


@pytest.mark.parametrize("state", ["absent", "damaged"])
def test_missing_or_damaged_home_completes_nothing(tmp_path: Path, home: Path, state: str) -> None:
    if state == "absent":
        home = tmp_path / "nowhere"
    else:
        (home / ".grovefs/index.db").write_bytes(b"no database" * 1000)
    assert candidates(home, "f") == []
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_each_shell_has_a_completion_script(home: Path, shell: str) -> None:
    script = _ask(home, {"_GROVEFS_COMPLETE": f"source_{shell}"})
    assert any("_GROVEFS_COMPLETE=complete_" + shell in line for line in script)


def test_completion_works_in_a_real_bash(home: Path, tmp_path: Path) -> None:
    """The generated script runs in bash with a `grovefs` command on the PATH."""
    command = tmp_path / "bin/grovefs"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{CODE}" "$@"\n')
    command.chmod(0o755)
    script = tmp_path / "script"
    script.write_text("\n".join(_ask(home, {"_GROVEFS_COMPLETE": "source_bash"})))
    program = f"""
        source {script}
        COMP_WORDS=(grovefs show fix) COMP_CWORD=2
        _grovefs_completion grovefs fix show
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "GROVEFS_HOME": str(home)}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    result = subprocess.run(["bash", "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == ("fix-login\n", "")
