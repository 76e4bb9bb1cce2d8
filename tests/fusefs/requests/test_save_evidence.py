"""What the store learns of the process that saves: author, versions it had, where its bytes started."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from fusefs.requests import callers
from fusefs.tree.processes import Process
from store import Store
from store.commit.write_request import Writer, WriteRequest
from store.disk.file import Stamp
from store.history.authors import OUTSIDE, Author, current_author
from tests.fusefs.requests.harness import READER, WRITER, HandlerMount, fails_with, in_trio

DOCUMENT, DRAFT = "sessions/root/session.json", "sessions/root/draft"


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
