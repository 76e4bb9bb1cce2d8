"""The price of durable logs: eight writers appending lines through a mount, in mode "full" and in mode "normal"."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from store import Session, Store

from .rows import Row, Target, compare

WRITERS = 8
APPENDER = """
import os, sys
sys.stdin.read()  # until the benchmark starts all of them
for number in range(int(sys.argv[2])):
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, b'{"number": %d}\\n' % number)
    os.close(fd)
"""


@contextmanager
def _mounted(place: Path, durability: str) -> Iterator[Path]:
    home, mountpoint = place / f"logs-{durability}", place / f"mnt-{durability}"
    mountpoint.mkdir()
    with Store.open(home, background=False) as store:
        store.save(Session.new("logged", "some-model"))
    code = "from fusefs.cli import main; main()"
    words = ["mount", "--home", home, "--durability", durability, "--log-file", place / f"{durability}.log", mountpoint]
    subprocess.run([sys.executable, "-c", code, *map(str, words)], check=True)
    try:
        yield mountpoint / "sessions/logged/token-usage.jsonl"
    finally:
        subprocess.run(["fusermount3", "-u", mountpoint], check=True)


def _appending(path: Path, lines: int) -> Callable[[], float]:
    """Each writer opens the log, appends a line and closes it, again and again. Returns milliseconds."""

    def run() -> float:
        command = [sys.executable, "-S", "-c", APPENDER, str(path), str(lines)]
        running = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(WRITERS)]
        time.sleep(0.5)  # until all of them wait
        began = time.perf_counter()
        for process in running:  # all of them before any is waited for
            assert process.stdin is not None
            process.stdin.close()
        codes = [process.wait() for process in running]
        assert not any(codes), codes
        return (time.perf_counter() - began) * 1e3

    return run


def measure_logs(place: Path, lines: int, rounds: int) -> list[Row]:
    with _mounted(place, "full") as full, _mounted(place, "normal") as normal:
        name = f"{WRITERS} writers append {lines} lines each to a log"
        ours, theirs = _appending(full, lines), _appending(normal, lines)
        return [compare(name, ours, "the same without syncs", theirs, Target(2.0), rounds)]
