"""All attacks, in the order in which they run: the quick and certain ones first."""

from __future__ import annotations

from tests.torture import disks, doubles, recoveries, steps, syscalls
from tests.torture.attack import Attack

ATTACKS: list[Attack] = [
    Attack("read-only", "a disk that turns read-only", disks.read_only, minutes=0.7),
    Attack("daemon-kills", "the mount's daemon killed at every durable step", steps.kills, minutes=1.6),
    Attack("kills", "killed at every system call that changes the disk", syscalls.kills, minutes=2.5),
    Attack("double-faults", "a change fails, and so does taking it back", doubles.cases, minutes=1.0),
    Attack("recoveries", "killed and failed while it recovers from a crash", recoveries.cases, minutes=1.0),
    Attack("full-disk", "a full disk, page by page", disks.full, minutes=1.2),
    Attack("faults", "an error at every system call that changes the disk", syscalls.faults, minutes=2.0),
]
