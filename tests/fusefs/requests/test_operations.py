"""Handlers that read names and attributes, and what happens to their exceptions."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

import pyfuse3
import pytest
import trio

from fusefs.fast import NODE_HANDLE
from fusefs.requests import attributes, operations
from fusefs.requests.attributes import BEFORE_OPEN_S, UNCACHED_S, UNWATCHED_S, VIEW_S, WATCHED_S
from fusefs.tree.nodes import Invalidation, Node
from store import Message, Store
from store.namespace.namespace import Namespace
from tests.builders import make_session
from tests.fusefs.requests.harness import READER, WRITER, HandlerMount, caller, fails_with, in_trio

DOCUMENT = "sessions/root/session.json"
NOTE = "sessions/root/note.txt"


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Names and inodes that readdir returned. The token is the number of entries that still fit."""
    listed: list[tuple[str, int]] = []

    def reply(token: list[int], name: bytes, attrs: pyfuse3.EntryAttributes, _next: int) -> bool:
        if not token[0]:
            return False
        token[0] -= 1
        listed.append((os.fsdecode(name), attrs.st_ino))
        return True

    monkeypatch.setattr(pyfuse3, "readdir_reply", reply)
    return listed


def room_for(entries: int) -> Any:
    return [entries]


# -- lookup counts -----------------------------------------------------------------------------------


@in_trio
async def test_node_is_dropped_with_its_last_lookup(mount: HandlerMount) -> None:
    """The kernel counts one reference per lookup, and may forget several at once."""
    inode = await mount.inode(DOCUMENT)
    assert await mount.inode(DOCUMENT, READER) == inode
    node = mount.tree.nodes.get(inode)
    assert node.lookups == 2
    await mount.operations.forget([(inode, 1)])
    assert mount.tree.nodes.get(inode) is node
    await mount.operations.forget([(inode, 1)])
    assert node not in list(mount.tree.nodes)


@in_trio
async def test_inode_is_the_same_after_a_remount(mount: HandlerMount, store: Store) -> None:
    """Backup tools identify files by inode."""
    other = HandlerMount(store)
    assert await mount.inode(DOCUMENT) == await other.inode(DOCUMENT)
    other.close()


@in_trio
async def test_forgotten_directory_is_no_longer_watched(mount: HandlerMount) -> None:
    directory = mount.tree.nodes.get(await mount.inode("sessions/root"))
    assert directory.is_watched
    await mount.operations.forget([(directory.inode, directory.lookups)])
    assert not directory.is_watched


# -- cache timeouts ----------------------------------------------------------------------------------


@in_trio
async def test_absent_foreign_name_is_cached_as_absent(mount: HandlerMount) -> None:
    """git, rg and shells look up many absent names. Their creation is noticed by the directory's watch."""
    attrs = await mount.lookup("sessions/root/.git")
    assert (attrs.st_ino, attrs.entry_timeout) == (0, WATCHED_S)
    attrs = await mount.lookup("sessions/root/attachments/.ignore")
    assert (attrs.st_ino, attrs.entry_timeout) == (0, WATCHED_S)
    assert mount.tree.nodes.get(await mount.inode("sessions/root")).absent == {".git"}


@pytest.mark.parametrize("name", ["artifacts.json", "session.json.rejected", "children/x"])
def test_absent_name_with_a_meaning_is_not_cached(mount: HandlerMount, name: str) -> None:
    """It can appear by a commit, move or deletion of another name, and then must be visible at once."""

    async def scenario() -> None:
        with fails_with(errno.ENOENT):
            await mount.lookup(f"sessions/root/{name}")

    trio.run(scenario)


@in_trio
async def test_number_of_negative_entries_is_limited(mount: HandlerMount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "_MAX_ABSENT", 1)
    await mount.lookup("sessions/root/one")
    with fails_with(errno.ENOENT):
        await mount.lookup("sessions/root/two")


@in_trio
async def test_attributes_are_cached_only_where_changes_are_noticed(mount: HandlerMount) -> None:
    assert (await mount.lookup(DOCUMENT)).attr_timeout == WATCHED_S
    assert (await mount.lookup("transcripts/root.md")).attr_timeout == VIEW_S
    fh = await mount.open(DOCUMENT, os.O_WRONLY)
    assert (await mount.lookup(DOCUMENT, READER)).entry_timeout == UNCACHED_S
    await mount.release(fh)
    assert (await mount.lookup(DOCUMENT, READER)).entry_timeout == WATCHED_S


