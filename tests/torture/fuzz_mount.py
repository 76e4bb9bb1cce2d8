"""Hostile content through a mount: written like a shell, replaced like an editor, and patched in place.

One mount serves many documents. After each, the daemon is alive, the name shows the new or the old bytes, and rejected
bytes and the reason are next to it. Names are raw bytes, as the kernel passes them: anything except `/` and NUL.
"""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from store import Store
from tests.torture import corpus
from tests.torture.attack import Case
from tests.torture.fuzz import LONGEST_S, LOOKS_LIKE, NEEDS_TWO, TARGETS, hostile_name, within
from tests.torture.mounts import Mounted, mounted

BATCH = 100
# The errors a writer may get for a document; anything else is a bug.
_REFUSED = {errno.EBADMSG, errno.ESTALE, errno.EFBIG}
# And for a name: it is invalid, exists, leads nowhere, or is derived.
_NAME_REFUSED = {
    *(errno.EINVAL, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EPERM),
    *(errno.EROFS, errno.ENOTEMPTY, errno.EBADMSG, errno.ENOSYS, errno.ELOOP),
    errno.EXDEV,  # a directory with an unchecked document: mv(1) then copies it
}


def fill(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.put_document("s1", "session.json", corpus.render(corpus.VALID["session"][3], random.Random(0)))


def write(path: Path, raw: bytes, draw: random.Random) -> None:
    """Write in one of several ways; OSError if it was rejected."""
    way = draw.random()
    if way < 0.4 or not path.exists():
        path.write_bytes(raw)
    elif way < 0.7:
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(raw)
        try:
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    else:
        with path.open("r+b", buffering=0) as file:
            at = draw.randrange(len(raw) + 1)
            file.truncate(draw.choice([0, len(raw)]))
            os.pwrite(file.fileno(), raw[at:], at)
            os.pwrite(file.fileno(), raw[:at], 0)
            file.truncate(len(raw))


def _read(path: Path) -> bytes | None:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return None


def one_document(mount: Mounted, draw: random.Random) -> bool:
    """True if it was accepted."""
    kind = draw.choice(["session"] * 8 + list(TARGETS)[1:])
    _, target = draw.choice(TARGETS[kind])
    path = mount.path / target
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = corpus.document("session" if kind == "child" else kind, draw)
    before = _read(path)
    try:
        write(path, raw, draw)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        assert _read(path) == before, "rejected, but the content changed"
        assert before is None or path.stat().st_size == len(before)
        if error.errno == errno.EBADMSG:
            assert (path.with_name(f"{path.name}.error")).read_bytes(), "there is no reason"
        return False
    now = _read(path)
    if raw == b"" or now == before:  # nothing was written, or nothing changed
        return False
    if kind in ("session", "child", "sidecar"):
        assert now is not None
        assert now == raw or before is None, "accepted, but the content differs"  # a fork has a new identity
        assert json.loads(now)["id"] == path.parent.name
    return True


def each(mount: Mounted, one: Callable[[Mounted, random.Random], bool], draw: random.Random, size: int) -> int:
    """Run `size` tries, none for long; returns how many were accepted."""
    taken, clock = 0, mount.clock()
    for nth in range(size):
        with within(LONGEST_S, f"number {nth}", clock):
            taken += one(mount, draw)
    return taken


def batch(mount: Mounted, seed: int, number: int, size: int = BATCH) -> int:
    taken = each(mount, one_document, random.Random(f"mount/{seed}/{number}"), size)
    for page in (mount.path / "transcripts").rglob("*.md"):
        assert len(page.read_bytes()) == page.stat().st_size
    json.loads((mount.path / "sessions.json").read_bytes())
    with Store.open(mount.home, background=False) as store:
        damage = [f for f in store.check().findings if f.is_damage and f.kind not in NEEDS_TWO]
        assert not damage, damage
        for name in store.ids():
            assert store.load(name) is not None
    return taken


def documents(seed: int, batches: int = 50) -> Iterator[Case]:
    with mounted(fill, in_memory=True) as mount:
        for number in range(batches):
            yield Case(f"batch-{number}", partial(batch, mount, seed, number))


# -- names -----------------------------------------------------------------------------------------------------


def _raw_name(draw: random.Random) -> bytes:
    raw = hostile_name(draw).encode(errors="surrogatepass").replace(b"/", b"").replace(b"\0", b"")
    return raw if draw.random() < 0.8 else raw + draw.choice([b"\xff", b"\xc3", b"\xed\xa0\x80"])


def _around(mount: Mounted) -> list[str]:
    """The entries next to the home and the mount: nothing may appear there."""
    return [*os.listdir(mount.home.parent), *os.listdir(mount.path.parent)]


def one_name(mount: Mounted, draw: random.Random) -> bool:
    """Create, fill, read, rename and remove something with an unusual name; True if it was possible."""
    place = draw.choice([b"", b"sessions", b"sessions/s1", b"sessions/s1/children", b"sessions/s1/attachments"])
    place = draw.choice([place, b"state", b"state/facts", b"projects", b"views", b"search", b"sessions/s1/mailbox/new"])
    name = _raw_name(draw)
    if name in (b"", b".", b".."):
        return False
    path = os.path.join(os.fsencode(mount.path), place, name)
    before = sorted(_around(mount))
    try:
        if draw.random() < 0.5:
            os.mkdir(path)
            with suppress(OSError), open(os.path.join(path, b"session.json"), "wb") as file:
                file.write(corpus.render(corpus.VALID["session"][0], draw))
        else:
            with open(path, "xb") as file:
                file.write(b'{"x": 1}')
        os.lstat(path)
        os.rename(path, path[:-1] + b"~")
    except OSError as error:
        if error.errno not in _NAME_REFUSED:
            raise
        return False
    finally:
        assert sorted(_around(mount)) == before, f"{path!r} left the mount"
    return True


def names_batch(mount: Mounted, seed: int, number: int, size: int = BATCH) -> int:
    taken = each(mount, one_name, random.Random(f"mount names/{seed}/{number}"), size)
    for directory, _, files in os.walk(os.fsencode(mount.path)):
        for name in files:
            with open(os.path.join(directory, name), "rb") as file:
                file.read()
    with Store.open(mount.home, background=False) as store:  # a directory among attachments is reported
        damage = [
            f for f in store.check().findings if f.is_damage and f.kind not in (*NEEDS_TWO, LOOKS_LIKE, "not-plain")
        ]
        assert not damage, damage
    return taken


def names(seed: int, batches: int = 20) -> Iterator[Case]:
    with mounted(fill, in_memory=True) as mount:
        for number in range(batches):
            yield Case(f"names-{number}", partial(names_batch, mount, seed, number))
