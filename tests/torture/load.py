"""Standard load: what others wrote to break filesystems, against the attachments of a mount.

stress-ng and fio write patterns, read them back and compare; they know nothing of sessions, and an attachment is a
plain file to them. Besides, writers that sync after every few bytes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from store import Store
from tests.builders import make_session
from tests.torture.attack import Case
from tests.torture.mounts import Mounted, mounted

# Of stress-ng's filesystem stressors, and those of others that work on files: what each is told besides its name.
STRESSORS: dict[str, list[str]] = {
    **{name: [] for name in ("access", "aio", "aiol", "chattr", "chdir", "chmod", "chown", "copy-file", "dirmany")},
    **{name: [] for name in ("dnotify", "dup", "fanotify", "fcntl", "file-ioctl", "flock", "fpunch", "fstat")},
    **{name: [] for name in ("getdent", "handle", "inotify", "io", "lease", "locka", "lockf", "lockofd", "open")},
    **{name: [] for name in ("rename", "splice", "touch", "utime")},
    "dentry": ["--dentries", "64"],
    "dir": ["--dir-dirs", "64"],
    "dirdeep": ["--dirdeep-dirs", "1", "--dirdeep-inodes", "1000"],
    "fallocate": ["--fallocate-bytes", "1m"],
    "filename": ["--filename-opts", "posix", "--filename-ops", "1"],
    "hdd": ["--hdd-bytes", "4m", "--hdd-opts", "wr-seq,rd-seq,fsync"],
    "hdd at random": ["--hdd-bytes", "2m", "--hdd-opts", "wr-rnd,rd-rnd"],
    "iomix": ["--iomix-bytes", "1m"],
    "mmap": ["--mmap-file", "--mmap-bytes", "1m", "--mmap-ops", "1"],
    "msync": ["--msync-bytes", "1m"],
    "readahead": ["--readahead-bytes", "1m"],
    "revio": ["--revio-bytes", "1m"],
    "seek": ["--seek-size", "1m"],
    "sendfile": ["--sendfile-size", "1m"],
    "symlink": ["--symlink-ops", "1"],
    "sync-file": ["--sync-file-bytes", "1m"],
}
# The filesystem stressors that are left out, and why.
LEFT_OUT = {
    **dict.fromkeys(("binderfs", "bind-mount", "eventfd", "ioprio", "procfs"), "not about a directory"),
    "fiemap": "a mount has no blocks of its own",
    "fsize": "nor fallocate(2), and what stress-ng does in its stead is not held to the limit that it tests",
    "inode-flags": "nor flags of inodes",
    "verity": "nor verity",
    "link": "a session is not to be had under two names: no hard links",
    "mknod": "no devices and no FIFOs are made",
    "xattr": "extended attributes are not kept",
}
LONGEST_S = 15  # for one round of a stressor
PLACES = {"attachments": "s1/attachments", "beside": "s1/load"}  # of a session; what is foreign lies beside them

FIO = """
[global]
directory={directory}
size=2m
verify=crc32c
verify_fatal=1
do_verify=1
ioengine=psync
runtime={seconds}
[sequential]
rw=write
bs=64k
fsync=8
[random]
rw=randwrite
bs=4k
fdatasync=16
[overwritten]
rw=randrw
bs=4k
verify_backlog=64
"""


def fill(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session("s1", messages=3))
        store.attach("s1", b"first", "text/plain")


def need(tool: str) -> None:
    assert shutil.which(tool), f"{tool} is missing: scripts/setup --torture installs it"


def _stands(mount: Mounted) -> None:
    """The daemon lives, and the session is as it was."""
    assert mount.daemon
    assert (mount.sessions / "s1/session.json").read_bytes() == (mount.home / "sessions/s1/session.json").read_bytes()


def undamaged(mount: Mounted) -> None:
    assert not mount.damage(), mount.damage()


def none_forgotten() -> None:
    """Every one of the filesystem stressors that this stress-ng has is run, or left out for a reason."""
    need("stress-ng")
    told = subprocess.run(["stress-ng", "--class", "filesystem?"], check=True, capture_output=True, text=True)
    there = set((told.stdout + told.stderr).partition("stressors:")[2].split())
    assert there, told
    forgotten = there - LEFT_OUT.keys() - STRESSORS.keys()
    assert not forgotten, forgotten


def stress(mount: Mounted, name: str, place: str, seconds: int) -> None:
    need("stress-ng")
    directory, stressor = mount.sessions / PLACES[place], name.split()[0]
    directory.mkdir(exist_ok=True)
    command = ["stress-ng", f"--{stressor}", "1", *STRESSORS[name], "--timeout", f"{seconds}s", "--verify", "--metrics"]
    command += ["--no-rand-seed", "--temp-path", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert " fail" not in said.lower() or "failed: 0" in said, said
    rounds = re.search(rf"metrc: \[\d+\] {stressor} +(\d+)", said)
    assert rounds, said
    _stands(mount)
    if int(rounds[1]) == 0:  # on a machine that is busy with something else
        assert seconds < LONGEST_S, f"it did nothing\n{said}"
        stress(mount, name, place, LONGEST_S)


def fio(mount: Mounted, seconds: int) -> None:
    need("fio")
    job = mount.path.parent / "job"
    job.write_text(FIO.format(directory=mount.sessions / "s1/attachments", seconds=seconds))
    done = subprocess.run(["fio", job], capture_output=True, text=True, cwd=job.parent, timeout=seconds + 300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verify" not in done.stderr, done.stderr
    _stands(mount)


def syncing_writers(mount: Mounted, writers: int = 4, pieces: int = 40) -> None:
    """Several at once, each syncing after every piece; each file is what its writer wrote."""
    folder = mount.sessions / "s1/attachments"
    faults: list[BaseException] = []
    threads = [threading.Thread(target=_sync_often, args=(folder / f"f{n}", n, pieces, faults)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    for number in range(writers):
        assert (mount.home / f"sessions/s1/attachments/f{number}").read_bytes() == _piece(number) * pieces
    _stands(mount)


def _piece(number: int) -> bytes:
    return bytes([65 + number]) * 1000


def _sync_often(path: Path, number: int, pieces: int, faults: list[BaseException]) -> None:
    try:
        with path.open("wb", buffering=0) as file:
            for nth in range(pieces):
                file.write(_piece(number))
                os.fsync(file.fileno())
                assert path.stat().st_size == (nth + 1) * 1000
    except BaseException as error:
        faults.append(error)


def loads(seed: int, seconds: int = 1) -> Iterator[Case]:
    """All on one mount, which stands it all."""
    with mounted(fill) as mount:
        yield Case("no stressor is forgotten", none_forgotten)
        yield Case("fio", lambda: fio(mount, 15 * seconds))
        yield Case("syncing writers", lambda: syncing_writers(mount))
        for name in STRESSORS:
            for place in PLACES:
                yield Case(f"stress-ng {name}, {place}", partial(stress, mount, name, place, seconds))
        yield Case("nothing is damaged", lambda: undamaged(mount))
