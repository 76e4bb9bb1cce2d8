"""What the store learns of the process that saves: author, versions it had, where its bytes started."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from fusefs.requests import callers
from fusefs.tree.processes import Process
from store import Message, Store
from store.commit.write_request import Writer, WriteRequest
from store.disk.file import Stamp
from store.history.authors import OUTSIDE, Author, current_author
from store.namespace.namespace import Namespace
from tests.fusefs.requests.harness import READER, WRITER, HandlerMount, fails_with, in_trio

DOCUMENT, DRAFT = "sessions/root/session.json", "sessions/root/draft"
LOG = "sessions/root/token-usage.jsonl"


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every thread of the harness is a process with a name, children of one shell."""

    def read(thread: int, uid: int) -> Process:
        return Process(thread, 1, f"p{thread}", uid, session_id=1, parent=2) if thread else Process(uid=uid)

    monkeypatch.setattr(callers, "read_process", read)


@pytest.fixture
def requests(mount: HandlerMount, monkeypatch: pytest.MonkeyPatch) -> list[tuple[WriteRequest, Author]]:
    """The requests that reach the store, and the author in the thread that commits them."""
    seen: list[tuple[WriteRequest, Author]] = []
    commit = type(mount.store.names).commit

    def record(self: Any, request: WriteRequest) -> Any:
        seen.append((request, current_author(OUTSIDE)))
        return commit(self, request)

    monkeypatch.setattr(type(mount.store.names), "commit", record)
    return seen


def stamp(store: Store) -> Stamp:
    return Stamp.of((store.home / DOCUMENT).stat())


def writer_of(request: WriteRequest) -> Writer:
    assert request.writer is not None
    return request.writer


@in_trio
async def test_a_save_names_its_author_and_what_it_had_read(
    mount: HandlerMount, store: Store, requests: list[tuple[WriteRequest, Author]]
) -> None:
    read, text = stamp(store), await mount.content(DOCUMENT, WRITER)
    await mount.save(DOCUMENT, text.replace(b"Before", b"First"))
    first = stamp(store)
    await mount.save(DOCUMENT, text.replace(b"Before", b"Second"))
    (one, author), (two, _) = requests
    assert author == Author("mount", f"p{WRITER}", WRITER, os.geteuid())
    assert (writer_of(one).opened, writer_of(one).saved, writer_of(one).is_truncated) == ((read,), None, True)
    assert (writer_of(two).opened, writer_of(two).saved) == ((first,), first)


@in_trio
async def test_reading_after_the_open_does_not_count(
    mount: HandlerMount, store: Store, requests: list[tuple[WriteRequest, Author]]
) -> None:
    text = await mount.content(DOCUMENT, WRITER)
    read = stamp(store)
    fh = await mount.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    store.update("root", lambda session: setattr(session, "title", "By the agent"))
    await mount.content(DOCUMENT, WRITER)
    await mount.write(fh, 0, text.replace(b"Before", b"By hand"))
    with fails_with(errno.ESTALE):  # both changed the title
        await mount.finish(fh)
    assert writer_of(requests[-1][0]).opened == (read,)


@in_trio
async def test_bytes_of_an_untruncated_handle_are_those_of_its_base(
    mount: HandlerMount, store: Store, requests: list[tuple[WriteRequest, Author]]
) -> None:
    read = stamp(store)
    fh = await mount.open(DOCUMENT, os.O_RDWR)
    at = (await mount.read(fh, 0, 1 << 20)).index(b"Before")
    await mount.write(fh, at, b"BEFORE")
    await mount.finish(fh)
    writer = writer_of(requests[-1][0])
    assert (writer.is_truncated, writer.opened) == (False, (read,))
    assert mount.title("root") == "BEFORE"


