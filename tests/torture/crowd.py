"""Eight processes on one home with two mounts: each repeats one operation and notes what it was promised.

The notes are checked at the end: every append is present exactly once, every counter value was returned once. A worker
that makes no step for two minutes hangs; then all stacks are reported. The process that is promised something and
the process that checks it always differ, as in production.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from store import Message, Session, Store
from store.layout import SESSION, SESSIONS, TOKEN_USAGE
from tests.builders import make_document, make_session
from tests.mount.conftest import CODE, wait_until
from tests.torture.mounted_home import PATIENCE_S, MountedHome
from tests.torture.mounts import Mounted

processes = multiprocessing.get_context("fork")
HANG_S = 120.0  # for one step, on a busy machine
TURN_S = 4.0  # all writers use one session for this long, then the next: it grows, and a save costs its length
COUNTED = "counted"
OUTDATED = (errno.ESTALE,)


@dataclass(frozen=True)
class Scene:
    """The parameters of a worker."""

    home: Path
    mounts: tuple[Path, Path]
    aside: Path  # a directory outside the home, for notes
    began: float
    seconds: float
    seed: int

    @property
    def turns(self) -> int:
        return int(self.seconds / TURN_S) + 1

    def shared(self) -> str:
        """The session that all workers currently use."""
        return f"shared{min(int((time.monotonic() - self.began) / TURN_S), self.turns - 1)}"


@dataclass
class Worker:
    """A worker process: its notes, and the time of its last step."""

    name: str
    scene: Scene
    step: Callable[[Worker], None]
    notes: dict[str, list[Any]] = field(default_factory=dict)
    beat: Any = field(default_factory=lambda: processes.Value("d", time.monotonic()))
    steps: Any = field(default_factory=lambda: processes.Value("L", 0))
    process: Any = None
    store: Any = None
    random: random.Random = field(default_factory=random.Random)

    def note(self, kind: str, value: Any) -> None:
        self.notes.setdefault(kind, []).append(value)

    def new_word(self) -> str:
        return f"{self.name}x{self.steps.value}"

    def path(self, name: str) -> Path:
        return self.scene.aside / f"{self.name}.{name}"

    def start(self) -> None:
        self.process = processes.Process(target=self._run, name=self.name)
        self.process.start()

    def _run(self) -> None:
        self.random.seed(f"{self.scene.seed} {self.name}")
        with self.path("stacks").open("w") as stacks:
            faulthandler.register(signal.SIGUSR1, stacks)
            with Store.open(self.scene.home, background=False) as self.store:
                while time.monotonic() < self.scene.began + self.scene.seconds:
                    self.step(self)
                    self.beat.value = time.monotonic()
                    self.steps.value += 1
        self.path("notes").write_text(json.dumps(self.notes))

    def read_notes(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = json.loads(self.path("notes").read_text())
        return found


# -- operations ------------------------------------------------------------------------------------------------


def append_by_api(worker: Worker) -> None:
    """Append messages to the shared session and lines to its log."""
    name, word = worker.scene.shared(), worker.new_word()
    worker.store.append(name, [Message.user(word)])
    worker.note("appended", (name, word))
    assert worker.store.usage.append(name, {"word": word})
    worker.note("logged", (name, word))


def append_by_mount(number: int) -> Callable[[Worker], None]:
    """Read, modify and write through a mount; retry if the copy was stale."""

    def step(worker: Worker) -> None:
        name, word = worker.scene.shared(), worker.new_word()
        directory = worker.scene.mounts[number] / SESSIONS / name
        add = worker.random.choice((add_in_place, add_by_rename))
        for _ in range(20):
            if _is_current(lambda: add(directory, word)):
                worker.note("appended", (name, word))
                break
        with (directory / TOKEN_USAGE).open("ab", buffering=0) as log:
            log.write(json.dumps({"word": word}).encode() + b"\n")
        worker.note("logged", (name, word))

    return step


def _is_current(work: Callable[[], None]) -> bool:
    try:
        work()
    except OSError as error:
        if error.errno not in OUTDATED:
            raise
        return False
    return True


def _with_word(text: bytes, word: str) -> bytes:
    data = json.loads(text)
    data["messages"].append({"id": word, "role": "user", "content": word, "created_at": data["updated_at"]})
    return json.dumps(data, indent=2).encode()


def add_in_place(directory: Path, word: str) -> None:
    with (directory / SESSION).open("r+b", buffering=0) as file:
        text = _with_word(file.read(), word)
        file.seek(0)
        file.write(text)


def add_by_rename(directory: Path, word: str) -> None:
    """Create the temporary file before reading the document, so that a concurrent change is detected."""
    temporary = directory / f".{word}"
    with temporary.open("xb", buffering=0) as file:
        file.write(_with_word((directory / SESSION).read_bytes(), word))
    try:
        temporary.rename(directory / SESSION)
    except OSError:
        temporary.unlink()
        raise


def count(worker: Worker) -> None:
    """update() is linearizable: each value is returned once, and later reads see it."""

    def add(session: Session) -> None:
        session.metadata["n"] = str(int(session.metadata.get("n", "0")) + 1)

    before = worker.store.load(COUNTED)
    after = worker.store.update(COUNTED, add)
    seen = int(before.metadata.get("n", "0"))
    got = int(after.metadata["n"])
    assert got > seen >= max(worker.notes.get("counted", [0])), "the counter decreased"
    worker.note("counted", got)


def read(worker: Worker) -> None:
    """No torn reads: every read is JSON whose title matches its last message, or a complete session."""
    name = worker.scene.shared()
    for mount in worker.scene.mounts:
        data = json.loads((mount / SESSIONS / COUNTED / SESSION).read_bytes())
        assert data["id"] == COUNTED
        words = [
            message["content"] for message in json.loads((mount / SESSIONS / name / SESSION).read_bytes())["messages"]
        ]
        assert len(words) == len(set(words)), "an append is present twice"
        for line in (mount / SESSIONS / name / TOKEN_USAGE).read_bytes().splitlines():
            json.loads(line)
    session = worker.store.load(name)
    entry = worker.store.entry(name)
    assert entry.message_count >= len(session.messages), "the index is older than the commit"


def make_and_delete(worker: Worker) -> None:
    """Create sessions through one interface and delete them through the other."""
    name, doors = f"brief-{worker.new_word()}", worker.random.sample(("api", "mount"), 2)
    directory = worker.random.choice(worker.scene.mounts) / SESSIONS / name
    if doors[0] == "api":
        worker.store.save(make_session(name, title=f"Brief {worker.new_word()}"))
        wait_until((directory / SESSION).exists, HANG_S)
        shutil.rmtree(directory)
        assert worker.store.entry(name) is None
    else:
        directory.mkdir()
        (directory / SESSION).write_bytes(make_document(name))
        assert worker.store.delete(name)
        wait_until(lambda: not directory.exists(), HANG_S)


def look_for(worker: Worker) -> None:
    """Text of the shared session is found, by search and by grep in the files."""
    name = worker.scene.shared()
    words = [message.content for message in worker.store.load(name).messages]
    word = worker.random.choice(words)
    found = {hit.location.id for hit in worker.store.search(word, limit=50, by_session=True)}
    assert name in found, f"{word} is not found"
    if worker.steps.value % 10 == 0:
        command = [sys.executable, "-c", CODE, "grep", "--home", str(worker.scene.home), "-l", "-F", f'"{word}"']
        grep = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
        assert f"{SESSIONS}/{name}/{SESSION}" in grep.stdout.splitlines(), (grep.returncode, grep.stdout, grep.stderr)


def back_up(worker: Worker) -> None:
    """rsync the mount while all workers run; the copy is complete."""
    copy = worker.path("copy")
    source = worker.random.choice(worker.scene.mounts) / SESSIONS
    result = subprocess.run(
        ["rsync", "-a", "--delete", "--exclude=.*", f"{source}/", copy], capture_output=True, text=True, timeout=HANG_S
    )
    assert result.returncode in (0, 23, 24), result.stderr  # 23, 24: a file vanished during the copy
    if result.returncode == 23:
        lines = [line for line in result.stderr.splitlines() if line.startswith("rsync:")]
        assert all("No such file" in line or "Stale" in line for line in lines), result.stderr
    for document in copy.rglob("*.json"):
        json.loads(document.read_bytes())
    worker.beat.value = time.monotonic()
    time.sleep(0.2)


ROLES: dict[str, Callable[[Worker], None]] = {
    "api": append_by_api,
    "one": append_by_mount(0),
    "two": append_by_mount(1),
    "count": count,
    "read": read,
    "brief": make_and_delete,
    "look": look_for,
    "rsync": back_up,
}


# -- the attack ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """Resources of a daemon."""

    descriptors: int
    memory_kb: int

    @classmethod
    def of(cls, pid: int) -> Size:
        status = Path(f"/proc/{pid}/status").read_text()
        memory = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return cls(len(os.listdir(f"/proc/{pid}/fd")), int(memory.split()[1]))


MORE_DESCRIPTORS = 48  # each of up to sixteen threads has a connection with three files; other files are open briefly
MORE_MEMORY_KB = 48 * 1024  # document and page caches fill up to their limits


def crowd(grove: MountedHome, seconds: float, seed: int, roles: dict[str, Callable[[Worker], None]] = ROLES) -> int:
    """Run the workers, then check every promise; returns the number of steps."""
    aside = grove.base / f"aside-{seed}"
    aside.mkdir()
    mounts = (grove.mounts[0].path, grove.mounts[1].path)
    scene = Scene(grove.home, mounts, aside, time.monotonic(), seconds, seed)
    _set_up(grove, scene)
    workers = [Worker(name, scene, step) for name, step in roles.items()]
    sizes: dict[Path, list[Size]] = {mount.path: [] for mount in grove.mounts}
    for worker in workers:
        worker.start()
    try:
        while any(worker.process.is_alive() for worker in workers):
            time.sleep(0.5)
            _watch(workers, grove)
            if time.monotonic() > scene.began + seconds / 3:
                for mount in grove.mounts:
                    sizes[mount.path].append(Size.of(mount.daemon))
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()
    failed = {w.name: w.process.exitcode for w in workers if w.process.exitcode}
    assert not failed, f"{failed}\n{grove.logged()[-10_000:]}"
    for measured in sizes.values():
        _check_no_growth(measured)
    _check_promises(grove, workers)
    shutil.rmtree(aside)
    return sum(worker.steps.value for worker in workers)


def _set_up(grove: MountedHome, scene: Scene) -> None:
    grove.store.maintenance.erase_all()
    for turn in range(scene.turns):
        grove.store.save(make_session(f"shared{turn}", messages=0))
        grove.store.append(f"shared{turn}", [Message.user(f"first{turn}")])
        grove.store.usage.append(f"shared{turn}", {"word": "first"})
    grove.store.save(make_session(COUNTED))
    last = f"shared{scene.turns - 1}"
    for mount in scene.mounts:
        wait_until((mount / SESSIONS / last / TOKEN_USAGE).exists, PATIENCE_S)
        wait_until((mount / SESSIONS / COUNTED / SESSION).exists, PATIENCE_S)


def _watch(workers: list[Worker], grove: MountedHome) -> None:
    """Fail if a worker makes no progress, with the stacks of all processes."""
    now = time.monotonic()
    still = [w.name for w in workers if w.process.is_alive() and now - w.beat.value > HANG_S]
    if still:
        raise AssertionError(f"{', '.join(still)} made no step for {HANG_S:.0f} s\n{_stacks(workers, grove)}")


def _stacks(workers: list[Worker], grove: MountedHome) -> str:
    for worker in workers:
        if worker.process.is_alive():
            os.kill(worker.process.pid, signal.SIGUSR1)
    time.sleep(1.0)
    stacks = [f"{worker.name}:\n{worker.path('stacks').read_text()}" for worker in workers]
    return "\n".join([*stacks, *(_waits(mount) for mount in grove.mounts), grove.logged()])


def _waits(mount: Mounted) -> str:
    """Where the daemon's threads wait, according to /proc."""
    pid = mount.daemon
    waits = Counter((task / "wchan").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    return f"daemon of {mount.path}: {dict(waits)}"


def _check_no_growth(measured: list[Size]) -> None:
    """Compare the second half of the run with the first."""
    middle = len(measured) // 2
    if not middle:
        return
    early, late = measured[:middle], measured[middle:]
    most_fds, most_kb = max(s.descriptors for s in early), max(s.memory_kb for s in early)
    assert min(s.descriptors for s in late) <= most_fds + MORE_DESCRIPTORS, measured
    assert min(s.memory_kb for s in late) <= most_kb + MORE_MEMORY_KB, measured


def _check_promises(grove: MountedHome, workers: list[Worker]) -> None:
    notes = [worker.read_notes() for worker in workers]
    counted = [value for note in notes for value in note.get("counted", [])]
    assert Counter(counted) == Counter(range(1, len(counted) + 1)), "a value was returned twice, or never"
    appended = Counter(tuple(pair) for note in notes for pair in note.get("appended", []))
    logged = Counter(tuple(pair) for note in notes for pair in note.get("logged", []))
    names = {name for name, _ in (*appended, *logged)}
    words: Counter[Any] = Counter()
    lines: Counter[Any] = Counter()
    for name in names:
        session = grove.store.load(name)
        assert session is not None
        words.update((name, message.content) for message in session.messages[1:])
        for line in (grove.home / SESSIONS / name / TOKEN_USAGE).read_bytes().splitlines()[1:]:
            lines[name, json.loads(line)["word"]] += 1
    assert words == appended, f"lost: {appended - words}, not promised or duplicated: {words - appended}"
    assert lines == logged, f"lost: {logged - lines}, not promised or duplicated: {lines - logged}"
    report = grove.store.check()
    assert report.is_clean, report.findings
    assert "Traceback" not in grove.logged(), grove.logged()


# -- many processes on one session -----------------------------------------------------------------------------------


def together(jobs: list[Callable[[], None]]) -> None:
    """Run each function in its own process, all at once; all must succeed in time."""
    running = [processes.Process(target=job) for job in jobs]
    for process in running:
        process.start()
    deadline = time.monotonic() + HANG_S * 3
    try:
        for process in running:
            process.join(max(0.0, deadline - time.monotonic()))
        late = [process for process in running if process.is_alive()]
    finally:
        for process in running:
            process.kill()
            process.join()
    assert not late, f"{len(late)} hang"
    assert [process.exitcode for process in running] == [0] * len(running)


def log_by_all(grove: MountedHome, lines: int) -> None:
    """Append to a log through two mounts and the API: every line is present once, in its writer's order."""
    name = "logged"
    grove.store.save(make_session(name), overwrite=True)
    path = grove.home / SESSIONS / name / TOKEN_USAGE
    path.unlink(missing_ok=True)

    def by_mount(number: int) -> None:
        shown = grove.mounts[number].path / SESSIONS / name
        wait_until(shown.exists, PATIENCE_S)
        with (shown / TOKEN_USAGE).open("ab", buffering=0) as log:
            for turn in range(lines):
                log.write(json.dumps({"who": number, "n": turn}).encode() + b"\n")

    def by_api() -> None:
        with Store.open(grove.home, background=False) as store:
            for turn in range(lines):
                store.usage.append(name, {"who": 2, "n": turn})

    together([lambda: by_mount(0), lambda: by_mount(1), by_api])
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    for who in range(3):
        assert [line["n"] for line in found if line["who"] == who] == list(range(lines))
    assert len(found) == 3 * lines


def many_on_one(grove: MountedHome, writers: int) -> None:
    """Each process writes through either mount or the API; at the end its word is in the session once."""
    name = "crowded"
    grove.store.save(make_session(name, messages=1), overwrite=True)

    def work(number: int) -> None:
        word = f"w{number}"
        if number % 4 == 3:
            with Store.open(grove.home, background=False) as store:
                store.append(name, [Message.user(word)])
                return
        directory = grove.mounts[number % 2].path / SESSIONS / name
        wait_until((directory / SESSION).exists, PATIENCE_S)
        for _ in range(2000):
            if _is_current(lambda: (add_by_rename if number % 4 == 2 else add_in_place)(directory, word)):
                return None
            time.sleep(0.001 * number)
        raise AssertionError("never succeeded")

    together([lambda number=number: work(number) for number in range(writers)])  # type: ignore[misc]
    session = grove.store.load(name)
    assert session is not None
    assert Counter(m.content for m in session.messages[1:]) == Counter(f"w{number}" for number in range(writers))
