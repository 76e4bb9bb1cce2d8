"""Count the function calls that common operations make, such as a write through the mount.

Each operation runs in this process, against the real store and the real request handlers, without a mount: the
kernel's requests are simulated, and cache invalidations are discarded. A profile hook counts calls of functions in
store/ and fusefs/. A comprehension counts as a call; resuming a generator does not.

    calls      function calls
    functions  different functions
    files      different source files
    hops       calls from one file into another
    depth      deepest stack of our own frames, across the hop into a worker thread

Usage: scripts/trace [--calls OPERATION]   (with --calls: every call, indented)
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pyfuse3
import trio

from fusefs.daemon.mount import make_views
from fusefs.requests import kernel_cache
from fusefs.requests.operations import Operations
from store import Message, Session, Store

ROOT = Path(__file__).resolve().parents[1]
OURS = (str(ROOT / "store") + "/", str(ROOT / "fusefs") + "/")
NOT_CALLS = {"<module>"}
HEADS = ("requests", "calls", "functions", "files", "hops", "depth")
CALLER = SimpleNamespace(pid=os.getpid(), uid=0, gid=0, umask=0o022)


@dataclass
class Trace:
    """Counts of the profile hook while it is on."""

    is_on: bool = False
    show: bool = False
    requests: int = 0
    calls: int = 0
    hops: int = 0
    depth: int = 0
    functions: set[CodeType] = field(default_factory=set)
    _resumed: set[FrameType] = field(default_factory=set)
    _stacks: dict[int, list[str]] = field(default_factory=dict)
    _handed_over: list[str] = field(default_factory=list)

    def hook(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if not self.is_on or not code.co_filename.startswith(OURS) or code.co_name in NOT_CALLS:
            return
        stack = self._stacks.setdefault(threading.get_ident(), list(self._base()))
        if event == "call":
            self._enter(frame, code, stack)
        elif event == "return" and stack:
            stack.pop()

    def _base(self) -> list[str]:
        """The stack to start from: a worker thread continues the handler that gave it the work."""
        return self._handed_over if threading.current_thread() is not threading.main_thread() else []

    def _enter(self, frame: FrameType, code: CodeType, stack: list[str]) -> None:
        caller = stack[-1] if stack else ""
        stack.append(code.co_filename)
        self.depth = max(self.depth, len(stack))
        if code.co_filename.endswith("requests/threads.py") and code.co_name == "run":
            self._handed_over = list(stack)
        if frame in self._resumed:  # resumed, not called again
            return
        if code.co_flags & 0x2A0:  # generator, coroutine, async generator
            self._resumed.add(frame)
        self.calls += 1
        self.hops += caller != code.co_filename
        self.functions.add(code)
        if self.show:
            print(f"{'  ' * len(stack)}{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno} {code.co_name}")

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.functions}

    def row(self) -> list[int]:
        return [self.requests, self.calls, len(self.functions), len(self.files), self.hops, self.depth]


@contextmanager
def counted(trace: Trace) -> Iterator[None]:
    trace._stacks.clear()
    trace.is_on = True
    try:
        yield
    finally:
        trace.is_on = False


class Mount:
    """The request handlers of a mount, called as the kernel would."""

    def __init__(self, store: Store, trace: Trace) -> None:
        self._operations = Operations(store, lambda stats: make_views(store, stats))
        self._trace = trace

    async def request(self, name: str, *arguments: Any) -> Any:
        """One request that counts."""
        self._trace.requests += 1
        with counted(self._trace):
            return await getattr(self._operations, name)(*arguments)

    async def walk(self, *names: str, counts: bool = False) -> int:
        """Look up a path from the root; the node's number."""
        inode = pyfuse3.ROOT_INODE
        for name in names:
            ask = self.request if counts else self.silent
            inode = (await ask("lookup", inode, name.encode(), CALLER)).st_ino
        return inode

    async def silent(self, name: str, *arguments: Any) -> Any:
        """One request that does not count."""
        return await getattr(self._operations, name)(*arguments)

    def close(self) -> None:
        self._operations.close()


async def save_as_vim(mount: Mount, text: bytes) -> None:
    """vim's :wq: the old file is renamed away, a new one is written, the old one is removed."""
    directory = await mount.walk("sessions", "s")
    await mount.walk("sessions", "s", "session.json")
    await mount.request("rename", directory, b"session.json", directory, b"session.json~", 0, CALLER)
    created, _ = await mount.request("create", directory, b"session.json", 0o600, 0o1, CALLER)
    await mount.request("write", created.fh, 0, text)
    await mount.request("fsync", created.fh, False)
    await mount.request("flush", created.fh)
    await mount.request("release", created.fh)
    await mount.request("unlink", directory, b"session.json~", CALLER)


