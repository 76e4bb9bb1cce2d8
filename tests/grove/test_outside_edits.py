"""Outside edits: files of a replica that another program changed on disk, past the mount and the API."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from store import InboxMessage, Message, Session, Store
from store.disk.file import Stamp
from store.disk.rejects import Rejects
from store.documents import json_text
from store.errors import Busy, Conflict, Protected
from store.grove import queries
from store.grove.outside import MAX_UNASKED
from store.grove.row_plan import OutsideEdit
from store.index.catalog import NO_VERSION
from store.layout import Location
from tests.grove.homes import agreement_of, assert_same_and_clean, pull, texts, unfollowed_hosts
from tests.records import make_artifact

DOCUMENT = "sessions/s/session.json"


class Died(BaseException):
    """The host was killed."""


def settle(store: Store, *, ask: bool = True) -> int:
    """Look for outside edits everywhere, as a follower does; returns how many wait to be confirmed."""
    return len(agreement_of(store).outside.sweep(ask=ask))


def edit(store: Store, path: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change a file as an editor does: the new text replaces the file."""
    file = store.home / path
    text = change(file.read_bytes())
    write(store, path, text)
    return text


def write(store: Store, path: str, text: bytes) -> None:
    file = store.home / path
    temporary = file.with_name("an-editor.tmp")
    temporary.write_bytes(text)
    os.rename(temporary, file)


def titled(title: str) -> Callable[[bytes], bytes]:
    def change(text: bytes) -> bytes:
        start = text.index(b'"title"') + len(b'"title"')
        first = text.index(b'"', start)
        last = text.index(b'"', first + 1)
        return text[: first + 1] + title.encode() + text[last:]

    return change


def rejected(store: Store, directory: str, name: str) -> bytes | None:
    path = Rejects(store._core.disk).path(directory, f"{name}.rejected")
    return (store.home / path).read_bytes() if path is not None else None


