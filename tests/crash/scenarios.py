"""Every kind of change, applied to one small home: a change, and a test whether it was made.

`done` uses only files and the public API, and is called on a newly opened store. `change` writes
only through the store, so that every system call in it is the store's.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from store import (
    ArtifactSet,
    ChildEntry,
    InboxMessage,
    Keep,
    Message,
    ProjectSession,
    Session,
    Store,
    Timestamp,
    layout,
)
from store.commit.write_request import Writer, WriteRequest
from store.disk.file import RACY_NS
from store.documents import json_text
from store.errors import InvalidContent
from store.history.authors import Author
from store.path_kinds import classify_path
from tests.builders import make_document, make_session
from tests.records import make_artifact, make_event
from tests.store.transfer.foreign import CLAUDE_ID, claude_lines, write_lines

PNG = b"\x89PNG\r\n\x1a\n not much of an image"
AT = Timestamp("2026-01-01T00:00:00Z")
MAIL = InboxMessage.new("elsewhere", "task", "something to do")
SOURCE = "dot-claude"  # a foreign directory in the home: sessions to import
COPY, NOTES = "sessions/pinned/session.json.new", "sessions/root/notes.txt"  # foreign files
EDITED = "2030-01-01T00:00:00Z"


@dataclass(frozen=True)
class Scenario:
    name: str
    change: Callable[[Store], object]
    done: Callable[[Store], bool]


def make_home(home: Path) -> None:
    """A root with a child, a grandchild and an attachment; a pinned session; a deleted one, edited in the trash."""
    with Store.open(home, background=False) as store:
        root = make_session("root", messages=3, run_id="run-1")
        store.save(root)
        child = Session.new_child_of("child", root, "m", "a child")
        store.save(child)
        store.save(Session.new_child_of("grandchild", child, "m", "a grandchild"))
        store.append("grandchild", [Message.user("a later message")])
        store.save(make_session("pinned", pinned=True, title="a title"))
        store.save(make_session("gone", title="a title"))
        store.delete("gone")
        _replace(home / store.trash.deleted()[0].moves[0][1] / layout.SESSION, "a title", "a title in the trash")
        store.attach("root", PNG, "image/png")
        (home / "sessions/root/children/child/attachments").mkdir(exist_ok=True)
        store.records.save_traces("root", [make_event("old")])
        for name in ("agent-1", "agent-2"):
            store.state.save_json("agents", name, {"id": name, "created_at": "2020-01-01T00:00:00Z"})
        store.mail.at("root").deliver(MAIL)
        store.state.save_json("facts", "f", "long standing")
        store.projects.save(ProjectSession("k", "p"), {"title": "P", "updated_at": AT})
        store.projects.save(ProjectSession("k", "p", "c"), {"title": "C", "updated_at": AT})


def make_home_after_mount(home: Path) -> None:
    """Like `make_home`, with foreign files, rejected writes, and a source to import."""
    make_home(home)
    with Store.open(home, background=False) as store:
        for id in ("root", "pinned"):  # rejected writes, kept until the next successful save
            with suppress(InvalidContent):
                store.names.commit(WriteRequest(classify_path(f"sessions/{id}/session.json"), b"{"))
    write_lines(home / SOURCE / f"projects/-shop/{CLAUDE_ID}.jsonl", claude_lines())
    (home / COPY).write_bytes(make_document("pinned", title="new title", updated_at=EDITED))
    (home / NOTES).write_text("notes")


def copy_home(home: Path, target: Path) -> Path:
    """Copy with times preserved, as after a crash.

    Inode numbers differ, so every session is read again.
    """
    shutil.copytree(home, target, symlinks=True)
    return target


def _replace(path: Path, old: str, new: str) -> None:
    """Edit a file on disk, past the store."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _wait_until_trusted(path: Path) -> None:
    """Wait until the stamp of a file is trusted: what was indexed right after a change is always read again."""
    until = time.monotonic() + 60
    while time.time_ns() - path.stat().st_ctime_ns <= RACY_NS:
        assert time.monotonic() < until, f"{path} is of the future"
        time.sleep(0.005)


def _notice_edit(store: Store) -> None:
    path = store.home / "sessions/pinned/session.json"
    _replace(path, "a title", "new title")
    _wait_until_trusted(path)
    store.maintenance.sweep()


