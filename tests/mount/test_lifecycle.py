"""Lifecycle of the daemon: start, stop, kill, rejected mounts, and survival of errors."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from store import Store
from store.index.database import Database
from tests.builders import make_session
from tests.mount.conftest import CODE, Mount, daemons_of, grovefs, wait_until
from tests.mount.test_basics import edit, title
from tests.store.transfer.foreign import CLAUDE_ID, make_claude

MountHome = Callable[..., Mount]


def is_clean(home: Path) -> bool:
    """Whether the last process that had the home open closed it cleanly."""
    database = Database(home / ".grovefs/index.db")
    try:
        return bool(database.get_meta("clean", 0) == 1)
    finally:
        database.close()


def daemon_of(mount: Mount) -> int:
    (pid,) = daemons_of(mount.path)
    return pid


def signal_daemon(mount: Mount, number: signal.Signals) -> None:
    """Send a signal to the daemon of a mount and wait until it has exited."""
    os.kill(daemon_of(mount), number)
    wait_until(lambda: not daemons_of(mount.path))


@contextmanager
def in_foreground(
    home: Path, mountpoint: Path, *options: str, program: str = CODE
) -> Iterator[subprocess.Popen[bytes]]:
    """`grovefs mount --foreground`, ready; terminated at the end if it still runs."""
    arguments = ["mount", "--foreground", "--home", str(home), *options, str(mountpoint)]
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: os.path.ismount(mountpoint) or process.poll() is not None)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=10)


# -- start and stop -------------------------------------------------------------------------------------------


def test_mount_returns_when_ready_and_continues_in_the_background(filled: Path, mount_home: MountHome) -> None:
    """The mount is usable when the command returns; the daemon has its own process session and no terminal."""
    mount = mount_home(filled)
    assert title(mount.sessions / "root/session.json") == "The root"
    pid = daemon_of(mount)
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_umount_ends_the_daemon_and_leaves_a_clean_home(filled: Path, mount_home: MountHome) -> None:
    mount = mount_home(filled)
    edit(mount.sessions / "root/session.json", '"The root"', '"Edited"')
    result = grovefs("umount", mount.path)
    assert (result.returncode, result.stderr) == (0, "")
    assert not daemons_of(mount.path), "the home may be copied right after the command"
    assert not os.path.ismount(mount.path)
    assert is_clean(filled)
    assert json.loads((filled / "sessions.json").read_bytes())["sessions"]["root"]["title"] == "Edited"


def test_umount_of_an_unmounted_directory_fails(place: Path) -> None:
    result = grovefs("umount", place)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert str(place) in result.stderr


def test_umount_of_a_busy_mount_fails(mounted: Mount) -> None:
    with (mounted.sessions / "root/session.json").open():
        result = grovefs("umount", mounted.path)
    assert result.returncode == 1
    assert "is in use by" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert title(mounted.sessions / "root/session.json") == "The root"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_unmounts_in_the_background(filled: Path, mount_home: MountHome, number: signal.Signals) -> None:
    mount = mount_home(filled)
    edit(mount.sessions / "root/session.json", '"The root"', '"Edited"')
    signal_daemon(mount, number)
    assert not os.path.ismount(mount.path)
    assert is_clean(filled)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_foreground_with_exit_code_0(filled: Path, place: Path, number: signal.Signals) -> None:
    """Also with open files; a write that was not closed is not committed."""
    mountpoint = place / "mnt"
    mountpoint.mkdir()
    with in_foreground(filled, mountpoint) as process:
        assert title(mountpoint / "sessions/root/session.json") == "The root"
        assert process.poll() is None
        fd = os.open(mountpoint / "sessions/root/session.json", os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b"half")
        process.send_signal(number)
        assert process.wait(10) == 0
        with pytest.raises(OSError, match=r".") as gone:
            os.close(fd)
        assert gone.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    assert not os.path.ismount(mountpoint)
    assert is_clean(filled)
    with Store.open(filled, background=False) as store:
        assert store.check().is_clean


def test_sigquit_logs_what_each_thread_does(place: Path) -> None:
    """Also in a home that did not exist before, whose log is opened late. The mount goes on."""
    home, mountpoint = place / "new", place / "mnt"
    log = home / ".grovefs/mount.log"
    assert grovefs("mount", "--home", home, mountpoint).returncode == 0
    try:
        for number in (1, 2):
            os.kill(daemons_of(mountpoint)[0], signal.SIGQUIT)
            wait_until(lambda number=number: log.read_text().count("in serve") == number)  # type: ignore[misc]
            assert os.listdir(mountpoint / "sessions") == []
    finally:
        assert grovefs("umount", mountpoint).returncode == 0


def test_next_mount_clears_a_killed_mount_and_recovers(filled: Path, mount_home: MountHome) -> None:
    """Rule 2: closed writes are saved; unclosed ones are not and leave nothing."""
    mount = mount_home(filled)
    edit(mount.sessions / "root/session.json", '"The root"', '"Closed in time"')
    fd = os.open(mount.sessions / "root/session.json", os.O_WRONLY | os.O_TRUNC)
    os.write(fd, b"half")
    signal_daemon(mount, signal.SIGKILL)
    try:  # with the descriptor of the dead mount still open
        result = grovefs("mount", "--home", filled, "--log-file", mount.log, mount.path)
    finally:
        with pytest.raises(OSError, match=r"."):
            os.close(fd)
    assert result.returncode == 0, result.stderr
    assert title(mount.sessions / "root/session.json") == "Closed in time"
    assert not list((filled / ".grovefs/tmp").iterdir())
    edit(mount.sessions / "root/session.json", '"Closed in time"', '"Again"')
    with mount.store() as store:
        assert store.check().is_clean


def test_umount_clears_a_dead_mount(filled: Path, mount_home: MountHome) -> None:
    mount = mount_home(filled)
    signal_daemon(mount, signal.SIGKILL)
    result = grovefs("umount", mount.path)
    assert (result.returncode, result.stderr) == (0, "")
    assert not os.path.ismount(mount.path)


# -- rejected mounts -------------------------------------------------------------------------------------------


def refused(*arguments: str | Path) -> str:
    """The one-line error of `grovefs mount`."""
    result = grovefs("mount", *arguments)
    assert result.returncode == 1, result
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("grovefs: ")
    mountpoint = Path(arguments[-1])
    assert not os.path.ismount(mountpoint)
    assert not daemons_of(mountpoint)
    return lines[0]


def test_missing_mountpoint_is_created_but_not_its_parents(filled: Path, place: Path) -> None:
    assert "does not exist" in refused("--home", filled, place / "no/where")
    assert not (place / "no").exists()
    assert grovefs("mount", "--home", filled, place / "new").returncode == 0
    assert (place / "new/sessions/root").is_dir()
    assert grovefs("umount", place / "new").returncode == 0
    wait_until(lambda: not daemons_of(place / "new"))
    assert (place / "new").is_dir()  # it is kept


def test_created_mountpoint_is_removed_if_mounting_fails(place: Path) -> None:
    (place / "file").touch()
    refused("--home", place / "file", place / "new")
    assert not (place / "new").exists()


def test_mountpoint_that_is_a_file_is_rejected(filled: Path, place: Path) -> None:
    (place / "file").touch()
    assert "is not a directory" in refused("--home", filled, place / "file")


def test_nonempty_mountpoint_is_rejected(filled: Path, place: Path) -> None:
    (place / "mnt").mkdir()
    (place / "mnt/something").touch()
    assert "not empty" in refused("--home", filled, place / "mnt")


def test_used_mountpoint_is_rejected(mounted: Mount, place: Path) -> None:
    result = grovefs("mount", "--home", mounted.home, mounted.path)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "already mounted" in result.stderr
    assert len(daemons_of(mounted.path)) == 1
    assert title(mounted.sessions / "root/session.json") == "The root"


@pytest.mark.parametrize("where", [".", "sessions/mnt", "link"])
def test_mountpoint_inside_the_home_is_rejected(filled: Path, place: Path, where: str) -> None:
    """It would deadlock; also through a link, and for the home itself."""
    (filled / "inside").mkdir()
    (place / "link").symlink_to(filled / "inside")
    mountpoint = place / "link" if where == "link" else filled / where
    mountpoint.mkdir(exist_ok=True)
    assert "inside the home" in refused("--home", filled, mountpoint)


def test_home_that_is_not_a_directory_is_rejected(place: Path) -> None:
    (place / "mnt").mkdir()
    (place / "home").touch()
    assert str(place / "home") in refused("--home", place / "home", place / "mnt")


def test_unwritable_log_is_rejected(filled: Path, place: Path) -> None:
    (place / "mnt").mkdir()
    assert "nowhere/log" in refused("--home", filled, "--log-file", place / "nowhere/log", place / "mnt")


@contextmanager
def running_bamboo(home: Path) -> Iterator[None]:
    """A process that holds the lock of a Bamboo server."""
    program = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(home / ".session-lifecycle.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.communicate()


def test_home_in_use_by_bamboo_is_rejected(filled: Path, place: Path) -> None:
    """Except with --beside-bamboo or --read-only."""
    (place / "mnt").mkdir()
    with running_bamboo(filled):
        assert "Bamboo server is using" in refused("--home", filled, place / "mnt")
        for option in ("--read-only", "--beside-bamboo"):
            with in_foreground(filled, place / "mnt", option):
                assert title(place / "mnt/sessions/root/session.json") == "The root"


def test_bamboo_started_later_makes_writes_fail(mounted: Mount) -> None:
    """EROFS while it runs; nothing is lost, and writing works again afterwards."""
    path = mounted.sessions / "root/session.json"
    with running_bamboo(mounted.home):
        with pytest.raises(OSError, match="Read-only file system"):
            edit(path, '"The root"', '"Lost?"')
        assert title(path) == "The root"
    edit(path, '"The root"', '"Again"')


def test_status_says_why_and_how_long_a_mount_refuses_writes(mounted: Mount) -> None:
    """A stray write to sessions.json is taken for a Bamboo server: whoever made it must learn that."""
    assert "REFUSED" not in grovefs("status", "--home", mounted.home).stdout
    exported = mounted.home / "sessions.json"
    wait_until(exported.exists)
    exported.write_text(json.dumps({**json.loads(exported.read_text()), "mine": 1}))
    with pytest.raises(OSError, match="Read-only file system"):
        edit(mounted.sessions / "root/session.json", '"The root"', '"Lost?"')
    lines = grovefs("status", "--home", mounted.home).stdout.splitlines()
    line = next(line for line in lines if line.startswith(f"mounted  {mounted.path}"))
    assert "writes are REFUSED" in line
    assert re.search(r"it rewrote sessions\.json \d+ s ago; unless .* writes are accepted in \d+ s\)", line)


def test_usage_error_exits_with_2(filled: Path, place: Path) -> None:
    assert grovefs("mount", "--home", filled, "--no-such-option", place).returncode == 2
    assert grovefs("mount", "--home", filled, "--durability", "none", place).returncode == 2


# -- options -------------------------------------------------------------------------------------------------


def test_read_only_mount_changes_nothing(filled: Path, mount_home: MountHome) -> None:
    mount = mount_home(filled, "--read-only")
    path = mount.sessions / "root/session.json"
    assert title(path) == "The root"
    for change in (
        lambda: path.write_text("x"),
        lambda: os.truncate(path, 0),
        path.unlink,
        lambda: (mount.sessions / "new").mkdir(),
        lambda: (mount.sessions / "root").rename(mount.sessions / "other"),
        lambda: os.utime(path),
        lambda: path.chmod(0o600),
    ):
        with pytest.raises(OSError, match="Read-only file system"):
            change()
    assert title(path) == "The root"


@pytest.mark.parametrize("variables", [["GROVEFS_HOME", "BAMBOO_DATA_DIR"], ["BAMBOO_DATA_DIR"], []])
def test_home_is_read_from_the_environment(filled: Path, place: Path, variables: list[str]) -> None:
    """$GROVEFS_HOME, else $BAMBOO_DATA_DIR, else ~/.grovefs."""
    mountpoint = place / "mnt"
    mountpoint.mkdir()
    (place / "user").mkdir()
    (place / "user/.grovefs").symlink_to(filled)
    values = [str(filled), str(place / "other")]
    environment = {
        **{k: v for k, v in os.environ.items() if k not in ("GROVEFS_HOME", "BAMBOO_DATA_DIR")},
        "HOME": str(place / "user"),
        **dict(zip(variables, values, strict=False)),
    }
    result = grovefs("mount", "--log-file", place / "log", mountpoint, env=environment)
    assert result.returncode == 0, result.stderr
    try:
        assert sorted(os.listdir(mountpoint / "sessions")) == ["pinned", "root"]
        if not variables:
            return
        assert json.loads((mountpoint / ".grovefs/status.json").read_bytes())["home"] == str(filled)
    finally:
        assert grovefs("umount", mountpoint).returncode == 0
        wait_until(lambda: not daemons_of(mountpoint))


# -- errors the daemon survives --------------------------------------------------------------------------------

BROKEN = """
from fusefs.requests.operations import Operations

