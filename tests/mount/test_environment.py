"""Missing prerequisites and failing disks: a clear error, no hang, no data loss."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from store import Store
from tests.builders import make_session
from tests.mount.conftest import CODE, Mount, daemons_of, grovefs, wait_until
from tests.mount.test_basics import edit, title
from tests.torture.places import FailingDisk, failing_disk

MountHome = Callable[..., Mount]


# -- missing prerequisites -------------------------------------------------------------------------------------


def command(*arguments: str | Path) -> str:
    return shlex.join([sys.executable, "-c", CODE, *map(str, arguments)])


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one-line error of a mount that fails."""
    assert result.returncode == 1, result
    assert result.stdout == ""
    assert result.stderr.startswith("grovefs: ")
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr


def with_own_dev(prepare: str, work: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a mount namespace with a prepared /dev."""
    script = f"mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 && {prepare} && {work}"
    return subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60)


def test_programs_whose_session_began_outside_of_the_container_are_related(filled: Path, place: Path) -> None:
    """In a container entered from outside, getsid(2) is 0 for everybody: jq has read, cp saves what it made of it."""
    (place / "mnt").mkdir()
    document, edited = place / "mnt/sessions/root/session.json", place / "edited.json"
    script = f"""
        {command("mount", "--home", filled, place / "mnt")}
        for title in first second; do
            jq --arg title $title '.title = $title' {document} > {edited}
            cp {edited} {document}
        done
        jq -r .title {document}
        {command("umount", place / "mnt")}
    """
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "bash", "-c", script]
    result = subprocess.run(inside, capture_output=True, text=True, timeout=120)
    assert "second" in result.stdout.splitlines(), result


def test_missing_dev_fuse_is_a_one_line_error(filled: Path, place: Path) -> None:
    (place / "mnt").mkdir()
    result = with_own_dev("true", command("mount", "--home", filled, place / "mnt"))
    assert "/dev/fuse does not exist" in one_line(result)
    assert not daemons_of(place / "mnt")


@pytest.mark.parametrize("options", [(), ("--foreground",)])
def test_mount_denied_by_the_kernel_is_a_one_line_error(filled: Path, place: Path, options: tuple[str]) -> None:
    """libfuse's message is part of the error, not printed separately."""
    (place / "mnt").mkdir()
    result = with_own_dev("touch /dev/fuse", command("mount", *options, "--home", filled, place / "mnt"))
    assert "mnt could not be mounted: " in one_line(result)
    assert "fuse" in result.stderr
    assert not daemons_of(place / "mnt")
    with Store.open(filled, background=False) as store:
        assert store.check().is_clean


def test_missing_fusermount_is_a_one_line_error(filled: Path, place: Path, mount_home: MountHome) -> None:
    (place / "mnt").mkdir()
    made = mount_home(filled)
    commands: list[list[str | Path]] = [["mount", "--home", filled, place / "mnt"], ["umount", made.path]]
    for arguments in commands:
        result = grovefs(*arguments, env={**os.environ, "PATH": str(place)})
        assert one_line(result) == "grovefs: fusermount3 is missing: install the package fuse3\n"


def test_mountpoint_in_use_by_another_mount_is_a_one_line_error(filled: Path, place: Path) -> None:
    (place / "mnt").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place / "mnt"], check=True)
    try:
        assert "is already mounted" in one_line(grovefs("mount", "--home", filled, place / "mnt"))
    finally:
        subprocess.run(["umount", place / "mnt"], check=True)


# -- failing disks -----------------------------------------------------------------------------------------


@pytest.fixture
def disk(place: Path) -> Iterator[FailingDisk]:
    with failing_disk(place) as made:
        yield made


def ended(mount: Mount) -> None:
    assert grovefs("umount", mount.path).returncode == 0
    wait_until(lambda: not daemons_of(mount.path))


def change_errnos(sessions: Path) -> dict[str, int | None]:
    """The errno of each kind of change; None for success."""
    path = sessions / "one/session.json"
    changes: dict[str, Callable[[], object]] = {
        "save": lambda: path.write_bytes(path.read_bytes().replace(b"Before", b"After!")),
        "truncate": lambda: os.truncate(path, 0),
        "delete": path.unlink,
        "create": lambda: (sessions / "one/notes").write_text("text"),
        "attach": lambda: (sessions / "one/attachments/new.txt").write_text("text"),
        "mkdir": lambda: (sessions / "two").mkdir(),
        "rename": lambda: (sessions / "one").rename(sessions / "two"),
        "touch": lambda: os.utime(path),
    }
    answers: dict[str, int | None] = {}
    for name, change in changes.items():
        answers[name] = None
        try:
            change()
        except OSError as error:
            answers[name] = error.errno
    return answers


def test_home_that_becomes_read_only(disk: FailingDisk, mount_home: MountHome) -> None:
    """Every change fails with EROFS, reading works, the daemon survives, and writing works again afterwards."""
    with Store.open(disk.path / "home", background=False) as store:
        store.save(make_session("one", messages=3, title="Before"))
        store.attach("one", b"bytes", "text/plain")
    os.sync()
    mount = mount_home(disk.path / "home", "--limbo-seconds", "0.5")
    try:
        path = mount.sessions / "one/session.json"
        before, info = path.read_bytes(), path.stat()
        disk.fail()
        assert set(change_errnos(mount.sessions).values()) == {errno.EROFS}, change_errnos(mount.sessions)
        assert path.read_bytes() == before
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (info.st_size, info.st_mtime_ns)
        assert title(path) == "Before"
        assert os.listdir(mount.sessions) == ["one"]
        assert "Before" in (mount.path / "sessions.json").read_text()
        assert len(daemons_of(mount.path)) == 1
    finally:
        ended(mount)
    disk.replace_disk()
    again = mount_home(disk.path / "home")
    try:
        assert (again.sessions / "one/session.json").read_bytes() == before
        edit(again.sessions / "one/session.json", "Before", "After")
        with again.store() as store:
            assert store.search("After")
            assert store.check().is_clean
    finally:
        ended(again)


def test_home_that_is_removed(mount_home: MountHome, filled: Path) -> None:
    """Operations fail without hanging; the daemon survives and can be unmounted."""
    mount = mount_home(filled)
    path = mount.sessions / "root/session.json"
    with path.open() as reader:
        subprocess.run(["rm", "-r", filled], check=True)
        assert '"The root"' in reader.read()  # open files stay readable
    wait_until(lambda: not path.exists())
    assert set(change_errnos(mount.sessions).values()) <= {errno.ENOENT, errno.EIO}
    for file in ("sessions.json", ".grovefs/status.json", "README.md", "views/by-title", "transcripts"):
        with suppress(OSError):
            (mount.path / file).read_bytes()
    assert "grove" in (mount.path / "README.md").read_text()
    assert len(daemons_of(mount.path)) == 1
    ended(mount)
    assert not filled.exists()
