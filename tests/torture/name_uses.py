"""Every operation that takes a name from outside, as a function of a store and the name."""

from __future__ import annotations

import random
from collections.abc import Callable

from store import InboxMessage, Location, Message, ProjectSession, Session, Store
from store.commit.write_request import WriteRequest
from store.path_kinds import PathKind, classify_path
from tests.builders import make_session
from tests.torture import corpus

SESSION = corpus.render(corpus.VALID["session"][0], random.Random(0))


def _save(store: Store, name: str) -> None:
    store.save(make_session(name))
    assert (session := store.load(name)) is not None
    assert session.id == name


def _save_child(store: Store, name: str) -> None:
    store.save(Session.new_child(name, "s1", "m", "t"))
    assert (session := store.load(f"s1/{name}")) is not None
    assert session.id == name


def _save_below(store: Store, name: str) -> None:
    store.save(Session.new_child("c", name, "m", "t"))
    assert store.load(f"{name}/c") is not None


def _put(store: Store, name: str) -> None:
    assert store.put_document(Location(name), "session.json", SESSION) in (True, False)
    assert store.load(name) is not None


def _is_from_a_kernel(name: str) -> bool:
    """Whether the kernel could pass this name: not `.` or `..`, no slash; any other bytes."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and "\ud800" not in name


def _attach(store: Store, name: str) -> None:
    if not _is_from_a_kernel(name):
        return
    place = classify_path(f"sessions/s1/attachments/{name}")
    store.names.commit(WriteRequest(place, b"bytes"))
    assert store.names.read(place) == b"bytes"


def _commit(store: Store, name: str) -> None:
    if not _is_from_a_kernel(name):
        return
    for path in (f"sessions/{name}/session.json", f"sessions/s1/children/{name}/session.json"):
        place = classify_path(path)
        if place.kind is PathKind.DOCUMENT:
            store.names.make_dir(classify_path(path.rpartition("/")[0]))
            store.names.commit(WriteRequest(place, SESSION))


def _rename(store: Store, name: str) -> None:
    store.save(make_session("moving"), overwrite=True, shorten=True)
    try:
        store.rename("moving", name)
        assert store.load(name) is not None
    finally:
        if store.exists("moving"):
            store.delete("moving")


def _state(store: Store, name: str) -> None:
    store.state.save_json("facts", name, {"x": 1})
    assert store.state.load_json("facts", name) == {"x": 1}


def _category(store: Store, name: str) -> None:
    store.state.save_json(name, "n", {"x": 1})
    assert store.state.load_json(name, "n") == {"x": 1}


def _letter(store: Store, name: str) -> None:
    message = InboxMessage.new("s1", "task", "x").model_copy(update={"id": name})
    store.mail.at("s1").deliver(message)
    found = [delivered for delivered in store.mail.at("s1").drain() if delivered.message.id == name]
    assert found, "delivered, but missing"
    assert store.mail.at("s1").ack(name)


USES: dict[str, Callable[[Store, str], object]] = {
    "save": _save,
    "save a child": _save_child,
    "save below": _save_below,
    "put_document": _put,
    "commit": _commit,
    "attach under a name": _attach,
    "rename": _rename,
    "fork": lambda store, name: store.fork("s1", name),
    "state": _state,
    "category": _category,
    "letter": _letter,
    "project": lambda store, name: store.projects.save(ProjectSession(name, "p"), {"title": "t"}),
    "member": lambda store, name: store.projects.save(ProjectSession("k", name), {"title": "t"}),
    "child of a member": lambda store, name: store.projects.save(ProjectSession("k", "p", name), {"title": "t"}),
    "load": lambda store, name: store.load(name),
    "load a child": lambda store, name: store.load(f"s1/{name}"),
    "append": lambda store, name: store.append(name, [Message.user("x")]),
    "resolve": lambda store, name: store.resolve(name),
    "entry": lambda store, name: store.entry(name),
    "delete": lambda store, name: name != "s1" and store.delete(name, force=True),
    "undelete": lambda store, name: store.trash.undelete(name),
    "attachment": lambda store, name: store.attachments.read("s1", name),
    "attach": lambda store, name: store.attach(name, b"x", "image/png"),
    "mime": lambda store, name: store.attach("s1", b"x", name),
    "usage": lambda store, name: store.usage.append(name, {"n": 1}),
    "transcript": lambda store, name: store.transcript(name),
    "search": lambda store, name: store.search(name),
    "filter": lambda store, name: store.search(f"title:{name} role:{name} x"),
    "entries": lambda store, name: store.entries(title=name, model=name, project=name),
    "mailbox": lambda store, name: store.mail.at(name).drain(),
    "member's mailbox": lambda store, name: store.mail.at(f"projects/k/sessions/{name}").pending(),
    "project of a session": lambda store, name: store.move_to_project("s1", name),
    "document": lambda store, name: store.get_document("s1", name),
}
