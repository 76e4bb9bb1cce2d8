"""Handlers that change names, called without a mount."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyfuse3
import pytest
import trio

from fusefs.requests import directory_entries
from fusefs.requests.directory_entries import DirectoryEntries, _Renaming
from fusefs.requests.files import Files
from fusefs.requests.threads import Threads
from fusefs.tree.directory_watches import DirectoryWatches
from fusefs.tree.nodes import Invalidation
from fusefs.tree.processes import Process
from fusefs.tree.tree import Tree
from fusefs.tree.writers import Writers
from store import Store
from store.commit.write_request import WriteRequest
from store.errors import Conflict
from store.path_kinds import classify_path
from tests.builders import make_document, make_session
from tests.fusefs.requests.harness import (
    READER,
    WRITER,
    FakeKernel,
    HandlerMount,
    caller,
    fails_with,
    in_trio,
    wait_until,
)

DOCUMENT = "sessions/root/session.json"
BACKUP = "sessions/root/session.json~"
DRAFT = "sessions/root/draft"
LOG = "sessions/root/token-usage.jsonl"


def on_disk(mount: HandlerMount, path: str = DOCUMENT) -> bytes:
    return (mount.store.home / path).read_bytes()


def test_version_committed_within_one_clock_tick_is_not_overwritten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File times have the granularity of a kernel tick: a newer version may have an earlier time."""
    store.save(make_session("root", title="Before"))
    document, draft = classify_path("sessions/root/session.json"), classify_path("sessions/root/draft")
    before = (store.home / document.path).read_bytes()
    writers, watches = Writers(), DirectoryWatches(store.home)
    tree = Tree(store, {}, writers, watches)
    files = Files(tree, writers, Threads(), on_conflict="reject")
    monkeypatch.setattr("fusefs.requests.files.time", SimpleNamespace(time_ns=lambda: time.time_ns() + 10**9))
    directory = tree.lookup(tree.lookup(tree.root, "sessions"), "root")
    _, node = trio.run(files.create, directory, draft.name, 0o600, os.O_WRONLY, Process())
    (store.home / draft.path).write_bytes(before.replace(b"Before", b"Drafted"))
    newer = before.replace(b"Before", b"Newer")
    store.names.commit(WriteRequest(document, newer))
    try:
        entries = DirectoryEntries(files, read_only=False)
        with pytest.raises(Conflict):
            entries._rename_on_disk(_Renaming(draft, document, node, Process(), None, True))
    finally:
        files.handles.close_all()
        watches.close()
    assert (store.home / document.path).read_bytes() == newer


# -- removing and replacing documents ----------------------------------------------------------------


@in_trio
async def test_removed_document_is_hidden_until_its_replacement_is_committed(mount: HandlerMount) -> None:
    """tar and git unlink before they create. On disk the session is never missing."""
    after = on_disk(mount).replace(b"Before", b"After")
    await mount.unlink(DOCUMENT)
    assert not await mount.exists(DOCUMENT)
    assert "session.json" not in await mount.names("sessions/root")
    assert b"Before" in on_disk(mount)
    await mount.add(DOCUMENT, after)
    assert on_disk(mount) == after
    assert DOCUMENT not in mount.writers.hidden


@in_trio
async def test_rejected_replacement_shows_the_old_document_again(mount: HandlerMount) -> None:
    before = on_disk(mount)
    await mount.unlink(DOCUMENT)
    with fails_with(errno.EBADMSG):
        await mount.add(DOCUMENT, b"not JSON")
    assert await mount.content(DOCUMENT) == before