def _undelete_edited(store: Store) -> None:
    slot = store.trash.deleted()[0]
    _wait_until_trusted(store.home / slot.moves[0][1] / layout.SESSION)
    store.trash.undelete(slot.name)


def _retitle(session: Session) -> None:
    session.title = "new title"


def _save(store: Store) -> None:
    session = store.load("root")
    assert session is not None
    session.title = "new title"
    session.add_message(Message.user("one more"))
    store.save(session)


def _revert(store: Store) -> None:
    version = store.history.find("root/grandchild", 1)
    assert version is not None
    store.history.revert(version)


def _is_reverted(store: Store) -> bool:
    session = store.load("grandchild")
    assert session is not None
    return not session.messages


def _save_and_export(store: Store) -> None:
    store.update("pinned", _retitle)
    store.maintenance.export_sessions_json()


def _save_runtime(store: Store) -> None:
    session = store.load_runtime("root")
    assert session is not None
    session.last_run_status = "completed"
    store.save_runtime(session)


def _append(store: Store, path: str) -> None:
    temp = store.names.new_write_buffer()
    try:
        os.write(temp.fd, b"and more")
        store.names.commit(WriteRequest(classify_path(path), temp, appended=(3, 8)))
    finally:
        os.close(temp.fd)
        store.names.drop_write_buffer(temp.path)


def _image(store: Store) -> str:
    return f"sessions/root/attachments/{_attached(store, 'root')[0]}"


def _is_replaced(store: Store) -> bool:
    """The new bytes are there, and the old ones in the trash."""
    slots = [slot for slot in store.trash.deleted() if slot.what == "attachment replaced"]
    kept = [(store.home / path).read_bytes() for slot in slots for _, path in slot.moves]
    is_new = (store.home / _image(store)).read_bytes() == b"replaced"
    assert kept == [PNG] or not is_new, "the replaced bytes are lost"
    return is_new


def _attached(store: Store, id: str) -> list[str]:
    location = store.location(id)
    assert location is not None
    return os.listdir(store.home / location.dir / "attachments")


def _title(store: Store, id: str) -> str | None:
    session = store.load(id)
    return session.title if session else None


def _is_saved(store: Store) -> bool:
    session = store.load("root")
    assert session is not None
    assert (session.title == "new title") == (len(session.messages) == 4), "a mixture of two versions"
    return session.title == "new title"


def _message_count(store: Store) -> int:
    session = store.load("root")
    assert session is not None
    return len(session.messages)


def _status(store: Store) -> str | None:
    session = store.load("root")
    assert session is not None
    return session.last_run_status


def _is_cleared(store: Store) -> bool:
    attached = store.home / "sessions/root/attachments"
    files = os.listdir(attached) if attached.exists() else []
    assert (_message_count(store) == 0) == (not files), "messages and attachments must be cleared together"
    return not files


def _is_deleted(store: Store, *ids: str) -> bool:
    gone = [store.load(id) is None for id in ids]
    assert len(set(gone)) == 1, "all of them or none"
    return gone[0]


def _is_in_project(store: Store, parent: str, child: str, title: str) -> bool:
    """Whether both project index files list it.

    They must agree with each other and with the payloads.
    """
    assert store.maintenance.status()["unfinished"] or not store.projects.stale_files("k")
    listed = [entry for entry in store.projects.children("k", parent) if entry.child_id == child]
    assert bool(listed) == (store.projects.resolve("k", child) == ProjectSession("k", parent, child))
    return [entry.title for entry in listed] == [title]


def _finds(store: Store, word: str, path: str) -> bool:
    """Whether the document exists. Search must agree, unless the index update is pending."""
    is_there = (store.home / path).exists()
    if not store.maintenance.status()["unfinished"]:
        assert (path in [hit.path for hit in store.search(word)]) == is_there, "search and file agree"
    return is_there


def _acknowledge(store: Store) -> None:
    for delivered in [*store.mail.at("root").recover(), *store.mail.at("root").drain()]:
        store.mail.at("root").ack_delivered(delivered)


def _is_claimed(store: Store) -> bool:
    box = store.mail.at("root")
    waiting, claimed = box.pending(), box.recover()
    assert len(waiting) + len(claimed) == 1, "a message must be in exactly one directory"
    return bool(claimed)


