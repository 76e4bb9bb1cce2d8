"""Bad input of every kind: an error that says where, and not a byte changed."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from store import (
    Conflict,
    Corrupt,
    InvalidContent,
    InvalidName,
    Location,
    Message,
    NotFound,
    Session,
    Store,
    StoreError,
    Timestamp,
    TooLarge,
)
from store.index import schema
from tests.builders import NINE_DIGITS, files_below, make_document, make_session

MAIN, SIDE = "session.json", "runtime.json"
S1 = Location("s1")
MAIN_PATH = "sessions/s1/session.json"


def opened(home: Path, **options: Any) -> Store:
    return Store.open(home, background=False, durability="normal", **options)


def nothing_in_tmp(home: Path) -> bool:
    return not list((home / ".grovefs" / "tmp").iterdir())


@contextmanager
def refused(home: Path, kind: type[StoreError], *texts: str) -> Iterator[None]:
    """The block raises exactly this kind, its message has all the texts, and no file has changed (rule 3)."""
    before = files_below(home)
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    for text in texts:
        assert text in str(caught.value)
    assert files_below(home) == before
    assert nothing_in_tmp(home)


# -- documents ----------------------------------------------------------------------------------------------


def spoiled(old: str, new: str, **members: Any) -> bytes:
    raw = make_document("s1", **members)
    assert old.encode() in raw
    return raw.replace(old.encode(), new.encode("utf-8", "surrogatepass"), 1)


GOOD = make_document("s1")
# name → the bytes, where the fault is (line:column), and what the message says besides
BAD: dict[str, tuple[bytes, str, str]] = {
    "not JSON": (b"hello\n", ":1:1:", "expected a JSON value"),
    "empty": (b"", ":1:1:", "empty"),
    "white space": (b"\n \n", ":1:1:", "empty"),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD, ":1:1:", "byte order mark"),
    "UTF-16": (GOOD.decode().encode("utf-16"), ":1:1:", "UTF-8"),
    "array": (b"[" + GOOD + b"]", ":1:1:", "expected an object, got an array"),
    "a number": (b"7", ":1:1:", "expected an object, got a number"),
    "trailing garbage": (GOOD + b"\n}", ":17:1:", "after document"),
    "duplicate key": (spoiled('"title"', '"id"'), ":3:3:", "id: duplicate key"),
    "duplicate by escape": (spoiled('"title"', '"\\u0069d"'), ":3:3:", "id: duplicate key"),
    "duplicate inside": (spoiled('"content"', '"role"'), ":10:7:", "messages[0].role: duplicate key"),
    "duplicate unknown": (spoiled("777", '{"b": 1, "b": 2}', x=777), ":16:17:", "x.b: duplicate key"),
    "NaN": (spoiled("777", "NaN", x=777), ":16:8:", ""),
    "Infinity": (spoiled("777", "-Infinity", x=777), ":16:9:", ""),
    "too large a number": (spoiled("777", "1e999", x=777), ":16:8:", "infinity"),
    "too deep": (spoiled("777", "[" * 127 + "]" * 127, x=777), ":16:134:", "nested deeper than 127"),
    "far too deep": (spoiled("777", "[" * 9999 + "]" * 9999, x=777), ":16:134:", "nested deeper than 127"),
    "lone surrogate": (spoiled("A title", "\\ud800"), ":3:13:", "surrogate"),
    "lone low surrogate": (spoiled("A title", "x\\udc00"), ":3:", "surrogate"),
    "surrogate in UTF-8": (spoiled("A title", "\ud800"), ":3:13:", "UTF-8"),
    "invalid UTF-8": (GOOD.replace(b"A title", b"A t\xfftle"), ":3:16:", "UTF-8"),
    "raw newline": (spoiled("A title", "A\ntitle"), ":3:14:", "control character"),
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
    "minus zero": (spoiled("777", "-0", spawn_depth=777), ":16:18:", "spawn_depth: expected an integer, got -0.0"),
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
    "unknown role": (spoiled('"user"', '"robot"'), ":9:15:", "messages[0].role: "),
    "role in capitals": (spoiled('"user"', '"User"'), ":9:15:", "messages[0].role: "),
    "unknown kind": (spoiled('"root"', '"branch"'), ":4:11:", "kind: "),
    "unknown effort": (make_document("s1", reasoning_effort="huge"), ":16:23:", "reasoning_effort: "),
    "no timestamp": (make_document("s1", updated_at="yesterday"), ":15:17:", "updated_at: "),
    "a number for a time": (make_document("s1", updated_at=0), ":15:17:", "updated_at: "),
    "no such day": (make_document("s1", updated_at="2026-02-30T00:00:00Z"), ":15:17:", "updated_at: "),
    "no id": (spoiled('"id"', '"ID"'), ":1:1:", "id: required member is missing"),
    "no messages": (spoiled('"messages"', '"massages"'), ":1:1:", "messages: required member is missing"),
    "both spellings": (make_document("s1", task_list=None, todo_list=None), ":1:1:", "todo_list"),
    "another session": (make_document("s2"), ":2:9:", "id: expected 's1' as in the path, got 's2'"),
    "another root": (make_document("s1", root_session_id="s2"), ":5:22:", "root_session_id: "),
    "a child": (make_document("s1", kind="child", parent_session_id="s1"), ":4:11:", "kind: "),
    "a path for an id": (make_document("../s1"), ":2:9:", "id: "),
    "an empty id": (make_document("", root_session_id="s1"), ":2:9:", "id: "),
}
NAMES = list(BAD)
# These are good documents, only not here; where none is yet, they become forks.
IDENTITY = {"another session", "another root", "a child", "a path for an id", "an empty id"}


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_document_is_refused(store: Store, home: Path, name: str) -> None:
    """By put_document over an existing session: file, place and reason are said, and nothing is changed."""
    store.put_document(S1, MAIN, GOOD)
    raw, place, reason = BAD[name]
    with refused(home, InvalidContent, MAIN_PATH + place, reason):
        store.put_document(S1, MAIN, raw)
    assert store.get_document(S1, MAIN) == GOOD


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_sidecar_is_refused(store: Store, home: Path, name: str) -> None:
    """runtime.json passes the same gate."""
    store.put_document(S1, MAIN, GOOD)
    raw, place, reason = BAD[name]
    if name in IDENTITY:
        raw = re.sub(rb'"messages": \[.*?\n  \]', b'"messages": []', raw, flags=re.DOTALL)
    with refused(home, InvalidContent, "sessions/s1/runtime.json" + place, reason):
        store.put_document(S1, SIDE, raw)


@pytest.mark.parametrize("name", sorted({*NAMES} - IDENTITY))
def test_a_bad_document_makes_no_session(store: Store, home: Path, name: str) -> None:
    """Where none was, none is afterwards, not even its directory."""
    with refused(home, InvalidContent, MAIN_PATH):
        store.put_document(S1, MAIN, BAD[name][0])
    assert not (home / "sessions" / "s1").exists()
    assert store.entries() == []


@pytest.mark.warns
@pytest.mark.parametrize("name", NAMES)
def test_a_bad_document_on_disk_is_reported(home: Path, name: str) -> None:
    """Loading says file, place and reason; the file is left as it is, also by opening and checking."""
    raw, place, reason = BAD[name]
    with opened(home) as store:
        store.put_document(S1, MAIN, GOOD)
        store.save(make_session("fine"))
    (home / MAIN_PATH).write_bytes(raw)
    with opened(home) as store:
        for use in (store.load, store.clear, lambda i: store.update(i, lambda session: None)):
            with refused(home, Corrupt, MAIN_PATH + place, reason):
                use("s1")
        if name not in IDENTITY:
            with refused(home, Corrupt, MAIN_PATH + place, reason):
                store.append("s1", [Message.user("x")])
        assert store.load("fine") is not None
        assert not store.check().is_clean
    assert (home / MAIN_PATH).read_bytes() == raw


@pytest.mark.warns
@pytest.mark.parametrize("name", NAMES)
def test_a_bad_sidecar_on_disk_costs_nothing(home: Path, name: str) -> None:
    """It is ignored with a warning and left as it is; the session loads without it."""
    with opened(home) as store:
        store.put_document(S1, MAIN, GOOD)
        (home / "sessions/s1/runtime.json").write_bytes(BAD[name][0])
        before = files_below(home)
        session = store.load("s1")
        assert session is not None
        assert session.title == "A title"
        assert files_below(home) == before


@pytest.mark.warns
@pytest.mark.parametrize("name", sorted(IDENTITY))
def test_nothing_is_appended_to_a_document_that_belongs_elsewhere(home: Path, name: str) -> None:
    """Who cannot load a session cannot write it either (rule 9)."""
    with opened(home) as store:
        store.put_document(S1, MAIN, GOOD)
        (home / MAIN_PATH).write_bytes(BAD[name][0])
        with refused(home, Corrupt, MAIN_PATH):
            store.append("s1", [Message.user("x")])


SMALL = make_document("s1", indent=None, title="é", messages=[])


def test_a_document_cut_off_anywhere_is_refused(store: Store, home: Path) -> None:
    """Whatever byte it ends at."""
    store.put_document(S1, MAIN, SMALL)
    for length in range(len(SMALL)):
        with refused(home, InvalidContent, f"{MAIN_PATH}:1:"):
            store.put_document(S1, MAIN, SMALL[:length])


@pytest.mark.warns
def test_a_document_on_disk_cut_off_anywhere_is_reported(home: Path) -> None:
    """As a crash of some other program may leave it."""
    with opened(home) as store:
        store.put_document(S1, MAIN, SMALL)
        for length in range(len(SMALL)):
            (home / MAIN_PATH).write_bytes(SMALL[:length])
            with refused(home, Corrupt, f"{MAIN_PATH}:1:"):
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


@pytest.mark.parametrize("spoil", BAD_RECORDS)
@pytest.mark.parametrize("is_new", [True, False])
def test_a_bad_record_is_not_saved(store: Store, home: Path, spoil: Callable[[Session], Any], is_new: bool) -> None:
    """The API passes the same gate as the mount (rule 6)."""
    session = make_session("s1")
    if not is_new:
        store.save(session)
    spoil(session)
    with refused(home, InvalidContent, "session.json"):
        store.save(session)


@pytest.mark.parametrize("field", ["messages", "updated_at"])
def test_a_record_without_messages_or_time_is_not_saved(store: Store, home: Path, field: str) -> None:
    """Also what the save itself has to look at is refused by name, not by a traceback."""
    session = make_session("s1")
    store.save(session)
    setattr(session, field, "yesterday" if field == "updated_at" else None)
    with refused(home, InvalidContent, "session.json"):
        store.save(session)


@pytest.mark.parametrize(
    "message",
    [{}, {"role": "robot", "content": "x"}, {"role": "user", "content": "\ud800"}, {"role": "user", "content": None}],
)
def test_a_bad_message_is_not_appended(store: Store, home: Path, message: dict[str, Any]) -> None:
    """Also behind a good one in the same call."""
    store.save(make_session("s1"))
    with refused(home, InvalidContent):
        store.append("s1", [{"role": "user", "content": "good"}, message])


def test_only_documents_are_put_or_got(store: Store, home: Path) -> None:
    """Any other name is refused, most of all one that leads elsewhere."""
    store.save(make_session("s1"))
    (home / "secret").write_text("SECRET")
    for name in ("notes.txt", "../s1/session.json", "../../secret", "attachments/x", "", ".", "session.json/"):
        with refused(home, InvalidName):
            store.put_document(S1, name, GOOD)
        with refused(home, InvalidName):
            store.get_document(S1, name)


# -- path traversal -------------------------------------------------------------------------------------------

TRAVERSAL = [
    "..",
    "../x",
    "../../outside",
    "/etc/passwd",
    "a/../..",
    "s1/..",
    "../s1",
    ".",
    "",
    "s1\0",
    "a\\b",
    "s1/c/d",
    "\udcff",
]
BY_ID: dict[str, Callable[[Store, str], Any]] = {
    "load": lambda store, i: store.load(i),
    "load_runtime": lambda store, i: store.load_runtime(i),
    "update": lambda store, i: store.update(i, lambda session: None),
    "append": lambda store, i: store.append(i, [Message.user("x")]),
    "put_document": lambda store, i: store.put_document(i, MAIN, GOOD),
    "get_document": lambda store, i: store.get_document(i, MAIN),
    "delete": lambda store, i: store.delete(i, force=True),
    "clear": lambda store, i: store.clear(i),
    "entry": lambda store, i: store.entry(i),
    "location": lambda store, i: store.location(i),
    "children": lambda store, i: store.children(i),
    "attach": lambda store, i: store.attach(i, b"x", "image/png"),
    "read_attachment": lambda store, i: store.attachments.read(i, "a1"),
    "read_attachment's id": lambda store, i: store.attachments.read("s1", i),
    "append_token_usage": lambda store, i: store.usage.append(i, {"x": 1}),
    "put_document at a root": lambda store, i: store.put_document(Location(i), MAIN, GOOD),
    "put_document at a child": lambda store, i: store.put_document(Location("s1", i), MAIN, GOOD),
    "put_document below a root": lambda store, i: store.put_document(Location(i, "c"), MAIN, GOOD),
    "put_document of a sidecar": lambda store, i: store.put_document(Location(i), SIDE, make_document(messages=[])),
    "get_document at a root": lambda store, i: store.get_document(Location(i), MAIN),
    "get_document at a child": lambda store, i: store.get_document(Location("s1", i), MAIN),
    "version": lambda store, i: store.version(Location(i)),
    "save": lambda store, i: store.save(make_session(i)),
    "save_runtime": lambda store, i: store.save_runtime(make_session(i)),
    "save a child": lambda store, i: store.save(Session.new_child(i, "s1", "m", "t")),
    "save below a root": lambda store, i: store.save(child_below(i)),
    "append to a session": lambda store, i: store.append(make_session(i), [Message.user("x")]),
    "attach to a session": lambda store, i: store.attach(make_session(i), b"x", "image/png"),
}


def child_below(root: str) -> Session:
    session = Session.new_child("c", "s1", "m", "t")
    session.root_session_id = root
    return session


@pytest.mark.parametrize("name", list(BY_ID))
def test_no_id_leads_out_of_the_sessions(store: Store, home: Path, name: str) -> None:
    """Through no method: InvalidName, and nothing is made or changed inside or outside the home."""
    store.save(make_session("s1"))
    around = sorted(home.parent.rglob("*"))
    for bad in TRAVERSAL:
        if name == "save below a root" and not bad.strip():
            continue  # a child without a root is told so by another error
        with refused(home, InvalidName):
            BY_ID[name](store, bad)
    assert sorted(home.parent.rglob("*")) == around


def test_a_child_without_root_or_parent_is_refused(store: Store, home: Path) -> None:
    """There would be no place for it."""
    for field in ("root_session_id", "parent_session_id"):
        session = Session.new_child("c", "s1", "m", "t")
        setattr(session, field, " ")
        with refused(home, InvalidContent, field):
            store.save(session)


def test_a_reference_does_not_lead_out_either(store: Store, home: Path) -> None:
    """`bamboo-attachment://` names a session and an attachment, no path."""
    store.save(make_session("s1"))
    for url in ("bamboo-attachment://../x", "bamboo-attachment://s1/../session", "bamboo-attachment://s1/a/../../x"):
        with refused(home, InvalidName):
            store.attachments.resolve(url)
    assert store.attachments.resolve("https://example.org/x") is None


@pytest.mark.warns
def test_a_parent_that_is_a_path_is_not_looked_at(home: Path) -> None:
    """A document may say anything; `check` finds no such parent, and nothing breaks."""
    with opened(home) as store:
        store.save(make_session("s1"))
        raw = make_document("c", kind="child", root_session_id="s1", parent_session_id="../../../s1")
        store.put_document(Location("s1", "c"), MAIN, raw)
        kinds = [finding.kind for finding in store.check().findings]
        assert kinds == ["orphan-child"]
        assert store.delete("s1")


# -- links and other things that are no plain files --------------------------------------------------------------

SECRET_TITLE = "SECRET"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A tree outside the home that links will point to: a session's directory, with everything in it."""
    place = tmp_path / "outside"
    (place / "attachments").mkdir(parents=True)
    (place / "children" / "c1").mkdir(parents=True)
    (place / MAIN).write_bytes(make_document("s1", title=SECRET_TITLE))
    (place / SIDE).write_bytes(make_document("s1", title=SECRET_TITLE, messages=[]))
    child = make_document("c1", title=SECRET_TITLE, kind="child", root_session_id="s1", parent_session_id="s1")
    (place / "children" / "c1" / MAIN).write_bytes(child)
    (place / "attachments" / "a1.png").write_bytes(b"SECRET")
    (place / "token-usage.jsonl").write_bytes(b"SECRET\n")
    return place