@in_trio
async def test_a_version_that_is_replaced_while_it_is_opened_is_not_the_base(
    mount: HandlerMount, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ctime changes when it loses its name, and the history does not know that stamp."""
    opened, is_first = Namespace.open, True

    def replaced_at_once(names: Namespace, *arguments: Any) -> int:
        nonlocal is_first
        fd = opened(names, *arguments)
        if is_first:
            is_first = False
            store.append("root", [Message.user("meanwhile")])
        return fd

    await mount.inode(DOCUMENT)
    monkeypatch.setattr(Namespace, "open", replaced_at_once)
    fh = await mount.open(DOCUMENT, os.O_RDWR)
    text = await mount.read(fh, 0, 1 << 20)
    await mount.write(fh, 0, text.replace(b"Before", b"Edited"))
    await mount.finish(fh)
    session = store.load("root")
    assert session is not None
    assert (session.title, session.messages[-1].content) == ("Edited", "meanwhile")


@in_trio
async def test_writer_of_a_renamed_file_is_the_process_that_wrote_it_last(
    mount: HandlerMount, store: Store, requests: list[tuple[WriteRequest, Author]]
) -> None:
    """mv renames what jq wrote; jq read the document after the shell had opened the file for it."""
    fh = await mount.create(DRAFT)
    text, read = await mount.content(DOCUMENT, WRITER), stamp(store)
    await mount.write(fh, 0, text.replace(b"Before", b"After"))
    await mount.finish(fh)
    await mount.content(DOCUMENT, READER)
    await mount.rename(DRAFT, DOCUMENT, pid=READER)
    request, author = requests[-1]
    assert writer_of(request).process == (WRITER, 1)
    assert writer_of(request).opened == (read,)
    assert author.program == f"p{READER}", "the process that makes the change"
    assert mount.title("root") == "After"


@in_trio
async def test_file_from_elsewhere_has_the_relatives_of_its_copier(
    mount: HandlerMount, store: Store, requests: list[tuple[WriteRequest, Author]]
) -> None:
    """`jq . F > /tmp/n; mv /tmp/n F`: mv unlinks and creates, and has read nothing."""
    text, read = await mount.content(DOCUMENT, READER), stamp(store)
    await mount.unlink(DOCUMENT)
    await mount.add(DOCUMENT, text.replace(b"Before", b"After"))
    writer = writer_of(requests[-1][0])
    assert (writer.opened, writer.relatives) == ((), (read,))
    assert requests[-1][0].unlinked_first


@in_trio
async def test_truncate_by_path_and_exchange_have_a_writer(
    mount: HandlerMount, store: Store, requests: list[tuple[WriteRequest, Author]]
) -> None:
    text = await mount.content(DOCUMENT, WRITER)
    await mount.set(await mount.inode(DOCUMENT), st_size=len(text.rstrip()))
    assert writer_of(requests[-1][0]).is_truncated is False
    assert requests[-1][1].pid == WRITER
    await mount.add(DRAFT, text.replace(b"Before", b"After"))
    await mount.rename(DRAFT, DOCUMENT, 2)
    assert writer_of(requests[-1][0]).process == (WRITER, 1)
    assert mount.title("root") == "After"


@in_trio
async def test_a_deletion_after_ten_seconds_has_the_author_of_the_removal(
    mount: HandlerMount, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    authors: list[Author] = []
    names = type(store.names)
    remove = names.remove_file

    def record(self: Any, *arguments: Any, **options: Any) -> None:
        authors.append(current_author(OUTSIDE))
        remove(self, *arguments, **options)

    monkeypatch.setattr(names, "remove_file", record)
    mount.writers.hidden.hidden_s = 0.0
    await mount.unlink(DOCUMENT)
    await mount.operations.expire_hidden()
    assert [author.pid for author in authors] == [WRITER]
    assert not store.exists("root")


async def read_log(mount: HandlerMount) -> None:
    """A log with one line, which the writer has read."""
    await mount.add(LOG, b"1\n")
    await mount.content(LOG, WRITER)


def append_outside(store: Store) -> None:
    """Another program adds a line that the writer has not read."""
    with (store.home / LOG).open("ab") as log:
        log.write(b"2\n")


async def refuse_replacement(mount: HandlerMount, source: str) -> None:
    with fails_with(errno.ESTALE):
        await mount.rename(source, LOG)


@in_trio
async def test_lines_added_since_the_writer_read_the_log_are_not_replaced(mount: HandlerMount, store: Store) -> None:
    """It read the log, others appended, and then it created its file."""
    await read_log(mount)
    append_outside(store)
    await mount.add(DRAFT, b"one\n")
    await refuse_replacement(mount, DRAFT)
    await mount.content(LOG, WRITER)
    await mount.save(DRAFT, b"one\n2\n")
    await mount.rename(DRAFT, LOG)
    assert (store.home / LOG).read_bytes() == b"one\n2\n"
    assert not await mount.exists(f"{LOG}.rejected")


@in_trio
async def test_lines_that_a_writer_has_not_read_are_not_replaced_by_another_log(
    mount: HandlerMount, store: Store
) -> None:
    """`grep -v … LOG > tmp.jsonl; mv tmp.jsonl LOG`. A rotated log may be older than the one it replaces."""
    temporary, rotated = "sessions/root/tmp.jsonl", "sessions/root/token-usage.1.jsonl"
    await read_log(mount)
    await mount.add(temporary, b"one\n")
    append_outside(store)
    await refuse_replacement(mount, temporary)
    assert (store.home / LOG).read_bytes() == b"1\n2\n"
    (store.home / rotated).write_bytes(b"0\n")
    await mount.rename(LOG, rotated)
    assert (store.home / rotated).read_bytes() == b"1\n2\n"


@in_trio
async def test_a_process_may_replace_a_log_that_only_it_has_changed(mount: HandlerMount, store: Store) -> None:
    """By a rename, by appending and by rewriting it in place, without reading it again."""
    await read_log(mount)
    for lines in (b"one\n", b"two\n"):
        await mount.add(DRAFT, lines)
        await mount.rename(DRAFT, LOG)
    fh = await mount.open(LOG, os.O_WRONLY | os.O_APPEND)
    for line in (b"3\n", b"4\n"):
        await mount.write(fh, 0, line)
    await mount.add(DRAFT, b"two\n3\n4\n")
    await mount.rename(DRAFT, LOG)
    await mount.finish(fh)
    await mount.save(LOG, b"five\n")
    await mount.add(DRAFT, b"five\n6\n")
    await mount.rename(DRAFT, LOG)
    assert (store.home / LOG).read_bytes() == b"five\n6\n"


@in_trio
async def test_a_process_that_appends_after_others_has_not_read_their_lines(mount: HandlerMount, store: Store) -> None:
    await read_log(mount)
    fh = await mount.open(LOG, os.O_WRONLY | os.O_APPEND)
    append_outside(store)
    await mount.write(fh, 0, b"3\n")
    await mount.finish(fh)
    await mount.add(DRAFT, b"1\n3\n")
    await refuse_replacement(mount, DRAFT)
    assert (store.home / LOG).read_bytes() == b"1\n2\n3\n"
