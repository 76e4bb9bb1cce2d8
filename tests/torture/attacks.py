"""All attacks and the processor minutes each needs."""

from __future__ import annotations

from tests.torture import (
    disks,
    double_faults,
    duel,
    fast_path,
    fuzz,
    fuzz_mount,
    hostile_files,
    hostile_files_mount,
    kill_storm,
    life,
    load,
    merges,
    mirror,
    posix,
    power_cuts,
    real_clients,
    recoveries,
    steps,
    syscalls,
    undos,
)
from tests.torture.attack import Attack
from tests.torture.hosts.battles import GROVE_HOSTS
from tests.torture.hosts.faults import GROVE_FAULTS
from tests.torture.hosts.model_lives import GROVE
from tests.torture.stateful import CROWD, LONG_LIFE, MODEL

DEFAULT_MINUTES = 95.0  # of a whole run on two processors: every attack that has an end comes to it

ATTACKS: list[Attack] = [
    Attack("kills", "killed at every system call that changes the disk", syscalls.kills, minutes=3.5),
    Attack("faults", "an error at every system call that changes the disk", syscalls.faults, minutes=12.0),
    Attack("double-faults", "a change fails, and its rollback fails too", double_faults.cases, minutes=2.0),
    Attack("recoveries", "killed, or an error, during crash recovery", recoveries.cases, minutes=2.5),
    Attack("daemon-kills", "the mount's daemon killed at every durable step", steps.kills, minutes=1.0),
    Attack("kill-storm", "the daemon killed 500 times under ten writers", kill_storm.kills, 20.0, 10),
    Attack("power-cuts", "a disk that loses any part of what was not flushed", power_cuts.cuts, minutes=8.0),
    Attack("posix", "random operations compared with the native filesystem", posix.cases, 35.0, 2000),
    Attack("full-disk", "a full disk, page by page", disks.full, minutes=3.5),
    Attack("read-only", "a disk that turns read-only", disks.read_only, minutes=0.5),
    Attack("documents", "malformed documents", fuzz.documents, 8.0, fuzz.BATCH),
    Attack("mount-documents", "the same through a mount", fuzz_mount.documents, 1.5, fuzz_mount.BATCH),
    Attack("duel", "an agent and people write one session, in every way, for five minutes", duel.duels, minutes=9.0),
    Attack("merges", "two random edits of one document", merges.laws, 0.7, merges.BATCH),
    Attack("undo", "a wrong bulk edit of a thousand sessions is undone", undos.cases, minutes=0.4),
    Attack("clients", "real clients of Codex and Claude Code resume an export", real_clients.cases, minutes=1),
    Attack("giants", "oversized documents", fuzz.giants, minutes=2.0),
    Attack("names", "hostile names", fuzz.names, 0.3, fuzz.NAMES),
    Attack("mount-names", "names through a mount", fuzz_mount.names, 0.5, fuzz_mount.BATCH),
    Attack("plants", "links, FIFOs and devices in place of files", hostile_files.plants, minutes=2.5),
    Attack("mount-plants", "the same below a mount", hostile_files_mount.below_a_mount, minutes=1.5),
    Attack("swaps", "a directory swapped with a link while it is used", hostile_files_mount.swaps, minutes=1.0),
    Attack("life", "signals, unmounting, a home that moves, a clock set back", life.lives, minutes=1.5),
    Attack("mirror", "a mount compared with the disk after each change", mirror.cases, 5.0, mirror.CHANGES),
    Attack("listings", "10,000 changes of directories while readers list", fast_path.listings, 20.0, 500),
    Attack("sanitizers", "the C extension with AddressSanitizer and UBSan", fast_path.sanitized, minutes=8.0),
    Attack("load", "stress-ng, fio and syncing writers that verify what they wrote", load.loads, minutes=2.5),
    GROVE_HOSTS,
    GROVE_FAULTS,
    LONG_LIFE,
    CROWD,
    MODEL,
    GROVE,
]