@in_trio
async def test_document_renamed_away_and_not_replaced_is_deleted(mount: HandlerMount, store: Store) -> None:
    """After hidden_s the session goes to the trash, and the copy stays."""
    before = on_disk(mount)
    mount.writers.hidden.hidden_s = 0.0
    await mount.rename(DOCUMENT, BACKUP)
    with fails_with(errno.ENOENT):
        await mount.lookup(DOCUMENT)
    assert await mount.content(DOCUMENT, READER) == before, "other processes see it until then"
    assert await mount.content(BACKUP) == before
    assert (store.home / DOCUMENT).exists()
    await mount.operations.expire_hidden()
    assert not (store.home / DOCUMENT).exists()
    assert not store.exists("root")


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_TRUNC])
@in_trio
async def test_document_found_before_it_was_renamed_away_can_be_opened(mount: HandlerMount, flags: int) -> None:
    """The kernel repeats an open only once, so that must work although others save in between."""
    inode = await mount.inode(DOCUMENT, READER)
    await mount.rename(DOCUMENT, BACKUP)
    save_elsewhere(mount, "One")
    with fails_with(errno.ESTALE):
        await mount.open_inode(inode, flags, READER)
    again = await mount.inode(DOCUMENT, READER)
    save_elsewhere(mount, "Two")
    fh = await mount.open_inode(again, flags, READER)
    if flags == os.O_RDONLY:
        assert b"One" in await mount.read(fh, 0, 1 << 20)
    await mount.release(fh)


@in_trio
async def test_version_renamed_away_keeps_its_attributes(mount: HandlerMount) -> None:
    """The backup is a copy of a newer version here: its size must not become that of the version others read."""
    found = await mount.lookup(DOCUMENT, READER)
    fh = await mount.open_inode(found.st_ino, os.O_RDONLY, READER)
    save_elsewhere(mount, "A longer title")
    inode, name = await mount.split(DOCUMENT)  # as the kernel does, without looking up the document again
    await mount.operations.rename(inode, name, *await mount.split(BACKUP), 0, caller(WRITER))
    assert (await mount.operations.getattr(found.st_ino, caller(READER))).st_size == found.st_size
    assert b"Before" in await mount.read(fh, 0, 1 << 20)
    backup = await mount.lookup(BACKUP)
    assert backup.st_ino != found.st_ino
    assert backup.st_size == len(on_disk(mount))
    await mount.release(fh)


def save_elsewhere(mount: HandlerMount, title: str) -> None:
    """Another program saves the document."""
    mount.store.update("root", lambda session: setattr(session, "title", title))


@in_trio
async def test_hidden_document_is_kept_while_its_replacement_is_being_written(mount: HandlerMount) -> None:
    """A slow editor must not lose its session."""
    after = on_disk(mount).replace(b"Before", b"After")
    mount.writers.hidden.hidden_s = 0.0
    await mount.rename(DOCUMENT, BACKUP)
    fh = await mount.create(DOCUMENT)
    await mount.operations.expire_hidden()
    assert (mount.store.home / DOCUMENT).exists()
    await mount.write(fh, 0, after)
    await mount.finish(fh)
    assert on_disk(mount) == after


@in_trio
async def test_version_saved_after_the_removal_is_not_deleted(mount: HandlerMount) -> None:
    """The user removed another version. The newer one is shown."""
    mount.writers.hidden.hidden_s = 0.0
    await mount.unlink(DOCUMENT)
    newer = on_disk(mount).replace(b"Before", b"Newer")
    mount.store.names.commit(WriteRequest(classify_path(DOCUMENT), newer))
    await mount.operations.expire_hidden()
    assert await mount.content(DOCUMENT) == newer


@in_trio
async def test_closing_the_mount_deletes_hidden_documents(mount: HandlerMount, store: Store) -> None:
    """Unmounting ends the ten seconds."""
    other = HandlerMount(store)
    await other.unlink(DOCUMENT)
    other.close()
    assert not (store.home / DOCUMENT).exists()


@in_trio
async def test_pinned_session_cannot_be_removed(mount: HandlerMount, store: Store) -> None:
    store.save(make_session("pinned", pinned=True))
    with fails_with(errno.EPERM):
        await mount.unlink("sessions/pinned/session.json")
    assert await mount.exists("sessions/pinned/session.json")


@in_trio
async def test_removed_sidecar_may_be_replaced(mount: HandlerMount, store: Store) -> None:
    """A sidecar is removed at once. Its replacement does not conflict with the removed version."""
    store.save(make_session("run", run_id="run-1"))
    path = "sessions/run/runtime.json"
    before = (store.home / path).read_bytes()
    await mount.unlink(path)
    assert not (store.home / path).exists()
    assert mount.writers.hidden.was_deleted(path, WRITER)
    await mount.add(path, before)
    assert (store.home / path).read_bytes() == before


