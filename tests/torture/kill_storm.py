"""The daemon killed again and again under ten writers, six through the mount and four by API, and a reader.

After each kill every one of them gets an answer, an error being one; the next mount works; the API goes
on, so index.db is not locked. What the reader gets is one whole version. At the end everything that
was acknowledged is there. An answer or a mount that comes too late fails the attack, but not before
everything was checked.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fusefs.daemon.fuse_connection import find_number
from store import Busy, Message, Session, Store
from tests.builders import make_session
from tests.mount.conftest import daemons_of, wait_until
from tests.torture.attack import Case
from tests.torture.mounts import PATIENCE_S, Mounted
from tests.torture.places import flaws, scratch

KILLS = 500
KILLS_AT_ONCE = 10  # with one set of writers
ANSWER_S = 5.0
HANG_S = 60.0  # an answer that takes longer than this does not come; a late one is noted, and the storm goes on
PAUSE_S = 0.01  # between two writes: ten writers must leave the processors some time
AWAY_S = 0.05  # before the next try while there is no mount
BY_MOUNT, BY_API = 6, 4
READER = BY_MOUNT + BY_API  # its number; writers have those before
SESSIONS = 10
READ_BYTES = 512  # at once: a kill often meets an open document
REPLACING = (4, 5, 7, 9)  # writers each of whose writes replaces the one before
_SLOT = struct.Struct("=qq")  # operations begun and answered
_STOP_AT = 4000  # offset of the flag in the shared page


class Progress:
    """What each writer, and the reader, has begun and was answered, in memory shared with them."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, 4096)

    def note(self, writer: int, begun: int, answered: int) -> None:
        _SLOT.pack_into(self._page, writer * _SLOT.size, begun, answered)

    def read(self, writer: int) -> tuple[int, int]:
        begun, answered = _SLOT.unpack_from(self._page, writer * _SLOT.size)
        return begun, answered

    def has_answered(self, writer: int, number: int) -> bool:
        return self.read(writer)[1] >= number

    def stop(self) -> None:
        self._page[_STOP_AT] = 1

    @property
    def is_stopped(self) -> bool:
        return bool(self._page[_STOP_AT])


# -- the writers and the reader --------------------------------------------------------------------


