"""Read workloads of `bench mount`: common tools, and the proof that all contenders read the same.

A tool runs in the contender's sessions directory with its output in a scratch file. Only the tool is timed. The
proof is computed afterwards, from its output or its files; if it differs from the disk's, there is no ratio.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .contenders import Contender
from .tree import RARE

BIG = "attachments/measured.bin"
ENVIRONMENT = {**os.environ, "LC_ALL": "C"}  # the same sort order everywhere, and no slow UTF-8 matching in grep


class Proof(NamedTuple):
    """What a workload read or wrote: number of files (or lines), number of bytes, and a digest."""

    files: int
    bytes: int
    digest: str = ""


class Failed(Exception):
    """A tool failed, or did different work than on the disk, so there is nothing to compare."""


@dataclass(frozen=True)
class Subject:
    """Files for single workloads, relative to sessions/."""

    jq_files: list[str]
    big_file: str


@dataclass(frozen=True)
class Read:
    name: str
    command: Callable[[Contender, Subject], list[str]]
    prove: Callable[[Contender, Subject, bytes], Proof]
    prepare: Callable[[Contender], None] = lambda contender: None

    @property
    def tool(self) -> str:
        return self.name.split()[0]

    def run(self, contender: Contender, subject: Subject) -> float:
        """Run the tool; returns its duration in milliseconds."""
        command, output = self.command(contender, subject), _output(contender)
        with output.open("wb") as out:
            start = time.perf_counter()
            done = subprocess.run(
                command, cwd=contender.sessions, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=out
            )
            elapsed = time.perf_counter() - start
        if done.returncode:
            raise Failed(f"{self.name} on {contender.name}: {command[0]} exited with {done.returncode}")
        return elapsed * 1e3

    def proof(self, contender: Contender, subject: Subject) -> Proof:
        return self.prove(contender, subject, _output(contender).read_bytes())


def _output(contender: Contender) -> Path:
    return contender.place.scratch / f"{contender.name}.out"


def _copy(contender: Contender, kind: str) -> Path:
    """The target directory of an rsync."""
    return contender.place.scratch / f"{contender.name}.{kind}"


# -- proofs ----------------------------------------------------------------------------------------------


def lines_in_any_order(contender: Contender, subject: Subject, output: bytes) -> Proof:
    """The order of lines is ignored: directories may be listed in another order, and rg is multi-threaded."""
    lines = sorted(output.splitlines())
    return Proof(len(lines), len(output), hashlib.sha256(b"\n".join(lines)).hexdigest())


def listed_files(contender: Contender, subject: Subject, output: bytes) -> Proof:
    """Names, sizes and times of files in `ls -lR`; blocks and link counts of directories differ by filesystem."""
    rows = [line.split(maxsplit=8) for line in output.splitlines() if line.startswith((b"-", b"d"))]
    files = [row for row in rows if row[0].startswith(b"-")]
    seen = sorted(b" ".join([*row[4:], row[0]]) for row in files) + sorted(row[8] for row in rows)
    return Proof(len(rows), sum(int(row[4]) for row in files), hashlib.sha256(b"\n".join(seen)).hexdigest())


def piped_bytes(contender: Contender, subject: Subject, output: bytes) -> Proof:
    return Proof(1, int(output))


def copied_tree(contender: Contender, subject: Subject, output: bytes) -> Proof:
    return tree_proof(_copy(contender, "first"))


def nothing_moved(contender: Contender, subject: Subject, output: bytes) -> Proof:
    """rsync -i lists what it changes; a second run must list nothing."""
    return Proof(len(output.splitlines()), len(output))


def big_file(contender: Contender, subject: Subject, output: bytes) -> Proof:
    checksum = size = 0
    with (contender.sessions / subject.big_file).open("rb") as file:
        while chunk := file.read(1 << 20):
            checksum, size = zlib.crc32(chunk, checksum), size + len(chunk)
    return Proof(1, size, f"{checksum:08x}")


def tree_proof(root: Path) -> Proof:
    """Every file below `root`: name, time and bytes."""
    seen, total = [], 0
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            data = path.read_bytes()
            total += len(data)
            seen.append(f"{path.relative_to(root)} {path.stat().st_mtime_ns} {zlib.crc32(data)}")
    return Proof(len(seen), total, hashlib.sha256("\n".join(sorted(seen)).encode()).hexdigest())


# -- preparations ----------------------------------------------------------------------------------------


def clear_copy(contender: Contender) -> None:
    shutil.rmtree(_copy(contender, "first"), ignore_errors=True)
    os.sync()  # keep one contender's write-back out of another's measurement


def have_copy(contender: Contender) -> None:
    """Copy the disk as it is now: mounting a home may have changed the sessions directory itself."""
    source, target = contender.place.home / "sessions", _copy(contender, "idle")
    subprocess.run(["rsync", "-a", f"{source}/", f"{target}/"], check=True)
    os.sync()


# A pipe, because GNU tar reads nothing when its output is /dev/null.
TAR = "set -o pipefail; tar cf - . | wc -c"

READS = [
    Read("find", lambda c, s: ["find", "."], lines_in_any_order),
    Read("ls -lR", lambda c, s: ["ls", "-lR", "--time-style=full-iso"], listed_files),
    Read("grep -r", lambda c, s: ["grep", "-r", RARE, "."], lines_in_any_order),
    Read("rg", lambda c, s: ["rg", "--no-config", RARE, "."], lines_in_any_order),
    Read("rsync -a", lambda c, s: ["rsync", "-a", "./", f"{_copy(c, 'first')}/"], copied_tree, clear_copy),
    Read("rsync idle", lambda c, s: ["rsync", "-ai", "./", f"{_copy(c, 'idle')}/"], nothing_moved, have_copy),
    Read("tar", lambda c, s: ["bash", "-c", TAR], piped_bytes),
    Read("jq", lambda c, s: ["jq", "-r", "[.id, (.messages | length)] | @tsv", *s.jq_files], lines_in_any_order),
]
CAT = Read("cat", lambda c, s: ["bash", "-c", f"exec cat {s.big_file} >/dev/null"], big_file)
