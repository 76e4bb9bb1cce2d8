"""Saves of texts that were edited from an older version: merged, or refused with both values."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from store import Conflict, Location, MergeConflict, Message, Store, TooLarge, layout
from store.commit.write_request import CommitResult, Writer, WriteRequest
from store.disk.file import Stamp
from store.disk.rejects import REASON, REJECTED
from store.history import reading
from store.history.authors import Author
from store.history.history import History
from store.history.versions import SavedVersion
from store.namespace.moves import RenameRequest
from store.path_kinds import PathInfo, classify_path
from tests.builders import make_document, make_session, read_json

S1 = Location("s1")
MAIN, SIDE = (classify_path(S1.path(name)) for name in layout.DOCUMENTS)


@dataclass
class Program:
    """A program that edits through a mount: what the mount would know of it is kept here."""

    store: Store
    pid: int = 100
    path: str = MAIN.path
    opened: list[Stamp] = field(default_factory=list)
    saved: Stamp | None = None
    draft: int | None = None
    opened_ns: int = 0

    def read(self) -> bytes:
        """The mount knows a version by its stamp while it was in place: being replaced changes its ctime."""
        while True:
            with (self.store.home / self.path).open("rb") as file:
                info = os.fstat(file.fileno())
                if info.st_nlink:
                    self.opened_ns = time.time_ns()
                    self.opened.append(Stamp.of(info))
                    return file.read()

    def write(self, raw: bytes, **changes: Any) -> CommitResult:
        """Open with truncation, write and close."""
        writer = Writer(
            Author("mount", "ed", self.pid, 1000),
            (self.pid, 1),
            opened=tuple(self.opened),
            saved=self.saved,
            last_draft=self.draft,
            opened_ns=self.opened_ns,
        )
        request = WriteRequest(classify_path(self.path), raw, None, "merge", writer=writer, **changes)
        result = self.store.names.commit(request)
        assert result.info is not None
        self.draft = result.draft
        self.saved = Stamp.of(result.info) if result.draft is None else None
        self.opened = [self.saved] if self.saved is not None else []
        self.opened_ns = time.time_ns()
        return result


@pytest.fixture
def filled(store: Store) -> Store:
    store.save(make_session("s1", title="Before"))
    return store


def contents(store: Store) -> list[str]:
    session = store.load("s1")
    assert session is not None
    return [message.content for message in session.messages]


def title(store: Store) -> str:
    session = store.load("s1")
    assert session is not None
    return session.title


def with_message(raw: bytes, text: str) -> bytes:
    data = json.loads(raw)
    data["messages"].append({"id": text, "role": "user", "content": text})
    return json.dumps(data, indent=2).encode()


def append(store: Store, text: str = "theirs") -> None:
    store.append("s1", [Message.user(text)])


# -- the first save of a stale text ----------------------------------------------------------------


def test_a_stale_edit_is_merged(filled: Store) -> None:
    """Rule 8: both changes are stored. Rule 5: the rest of the typed text keeps its bytes."""
    ed = Program(filled)
    raw = ed.read()
    append(filled)
    result = ed.write(raw.replace(b"Before", b"After").replace(b'  "pinned"', b'      "pinned"'))
    assert (result.is_changed, result.draft is not None) == (True, True)
    assert (title(filled), contents(filled)) == ("After", ["msg-0", "msg-1", "theirs"])
    stored = filled.get_document("s1", layout.SESSION)
    assert b'      "pinned"' in (stored or b"")
    assert result.info is not None
    assert Stamp.of(result.info) == filled.version("s1").main
    assert filled.check().is_clean


@pytest.mark.parametrize("path", [MAIN, SIDE], ids=layout.DOCUMENTS)
def test_a_version_whose_mode_and_times_changed_is_found_by_everyone_that_opened_it(
    filled: Store, path: PathInfo
) -> None:
    """A text editor sets mode and times right after it saved; others have opened the version by then."""
    programs = [Program(filled, pid, path.path) for pid in (100, 101, 102)]
    raws = [programs[0].read()]
    filled.names.set_attributes(path, mode=0o640)
    raws.append(programs[1].read())
    filled.names.set_attributes(path, times_ns=(10**18, 10**18))
    raws.append(programs[2].read())
    append(filled)
    for program, raw, member in zip(programs, raws, ("one", "two", "three"), strict=True):
        program.write(raw.replace(b"{", b'{"%s": 1,' % member.encode(), 1))
    assert {"one", "two", "three"} <= read_json(filled.home / path.path).keys()
    assert contents(filled)[-1] == "theirs"
    assert filled.check().is_clean


def test_a_fresh_edit_is_stored_byte_for_byte(filled: Store) -> None:
    append(filled)
    ed = Program(filled)
    raw = ed.read().replace(b"Before", b"After")
    result = ed.write(raw)
    assert (result.is_changed, result.draft) == (True, None)
    assert filled.get_document("s1", layout.SESSION) == raw


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_a_change_of_the_sidecar_since_the_text_was_read_is_not_undone(filled: Store, *, is_on_disk: bool) -> None:
    """Rule 8. session.json is still the version that was read. An edit on disk may not be in the history yet."""
    ed = Program(filled)
    raw = ed.read()
    if is_on_disk:
        side = filled.home / SIDE.path
        side.write_text(side.read_text().replace("Before", "Theirs"))
    else:
        agent = filled.load_runtime("s1")
        assert agent is not None
        agent.title = "Theirs"
        filled.save_runtime(agent)
    with pytest.raises(MergeConflict, match="title: changed by both sides"):
        ed.write(raw.replace(b"Before", b"Mine"))
    filled.names.refresh(S1)  # as a mount does after an edit on disk
    assert title(filled) == "Theirs"


@pytest.mark.parametrize("base", ["version", "version, merged", "text, merged"])
def test_put_of_an_older_version_does_not_undo_a_change_of_the_sidecar(filled: Store, base: str) -> None:
    """By the API, with the version or the text that the caller had."""
    version, text = filled.version("s1"), filled.get_document("s1", layout.SESSION)
    assert text is not None
    agent = filled.load_runtime("s1")
    assert agent is not None
    agent.title = "Theirs"
    filled.save_runtime(agent)
    mine = text.replace(b"Before", b"Mine")
    with pytest.raises(MergeConflict, match="title: changed by both sides"):
        filled.put_document(
            "s1",
            layout.SESSION,
            mine,
            base=text if base.startswith("text") else version,
            on_conflict="merge" if "merged" in base else "reject",
        )
    assert title(filled) == "Theirs"


def test_a_program_that_saves_again_and_again_rebuilds_no_older_text(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last save has changed the sidecar, a moment ago. That takes a look at the history, but no text of it."""
    rebuilt: list[int] = []
    read_text = reading.read_text

    def counted(db: apsw.Connection, lineage: int, number: int, role: str) -> bytes | None:
        rebuilt.append(number)
        return read_text(db, lineage, number, role)

    monkeypatch.setattr(reading, "read_text", counted)
    ed = Program(filled)
    raw = ed.read()
    for number in range(3):
        ed.write(raw.replace(b"Before", b"Title %d" % number))
    assert rebuilt == []
    assert read_json(filled.home / SIDE.path)["title"] == "Title 2"