def test_an_edit_of_a_document_is_published_as_it_is(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        text = edit(a, DOCUMENT, titled("edited on disk"))
        assert settle(a) == 0
        assert (a.home / DOCUMENT).read_bytes() == text
        pull(b, "s")
        assert (b.home / DOCUMENT).read_bytes() == text
        assert settle(a) == 0  # nothing is left to publish
        a.append("s", [Message.user("goes on")])
        pull(b, "s")
        assert_same_and_clean(a, b)


def test_an_edit_is_merged_with_what_another_host_did(tmp_path: Path, url: str) -> None:
    """Whether the row of the other host arrives first, or the edit is found first."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        for number in range(2):
            b.append("s", [Message.user(f"from b {number}")])
            edit(a, DOCUMENT, titled(f"edited {number}"))
            if number == 0:
                pull(a, "s")
            settle(a)
            pull(b, "s")
            assert texts(b, "s") == [f"from b {n}" for n in range(number + 1)]
            assert f'"edited {number}"'.encode() in (b.home / DOCUMENT).read_bytes()
            assert rejected(a, "sessions/s", "session.json") is None
            assert_same_and_clean(a, b)


def test_an_edit_of_an_older_version_is_merged(tmp_path: Path, url: str) -> None:
    """An editor that loaded the file before another host's change arrived: updated_at tells its version."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        loaded = (a.home / DOCUMENT).read_bytes()
        b.append("s", [Message.user("from b")])
        pull(a, "s")
        write(a, DOCUMENT, titled("by the editor")(loaded))
        settle(a)
        assert texts(a, "s") == ["from b"]
        assert b'"by the editor"' in (a.home / DOCUMENT).read_bytes()
        pull(b, "s")
        assert_same_and_clean(a, b)


@pytest.mark.warns
@pytest.mark.parametrize("arrives", ["before", "after"])
def test_an_edit_does_not_bring_back_a_session_that_another_host_deleted(
    tmp_path: Path, url: str, arrives: str
) -> None:
    """Whether the deletion arrives before the edit is merged, or is found while it is published."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        mine = edit(a, DOCUMENT, titled("mine"))
        b.append("s", [Message.user("from b")])  # its row sets the edit aside, to be merged
        if arrives == "before":
            b.delete("s")
        with a._core.locked_tree("s"):
            agreement_of(a).pull_tree("s")
        if arrives == "after":
            b.delete("s")
        agreement_of(a).merge_set_aside()
        settle(a)
        for store in (a, b):
            pull(store, "s")
            assert store.load("s") is None
        assert mine in [path.read_bytes() for path in (a.home / ".grovefs").rglob("*") if path.is_file()]
        assert_same_and_clean(a, b)


@pytest.mark.warns
def test_a_clash_is_rejected_with_the_text_kept(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        mine = edit(a, DOCUMENT, titled("mine"))
        theirs = b.load("s")
        assert theirs is not None
        theirs.title = "theirs"
        b.save(theirs)
        pull(a, "s")
        settle(a)
        loaded = a.load("s")
        assert loaded is not None
        assert loaded.title == "theirs"
        assert rejected(a, "sessions/s", "session.json") == mine
        assert_same_and_clean(a, b)


@pytest.mark.warns
def test_an_invalid_text_is_rejected_with_the_text_kept(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        before = (a.home / DOCUMENT).read_bytes()
        write(a, DOCUMENT, b"{ not json")
        settle(a)
        assert (a.home / DOCUMENT).read_bytes() == before
        assert rejected(a, "sessions/s", "session.json") == b"{ not json"
        pull(b, "s")
        assert_same_and_clean(a, b)


def test_a_text_equal_to_an_older_version_is_that_version(tmp_path: Path, url: str) -> None:
    """A restored old copy does not undo what was done since; also if only the log knows that version."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        old = (a.home / DOCUMENT).read_bytes()
        a.append("s", [Message.user("one")])
        a.append("s", [Message.user("two")])
        pull(b, "s")  # b gets all at once and never had the first version on disk
        for store in (a, b):
            write(store, DOCUMENT, old)
            settle(store)
            assert texts(store, "s") == ["one", "two"]
        assert_same_and_clean(a, b)


def test_a_missing_file_is_fetched_again(tmp_path: Path, url: str) -> None:
    """Absence is never published: only the API and the mount delete."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.append("s", [Message.user("here")])
        (a.home / DOCUMENT).unlink()
        (a.home / "sessions/s/runtime.json").unlink()
        settle(a)
        assert texts(a, "s") == ["here"]
        pull(b, "s")
        assert_same_and_clean(a, b)


def test_a_missing_file_is_fetched_again_however_many_versions_there_are(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAST_ROWS", 3)
    monkeypatch.setattr(queries, "PAGE_ROWS", 3)
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        for number in range(10):
            a.append("s", [Message.user(str(number))])
        pull(b, "s")
        (b.home / DOCUMENT).unlink()
        settle(b)
        assert_same_and_clean(a, b)


@pytest.mark.parametrize("deleted_by", ["the same host", "another host"])
def test_a_session_whose_document_is_missing_is_whole_in_the_trash(tmp_path: Path, url: str, deleted_by: str) -> None:
    """Deleted before the file was fetched again, and restored: the document is there, on all hosts."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.append("s", [Message.user("here")])
        a.new_child("s", "c")
        pull(b, "s")
        (a.home / DOCUMENT).unlink()
        (a.home / "sessions/s/children/c/session.json").unlink()
        assert (a if deleted_by == "the same host" else b).delete("s")
        pull(a, "s")
        pull(b, "s")
        [slot] = a.trash.deleted()
        a.trash.undelete(slot.name)
        pull(b, "s")
        assert texts(a, "s") == texts(b, "s") == ["here"]
        assert a.load("s/c") is not None
        assert_same_and_clean(a, b)


def test_a_pinned_session_whose_document_is_missing_is_not_deleted(tmp_path: Path, url: str) -> None:
    """The missing document says that it is pinned."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.update("s", lambda session: setattr(session, "pinned", True))
        (a.home / DOCUMENT).unlink()
        (a.home / "sessions/s/runtime.json").unlink()
        with pytest.raises(Protected):
            a.delete("s")
        pull(b, "s")
        assert_same_and_clean(a, b)


def remove_document(home: Path) -> None:
    (home / DOCUMENT).unlink()


def remove_directory(home: Path) -> None:
    shutil.rmtree(home / "sessions/s")


def save_new(store: Store) -> None:
    store.save(Session.new("s", "m"))


def put_new(store: Store) -> None:
    """As the mount stores a document that did not exist."""
    text = json_text.render(Session.new("s", "m").model_dump(mode="json"))
    store.put_document("s", "session.json", text, base=NO_VERSION)


@pytest.mark.parametrize("remove", [remove_document, remove_directory])
@pytest.mark.parametrize("create", [save_new, put_new])
def test_a_session_whose_document_is_missing_is_not_created_again(
    tmp_path: Path, url: str, remove: Callable[[Path], None], create: Callable[[Store], None]
) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.append("s", [Message.user("hello")])
        a.attach("s", b"an attachment", "text/plain")
        pull(b, "s")
        remove(b.home)
        with pytest.raises(Conflict):
            create(b)
        pull(a, "s")
        assert texts(a, "s") == texts(b, "s") == ["hello"]
        assert_same_and_clean(a, b)


def test_records_state_and_attachments_are_published(tmp_path: Path, url: str) -> None:
    """Edited ones and new ones."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.records.add_artifacts("s", [make_artifact("one")])
        a.attach("s", b"picture", "image/png")
        [name] = os.listdir(a.home / "sessions/s/attachments")
        a.state.save_json("facts", "f", {"n": 1})
        a.state.save_markdown("facts", "g", "text")
        write(a, "state/facts/f.json", b'{"n": 2}')
        write(a, "state/facts/g.md", b"other text")
        write(a, "state/facts/h.md", b"new text")
        write(a, f"sessions/s/attachments/{name}", b"other picture")
        write(a, "sessions/s/attachments/new.bin", b"\0" * 3_000_000)
        edit(a, "sessions/s/artifacts.json", lambda text: text + b"\n")
        settle(a)
        pull(b, "s", "/state")
        assert (b.home / "sessions/s/attachments/new.bin").read_bytes() == b"\0" * 3_000_000
        assert (b.home / f"sessions/s/attachments/{name}").read_bytes() == b"other picture"
        assert b.state.load_json("facts", "f") == {"n": 2}
        assert b.state.load_markdown("facts", "g") == "other text"
        assert b.state.load_markdown("facts", "h") == "new text"
        assert_same_and_clean(a, b)


@pytest.mark.warns
def test_state_edited_on_two_hosts_is_merged_or_rejected(tmp_path: Path, url: str) -> None:
    """JSON objects are merged member by member; of a text one is kept as rejected."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.state.save_json("facts", "f", {"x": 1, "y": 1})
        a.state.save_markdown("facts", "g", "text")
        pull(b, "/state")
        b.state.save_json("facts", "f", {"x": 1, "y": 2})
        b.state.save_markdown("facts", "g", "by b")
        edit(a, "state/facts/f.json", lambda text: text.replace(b'"x": 1', b'"x": 2'))
        write(a, "state/facts/g.md", b"by a")
        pull(a, "/state")
        settle(a)
        assert a.state.load_json("facts", "f") == {"x": 2, "y": 2}
        assert a.state.load_markdown("facts", "g") == "by b"
        assert rejected(a, "state/facts", "g.md") == b"by a"
        pull(b, "/state")
        assert_same_and_clean(a, b)


def test_a_message_delivered_on_disk_is_published(tmp_path: Path, url: str) -> None:
    """Another program may deliver mail by a rename into new/."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        message = InboxMessage.new("boss", "reply", {"n": 1})
        new = a.home / "sessions/s/mailbox/new"
        new.mkdir(parents=True)
        (new / message.file_name).write_bytes(message.render())
        settle(a)
        pull(b, "s")
        assert [found.message.id for found in b.mail.at("s").drain()] == [message.id]
        pull(a, "s")
        assert a.mail.at("s").drain() == []
        assert_same_and_clean(a, b)


def test_a_write_first_settles_an_edit_below_it(tmp_path: Path, url: str) -> None:
    """An append to a session that was edited on disk publishes the edit as a version of its own."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        edit(a, DOCUMENT, titled("edited"))
        a.append("s", [Message.user("then appended")])
        pull(b, "s")
        assert texts(b, "s") == ["then appended"]
        assert b'"edited"' in (b.home / DOCUMENT).read_bytes()
        known = agreement_of(a).replica.find_unit("sessions/s")
        assert known is not None
        assert known.version == 3
        assert_same_and_clean(a, b)


@pytest.mark.warns
def test_an_edit_with_an_api_key_is_not_published_by_an_append(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        session = Session.new("s", "m")
        session.metadata["k"] = "v"
        a.save(session)
        edit(a, DOCUMENT, lambda text: text.replace(b'"k":', b'"api_key": "sk-secret", "k":', 1))
        a.append("s", [Message.user("appended")])
        pull(b, "s")
        assert b"sk-secret" not in (b.home / DOCUMENT).read_bytes()
        assert b"sk-secret" in (rejected(a, "sessions/s", "session.json") or b"")
        assert_same_and_clean(a, b)


@pytest.mark.warns
@pytest.mark.parametrize("count", [20, 21])
def test_more_than_twenty_edits_wait_to_be_confirmed(tmp_path: Path, url: str, count: int) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        for number in range(count):
            a.state.save_markdown("notes", f"n{number}", "old")
        for number in range(count):
            write(a, f"state/notes/n{number}.md", b"new")
        assert settle(a) == (count if count > 20 else 0)
        pull(b, "/state")
        assert b.state.load_markdown("notes", "n0") == ("old" if count > 20 else "new")
        assert len(agreement_of(a).replica.waiting()) == (count if count > 20 else 0)
        assert settle(a, ask=False) == 0
        pull(b, "/state")
        assert {b.state.load_markdown("notes", f"n{number}") for number in range(count)} == {"new"}
        assert agreement_of(a).replica.waiting() == []
        assert_same_and_clean(a, b)


@pytest.mark.warns
@pytest.mark.parametrize("path", [DOCUMENT, "sessions/s/attachments/a.bin"])
def test_an_edit_made_while_a_row_is_applied_is_kept(tmp_path: Path, url: str, path: str) -> None:
    """Another program replaces the file after it was read, before the row's version is put in place."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        write(a, "sessions/s/attachments/a.bin", b"one")
        settle(a)
        pull(b, "s")
        edit(a, DOCUMENT, titled("by a"))
        write(a, "sessions/s/attachments/a.bin", b"two")
        settle(a)
        real = b._core.disk.step

        def step(name: str) -> None:
            if name == "journal":
                write(b, path, b"by another program")
            real(name)

        b._core.disk.step = step
        pull(b, "s")
        b._core.disk.step = real
        directory, _, name = path.rpartition("/")
        assert rejected(b, directory, name) == b"by another program"
        assert_same_and_clean(a, b)


@pytest.mark.parametrize("commit", ["own", "of another host"])
def test_an_edit_made_before_a_commit_has_ended_is_published(tmp_path: Path, url: str, commit: str) -> None:
    """Another program replaces a file that was just put in place: that text is not taken for the agreed one."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        if commit == "of another host":
            a.append("s", [Message.user("agreed")])
        real = b._core.disk.step

        def step(name: str) -> None:
            if name == "sync-dir" and b"agreed" in (b.home / DOCUMENT).read_bytes():
                b._core.disk.step = real
                edit(b, DOCUMENT, lambda text: text.replace(b'"agreed"', b'"edited"'))
            real(name)

        b._core.disk.step = step
        if commit == "own":
            b.append("s", [Message.user("agreed")])
        pull(b, "s")
        assert b._core.disk.step == real, "the edit was not made"
        settle(b)
        pull(a, "s")
        for store in (a, b):
            assert texts(store, "s") == ["edited"]
            assert [version.agreed for version in store._core.history.log("sessions/s")] == [3, 2, 1]
        assert_same_and_clean(a, b)


def test_a_reader_opens_a_new_version_with_the_stamp_that_the_history_has(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a reader that is so fast that the commit goes on for a while: its save names the version it has read."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        a.append("s", [Message.user("new")])
        disk, seen = b._core.disk, set[Stamp | None]()
        before, drop = disk.stamp(DOCUMENT), disk.drop_temp

        def drop_slowly(path: str) -> None:
            seen.add(disk.stamp(DOCUMENT))
            time.sleep(0.02)  # the clock of the filesystem moves on
            drop(path)

        monkeypatch.setattr(disk, "drop_temp", drop_slowly)
        pull(b, "s")
        assert seen == {before, disk.stamp(DOCUMENT)}  # the sidecar is replaced first
        assert all(b._core.history.with_stamp("sessions/s", "session.json", stamp) for stamp in seen if stamp)


def assert_row_is_finished(a: Store, died: Store) -> None:
    """The host that died while it applied the newest row has it after it is opened again."""
    died.close()
    with Store.open(died.home, background=False) as again:
        assert texts(again, "s") == ["new"]
        assert os.listdir(again.home / ".grovefs/tmp") == []
        assert_same_and_clean(a, again)


@pytest.mark.warns
def test_a_host_that_dies_while_a_row_is_put_in_place_finishes_it(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the exchange the old file has the temporary name that the new one had in the journal entry."""

    def die(path: str) -> None:
        raise Died

    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        a.append("s", [Message.user("new")])
        with monkeypatch.context() as patch:
            patch.setattr(b._core.disk, "drop_temp", die)
            with pytest.raises(Died):
                pull(b, "s")
        assert_row_is_finished(a, b)


class EditThenDie:
    """Steps of a disk: another program edits a file before the first rename, and the host dies some steps later."""

    def __init__(self, store: Store, path: str, text: bytes, steps: int) -> None:
        self.store, self.path, self.text, self.steps = store, path, text, steps
        self.is_edited = False
        self.has_died = False

    def __call__(self, name: str) -> None:
        if name == "move" and not self.is_edited:
            write(self.store, self.path, self.text)
            self.is_edited = True
        if self.is_edited and not self.has_died:
            self.steps -= 1
            if self.steps < 0:
                self.has_died = True
                raise Died


def edit_and_die(store: Store, session: str, text: bytes, steps: int) -> bool:
    """Pull a session with `EditThenDie`; False if the host did not die."""
    disk = store._core.disk
    step = EditThenDie(store, f"sessions/{session}/session.json", text, steps)
    real, disk.step = disk.step, step
    with suppress(Died):
        pull(store, session)
    disk.step = real
    assert step.is_edited
    return step.has_died


@pytest.mark.warns
def test_an_edit_that_a_row_replaces_is_kept_wherever_the_host_dies(tmp_path: Path, url: str) -> None:
    """It has the temporary name of the new file for a while, and nothing else has it."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        b.close()
        has_died, deaths = True, 0
        while has_died:
            session = f"s{deaths}"
            document = b.home / f"sessions/{session}/session.json"
            a.save(Session.new(session, "m"))
            with Store.open(b.home, background=False) as opened:
                pull(opened, session)
                a.append(session, [Message.user("new")])
                typed = titled("edited")(document.read_bytes())
                has_died = edit_and_die(opened, session, typed, steps=deaths)
            with Store.open(b.home, background=False) as again:
                assert texts(again, session) == ["new"]
                assert rejected(again, f"sessions/{session}", "session.json") == typed, f"lost after {deaths} steps"
                assert os.listdir(again.home / ".grovefs/tmp") == []
            deaths += has_died
        assert deaths > 3


@pytest.mark.warns
def test_a_directory_in_the_place_of_a_file_does_not_stop_recovery(tmp_path: Path, url: str) -> None:
    """Another program has put it there just before a row replaced the file."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        a.append("s", [Message.user("new")])
        real = b._core.disk.swap_in

        def swap_in(temp: str, target: str) -> bool:
            if target != DOCUMENT:
                return real(temp, target)
            (b.home / target).unlink()
            (b.home / target).mkdir()
            real(temp, target)
            raise Died

        b._core.disk.swap_in = swap_in  # type: ignore[method-assign]
        with pytest.raises(Died):
            pull(b, "s")
        assert_row_is_finished(a, b)


@pytest.mark.warns
def test_edits_that_have_to_be_confirmed_are_not_published_while_they_are_locked(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit holds the locks when the edits are counted, and no longer when they could be published."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        names = [f"n{number}" for number in range(MAX_UNASKED + 1)]
        for name in names:
            a.state.save_markdown(name, "g", "old")
            write(a, f"state/{name}/g.md", b"new")
        core, seen = a._core, set[Location]()
        real = core.locked

        def locked(location: Location, **options: float) -> AbstractContextManager[None]:
            if location not in seen:
                seen.add(location)
                raise Busy(f"{location} is in use")
            return real(location, **options)

        for is_waiting in (False, True):
            seen.clear()
            with monkeypatch.context() as patch:
                patch.setattr(core, "locked", locked)
                assert settle(a) == (len(names) if is_waiting else 0)
            assert len(seen) == len(names)
            assert settle(a) == len(names)


def test_commits_of_other_processes_do_not_count_as_edits(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look without the lock sees a file that is in place and not recorded yet. An edit is published all the same."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        outside = agreement_of(a).outside
        real, disk = outside.find, a._core.disk

        def find(unit: str) -> list[OutsideEdit]:
            stamp = disk.stamp(DOCUMENT)
            assert stamp is not None
            looks.append(unit)
            return (
                real(unit)
                if looks.count(unit) > 1 or unit != "sessions/s"
                else [OutsideEdit(DOCUMENT, stamp, "00", "11", b"")]
            )

        looks: list[str] = []
        monkeypatch.setattr(outside, "find", find)
        for _ in range(MAX_UNASKED + 1):
            looks.clear()
            assert settle(a) == 0
        monkeypatch.setattr(outside, "find", real)
        text = edit(a, DOCUMENT, titled("edited"))
        assert settle(a) == 0
        assert (a.home / DOCUMENT).read_bytes() == text
        assert_same_and_clean(a)