def _is_acknowledged(store: Store) -> bool:
    box = store.mail.at("root")
    assert not list((store.home / "sessions/root/mailbox").glob("corrupt/*"))
    return box.is_fully_empty()


def _are_agents_pruned(store: Store) -> bool:
    left = store.state.names("agents")
    assert len(left) in (0, 2), "a batch is deleted as a whole"
    return not left


def _edit_in_place(store: Store) -> None:
    """Commit bytes like the mount: unchanged, and based on the version that was opened."""
    place = classify_path("sessions/root/session.json")
    typed = make_document("root", title="new title", updated_at=EDITED)
    store.names.commit(WriteRequest(place, typed, base=store.names.version(place)))


def _remove_recursively(store: Store) -> None:
    """`rm -r` in the mount: all entries are hidden, then the directory is removed."""
    place = classify_path("sessions/root/children/grandchild")
    store.names.remove_dir(place, hidden=[entry.name for entry in store.names.entries(place.path)])


def _exchange(store: Store) -> None:
    attached = f"sessions/root/attachments/{_attached(store, 'root')[0]}"
    store.moves.exchange(classify_path(NOTES), classify_path(attached))


def _rename_onto_empty(store: Store) -> None:
    (store.home / "sessions/renamed").mkdir(exist_ok=True)
    store.rename("root", "renamed")


def _is_renamed(store: Store) -> bool:
    old, new = store.load("root"), store.load("renamed")
    child = store.load("child")
    assert (old is None) != (new is None), "exactly one of both"
    assert child is not None
    assert child.root_session_id == child.parent_session_id == ("root" if new is None else "renamed")
    return new is not None


def _is_forked(store: Store) -> bool:
    """The copies of children have new ids, so they are counted."""
    children = store.home / "sessions/forked/children"
    names = [f"forked/{id}" for id in os.listdir(children)] if children.exists() else []
    copies = [store.load(name) for name in ("forked", *names)]
    assert all(copies) or not any(copies), "all or none"
    assert len(names) == (2 if any(copies) else 0)
    assert store.load("root") is not None
    return all(copies)


def _merge(store: Store) -> None:
    """Save an edit of a text without the last message, through a mount."""
    present = store.get_document("root", layout.SESSION)
    assert present is not None
    data = json_text.parse(present, layout.SESSION)
    base = json_text.render(data | {"messages": data["messages"][:-1]})
    edited = base.replace(b'"title": "', b'"title": "new title", "old": "', 1)
    writer = Writer(Author("mount", "ed"))
    place = classify_path("sessions/root/session.json")
    store.names.commit(WriteRequest(place, edited, on_conflict="merge", base_text=base, writer=writer))


def _is_merged(store: Store) -> bool:
    session = store.load("root")
    assert session is not None
    assert len(session.messages) == 3, "a message of another writer is lost"
    return session.title == "new title"


def _restore(store: Store) -> None:
    """Write the first version again, as tar does after an unlink."""
    first = store.history.find("grandchild", 1)
    assert first is not None
    raw = store.history.read(first).main
    place = classify_path("sessions/root/children/grandchild/session.json")
    store.names.commit(WriteRequest(place, raw, on_conflict="merge", unlinked_first=True))


def _is_restored(store: Store) -> bool:
    """Only if the version that was replaced is in the history."""
    session = store.load("grandchild")
    assert session is not None
    texts = [store.history.read(version).main or b"" for version in store.history.log("grandchild")]
    assert any(b"a later message" in text for text in texts)
    return not session.messages