@in_trio
async def test_removing_the_rejected_text_keeps_the_document(mount: HandlerMount) -> None:
    before = on_disk(mount)
    with fails_with(errno.EBADMSG):
        await mount.save(DOCUMENT, b"not JSON")
    assert {"session.json.rejected", "session.json.error"} <= set(await mount.names("sessions/root"))
    await mount.unlink(f"{DOCUMENT}.rejected")
    assert not await mount.exists(f"{DOCUMENT}.rejected")
    assert on_disk(mount) == before


# -- renaming onto a log -----------------------------------------------------------------------------


def replaced_logs(store: Store) -> list[bytes]:
    """The logs in the trash, newest first."""
    slots = [slot for slot in store.trash.deleted() if slot.what == "log replaced"]
    return [(store.home / kept).read_bytes() for slot in slots for _, kept in slot.moves]


@in_trio
async def test_a_log_replaced_by_rename_goes_to_the_trash(mount: HandlerMount, store: Store) -> None:
    """`sed -i`: lines that an open descriptor appends afterwards are in the new log.

    The first of them is in the trash too: it was written before the mount looked.
    """
    await mount.add(LOG, b"1\n")
    appender = await mount.open(LOG, os.O_WRONLY | os.O_APPEND)
    await mount.add(DRAFT, b"one\n")
    await mount.rename(DRAFT, LOG)
    await mount.write(appender, 0, b"2\n")
    await mount.write(appender, 0, b"3\n")
    await mount.finish(appender)
    assert on_disk(mount, LOG) == b"one\n2\n3\n"
    assert replaced_logs(store) == [b"1\n2\n"]
    assert store.check().is_clean


@in_trio
async def test_lines_for_a_log_that_has_another_hard_link_are_in_the_new_one(
    mount: HandlerMount, store: Store, tmp_path: Path
) -> None:
    """`cp -al` as a snapshot, and then an import."""
    await mount.add(LOG, b"1\n")
    appender = await mount.open(LOG, os.O_WRONLY | os.O_APPEND)
    os.link(store.home / LOG, tmp_path / "snapshot")
    (store.home / "new").write_bytes(b"imported\n")
    os.replace(store.home / "new", store.home / LOG)
    await mount.write(appender, 0, b"2\n")
    await mount.finish(appender)
    assert on_disk(mount, LOG) == b"imported\n2\n"


@in_trio
async def test_lines_appended_while_vim_saves_a_log_are_kept(mount: HandlerMount, store: Store) -> None:
    """It renames the log away, creates it again and deletes the backup, which goes to the trash."""
    await mount.add(LOG, b"1\n")
    appender = await mount.open(LOG, os.O_WRONLY | os.O_APPEND)
    await mount.rename(LOG, f"{LOG}~")
    await mount.write(appender, 0, b"2\n")
    await mount.add(LOG, b"one\n")
    await mount.write(appender, 0, b"3\n")
    assert (await mount.lookup(f"{LOG}~")).st_size == len(b"1\n2\n3\n")
    await mount.unlink(f"{LOG}~")
    await mount.write(appender, 0, b"4\n")
    steps: list[str] = []
    store._core.disk.step = steps.append
    await mount.finish(appender)
    assert steps == ["sync-log"]
    assert on_disk(mount, LOG) == b"one\n3\n4\n"
    (slot,) = store.trash.deleted()
    assert [(store.home / kept).read_bytes() for _, kept in slot.moves] == [b"1\n2\n3\n"]


@in_trio
async def test_lines_for_the_log_of_a_renamed_session_stay_in_it(mount: HandlerMount, store: Store) -> None:
    """Also if there is a new session of the old name. So do those for a log that was rotated."""
    await mount.add(LOG, b"1\n")
    appender = await mount.open(LOG, os.O_WRONLY | os.O_APPEND)
    await mount.rename("sessions/root", "sessions/moved")
    store.save(make_session("root"))
    await mount.add(LOG, b"another\n")
    moved = LOG.replace("root", "moved")
    await mount.write(appender, 0, b"2\n")
    assert on_disk(mount, moved) == b"1\n2\n"
    await mount.rename(moved, moved.replace(".jsonl", ".1.jsonl"))
    await mount.add(moved, b"")
    await mount.write(appender, 0, b"3\n")
    await mount.finish(appender)
    assert on_disk(mount, moved.replace(".jsonl", ".1.jsonl")) == b"1\n2\n3\n"
    assert on_disk(mount, moved) == b""
    assert on_disk(mount, LOG) == b"another\n"