def everything_in(place: Path) -> dict[str, bytes]:
    return {str(p.relative_to(place)): p.read_bytes() if p.is_file() else b"" for p in sorted(place.rglob("*"))}


LINKED = [MAIN, SIDE, "children", "attachments", "token-usage.jsonl", "", "attachments/a1.png", "children/c1"]


def plant(home: Path, outside: Path, name: str) -> Path:
    """Replace something of session s1 by a link to the secret one."""
    place = home / "sessions" / "s1" / name
    if place.is_dir():
        kept = home.parent / "moved-away"
        place.rename(kept)
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(outside / name)
    return place


def poke(store: Store) -> Iterator[Any]:
    """Everything that reads or writes a session, errors as values."""
    calls: list[Callable[[], Any]] = [
        lambda: store.load("s1"),
        lambda: store.load("s1/c1"),
        lambda: store.load_runtime("s1"),
        lambda: store.get_document(S1, MAIN),
        lambda: store.get_document(S1, SIDE),
        lambda: store.get_document("s1/c1", MAIN),
        lambda: store.attachments.read("s1", "a1"),
        lambda: store.entries(),
        lambda: store.search(SECRET_TITLE),
        lambda: store.maintenance.sweep(),
        lambda: store.check(),
        lambda: store.usage.append("s1", {"x": 1}),
        lambda: store.attach("s1", b"new", "image/png"),
        lambda: store.append("s1", [Message.user("new")]),
        lambda: store.put_document(S1, SIDE, make_document("s1", messages=[], title="new")),
        lambda: store.put_document(S1, MAIN, make_document("s1", title="new"), on_conflict="overwrite"),
        lambda: store.save(make_session("s1"), overwrite=True, shorten=True),
        lambda: store.save(Session.new_child("c1", "s1", "m", "new")),
        lambda: store.save(Session.new_child("c2", "s1", "m", "new")),
        lambda: store.update("s1", lambda session: setattr(session, "title", "newer")),
        lambda: store.check(repair=True),
        lambda: store.clear("s1"),
        lambda: store.maintenance.rebuild(),
        lambda: store.delete("s1", force=True),
        lambda: store.maintenance.erase_all(),
    ]
    for call in calls:
        try:
            yield call()
        except (StoreError, OSError) as error:
            yield error


