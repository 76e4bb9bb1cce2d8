"""grovefs mount --install-unit: a valid systemd user unit."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.cli import systemd_unit
from fusefs.cli.commands.mount import _notify_systemd
from store import Conflict, InvalidName
from store.errors import StoreError

ODD = 'with space, 100% $HOME "quoted" back\\slash; 漢字 -dash'
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config/systemd/user"


def grovefs(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fusefs.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def unquoted(line: str) -> list[str]:
    """Parse a command line as in systemd.service(5): quotes and C escapes, then %% and $$."""
    words = shlex.split(line.replace("\\n", "\n").replace("\\t", "\t"))
    return [word.replace("$$", "$").replace("%%", "%") for word in words]


@given(WORDS)
def test_quoted_words_are_parsed_back(word: str) -> None:
    assert unquoted(systemd_unit.quote(word)) == [word]


@given(st.lists(WORDS.filter(lambda name: "/" not in name and name not in (".", "..")), max_size=4))
def test_unit_names_are_unique(names: list[str]) -> None:
    """A name can be unescaped to its path, as by systemd-escape --unescape."""
    path = Path("/", *names)
    plain = systemd_unit.escape_path(path).encode().replace(b"-", b"/").decode("unicode_escape").encode("latin-1")
    assert plain.decode().strip("/") == str(path).strip("/")


@pytest.mark.parametrize("path", ["/", "/mnt", "/home/ada/my grove", "/a-b/.c/d.e", "/漢字/x:y_z"])
def test_names_match_systemd_escape(path: str) -> None:
    expected = subprocess.run(
        ["systemd-escape", "--path", path], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert systemd_unit.escape_path(Path(path)) == expected


def test_unit_has_the_given_home_and_options(tmp_path: Path, config: Path) -> None:
    home, mountpoint = tmp_path / f"home {ODD}", tmp_path / ODD
    mountpoint.mkdir()
    result = grovefs("mount", "--install-unit", "--read-only", "--durability", "normal", "--home", home, mountpoint)
    assert result.returncode == 0, result.stderr
    [path] = config.iterdir()
    assert path.name == systemd_unit.unit_name(mountpoint)
    lines = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line and line[0] != "#")
    assert unquoted(lines["ExecStart"]) == [
        *[sys.executable, "-m", "fusefs.cli", "mount", "--foreground", "--home", str(home)],
        *["--read-only", "--durability", "normal", str(mountpoint)],
    ]
    assert unquoted(lines["ExecStop"])[-2:] == ["umount", str(mountpoint)]
    assert (lines["Type"], lines["Restart"], lines["WantedBy"]) == ("notify", "on-failure", "default.target")
    assert f"systemctl --user enable --now {shlex.quote(path.name)}" in result.stdout
    assert "loginctl enable-linger" in result.stdout
    assert str(path) in result.stdout
    assert not home.exists()


def test_systemd_accepts_the_unit(tmp_path: Path, config: Path) -> None:
    mountpoint = tmp_path / ODD
    mountpoint.mkdir()
    grovefs("mount", "--install-unit", "--home", tmp_path / "home", mountpoint)
    [path] = config.iterdir()
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    command = ["systemd-analyze", "verify", "--user", "--man=no", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert path.name not in result.stderr, result.stderr
    path.write_text(path.read_text().replace("Type=notify", "Typ=notify"))
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert path.name in result.stderr  # the check does find errors


def test_unit_edited_by_hand_is_not_replaced(tmp_path: Path, config: Path) -> None:
    mountpoint = tmp_path / "mnt"
    mountpoint.mkdir()
    first = systemd_unit.render(["/bin/grovefs"], [], tmp_path / "home", mountpoint)
    name = systemd_unit.unit_name(mountpoint)
    assert systemd_unit.install(name, first, force=False) == (config / name, "written")
    assert systemd_unit.install(name, first, force=False) == (config / name, "unchanged")
    other = systemd_unit.render(["/bin/grovefs"], ["--read-only"], tmp_path / "home", mountpoint)
    assert systemd_unit.install(name, other, force=False) == (config / name, "written")
    (config / name).write_text(other.replace("RestartSec=2", "RestartSec=60"))
    with pytest.raises(Conflict, match="by hand"):
        systemd_unit.install(name, first, force=False)
    assert "RestartSec=60" in (config / name).read_text()
    assert systemd_unit.install(name, first, force=True) == (config / name, "written")
    assert [path.name for path in config.iterdir()] == [name]


def test_invalid_paths_are_rejected(tmp_path: Path) -> None:
    for word in ("bell\a", os.fsdecode(b"\xff")):
        with pytest.raises(InvalidName):
            systemd_unit.quote(word)
    with pytest.raises(StoreError, match="too long"):
        systemd_unit.unit_name(Path("/" + "x" * 300))
    result = grovefs("mount", "--install-unit", "--home", tmp_path / "home", tmp_path / "absent/absent")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "does not exist" in result.stderr
    (tmp_path / "home/mnt").mkdir(parents=True)
    assert "is inside" in grovefs("mount", "--install-unit", "--home", tmp_path / "home", tmp_path / "home/mnt").stderr


def test_readiness_is_reported_to_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _notify_systemd()  # not started by systemd: does nothing
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        _notify_systemd()
        assert listener.recv(100) == b"READY=1"
