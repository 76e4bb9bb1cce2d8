"""Fixtures: real mounts by the real command, in a separate process. Without FUSE these tests fail and say so."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fusefs.daemon.mount_users import find_users
from store import Message, Session, Store
from tests.builders import make_session

CODE = "from fusefs.cli import main; main()"


def grovefs(*arguments: str | Path, program: str = CODE, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload, no-any-return]


def daemons_of(mountpoint: Path) -> list[int]:
    """The processes that serve a mountpoint."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                if str(mountpoint).encode() in arguments and b"mount" in arguments:
                    found.append(int(entry.name))
    return found


def wait_until(is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Poll with a deadline."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


@dataclass(frozen=True)
class Mount:
    home: Path
    path: Path
    log: Path

    @property
    def sessions(self) -> Path:
        return self.path / "sessions"

    def store(self) -> Store:
        """The API on the same home. Another process would see the same."""
        return Store.open(self.home, background=False)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory outside /tmp: below /tmp, vim, Emacs and others make no backups and save differently."""
    base = Path(tempfile.mkdtemp(prefix="grovefs-test-", dir="/var/tmp"))
    yield base
    _remove(base)


def _remove(directory: Path) -> None:
    """Remove a directory. A daemon may still close its files there: they change while they are removed."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return shutil.rmtree(directory)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def wait_ended(mount: Mount) -> None:
    """Wait until no process serves a mount. One that stays alive has to say what it is doing."""
    try:
        wait_until(lambda: not daemons_of(mount.path))
    except AssertionError:
        for daemon in daemons_of(mount.path):
            with suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGQUIT)
        time.sleep(5)  # it may have no time before
        raise AssertionError(f"the daemon of {mount.path} did not end:\n{mount.log.read_text()}") from None


def unmount(mountpoint: Path) -> None:
    """Unmount, and try again while the mount is busy: a program such as df may use it for a moment."""
    deadline = time.monotonic() + 60
    while True:
        done = subprocess.run(["fusermount3", "-u", str(mountpoint)], capture_output=True, text=True)
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, (done.stderr, find_users(mountpoint))
        time.sleep(0.1)


@pytest.fixture
def mount_home(place: Path) -> Iterator[Callable[..., Mount]]:
    """Mount a home and unmount it at the end in any case. The log must not contain a traceback."""
    mounts: list[Mount] = []

    def mount(home: Path, *options: str) -> Mount:
        number = len(mounts)
        made = Mount(home, place / f"mnt{number}", place / f"log{number}")
        made.path.mkdir()
        result = grovefs("mount", "--home", home, "--log-file", made.log, *options, made.path)
        assert result.returncode == 0, result.stderr
        mounts.append(made)
        return made

    yield mount
    for made in mounts:
        if os.path.ismount(made.path):
            unmount(made.path)
        wait_ended(made)
        assert "Traceback" not in made.log.read_text(), made.log.read_text()


@pytest.fixture
def filled(place: Path) -> Path:
    """A home with a root of three messages, a child and a grandchild, an attachment, and a pinned session."""
    home = place / "home"
    with Store.open(home, background=False) as store:
        root = make_session("root", messages=3, title="The root", run_id="run-1")
        store.save(root)
        child = Session.new_child_of("child", root, "m", "A child")
        child.add_message(Message.user("from the child"))
        store.save(child)
        store.save(Session.new_child_of("grandchild", child, "m", "A grandchild"))
        store.save(make_session("pinned", pinned=True, title="Pinned"))
        store.attach("root", b"\x89PNG not really", "image/png")
    return home


@pytest.fixture
def mounted(filled: Path, mount_home: Callable[..., Mount]) -> Iterator[Mount]:
    """The filled home, mounted; at the end `store.check` must be clean."""
    made = mount_home(filled)
    yield made
    with made.store() as store:
        findings = [f for f in store.check().findings if f.is_damage]
    assert not findings, findings