@pytest.mark.warns
@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("name", LINKED)
def test_no_link_is_followed(home: Path, outside: Path, name: str, reopened: bool) -> None:
    """Neither read nor written: what it points to is never seen, and stays as it was, whatever is done."""
    secret = everything_in(outside)
    store = opened(home)
    store.save(make_session("s1", title="mine"))
    if name == "children/c1":
        store.save(Session.new_child("c1", "s1", "m", "mine"))
    if reopened:
        store.close()
    plant(home, outside, name)
    if reopened:
        store = opened(home)
    with store:
        for answer in poke(store):
            assert SECRET_TITLE not in repr(answer)
            assert everything_in(outside) == secret
    with opened(home):
        assert everything_in(outside) == secret


@pytest.mark.warns
@pytest.mark.parametrize("name", [MAIN, "children", "attachments", ""])
def test_a_link_is_an_error_where_it_would_be_written_through(home: Path, outside: Path, name: str) -> None:
    """The error names the path and says that links are not followed; the link stays."""
    with opened(home) as store:
        store.save(make_session("s1"))
        place = plant(home, outside, name)
        calls = {
            "children": lambda: store.save(Session.new_child("c2", "s1", "m", "t")),
            "attachments": lambda: store.attach("s1", b"x", "image/png"),
        }
        write = calls.get(name, lambda: store.put_document(S1, MAIN, make_document("s1")))
        with refused(home, Corrupt, "sessions/s1", "links are not followed"):
            write()
        assert place.is_symlink()


