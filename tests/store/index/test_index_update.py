"""IndexUpdate: planned before a transaction, applied inside it; the result equals a rebuild."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from store import Location, Message, NotFound, Store
from store.commit import session_reader
from store.documents import append_offsets
from store.index.catalog import CatalogRow, IndexUpdate, SessionFacts
from store.model.timestamp import Timestamp
from tests.builders import make_session
from tests.store.tables import dump_tables

LOCATION = Location("s1")


def rewrite(store: Store, change: Callable[[dict[str, Any]], None]) -> None:
    """Change both documents on disk, not through the store: the index knows nothing of it yet."""
    for name in ("session.json", "runtime.json"):
        path = store.home / "sessions/s1" / name
        data = json.loads(path.read_bytes())
        change(data)
        if name == "runtime.json":
            data["messages"] = []
        path.write_text(json.dumps(data, indent=2))


def facts(store: Store) -> SessionFacts:
    found = session_reader.scan(store._core.disk, LOCATION, 1 << 20).facts
    assert found is not None
    return found


def row_of(store: Store) -> CatalogRow:
    row = store._core.index.find(LOCATION)
    assert row is not None
    return row


def apply(store: Store, update: IndexUpdate) -> None:
    core = store._core
    with core.db.write() as db:
        update.apply(db, core.disk)


def assert_equals_rebuild(store: Store) -> None:
    planned = dump_tables(store.home)
    store.maintenance.rebuild()
    assert dump_tables(store.home) == planned


def numbers(store: Store) -> list[tuple[int, int]]:
    """Rows of `texts` with the number of their text, which changes when a row is written again."""
    return list(store._core.db.reader.execute("SELECT row, number FROM texts ORDER BY row"))


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda data: None,
    "title": lambda data: data.update(title="Another title"),
    "first message": lambda data: data["messages"] and data["messages"][0].update(content="replaced walrus"),
    "message removed": lambda data: data.update(messages=data["messages"][1:]),
    "messages reversed": lambda data: data.update(messages=data["messages"][::-1]),
    "message inserted": lambda data: data["messages"].insert(1, Message.user("inserted otter").model_dump()),
    "all removed": lambda data: data.update(messages=[]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_applied_plan_equals_a_rebuild(store: Store, change: Callable[[dict[str, Any]], Any]) -> None:
    store.save(make_session("s1", messages=4, title="A title"))
    rewrite(store, change)
    apply(store, store._core.index.plan(facts(store)))
    assert row_of(store).version == store.version(LOCATION)
    assert_equals_rebuild(store)


def test_plan_of_a_session_that_is_not_indexed(store: Store) -> None:
    """The first plan contains every row."""
    store.save(make_session("s1", messages=3))
    core = store._core
    with core.db.write() as db:
        core.index.remove(db, LOCATION)
    apply(store, core.index.plan(facts(store)))
    assert_equals_rebuild(store)


def test_planning_writes_nothing(store: Store) -> None:
    store.save(make_session("s1"))
    rewrite(store, CHANGES["first message"])
    before = dump_tables(store.home)
    store._core.index.plan(facts(store))
    assert dump_tables(store.home) == before
    store.maintenance.sweep()


def test_plan_of_unchanged_messages_touches_no_message_row(store: Store) -> None:
    """Neither a plan of the whole session nor one of its title."""
    store.save(make_session("s1", messages=5))
    core, before = store._core, numbers(store)
    same = core.index.plan(facts(store))
    assert not any(map(len, same.texts))
    rewrite(store, CHANGES["title"])
    titled = core.index.plan(facts(store))
    assert {row for row, *_ in (*titled.texts.moved, *titled.texts.new)} <= {0}
    assert set(titled.texts.stale) <= {0}
    apply(store, titled)
    assert numbers(store)[1:] == before[1:]
    assert_equals_rebuild(store)


def test_plan_control_equals_a_rebuild(store: Store) -> None:
    """A new title and summary, without reading the messages."""
    store.save(make_session("s1", messages=5))
    row, before = row_of(store), numbers(store)
    rewrite(store, CHANGES["title"])
    found = facts(store)
    update = store._core.index.plan_control(row, found.entry, found.summary, found.preview, found.append_offsets)
    assert {number for number, *_ in update.texts.new} <= {0}
    apply(store, update)
    assert numbers(store)[1:] == before[1:]
    assert_equals_rebuild(store)


def test_plan_append_equals_a_rebuild(store: Store) -> None:
    """Only the rows of the new messages are written."""
    store.save(make_session("s1", messages=2))
    row, before = row_of(store), numbers(store)
    added = [Message.user("appended heron").model_dump(), Message.assistant("and the answer").model_dump()]
    path = store.home / "sessions/s1/session.json"
    assert row.append_offsets is not None
    now = Timestamp.after(row.entry.updated_at)
    parts, _, offsets = append_offsets.splice_messages(path.read_bytes(), row.append_offsets, added, now)
    path.write_bytes(b"".join(parts))
    side = store.home / "sessions/s1/runtime.json"
    side.write_bytes(side.read_bytes().replace(str(row.entry.updated_at).encode(), str(now).encode()))
    update = store._core.index.plan_append(row, facts(store).entry, offsets, added)
    assert len(update.texts.new) == 2
    assert not update.texts.stale
    assert not update.texts.moved
    apply(store, update)
    assert numbers(store)[: len(before)] == before
    assert_equals_rebuild(store)


def test_update_of_a_deleted_session_is_not_applied(store: Store) -> None:
    """Its journal entry stays, and recovery reads the files again."""
    store.save(make_session("s1"))
    update = store._core.index.plan(facts(store))
    before = dump_tables(store.home)
    document = store.home / LOCATION.path("session.json")
    document.rename(store.home / "away")
    with pytest.raises(NotFound, match="deleted right after it was saved"), store._core.db.write() as db:
        update.apply(db, store._core.disk)
    (store.home / "away").rename(document)
    assert dump_tables(store.home) == before
    store.maintenance.sweep()
