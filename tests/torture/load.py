"""Standard load: what others wrote to break filesystems, against the attachments of a mount.

stress-ng and fio write patterns, read them back and compare; they know nothing of sessions, and an attachment is a
plain file to them. Besides, writers that sync after every few bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from store import Store
from tests.builders import make_session
from tests.torture.attack import Case
from tests.torture.mounts import Mounted, mounted

# Those that need no more of a filesystem than a mount of sessions promises: no hard links, no locks between names, no
# devices, no extended attributes, no mapping that is written through.
STRESSORS = {
    "hdd": ["--hdd", "2", "--hdd-bytes", "4m", "--hdd-opts", "wr-seq,rd-seq,fsync"],
    "hdd-random": ["--hdd", "1", "--hdd-bytes", "2m", "--hdd-opts", "wr-rnd,rd-rnd"],
    "rename": ["--rename", "1"],
    "dir": ["--dir", "1", "--dir-dirs", "64"],
    "dirdeep": ["--dirdeep", "1", "--dirdeep-dirs", "1", "--dirdeep-inodes", "64"],
    "filename": ["--filename", "1", "--filename-opts", "posix"],
    "fstat": ["--fstat", "1"],
    "chmod": ["--chmod", "1"],
    "utime": ["--utime", "1"],
    "symlink": ["--symlink", "1"],
    "readahead": ["--readahead", "1", "--readahead-bytes", "2m"],
    "seek": ["--seek", "1", "--seek-size", "1m"],
    "sync-file": ["--sync-file", "1", "--sync-file-bytes", "1m"],
    "metamix": ["--metamix", "1", "--metamix-bytes", "1m"],
    "touch": ["--touch", "1"],
    "dentry": ["--dentry", "1", "--dentries", "64"],
    "io": ["--io", "1"],
    "verity-free-append": ["--revio", "1", "--revio-bytes", "1m"],
    "fallocate-free-copy": ["--copy-file", "1", "--copy-file-bytes", "2m"],
}
# `attachments/` holds files; what makes directories and links works beside it, as foreign files do.
_NEEDS_DIRECTORIES = ("rename", "dir", "dirdeep", "symlink", "dentry", "filename", "metamix", "touch")

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


def _clean(mount: Mounted) -> None:
    """The daemon lives, the session is as it was, and nothing is damaged."""
    assert mount.daemon
    assert (mount.sessions / "s1/session.json").read_bytes() == (mount.home / "sessions/s1/session.json").read_bytes()
    assert not mount.damage(), mount.damage()


def stress(name: str, seconds: int) -> None:
    need("stress-ng")
    with mounted(fill) as mount:
        place = mount.sessions / ("s1/load" if name in _NEEDS_DIRECTORIES else "s1/attachments")
        place.mkdir(exist_ok=True)
        command = ["stress-ng", *STRESSORS[name], "--verify", "--timeout", f"{seconds}s", "--temp-path", str(place)]
        done = subprocess.run([*command, "--no-rand-seed"], capture_output=True, text=True, timeout=seconds + 120)
        said = done.stdout + done.stderr
        # 3: out of resources, or the kernel has no such call; 4: not here.
        assert done.returncode in (0, 3, 4), said
        assert " fail" not in said.lower() or "failed: 0" in said, said
        _clean(mount)


def fio(seconds: int) -> None:
    need("fio")
    with mounted(fill) as mount:
        job = mount.path.parent / "job"
        job.write_text(FIO.format(directory=mount.sessions / "s1/attachments", seconds=seconds))
        done = subprocess.run(
            ["fio", job], capture_output=True, text=True, cwd=mount.path.parent, timeout=seconds + 300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "verify" not in done.stderr, done.stderr
        _clean(mount)


def syncing_writers(writers: int = 4, pieces: int = 40) -> None:
    """Several at once, each syncing after every piece; each file is what its writer wrote, also after a kill."""
    with mounted(fill) as mount:
        folder = mount.sessions / "s1/attachments"
        faults: list[BaseException] = []
        threads = [
            threading.Thread(target=_sync_often, args=(folder / f"f{n}", n, pieces, faults)) for n in range(writers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults, faults
        for number in range(writers):
            assert (mount.home / f"sessions/s1/attachments/f{number}").read_bytes() == _piece(number) * pieces
        _clean(mount)


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


def loads(seed: int, seconds: int = 3) -> Iterator[Case]:
    yield Case("fio", lambda: fio(5 * seconds))
    yield Case("syncing writers", syncing_writers)
    for name in STRESSORS:
        yield Case(f"stress-ng {name}", lambda name=name: stress(name, seconds))  # type: ignore[misc]
