"""TAB: commands, options, sessions by id and title, and files, in the words each shell asks with."""

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
    """What bash would be offered for the last word."""
    said = {"_GROVEFS_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return _ask(home, said)


def _ask(home: Path, said: dict[str, str]) -> list[str]:
    environment = {**os.environ, "GROVEFS_HOME": str(home), **said}
    result = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout.splitlines()


def offers(home: Path, word: str) -> list[str]:
    """For a session's name, in a shell that quotes by itself."""
    return [
        value for value, _ in completion.sessions(cast(typer.Context, SimpleNamespace(params={"home": home})), word)
    ]


def test_commands_options_and_sessions_are_offered(home: Path) -> None:
    assert bash(home, "grovefs", "backu") == ["backup"]
    assert bash(home, "grovefs", "backup", "--k") == ["--keep-deleted"]
    assert bash(home.parent / "nowhere", "grovefs", "rm", "--home", str(home), "other", "fi") == ["fix-login"]


def test_sessions_are_offered_by_id(home: Path) -> None:
    assert set(offers(home, "")) == {"fix-login", "look", "other"}
    assert offers(home, "fix") == ["fix-login"]
    assert offers(home, "lo") == ["look"]
    assert offers(home, "fix-login/") == ["fix-login/look"]
    assert offers(home, "fix-login/x") == []


def test_sessions_are_offered_by_title_where_no_id_begins_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bash quotes nothing by itself, but inside quotes nothing is to be quoted."""
    assert offers(home, "Fix the") == offers(home, "Fix") == ["Fix the login: it's $broken"]
    monkeypatch.setenv("_GROVEFS_COMPLETE", "complete_bash")
    assert offers(home, "Fix") == ["Fix\\ the\\ login:\\ it\\'s\\ \\$broken"]
    assert offers(home, "Fix the") == ["Fix the login: it's $broken"]


def test_a_few_are_offered_the_newest_first(tmp_path: Path) -> None:
    with Store.open(tmp_path / "many", background=False, durability="normal") as store:
        for number in range(completion.MOST + 10):
            store.save(make_session(f"s{number:03}", messages=0))
    found = offers(tmp_path / "many", "s")
    assert (len(found), found[0]) == (completion.MOST, f"s{completion.MOST + 9:03}")


def test_zsh_and_fish_show_the_titles_beside_the_ids(home: Path) -> None:
    fish = {
        "_GROVEFS_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": "grovefs show o",
    }
    assert _ask(home, fish) == ["other\tÜber 漢字"]
    zsh = {"_GROVEFS_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "grovefs show o"}
    assert _ask(home, zsh) == ['_arguments \'*: :(("other":"Über 漢字"))\'']


def test_files_are_left_to_the_shell(home: Path) -> None:
    """No offer of ours: then it offers its own."""
    assert bash(home, "grovefs", "backup", "/t") in ([], [""])
    assert bash(home, "grovefs", "ls", "--home", "/t") in ([], [""])


@pytest.mark.parametrize("trouble", ["absent", "damaged"])
def test_a_home_in_trouble_says_nothing(tmp_path: Path, home: Path, trouble: str) -> None:
    if trouble == "absent":
        home = tmp_path / "nowhere"
    else:
        (home / ".grovefs/index.db").write_bytes(b"no database" * 1000)
    assert offers(home, "f") == []
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_each_shell_can_be_had(home: Path, shell: str) -> None:
    said = _ask(home, {"_GROVEFS_COMPLETE": f"source_{shell}"})
    assert any("_GROVEFS_COMPLETE=complete_" + shell in line for line in said)


def test_bash_itself_offers_it(home: Path, tmp_path: Path) -> None:
    """The real script in a real bash, with a command of that name on the PATH."""
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