@pytest.mark.parametrize("name", ["sessions", ".grovefs", ".grovefs/tmp", ".grovefs/trash"])
def test_a_home_whose_directories_are_links_is_not_opened(home: Path, tmp_path: Path, name: str) -> None:
    """What is written there would land elsewhere."""
    opened(home).close()
    elsewhere = tmp_path / "elsewhere"
    (home / name).rename(elsewhere)
    (home / name).symlink_to(elsewhere)
    before = everything_in(elsewhere)
    with pytest.raises(NotFound, match="symbolic link"):
        opened(home)
    assert everything_in(elsewhere) == before


@pytest.mark.warns
@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", [MAIN, SIDE, "token-usage.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_fifo_or_directory_for_a_file_does_not_hang(home: Path, name: str, make: Callable[[Path], None]) -> None:
    """Nobody will ever write into it; every call comes back, and the store opens again."""
    with opened(home) as store:
        store.save(make_session("s1"))
        (home / "sessions/s1" / name).unlink(missing_ok=True)
        make(home / "sessions/s1" / name)
        if name == MAIN:
            with refused(home, Corrupt, MAIN_PATH, "not a regular file"):
                store.load("s1")
            with refused(home, Corrupt, MAIN_PATH, "not a regular file"):
                store.put_document(S1, MAIN, GOOD)
        else:
            assert store.load("s1") is not None
    with opened(home) as store:
        for answer in poke(store):
            assert answer is not NotImplemented


