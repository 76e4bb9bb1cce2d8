"""Whether a home works: can be written, has a sound index, has room left. Each proved by doing, not by asking.

The trial write leaves nothing behind. What is wrong is a probe that failed, with the reason; a probe never raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw

from store.commit.core import Core
from store.errors import StoreError

TRIAL_BYTES = 1 << 20  # more than a filesystem could tuck away without taking a block
MIN_FREE_BYTES = 256 << 20
MIN_FREE_INODES = 1_000


@dataclass(frozen=True)
class Probe:
    """One thing that was tried."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Health:
    backend: str
    probes: tuple[Probe, ...]

    @property
    def ok(self) -> bool:
        return all(probe.ok for probe in self.probes)

    def as_dict(self) -> dict[str, Any]:
        probes = [{"name": p.name, "ok": p.ok, "detail": p.detail} for p in self.probes]
        return {"ok": self.ok, "backend": self.backend, "probes": probes}


class ProbeFailed(StoreError):
    """What a probe found."""


def probe(name: str, look: Callable[[], str]) -> Probe:
    """What `look` says, or what went wrong with it."""
    try:
        return Probe(name, True, look())
    except (StoreError, OSError, apsw.Error) as error:
        return Probe(name, False, str(error) or type(error).__name__)


def examine(
    core: Core, *, deep: bool = True, min_free_bytes: int = MIN_FREE_BYTES, min_free_inodes: int = MIN_FREE_INODES
) -> Health:
    """Try everything. Not `deep` leaves out reading the whole index, which takes seconds in a large home."""
    probes = (
        probe("writable", lambda: _write(core)),
        probe("index", lambda: _index(core, deep=deep)),
        probe("commits", lambda: _commits(core)),
        probe("space", lambda: _space(core, min_free_bytes, min_free_inodes)),
    )
    return Health("local", probes)


def _write(core: Core) -> str:
    """Write, sync, read back, move to where sessions lie, and take away again."""
    core.check_writable()
    data = os.urandom(TRIAL_BYTES)
    path = core.disk.write_temp([data])
    try:
        file = core.disk.read(path)
        if file is None or file.data != data:
            raise ProbeFailed("what was written could not be read back")
    finally:
        core.disk.remove(path)
    core.disk.check_rename_works()
    return f"{TRIAL_BYTES} bytes written, synced and read back"


def _index(core: Core, *, deep: bool) -> str:
    core.db.set_meta(health=1)  # it can be written
    core.db.probe_tables()
    faults = core.db.integrity_errors() if deep else []
    if faults:
        raise ProbeFailed(f"index.db is damaged: {faults[0]}; delete it, it is made anew from the sessions")
    damaged = core.index.damaged()
    unread = f", {len(damaged)} more cannot be read" if damaged else ""
    return f"{core.index.count()} sessions{unread}{'' if deep else '; not read through'}"


def _commits(core: Core) -> str:
    """What a crash left is finished first; what is left then cannot be finished."""
    core.recover_all()
    if core.journal.index_failures:
        (root, child), why = next(iter(core.journal.index_failures.items()))
        raise ProbeFailed(f"{len(core.journal.index_failures)} saved but not indexed, of {root}/{child or ''}: {why}")
    return "none unfinished"


def _space(core: Core, min_free_bytes: int, min_free_inodes: int) -> str:
    disk = os.statvfs(core.home)
    free = disk.f_bavail * disk.f_frsize
    text = f"{free / (1 << 30):.1f} GiB free"
    if free < min_free_bytes:
        raise ProbeFailed(f"{text}, less than {min_free_bytes / (1 << 30):.1f} GiB")
    if disk.f_files and disk.f_favail < min_free_inodes:  # some filesystems do not count them
        raise ProbeFailed(f"room for {disk.f_favail} more files, less than {min_free_inodes}")
    return text
