"""The life of a mount: signals, SIGSTOP, kill, unmounting in use, a moved home, a clock set back.

Data of closed files is present, other data is not, and the next mount works. (A disk that turns read-only, and a home
that is removed: tests/mount/test_environment.py.)
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from store import Message, Session, Store
from tests.builders import make_session
from tests.mount.conftest import CODE, daemons_of, wait_until
from tests.torture.attack import Case
from tests.torture.mounts import PATIENCE_S, Mounted, mounted
from tests.torture.places import scratch

GONE = {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENOENT}


def fill(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session("s1", messages=3, title="title 0"))
        store.save(Session.new_child("c1", "s1", "m", "a child"))


def retitle(path: Path, title: str) -> None:
    document = json.loads(path.read_bytes())
    document["title"] = title
    path.write_bytes(json.dumps(document).encode())


def title(path: Path) -> str:
    return str(json.loads(path.read_bytes())["title"])


class Writers:
    """Threads that save through a mount until it is gone; each records which of its saves succeeded."""

    def __init__(self, mount: Mounted, count: int = 3) -> None:
        self.mount = mount
        self.done: dict[str, int] = {}  # by file: the last number saved
        self.tried: dict[str, int] = {}
        self.faults: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(f"w{n}",)) for n in range(count)]
        for thread in self._threads:
            thread.start()
        wait_until(lambda: len(self.done) == 2 * count or bool(self.faults), PATIENCE_S)

    def _work(self, name: str) -> None:
        try:
            (self.mount.sessions / name / "attachments").mkdir(parents=True)
            document = json.loads((self.mount.sessions / "s1/session.json").read_bytes())
            document |= {"id": name, "root_session_id": name}
            number = 0
            while not self._stop.is_set():
                number += 1
                document["title"] = f"number {number}"
                self._save(f"sessions/{name}/session.json", number, json.dumps(document).encode())
                self._save(f"sessions/{name}/attachments/a.bin", number, b"%d" % number * 5000)
        except OSError as error:
            if error.errno not in GONE:
                self.faults.append(error)
        except BaseException as error:
            self.faults.append(error)

    def _save(self, path: str, number: int, raw: bytes) -> None:
        self.tried[path] = number
        (self.mount.path / path).write_bytes(raw)
        self.done[path] = number

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a writer hangs"
        assert not self.faults, self.faults

    def check(self, home: Path) -> None:
        """Rule 2: the content is the last acknowledged save, or the one in progress."""
        for path, number in self.done.items():
            raw = (home / path).read_bytes()
            found = int(json.loads(raw)["title"].split()[1]) if path.endswith(".json") else _number(raw)
            assert number <= found <= self.tried[path], f"{path}: {number} was saved, {found} is there"


def _number(raw: bytes) -> int:
    text = raw[: len(raw) // 5000]
    assert text * 5000 == raw, "a mixture of two versions"
    return int(text)


def _check_works_again(mount: Mounted) -> None:
    """After mounting again, everything works and nothing is damaged."""
    mount.mount()
    path = mount.sessions / "s1/session.json"
    retitle(path, "afterwards")
    assert title(path) == "afterwards"
    assert not mount.damage(), mount.damage()


def ended_by(number: signal.Signals) -> None:
    """Send a signal to the daemon under load."""
    with mounted(fill) as mount:
        writers = Writers(mount)
        time.sleep(random.uniform(0, 0.3))
        os.kill(mount.daemon, number)
        writers.finish()
        mount.ended()
        assert os.path.ismount(mount.path) == (number is signal.SIGKILL) or number is signal.SIGKILL
        writers.check(mount.home)
        _check_works_again(mount)


def stopped(seconds: float) -> None:
    """SIGSTOP: no wrong answer is given, the API continues or reports Busy, and after SIGCONT everything continues."""
    with mounted(fill) as mount:
        writers = Writers(mount)
        daemon = mount.daemon
        os.kill(daemon, signal.SIGSTOP)
        try:
            time.sleep(seconds)
            frozen = dict(writers.tried)
        finally:
            os.kill(daemon, signal.SIGCONT)
        wait_until(
            lambda: all(writers.done[path] > frozen[path] for path in frozen) or bool(writers.faults), PATIENCE_S
        )
        writers.finish()
        writers.check(mount.home)
        with Store.open(mount.home, background=False) as store:
            store.append("s1", [Message.user("by the API")])
        wait_until(lambda: "by the API" in (mount.sessions / "s1/session.json").read_text(), PATIENCE_S)
        assert not mount.damage(), mount.damage()


def unmounted_lazily() -> None:
    """A process with an open file can finish: its close commits, and only then the daemon exits."""
    with mounted(fill) as mount:
        path = mount.sessions / "s1/session.json"
        document = json.loads(path.read_bytes())
        document["title"] = "finished later"
        with path.open("wb") as file, (mount.sessions / "s1/attachments/late").open("wb") as late:
            file.write(json.dumps(document).encode())
            file.flush()
            late.write(b"late")
            mount.unmount(lazily=True)
            assert not os.path.ismount(mount.path)
            assert daemons_of(mount.path), "the daemon did not wait for its writers"
        mount.ended()
        assert title(mount.home / "sessions/s1/session.json") == "finished later"
        assert (mount.home / "sessions/s1/attachments/late").read_bytes() == b"late"
        _check_works_again(mount)


def unmounted_under_load() -> None:
    """Plain unmounting is refused while the mount is in use, without disturbing writers; finally it succeeds."""
    with mounted(fill) as mount:
        writers = Writers(mount)
        with (mount.sessions / "s1/session.json").open():
            for _ in range(5):
                assert subprocess.run(["fusermount3", "-u", mount.path], capture_output=True).returncode != 0
        writers.finish()
        writers.check(mount.home)
        mount.unmount()
        mount.ended()
        _check_works_again(mount)


def home_moved() -> None:
    """Rename the home and rename it back: acknowledged saves are in it."""
    with mounted(fill) as mount:
        path, elsewhere = mount.sessions / "s1/session.json", mount.home.parent / "elsewhere"
        mount.home.rename(elsewhere)
        saved = ""
        for number in range(5):
            with suppress(OSError):
                retitle(path, f"moved {number}")
                saved = f"moved {number}"
            assert not mount.home.exists(), "a second home was created"
        if saved:
            assert title(elsewhere / "sessions/s1/session.json") == saved
        elsewhere.rename(mount.home)
        retitle(path, "back again")
        assert title(mount.home / "sessions/s1/session.json") == "back again"
        mount.unmount()
        mount.ended()
        _check_works_again(mount)


# Once this file exists, the daemon's clock is a year back; the disk's clock is not changed.
CLOCK = """
import os, time
real_ns = time.time_ns
def time_ns():
    back = 365 * 86_400 * 10**9 if os.path.exists({switch!r}) else 0
    return real_ns() - back
