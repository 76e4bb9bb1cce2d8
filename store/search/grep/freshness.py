"""Freshness server: certifies to `grovefs grep` that index.db covers every file, so grep need not compare them.

A process with the home open for long watches every directory below sessions/ with inotify and compares all
files once. Grep connects to a socket in `.grovefs/`. The server answers after it has emptied the inotify
queue and listed every file in it as changed. The kernel queues an event before the call that caused it
returns, so no change made before the request is missed. A heartbeat could not guarantee that, and a process
that hangs or died does not answer.

A process that cannot watch everything does not serve: too few watches, an unreadable directory, or a
filesystem that other machines write to. One process serves a home; another takes over when it ends.
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
from store.search.grep.throttle import GiveWay
from store.search.grep.walk_order import filesystems_of

log = logging.getLogger("grovefs.store")

START_S = 1.0  # a store opened to save one session must not watch twenty thousand directories
RETRY_S = 5.0  # another process serves, or the database is busy
RETRY_FAILED_S = 60.0  # the directories cannot be watched
DRAIN_S = 2.0  # the inotify queue is finite, and saves do not wake the server; each answer drains it first
MERGE_S = 15.0

_CHANGES = flags.MODIFY | flags.CLOSE_WRITE | flags.ATTRIB | flags.CREATE | flags.DELETE
_MASK = _CHANGES | flags.MOVED_FROM | flags.MOVED_TO | flags.ONLYDIR | flags.DONT_FOLLOW | flags.EXCL_UNLINK
_LOST = flags.Q_OVERFLOW | flags.UNMOUNT | flags.MOVE_SELF | flags.DELETE_SELF
_APPEARED = flags.CREATE | flags.MOVED_TO | flags.ATTRIB
_LOCAL = {b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"f2fs", b"tmpfs", b"zfs", b"bcachefs", b"overlay", b"jfs"}
_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_MAX_SHARE = 0.5  # of the inotify watches of a user


class _Lost(Exception):
    """Events may have been lost: compare everything again."""


class FreshnessServer:
    """Two daemon threads: one answers grep, one indexes changed files when due."""

    def __init__(self, trigrams: TrigramIndex, start_s: float = START_S) -> None:
        self._trigrams = trigrams
        self._start_s = start_s
        self._stopping = threading.Event()
        self._wake_r, self._wake_w = os.pipe()
        self._threads = [
            threading.Thread(target=self._serve_forever, name="grovefs-freshness", daemon=True),
            threading.Thread(target=self._maintain_forever, name="grovefs-trigrams", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._trigrams.stop()
        os.close(self._wake_w)
        for thread in self._threads:
            thread.join()
        os.close(self._wake_r)

    # -- indexing changed files ----------------------------------------------------------------------------

    def _maintain_forever(self) -> None:
        self._stopping.wait(self._start_s)
        while not self._stopping.is_set():
            try:
                self._trigrams.merge_if_due()
            except Stopped:
                return
            except (StoreError, OSError, apsw.Error) as error:
                log.warning("cannot index changed files for grep; will retry: %s", error)
            self._stopping.wait(MERGE_S)

    # -- answering grep ------------------------------------------------------------------------------------

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
                log.info("freshness server not running; grep compares every file: %s", error)
                wait_s = RETRY_FAILED_S if isinstance(error, OSError) else RETRY_S

    def _serve(self) -> float:
        """Serve until events are lost or the store closes. Returns the delay before the next attempt."""
        with ExitStack() as stack:
            home = os.open(self._trigrams.disk.home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, home)
            lock = os.open(f"{known_files.FRESHNESS_SOCKET.decode()}.lock", _LOCK, 0o600, dir_fd=home)
            stack.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return RETRY_S
            watch = SessionsWatch(self._trigrams, self._stopping)
            stack.callback(watch.close)
            watch.watch_all()
            token = uuid.uuid4().hex
            self._trigrams.db.set_meta(grep_token=token)
            self._answer(self._listen(stack, home), watch, token)
        return 0.0

    def _listen(self, stack: ExitStack, home: int) -> socket.socket:
        server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        # By descriptor: a socket address holds 107 bytes, and the home's path may be longer.
        path = f"/proc/self/fd/{home}/{known_files.FRESHNESS_SOCKET.decode()}"
        with suppress(FileNotFoundError):
            os.unlink(path)
        server.bind(path)
        stack.callback(os.unlink, path)
        server.listen(64)
        server.setblocking(False)
        return server

    def _answer(self, server: socket.socket, watch: SessionsWatch, token: str) -> None:
        poll = select.poll()
        poll.register(server, select.POLLIN)
        poll.register(self._wake_r, select.POLLIN)
        while not self._stopping.is_set():
            poll.poll(DRAIN_S * 1000)
            clients = []
            with suppress(BlockingIOError):
                while True:
                    clients.append(server.accept()[0])
            with ExitStack() as stack:
                for client in clients:
                    stack.enter_context(client)
                watch.process_events()
                for client in clients:
                    with suppress(OSError):  # the client has gone
                        client.send(token.encode(), socket.MSG_DONTWAIT)


class SessionsWatch:
    """Watches every directory below sessions/ and records changed files in index.db."""

    def __init__(self, trigrams: TrigramIndex, stopping: threading.Event) -> None:
        self._trigrams = trigrams
        self._stopping = stopping
        self._give_way = GiveWay(stopping.wait)
        self._prefix = os.fsencode(trigrams.disk.home) + b"/"
        self._folders: dict[int, bytes] = {}
        self._inotify = inotify_simple.INotify(nonblocking=True)
        with open("/proc/sys/fs/inotify/max_user_watches") as limit:
            self._max_watches = int(int(limit.read()) * _MAX_SHARE)
        self._device = os.lstat(self._prefix + known_files.SESSIONS).st_dev

    def close(self) -> None:
        self._inotify.close()

    def watch_all(self) -> None:
        """Watch every directory, each before it is listed, and record the files that index.db does not cover."""
        kinds = filesystems_of(self._device)
        if not kinds or not kinds <= _LOCAL:
            raise OSError(
                errno.ENOTSUP, "other machines may write to this filesystem unnoticed", os.fsdecode(self._prefix)
            )
        self._trigrams.sweep(watch=self._watch)
        self.process_events()

    def _watch(self, folder: bytes) -> None:
        if self._stopping.is_set():
            raise Stopped
        if len(self._folders) % 16 == 0:
            time.sleep(0.0005)  # let other threads run
            self._give_way.pause()  # a mount may be serving its first walk
        if len(self._folders) >= self._max_watches:
            raise OSError(errno.ENOSPC, "more directories than half of max_user_watches", os.fsdecode(folder))
        mask = _MASK | flags.MOVE_SELF | flags.DELETE_SELF if folder == known_files.SESSIONS else _MASK
        try:
            if os.lstat(self._prefix + folder).st_dev != self._device:
                raise OSError(errno.EXDEV, "another filesystem is mounted here", os.fsdecode(folder))
            wd = self._inotify.add_watch(self._prefix + folder, mask)
        except (FileNotFoundError, NotADirectoryError):
            return
        self._folders[wd] = folder

    def process_events(self) -> None:
        """Record all files with queued events as changed. Raises _Lost if the queue overflowed."""
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
                        self._trigrams.sweep(path, watch=self._watch)
        unknown = [path for path in changed if self._is_unknown(path)]
        if unknown:
            self._trigrams.list_changed(unknown)

    def _is_unknown(self, path: bytes) -> bool:
        try:
            info = os.lstat(self._prefix + path)
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.ENOTDIR)
        row = self._trigrams.db.reader.execute("SELECT stamp FROM grep_files WHERE path = ?", (path,)).fetchone()
        return stat.S_ISREG(info.st_mode) and (row is None or row[0] != file_stamps.pack(info))