@in_trio
@pytest.mark.parametrize("is_known", [True, False])
async def test_lines_added_since_the_file_was_created_are_not_replaced(
    mount: HandlerMount, store: Store, *, is_known: bool
) -> None:
    """Whether or not the mount knew the log at that time. The rejected text is kept."""
    if is_known:
        await mount.add(LOG, b"1\n")
    else:
        (store.home / LOG).write_bytes(b"1\n")
    await mount.add(DRAFT, b"one\n")
    created_ns = time.time_ns()
    with (store.home / LOG).open("ab") as log:
        log.write(b"2\n")
    while (store.home / LOG).stat().st_ctime_ns <= created_ns:  # file times have the granularity of a tick
        os.utime(store.home / LOG)
    with fails_with(errno.ESTALE):
        await mount.rename(DRAFT, LOG)
    assert on_disk(mount, LOG) == b"1\n2\n"
    assert await mount.content(f"{LOG}.rejected") == b"one\n"


@in_trio
async def test_lines_that_truncation_removes_go_to_the_trash(mount: HandlerMount, store: Store) -> None:
    """By open with O_TRUNC, by ftruncate and by truncate."""
    await mount.add(LOG, b"1\n2\n")
    await mount.save(LOG, b"one\ntwo\n")
    fh = await mount.open(LOG, os.O_WRONLY)
    await mount.set(await mount.inode(LOG), fh, st_size=4)
    await mount.finish(fh)
    await mount.set(await mount.inode(LOG), st_size=0)
    assert on_disk(mount, LOG) == b""
    assert replaced_logs(store) == [b"one\n", b"one\ntwo\n", b"1\n2\n"]
    assert store.check().is_clean


