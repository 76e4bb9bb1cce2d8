"""Callers: from a thread to its process, by /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fusefs.requests import callers
from fusefs.requests.callers import Callers, is_running, read_process
from fusefs.tree.processes import Process


def test_a_thread_leads_to_its_process() -> None:
    """Program, parent and session are those of the process; the thread's own are not."""
    found: list[Process] = []
    thread = threading.Thread(target=lambda: found.append(read_process(threading.get_native_id(), 7)))
    thread.start()
    thread.join()
    (process,) = found
    assert (process.pid, process.parent, process.session_id) == (os.getpid(), os.getppid(), os.getsid(0))
    assert process.program == Path("/proc/self/comm").read_text().rstrip("\n")
    assert process.uid == 7
    assert process == read_process(os.getpid(), 7)
    assert process.key == (os.getpid(), process.started)
    assert is_running(process)


def test_names_may_contain_anything() -> None:
    program = "import sys; open('/proc/self/comm', 'w').write('a) S (b'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = read_process(child.pid, 0)
        assert (process.program, process.parent) == ("a) S (b", os.getpid())
        child.communicate()
    assert not is_running(process)


def test_unknown_processes_have_no_key() -> None:
    """Another pid namespace, and a /proc that tells nothing: no evidence may be kept for them."""
    assert read_process(0, 5) == Process(uid=5)
    hidden = read_process(5_000_001, 5)
    assert (hidden.pid, hidden.key) == (5_000_001, None)
    assert Process().key is None
    assert not is_running(hidden)


def test_reading_requests_use_the_cache_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def read(thread: int, uid: int) -> Process:
        reads.append(thread)
        return Process(thread, uid=uid)

    monkeypatch.setattr(callers, "read_process", read)
    known, now = Callers(), time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for _ in range(3):
        known.find(4, 0)
    known.read(4, 0)
    assert reads == [4, 4]
    now += 1.1
    known.find(4, 0)
    assert reads == [4, 4, 4]
    for thread in range(5000):
        known.find(thread, 0)
    assert len(known._known) <= 1024


def test_a_process_read_a_moment_ago_is_read_again_from_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """exec(2) may have changed its name, and nothing else."""
    reads: list[str] = []
    read = callers._read

    def counted(path: str) -> bytes:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(callers, "_read", counted)
    program = "import sys; print(flush=True); sys.stdin.readline(); open('/proc/self/comm', 'w').write('other')\n"
    program += "print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        known, now = Callers(), time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now)
        first = known.read(child.pid, 0)
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        reads.clear()
        assert known.read(child.pid, 0) == replace(first, program="other")
        assert reads == [f"/proc/{child.pid}/stat"]
        assert known.read(child.pid, 7).uid == 7  # as after a set-user-id program
        now += 1.1
        reads.clear()
        known.read(child.pid, 7)
        assert len(reads) > 1
