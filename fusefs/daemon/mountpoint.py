"""The mountpoint: options of a mount, checks before it, unmounting.

Imports neither pyfuse3 nor the store: `grovefs umount` needs neither, and `grovefs mount` leaves its
terminal's session before it loads them.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from fusefs.daemon import fuse_connection, mount_users
from fusefs.tree.hidden_names import HIDDEN_S
from store.errors import StoreError

if TYPE_CHECKING:
    from store.commit.write_request import OnConflict
    from store.disk.disk import Durability

log = logging.getLogger("grovefs.mount")


class MountError(StoreError):
    """Mounting or unmounting failed. The text says why and what to do."""


@dataclass(frozen=True)
class MountOptions:
    home: Path
    mountpoint: Path
    read_only: bool = False
    allow_other: bool = False
    durability: Durability = "full"
    on_conflict: OnConflict = "merge"
    beside_bamboo: bool = False
    history: bool = True
    hidden_s: float = HIDDEN_S
    debug: bool = False
    profile: Path | None = None  # output file of --profile
    kernel_options: frozenset[str] = frozenset()  # such as nosuid


def check_mountpoint(options: MountOptions) -> None:
    """Raise MountError for every known reason not to mount, before any change."""
    mountpoint = options.mountpoint
    if not Path("/dev/fuse").exists():
        raise MountError(
            "/dev/fuse does not exist: load the kernel module fuse, or give the container access to the device"
        )
    _check_fusermount()
    clear_dead(mountpoint)
    check_apart(options)
    if not mountpoint.is_dir():
        raise MountError(f"{mountpoint} is not a directory")
    if os.path.ismount(mountpoint):
        raise MountError(f"{mountpoint} is already mounted; unmount it with `grovefs umount {mountpoint}`")
    if any(mountpoint.iterdir()):
        raise MountError(f"{mountpoint} is not empty; mount on an empty or new directory")


@contextmanager
def make_mountpoint(options: MountOptions) -> Iterator[None]:
    """Create the mountpoint if it does not exist, and remove it again if mounting fails.

    Only the last directory of the path is created: a mistyped path is an error.
    """
    mountpoint = options.mountpoint
    clear_dead(mountpoint)  # first: any access to a mount whose daemon hangs would block
    check_apart(options)
    if os.path.lexists(mountpoint):
        yield
        return
    try:
        mountpoint.mkdir()
    except FileNotFoundError:
        raise MountError(f"{mountpoint} cannot be created: {mountpoint.parent} does not exist") from None
    try:
        yield
    except BaseException:
        with suppress(OSError):  # it is in use
            mountpoint.rmdir()
        raise


def check_apart(options: MountOptions) -> None:
    home, mountpoint = options.home.resolve(), options.mountpoint.resolve()
    if mountpoint == home or home in mountpoint.parents:
        raise MountError(f"{options.mountpoint} is inside the home {options.home}: that would deadlock")


def _check_fusermount() -> None:
    if which("fusermount3") is None:
        raise MountError("fusermount3 is missing: install the package fuse3")


def clear_dead(mountpoint: Path) -> None:
    if is_dead(mountpoint):
        log.info("clearing a dead mount at %s", mountpoint)
        unmount_dead(mountpoint)


def is_dead(mountpoint: Path) -> bool:
    return fuse_connection.state_of(mountpoint) == "dead"


def unmount_dead(mountpoint: Path) -> None:
    """Unmount a dead mount. Processes that use it or wait for an answer get errors."""
    number = fuse_connection.find_number(mountpoint)
    is_aborted = number is None or fuse_connection.abort(mountpoint, number)
    if not is_aborted and fuse_connection.daemon_is_dead(mountpoint):
        raise MountError(
            f"{mountpoint} has lost its daemon while processes wait for it. As root, run: umount -f {mountpoint}"
        )
    unmount(mountpoint, lazily=True)


def unmount(mountpoint: Path, *, lazily: bool = False) -> None:
    """Unmount. With lazily=True also while files are open: their users get errors from then on."""
    flags = "-uz" if lazily else "-u"
    _check_fusermount()
    result = subprocess.run(["fusermount3", flags, str(mountpoint)], capture_output=True, text=True)
    if not result.returncode:
        return
    users = mount_users.find_users(mountpoint)
    if users:
        raise MountError(
            f"{mountpoint} is in use by {', '.join(map(str, users))}. End these programs or leave the directory, "
            "or pass --lazy to unmount now: they get errors from then on"
        )
    raise MountError(result.stderr.strip() or f"{mountpoint} could not be unmounted")
