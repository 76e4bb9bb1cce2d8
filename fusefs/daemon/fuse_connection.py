"""FUSE connections of our mounts: find them, check for a living daemon, abort them.

One thread of a killed daemon may still wait in the kernel for a lock whose holder waits for the
daemon. Neither can be killed, and the connection stays open. Aborting the connection releases
both: waiting processes get an error, and the mountpoint is dead as after any other kill. Nothing
here waits for an answer of the mount itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import select
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

State = Literal["mounted", "dead", "silent"]  # dead: the daemon has ended; silent: it does not answer

MOUNTINFO = Path("/proc/self/mountinfo")
CONNECTIONS = Path("/sys/fs/fuse/connections")  # fusectl, mounted there by systemd
ANSWER_S = 5.0  # a daemon under load may take a while

_OCTAL = re.compile(rb"\\([0-7]{3})")
_TYPE = b"fuse.grovefs"
_MNT_FORCE, _UMOUNT_NOFOLLOW = 1, 8  # umount(2)
_GONE = (errno.ENOTCONN, errno.ECONNABORTED)


class Mounted(NamedTuple):
    mountpoint: Path
    number: int  # of the connection; the minor device number of stat(2)
    read_only: bool


def iter_mounted(mountinfo: bytes | None = None) -> Iterator[Mounted]:
    """Our mounts from /proc/self/mountinfo, see proc(5)."""
    for line in (mountinfo if mountinfo is not None else MOUNTINFO.read_bytes()).splitlines():
        before, _, after = line.partition(b" - ")
        fields = before.split()
        if after.split()[:1] != [_TYPE] or len(fields) < 6:
            continue
        mountpoint = Path(os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), fields[4])))
        yield Mounted(mountpoint, int(fields[2].partition(b":")[2]), b"ro" in fields[5].split(b","))


def find_mountpoint(path: Path) -> Path | None:
    """The mountpoint that a path names, also relative or through symbolic links; None if it names none.

    The mountpoint itself is never asked: its daemon may hang.
    """
    known = {mounted.mountpoint for mounted in iter_mounted()}
    absolute = Path(os.path.abspath(path))
    parent = Path(os.path.realpath(absolute.parent))
    for candidate in (absolute, parent / absolute.name, _followed(parent / absolute.name, known)):
        if candidate in known:
            return candidate
    return None


def _followed(path: Path, known: set[Path]) -> Path:
    """The target of symbolic links, followed until it is a known mountpoint."""
    for _ in range(40):  # as the kernel does
        if path in known or not path.is_symlink():
            return path
        target = path.parent / os.readlink(path)
        path = Path(os.path.realpath(target.parent)) / os.path.basename(os.path.normpath(target))
    return path


def find_number(mountpoint: Path) -> int | None:
    found = [mounted.number for mounted in iter_mounted() if mounted.mountpoint == mountpoint]
    return found[-1] if found else None  # the last one is on top


def find_daemons(mountpoint: Path) -> list[int]:
    """The processes that serve a mount and that this user may look at."""
    number = find_number(mountpoint)
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [int(entry.name) for entry in processes if number is not None and _serves(entry, mountpoint, number)]


def wait_ended(processes: Sequence[int], timeout_s: float) -> list[int]:
    """Wait until processes have ended. Returns those that have not."""
    deadline = time.monotonic() + timeout_s
    return [process for process in processes if not _wait_one(process, deadline)]


def _wait_one(process: int, deadline: float) -> bool:
    try:
        ended = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([ended], [], [], max(0.0, deadline - time.monotonic()))[0])
    finally:
        os.close(ended)


# -- checking the daemon ---------------------------------------------------------------------------


def state_of(mountpoint: Path) -> State:
    """Ask the mount in a separate thread, so a daemon that hangs does not block the caller."""
    if daemon_is_dead(mountpoint):
        return "dead"
    answers: list[State] = []
    asking = threading.Thread(target=lambda: answers.append(_ask(mountpoint)), daemon=True)
    asking.start()
    asking.join(ANSWER_S)
    return answers[0] if answers else "silent"


def _ask(mountpoint: Path) -> State:
    """Both calls answer ENOTCONN after kill -9 of the daemon until unmount, and ECONNABORTED while it ends.

    Attributes may come from the kernel's cache while a killed daemon ends. statfs never does: it waits for that end.
    """
    try:
        os.stat(mountpoint)
        os.statvfs(mountpoint)
    except OSError as error:
        return "dead" if error.errno in _GONE else "mounted"
    return "mounted"


def daemon_is_dead(mountpoint: Path) -> bool:
    """Whether the daemon was killed but cannot end. The kernel may still answer from its cache, or not at all."""
    number = find_number(mountpoint)
    return number is not None and any(_serves(task, mountpoint, number) for task in _iter_zombies())


def _iter_zombies() -> Iterator[Path]:
    """Threads that are left of killed processes."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and is_zombie_with_threads(int(process.name)):
            try:
                yield from [task for task in (process / "task").iterdir() if task.name != process.name]
            except OSError:
                continue  # ended meanwhile