async def save_as_vim_after_reading(mount: Mount, text: bytes) -> None:
    """The same by a process that the mount has seen reading the document, as vim does: its base is known."""
    inode = await mount.walk("sessions", "s", "session.json")
    opened = await mount.silent("open", inode, 0, CALLER)
    for request in ("flush", "release"):
        await mount.silent(request, opened.fh)
    await save_as_vim(mount, text)


async def save_in_place(mount: Mount, text: bytes) -> None:
    """open(O_TRUNC), write, close, as shells and VS Code do."""
    directory = await mount.walk("sessions", "s")
    inode = await mount.walk("sessions", "s", "session.json")
    try:
        await mount.request("open", inode, 0o1001, CALLER)
    except pyfuse3.FUSEError:
        inode = (await mount.request("lookup", directory, b"session.json", CALLER)).st_ino
    opened = await mount.request("open", inode, 0o1001, CALLER)
    await mount.request("write", opened.fh, 0, text)
    await mount.request("flush", opened.fh)
    await mount.request("release", opened.fh)


async def cat(mount: Mount, _text: bytes) -> None:
    inode = await mount.walk("sessions", "s", "session.json", counts=True)
    opened = await mount.request("open", inode, 0, CALLER)
    await mount.request("read", opened.fh, 0, 1 << 17)
    await mount.request("flush", opened.fh)
    await mount.request("release", opened.fh)


def through_mount(work: Callable[[Mount, bytes], Awaitable[None]]) -> Callable[[Store, Trace], None]:
    def run(store: Store, trace: Trace) -> None:
        text = edited((store.home / "sessions/s/session.json").read_bytes())
        mount = Mount(store, trace)
        try:
            trio.run(work, mount, text)
        finally:
            mount.close()

    return run


def edited(raw: bytes) -> bytes:
    """The session as a person would have changed it: another title, as typed."""
    document = json.loads(raw)
    document["title"] = "Another title"
    return json.dumps(document, indent=2).encode() + b"\n"


def by_api(work: Callable[[Store], object]) -> Callable[[Store, Trace], None]:
    def run(store: Store, trace: Trace) -> None:
        with counted(trace):
            work(store)

    return run


OPERATIONS: dict[str, Callable[[Store, Trace], None]] = {
    "vim :wq": through_mount(save_as_vim),
    "vim :wq after reading": through_mount(save_as_vim_after_reading),
    "save in place": through_mount(save_in_place),
    "cat session.json": through_mount(cat),
    "Store.append": by_api(lambda store: store.append("s", [Message.user("one more")])),
    "Store.load": by_api(lambda store: store.load("s")),
    "Store.search": by_api(lambda store: list(store.search("word"))),
}


WRITES = ("vim :wq", "save in place", "Store.append")  # also traced with history=False

_current = Trace()


def _hook(frame: FrameType, event: str, argument: object) -> None:
    _current.hook(frame, event, argument)


def make_session(store: Store) -> None:
    session = Session.new("s", "a-model")
    session.title = "A title"
    for number in range(6):
        session.add_message(Message.user(f"a word, number {number}"))
    store.save(session)


def discard_invalidations() -> None:
    """Replace pyfuse3 where the kernel would be notified: there is no mount."""
    no_kernel = SimpleNamespace(invalidate_entry=lambda *_: None, invalidate_inode=lambda *_, **__: None)
    setattr(kernel_cache, "pyfuse3", no_kernel)  # noqa: B010 - mypy rejects the assignment


def open_home(place: str, *, history: bool) -> Store:
    return Store.open(Path(place) / "home", background=False, history=history)


def measure(name: str, *, show: bool, history: bool = True) -> Trace:
    """Trace one operation. Worker threads outlive it, so their hook asks which trace is current."""
    global _current
    discard_invalidations()
    _current = trace = Trace(show=show)
    with tempfile.TemporaryDirectory() as place, open_home(place, history=history) as store:
        make_session(store)
        threading.setprofile(_hook)
        sys.setprofile(_hook)
        try:
            OPERATIONS[name](store, trace)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", metavar="OPERATION", choices=list(OPERATIONS), help="print every call, indented")
    chosen = parser.parse_args().calls
    if chosen:
        measure(chosen, show=True)
        return
    print(f"{'operation':28}" + "".join(f"{head:>11}" for head in HEADS))
    for name in OPERATIONS:
        print_row(name, measure(name, show=False))
    for name in WRITES:
        print_row(f"{name}, no history", measure(name, show=False, history=False))


def print_row(name: str, trace: Trace) -> None:
    print(f"{name:28}" + "".join(f"{number:>11}" for number in trace.row()))


if __name__ == "__main__":
    main()
