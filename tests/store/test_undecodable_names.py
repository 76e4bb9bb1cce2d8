"""File names that are not valid UTF-8 are foreign everywhere and cause no damage."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from store import Session, Store
from store.commit.write_request import WriteRequest
from store.errors import StoreError
from store.namespace.namespace import Namespace
from store.path_kinds import VERSIONED, PathKind, classify_path
from tests.builders import make_session

BAD = os.fsdecode(b"\xff\xc3")
DIRECTORIES = (
    "sessions",
    "sessions/s1",
    "sessions/s1/attachments",
    "sessions/s1/children",
    "sessions/s1/children/c1",
    "sessions/s1/mailbox/new",
    f"sessions/{BAD}",
    f"sessions/s1/{BAD}",
    "state",
    "state/facts",
    f"state/{BAD}",
    "projects",
    "projects/k",
    "projects/k/sessions",
    "projects/k/sessions/p",
    "projects/k/sessions/p/children",
    f"projects/{BAD}",
)
NAMES = (BAD, f"{BAD}.json", f"{BAD}.md", f"{BAD}.jsonl", "session.json", "n.json", "new")
PATHS = [path for path in map("/".join, itertools.product(DIRECTORIES, NAMES)) if BAD in path]
SOURCES = (
    "sessions/s1",
    "sessions/s1/children/c1",
    "sessions/s1/notes",
    "sessions/s1/notes.d",
    "sessions/s1/attachments/a.png",
    "sessions/s1/artifacts.json",
    "sessions/s1/token-usage.jsonl",
    f"sessions/{BAD}",
    f"sessions/s1/{BAD}",
    "state/facts",
    "state/facts/n.json",
    "state/facts/n.md",
    f"state/{BAD}",
    f"state/{BAD}/n.json",
    "projects/k",
    "projects/k/sessions/p",
    "projects/k/sessions/p/children/c",
    "projects/k/sessions/p/session.json",
    f"projects/{BAD}",
)


@pytest.fixture
def names(home: Path) -> Iterator[Namespace]:
    with Store.open(home, background=False, durability="normal") as store:
        fill(store)
        store.maintenance.rebuild()
        store.check(repair=True)
        yield store.names
        # not-plain: a directory among attachments
        damage = [f for f in store.check().findings if f.is_damage and f.kind != "not-plain"]
        assert not damage, damage


def fill(store: Store) -> None:
    store.save(make_session("s1"))
    store.save(Session.new_child("c1", "s1", "m", "t"))
    store.names.commit(WriteRequest(classify_path("sessions/s1/attachments/a.png"), b"bytes"))
    store.usage.append("s1", {"n": 1})
    store.state.save_json("facts", "n", {"x": 1})
    store.state.save_markdown("facts", "n", "text")
    for directory in ("sessions/s1", "sessions/s1/children", "state", "projects", "sessions", "projects/k/sessions"):
        path = store.home / directory / BAD
        path.mkdir(parents=True)
        (path / "n.json").write_text("{}")
    (store.home / "sessions/s1/notes").write_text("notes")
    (store.home / "sessions/s1/notes.d").mkdir()
    for session in ("projects/k/sessions/p", "projects/k/sessions/p/children/c"):
        (store.home / session).mkdir(parents=True)
        (store.home / session / "session.json").write_text("{}")
    (store.home / "sessions/s1/mailbox/new").mkdir(parents=True)


def attempt(work: Callable[[], object]) -> None:
    with suppress(StoreError, OSError):
        work()


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_undecodable_name_can_be_created_and_removed_or_is_rejected(names: Namespace, directory: str) -> None:
    for name in NAMES:
        place = classify_path(f"{directory}/{name}")
        if BAD not in place.path:
            continue
        attempt(partial(names.make_dir, place))
        attempt(partial(names.remove_dir, place))
        attempt(partial(names.symlink, place, BAD))
        attempt(partial(names.remove_file, place))
        attempt(partial(names.write_copy, place, b"x", os.stat("/")))
        if place.kind in VERSIONED:
            attempt(partial(names.commit, WriteRequest(place, b"{}")))
            attempt(partial(names.commit, WriteRequest(place, b"{")))
        attempt(partial(names.set_attributes, place, mode=0o600, times_ns=(1, 1)))
        attempt(partial(names.remove_file, place))


@pytest.mark.parametrize("source", SOURCES)
def test_undecodable_name_can_be_moved_and_exchanged_or_is_rejected(
    store: Store, names: Namespace, source: str
) -> None:
    """As source, as target, and as parent directory."""
    for one, other in itertools.product([classify_path(source)], map(classify_path, PATHS)):
        if PathKind.DOCUMENT in (one.kind, other.kind):
            continue  # these are committed, not moved
        attempt(partial(store.moves.move, one, other))
        attempt(partial(store.moves.move, other, one))
        attempt(partial(store.moves.exchange, one, other))