# -- size --------------------------------------------------------------------------------------------------------

LIMIT = 4000


@pytest.fixture
def tight(home: Path) -> Iterator[Store]:
    with opened(home, limit_bytes=LIMIT) as store:
        store.save(make_session("s1"))
        yield store
        assert store.check().is_clean


def test_a_document_of_exactly_the_limit_is_taken(tight: Store) -> None:
    """The limit is the last size that passes."""
    raw = make_document("s2", title="")
    exact = make_document("s2", title="x" * (LIMIT - len(raw)))
    assert len(exact) == LIMIT
    assert tight.put_document("s2", MAIN, exact)
    assert tight.load("s2") is not None


def test_too_large_a_document_is_not_put(tight: Store, home: Path) -> None:
    """TooLarge says how large it is and how large it may be."""
    raw = make_document("s1", title="x" * LIMIT)
    with refused(home, TooLarge, MAIN_PATH, f"size is {len(raw)} bytes, over the limit of {LIMIT} bytes"):
        tight.put_document(S1, MAIN, raw)
    with refused(home, TooLarge, "runtime.json", "over the limit"):
        tight.put_document(S1, SIDE, make_document("s1", title="x" * LIMIT, messages=[]))


def save_runtime_with(store: Store, title: str) -> None:
    session = store.load_runtime("s1")
    assert session is not None
    session.title = title
    store.save_runtime(session)


