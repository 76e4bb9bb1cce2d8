"""Hostile files: links, FIFOs, devices and the like placed in a home, and names swapped while in use.

They are never followed; what they point to is neither read nor written; nothing blocks on them; and `check` reports
each once. To detect reads, every file outside the home contains SECRET.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from store import InboxMessage, Message, ProjectSession, Session, Store, StoreError
from store.check.finding import Finding
from store.commit.write_request import WriteRequest
from tests.builders import make_session
from tests.crash.scenarios import make_home
from tests.torture.attack import Case
from tests.torture.places import scratch

SECRET = "SECRETSECRET"
PATIENCE_S = 60
FOLLOWS = ("search-rows", "derived", "missing-row", "extra-row", "stale-row", "history-behind")


# -- outside ---------------------------------------------------------------------------------------------------


def make_outside(home: Path, outside: Path) -> None:
    """A copy of the home in which every file contains text that must never be seen."""
    shutil.copytree(home, outside)
    for path in outside.rglob("*"):
        if path.is_file() and not path.name.startswith("index.db"):
            raw = path.read_bytes()
            path.write_bytes(
                raw.replace(b"msg-", f"{SECRET}-".encode()) + f"\n{SECRET}\n".encode() * (b"msg-" not in raw)
            )


def outside_state(outside: Path) -> dict[str, object]:
    """The state of the outside copy, which any write would change."""
    found: dict[str, object] = {}
    for path in [outside, *sorted(outside.rglob("*"))]:
        info = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
        found[str(path)] = (info.st_mode, info.st_uid, info.st_nlink, info.st_size, info.st_mtime_ns, content)
    return found


def leaked(home: Path) -> list[str]:
    """Files of the home, including the index and the trigrams, that contain text from outside."""
    return [str(p) for p in home.rglob("*") if not p.is_symlink() and p.is_file() and SECRET.encode() in p.read_bytes()]


@contextmanager
def fail_if_blocked(seconds: int = PATIENCE_S) -> Iterator[None]:
    """Fail if something blocks, such as opening a FIFO."""

    def fail(number: int, frame: object) -> None:
        raise AssertionError("blocked: opening a FIFO never returns")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# -- placing hostile files -------------------------------------------------------------------------------------


def away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _socket(path: Path, target: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        short = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            made.bind(f"/proc/self/fd/{short}/{path.name}")
        finally:
            os.close(short)


def _other_kind(path: Path, target: Path) -> None:
    """A directory in place of a file, or a file in place of a directory."""
    path.mkdir() if target.is_file() else path.write_bytes(b"no directory")


PLANTS: dict[str, Callable[[Path, Path], object]] = {  # by kind of hostile file, given its counterpart outside
    "link": lambda path, target: path.symlink_to(target),
    "link-to-itself": lambda path, target: path.symlink_to(path.name),
    "link-to-nothing": lambda path, target: path.symlink_to("/nowhere/at/all"),
    "link-to-etc": lambda path, target: path.symlink_to("/etc" if target.is_dir() else "/etc/passwd"),
    "fifo": lambda path, target: os.mkfifo(path),
    "socket": _socket,
    "device": lambda path, target: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5)),  # /dev/zero never ends
    "other-kind": _other_kind,
    "hard-link": lambda path, target: os.link(target, path),
}

# Every path with a meaning, in the home of `make_home`.
SPOTS = [
    *("sessions/root", "sessions/root/session.json", "sessions/root/runtime.json", "sessions/root/children"),
    *("sessions/root/children/child", "sessions/root/children/child/session.json", "sessions/root/attachments"),
    *("sessions/root/attachments/*", "sessions/root/traces.json", "sessions/root/mailbox", "sessions/root/mailbox/new"),
    *("sessions/root/mailbox/new/*", "sessions/root/token-usage.jsonl", "sessions/root/trajectory.jsonl"),
    *("state", "state/facts", "state/facts/f.json", "projects", "projects/k", "projects/k/sessions"),
    *("projects/k/sessions/p", "projects/k/sessions/p/session.json", "projects/k/index.json"),
    *("projects/k/sessions/p/children.json", "sessions.json", ".sessions-index.lock", ".session-lifecycle.lock"),
]
# Our own files: a hostile file there may make opening fail with a clear error, but is not followed.
PRIVATE_SPOTS = [
    *(".grovefs/locks", ".grovefs/open.lock", ".grovefs/index.db", ".grovefs/rejects", ".grovefs/rejects/recent.jsonl"),
    *(".grovefs/trigrams", ".grovefs/trash/*", ".grovefs/tmp", ".grovefs", "sessions", ".grovefs/mount.log"),
    *(".grovefs/voucher", ".grovefs/voucher.lock", ".grovefs/index.db-wal", ".grovefs/trigrams/lock"),
]


def spot_in(home: Path, spot: str) -> str:
    """The path itself, or the first match of its pattern."""
    if not spot.endswith("/*"):
        return spot
    parent = home / spot.removesuffix("/*")
    return f"{parent.relative_to(home)}/{sorted(os.listdir(parent))[0]}"


def prepare(place: Path) -> tuple[Path, Path]:
    home, outside = place / "home", place / "outside"
    make_home(home)
    with Store.open(home, background=False) as store:
        store.usage.append("root", {"n": 1})
        store.trigrams.sweep()
        store.trigrams.merge()
        with suppress(StoreError):
            store.names.commit(WriteRequest(_place_of("sessions/root/session.json"), b"{"))
    (home / "sessions/root/trajectory.jsonl").write_bytes(b'{"x": 1}\n')
    make_outside(home, outside)
    return home, outside


def _place_of(path: str) -> Any:
    from store.path_kinds import classify_path

    return classify_path(path)


def plant(home: Path, outside: Path, spot: str, kind: str) -> Path:
    """Replace a path by a hostile file. Its counterpart outside has the content it should have."""
    path, target = home / spot, outside / spot
    if not target.exists():  # such as a lock file, which is created on demand
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(SECRET.encode())
    if kind == "hard-link" and target.is_dir():
        raise Inapplicable
    away(path)
    PLANTS[kind](path, target)
    return path


class Inapplicable(Exception):
    """This kind of file cannot be placed there."""


# -- using the home --------------------------------------------------------------------------------------------


def calls(store: Store) -> list[Callable[[], object]]:
    """All operations that read or write; those that cannot be repeated come last."""
    places = [_place_of(p) for p in ("sessions/root/session.json", "sessions/root/attachments/new.txt")]
    root = store.names
    return [
        lambda: store.load("root"),
        lambda: store.load("root/child"),
        lambda: store.load_runtime("root"),
        lambda: [store.get_document("root", name) for name in ("session.json", "runtime.json")],
        lambda: store.transcript("root"),
        lambda: [store.attachments.read("root", name.partition(".")[0]) for name in _names(store, "root/attachments")],
        lambda: store.records.load_traces("root"),
        lambda: list(store.exports.write(store.exports.select(), "markdown", store.home.parent / "exported")),
        lambda: store.mail.at("root").pending(),
        lambda: store.mail.at("root").drain(),
        lambda: store.mail.at("root").deliver(InboxMessage.new("x", "task", "y")),
        lambda: store.state.load_json("facts", "f"),
        lambda: store.state.save_json("facts", "f", {"new": 1}),
        lambda: store.state.save_json("facts", "g", {"new": 1}),
        lambda: store.projects.load(ProjectSession("k", "p")),
        lambda: store.projects.save(ProjectSession("k", "p"), {"title": "new"}),
        lambda: store.projects.save(ProjectSession("k", "p", "c"), {"title": "new"}),
        lambda: store.search(SECRET),
        lambda: [store.usage.append("root", {"n": 2})],
        lambda: store.attach("root", b"new", "image/png"),
        lambda: root.commit(WriteRequest(places[1], b"by name")),
        lambda: root.commit(WriteRequest(places[0], b"{")),
        lambda: store.append("root", [Message.user("new")]),
        lambda: store.update("root", lambda session: setattr(session, "title", "newer")),
        lambda: store.save(make_session("root"), overwrite=True, shorten=True),
        lambda: store.save(Session.new_child("fresh", "root", "m", "new")),
        lambda: store.fork("root", "forked"),
        lambda: store.rename("forked", "moved"),
        lambda: [store.delete("moved"), *(store.trash.undelete(deleted.name) for deleted in store.trash.deleted()[:1])],
        lambda: store.trigrams.sweep(),
        lambda: store.trigrams.merge(),
        lambda: store.maintenance.sweep(),
        lambda: store.maintenance.export_sessions_json(),
        lambda: store.check(repair=True),
        lambda: store.maintenance.rebuild(),
        lambda: store.clear("root"),
        lambda: store.delete("root", force=True),
    ]


def _names(store: Store, path: str) -> list[str]:
    return [entry.name for entry in store.names.entries(f"sessions/{path}")]


def use_all(store: Store, *, may_read: bool = False) -> None:
    """Run all operations. Errors of the store or the disk are expected; any other exception is a bug."""
    for call in calls(store):
        try:
            answer: object = call()
        except (StoreError, OSError) as error:
            answer = error
        assert may_read or SECRET not in repr(answer), f"read from outside: {answer!r}"


def _check(store: Store, path: Path) -> list[Finding] | None:
    """The findings; None if there are none because opening the home repaired it."""
    is_left = path.is_symlink() or not path.is_file() or path.stat().st_nlink > 1
    findings = store.check().findings
    return findings if is_left else None


def opened(home: Path) -> Store:
    return Store.open(home, background=False, durability="normal", lock_timeout_s=2.0)


def planted(spot: str, kind: str, *, while_open: bool) -> None:
    """Place the file before the home is opened, or while it is open; then run all operations."""
    with scratch(in_memory=True) as place, fail_if_blocked():
        home, outside = prepare(place)
        spot = spot_in(home, spot)
        is_private = spot in PRIVATE_SPOTS or spot.startswith(".grovefs")
        store = opened(home) if while_open else None
        try:
            path = plant(home, outside, spot, kind)
        except Inapplicable:
            if store is not None:
                store.close()
            return
        before = outside_state(outside)
        findings: list[Finding] | None = None
        try:
            store = store or opened(home)
        except (StoreError, OSError) as error:
            if not is_private:
                raise AssertionError(f"{spot} prevents opening the home: {error}") from error
        else:
            with store:
                findings = _check(store, path) if not is_private else None
                use_all(store, may_read=kind == "hard-link")  # a hard-linked file belongs to the home too
        assert _without_linked_log(outside_state(outside), kind, outside / spot) == _without_linked_log(
            before, kind, outside / spot
        ), "written outside"
        away(path)
        assert kind == "hard-link" or not leaked(home), leaked(home)
        if findings is not None and not while_open:
            _reported_once(findings, spot, kind)


def _without_linked_log(seen: dict[str, object], kind: str, target: Path) -> dict[str, object]:
    """Ignore growth of a hard-linked log: it is the same file under both names."""
    return {path: what for path, what in seen.items() if kind != "hard-link" or path != str(target)}


def _reported_once(findings: list[Finding], spot: str, kind: str) -> None:
    """Exactly one finding names the path; others may report consequences."""
    if kind == "other-kind" and spot in ("state/facts", "projects/k"):
        return  # a foreign file like any other
    expected = [f for f in findings if f.kind not in FOLLOWS]
    named = [f for f in expected if f.path == spot and (kind != "hard-link" or f.kind in (kind, "export"))]
    assert len(named) == 1, f"{kind} at {spot}: {[str(f) for f in findings]}"


def plants(seed: int) -> Iterator[Case]:
    combinations = [
        (spot, kind, while_open) for spot in [*SPOTS, *PRIVATE_SPOTS] for kind in PLANTS for while_open in (False, True)
    ]
    random.Random(seed).shuffle(combinations)
    for spot, kind, while_open in combinations:
        name = f"{kind} at {spot}{' while open' if while_open else ''}"
        yield Case(name, lambda s=spot, k=kind, w=while_open: planted(s, k, while_open=w))  # type: ignore[misc]
