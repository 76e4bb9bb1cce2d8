"""The kernel's end of a mount, from outside: whether a daemon is at the other end, and how to cut it.

A daemon that was killed may leave a thread behind that waits, in the kernel, for a lock whose holder waits for the
daemon; neither can be killed, and the connection stays open. Only cutting it lets both go: who waits gets an error,
and the mountpoint is as dead as after any other kill. Nothing here waits for an answer of the mount itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

State = Literal["mounted", "dead", "silent"]  # dead: its daemon is gone; silent: it does not answer

MOUNTINFO = Path("/proc/self/mountinfo")
CONNECTIONS = Path("/sys/fs/fuse/connections")  # fusectl, mounted there by systemd
ANSWER_S = 5.0  # a daemon under load may take a while

_OCTAL = re.compile(rb"\\([0-7]{3})")
_TYPE = b"fuse.grovefs"
_MNT_FORCE, _UMOUNT_NOFOLLOW = 1, 8  # umount(2)
_GONE = (errno.ENOTCONN, errno.ECONNABORTED)


class Mounted(NamedTuple):
    mountpoint: Path
    number: int  # of the connection, and of the device that stat(2) tells
    read_only: bool


def iter_mounted(mountinfo: bytes | None = None) -> Iterator[Mounted]:
    """Ours, as the text of a mountinfo has them, see proc(5)."""
    for line in (mountinfo if mountinfo is not None else MOUNTINFO.read_bytes()).splitlines():
        before, _, after = line.partition(b" - ")
        fields = before.split()
        if after.split()[:1] != [_TYPE] or len(fields) < 6:
            continue
        place = Path(os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), fields[4])))
        yield Mounted(place, int(fields[2].partition(b":")[2]), b"ro" in fields[5].split(b","))


def find_number(mountpoint: Path) -> int | None:
    found = [mounted.number for mounted in iter_mounted() if mounted.mountpoint == mountpoint]
    return found[-1] if found else None  # the last lies on top


# -- whether someone is there --------------------------------------------------------------------------------------


def state_of(mountpoint: Path) -> State:
    """Asked in a thread of its own: a daemon that hangs must not hang who wants to know."""
    if daemon_is_dead(mountpoint):
        return "dead"
    answers: list[State] = []
    asking = threading.Thread(target=lambda: answers.append(_ask(mountpoint)), daemon=True)
    asking.start()
    asking.join(ANSWER_S)
    return answers[0] if answers else "silent"


def _ask(mountpoint: Path) -> State:
    """After kill -9 of a daemon its mountpoint answers ENOTCONN until it is unmounted; while it dies, ECONNABORTED."""
    try:
        os.stat(mountpoint)
    except OSError as error:
        return "dead" if error.errno in _GONE else "mounted"
    return "mounted"


def daemon_is_dead(mountpoint: Path) -> bool:
    """Whether the daemon was killed and cannot end: the kernel may answer for it from memory, or not at all."""
    number = find_number(mountpoint)
    return number is not None and any(_serves(task, mountpoint, number) for task in _iter_zombies())


def _iter_zombies() -> Iterator[Path]:
    """Threads whose process is dead, though they are not."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and is_zombie_with_threads(int(process.name)):
            try:
                yield from [task for task in (process / "task").iterdir() if task.name != process.name]
            except OSError:
                continue  # gone now


def is_zombie_with_threads(pid: int) -> bool:
    """Whether a process is dead, but for some of its threads."""
    state, threads = _state_and_threads(pid)
    return state == "Z" and threads > 1


def is_gone(pid: int) -> bool:
    """Whether no thread of a process is left; its parent may not have been told yet."""
    state, threads = _state_and_threads(pid)
    return state in "XZ" and threads <= 1


def _state_and_threads(pid: int) -> tuple[str, int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[17])
    except (OSError, IndexError):
        return "X", 0


def _serves(task: Path, mountpoint: Path, number: int) -> bool:
    """By the connection, where the kernel tells it (since 6.18), else by the command that was given."""
    try:
        held = [link.name for link in (task / "fd").iterdir() if os.readlink(link) == "/dev/fuse"]
        told = [(task / "fdinfo" / name).read_bytes() for name in held]
        said = (task / "cmdline").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone
        return False
    known = [int(match[1]) for text in told if (match := re.search(rb"^fuse_connection:\s*(\d+)", text, re.M))]
    return number in known if known else bool(held) and os.fsencode(mountpoint) in said


# -- cutting it ----------------------------------------------------------------------------------------------------


def abort(mountpoint: Path, number: int) -> bool:
    """Let go of all who wait for the daemon; what is mounted stays, dead. False if we may not."""
    try:
        (CONNECTIONS / str(number) / "abort").write_bytes(b"1")
    except OSError:  # fusectl is not mounted here, or this is another's
        return find_number(mountpoint) == number and _force(mountpoint)
    return True


def _force(mountpoint: Path) -> bool:
    """By umount(2), which only root may; it would be unmounted too, were it not in use meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = os.open(mountpoint, os.O_PATH | os.O_DIRECTORY)  # asks the daemon nothing
    except OSError:
        return False
    try:
        done = libc.umount2(os.fsencode(mountpoint), _MNT_FORCE | _UMOUNT_NOFOLLOW) == 0
        return done or ctypes.get_errno() == errno.EBUSY
    finally:
        os.close(fd)