async def readlink(self, inode, ctx):
    raise ZeroDivisionError("a bug of ours")

async def expire_hidden(*arguments):
    raise ZeroDivisionError("a bug in the background")

from fusefs.requests import errnos
Operations.readlink = errnos._guard("readlink", readlink, is_request=True)
Operations.expire_hidden = errnos._guard("expire_hidden", expire_hidden, is_request=False)
from fusefs.cli import main
main()
"""


def test_exception_in_a_handler_is_eio_and_the_mount_survives(filled: Path, place: Path) -> None:
    """The traceback is in the log. An exception in a background task does not end the mount either."""
    mountpoint = place / "mnt"
    mountpoint.mkdir()
    (filled / "sessions/root/link").symlink_to("session.json")
    with in_foreground(filled, mountpoint, "--log-file", str(place / "log"), program=BROKEN) as process:
        with pytest.raises(OSError, match="Input/output error"):
            os.readlink(mountpoint / "sessions/root/link")
        log = (place / "log").read_text()
        assert "Traceback" in log
        assert "a bug of ours" in log
        wait_until(lambda: "a bug in the background" in (place / "log").read_text())
        edit(mountpoint / "sessions/root/session.json", '"The root"', '"Still alive"')
        assert title(mountpoint / "sessions/root/session.json") == "Still alive"
        assert process.poll() is None


def test_unexpected_files_in_the_home_do_no_harm(filled: Path, mount_home: MountHome) -> None:
    """A FIFO, directory, link or garbage in place of a document is an error for that document only."""
    sessions = filled / "sessions"
    for name in ("fifo", "directory", "link", "garbage"):
        (sessions / name).mkdir()
    os.mkfifo(sessions / "fifo/session.json")
    (sessions / "directory/session.json").mkdir()
    (sessions / "link/session.json").symlink_to("/etc/passwd")
    (sessions / "garbage/session.json").write_bytes(b"\xff garbage")
    (sessions / "file").write_text("no directory")
    mount = mount_home(filled)
    for name in ("fifo", "directory", "link"):
        with pytest.raises(OSError, match=r"."):
            (mount.sessions / name / "session.json").read_bytes()
    assert (mount.sessions / "garbage/session.json").read_bytes() == b"\xff garbage"
    assert (mount.sessions / "file").read_text() == "no directory"
    subprocess.run(["find", mount.path], check=True, capture_output=True)
    edit(mount.sessions / "root/session.json", '"The root"', '"Fine"')
    document = (mount.sessions / "root/session.json").read_text().replace('id": "root"', 'id": "garbage"')
    (mount.sessions / "garbage/session.json").write_text(document)
    assert title(mount.sessions / "garbage/session.json") == "Fine"


# -- visibility ----------------------------------------------------------------------------------------------


def test_two_mounts_see_each_other_within_a_second(filled: Path, mount_home: MountHome) -> None:
    here, there = mount_home(filled), mount_home(filled)
    for mount in (here, there):
        title(mount.sessions / "root/session.json")
        assert "new" not in os.listdir(mount.sessions)
    edit(here.sessions / "root/session.json", '"The root"', '"Changed"')
    wait_until(lambda: title(there.sessions / "root/session.json") == "Changed")
    assert json.loads((there.path / "sessions.json").read_bytes())["sessions"]["root"]["title"] == "Changed"
    subprocess.run(["cp", "-r", "root", "new"], cwd=there.sessions, check=True)
    wait_until(lambda: "new" in os.listdir(here.sessions))
    wait_until(lambda: (here.sessions / "new/session.json").exists())
    subprocess.run(["rm", "-r", "new"], cwd=here.sessions, check=True)
    wait_until(lambda: not (there.sessions / "new").exists())
    assert "new" not in json.loads((there.path / "sessions.json").read_bytes())["sessions"]


def test_direct_edit_of_the_home_is_visible_within_a_second(mounted: Mount) -> None:
    """By rename and in place; content, size and time."""
    seen, real = mounted.sessions / "root/session.json", mounted.home / "sessions/root/session.json"
    assert title(seen) == "The root"
    temporary = real.with_name("temporary")
    temporary.write_text(real.read_text().replace("The root", "By rename, and longer"))
    temporary.rename(real)
    wait_until(lambda: title(seen) == "By rename, and longer")
    edit(real, "By rename, and longer", "In place")
    wait_until(lambda: seen.stat().st_mtime_ns == real.stat().st_mtime_ns)
    assert title(seen) == "In place"
    assert seen.stat().st_size == real.stat().st_size
    with mounted.store() as store:
        store.maintenance.sweep()


def test_mountpoint_is_not_a_home(mount_home: MountHome, home: Path) -> None:
    """The error names the home, and `status` says which home a mount shows."""
    mount = mount_home(home)
    done = grovefs("-H", mount.path, "ls")
    assert done.returncode == 1
    assert done.stderr == f"grovefs: {mount.path} is a mount, not a home; its home is {home}\n"
    assert f"mounted  {mount.path} of {home}\n" in grovefs("-H", home, "status").stdout


# -- full disk -------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(place: Path) -> Iterator[Path]:
    """A filesystem of eight megabytes."""
    disk = place / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path, left_bytes: int) -> Path:
    """Fill a disk, leaving a little space."""
    ballast = disk / "ballast"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):  # ENOSPC, sooner or later
        while os.write(fd, bytes(4096)):
            pass
    os.ftruncate(fd, os.fstat(fd).st_size - left_bytes)
    os.close(fd)
    return ballast


def test_full_disk_can_be_read_and_freed(small_disk: Path) -> None:
    """Commands that read work, and those that delete, until there is space again. The home was opened only once."""
    home = small_disk / "home"
    with Store.open(home, background=False) as store:
        for number in range(3):
            store.save(make_session(f"s{number}", messages=4))
    fill(small_disk, 0)
    for command in (["ls"], ["show", "s1"], ["check"], ["search", "msg"], ["rm", "s0", "--yes"], ["trash"]) * 2:
        done = grovefs("-H", home, *command)
        is_gone = command[0] == "rm" and "s0" in done.stderr and "No space" not in done.stderr  # the second time
        assert done.returncode == 0 or is_gone, (command, done.stderr)
    emptied = grovefs("-H", home, "trash", "--empty", "--yes")
    assert emptied.returncode == 0, emptied.stderr
    with Store.open(home, background=False) as store:
        assert sorted(entry.id for entry in store.entries()) == ["s1", "s2"]
        assert store.check().is_clean


def test_session_is_deleted_on_a_full_disk_as_a_whole(small_disk: Path, request: pytest.FixtureRequest) -> None:
    """`rm -r` in a mount needs space for the trash. Everything can be restored, with the receipt of an import."""
    home, source = small_disk / "home", small_disk / "source"
    make_claude(source)
    with Store.open(home, background=False) as store:
        store.imports.run(str(source))
    mount_home: MountHome = request.getfixturevalue("mount_home")
    mount = mount_home(home)
    try:
        ballast = fill(small_disk, 0)
        done = subprocess.run(["rm", "-rf", mount.sessions / CLAUDE_ID], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    finally:
        assert grovefs("umount", mount.path).returncode == 0
        wait_until(lambda: not daemons_of(mount.path))
    ballast.unlink()
    restored = grovefs("-H", home, "undelete", CLAUDE_ID)
    assert restored.returncode == 0, restored.stderr
    assert (home / "sessions" / CLAUDE_ID / ".import.json").exists()


@pytest.mark.parametrize("left_bytes", [0, 200_000])
def test_full_disk_is_enospc_and_loses_nothing(
    small_disk: Path, place: Path, left_bytes: int, request: pytest.FixtureRequest
) -> None:
    """The writer gets ENOSPC, the old version is unchanged, and writing works once there is space."""
    home = small_disk / "home"
    with Store.open(home, background=False) as store:
        store.save(make_session("one", messages=4, title="Before"))
    mount_home: MountHome = request.getfixturevalue("mount_home")
    mount = mount_home(home)
    try:
        path = mount.sessions / "one/session.json"
        before, info = path.read_bytes(), path.stat()
        large = before.replace(b"msg-0", b"x" * 300_000)
        ballast = fill(small_disk, left_bytes)
        with pytest.raises(OSError, match="No space left"):
            path.write_bytes(large)
        assert path.read_bytes() == before
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (info.st_size, info.st_mtime_ns)
        temporary = path.with_name("temporary")
        with pytest.raises(OSError, match="No space left"):
            temporary.write_bytes(large)
        assert path.read_bytes() == before
        if temporary.exists():
            temporary.unlink()
        ballast.unlink()
        path.write_bytes(large)
        assert path.read_bytes() == large
        with mount.store() as store:
            assert store.check().is_clean
            assert store.search("Before")
    finally:
        assert grovefs("umount", mount.path).returncode == 0
        wait_until(lambda: not daemons_of(mount.path))


def test_d1_umount_takes_relative_paths_and_links(mounted: Mount) -> None:
    """As `grovefs mount` does; a path that names no mount is still an error."""
    link = mounted.path.with_name("link")
    link.symlink_to(mounted.path.name)
    sibling = mounted.path.with_name("other")
    sibling.mkdir()
    assert grovefs("umount", "../other", cwd=sibling).returncode == 1
    done = grovefs("umount", f"../{mounted.path.name}", cwd=sibling)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not daemons_of(mounted.path))
    assert grovefs("mount", "--home", mounted.home, "--log-file", mounted.log, mounted.path).returncode == 0
    done = grovefs("umount", link)
    assert done.returncode == 0, done.stderr


def test_d1_a_busy_umount_names_the_holder_and_offers_lazy(mounted: Mount) -> None:
    holder = subprocess.Popen(["sleep", "600"], cwd=mounted.sessions)
    try:
        done = grovefs("umount", mounted.path)
        assert done.returncode == 1
        assert f"sleep (pid {holder.pid}:" in done.stderr
        assert "--lazy" in done.stderr
        assert os.path.ismount(mounted.path)
        done = grovefs("umount", "--lazy", mounted.path)
        assert done.returncode == 0, done.stderr
        assert not os.path.ismount(mounted.path)
    finally:
        holder.kill()
        holder.wait()