def test_the_sidecar_gets_exactly_our_changes(filled: Store) -> None:
    """The agent changed another member there, which session.json does not have."""
    ed = Program(filled)
    raw = ed.read()
    agent = filled.load_runtime("s1")
    assert agent is not None
    agent.metadata["status"] = "working"
    filled.save_runtime(agent)
    append(filled)
    ed.write(raw.replace(b"Before", b"After"))
    side = read_json(filled.home / SIDE.path)
    assert (side["title"], side["metadata"]["status"]) == ("After", "working")
    assert side["updated_at"] == read_json(filled.home / MAIN.path)["updated_at"]


def test_runtime_json_typed_by_hand_is_merged_with_its_own_versions(filled: Store) -> None:
    ed = Program(filled, path=SIDE.path)
    raw = ed.read()
    agent = filled.load_runtime("s1")
    assert agent is not None
    agent.metadata["status"] = "working"
    filled.save_runtime(agent)
    assert ed.write(raw.replace(b"Before", b"After")).is_changed
    side = read_json(filled.home / SIDE.path)
    assert (side["title"], side["metadata"]["status"]) == ("After", "working")
    assert filled.check().is_clean


def test_a_writer_that_sets_updated_at_itself_deletes_nothing(filled: Store) -> None:
    ed = Program(filled)
    data = json.loads(ed.read())
    append(filled)
    data |= {"title": "After", "updated_at": "2099-01-01T00:00:00Z"}
    ed.write(json.dumps(data).encode())
    assert (title(filled), contents(filled)[-1]) == ("After", "theirs")


def test_a_hand_edit_that_left_updated_at_alone_is_not_overwritten(filled: Store) -> None:
    """Two people read, both write: the second is merged."""
    one, two = Program(filled, 1), Program(filled, 2)
    first, second = one.read(), two.read()
    one.write(first.replace(b"Before", b"One"))
    two.write(with_message(second, "two"))
    assert (title(filled), contents(filled)[-1]) == ("One", "two")


