"""Standard load generators, run on the attachments of a mount.

stress-ng and fio write patterns, read them back and compare. They know nothing of sessions: an attachment is a plain
file. There are also writers that sync after every few bytes.
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

# stress-ng's filesystem stressors, and others that work on files, with their extra options.
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
    "fiemap": "a mount has no blocks",
    "fsize": "no fallocate(2); stress-ng's substitute ignores the limit that it tests",
    "inode-flags": "no inode flags",
    "verity": "nor verity",
    "link": "no hard links",
    "mknod": "no devices or FIFOs",
    "xattr": "no extended attributes",
}
LONGEST_S = 15  # seconds for one round of a stressor
PLACES = {"attachments": "s1/attachments", "foreign": "s1/load"}  # of a session; foreign files are stored next to them

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
    assert shutil.which(tool), f"{tool} is missing: run scripts/setup --torture"


def _check_unharmed(mount: Mounted) -> None:
    """The daemon is alive and the session unchanged."""
    assert mount.daemon
    assert (mount.sessions / "s1/session.json").read_bytes() == (mount.home / "sessions/s1/session.json").read_bytes()


def check_undamaged(mount: Mounted) -> None:
    assert not mount.damage(), mount.damage()


def check_all_stressors_listed() -> None:
    """Every filesystem stressor of this stress-ng is run, or left out for a reason."""
    need("stress-ng")
    listing = subprocess.run(["stress-ng", "--class", "filesystem?"], check=True, capture_output=True, text=True)
    there = set((listing.stdout + listing.stderr).partition("stressors:")[2].split())
    assert there, listing
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
    _check_unharmed(mount)
    if int(rounds[1]) == 0:  # the machine may be busy
        assert seconds < LONGEST_S, f"it did nothing\n{said}"
        stress(mount, name, place, LONGEST_S)


def fio(mount: Mounted, seconds: int) -> None:
    need("fio")
    job = mount.path.parent / "job"
    job.write_text(FIO.format(directory=mount.sessions / "s1/attachments", seconds=seconds))
    done = subprocess.run(["fio", job], capture_output=True, text=True, cwd=job.parent, timeout=seconds + 300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verify" not in done.stderr, done.stderr
    _check_unharmed(mount)


def syncing_writers(mount: Mounted, writers: int = 4, pieces: int = 40) -> None:
    """Several writers at once, each syncing after every piece; each file has its writer's content."""
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
    _check_unharmed(mount)


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
    """All load cases, on one mount."""
    with mounted(fill) as mount:
        yield Case("no stressor is forgotten", check_all_stressors_listed)
        yield Case("fio", lambda: fio(mount, 15 * seconds))
        yield Case("syncing writers", lambda: syncing_writers(mount))
        for name in STRESSORS:
            for place in PLACES:
                yield Case(f"stress-ng {name}, {place}", partial(stress, mount, name, place, seconds))
        yield Case("nothing is damaged", lambda: check_undamaged(mount))
