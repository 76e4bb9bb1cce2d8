"""`grovefs status` and `grovefs schema`."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest

from fusefs.cli.commands.status import iter_mounts
from store import Message, Store, Timestamp, layout
from store.history.database import HistoryDatabase
from tests.builders import make_session
from tests.fusefs.cli.commands.test_modify import run


def test_grovefs_mounts_are_found_among_others(tmp_path: Path) -> None:
    """In the format of proc(5): spaces and backslashes are octal escapes."""
    place = tmp_path / "my mount\\x"
    place.mkdir()
    escaped = str(place).replace("\\", "\\134").replace(" ", "\\040")
    text = (
        f"36 35 98:0 / / rw,noatime master:1 - ext4 /dev/root rw\n"
        f"40 36 0:50 / {escaped} ro,nosuid shared:7 - fuse.grovefs grovefs ro,user_id=0\n"
        f"41 36 0:51 / {tmp_path} rw - fuse.sshfs grovefs rw\n"
    )
    (mount,) = iter_mounts(text.encode())
    assert (mount.mountpoint, mount.read_only, mount.state) == (place, True, "mounted")


def test_dead_mount_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(place: object) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(os, "stat", stat)
    (mount,) = iter_mounts(b"40 36 0:50 / /mnt/x rw - fuse.grovefs grovefs rw\n")
    assert mount.state == "dead"


def test_home_is_described(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session("one"))
        store.save(make_session("two"))
        store.delete("two")
    state = json.loads(run(home, "status", "--json").stdout)["home"]
    assert (state["sessions"], state["in_trash"], state["damaged"]) == (1, 1, {})
    assert "1 session, 1 deletion in the trash" in run(home, "status").stdout


def test_times_of_the_history_are_text(home: Path) -> None:
    """As everywhere else: jq rounds integers above 2**53."""
    with Store.open(home, background=False) as store:
        store.save(make_session("one"))
        oldest_ns = store.history.state().oldest_ns
        assert oldest_ns is not None
    for command, member in ((["status"], "home"), (["history", "size"], None)):
        shown = json.loads(run(home, *command, "--json").stdout)
        history = shown[member]["history"] if member else shown
        assert Timestamp(history["oldest"]).ns == oldest_ns
        assert history["since"] is None
        assert not [name for name in history if name.endswith("_ns")]


def test_a_locked_history_is_shown(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session("one"))
    other = HistoryDatabase(home / layout.HISTORY_DB)
    with other.write():
        size, status = run(home, "history", "size"), run(home, "status")
    other.close()
    assert size.returncode == 1
    assert "versions are not being kept: " in size.stdout
    assert "versions are NOT KEPT: " in status.stdout
    assert "is locked by another process; saves still work; remove the cause" in status.stdout
    assert run(home, "history", "size").returncode == 0
    assert "NOT KEPT" not in run(home, "status").stdout


def test_versions_that_are_missing_are_shown(home: Path) -> None:
    """Another process could not record them, and nothing has caught up since."""
    with Store.open(home, background=False) as store:
        store.save(make_session("one"))
        store._core.history._retry_at = time.monotonic() + 1000
        store.append("one", [Message.user("missed")])
    assert "the last version of 1 file is not recorded yet" in run(home, "status").stdout


def test_a_damaged_history_that_was_set_aside_is_shown(home: Path) -> None:
    """By status, size and check, until the file is deleted."""
    with Store.open(home, background=False) as store:
        store.save(make_session("one"))
    (home / layout.HISTORY_DB).write_bytes(b"damaged" * 1000)
    run(home, "append", "one", "more")
    [aside] = (home / ".grovefs").glob("history.db.corrupt-*[0-9]")
    for command in (["status"], ["history", "size"], ["check"]):
        result = run(home, *command)
        assert aside.name in result.stdout + result.stderr, command
        assert "delete" in result.stdout + result.stderr
        assert result.returncode == 0
    assert json.loads(run(home, "status", "--json").stdout)["home"]["history"]["set_aside"] == [aside.name]
    aside.unlink()
    assert aside.name not in run(home, "status").stdout


def test_damage_sets_the_exit_code(home: Path, tmp_path: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session("one"))
    (home / "sessions/one/session.json").write_text("{")
    run(home, "rebuild")
    result = run(home, "status")
    assert result.returncode == 1
    assert "DAMAGED  one: sessions/one/session.json" in result.stdout
    missing = run(tmp_path / "nowhere", "status")
    assert missing.returncode == 1
    assert "there is no home" in missing.stdout
    assert not (tmp_path / "nowhere").exists()


def test_schemas_are_json_schemas(home: Path) -> None:
    assert "messages" in json.loads(run(home, "schema").stdout)["properties"]
    assert "role" in json.loads(run(home, "schema", "message").stdout)["properties"]
    assert run(home, "schema", "everything").returncode == 2
