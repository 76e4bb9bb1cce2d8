"""Invalid documents, records and messages are rejected with a position, and nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store import Corrupt, InvalidContent, InvalidName, Message, Session, Store
from tests.builders import files_below, make_document, make_session
from tests.store.rejection import GOOD, MAIN, MAIN_PATH, S1, SIDE, open_store, rejected


def replaced(old: str, new: str, **members: Any) -> bytes:
    raw = make_document("s1", **members)
    assert old.encode() in raw
    return raw.replace(old.encode(), new.encode("utf-8", "surrogatepass"), 1)


# name → the bytes, the position of the error, and a part of its text
BAD: dict[str, tuple[bytes, str, str]] = {
    "not JSON": (b"hello\n", ":1:1:", "expected a JSON value"),
    "empty": (b"", ":1:1:", "empty"),
    "white space": (b"\n \n", ":1:1:", "empty"),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD, ":1:1:", "byte order mark"),
    "UTF-16": (GOOD.decode().encode("utf-16"), ":1:1:", "UTF-8"),
    "array": (b"[" + GOOD + b"]", ":1:1:", "expected an object, got an array"),
    "a number": (b"7", ":1:1:", "expected an object, got a number"),
    "trailing garbage": (GOOD + b"\n}", ":17:1:", "after document"),
    "duplicate key": (replaced('"title"', '"id"'), ":3:3:", "id: duplicate key"),
    "duplicate by escape": (replaced('"title"', '"\\u0069d"'), ":3:3:", "id: duplicate key"),
    "duplicate inside": (replaced('"content"', '"role"'), ":10:7:", "messages[0].role: duplicate key"),
    "duplicate unknown": (replaced("777", '{"b": 1, "b": 2}', x=777), ":16:17:", "x.b: duplicate key"),
    "NaN": (replaced("777", "NaN", x=777), ":16:8:", ""),
    "Infinity": (replaced("777", "-Infinity", x=777), ":16:9:", ""),
    "too large a number": (replaced("777", "1e999", x=777), ":16:8:", "infinity"),
    "too deep": (replaced("777", "[" * 127 + "]" * 127, x=777), ":16:134:", "nested deeper than 127"),
    "far too deep": (replaced("777", "[" * 9999 + "]" * 9999, x=777), ":16:134:", "nested deeper than 127"),
    "lone surrogate": (replaced("A title", "\\ud800"), ":3:13:", "surrogate"),
    "lone low surrogate": (replaced("A title", "x\\udc00"), ":3:", "surrogate"),
    "surrogate in UTF-8": (replaced("A title", "\ud800"), ":3:13:", "UTF-8"),
    "invalid UTF-8": (GOOD.replace(b"A title", b"A t\xfftle"), ":3:16:", "UTF-8"),
    "raw newline": (replaced("A title", "A\ntitle"), ":3:14:", "control character"),
    "number in metadata": (
        make_document("s1", metadata={"a": "x", "n": 1}),
        ":18:10:",
        "metadata.n: expected a string, got a number",
    ),
    "null in metadata": (
        make_document("s1", metadata={"n": None}),
        ":17:10:",
        "metadata.n: expected a string, got null",
    ),
    "null title": (make_document("s1", title=None), ":3:12:", "title: expected a string, got null"),
    "float for an integer": (
        make_document("s1", spawn_depth=3.0),
        ":16:18:",
        "spawn_depth: expected an integer, got 3.0",
    ),
    "negative unsigned": (make_document("s1", spawn_depth=-1), ":16:18:", "spawn_depth: "),
    "minus zero": (
        replaced("777", "-0", spawn_depth=777),
        ":16:18:",
        "spawn_depth: expected an integer, got -0.0",
    ),
    "beyond u32": (make_document("s1", spawn_depth=2**32), ":16:18:", "spawn_depth: "),
    "beyond u64": (make_document("s1", title_version=2**64), ":16:20:", "title_version: expected an integer, got 1.8"),
    "text for a flag": (make_document("s1", pinned="true"), ":16:13:", "pinned: expected a boolean, got a string"),
    "number for a flag": (make_document("s1", pinned=1), ":16:13:", "pinned: expected a boolean, got a number"),
    "object for messages": (make_document("s1", messages={}), ":6:15:", "messages: expected an array, got an object"),
    "null messages": (make_document("s1", messages=None), ":6:15:", "messages: expected an array, got null"),
    "text for a message": (
        make_document("s1", messages=["hi"]),
        ":7:5:",
        "messages[0]: expected an object, got a string",
    ),
    "unknown role": (replaced('"user"', '"robot"'), ":9:15:", "messages[0].role: "),
    "role in capitals": (replaced('"user"', '"User"'), ":9:15:", "messages[0].role: "),
    "unknown kind": (replaced('"root"', '"branch"'), ":4:11:", "kind: "),
    "unknown effort": (make_document("s1", reasoning_effort="huge"), ":16:23:", "reasoning_effort: "),
    "no timestamp": (make_document("s1", updated_at="yesterday"), ":15:17:", "updated_at: "),
    "a number for a time": (make_document("s1", updated_at=0), ":15:17:", "updated_at: "),
    "no such day": (make_document("s1", updated_at="2026-02-30T00:00:00Z"), ":15:17:", "updated_at: "),
    "no id": (replaced('"id"', '"ID"'), ":1:1:", "id: required member is missing"),
    "no messages": (replaced('"messages"', '"massages"'), ":1:1:", "messages: required member is missing"),
    "both spellings": (make_document("s1", task_list=None, todo_list=None), ":1:1:", "todo_list"),
    "another session": (make_document("s2"), ":2:9:", "id: expected 's1' as in the path, got 's2'"),
    "another root": (make_document("s1", root_session_id="s2"), ":5:22:", "root_session_id: "),
    "a child": (make_document("s1", kind="child", parent_session_id="s1"), ":4:11:", "kind: "),
    "a path for an id": (make_document("../s1"), ":2:9:", "id: "),
    "an empty id": (make_document("", root_session_id="s1"), ":2:9:", "id: "),
}
NAMES = list(BAD)
# Valid documents of another identity. Where no document exists yet, they become forks.
IDENTITY = {"another session", "another root", "a child", "a path for an id", "an empty id"}


@pytest.mark.parametrize("name", NAMES)
def test_invalid_document_is_rejected(store: Store, home: Path, name: str) -> None:
    """put_document over an existing session: the error has file, position and reason, and nothing is changed."""
    store.put_document(S1, MAIN, GOOD)
    raw, place, reason = BAD[name]
    with rejected(home, InvalidContent, MAIN_PATH + place, reason):
        store.put_document(S1, MAIN, raw)
    assert store.get_document(S1, MAIN) == GOOD


@pytest.mark.parametrize("name", NAMES)
def test_invalid_sidecar_is_rejected(store: Store, home: Path, name: str) -> None:
    """runtime.json is validated in the same way."""
    store.put_document(S1, MAIN, GOOD)
    raw, place, reason = BAD[name]
    if name in IDENTITY:
        raw = re.sub(rb'"messages": \[.*?\n  \]', b'"messages": []', raw, flags=re.DOTALL)
    with rejected(home, InvalidContent, "sessions/s1/runtime.json" + place, reason):
        store.put_document(S1, SIDE, raw)


@pytest.mark.parametrize("name", sorted({*NAMES} - IDENTITY))
def test_invalid_document_creates_no_session(store: Store, home: Path, name: str) -> None:
    """Not even its directory."""
    with rejected(home, InvalidContent, MAIN_PATH):
        store.put_document(S1, MAIN, BAD[name][0])
    assert not (home / "sessions" / "s1").exists()
    assert store.entries() == []


@pytest.mark.warns
@pytest.mark.parametrize("name", NAMES)
def test_invalid_document_on_disk_is_reported(home: Path, name: str) -> None:
    """Loading reports file, position and reason; opening and checking leave the file unchanged."""
    raw, place, reason = BAD[name]
    with open_store(home) as store:
        store.put_document(S1, MAIN, GOOD)
        store.save(make_session("fine"))
    (home / MAIN_PATH).write_bytes(raw)
    with open_store(home) as store:
        for use in (store.load, store.clear, lambda i: store.update(i, lambda session: None)):
            with rejected(home, Corrupt, MAIN_PATH + place, reason):
                use("s1")
        if name not in IDENTITY:
            with rejected(home, Corrupt, MAIN_PATH + place, reason):
                store.append("s1", [Message.user("x")])
        assert store.load("fine") is not None
        assert not store.check().is_clean
    assert (home / MAIN_PATH).read_bytes() == raw


@pytest.mark.warns
@pytest.mark.parametrize("name", NAMES)
def test_invalid_sidecar_on_disk_is_ignored(home: Path, name: str) -> None:
    """With a warning. The file is unchanged and the session loads without it."""
    with open_store(home) as store:
        store.put_document(S1, MAIN, GOOD)
        (home / "sessions/s1/runtime.json").write_bytes(BAD[name][0])
        before = files_below(home)
        session = store.load("s1")
        assert session is not None
        assert session.title == "A title"
        assert files_below(home) == before


@pytest.mark.warns
@pytest.mark.parametrize("name", sorted(IDENTITY))
def test_append_to_a_document_with_another_identity_is_rejected(home: Path, name: str) -> None:
    """A session that cannot be loaded cannot be written either (rule 9)."""
    with open_store(home) as store:
        store.put_document(S1, MAIN, GOOD)
        (home / MAIN_PATH).write_bytes(BAD[name][0])
        with rejected(home, Corrupt, MAIN_PATH):
            store.append("s1", [Message.user("x")])


SMALL = make_document("s1", indent=None, title="é", messages=[])


def test_truncated_document_is_rejected(store: Store, home: Path) -> None:
    """At any byte."""
    store.put_document(S1, MAIN, SMALL)
    for length in range(len(SMALL)):
        with rejected(home, InvalidContent, f"{MAIN_PATH}:1:"):
            store.put_document(S1, MAIN, SMALL[:length])


@pytest.mark.warns
def test_truncated_document_on_disk_is_reported(home: Path) -> None:
    """A crash of another program may leave one."""
    with open_store(home) as store:
        store.put_document(S1, MAIN, SMALL)
        for length in range(len(SMALL)):
            (home / MAIN_PATH).write_bytes(SMALL[:length])
            with rejected(home, Corrupt, f"{MAIN_PATH}:1:"):
                store.load("s1")


BAD_RECORDS: list[Callable[[Any], object]] = [
    lambda s: setattr(s, "title", None),
    lambda s: setattr(s, "title", "\ud800"),
    lambda s: setattr(s, "spawn_depth", -1),
    lambda s: setattr(s, "spawn_depth", 1.0),
    lambda s: setattr(s, "title_version", 2**64),
    lambda s: s.metadata.update(n=1),
    lambda s: s.metadata.update(n=None),
    lambda s: setattr(s.messages[0], "role", "robot"),
    lambda s: setattr(s.messages[0], "content", 7),
    lambda s: setattr(s, "unknown", object()),
    lambda s: setattr(s, "unknown", 2**70),
    lambda s: setattr(s, "unknown", {1: 2}),
    lambda s: setattr(s, "unknown", deep(130)),
    lambda s: setattr(s, "unknown", deep(600)),
]


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("damage", BAD_RECORDS)
@pytest.mark.parametrize("is_new", [True, False])
def test_invalid_record_is_not_saved(store: Store, home: Path, damage: Callable[[Session], Any], is_new: bool) -> None:
    """The API validates like the mount does (rule 6)."""
    session = make_session("s1")
    if not is_new:
        store.save(session)
    damage(session)
    with rejected(home, InvalidContent, "session.json"):
        store.save(session)


@pytest.mark.parametrize("field", ["messages", "updated_at"])
def test_record_without_messages_or_time_is_not_saved(store: Store, home: Path, field: str) -> None:
    """Members that the save itself uses are reported by name too, without a traceback."""
    session = make_session("s1")
    store.save(session)
    setattr(session, field, "yesterday" if field == "updated_at" else None)
    with rejected(home, InvalidContent, "session.json"):
        store.save(session)


@pytest.mark.parametrize(
    "message",
    [{}, {"role": "robot", "content": "x"}, {"role": "user", "content": "\ud800"}, {"role": "user", "content": None}],
)
def test_invalid_message_is_not_appended(store: Store, home: Path, message: dict[str, Any]) -> None:
    """Even after a valid one in the same call."""
    store.save(make_session("s1"))
    with rejected(home, InvalidContent):
        store.append("s1", [{"role": "user", "content": "good"}, message])


def test_only_documents_can_be_put_or_read(store: Store, home: Path) -> None:
    """Any other name is rejected, especially one that leads elsewhere."""
    store.save(make_session("s1"))
    (home / "secret").write_text("SECRET")
    for name in ("notes.txt", "../s1/session.json", "../../secret", "attachments/x", "", ".", "session.json/"):
        with rejected(home, InvalidName):
            store.put_document(S1, name, GOOD)
        with rejected(home, InvalidName):
            store.get_document(S1, name)
