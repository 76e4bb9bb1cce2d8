"""Hostile content through both interfaces: the store's API, and a mount's write path.

Everything is accepted or rejected. Accepted content loads, has a transcript of the size announced, is searchable, and
passes `check`; rejected content changes nothing and is kept. Nothing crashes or takes long, measured in CPU time,
because the machine may be busy.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from store import Conflict, InvalidContent, Location, Store, StoreError, TooLarge
from store.check.finding import Finding
from store.commit.write_request import OnConflict, WriteRequest
from store.path_kinds import PathKind, classify_path
from store.search.results import EmptyQuery
from store.search.transcripts import TranscriptInfo
from tests.torture import corpus
from tests.torture.attack import Case
from tests.torture.places import scratch

BATCH = 250
NAMES = 120
LONGEST_S = 2.0  # CPU seconds for one document of ordinary size
# Findings about two files: reported by `check`, but not a reason to reject one of them.
NEEDS_TWO = ("dangling-attachment", "orphan-child")
LOOKS_LIKE = "temporary"  # a name may look like one of Bamboo's files

TARGETS: dict[str, list[tuple[str, str]]] = {  # by kind of document: where it may be put, as (session, path)
    "session": [("s1", "sessions/s1/session.json"), ("new", "sessions/new/session.json")],
    "child": [("s1/c1", "sessions/s1/children/c1/session.json")],
    "sidecar": [("s1", "sessions/s1/runtime.json")],
    "message": [("s1", "sessions/s1/mailbox/new/1.json")],
    "artifacts": [("s1", "sessions/s1/artifacts.json")],
    "traces": [("s1", "sessions/s1/traces.json")],
    "verification": [("s1", "sessions/s1/verification.json")],
    "payload": [("s1", "projects/k/sessions/p/session.json")],
    "state": [("s1", "state/facts/f.json")],
}
_KINDS = ["session"] * 10 + ["child", "sidecar", "sidecar", *list(TARGETS)[3:]]


@contextmanager
def within(seconds: float, what: str, clock: Callable[[], float] = time.process_time) -> Iterator[None]:
    began = clock()
    yield
    took = clock() - began
    assert took < seconds, f"{what} took {took:.1f} s of computing"


def _versions(home: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for part in ("sessions", "projects", "state", ".grovefs/tmp"):
        for folder, _, names in os.walk(os.path.join(home, part)):
            for name in names:
                info = os.lstat(os.path.join(folder, name))
                found[os.path.join(folder, name)] = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    return found


# -- in process ------------------------------------------------------------------------------------------------


class Victim:
    """A small home, and the invariants to check after each document."""

    def __init__(self, home: Path, check_each: int = 1) -> None:
        self.home = home
        self._check_each = check_each  # accepted documents since the last `check`
        self._known: tuple[object, ...] | None = None
        self.store = Store.open(home, background=False, durability="normal")
        self.store.put_document("s1", "session.json", corpus.render(corpus.VALID["session"][3], random.Random(0)))
        self.accepted = self.refused = 0

    def close(self) -> None:
        self.store.close()

    def put(self, name: str, path: str, raw: bytes, draw: random.Random, longest_s: float = LONGEST_S) -> None:
        before = self._known or self._state()
        with within(longest_s, "to decide"):
            is_accepted = self._try(path, raw, draw)
        if is_accepted is None:
            self.refused += 1
            self._known = self._state()
            assert self._known == before, "rejected, but something changed"
        else:
            self._known = None
            self.accepted += 1
            with within(longest_s * 2, "using it"):
                self._live_with(name if "session.json" in path or "runtime.json" in path else "s1")

    def _try(self, path: str, raw: bytes, draw: random.Random) -> bool | None:
        """Put it through one of the two interfaces; None if it was rejected."""
        place = classify_path(path)
        overwrite = draw.random() < 0.5
        is_by_api = draw.random() < 0.5 and place.kind is PathKind.DOCUMENT and place.location is not None
        try:
            on_conflict: OnConflict = "overwrite" if overwrite else "reject"
            if is_by_api and place.location is not None:
                return self.store.put_document(place.location, place.name, raw, on_conflict=on_conflict)
            return self.store.names.commit(WriteRequest(place, raw, on_conflict=on_conflict)).is_changed
        except (InvalidContent, Conflict) as error:
            str(error).encode()
            kept = self.store.names.rejects.path(place.directory, f"{place.name}.rejected")
            # Callers of the API still have the bytes; a mount keeps them.
            assert is_by_api or (kept is not None and (self.home / kept).read_bytes() == raw), "rejected bytes lost"
            return None
        except TooLarge:
            return None

    def _state(self) -> tuple[object, ...]:
        """Stamps of all files and all rows: everything a commit could change, and cheap to compare."""
        reader = self.store.names.core.db.reader
        rows = [reader.execute(f"SELECT * FROM {table}").fetchall() for table in ("sessions", "texts", "changes")]
        return _versions(str(self.home)), rows

    def _live_with(self, name: str) -> None:
        store = self.store
        session = store.load(name)
        assert session is not None, "accepted, but the session does not exist"
        location = store.location(name)
        assert location is not None
        sheet = store.transcripts.find(location)
        assert isinstance(sheet, TranscriptInfo)
        text = store.transcript(name)
        assert text is not None
        rendered = store.transcripts.render(sheet)
        assert len(rendered) == sheet.size_bytes, "the transcript has not the size announced"
        entry = store.entry(name)
        assert entry is not None
        for words in (session.title[:200], session.messages[0].content[:200] if session.messages else "x"):
            with suppress(EmptyQuery):
                store.search(words.replace("\0", " "), limit=5)
        if self.accepted % self._check_each == 0:
            assert not self.damage(), self.damage()

    def damage(self) -> list[Finding]:
        return [f for f in self.store.check().findings if f.is_damage and f.kind not in NEEDS_TWO]

    def forget(self, name: str) -> None:
        """Delete a session, to make room for a new one."""
        if self.store.exists(name):
            self.store.delete(name, force=True)
            self._known = None


def batch(seed: int, number: int, size: int = BATCH, check_each: int = 1) -> tuple[int, int]:
    """Put some documents into one home, one after the other; returns how many were accepted and rejected."""
    draw = random.Random(f"{seed}/{number}")
    with scratch(in_memory=True) as place:
        victim = Victim(place / "home", check_each)
        try:
            for nth in range(size):
                kind = draw.choice(_KINDS)
                name, path = draw.choice(TARGETS[kind])
                if name == "new":
                    victim.forget(name)
                raw = corpus.document("session" if kind == "child" else kind, draw)
                try:
                    victim.put(name, path, raw, draw)
                except Exception as error:
                    raise AssertionError(f"document {nth} of the batch, at {path}: {_shown(raw)}: {error!r}") from error
            assert not victim.damage(), victim.damage()
            return victim.accepted, victim.refused
        finally:
            victim.close()


def _shown(raw: bytes) -> str:
    return repr(raw) if len(raw) <= 3000 else f"{raw[:1500]!r} … {raw[-1500:]!r} ({len(raw)} bytes)"


def documents(seed: int, batches: int = 420) -> Iterator[Case]:
    """More than a hundred thousand documents."""
    for number in range(batches):
        yield Case(f"batch-{number}", lambda number=number: batch(seed, number, check_each=5) and None)  # type: ignore[misc]


# -- giants ----------------------------------------------------------------------------------------------------

# For larger documents, time may grow linearly with size: CPU seconds per megabyte.
SECONDS_A_MB = 0.5


def giant(name: str) -> None:
    """Put a giant onto an existing session, onto the session it created, and where none exists."""
    raw = corpus.giants()[name]()
    longest_s = LONGEST_S + SECONDS_A_MB * len(raw) / 1e6
    draw = random.Random(name)
    with scratch(in_memory=True) as place:
        victim = Victim(place / "home")
        try:
            for target, path in TARGETS["session"]:
                victim.put(target, path, raw, draw, longest_s)
            if victim.accepted:
                victim.put("s1", TARGETS["session"][0][1], raw + b"\n", draw, longest_s)
        finally:
            victim.close()


def giants(seed: int) -> Iterator[Case]:
    for name in corpus.giants():
        yield Case(name, partial(giant, name))


# -- names -----------------------------------------------------------------------------------------------------

_PARTS = [
    *(".", "..", "/", "\\", "\0", "\n", "\r", "\t", "\x7f", "\x85", " ", "~", "-rf", "--", "a", "s1", "c1", "%2F", "*"),
    *(
        "é",
        "e\u0301",
        "\u212b",
        "Å",
        "A\u030a",
        "ﬁ",
        "ß",
        "\u200d",
        "\u202e",
        "\ufeff",
        "\udcff",
        "\ud800",
        "\U0001f600",
    ),
    *("session.json", "runtime.json", "children", "attachments", "mailbox", "sessions", ".grovefs", "index.db"),
    *(
        "sessions.json",
        "session.json.rejected",
        "x.error",
        ".md",
        ".d",
        ".json",
        "CON",
        "nul",
        "tmp",
        "search",
        "\u0000",
    ),
    *(
        ".tmp.01234567-89ab-cdef-0123-456789abcdef",
        "$(id)",
        "`id`",
        "';--",
        '"',
        "<b>",
        "x" * 249,
        "漢" * 83,
        "y" * 4090,
    ),
]


def hostile_name(draw: random.Random) -> str:
    if draw.random() < 0.1:  # around the length limit of a directory entry
        return draw.choice(["a", "é", "漢", "e\u0301"]) * draw.choice([63, 84, 85, 86, 127, 128, 254, 255, 256])
    return "".join(draw.choice(_PARTS) for _ in range(draw.choice([1, 1, 2, 2, 3, 4])))


def names_batch(seed: int, number: int, size: int = NAMES) -> int:
    """Use each name in some place that takes one: it is rejected, or used exactly as given. Returns how many passed."""
    from tests.torture.name_uses import USES

    draw = random.Random(f"names/{seed}/{number}")
    taken = 0
    with scratch(in_memory=True) as place:
        home, canary = place / "home", place / "canary"
        canary.mkdir()
        (canary / "session.json").write_bytes(b"canary")
        with Store.open(home, background=False, durability="normal") as store:
            store.put_document("s1", "session.json", corpus.render(corpus.VALID["session"][0], draw))
            for _ in range(size):
                name, use = hostile_name(draw), draw.choice(list(USES))
                try:
                    USES[use](store, name)
                    taken += 1
                except (StoreError, LookupError):
                    pass
                except OSError as error:  # the filesystem's error for a name that exists, or that it cannot store
                    if error.errno not in (errno.ENAMETOOLONG, errno.EEXIST):
                        raise AssertionError(f"{use} of {name!r}: {error!r}") from error
                except Exception as error:
                    raise AssertionError(f"{use} of {name!r}: {error!r}") from error
                assert sorted(os.listdir(home.parent)) == ["canary", "home"], f"{use} of {name!r} left the home"
                assert [p.name for p in canary.rglob("*")] == ["session.json"], f"{use} of {name!r} left the home"
            damage = [f for f in store.check().findings if f.is_damage and f.kind not in (*NEEDS_TWO, LOOKS_LIKE)]
            assert not damage, damage
            ids = store.ids()
        with Store.open(home, background=False, durability="normal") as store:
            store.maintenance.sweep()
            assert store.ids() == ids, "the sessions differ after reopening"
            for name in ids:
                assert store.load(name) is not None
                assert store.location(name) == _location(name)
    return taken


def _location(name: str) -> Location:
    root, slash, child = name.partition("/")
    return Location(root, child if slash else None)


def names(seed: int, batches: int = 60) -> Iterator[Case]:
    for number in range(batches):
        yield Case(f"names-{number}", partial(names_batch, seed, number))