@in_trio
async def test_a_log_can_be_emptied_on_a_full_disk(
    mount: HandlerMount, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a copy in the trash: the user is making room."""
    await mount.add(LOG, b"1\n")

    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(type(store._core.journal), "_run", fail)
    await mount.finish(await mount.open(LOG, os.O_WRONLY | os.O_TRUNC))
    assert on_disk(mount, LOG) == b""
    assert replaced_logs(store) == []


# -- renaming onto a document ------------------------------------------------------------------------


@in_trio
async def test_rename_onto_a_document_commits_it(mount: HandlerMount, store: Store) -> None:
    """Most programs save like this. The temporary file is gone afterwards."""
    after = on_disk(mount).replace(b"Before", b"After")
    await mount.add(DRAFT, after)
    await mount.rename(DRAFT, DOCUMENT)
    assert on_disk(mount) == after
    assert not (store.home / DRAFT).exists()
    assert mount.title("root") == "After"
    assert await mount.content(DOCUMENT) == after


@in_trio
async def test_rename_of_an_invalid_file_is_rejected(mount: HandlerMount) -> None:
    before = on_disk(mount)
    await mount.add(DRAFT, b"not JSON")
    with fails_with(errno.EBADMSG):
        await mount.rename(DRAFT, DOCUMENT)
    assert on_disk(mount) == before


@in_trio
async def test_rename_onto_a_newer_version_is_stale(mount: HandlerMount) -> None:
    """The file was created before the other commit, so its writer cannot have read that version."""
    mine = on_disk(mount).replace(b"Before", b"Mine")
    theirs = on_disk(mount).replace(b"Before", b"Theirs")
    await mount.add(DRAFT, mine)
    mount.store.names.commit(WriteRequest(classify_path(DOCUMENT), theirs))
    with fails_with(errno.ESTALE):
        await mount.rename(DRAFT, DOCUMENT)
    assert on_disk(mount) == theirs


@in_trio
async def test_noreplace_fails_if_the_target_exists(mount: HandlerMount) -> None:
    """A hidden target does not exist for the caller."""
    before = on_disk(mount)
    await mount.add(DRAFT, before.replace(b"Before", b"After"))
    with fails_with(errno.EEXIST):
        await mount.rename(DRAFT, DOCUMENT, pyfuse3.RENAME_NOREPLACE)
    assert on_disk(mount) == before
    await mount.unlink(DOCUMENT)
    await mount.rename(DRAFT, DOCUMENT, pyfuse3.RENAME_NOREPLACE)
    assert b"After" in on_disk(mount)


@in_trio
async def test_hidden_document_cannot_be_renamed(mount: HandlerMount) -> None:
    await mount.unlink(DOCUMENT)
    with fails_with(errno.ENOENT):
        await mount.rename(DOCUMENT, BACKUP)
    with fails_with(errno.ENOENT):
        await mount.rename(DOCUMENT, BACKUP, pyfuse3.RENAME_EXCHANGE)


@in_trio
async def test_exchange_commits_the_other_file(mount: HandlerMount, kernel: FakeKernel) -> None:
    """Both names and the sidecar have new nodes, so the kernel must forget all three."""
    before = on_disk(mount)
    after = before.replace(b"Before", b"After")
    await mount.add(DRAFT, after)
    await mount.lookup("sessions/root/runtime.json")
    kernel.entries.clear()
    await mount.rename(DRAFT, DOCUMENT, pyfuse3.RENAME_EXCHANGE)
    assert (on_disk(mount), on_disk(mount, DRAFT)) == (after, before)
    directory = await mount.inode("sessions/root")
    names = {(directory, name) for name in (b"draft", b"session.json", b"runtime.json")}
    await wait_until(lambda: names <= set(kernel.entries))


@in_trio
async def test_stale_rename_drops_the_listing(
    mount: HandlerMount, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ls` after it shows the rejected text and the reason."""
    mine, theirs = (on_disk(mount).replace(b"Before", title) for title in (b"Mine", b"Theirs"))
    await mount.add(DRAFT, mine)
    mount.store.names.commit(WriteRequest(classify_path(DOCUMENT), theirs))
    directory = await known_listing(mount, kernel, "sessions/root", monkeypatch)
    with fails_with(errno.ESTALE):
        await mount.rename(DRAFT, DOCUMENT)
    assert (directory, False) in kernel.inodes
    assert {"session.json.error", "session.json.rejected"} < set(await mount.names("sessions/root"))


@in_trio
async def test_rejected_exchange_drops_the_listing_of_the_document_at_the_source(
    mount: HandlerMount, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mount.mkdir("sessions/root/folder")
    await mount.add("sessions/root/folder/draft", b"not JSON")
    directory = await known_listing(mount, kernel, "sessions/root", monkeypatch)
    with fails_with(errno.EBADMSG):
        await mount.rename(DOCUMENT, "sessions/root/folder/draft", pyfuse3.RENAME_EXCHANGE)
    assert (directory, False) in kernel.inodes
    assert {"session.json.error", "session.json.rejected"} < set(await mount.names("sessions/root"))


@in_trio
async def test_refused_rmdir_drops_the_listing_that_shows_the_document_again(
    mount: HandlerMount, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document was unlinked, and an agent saved it again."""
    await mount.unlink(DOCUMENT)
    directory = await known_listing(mount, kernel, "sessions/root", monkeypatch)
    mount.store.update("root", lambda session: setattr(session, "title", "While hidden"))
    with fails_with(errno.ENOTEMPTY):
        await mount.rmdir("sessions/root")
    assert (directory, False) in kernel.inodes
    assert "session.json" in await mount.names("sessions/root")


async def known_listing(mount: HandlerMount, kernel: FakeKernel, path: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let the kernel have a directory's listing; forget the notices so far. Returns the directory's inode.

    The task that sends notices in the background comes too late.
    """

    async def wait() -> None:
        await trio.sleep(60)

    directory = await mount.inode(path)
    mount.operations.listings.will_read(mount.tree.nodes.get(directory))
    monkeypatch.setattr(mount.operations.listings, "_invalidate_twice", wait)
    kernel.inodes.clear()
    return directory


@in_trio
async def test_rename_onto_a_document_invalidates_both_documents_at_once(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit writes the sidecar too. Each call takes a worker thread."""
    sent: list[list[Invalidation]] = []
    monkeypatch.setattr(directory_entries, "invalidate_later", lambda notices: sent.append([*notices]))
    await mount.add(DRAFT, on_disk(mount).replace(b"Before", b"After"))
    for name in (DRAFT, DOCUMENT, "sessions/root/runtime.json"):
        await mount.lookup(name)
    await mount.rename(DRAFT, DOCUMENT)
    directory = await mount.inode("sessions/root")
    assert [{(notice.inode, notice.name) for notice in notices} for notices in sent] == [
        {(directory, b"session.json"), (directory, b"runtime.json")}
    ]
    assert mount.title("root") == "After"


# -- directories -------------------------------------------------------------------------------------


@in_trio
async def test_mkdir_and_a_document_create_a_session(mount: HandlerMount, store: Store) -> None:
    await mount.mkdir("sessions/new")
    await mount.add("sessions/new/session.json", make_document("new"))
    assert mount.title("new") == "A title"
    assert "new" in await mount.names("sessions")


@in_trio
async def test_renaming_a_directory_renames_the_session(mount: HandlerMount, store: Store) -> None:
    """The id in the document changes, so its node does too."""
    old = await mount.inode(DOCUMENT)
    await mount.rename("sessions/root", "sessions/renamed")
    assert mount.title("renamed") == "Before"
    assert await mount.inode("sessions/renamed/session.json") != old
    assert not await mount.exists("sessions/root")


@in_trio
async def test_hidden_name_stays_hidden_when_its_directory_is_renamed(mount: HandlerMount) -> None:
    await mount.unlink(DOCUMENT)
    await mount.rename("sessions/root", "sessions/renamed")
    assert not await mount.exists("sessions/renamed/session.json")
    assert "session.json" not in await mount.names("sessions/renamed")


@in_trio
async def test_rm_r_moves_the_session_to_the_trash(mount: HandlerMount, store: Store) -> None:
    """rm -r unlinks the documents first: rmdir sees a directory with hidden names only."""
    for name in await mount.names("sessions/root"):
        if (store.home / "sessions/root" / name).is_dir():
            await mount.rmdir(f"sessions/root/{name}")
        else:
            await mount.unlink(f"sessions/root/{name}")
    await mount.rmdir("sessions/root")
    assert not (store.home / "sessions/root").exists()
    assert not await mount.exists("sessions/root")


@in_trio
async def test_rmdir_keeps_a_version_saved_after_the_removal(mount: HandlerMount) -> None:
    """Another program saved the session between unlink and rmdir."""
    await mount.unlink(DOCUMENT)
    newer = on_disk(mount).replace(b"Before", b"Newer")
    mount.store.names.commit(WriteRequest(classify_path(DOCUMENT), newer))
    with fails_with(errno.ENOTEMPTY):
        await mount.rmdir("sessions/root")
    assert await mount.content(DOCUMENT) == newer


@in_trio
async def test_symlink_is_created_and_read(mount: HandlerMount) -> None:
    directory = await mount.inode("sessions/root")
    attrs = await mount.operations.symlink(directory, b"link", b"session.json", caller(WRITER))
    assert await mount.operations.readlink(attrs.st_ino, caller(READER)) == b"session.json"
    assert os.readlink(mount.store.home / "sessions/root/link") == "session.json"


@in_trio
async def test_names_cannot_be_moved_between_views(mount: HandlerMount) -> None:
    with fails_with(errno.EROFS):
        await mount.rename("transcripts/root.md", "views/root.md")


@in_trio
async def test_new_name_of_a_replaced_node_is_looked_up_again(mount: HandlerMount, kernel: FakeKernel) -> None:
    """The change follower has replaced the node, and the kernel moves the entry that it still has."""
    (mount.store.home / "sessions/root/attachments").mkdir(exist_ok=True)
    (mount.store.home / "sessions/root/attachments/a").write_bytes(b"one")
    (directory, name), new = await mount.split("sessions/root/attachments/a"), "sessions/root/attachments/b"
    parent = mount.tree.nodes.get(directory)
    await mount.lookup("sessions/root/attachments/a")
    (mount.store.home / "sessions/root/attachments/a").write_bytes(b"two, longer")
    mount.tree.recheck(parent, "a")
    assert "a" not in parent.children
    await mount.operations.rename(directory, name, *await mount.split(new), 0, caller(WRITER))
    await wait_until(lambda: (directory, b"b") in kernel.entries)