TOO_LARGE_SAVES: dict[str, Callable[[Store], Any]] = {
    "a new session": lambda store: store.save(make_session("s2", title="x" * LIMIT)),
    "an old session": lambda store: store.update("s1", lambda s: setattr(s, "title", "x" * LIMIT)),
    "many small members": lambda store: store.update(
        "s1", lambda s: s.metadata.update({str(i): "" for i in range(LIMIT)})
    ),
    "a sidecar": lambda store: save_runtime_with(store, "x" * LIMIT),
}


@pytest.mark.warns
@pytest.mark.parametrize("name", list(TOO_LARGE_SAVES))
def test_too_large_a_session_is_not_saved(home: Path, name: str) -> None:
    """What could not be read again is not written, new or old."""
    with opened(home, limit_bytes=LIMIT) as store:
        store.save(make_session("s1"))
        with refused(home, TooLarge, "over the limit"):
            TOO_LARGE_SAVES[name](store)
        assert store.check().is_clean


def test_an_append_stops_at_the_limit(tight: Store, home: Path) -> None:
    """By anchor and without: the session stays readable with all that fitted."""
    size = len((home / MAIN_PATH).read_bytes())
    while size + 500 < LIMIT:
        tight.append("s1", [Message.user("x" * 200)])
        size = len((home / MAIN_PATH).read_bytes())
    with refused(home, TooLarge, MAIN_PATH, "over the limit"):
        tight.append("s1", [Message.user("x" * 500)])
    loaded = tight.load("s1")
    assert loaded is not None
    assert len(loaded.messages) > 5


@pytest.mark.warns
def test_too_large_a_document_on_disk_is_reported(home: Path) -> None:
    """It is not even read; the rest of the home is fine."""
    with opened(home) as store:
        store.save(make_session("s1", title="x" * LIMIT))
        store.save(make_session("s2"))
    with opened(home, limit_bytes=LIMIT) as store:
        with refused(home, Corrupt, MAIN_PATH, f"over the limit of {LIMIT}"):
            store.load("s1")
        assert store.load("s2") is not None
        with refused(home, Corrupt, MAIN_PATH):
            store.append("s1", [Message.user("x")])
    with opened(home) as store:
        assert store.load("s1") is not None


# -- index.db ------------------------------------------------------------------------------------------------------


