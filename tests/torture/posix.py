"""The same random operations on the native filesystem and on three kinds of directories of a mount.

Every result is compared: bytes, offsets, sizes, modes, listings and errno. The native filesystem is
the model. The differences that are meant are rules here, and each is checked, not skipped:

VISIBLE_AFTER_CLOSE: what a descriptor wrote to an attachment or a state text, and its new mode and
time, are visible under the name after close or fsync. Until then the name shows the file as it was
at the last close or fsync, or as the descriptor sees it; nothing in between. A file that was
created and neither closed nor synced yet is stored when it is renamed.

APPENDS_AT_CLOSE: lines that several descriptors append to one of them arrive in the order of their
closes. Every line arrives, each once and whole; in the order of writes in a foreign file.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.builders import make_session
from tests.torture.attack import Case
from tests.torture.mounts import Mounted, mounted

OPERATIONS = 100_000
OPERATIONS_AT_ONCE = 2_000
NAMES = tuple(f"{letter}.md" for letter in "abcd")  # the names of texts in state/
SIZES = (0, 1, 10, 4095, 4096, 4097, 10_000)
APPENDERS = 3
FLAGS = (
    os.O_RDONLY,
    os.O_RDWR,
    os.O_WRONLY,
    os.O_RDWR | os.O_CREAT,
    os.O_RDONLY | os.O_CREAT,
    os.O_RDWR | os.O_CREAT | os.O_EXCL,
    os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    os.O_WRONLY | os.O_TRUNC,
    os.O_RDWR | os.O_APPEND,
    os.O_RDWR | os.O_APPEND | os.O_CREAT,
)
WRITES = os.O_WRONLY | os.O_RDWR

Result = object  # what an operation returns, or the name of its errno


@dataclass
class Root:
    """One directory, and the descriptor that is open in it."""

    name: str
    path: Path
    is_versioned: bool = False  # its files are attachments or state texts
    fd: int = -1


@dataclass
class Driver:
    """Draws operations and compares their results. The descriptor, if any, is the only one that writes."""

    native: Root
    others: list[Root]
    chance: random.Random
    done: list[str] = field(default_factory=list)
    opened: str | None = None  # the name of the open file, while it has one
    is_open: bool = False
    can_write: bool = False
    is_pending: bool = False  # created by the descriptor, and neither closed nor synced since
    stable: dict[str, tuple[bytes, int] | None] = field(default_factory=dict)  # content, mode at the last close

    # -- running -----------------------------------------------------------------------------------

    def step(self) -> None:
        choices = [*self._on_names(), *(self._on_descriptor() if self.is_open else [self._open])]
        self.chance.choice(choices)()

    def _both(self, what: str, work: Callable[[Root], Result]) -> Result:
        """Run on every root; the results must be equal."""
        self.done.append(what)
        expected = attempt(work, self.native)
        for root in self.others:
            found = attempt(work, root)
            assert found == expected, self._differs(root, what, expected, found)
        return expected

    def _shown(self, what: str, name: str, work: Callable[[Root], Result], early: Callable[[], Result]) -> None:
        """Like `_both` for what a name shows; `early` is what VISIBLE_AFTER_CLOSE allows in addition."""
        self.done.append(what)
        expected = attempt(work, self.native)
        for root in self.others:
            found = attempt(work, root)
            allowed = [expected]
            if root.is_versioned and self.can_write and name == self.opened:
                allowed.append(early())
            assert found in allowed, self._differs(root, what, allowed, found)

    def _differs(self, root: Root, what: str, expected: Result, found: Result) -> str:
        history = "\n".join(self.done[-25:])
        return f"{root.name}: {what}: expected {shorten(expected)}, got {shorten(found)}\n{history}"

    def _note_stable(self, *names: str) -> None:
        """The native files are now what every root must show."""
        for name in names:
            path = self.native.path / name
            self.stable[name] = (path.read_bytes(), path.stat().st_mode & 0o777) if path.exists() else None

    def _note_stored(self, name: str) -> None:
        """The open file was stored under this name."""
        self._note_stable(name)
        self.is_pending = False

    # -- on names ----------------------------------------------------------------------------------

    def _on_names(self) -> list[Callable[[], None]]:
        name, other = self.chance.sample(NAMES, 2)
        shows: list[Callable[[], None]] = [partial(self._stat, name), partial(self._read_whole, name)]
        shows += [self._list, self._sizes]
        names: list[Callable[[], None]] = [partial(self._unlink, name), partial(self._rename, name, other)]
        if name != self.opened:
            shows += [partial(self._put, name), partial(self._truncate, name), partial(self._chmod, name)]
            shows += [partial(self._append_by_many, name), partial(self._copy, other, name), partial(self._utime, name)]
        return [*shows, *names]

    def _stat(self, name: str) -> None:
        def early() -> Result:
            was = self.stable.get(name)
            return (len(was[0]), was[1]) if was is not None else "ENOENT"

        self._shown(f"stat {name}", name, lambda root: size_and_mode(os.stat(root.path / name)), early)

    def _read_whole(self, name: str) -> None:
        def early() -> Result:
            was = self.stable.get(name)
            return was[0] if was is not None else "ENOENT"

        self._shown(f"read {name}", name, lambda root: (root.path / name).read_bytes(), early)

    def _list(self) -> None:
        self._both("list", lambda root: sorted(os.listdir(root.path)))

    def _sizes(self) -> None:
        """Sizes by readdirplus, while a file may be being written."""
        for name in NAMES:
            self._shown(f"listed {name}", name, partial(listed_size, name=name), partial(self._stable_size, name))

    def _stable_size(self, name: str) -> Result:
        was = self.stable.get(name)
        return len(was[0]) if was is not None else None

    def _put(self, name: str) -> None:
        data = self._data()
        self._both(f"put {name} {len(data)}", lambda root: write_whole(root.path / name, data))
        self._note_stable(name)

    def _truncate(self, name: str) -> None:
        size = self.chance.choice(SIZES)
        self._both(f"truncate {name} {size}", lambda root: os.truncate(root.path / name, size))
        self._note_stable(name)

    def _chmod(self, name: str) -> None:
        mode = self.chance.choice((0o600, 0o640, 0o4755, 0o444))
        self._both(f"chmod {name} {mode:o}", lambda root: os.chmod(root.path / name, mode & 0o1777))
        self._note_stable(name)

    def _utime(self, name: str) -> None:
        times = (self.chance.randrange(10**18), self.chance.randrange(10**18))

        def set_times(root: Root) -> Result:
            os.utime(root.path / name, ns=times)
            return os.stat(root.path / name).st_mtime_ns

        self._both(f"utime {name}", set_times)

    def _copy(self, source: str, target: str) -> None:
        if source == self.opened and self.can_write:
            return  # its content may be shown early or late
        self._both(f"copy_file_range {source} {target}", lambda root: copy(root.path / source, root.path / target))
        self._note_stable(target)

    def _unlink(self, name: str) -> None:
        self._both(f"unlink {name}", lambda root: os.unlink(root.path / name))
        self._note_stable(name)
        if name == self.opened:
            self.opened = None

    def _rename(self, name: str, other: str) -> None:
        result = self._both(f"rename {name} {other}", lambda root: os.rename(root.path / name, root.path / other))
        if result is not None:
            return
        self.stable[other] = self.stable.get(name)
        self.stable[name] = None
        if other == self.opened:
            self.opened = None  # the open file no longer has a name
        elif name == self.opened:
            self.opened = other
            if self.is_pending:
                self._note_stored(other)
        else:
            self._note_stable(other)

    def _append_by_many(self, name: str) -> None:
        """Several descriptors append lines. Equal content afterwards, up to the order of lines."""
        lines = [f"{number} {self.chance.random()}\n".encode() for number in range(APPENDERS * 2)]
        order = [*range(APPENDERS)] * 2
        self.chance.shuffle(order)
        self.done.append(f"append by many {name}")
        expected = attempt(partial(append_by_many, name=name, lines=lines, order=order), self.native)
        for root in self.others:
            found = attempt(partial(append_by_many, name=name, lines=lines, order=order), root)
            is_same = found == expected
            if root.is_versioned and isinstance(found, bytes) and isinstance(expected, bytes):
                start = len(expected) - sum(map(len, lines))
                is_same = found[:start] == expected[:start] and sorted(found[start:].split(b"\n")) == sorted(
                    expected[start:].split(b"\n")
                )
            assert is_same, self._differs(root, "append by many", expected, found)
        if isinstance(expected, bytes):  # one order for all, for the operations that follow
            self._both(f"put {name}", lambda root: write_whole(root.path / name, expected))
        self._note_stable(name)

    # -- on the descriptor -------------------------------------------------------------------------

    def _open(self) -> None:
        name, flags = self.chance.choice(NAMES), self.chance.choice(FLAGS)

        def open_file(root: Root) -> Result:
            root.fd = os.open(root.path / name, flags, 0o640)
            return None

        existed = (self.native.path / name).exists()
        if self._both(f"open {name} {flags:o}", open_file) is None:
            self.is_open, self.opened, self.can_write = True, name, bool(flags & WRITES)
            self.is_pending = not existed
            if not existed:
                self._note_stable(name)

    def _on_descriptor(self) -> list[Callable[[], None]]:
        calls = [self._write, self._pwrite, self._read, self._pread, self._seek, self._size, self._map]
        return [*calls, *calls, self._ftruncate, self._fchmod, self._fsync, self._close, self._close, self._close]

    def _write(self) -> None:
        data = self._data()
        self._both(f"write {len(data)}", lambda root: os.write(root.fd, data))

    def _pwrite(self) -> None:
        data, offset = self._data(), self.chance.choice(SIZES)
        self._both(f"pwrite {len(data)} at {offset}", lambda root: os.pwrite(root.fd, data, offset))

    def _read(self) -> None:
        size = self.chance.choice(SIZES)
        self._both(f"read {size}", lambda root: os.read(root.fd, size))

    def _pread(self) -> None:
        size, offset = self.chance.choice(SIZES), self.chance.choice(SIZES)
        self._both(f"pread {size} at {offset}", lambda root: os.pread(root.fd, size, offset))

    def _seek(self) -> None:
        whence = self.chance.choice((os.SEEK_SET, os.SEEK_CUR, os.SEEK_END))
        offset = self.chance.choice((*SIZES, -1, -10))
        self._both(f"seek {offset} {whence}", lambda root: os.lseek(root.fd, offset, whence))

    def _size(self) -> None:
        self._both("fstat", lambda root: os.fstat(root.fd).st_size)

    def _map(self) -> None:
        """Read the file through mapped memory: no SIGBUS, and the descriptor's own bytes."""
        is_mapped = bool(os.fstat(self.native.fd).st_size)
        self._both("mmap", lambda root: mapped(root.fd))
        if self.opened is not None and is_mapped:
            self._note_stored(self.opened)  # Python maps, and then closes, a duplicate of the descriptor

    def _ftruncate(self) -> None:
        size = self.chance.choice(SIZES)
        self._both(f"ftruncate {size}", lambda root: os.ftruncate(root.fd, size))

    def _fchmod(self) -> None:
        mode = self.chance.choice((0o600, 0o644))
        self._both(f"fchmod {mode:o}", lambda root: os.fchmod(root.fd, mode))
        if not self.can_write and self.opened is not None:
            self._note_stable(self.opened)

    def _fsync(self) -> None:
        self._both("fsync", lambda root: os.fsync(root.fd))
        if self.opened is not None:
            self._note_stored(self.opened)

    def _close(self) -> None:
        self._both("close", close)
        name, self.is_open, self.opened, self.can_write = self.opened, False, None, False
        if name is not None:
            self._note_stable(name)
            self._stat(name)
            self._read_whole(name)

    def _data(self) -> bytes:
        return self.chance.randbytes(self.chance.choice(SIZES))

    def finish(self) -> None:
        if self.is_open:
            self._close()
        for name in NAMES:
            self._stat(name)
            self._read_whole(name)