@in_trio
async def test_unwatched_directory_is_cached_for_a_moment(mount: HandlerMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inotify limit is reached: nothing reports changes."""
    monkeypatch.setattr(mount.tree.watches, "_limit", 0)
    assert (await mount.lookup(DOCUMENT)).attr_timeout == UNWATCHED_S
    with fails_with(errno.ENOENT):
        await mount.lookup("sessions/root/.git")


@in_trio
async def test_file_with_two_hard_links_is_cached_for_a_moment(mount: HandlerMount) -> None:
    """A change through the other name is not reported."""
    await mount.add(NOTE, b"text")
    os.link(mount.store.home / NOTE, mount.store.home / "sessions/root/other")
    assert (await mount.lookup(NOTE)).attr_timeout == UNWATCHED_S


# -- listings ----------------------------------------------------------------------------------------


@in_trio
async def test_readdir_returns_every_name_and_counts_lookups(
    mount: HandlerMount, replies: list[tuple[str, int]]
) -> None:
    inode = await mount.inode("sessions/root")
    fh = await mount.operations.opendir(inode, caller(READER))
    await mount.operations.readdir(fh, 0, room_for(100))
    assert "session.json" in dict(replies)
    document = dict(replies)["session.json"]
    assert mount.tree.nodes.get(document).lookups == 1
    assert await mount.inode(DOCUMENT) == document
    await mount.operations.fsyncdir(fh, False)
    await mount.operations.releasedir(fh)


async def read_dir(mount: HandlerMount, path: str, replies: list[tuple[str, int]]) -> list[str]:
    """The names in a directory that the kernel opened by itself, as it reads them."""
    replies.clear()
    await mount.operations.readdir(NODE_HANDLE | await mount.inode(path), 0, room_for(1000))
    return [name for name, _ in replies]


async def walk_into(mount: HandlerMount, replies: list[tuple[str, int]]) -> Node:
    """Read sessions/ and its first directory, so that the next one is listed ahead. Returns that one."""
    for name in ("a-one", "a-two"):
        (mount.store.home / f"sessions/root/{name}").mkdir(exist_ok=True)
    for path in ("sessions", "sessions/root"):
        await read_dir(mount, path, replies)
    node = mount.tree.nodes.get(await mount.inode("sessions/root/a-one"))
    assert node.listing is None
    mount.operations.read_ahead.list_next()
    assert node.listing is not None
    return node


@in_trio
async def test_listing_made_ahead_shows_what_was_created_since_through_the_mount(
    mount: HandlerMount, replies: list[tuple[str, int]]
) -> None:
    await walk_into(mount, replies)
    await mount.add("sessions/root/a-one/note.txt", b"text")
    assert await read_dir(mount, "sessions/root/a-one", replies) == ["note.txt"]
    await mount.unlink("sessions/root/a-one/note.txt")
    assert await read_dir(mount, "sessions/root/a-one", replies) == []


@in_trio
async def test_directory_that_changed_shows_its_new_times_at_once(mount: HandlerMount) -> None:
    """In the listing of its parent, and after it was listed again."""
    sessions, root = [mount.tree.nodes.get(await mount.inode(path)) for path in ("sessions", "sessions/root")]
    disk = mount.store.home / "sessions/root"
    for number, list_first in enumerate((False, True)):
        listing = mount.tree.listing(sessions)
        os.utime(disk, ns=(number, number))  # so that the next change gives it a different time
        await mount.lookup("sessions/root")
        await mount.mkdir(f"sessions/root/sub{number}")
        if list_first:
            mount.tree.listing(root)
            shown = (await mount.operations.getattr(root.inode, caller(READER))).st_mtime_ns
        else:
            info = mount.tree.entry(sessions, "root", listing).info
            shown = info.st_mtime_ns if info is not None else 0
        assert shown == disk.stat().st_mtime_ns


@in_trio
async def test_node_that_the_kernel_knows_is_not_stated_ahead(
    mount: HandlerMount, replies: list[tuple[str, int]]
) -> None:
    """Nothing would tell the kernel of its new times: the change follower would find them known."""
    (mount.store.home / "sessions/root/a-one/inner").mkdir(parents=True)
    inner = mount.tree.nodes.get(await mount.inode("sessions/root/a-one/inner"))
    await walk_into(mount, replies)
    os.utime(mount.store.home / inner.path, ns=(1, 1))
    inner.has_old_info = True  # as after a rejected text anywhere
    mount.operations.read_ahead.make_next()
    assert mount.tree.recheck_times(inner) == [Invalidation(inner.inode)]


@in_trio
async def test_listing_made_ahead_is_dropped_after_a_change_on_disk(
    mount: HandlerMount, replies: list[tuple[str, int]]
) -> None:
    """The directory was watched before it was listed, so no change is missed."""
    node = await walk_into(mount, replies)
    (mount.store.home / "sessions/root/a-one/note.txt").write_text("text")
    with trio.fail_after(20):
        while node.listing is not None:
            await mount.operations.follow()
            await trio.sleep(0.01)
    assert await read_dir(mount, "sessions/root/a-one", replies) == ["note.txt"]


@in_trio
async def test_node_made_ahead_is_the_version_that_is_there_when_it_is_read(
    mount: HandlerMount, replies: list[tuple[str, int]]
) -> None:
    """Also if the file was replaced or removed since, and no node is left of what the kernel never knew."""
    node = await walk_into(mount, replies)
    for name in ("kept", "removed", "replaced"):
        (mount.store.home / f"sessions/root/a-one/{name}").write_text("old")
    node.invalidate_listing()
    before = len(mount.tree.nodes)
    mount.operations.read_ahead._next = node
    mount.operations.read_ahead.list_next()
    mount.operations.read_ahead.make_next()
    assert len(mount.tree.nodes) == before + 3
    (mount.store.home / "sessions/root/a-one/removed").unlink()
    (mount.store.home / "sessions/root/a-one/new").write_text("longer")
    (mount.store.home / "sessions/root/a-one/new").rename(mount.store.home / "sessions/root/a-one/replaced")
    with trio.fail_after(20):
        while node.listing is not None or "removed" in node.children:
            await mount.operations.follow()
            await trio.sleep(0.01)
    assert await read_dir(mount, "sessions/root/a-one", replies) == ["kept", "replaced"]
    replaced = node.children["replaced"].info
    assert replaced is not None
    assert replaced.st_size == len("longer")
    assert all(child.lookups == 1 for child in node.children.values())
    assert len(mount.tree.nodes) == before + 2


@in_trio
async def test_directory_removed_after_it_was_chosen_is_not_listed_ahead(
    mount: HandlerMount, replies: list[tuple[str, int]], caplog: pytest.LogCaptureFixture
) -> None:
    node = await walk_into(mount, replies)
    await read_dir(mount, "sessions/root/a-one", replies)
    (mount.store.home / "sessions/root/a-two").rmdir()
    (mount.store.home / "sessions/root/a-two").symlink_to("a-one")
    mount.operations.read_ahead.list_next()
    assert node.parent is not None
    assert node.parent.children["a-two"].listing is None
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@in_trio
async def test_readdir_continues_where_the_buffer_was_full(mount: HandlerMount, replies: list[tuple[str, int]]) -> None:
    """An entry that did not fit is not counted as looked up."""
    for name in ("a", "b"):
        mount.store.save(make_session(name))
    fh = await mount.operations.opendir(await mount.inode("sessions"), caller(READER))
    nodes = len(mount.tree.nodes)
    await mount.operations.readdir(fh, 0, room_for(1))
    assert len(mount.tree.nodes) == nodes + 1
    await mount.operations.readdir(fh, 1, room_for(100))
    assert [name for name, _ in replies] == await mount.names("sessions")
    await mount.operations.releasedir(fh)


@in_trio
async def test_rewinddir_shows_new_names_and_skips_removed_ones(
    mount: HandlerMount, replies: list[tuple[str, int]]
) -> None:
    await mount.add(NOTE, b"text")
    fh = await mount.operations.opendir(await mount.inode("sessions/root"), caller(READER))
    await mount.unlink(NOTE)
    await mount.add("sessions/root/new.txt", b"text")
    await mount.operations.readdir(fh, 1, room_for(100))
    assert "note.txt" not in dict(replies)
    assert "new.txt" not in dict(replies)
    await mount.operations.readdir(fh, 0, room_for(100))
    assert "new.txt" in dict(replies)
    await mount.operations.releasedir(fh)


@in_trio
async def test_root_lists_stored_directories_and_views(mount: HandlerMount) -> None:
    assert {"sessions", "search", "transcripts", "views"} <= set(await mount.names(""))


@in_trio
async def test_listing_is_cached_until_something_changes(mount: HandlerMount) -> None:
    directory = mount.tree.nodes.get(await mount.inode("sessions/root"))
    await mount.names("sessions/root")
    cached = directory.listing
    assert cached is not None
    await mount.names("sessions/root")
    assert directory.listing is cached
    await mount.add(NOTE, b"text")
    assert cached.is_stale
    assert "note.txt" in await mount.names("sessions/root")


# -- attributes --------------------------------------------------------------------------------------


@in_trio
async def test_getattr_of_a_plain_file_is_current(mount: HandlerMount) -> None:
    await mount.add(NOTE, b"text")
    inode = await mount.inode(NOTE)
    (mount.store.home / NOTE).write_bytes(b"longer text")
    assert (await mount.operations.getattr(inode, caller(READER))).st_size == 11


@in_trio
async def test_getattr_of_a_removed_open_file_uses_its_descriptor(mount: HandlerMount) -> None:
    await mount.add(NOTE, b"text")
    inode = await mount.inode(NOTE)
    fh = await mount.open(NOTE, os.O_RDWR)
    await mount.unlink(NOTE)
    await mount.write(fh, 0, b"longer text")
    assert (await mount.operations.getattr(inode, caller(READER))).st_size == 11
    await mount.set(inode, st_mode=0o600, st_mtime_ns=10**18)
    info = os.fstat(mount.files.handles.get(fh).fd)  # type: ignore[attr-defined]
    assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (0o600, 10**18)
    await mount.release(fh)


@in_trio
async def test_mode_and_times_are_set_by_name(mount: HandlerMount) -> None:
    await mount.set(await mount.inode(DOCUMENT), st_mode=0o640)
    await mount.set(await mount.inode(DOCUMENT), st_mtime_ns=10**18)
    info = (mount.store.home / DOCUMENT).stat()
    assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (0o640, 10**18)


@in_trio
async def test_owner_cannot_be_changed(mount: HandlerMount) -> None:
    """cp -p and tar set the present owner, which succeeds."""
    inode = await mount.inode(DOCUMENT)
    info = (mount.store.home / DOCUMENT).stat()
    await mount.set(inode, st_uid=info.st_uid, st_gid=info.st_gid)
    with fails_with(errno.EPERM):
        await mount.set(inode, st_uid=info.st_uid + 1)


@in_trio
async def test_views_have_the_permissions_of_sessions(mount: HandlerMount) -> None:
    """They show the same content."""
    mode = (mount.store.home / "sessions").stat().st_mode & 0o077
    assert (await mount.lookup("transcripts/root.md")).st_mode & 0o077 == 0o044 & mode


# -- unsupported requests ----------------------------------------------------------------------------


@in_trio
async def test_hard_links_devices_and_extended_attributes_are_not_supported(mount: HandlerMount) -> None:
    """ENOSYS makes the kernel stop asking for attributes before every write."""
    handlers, who = mount.operations, caller(WRITER)
    inode, directory = await mount.inode(DOCUMENT), await mount.inode("sessions/root")
    with fails_with(errno.EPERM):
        await handlers.link(inode, directory, b"other", who)
    with fails_with(errno.EPERM):
        await handlers.mknod(directory, b"fifo", stat.S_IFIFO | 0o600, 0, who)
    with fails_with(errno.ENOSYS):
        await handlers.getxattr(inode, b"user.x", who)
    with fails_with(errno.ENOSYS):
        await handlers.setxattr(inode, b"user.x", b"", who)
    with fails_with(errno.ENOSYS):
        await handlers.listxattr(inode, who)
    with fails_with(errno.ENOSYS):
        await handlers.removexattr(inode, b"user.x", who)


@in_trio
async def test_statfs_is_that_of_the_home(mount: HandlerMount) -> None:
    assert (await mount.operations.statfs(caller(READER))).f_blocks == os.statvfs(mount.store.home).f_blocks
    assert await mount.operations.access(await mount.inode(DOCUMENT), os.R_OK, caller(READER))


# -- errors and statistics ---------------------------------------------------------------------------


@pytest.mark.warns
@in_trio
async def test_unexpected_exception_is_eio_and_logged(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug must not end the mount: the next request works."""
    with monkeypatch.context() as patched:
        patched.setattr(Namespace, "stat", lambda *_: 1 / 0)
        with fails_with(errno.EIO):
            await mount.lookup("sessions")
    assert "ZeroDivisionError" in caplog.text
    assert await mount.exists(DOCUMENT)


@pytest.mark.warns
@in_trio
async def test_unknown_inode_is_eio(mount: HandlerMount) -> None:
    """A bug of ours or of the kernel: never an exception that ends the mount."""
    with fails_with(errno.EIO):
        await mount.operations.getattr(123456789, caller(READER))


@in_trio
async def test_requests_are_counted_and_timed_also_if_they_fail(mount: HandlerMount) -> None:
    await mount.inode(DOCUMENT)
    with fails_with(errno.ENOENT):
        await mount.lookup("absent")
    stats: Any = mount.operations.stats()
    assert stats["requests"] == {"lookup": 4}
    assert sum(stats["microseconds"]["lookup"].values()) == 4
    assert stats["nodes"] == len(mount.tree.nodes)


@in_trio
async def test_process_that_closed_an_older_version_is_shown_its_number(mount: HandlerMount) -> None:
    """The kernel releases a file some time after close(2): vim, which reads before it writes, must not see that."""
    path = "sessions/root/session.json"
    shown = (await mount.lookup(path)).st_ino
    fh = await mount.open(path)
    for is_closed in (False, True):
        if is_closed:
            await mount.flush(fh)
        mount.store.append("root", [Message.user("a new version")])
        node = await mount.inode(path)
        number = (await mount.operations.getattr(node, caller(WRITER))).st_ino
        assert (number == shown) == is_closed
    await mount.release(fh)


@in_trio
async def test_lookup_answers_for_getattr_where_all_processes_see_the_same(mount: HandlerMount) -> None:
    """One request less for each open. A process that has an older version open is shown another number."""
    await mount.lookup(DOCUMENT)
    fh = await mount.open(DOCUMENT, pid=READER)
    mount.store.append("root", [Message.user("a new version")])
    assert (await mount.lookup(DOCUMENT)).attr_timeout == UNCACHED_S
    await mount.finish(fh)
    mount.store.append("root", [Message.user("another one")])
    attrs = await mount.lookup(DOCUMENT)
    assert mount.tree.nodes.get(attrs.st_ino).shown_inode is not None
    assert attrs.attr_timeout == WATCHED_S


@in_trio
async def test_number_is_not_cached_while_a_reader_is_about_to_open_an_older_version(mount: HandlerMount) -> None:
    """`tail -F` compares the number of what it has open with the one that stat(2) shows."""
    inode = await mount.inode(DOCUMENT, READER)
    mount.store.append("root", [Message.user("a second version")])
    with fails_with(errno.ESTALE):
        await mount.open_inode(inode, os.O_RDONLY, READER)
    second = await mount.inode(DOCUMENT, READER)  # pins that version
    mount.store.append("root", [Message.user("a third version")])
    third = await mount.lookup(DOCUMENT)
    assert third.attr_timeout == UNCACHED_S
    assert (await mount.operations.getattr(third.st_ino, caller(WRITER))).attr_timeout == UNCACHED_S
    fh = await mount.open_inode(second, os.O_RDONLY, READER)
    shown = (await mount.operations.getattr(third.st_ino, caller(READER))).st_ino
    assert shown != (await mount.operations.getattr(second, caller(READER))).st_ino
    await mount.finish(fh)


@in_trio
async def test_attributes_before_an_open_are_cached_only_if_it_truncates(mount: HandlerMount) -> None:
    """Else the version that the open finds may have another size."""
    for flags, seconds in ((os.O_WRONLY | os.O_TRUNC, BEFORE_OPEN_S), (os.O_RDWR, UNCACHED_S)):
        with fails_with(errno.ESTALE):
            await mount.open_once(DOCUMENT, flags)
        attrs = await mount.lookup(DOCUMENT)
        assert (attrs.entry_timeout, attrs.attr_timeout) == (UNCACHED_S, seconds)
        fh = await mount.open_inode(attrs.st_ino, flags)
        assert (await mount.operations.getattr(attrs.st_ino, caller(WRITER))).attr_timeout == UNCACHED_S
        await mount.finish(fh)


@in_trio
async def test_wrong_number_of_a_private_node_is_not_cached(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another build of pyfuse3 only getattr can show the number that vim has seen."""
    monkeypatch.setattr(attributes, "CAN_SHOW_NUMBERS", False)
    with fails_with(errno.ESTALE):
        await mount.open_once(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    assert (await mount.lookup(DOCUMENT)).attr_timeout == UNCACHED_S


# -- attributes changed while the change follower looks ----------------------------------------------


def looked_at_meanwhile(monkeypatch: pytest.MonkeyPatch, mount: HandlerMount, text: bytes | None = None) -> None:
    """The change follower looks at the document, or another program writes it, before setattr has answered."""
    change = Namespace.set_attributes
    path = mount.store.home / DOCUMENT

    def changing(self: Namespace, *arguments: Any, **keywords: Any) -> None:
        change(self, *arguments, **keywords)
        if text is not None:
            path.write_bytes(text)
        directory = next(node for node in mount.tree.nodes if node.path == "sessions/root")
        mount.tree.recheck(directory, "session.json")

    monkeypatch.setattr(Namespace, "set_attributes", changing)


@in_trio
async def test_own_chmod_is_not_taken_for_another_version(mount: HandlerMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor that is open would lose its name, and a later fchmod its effect."""
    inode = await mount.inode(DOCUMENT)
    looked_at_meanwhile(monkeypatch, mount)
    assert stat.S_IMODE((await mount.set(inode, st_mode=0o644)).st_mode) == 0o644
    assert await mount.inode(DOCUMENT) == inode


@in_trio
async def test_write_by_another_program_during_chmod_is_another_version(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    inode = await mount.inode(DOCUMENT)
    text = (mount.store.home / DOCUMENT).read_bytes().replace(b"Before", b"Second")
    looked_at_meanwhile(monkeypatch, mount, text)
    await mount.set(inode, st_mode=0o644)
    assert await mount.inode(DOCUMENT) != inode
    assert await mount.content(DOCUMENT) == text


async def number_after_opening_to_write(mount: HandlerMount, path: str) -> int:
    """What fstat(2) says right after open(2)."""
    writing = await mount.open(path, os.O_WRONLY)
    private = mount.files.handles.get(writing).node.inode
    number = (await mount.operations.getattr(private, caller(WRITER))).st_ino
    await mount.finish(writing)
    return number


@in_trio
async def test_process_that_still_counts_as_a_reader_writes_the_file_it_has_seen(mount: HandlerMount) -> None:
    """The kernel may send RELEASE after later requests: vim has closed the version that it copied as a backup."""
    path = "sessions/root/session.json"
    seen = (await mount.operations.getattr(await mount.inode(path), caller(WRITER))).st_ino
    reading = await mount.open(path)
    mount.store.append("root", [Message.user("a new version")])
    assert await number_after_opening_to_write(mount, path) == seen
    await mount.release(reading)


@in_trio
async def test_process_that_was_shown_the_number_of_a_new_version_writes_that_file(mount: HandlerMount) -> None:
    """What stat(2) says and what fstat(2) says after open(2) agree, also for a process like `tail -F`."""
    path = "sessions/root/session.json"
    before = (await mount.operations.getattr(await mount.inode(path), caller(WRITER))).st_ino
    reading = await mount.open(path)
    mount.store.append("root", [Message.user("a new version")])
    seen = (await mount.operations.getattr(await mount.inode(path), caller(WRITER))).st_ino
    assert seen != before
    assert await number_after_opening_to_write(mount, path) == seen
    await mount.release(reading)


@in_trio
async def test_writer_finds_the_number_it_has_seen_while_another_one_renames_the_document(mount: HandlerMount) -> None:
    """The kernel sends open(2) for the old node until it has the answer to the other vim's rename to `NAME~`."""
    path = "sessions/root/session.json"
    node = await mount.inode(path)
    seen = (await mount.operations.getattr(node, caller(WRITER))).st_ino
    await mount.rename(path, f"{path}~", pid=READER)
    with fails_with(errno.ESTALE):
        await mount.operations.open(node, os.O_WRONLY, caller(WRITER))
    assert await number_after_opening_to_write(mount, path) == seen


@in_trio
async def test_number_survives_that_the_kernel_forgets_a_version(mount: HandlerMount) -> None:
    """A writer's node takes the place of the version in the kernel, and vim has seen the number: E949."""
    path = "sessions/root/session.json"
    shown, directory = (await mount.lookup(path)).st_ino, await mount.inode("sessions/root")
    assert mount.tree.nodes.get(shown).lookups == 1
    await mount.operations.forget([(shown, 1)])
    assert mount.tree.nodes.find(shown) is None
    mount.store.append("root", [Message.user("a new version")])
    await mount.operations.lookup(directory, b"session.json", caller(WRITER))
    node = mount.tree.nodes.get(directory).children["session.json"].inode
    assert node != shown
    assert (await mount.operations.getattr(node, caller(WRITER))).st_ino == shown