# -- the next saves of the same buffer -------------------------------------------------------------


def test_second_and_third_saves_of_one_stale_buffer(filled: Store) -> None:
    """Each is compared with what was typed before, so others' messages stay and nothing clashes with itself."""
    ed = Program(filled)
    raw = ed.read()
    for number, name in enumerate([b"One", b"Two", b"Three"]):
        append(filled, f"agent-{number}")
        raw = with_message(raw.replace(b"Before", name), f"mine-{number}")
        ed.write(raw)
        raw = raw.replace(name, b"Before")
    assert title(filled) == "Three"
    assert contents(filled)[2:] == ["agent-0", "mine-0", "agent-1", "mine-1", "agent-2", "mine-2"]


def test_undo_in_an_editor_takes_only_its_own_change_back(filled: Store) -> None:
    ed = Program(filled)
    raw = ed.read()
    ed.write(raw.replace(b"Before", b"After"))
    append(filled)
    ed.write(raw)
    assert (title(filled), contents(filled)[-1]) == ("Before", "theirs")
    append(filled, "more")
    ed.write(raw.replace(b"Before", b"Again"))
    ed.write(raw)
    assert (title(filled), contents(filled)[-2:]) == ("Before", ["theirs", "more"])


def test_saving_a_merged_buffer_again_commits_nothing(filled: Store) -> None:
    ed = Program(filled)
    raw = ed.read().replace(b"Before", b"After")
    append(filled)
    assert ed.write(raw).is_changed
    stored = filled.version("s1")
    result = ed.write(raw)
    assert (result.is_changed, result.draft is not None, filled.version("s1")) == (False, True, stored)


def test_an_unchanged_stale_buffer_commits_nothing_and_stays_stale(filled: Store) -> None:
    """:wq of an unchanged buffer. The version of the others is not what the editor has in its buffer."""
    ed = Program(filled)
    raw = ed.read()
    append(filled)
    before = filled.version("s1")
    assert not ed.write(raw).is_changed
    assert filled.version("s1") == before
    ed.write(raw.replace(b"Before", b"After"))
    assert (title(filled), contents(filled)[-1]) == ("After", "theirs")


def test_drafts_of_a_restarted_mount_are_found_by_their_text(filled: Store) -> None:
    """All that is known of processes is lost: the draft nearest to the typed text is the base."""
    ed = Program(filled)
    raw = with_message(ed.read(), "mine")
    append(filled)
    ed.write(raw)
    ed.opened, ed.saved, ed.draft = [], None, None
    ed.write(raw.replace(b"Before", b"After"))
    assert (title(filled), contents(filled)[2:]) == ("After", ["theirs", "mine"])