@pytest.mark.warns
@pytest.mark.parametrize("garbage", [b"garbage " * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_garbage_index_is_made_anew(home: Path, caplog: pytest.LogCaptureFixture, garbage: bytes) -> None:
    """The garbage is kept beside it, a warning says so, and nothing of the sessions is lost (rule 1)."""
    with opened(home) as store:
        store.save(make_session("s1"))
    before = files_below(home)
    (home / ".grovefs/index.db").write_bytes(garbage)
    with opened(home) as store:
        assert [entry.id for entry in store.entries()] == ["s1"]
        assert store.check().is_clean
    assert (home / ".grovefs/index.db.corrupt").read_bytes() == garbage
    assert "rebuilt from the sessions" in caplog.text
    assert files_below(home) == before


@pytest.mark.warns
def test_someone_elses_database_is_set_aside(home: Path) -> None:
    """A valid SQLite file that is not ours is garbage too, and kept."""
    opened(home).close()
    path = home / ".grovefs/index.db"
    path.unlink()
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE precious (x); INSERT INTO precious VALUES (1)")
    other.close()
    opened(home).close()
    other = apsw.Connection(str(home / ".grovefs/index.db.corrupt"))
    assert other.execute("SELECT x FROM precious").get == 1
    other.close()


def test_an_empty_index_file_is_filled(home: Path) -> None:
    """Nothing is in it that could be lost, so there is nothing to warn of."""
    with opened(home) as store:
        store.save(make_session("s1"))
    (home / ".grovefs/index.db").write_bytes(b"")
    with opened(home) as store:
        assert [entry.id for entry in store.entries()] == ["s1"]


def test_an_index_of_a_newer_version_is_left_alone(home: Path) -> None:
    """An older GroveFS says so and changes nothing; upgrading finds all as it was."""
    with opened(home) as store:
        store.save(make_session("s1"))
    path = home / ".grovefs/index.db"
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 1000")
    db.close()
    before, files = path.read_bytes(), files_below(home)
    with pytest.raises(StoreError, match=r"created by a newer GroveFS \(schema 1000"):
        opened(home)
    assert path.read_bytes() == before
    assert files_below(home) == files
    assert not (home / ".grovefs/index.db.corrupt").exists()


def test_an_index_of_an_older_version_is_made_anew(home: Path) -> None:
    """Its tables are derived; a commit that was under way is not, and is finished first."""
    with opened(home) as store:
        store.save(make_session("s1", title="before"))
        data = store.get_document("s1", "session.json")
        assert data is not None
    (home / ".grovefs/tmp/new").write_bytes(data.replace(b"before", b"behind"))
    db = apsw.Connection(str(home / ".grovefs/index.db"))
    mark = ("s1", "", '[[".grovefs/tmp/new", "sessions/s1/session.json"]]', '[["s1", null]]')
    db.execute("INSERT INTO marks (root, child, moves, touched) VALUES (?, ?, ?, ?)", mark)
    db.execute("ALTER TABLE sessions DROP COLUMN append_at; PRAGMA user_version = 1")
    db.close()
    with opened(home) as store:
        assert [entry.id for entry in store.entries()] == ["s1"]
        assert b"behind" in (store.get_document("s1", "session.json") or b"")
        assert store.check().is_clean


def test_an_older_version_in_use_is_not_upgraded_underneath(home: Path) -> None:
    with opened(home):
        db = apsw.Connection(str(home / ".grovefs/index.db"))
        db.execute("PRAGMA user_version = 1")
        with pytest.raises(StoreError, match="older GroveFS"):
            opened(home)
        db.execute(f"PRAGMA user_version = {schema.VERSION}")
        db.close()


# -- sessions.json --------------------------------------------------------------------------------------------------

GARBAGE_EXPORTS = [b"garbage", b"[]", b'{"sessions": []}', b'{"sessions": {"s1": 7}}', b"\xff\xfe", b"{", b"null"]


@pytest.mark.warns
@pytest.mark.parametrize("garbage", [*GARBAGE_EXPORTS, b"", None])
def test_a_spoiled_export_costs_nothing(home: Path, garbage: bytes | None) -> None:
    """Garbage, empty or missing: made anew from the sessions, and the home can be written at once."""
    with opened(home) as store:
        store.save(make_session("s1"))
    before = files_below(home)
    export = home / "sessions.json"
    export.unlink()
    if garbage is not None:
        export.write_bytes(garbage)
    with opened(home) as store:
        assert files_below(home) == before
        assert [entry.id for entry in store.entries()] == ["s1"]
        store.append("s1", [Message.user("still here")])
        assert store.check(repair=True) is not None
    assert set(json.loads(export.read_bytes())["sessions"]) == {"s1"}
    with opened(home) as store:
        assert store.check().is_clean


@pytest.mark.parametrize("garbage", [b"garbage", b'{"sessions": {"s1": {"x": 1}}, "mine": 1'])
@pytest.mark.warns
def test_a_garbage_export_is_kept_in_the_trash(home: Path, garbage: bytes) -> None:
    """What the user had typed is still somewhere (rule 3)."""
    opened(home).close()
    (home / "sessions.json").write_bytes(garbage)
    opened(home).close()
    kept = [p.read_bytes() for p in (home / ".grovefs/trash").rglob("sessions.json")]
    assert kept == [garbage]


@pytest.mark.warns
@pytest.mark.parametrize("kind", ["directory", "link", "dangling", "fifo"])
@pytest.mark.timeout(60)
def test_an_export_that_is_no_file_does_not_stop_the_store(home: Path, tmp_path: Path, kind: str) -> None:
    """Sessions are read and written as ever; nothing is written through a link."""
    with opened(home) as store:
        store.save(make_session("s1"))
    export, secret = home / "sessions.json", tmp_path / "secret.json"
    export.unlink()
    secret.write_bytes(b'{"sessions": {}}')
    if kind == "directory":
        export.mkdir()
        (export / "mine").write_text("precious")
    elif kind == "fifo":
        os.mkfifo(export)
    else:
        export.symlink_to(secret if kind == "link" else tmp_path / "nothing")
    with opened(home) as store:
        store.append("s1", [Message.user("still here")])
        loaded = store.load("s1")
        assert loaded is not None
        assert len(loaded.messages) == 3
        store.check()
    assert secret.read_bytes() == b'{"sessions": {}}'
    assert not (tmp_path / "nothing").exists()
    assert kind != "directory" or [p.read_text() for p in home.rglob("mine")] == ["precious"]


# -- the clock ---------------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_back_changes_no_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """updated_at still grows with every write, and nobody is in conflict with himself."""
    session = make_session("s1")
    store.save(session)
    year_ago = time.time_ns() - 365 * 86_400 * 10**9
    monkeypatch.setattr("store.model.timestamp.time.time_ns", lambda: year_ago)
    assert Timestamp.now().ns == year_ago
    seen = [session.updated_at.ns]

    def grew() -> None:
        loaded, entry = store.load("s1"), store.entry("s1")
        assert loaded is not None
        assert entry is not None
        assert loaded.updated_at.ns == entry.updated_at.ns > seen[-1]
        seen.append(loaded.updated_at.ns)

    session.title = "one"
    store.save(session)
    grew()
    store.append(session, [Message.user("two")])
    grew()
    store.append("s1", [Message.user("three")])
    grew()
    store.update("s1", lambda s: setattr(s, "title", "four"))
    grew()
    runtime = store.load_runtime("s1")
    assert runtime is not None
    runtime.title = "five"
    store.save_runtime(runtime)
    grew()
    session = store.load("s1") or session
    session.add_message(Message.user("six"))
    store.save(session)
    grew()
    store.clear("s1")
    grew()


def test_a_document_from_the_past_is_a_conflict_only_if_it_is_older(store: Store, home: Path) -> None:
    """What counts is what the documents say, not the clock."""
    store.put_document(S1, MAIN, make_document("s1"))
    with refused(home, Conflict, "the newer version is kept"):
        store.put_document(S1, MAIN, make_document("s1", title="old", updated_at="2026-06-20T08:15:30.123456788Z"))
    assert store.put_document(S1, MAIN, make_document("s1", title="same moment", updated_at=NINE_DIGITS))


def test_a_session_from_the_future_can_still_be_written(store: Store) -> None:
    """Up to the last moment there is a name for."""
    for moment in ("2999-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"):
        store.put_document("s1", MAIN, make_document("s1", updated_at=moment))
        store.append("s1", [Message.user("x")])
        session = store.load("s1")
        assert session is not None
        assert session.updated_at.ns >= Timestamp(moment).ns
        session.title = moment
        store.save(session)
        store.update("s1", lambda s: setattr(s, "title", "again"))