def is_zombie_with_threads(pid: int) -> bool:
    """Whether a process was killed but still has threads."""
    state, threads = _state_and_threads(pid)
    return state == "Z" and threads > 1


def was_killed(pid: int) -> bool:
    """Whether a process was killed and cannot end: it has no main thread, or SIGKILL waits for that thread."""
    return is_zombie_with_threads(pid) or _has_pending_kill(pid)


def _has_pending_kill(pid: int) -> bool:
    """SigPnd of proc(5). A thread that can be killed takes the signal within microseconds."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return False
    pending = re.search(rb"^SigPnd:\s*([0-9a-f]+)", status, re.M)
    return pending is not None and bool(int(pending[1], 16) >> (signal.SIGKILL - 1) & 1)


def is_gone(pid: int) -> bool:
    """Whether a process has no threads left. It may still be a zombie."""
    state, threads = _state_and_threads(pid)
    return state in "XZ" and threads <= 1


def _state_and_threads(pid: int) -> tuple[str, int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[17])
    except (OSError, IndexError):
        return "X", 0


def _serves(task: Path, mountpoint: Path, number: int) -> bool:
    """Compare the connection number from fdinfo (Linux 6.18 and later), otherwise the command line."""
    try:
        fuse_fds = [link.name for link in (task / "fd").iterdir() if os.readlink(link) == "/dev/fuse"]
        fdinfos = [(task / "fdinfo" / name).read_bytes() for name in fuse_fds]
        command = (task / "cmdline").read_bytes().split(b"\0")
    except OSError:  # another user's process, or ended
        return False
    known = [int(match[1]) for text in fdinfos if (match := re.search(rb"^fuse_connection:\s*(\d+)", text, re.M))]
    return number in known if known else bool(fuse_fds) and os.fsencode(mountpoint) in command


# -- aborting --------------------------------------------------------------------------------------


def abort(mountpoint: Path, number: int) -> bool:
    """Abort a connection: waiting processes get errors, the mount stays, dead. False if not permitted."""
    try:
        (CONNECTIONS / str(number) / "abort").write_bytes(b"1")
    except OSError:  # fusectl is not mounted, or the connection is another user's
        return find_number(mountpoint) == number and _force_unmount(mountpoint)
    return True


def _force_unmount(mountpoint: Path) -> bool:
    """Abort with umount2(MNT_FORCE), as root. It also unmounts, unless the mount is in use (EBUSY)."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = os.open(mountpoint, os.O_PATH | os.O_DIRECTORY)  # sends no request to the daemon
    except OSError:
        return False
    try:
        done = libc.umount2(os.fsencode(mountpoint), _MNT_FORCE | _UMOUNT_NOFOLLOW) == 0
        return done or ctypes.get_errno() == errno.EBUSY
    finally:
        os.close(fd)