def append_line(path: Path, number: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{number}\n".encode())
    finally:
        os.close(fd)


def rewrite(path: Path, number: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o600)
    try:
        os.write(fd, number.encode())
    finally:
        os.close(fd)


def retitle(path: Path, number: str) -> None:
    document = json.loads(path.read_text())
    temporary = path.with_name(".temporary")
    rewrite(temporary, json.dumps({**document, "title": number}))
    temporary.rename(path)


def mount_writers(mountpoint: Path) -> list[Callable[[str], None]]:
    attached = mountpoint / "sessions/s0/attachments"
    return [
        partial(append_line, attached / "shared.log"),
        partial(append_line, attached / "shared.log"),
        partial(append_line, mountpoint / "sessions/s2/token-usage.jsonl"),
        partial(append_line, mountpoint / "state/notes/shared.md"),
        partial(retitle, mountpoint / "sessions/s4/session.json"),
        partial(rewrite, attached / "own"),
    ]


def api_writers(store: Store) -> list[Callable[[str], object]]:
    def rename(number: str) -> None:
        store.update("s9", lambda session: setattr(session, "title", number))

    return [
        lambda number: store.append("s6", [Message.user(number)]),
        lambda number: store.state.save_json("facts", "f7", number),
        lambda number: store.usage.append("s8", {"model": "m", "number": number}),
        rename,
    ]


def read_document(sessions: Path, number: str) -> None:
    """List a directory and read its document; another one for each number."""
    directory = sessions / f"s{int(number.partition('-')[2]) % SESSIONS}"
    assert "session.json" in os.listdir(directory)
    with (directory / "session.json").open("rb", buffering=0) as file:
        data = b"".join(iter(partial(file.read, READ_BYTES), b""))
    assert json.loads(data)["id"] == directory.name


def live(writer: int, home: Path, mountpoint: Path, progress: Progress, acknowledged: Path) -> None:
    """Write until told to stop. Numbers that were acknowledged go to a file; refused ones are tried no more."""
    store = Store.open(home, background=False) if BY_MOUNT <= writer < READER else None
    work: Callable[[str], object]
    if store is not None:
        work = api_writers(store)[writer - BY_MOUNT]
    elif writer == READER:
        work = partial(read_document, mountpoint / "sessions")
    else:
        work = mount_writers(mountpoint)[writer]
    with acknowledged.open("ab", buffering=0) as file:
        number = len(acknowledged.read_bytes().splitlines()) * 1000
        begun = 0
        while not progress.is_stopped:
            number, begun = number + 1, begun + 1
            progress.note(writer, begun, begun - 1)
            try:
                work(f"{writer}-{number:09}")
            except (OSError, Busy):
                time.sleep(AWAY_S)
            else:
                file.write(f"{writer}-{number:09}\n".encode())
            progress.note(writer, begun, begun)
            time.sleep(PAUSE_S)
    if store is not None:
        store.close()


@contextmanager
def with_bytecode(place: Path) -> Iterator[None]:
    """Let daemons keep compiled modules, as an installation does: half of a start is compiling them."""
    names = ("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ["PYTHONPYCACHEPREFIX"] = str(place / "bytecode")
    try:
        yield
    finally:
        del os.environ["PYTHONPYCACHEPREFIX"]
        os.environ.update({name: value for name, value in before.items() if value is not None})


# -- the storm -------------------------------------------------------------------------------------


class Storm:
    """A home, its mount, and what its writers were acknowledged."""

    def __init__(self, place: Path, answer_s: float = ANSWER_S) -> None:
        self.place, self.home, self.answer_s = place, place / "home", answer_s
        self.mounted = Mounted(self.home, place / "mnt", place / "log")
        self.mounted.path.mkdir()
        self.longest_s = self.longest_mount_s = 0.0
        self.late: list[str] = []  # answers and mounts that took longer than answer_s
        with Store.open(self.home, background=False) as store:
            for number in range(SESSIONS):
                store.save(make_session(f"s{number}"))
            store.state.save_markdown("notes", "other", "")

    def acknowledged(self, writer: int) -> Path:
        return self.place / f"acknowledged-{writer}"

    @contextmanager
    def writers(self, progress: Progress) -> Iterator[list[int]]:
        pids = []
        for writer in range(READER + 1):
            self.acknowledged(writer).touch()
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    live(writer, self.home, self.mounted.path, progress, self.acknowledged(writer))
                    status = 0
                finally:
                    os._exit(status)
            pids.append(pid)
        try:
            yield pids
        finally:
            progress.stop()
            for pid in pids:
                self._reap(pid)

    def _reap(self, pid: int) -> None:
        ends = time.monotonic() + HANG_S
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > ends:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"writer {pid} hangs")
            time.sleep(0.01)
        assert ended[1] == 0, f"a writer ended with {ended[1]}"

    def rage(self, kills: int, chance: random.Random) -> None:
        """Kill the daemon repeatedly under one set of writers, and check what they wrote, however slow it was."""
        self.mounted.mount()
        progress = Progress()
        with self.writers(progress):
            for _ in range(kills):
                time.sleep(chance.uniform(0.02, 0.6))
                self._kill(progress)
        self.mounted.unmount()
        self.mounted.ended()
        self.check()
        assert not self.late, f"nothing was lost, but {'; '.join(self.late)}"

    def end(self) -> None:
        """Leave no mount, whatever happened."""
        if find_number(self.mounted.path) is not None:
            subprocess.run(["umount", "-f", self.mounted.path], capture_output=True)  # releases those who wait
            subprocess.run(["umount", "-l", self.mounted.path], capture_output=True)
        wait_until(lambda: not daemons_of(self.mounted.path), PATIENCE_S)

    def _kill(self, progress: Progress) -> None:
        os.kill(self.mounted.daemon, signal.SIGKILL)
        killed = time.monotonic()
        before = [progress.read(writer) for writer in range(READER + 1)]
        for writer, (begun, _) in enumerate(before):
            who = "the reader" if writer == READER else f"writer {writer}"
            self._wait(partial(progress.has_answered, writer, begun), who, killed)
        mounting = time.monotonic()
        self.mounted.mount()
        took_s = time.monotonic() - mounting
        self.longest_mount_s = max(self.longest_mount_s, took_s)
        if took_s > self.answer_s:
            self.late.append(f"mounting took {took_s:.1f} s")
        for writer, (begun, _) in enumerate(before[BY_MOUNT:READER], BY_MOUNT):  # not locked out of index.db
            self._wait(partial(progress.has_answered, writer, begun + 1), f"API {writer}", time.monotonic())

    def _wait(self, is_so: Callable[[], bool], who: str, since: float) -> None:
        while not is_so():
            assert time.monotonic() - since < HANG_S, f"{who} got no answer in {HANG_S} s"
            time.sleep(0.005)
        took_s = time.monotonic() - since
        self.longest_s = max(self.longest_s, took_s)
        if took_s > self.answer_s:
            self.late.append(f"{who} waited {took_s:.1f} s for an answer")

    # -- what must be there ------------------------------------------------------------------------

    def check(self) -> None:
        with Store.open(self.home, background=False) as store:
            assert not flaws(store), flaws(store)
            assert self.acknowledged(READER).stat().st_size, "no document was ever read"
            for writer in range(BY_MOUNT + BY_API):
                lines = self.acknowledged(writer).read_text().split()
                found = found_by(store, self.home, writer)
                missing = [line for line in lines if line not in found]
                if writer in REPLACING:
                    missing = missing if lines and max(found, default="") < lines[-1] else []
                assert not missing, f"{len(missing)} acknowledged writes of writer {writer} are lost: {missing[:3]}"


def found_by(store: Store, home: Path, writer: int) -> set[str]:
    """The numbers that a writer has left in the home."""
    sessions = home / "sessions"
    if writer in (0, 1):
        return set((sessions / "s0/attachments/shared.log").read_text().split())
    if writer == 2:
        return set((sessions / "s2/token-usage.jsonl").read_text().split())
    if writer == 3:
        return set((home / "state/notes/shared.md").read_text().split())
    if writer == 5:
        return {(sessions / "s0/attachments/own").read_text()}
    if writer == 6:
        return {message.content for message in _load(store, "s6").messages}
    if writer == 7:
        return {store.state.load_json("facts", "f7")}
    if writer == 8:
        lines = (sessions / "s8/token-usage.jsonl").read_text().splitlines()
        return {json.loads(line)["number"] for line in lines if line.endswith("}")}
    return {_load(store, f"s{writer}").title}


def _load(store: Store, session_id: str) -> Session:
    session = store.load(session_id)
    assert session is not None
    return session


def kills(seed: int) -> Iterator[Case]:
    chance = random.Random(seed)
    for number in range(0, KILLS, KILLS_AT_ONCE):
        yield Case(f"kills {number} to {number + KILLS_AT_ONCE}", partial(_one, random.Random(chance.random())))


def _one(chance: random.Random) -> None:
    with scratch() as place, with_bytecode(place):
        storm = Storm(place)
        try:
            storm.rage(KILLS_AT_ONCE, chance)
        finally:
            storm.end()
            print(f"longest answer {storm.longest_s:.2f} s, longest mount {storm.longest_mount_s:.2f} s")
