"""Handlers that change names, called without a mount."""

from __future__ import annotations

import errno
import os
import time
from types import SimpleNamespace

import pyfuse3
import pytest
import trio

from fusefs.requests.directory_entries import DirectoryEntries, _Renaming
from fusefs.requests.files import Files
from fusefs.requests.threads import Threads
from fusefs.tree.directory_watches import DirectoryWatches
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
    """Both names have new nodes, so the kernel must forget both."""
    before = on_disk(mount)
    after = before.replace(b"Before", b"After")
    await mount.add(DRAFT, after)
    await mount.rename(DRAFT, DOCUMENT, pyfuse3.RENAME_EXCHANGE)
    assert (on_disk(mount), on_disk(mount, DRAFT)) == (after, before)
    directory = await mount.inode("sessions/root")
    await wait_until(lambda: {(directory, b"draft"), (directory, b"session.json")} <= set(kernel.entries))


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