@pytest.mark.warns
def test_a_draft_that_could_not_be_kept_is_not_guessed(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ed = Program(filled)
    raw = ed.read().replace(b"Before", b"After")
    append(filled)

    def fail(*_: object) -> int:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(type(filled._core.history), "add_draft", fail)
        assert ed.write(raw).draft is not None
    assert title(filled) == "After"
    with pytest.raises(Conflict):
        ed.write(raw.replace(b"After", b"Again"))


# -- refusals --------------------------------------------------------------------------------------


def reject_text(store: Store, name: str) -> str:
    path = store.names.rejects.path(S1, name)
    assert path is not None
    return (store.home / path).read_text()


def test_a_clash_is_refused_with_both_values(filled: Store) -> None:
    """Rules 3 and 8: nothing changes, the typed text is kept, the reason has before, theirs and yours."""
    ed = Program(filled)
    raw = ed.read()
    filled.update("s1", lambda session: setattr(session, "title", "Theirs"))
    before = filled.version("s1")
    with pytest.raises(MergeConflict):
        ed.write(raw.replace(b"Before", b"Yours"))
    assert filled.version("s1") == before
    reason = reject_text(filled, layout.SESSION + REASON)
    for line in ('before:  "Before"', 'theirs:  "Theirs"', 'yours:  "Yours"'):
        assert line in reason
    assert "Yours" in reject_text(filled, layout.SESSION + REJECTED)


def test_an_old_version_names_the_way_to_bring_it_back(filled: Store) -> None:
    """cp or rsync of an old copy is not an edit."""
    raw = filled.get_document("s1", layout.SESSION)
    assert raw is not None
    append(filled)
    with pytest.raises(Conflict, match="`grovefs revert s1@1` brings this one back"):
        Program(filled).write(raw)


def test_an_old_version_is_restored_after_an_unlink(filled: Store) -> None:
    """git checkout, tar and unzip. What it replaced is in the history."""
    raw = filled.get_document("s1", layout.SESSION)
    assert raw is not None
    append(filled)
    assert Program(filled).write(raw, unlinked_first=True).is_changed
    assert filled.get_document("s1", layout.SESSION) == raw
    assert b"theirs" in (filled.history.read(filled.history.log("s1")[1]).main or b"")


def test_a1_an_edit_after_an_unlink_is_merged(filled: Store) -> None:
    """jq > /tmp/n, an append, mv across filesystems: mv has read nothing through the mount."""
    raw = filled.get_document("s1", layout.SESSION)
    assert raw is not None
    append(filled)
    Program(filled).write(raw.replace(b"Before", b"After"), unlinked_first=True)
    assert (title(filled), contents(filled)[-1]) == ("After", "theirs")


def test_a_text_of_unknown_origin_is_refused(filled: Store) -> None:
    append(filled)
    with pytest.raises(Conflict, match="not known"):
        Program(filled).write(make_document("s1", updated_at="2001-01-01T00:00:00Z"))


def test_a_session_that_was_deleted_is_not_born_again(filled: Store) -> None:
    """A handle that was opened before must not create it."""
    version = filled.version("s1")
    raw = filled.get_document("s1", layout.SESSION)
    assert raw is not None
    filled.delete("s1")
    writer = Writer(Author("mount"))
    with pytest.raises(Conflict):
        filled.names.commit(WriteRequest(MAIN, raw + b"\n", version, "merge", writer=writer))
    assert not filled.exists("s1")


def test_without_history_a_stale_save_is_refused(home: Path) -> None:
    with Store.open(home, background=False, history=False) as store:
        store.save(make_session("s1", title="Before"))
        ed = Program(store)
        raw = ed.read()
        base = store.version("s1")
        append(store)
        with pytest.raises(Conflict):
            ed.write(raw.replace(b"Before", b"After"))
        request = WriteRequest(MAIN, raw.replace(b"Before", b"After"), base, "merge", base_text=raw)
        assert store.names.commit(request).is_changed  # its own base text needs no history
        assert contents(store)[-1] == "theirs"


def test_a_merged_document_over_the_limit_changes_nothing(home: Path) -> None:
    with Store.open(home, background=False, limit_bytes=4000) as store:
        store.save(make_session("s1", title="Before"))
        ed = Program(store)
        raw = ed.read()
        append(store, "x" * 1500)
        with pytest.raises(TooLarge):
            ed.write(with_message(raw, "y" * 1500))
        assert contents(store)[-1] == "x" * 1500


# -- handles that were not truncated ---------------------------------------------------------------


def test_a_buffer_that_started_from_bytes_is_merged_from_their_version(filled: Store) -> None:
    """r+ and rsync --inplace: the version that was opened, whatever the process read since."""
    ed = Program(filled)
    raw, base = ed.read(), filled.version("s1")
    append(filled)
    ed.read()
    writer = Writer(Author("mount"), opened=tuple(ed.opened), is_truncated=False)
    request = WriteRequest(MAIN, raw.replace(b"Before", b"After"), base, "merge", writer=writer)
    assert filled.names.commit(request).is_changed
    assert (title(filled), contents(filled)[-1]) == ("After", "theirs")


# -- renames ---------------------------------------------------------------------------------------


def rename(store: Store, raw: bytes, writer: Writer | None) -> None:
    temporary = classify_path(S1.path("session.json.tmp"))
    (store.home / temporary.path).write_bytes(raw)
    store.moves.onto_document(RenameRequest(temporary, MAIN, "merge", writer=writer))


def test_a_rename_onto_the_document_is_merged(filled: Store) -> None:
    """sed -i: the temporary was created before or after the version that was read, which does not matter."""
    sed = Program(filled)
    raw = sed.read()
    append(filled)
    rename(filled, raw.replace(b"Before", b"After"), Writer(Author("mount"), opened=tuple(sed.opened)))
    assert (title(filled), contents(filled)[-1]) == ("After", "theirs")


def test_a_rename_by_another_process_uses_what_its_relatives_read(filled: Store) -> None:
    jq = Program(filled)
    raw = jq.read()
    append(filled)
    rename(filled, raw.replace(b"Before", b"After"), Writer(Author("mount"), relatives=tuple(jq.opened)))
    assert (title(filled), contents(filled)[-1]) == ("After", "theirs")


# -- the API ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_text", [True, False])
def test_put_document_merges_from_an_explicit_base(filled: Store, is_text: bool) -> None:
    raw, version = filled.get_document("s1", layout.SESSION), filled.version("s1")
    assert raw is not None
    append(filled)
    edited = raw.replace(b"Before", b"After")
    base = raw if is_text else version
    assert filled.put_document("s1", layout.SESSION, edited, base=base, on_conflict="merge")
    assert (title(filled), contents(filled)[-1]) == ("After", "theirs")


def test_two_writers_at_once_lose_nothing(filled: Store) -> None:
    """Two programs read, add a key of their own and write, 20 times each: 40 keys."""

    def loop(name: str, pid: int) -> None:
        for number in range(20):
            ed = Program(filled, pid)
            raw = ed.read()
            ed.write(raw.replace(b'\n  "id"', b'\n  "%b%d": 1,\n  "id"' % (name.encode(), number), 1))

    at_once(lambda: loop("a", 1), lambda: loop("b", 2))
    found = read_json(filled.home / MAIN.path)
    assert {f"{name}{number}" for name in "ab" for number in range(20)} <= found.keys()
    assert filled.check().is_clean


def at_once(*work: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run(each: Callable[[], None]) -> None:
        try:
            each()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


# -- state documents -------------------------------------------------------------------------------


FACTS = "state/facts/f.json"


def test_edits_of_a_state_document_are_merged(store: Store) -> None:
    """Two people read and write one document; nothing in it says which version it is."""
    store.state.save_json("facts", "f", {"a": 1, "b": {"x": 1}})
    one, two = Program(store, 1, FACTS), Program(store, 2, FACTS)
    first, second = one.read(), two.read()
    assert one.write(first.replace(b'"a": 1', b'"a": 2')).draft is None
    merged = two.write(second.replace(b'"x": 1', b'"x": 2'))
    assert merged.draft is not None
    assert store.state.load_json("facts", "f") == {"a": 2, "b": {"x": 2}}
    two.write(second.replace(b'"x": 1', b'"x": 3'))  # the second save of its buffer
    assert store.state.load_json("facts", "f") == {"a": 2, "b": {"x": 3}}
    assert store.check().is_clean


def test_a_clash_in_a_state_document_is_refused(store: Store) -> None:
    store.state.save_json("facts", "f", {"a": 1})
    one, two = Program(store, 1, FACTS), Program(store, 2, FACTS)
    first, second = one.read(), two.read()
    one.write(first.replace(b"1", b"2"))
    with pytest.raises(MergeConflict):
        two.write(second.replace(b"1", b"3"))
    assert store.state.load_json("facts", "f") == {"a": 2}


def test_only_objects_can_be_merged(store: Store) -> None:
    store.state.save_json("facts", "f", [1])
    one, two = Program(store, 1, FACTS), Program(store, 2, FACTS)
    first, second = one.read(), two.read()
    one.write(first.replace(b"1", b"2"))
    with pytest.raises(Conflict, match="only JSON objects can be merged"):
        two.write(second.replace(b"1", b"3"))


def test_a_state_document_by_an_unknown_writer_has_its_base_checked(store: Store) -> None:
    store.state.save_json("facts", "f", {"a": 1})
    place = classify_path(FACTS)
    base = store.names.version(place)
    writer = Writer(Author("mount"))
    assert store.names.commit(WriteRequest(place, b'{"a": 2}', base, "merge", writer=writer)).is_changed
    with pytest.raises(Conflict):
        store.names.commit(WriteRequest(place, b'{"a": 3}', base, "merge", writer=writer))


def test_edit_of_the_only_version_a_program_had_needs_no_older_versions(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most saves are of this kind. A program that also had another version, or says another time, is looked up."""
    looked_up: list[str] = []
    find = History._of

    def counted(self: History, path: str | Location, where: str, bindings: Sequence[int]) -> list[SavedVersion]:
        looked_up.append(where)
        return find(self, path, where, bindings)

    monkeypatch.setattr(History, "_of", counted)
    program, other = Program(filled), Program(filled, pid=200)
    raw = program.read()
    assert program.write(raw.replace(b"Before", b"Once")).base is not None
    assert program.write(raw.replace(b"Before", b"Twice")).is_changed
    assert looked_up == []
    other.opened = [Stamp(1, 2, 3, 4)]
    other.write(other.read().replace(b"Twice", b"Thrice"))
    assert looked_up
    assert read_json(filled.home / MAIN.path)["title"] == "Thrice"
