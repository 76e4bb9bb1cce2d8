"""Who has a home open for long vouches for what index.db knows of its files, so that `grovefs grep` need not look.

Every directory below sessions/ is watched with inotify, and then all files are compared once. The kernel queues an
event before the call that caused it returns; so whoever asks, at a socket in `.grovefs/`, is answered after the
queue has been emptied and every file in it listed as changed: nothing that was done before the question is missed.
That is more than a heartbeat could say, and a process that hangs or died does not answer at all. Who cannot watch
everything (too few watches, a directory it may not read, a filesystem that other machines write to) does not
vouch. One process of a home does it; the others take over when it ends.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import select
import socket
import stat
import threading
import time
import uuid
from contextlib import ExitStack, suppress

import apsw
import inotify_simple
from inotify_simple import flags

from store.errors import StoreError
from store.search.grep import file_stamps, known_files
from store.search.grep.maintenance import Stopped, TrigramIndex
from store.search.grep.walk_order import filesystems_of

log = logging.getLogger("grovefs.store")

START_S = 1.0  # who opens a store to save one session shall not watch twenty thousand
RETRY_S = 5.0
GIVEN_UP_S = 60.0
DRAIN_S = 1.0  # the queue is finite; saves do not wake us
TIDY_S = 15.0

_CHANGES = flags.MODIFY | flags.CLOSE_WRITE | flags.ATTRIB | flags.CREATE | flags.DELETE
_MASK = _CHANGES | flags.MOVED_FROM | flags.MOVED_TO | flags.ONLYDIR | flags.DONT_FOLLOW | flags.EXCL_UNLINK
_LOST = flags.Q_OVERFLOW | flags.UNMOUNT | flags.MOVE_SELF | flags.DELETE_SELF
_APPEARED = flags.CREATE | flags.MOVED_TO | flags.ATTRIB
_LOCAL = {b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"f2fs", b"tmpfs", b"zfs", b"bcachefs", b"overlay", b"jfs"}
_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_LARGEST_SHARE = 0.5  # of the watches a user may have


class _Lost(Exception):
    """Something may have been missed: look at everything again."""


class FreshnessServer:
    """Two daemon threads: one vouches, one reads what changed into segments when there is time."""

    def __init__(self, upkeep: TrigramIndex, start_s: float = START_S) -> None:
        self._upkeep = upkeep
        self._start_s = start_s
        self._stopping = threading.Event()
        self._wake_r, self._wake_w = os.pipe()
        self._threads = [
            threading.Thread(target=self._serve_forever, name="grovefs-voucher", daemon=True),
            threading.Thread(target=self._maintain_forever, name="grovefs-tidier", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._upkeep.stop()
        os.close(self._wake_w)
        for thread in self._threads:
            thread.join()
        os.close(self._wake_r)

    # -- reading what changed ------------------------------------------------------------------------------

    def _maintain_forever(self) -> None:
        self._stopping.wait(self._start_s)
        while not self._stopping.is_set():
            try:
                self._upkeep.merge_if_due()
            except Stopped:
                return
            except (StoreError, OSError, apsw.Error) as error:
                log.warning("changed files are not indexed for grep yet: %s", error)
            self._stopping.wait(TIDY_S)

    # -- vouching ------------------------------------------------------------------------------------------

    def _serve_forever(self) -> None:
        wait_s = self._start_s
        while not self._stopping.wait(wait_s):
            try:
                wait_s = self._serve()
            except _Lost:
                wait_s = 0.0
            except Stopped:
                return
            except (StoreError, OSError, apsw.Error) as error:
                log.info("grep has to look at every file: %s", error)
                wait_s = GIVEN_UP_S if isinstance(error, OSError) else RETRY_S

    def _serve(self) -> float:
        """Vouch until something is lost, or the end; returns when to try again."""
        with ExitStack() as stack:
            home = os.open(self._upkeep.disk.home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, home)
            lock = os.open(f"{known_files.VOUCHER.decode()}.lock", _LOCK, 0o600, dir_fd=home)
            stack.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return RETRY_S
            watch = SessionsWatch(self._upkeep, self._stopping)
            stack.callback(watch.close)
            watch.watch_all()
            token = uuid.uuid4().hex
            self._upkeep.db.set_meta(grep_token=token)
            self._answer(self._listen(stack, home), watch, token)
        return 0.0

    def _listen(self, stack: ExitStack, home: int) -> socket.socket:
        server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        path = (
            f"/proc/self/fd/{home}/{known_files.VOUCHER.decode()}"  # a socket's name may have 107 bytes, a home's more
        )
        with suppress(FileNotFoundError):
            os.unlink(path)
        server.bind(path)
        stack.callback(os.unlink, path)
        server.listen(64)
        server.setblocking(False)
        return server

    def _answer(self, server: socket.socket, watch: SessionsWatch, token: str) -> None:
        waiting = select.poll()
        waiting.register(server, select.POLLIN)
        waiting.register(self._wake_r, select.POLLIN)
        while not self._stopping.is_set():
            waiting.poll(DRAIN_S * 1000)
            askers = []
            with suppress(BlockingIOError):
                while True:
                    askers.append(server.accept()[0])
            with ExitStack() as stack:
                for asker in askers:
                    stack.enter_context(asker)
                watch.process_events()
                for asker in askers:
                    with suppress(OSError):  # it did not wait
                        asker.send(token.encode(), socket.MSG_DONTWAIT)


class SessionsWatch:
    """A watch on every directory below sessions/, and the list of what changed brought up to date from it."""

    def __init__(self, upkeep: TrigramIndex, stopping: threading.Event) -> None:
        self._upkeep = upkeep
        self._stopping = stopping
        self._prefix = os.fsencode(upkeep.disk.home) + b"/"
        self._folders: dict[int, bytes] = {}
        self._inotify = inotify_simple.INotify(nonblocking=True)
        with open("/proc/sys/fs/inotify/max_user_watches") as limit:
            self._most = int(int(limit.read()) * _LARGEST_SHARE)
        self._device = os.lstat(self._prefix + known_files.SESSIONS).st_dev

    def close(self) -> None:
        self._inotify.close()

    def watch_all(self) -> None:
        """Watch everything, each directory before it is listed, and list what is not known as it is."""
        kinds = filesystems_of(self._device)
        if not kinds or not kinds <= _LOCAL:
            raise OSError(errno.ENOTSUP, "others may write to this filesystem unseen", os.fsdecode(self._prefix))
        self._upkeep.sweep(watch=self._watch)
        self.process_events()

    def _watch(self, folder: bytes) -> None:
        if self._stopping.is_set():
            raise Stopped
        if len(self._folders) % 16 == 0:
            time.sleep(0.0005)  # others wait for the same interpreter
        if len(self._folders) >= self._most:
            raise OSError(errno.ENOSPC, "more directories than half the watches a user may have", os.fsdecode(folder))
        mask = _MASK | flags.MOVE_SELF | flags.DELETE_SELF if folder == known_files.SESSIONS else _MASK
        try:
            if os.lstat(self._prefix + folder).st_dev != self._device:
                raise OSError(errno.EXDEV, "another filesystem is mounted there", os.fsdecode(folder))
            number = self._inotify.add_watch(self._prefix + folder, mask)
        except (FileNotFoundError, NotADirectoryError):
            return
        self._folders[number] = folder

    def process_events(self) -> None:
        """List all that the kernel knows to have changed. Raises _Lost if it does not know all."""
        changed: set[bytes] = set()
        while events := self._inotify.read(timeout=0):
            for event in events:
                if event.mask & _LOST:
                    raise _Lost
                folder = self._folders.get(event.wd)
                if event.mask & flags.IGNORED:
                    self._folders.pop(event.wd, None)
                elif folder is not None and event.name:
                    path = folder + b"/" + os.fsencode(event.name)
                    if not event.mask & flags.ISDIR:
                        changed.add(path)
                    elif event.mask & _APPEARED:
                        self._upkeep.sweep(path, watch=self._watch)
        unknown = [path for path in changed if self._is_unknown(path)]
        if unknown:
            self._upkeep.list_changed(unknown)

    def _is_unknown(self, path: bytes) -> bool:
        try:
            info = os.lstat(self._prefix + path)
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.ENOTDIR)
        row = self._upkeep.db.reader.execute("SELECT stamp FROM grep_files WHERE path = ?", (path,)).fetchone()
        return stat.S_ISREG(info.st_mode) and (row is None or row[0] != file_stamps.pack(info))
