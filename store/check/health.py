"""Health probes: the home can be written, its index is sound, there is free space.

Each probe does the real thing instead of reading permissions; the trial write is removed again. A
failing probe is a result with a reason; a probe never raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw

from store.commit.core import Core
from store.errors import StoreError, describe

TRIAL_BYTES = 1 << 20  # too much for inline storage: the filesystem must allocate blocks
MIN_FREE_BYTES = 256 << 20
MIN_FREE_INODES = 1_000


@dataclass(frozen=True)
class Probe:
    """The result of one probe."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Health:
    """The results of all probes."""

    backend: str
    probes: tuple[Probe, ...]

    @property
    def ok(self) -> bool:
        return all(probe.ok for probe in self.probes)

    def as_dict(self) -> dict[str, Any]:
        probes = [{"name": p.name, "ok": p.ok, "detail": p.detail} for p in self.probes]
        return {"ok": self.ok, "backend": self.backend, "probes": probes}


class ProbeFailed(StoreError):
    """The reason a probe failed."""


def probe(name: str, look: Callable[[], str]) -> Probe:
    """Run one probe: its detail, or the error it raised."""
    try:
        return Probe(name, True, look())
    except (StoreError, OSError, apsw.Error) as error:
        return Probe(name, False, describe(error) or type(error).__name__)


def examine(
    core: Core, *, deep: bool = True, min_free_bytes: int = MIN_FREE_BYTES, min_free_inodes: int = MIN_FREE_INODES
) -> Health:
    """Run all probes. `deep` reads the whole index, which takes seconds in a large home."""
    probes = (
        probe("writable", lambda: _write(core)),
        probe("index", lambda: _index(core, deep=deep)),
        probe("commits", lambda: _commits(core)),
        probe("space", lambda: _space(core, min_free_bytes, min_free_inodes)),
    )
    return Health("local", probes)


def _write(core: Core) -> str:
    """Write a file, sync it, read it back, rename a file into sessions/, and remove both."""
    core.check_writable()
    data = os.urandom(TRIAL_BYTES)
    path = core.disk.write_temp([data])
    try:
        file = core.disk.read(path)
        if file is None or file.data != data:
            raise ProbeFailed("data read back differs from data written")
    finally:
        core.disk.remove(path)
    core.disk.check_rename_works()
    return f"{TRIAL_BYTES} bytes written, synced and read back"


def _index(core: Core, *, deep: bool) -> str:
    core.db.set_meta(health=1)  # fails if index.db cannot be written
    core.db.probe_tables()
    faults = core.db.integrity_errors() if deep else []
    if faults:
        raise ProbeFailed(
            f"index.db is damaged: {faults[0]}; delete it while no program has the home open: it is rebuilt"
        )
    damaged = core.index.damaged()
    unread = f", {len(damaged)} unreadable" if damaged else ""
    return f"{core.index.count()} sessions{unread}{'' if deep else '; integrity not checked'}"


def _commits(core: Core) -> str:
    """Finish interrupted commits; fail if the index update of one still fails."""
    core.recover_all()
    if core.journal.index_failures:
        (root, child), why = next(iter(core.journal.index_failures.items()))
        raise ProbeFailed(
            f"{len(core.journal.index_failures)} commits saved but not indexed, first {root}/{child or ''}: {why}"
        )
    return "none pending"


def _space(core: Core, min_free_bytes: int, min_free_inodes: int) -> str:
    disk = os.statvfs(core.home)
    free = disk.f_bavail * disk.f_frsize
    text = f"{free / (1 << 30):.1f} GiB free"
    if free < min_free_bytes:
        raise ProbeFailed(f"{text}, minimum {min_free_bytes / (1 << 30):.1f} GiB")
    if disk.f_files and disk.f_favail < min_free_inodes:  # 0: this filesystem does not count inodes
        raise ProbeFailed(f"{disk.f_favail} inodes free, minimum {min_free_inodes}")
    return text