# -- operations ------------------------------------------------------------------------------------


def attempt(work: Callable[[Root], Result], root: Root) -> Result:
    try:
        return work(root)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def shorten(value: Result) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}… ({len(text)})"


def size_and_mode(info: os.stat_result) -> tuple[int, int]:
    return info.st_size, info.st_mode & 0o777


def listed_size(root: Root, *, name: str) -> int | None:
    with os.scandir(root.path) as entries:
        return next((entry.stat().st_size for entry in entries if entry.name == name), None)


def write_whole(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def copy(source: Path, target: Path) -> Result:
    size = source.stat().st_size
    reads = os.open(source, os.O_RDONLY)
    writes = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return os.copy_file_range(reads, writes, size) if size else 0
    finally:
        os.close(reads)
        os.close(writes)


def append_by_many(root: Root, *, name: str, lines: list[bytes], order: list[int]) -> bytes:
    """Each descriptor writes two lines, in the given order, and all are closed."""
    path = root.path / name
    fds = [os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) for _ in range(APPENDERS)]
    for number, who in enumerate(order):
        os.write(fds[who], lines[number])
    for fd in fds:
        os.close(fd)
    return path.read_bytes()


def mapped(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    if not size:
        return b""
    with mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as memory:
        return memory[:]


def close(root: Root) -> Result:
    fd, root.fd = root.fd, -1
    os.close(fd)
    return None


# -- the attack ------------------------------------------------------------------------------------


def roots(mount: Mounted, place: Path) -> tuple[Root, list[Root]]:
    """A native directory next to the mountpoint, and three in the mount."""
    (place / "native").mkdir()
    foreign, state = mount.path / "sessions/root/work", mount.path / "state/notes"
    foreign.mkdir()
    state.mkdir()
    return Root("native", place / "native"), [
        Root("foreign", foreign),
        Root("attachments", mount.path / "sessions/root/attachments", is_versioned=True),
        Root("state", state, is_versioned=True),
    ]


def fill(home: Path) -> None:
    from store import Store

    with Store.open(home, background=False) as store:
        store.save(make_session("root"))


def compare(operations: int, seed: int) -> None:
    """Run that many operations, and a check of the home at the end."""
    with mounted(fill, "--durability", "normal") as mount:
        native, others = roots(mount, mount.path.parent)
        driver = Driver(native, others, random.Random(seed))
        try:
            for _ in range(operations):
                driver.step()
            driver.finish()
        finally:
            for root in (native, *others):
                if root.fd >= 0:
                    os.close(root.fd)
        assert not mount.damage(), mount.damage()


def cases(seed: int) -> Iterator[Case]:
    chance = random.Random(seed)
    for number in range(0, OPERATIONS, OPERATIONS_AT_ONCE):
        each = chance.randrange(1 << 32)
        yield Case(f"operations {number}, seed {each}", partial(compare, OPERATIONS_AT_ONCE, each))