time.time_ns = time_ns
time.time = lambda: time_ns() / 1e9
"""


def clock_set_back() -> None:
    """Every way to save still works, updated_at never decreases, and a writer never conflicts with itself."""
    with scratch() as place, mounted(fill, program=CLOCK.format(switch=str(place / "back")) + CODE) as mount:
        path = mount.sessions / "s1/session.json"
        retitle(path, "before")
        (place / "back").touch()
        with Store.open(mount.home, background=False) as store:
            for number in range(3):
                retitle(path, f"in place {number}")
                assert title(path) == f"in place {number}"
                temporary = path.with_name("temporary")
                temporary.write_text(path.read_text().replace("in place", "by rename"))
                temporary.replace(path)
                assert title(path) == f"by rename {number}"
                before = store.load("s1")
                store.append("s1", [Message.user(f"by the API {number}")])
                after = store.load("s1")
                assert before is not None
                assert after is not None
                assert after.updated_at.ns > before.updated_at.ns
                wait_until(lambda n=number: f"by the API {n}" in path.read_text(), PATIENCE_S)  # type: ignore[misc]
        assert not mount.damage(), mount.damage()


DEEDS: dict[str, Callable[[], None]] = {
    "SIGTERM": lambda: ended_by(signal.SIGTERM),
    "SIGINT": lambda: ended_by(signal.SIGINT),
    "SIGKILL": lambda: ended_by(signal.SIGKILL),
    "SIGSTOP": lambda: stopped(10.0),
    "lazy unmount": unmounted_lazily,
    "unmount under load": unmounted_under_load,
    "home moved": home_moved,
    "clock": clock_set_back,
}


def lives(seed: int, rounds: int = 3) -> Iterator[Case]:
    for number in range(rounds):
        for name, deed in DEEDS.items():
            if number == 0 or name.startswith("SIG"):
                yield Case(f"{name} {number}", deed)