SCENARIOS = [
    Scenario("new session", lambda s: s.save(make_session("new")), lambda s: s.load("new") is not None),
    Scenario(
        "new child",
        lambda s: s.save(Session.new_child("new", "root", "m", "t")),
        lambda s: s.load("new") is not None,
    ),
    Scenario("save", _save, _is_saved),
    Scenario("revert", _revert, _is_reverted),
    Scenario("save_runtime", _save_runtime, lambda s: _status(s) == "completed"),
    Scenario("update", lambda s: s.update("root", _retitle), lambda s: _title(s, "root") == "new title"),
    Scenario(
        "notice an edit on disk",
        _notice_edit,
        lambda s: b"new title" in (s.get_document("pinned", "session.json") or b""),
    ),
    Scenario("append", lambda s: s.append("root", [Message.user("more")]), lambda s: _message_count(s) == 4),
    Scenario(
        "put session.json",
        lambda s: s.put_document("pinned", "session.json", make_document("pinned", updated_at="2030-01-01T00:00:00Z")),
        lambda s: _title(s, "pinned") == "A title",
    ),
    Scenario(
        "put runtime.json",
        lambda s: s.put_document(
            "pinned", "runtime.json", make_document("pinned", messages=[], updated_at="2030-01-01T00:00:00Z")
        ),
        lambda s: _title(s, "pinned") == "A title",
    ),
    Scenario(
        "fork",
        lambda s: s.put_document("forked", "session.json", (s.home / "sessions/root/session.json").read_bytes()),
        lambda s: s.load("forked") is not None,
    ),
    Scenario(
        "attach",
        lambda s: s.attach("pinned", PNG, "image/png"),
        lambda s: any((s.home / "sessions/pinned/attachments").iterdir()),
    ),
    Scenario(
        "replace an attachment",
        lambda s: s.names.commit(WriteRequest(classify_path(_image(s)), b"replaced")),
        lambda s: _is_replaced(s),
    ),
    Scenario(
        "append to an attachment",
        lambda s: _append(s, _image(s)),
        lambda s: (s.home / _image(s)).read_bytes() == PNG + b" more",
    ),
    Scenario(
        "create an attachment",
        lambda s: s.names.create_empty(classify_path("sessions/pinned/attachments/new"), 0o600),
        lambda s: (s.home / "sessions/pinned/attachments/new").exists(),
    ),
    Scenario(
        "create a state text",
        lambda s: s.names.create_empty(classify_path("state/facts/new.md"), 0o600),
        lambda s: s.state.load_markdown("facts", "new") == "",
    ),
    Scenario(
        "append to a state text",
        lambda s: _append(s, "state/facts/text.md"),
        lambda s: s.state.load_markdown("facts", "text") == " more",
    ),
    Scenario(
        "remove an attachment",
        lambda s: s.names.remove_file(classify_path(f"sessions/root/attachments/{_attached(s, 'root')[0]}")),
        lambda s: not _attached(s, "root"),
    ),
    Scenario(
        "move an attachment",
        lambda s: s.moves.move(
            classify_path(f"sessions/root/attachments/{_attached(s, 'root')[0]}"),
            classify_path("sessions/root/children/child/attachments/moved.png"),
        ),
        lambda s: _attached(s, "root/child") == ["moved.png"] and not _attached(s, "root"),
    ),
    Scenario(
        "token usage",
        lambda s: s.usage.append("root", {"input_tokens": 1}),
        lambda s: (
            (s.home / "sessions/root/token-usage.jsonl").exists()
            and (s.home / "sessions/root/token-usage.jsonl").read_bytes().endswith(b"}\n")
        ),
    ),
    Scenario(
        "upsert a project's child",
        lambda s: s.projects.upsert_child("k", "p", ChildEntry(child_id="new", title="N", updated_at=AT)),
        lambda s: _is_in_project(s, "p", "new", "N"),
    ),
    Scenario(
        "update a project's child",
        lambda s: s.projects.upsert_child("k", "p", ChildEntry(child_id="c", title="N", updated_at=AT)),
        lambda s: _is_in_project(s, "p", "c", "N"),
    ),
    Scenario(
        "remove a project's child",
        lambda s: s.projects.remove_child("k", "p", "c"),
        lambda s: not _is_in_project(s, "p", "c", "C"),
    ),
    Scenario(
        "move a project's session",
        lambda s: s.moves.move(classify_path("projects/k/sessions/p"), classify_path("projects/k/sessions/q")),
        lambda s: _is_in_project(s, "q", "c", "C") and not _is_in_project(s, "p", "c", "C"),
    ),
    Scenario(
        "delete a payload",
        lambda s: s.projects.delete(ProjectSession("k", "p", "c")),
        lambda s: not _is_in_project(s, "p", "c", "C"),
    ),
    Scenario(
        "save state",
        lambda s: s.state.save_markdown("notes/deep", "x", "needle"),
        lambda s: _finds(s, "needle", "state/notes/deep/x.md"),
    ),
    Scenario(
        "delete state",
        lambda s: s.state.delete("facts", "f"),
        lambda s: not _finds(s, "standing", "state/facts/f.json"),
    ),
    Scenario(
        "move a category",
        lambda s: s.moves.move(classify_path("state/facts"), classify_path("state/moved")),
        lambda s: _finds(s, "standing", "state/moved/f.json") and not _finds(s, "standing", "state/facts/f.json"),
    ),
    Scenario(
        "deliver mail",
        lambda s: s.mail.at("child").deliver(MAIL),
        lambda s: [d.message for d in s.mail.at("child").pending()] == [MAIL],
    ),
    Scenario("claim mail", lambda s: s.mail.at("root").drain(), _is_claimed),
    Scenario("acknowledge mail", _acknowledge, _is_acknowledged),
    Scenario(
        "add a trace",
        lambda s: s.records.add_traces("root", [make_event("new")]),
        lambda s: [e.name for e in s.records.load_traces("root") or []] == ["old", "new"],
    ),
    Scenario(
        "save artifacts",
        lambda s: s.records.save_artifacts("pinned", ArtifactSet.of([make_artifact()])),
        lambda s: s.records.load_artifacts("pinned") is not None,
    ),
    Scenario("prune agent records", lambda s: s.prune.apply(s.prune.plan_agents(Keep(days=30))), _are_agents_pruned),
    Scenario(
        "remove a record",
        lambda s: s.names.remove_file(classify_path("sessions/root/traces.json")),
        lambda s: s.records.load_traces("root") is None,
    ),
    Scenario("clear", lambda s: s.clear("root"), _is_cleared),
    Scenario("delete root", lambda s: s.delete("root"), lambda s: _is_deleted(s, "root", "child", "grandchild")),
    Scenario("delete child", lambda s: s.delete("child"), lambda s: _is_deleted(s, "child", "grandchild")),
    Scenario(
        "cleanup",
        lambda s: s.prune.apply(s.prune.plan_cleanup("children")),
        lambda s: _is_deleted(s, "child", "grandchild"),
    ),
    Scenario("undelete what was edited in the trash", _undelete_edited, lambda s: s.load("gone") is not None),
    Scenario(
        "rename session",
        lambda s: s.rename("root", "renamed"),
        lambda s: _is_renamed(s),
    ),
    Scenario("rename onto an empty directory", _rename_onto_empty, lambda s: _is_renamed(s)),
    Scenario("fork a tree", lambda s: s.fork("root", "forked"), lambda s: _is_forked(s)),
    Scenario("merge", _merge, _is_merged),
    Scenario("restore", _restore, _is_restored),
    Scenario("export", _save_and_export, lambda s: '"new title"' in (s.home / "sessions.json").read_text()),
    Scenario("rebuild", lambda s: s.maintenance.rebuild(), lambda s: s.count() == 4),
    Scenario(
        "migrate", lambda s: s.maintenance.migrate_sidecars(), lambda s: (s.home / ".runtime_sidecar_migrated").exists()
    ),
]

# For homes made by make_home_after_mount. `step` does not cover all their changes, so tests stop
# them at every system call.
MOUNT_SCENARIOS = [
    Scenario("edit in place", _edit_in_place, lambda s: _title(s, "root") == "new title"),
    Scenario(
        "rename-replace",
        lambda s: s.moves.move(classify_path(COPY), classify_path("sessions/pinned/session.json")),
        lambda s: _title(s, "pinned") == "new title",  # the source file may remain
    ),
    Scenario("rm -r", _remove_recursively, lambda s: s.load("grandchild") is None),
    Scenario(
        "make a directory",
        lambda s: s.names.make_dir(classify_path("sessions/fresh")),
        lambda s: (s.home / "sessions/fresh").is_dir(),
    ),
    Scenario(
        "put a foreign file",
        lambda s: s.names.write_copy(classify_path("sessions/root/copy"), b"copy", os.stat(s.home / NOTES)),
        lambda s: (s.home / "sessions/root/copy").exists(),
    ),
    Scenario("exchange", _exchange, lambda s: (s.home / NOTES).read_bytes() == PNG),
    Scenario("import", lambda s: s.imports.run(str(s.home / SOURCE)), lambda s: s.load(CLAUDE_ID) is not None),
]
