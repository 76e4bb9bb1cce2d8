"""Access to the home directory for all of the store: reads, durable writes, renames and syncs.

Every path is relative to the home and is opened without following symbolic links, so a link in the
home cannot lead outside it. A file is never changed in place: it is written to `.grovefs/tmp/`,
synced, and renamed to its path. `step` is called with the name of each change before it happens;
tests use it to stop or fail the process at every step.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Literal

from store import layout
from store.disk.file import DirEntry, File, NewFile, Stamp, Temp, storable_mode
from store.disk.file_io import iter_chunks, read_all, write_all
from store.disk.syscalls import TO_READ, birth_ns, clone_file, exchange, open_beneath, syncfs
from store.errors import Busy, Closed, Corrupt, InvalidName, Problem

Durability = Literal["full", "normal"]

DIR_MODE = 0o700
_CANNOT_EXCHANGE = frozenset({errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})  # or nothing is there
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Step = Callable[[str], None]

# Not a descriptor. One that is closed must not be used: its number may belong to another file.
_CLOSED = -1


def no_step(name: str) -> None:
    """The default `step`: do nothing."""


def unsynced_error(error: OSError, path: str) -> OSError:
    """The error for a change that was made but could not be synced."""
    text = f"{error.strerror}: the new version is in place but may be lost in a power failure"
    return OSError(error.errno, text, path)


class ChangedMeanwhile(Busy):
    """A file whose beginning was to be kept is not the version that was read."""


class Disk:
    """An open home directory. Thread-safe."""

    home: Path
    durability: Durability
    step: Step

    def __init__(self, home: Path, durability: Durability = "full", step: Step = no_step) -> None:
        self.home = home
        self.durability = durability
        self.step = step
        self._fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._local = threading.local()  # `dirs`: descriptors by path, while holding_dirs is active
        self.dir_mode = DIR_MODE
        with suppress(FileNotFoundError):  # a new home: sessions/ does not exist yet
            self.dir_mode = stat.S_IMODE(os.stat(layout.SESSIONS, dir_fd=self._fd).st_mode)
        self.file_mode = self.dir_mode & 0o666

    def close(self) -> None:
        fd, self._fd = self._fd, _CLOSED
        if fd != _CLOSED:
            os.close(fd)

    def _check_open(self) -> None:
        """Raise Closed. Called when a system call has failed: with _CLOSED each of them does."""
        if self._fd == _CLOSED:
            raise Closed(f"the store of {self.home} is closed")

    # -- reading -----------------------------------------------------------------------------------

    @contextmanager
    def open_dir(self, path: str) -> Iterator[int]:
        """Open the directory at `path` without following symbolic links; `..` is rejected."""
        held: dict[str, int] | None = getattr(self._local, "dirs", None)
        if held is not None and path in held:
            yield held[path]
            return
        if ".." in path.split("/"):
            raise InvalidName(f"{path!r}: '..' is not allowed in a path")
        try:
            fd = open_beneath(self._fd, path or ".")
        except OSError as error:
            self._check_open()
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise Corrupt(path, Problem("not a directory; links are not followed")) from None
            raise
        if held is not None:
            held[path] = fd  # closed by holding_dirs
            yield fd
            return
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def holding_dirs(self) -> Iterator[None]:
        """Open each directory only once in this block, in which none may be renamed or removed."""
        if getattr(self._local, "dirs", None) is not None:  # nested
            yield
            return
        held: dict[str, int] = {}
        self._local.dirs = held
        try:
            yield
        finally:
            self._local.dirs = None
            for fd in held.values():
                os.close(fd)

    def read(self, path: str, limit: int | None = None, *, start: int = 0) -> File | None:
        """Read a file, from `start` on; None if it does not exist.

        Raises Corrupt if it is not a regular file.
        """
        try:
            fd = self.open_to_read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ENOTDIR:
                raise Corrupt(path, Problem("its parent is not a directory; links are not followed")) from None
            raise OSError(error.errno, error.strerror, path) from error
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise Corrupt(path, Problem("not a regular file"))
            if limit is not None and info.st_size > limit:
                raise Corrupt(path, Problem(f"{info.st_size} bytes are over the limit of {limit}"))
            os.lseek(fd, start, os.SEEK_SET)
            data = read_all(fd, max(0, info.st_size - start))
        finally:
            os.close(fd)
        stamp = Stamp.of(info)._replace(size=start + len(data))
        return File(data, stamp, stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid, start)

    def read_head(self, path: str, size: int) -> bytes:
        """The first bytes of a file."""
        fd = self.open_to_read(path)
        try:
            return os.pread(fd, size, 0)
        finally:
            os.close(fd)

    def iter_chunks(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file, which is opened when the iteration starts. Corrupt if it is not a regular file."""
        fd = self.open_to_read(path)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Corrupt(path, Problem("not a regular file; links are not followed"))
            yield from iter_chunks(fd)
        finally:
            os.close(fd)

    def stat_file(self, path: str) -> File | None:
        """The stamp, mode and owner of a regular file, with empty `data`; None if there is none."""
        info = self.stat(path)
        if info is None or not stat.S_ISREG(info.st_mode):
            return None
        return File(b"", Stamp.of(info), stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)

    def stamp(self, path: str) -> Stamp | None:
        """The stamp of a file of any type; None if it does not exist."""
        info = self.stat(path)
        return Stamp.of(info) if info is not None else None

    def stat(self, path: str) -> os.stat_result | None:
        """lstat; None if the file, or a directory on the way, does not exist."""
        directory, _, name = path.rpartition("/")
        if ".." in path and ".." in path.split("/"):
            raise InvalidName(f"{path!r}: '..' is not allowed in a path")
        held: dict[str, int] | None = getattr(self._local, "dirs", None)
        if held is not None and directory in held:
            try:
                return os.stat(name, dir_fd=held[directory], follow_symlinks=False)
            except FileNotFoundError:
                return None
        # Inlines open_dir: a mount calls this more often than anything else.
        try:
            if not directory:
                return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            parent = open_beneath(self._fd, directory)
            try:
                return os.stat(name, dir_fd=parent, follow_symlinks=False)
            finally:
                os.close(parent)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._check_open()
            if error.errno == errno.ELOOP:  # a symbolic link on the way: not followed
                return None
            raise

    def birth_ns(self, path: str) -> int | None:
        """Creation time of a file; None if the filesystem does not record it."""
        directory, _, name = path.rpartition("/")
        with self.open_dir(directory) as parent:
            return birth_ns(parent, name)

    def open_to_read(self, path: str) -> int:
        """Open a file for reading, with one system call where openat2 is available."""
        if ".." in path and ".." in path.split("/"):
            raise InvalidName(f"{path!r}: '..' is not allowed in a path")
        try:
            return open_beneath(self._fd, path, TO_READ)
        except OSError as error:
            self._check_open()
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a symbolic link, a socket
                raise Corrupt(path, Problem("not a regular file; links are not followed")) from None
            raise

    def is_there(self, path: str) -> bool:
        """Whether a path exists, as far as one system call can tell: for reading only.

        False after any error, and links on the way are followed.
        """
        return os.access(path, os.F_OK, dir_fd=self._fd, follow_symlinks=False)

    def entries(self, path: str) -> list[DirEntry]:
        """The entries of a directory, sorted by name; [] if it does not exist."""
        try:
            with self.open_dir(path) as fd, os.scandir(fd) as found:
                entries = [
                    DirEntry(e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False), e.is_symlink())
                    for e in found
                ]
        except FileNotFoundError:
            return []
        return sorted(entries)

    def scan(self, path: str) -> list[tuple[str, os.stat_result]]:
        """The names in a directory with their lstat results; [] if it does not exist."""
        found: list[tuple[str, os.stat_result]] = []
        try:
            with self.open_dir(path) as fd:
                for name in os.listdir(fd):
                    try:
                        found.append((name, os.stat(name, dir_fd=fd, follow_symlinks=False)))
                    except FileNotFoundError:
                        continue  # deleted meanwhile
        except FileNotFoundError:
            return []
        return found

    def directories(self, path: str) -> list[str]:
        """The names of the subdirectories, without symbolic links."""
        return [entry.name for entry in self.entries(path) if entry.is_dir]

    # -- writing ----------------------------------------------------------------------------------

    def make_dirs(self, path: str) -> list[str]:
        """Create a directory and its missing parents.

        Returns the created paths, outermost first.
        """
        made: list[str] = []
        with suppress(FileNotFoundError), self.open_dir(path):
            return made
        walked = ""
        try:
            for name in path.split("/"):
                parent, walked = walked, f"{walked}/{name}" if walked else name
                if self._make_dir(parent, name):
                    made.append(walked)
            with self.open_dir(path):  # fails if the last component is not a directory
                return made
        except BaseException:
            self.remove_dirs(made)
            raise

    def _make_dir(self, parent: str, name: str) -> bool:
        """Does not sync: the commit that needs the directory syncs once."""
        with self.open_dir(parent) as fd:
            try:
                self.step("make-dir")
                os.mkdir(name, self.dir_mode, dir_fd=fd)
            except FileExistsError:
                return False
        return True

    def remove_dirs(self, paths: Iterable[str]) -> None:
        """Remove empty directories, the last of `paths` first; others are left in place."""
        for path in reversed(list(paths)):
            directory, _, name = path.rpartition("/")
            with suppress(OSError, Corrupt), self.open_dir(directory) as parent:
                os.rmdir(name, dir_fd=parent)

    def write_temp(self, parts: Iterable[bytes | memoryview], like: File | None = None) -> str:
        """Write and sync one new file under tmp/; returns its path."""
        return self.write_temps([NewFile("", parts, like)])[0]

    def write_temps(self, files: Sequence[NewFile], *, sync: bool = True) -> list[str]:
        """Write and sync new files under tmp/, all of them or none; returns their paths.

        With `sync` False the caller calls `sync_temps` before it renames them.

        Finished temporary files are synced only: a large attachment is written once. No file is
        synced before all are written, so that one commit of the filesystem's journal serves them
        all. On failure the caller's own temporary files stay: it may try again.
        """
        made: list[str] = []
        paths: list[str] = []
        fds: list[int] = []
        try:
            for file in files:
                if isinstance(file.content, Temp):
                    fd, path = os.dup(file.content.fd), file.content.path
                else:
                    self.step("write-temp")
                    fd, path = self.open_temp()
                    made.append(path)
                fds.append(fd)
                paths.append(path)
                self._fill_temp(fd, file)
            for fd in fds if sync else ():
                self.fsync(fd, "sync-temp")
        except BaseException:
            for path in made:
                with suppress(OSError):  # report the first error; opening the home clears tmp/
                    self.drop_temp(path)
            raise
        finally:
            for fd in fds:
                os.close(fd)
        return paths

    def sync_temps(self, paths: Sequence[str]) -> None:
        """Sync files that `write_temps` has written."""
        for path in paths:
            fd = self.open_to_read(path)
            try:
                self.fsync(fd, "sync-temp")
            finally:
                os.close(fd)

    def _fill_temp(self, fd: int, file: NewFile) -> None:
        like = file.like
        mode = file.mode if file.mode is not None else like.mode if like else self.file_mode
        if mode != 0o600 or isinstance(file.content, Temp):  # open_temp creates with mode 0600
            os.fchmod(fd, storable_mode(mode))
        if not isinstance(file.content, Temp):
            if file.kept_bytes:
                self._keep_head(fd, file)
            write_all(fd, file.content)
        elif file.mtime_ns is None:
            os.utime(fd)  # the time of the commit, not of the last write before it
        owner = file.owner or ((like.uid, like.gid) if like is not None else None)
        if owner is not None and owner != (os.geteuid(), os.getegid()):
            with suppress(PermissionError):  # only root can change the owner
                os.fchown(fd, *owner)
        if file.mtime_ns is not None:
            os.utime(fd, ns=(file.mtime_ns, file.mtime_ns))

    def _keep_head(self, fd: int, file: NewFile) -> None:
        """Put the kept beginning of a file in place, and continue after it."""
        source = self.open_to_read(file.path)
        try:
            if not clone_file(source, fd):
                write_all(fd, iter_chunks(source, file.kept_bytes))
            if file.like is None or Stamp.of(os.fstat(source)) != file.like.stamp:
                raise ChangedMeanwhile(f"{file.path} was changed by another program; nothing was changed, try again")
        finally:
            os.close(source)
        os.lseek(fd, file.kept_bytes, os.SEEK_SET)

    @cached_property
    def can_share_blocks(self) -> bool:
        """Whether files of this filesystem can share blocks, found out by trying."""
        temps = [self.open_temp(), self.open_temp()]
        try:
            return clone_file(temps[0].fd, temps[1].fd)
        except OSError:  # whatever it is, sharing does not work
            return False
        finally:
            for temp in temps:
                os.close(temp.fd)
                self.drop_temp(temp.path)

    def put(self, file: NewFile) -> None:
        """Write one file atomically, outside of any commit.

        The caller syncs the directory if needed.
        """
        temp = self.write_temps([file])[0]
        try:
            self.move(temp, file.path)
        except BaseException:
            with suppress(OSError):  # report the first error
                self.remove(temp)
            raise

    @contextmanager
    def creating(self, path: str, mode: int) -> Iterator[None]:
        """Create an empty file, not synced. If the block fails, it is removed. Raises FileExistsError."""
        directory, _, name = path.rpartition("/")
        with self.open_dir(directory) as parent:
            self.step("create")
            fd = os.open(name, _CREATE, 0o600, dir_fd=parent)
            try:
                os.fchmod(fd, storable_mode(mode))  # not as an argument of open: the umask would count
                yield
            except BaseException:
                os.unlink(name, dir_fd=parent)
                raise
            finally:
                os.close(fd)

    def sync_created(self, path: str) -> None:
        """Sync a file and its name."""
        directory, _, name = path.rpartition("/")
        with self.open_dir(directory) as parent:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
            try:
                self.fsync(fd, "sync-file")
            finally:
                os.close(fd)
            self.fsync(parent, "sync-dir")

    def require_writable(self) -> None:
        """Raise OSError if the disk has become read-only.

        Opening a file for writing shows it. statvfs(3) and access(2) do not, if ext4 stopped writing after an error.
        """
        directory, _, name = layout.SESSION_LOCKS.rpartition("/")
        with suppress(FileNotFoundError), self.open_dir(directory) as parent:
            os.close(os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent))

    def open_temp(self) -> Temp:
        """Create a file under tmp/. If it is forgotten, the next opening of the home removes it."""
        path = self.temp_path()
        with self.open_dir(layout.TMP) as parent:
            return Temp(os.open(path.rpartition("/")[2], _CREATE, 0o600, dir_fd=parent), path)

    def drop_temp(self, path: str) -> None:
        """Delete an unused file or directory under tmp/. Not a step: nothing refers to it."""
        name = path.rpartition("/")[2]
        with suppress(FileNotFoundError), self.open_dir(layout.TMP) as parent:
            try:
                os.unlink(name, dir_fd=parent)
            except IsADirectoryError:
                shutil.rmtree(name, dir_fd=parent)

    def temp_path(self) -> str:
        return f"{layout.TMP}/{os.getpid()}-{uuid.uuid4().hex}"

    def move(self, source: str, target: str) -> None:
        """Rename within the home without following symbolic links."""
        self.step("move")
        source_dir, _, source_name = source.rpartition("/")
        target_dir, _, target_name = target.rpartition("/")
        with self.open_dir(source_dir) as src, self.open_dir(target_dir) as dst:
            os.rename(source_name, target_name, src_dir_fd=src, dst_dir_fd=dst)

    def link(self, source: str, target: str) -> None:
        """Create a hard link; rename instead where the filesystem does not support hard links."""
        (source_dir, _, source_name), (target_dir, _, target_name) = source.rpartition("/"), target.rpartition("/")
        self.step("link")
        with self.open_dir(source_dir) as src, self.open_dir(target_dir) as dst:
            try:
                os.link(source_name, target_name, src_dir_fd=src, dst_dir_fd=dst, follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                    raise
                os.rename(source_name, target_name, src_dir_fd=src, dst_dir_fd=dst)

    def sync_after_change(self, paths: Sequence[str]) -> None:
        """Sync directories after a change; an error says that the change has been made."""
        try:
            self.sync_dirs(paths)
        except OSError as error:
            raise unsynced_error(error, paths[0]) from error

    def exchange(self, one: str, other: str) -> None:
        """Exchange two names atomically and sync their directories."""
        (a_dir, _, a_name), (b_dir, _, b_name) = one.rpartition("/"), other.rpartition("/")
        with self.open_dir(a_dir) as a, self.open_dir(b_dir) as b:
            self.step("exchange")
            exchange(a, a_name, b, b_name)
        self.sync_after_change([a_dir, b_dir])

    def swap_in(self, temp: str, target: str) -> bool:
        """Put a temporary file in place. True if `temp` is now the name of what it replaced, False if that is gone.

        Nothing can be lost between looking at the target and replacing it. The new file is in place with its last
        ctime: a reader that opens it at once gets the stamp that the history records. So it has no second name, and
        recovery has to find out by its content which of the two files is at `temp`.
        """
        (directory, _, name), (temp_dir, _, temp_name) = target.rpartition("/"), temp.rpartition("/")
        try:
            with self.open_dir(temp_dir) as source, self.open_dir(directory) as parent:
                self.step("move")
                exchange(source, temp_name, parent, name)
        except OSError as error:
            if error.errno not in _CANNOT_EXCHANGE:
                raise
            self.move(temp, target)
            return False
        return True

    def sync_dirs(self, paths: Iterable[str]) -> None:
        for path in dict.fromkeys(paths):
            with self.open_dir(path) as fd:
                self.fsync(fd, "sync-dir")

    def remove(self, path: str) -> None:
        """Unlink a file, if it exists."""
        directory, _, name = path.rpartition("/")
        with suppress(FileNotFoundError), self.open_dir(directory) as fd:
            self.step("remove")
            os.unlink(name, dir_fd=fd)

    def remove_tree(self, path: str) -> None:
        """Delete a file, or a directory with its content.

        Symbolic links are deleted, not followed.
        """
        info = self.stat(path)
        if info is None:
            return
        if stat.S_ISDIR(info.st_mode):
            directory, _, name = path.rpartition("/")
            with self.open_dir(directory) as parent:
                self.step("remove-tree")
                shutil.rmtree(name, dir_fd=parent)
        else:
            self.remove(path)

    def check_rename_works(self) -> None:
        """Rename a probe file from tmp/ to sessions/, as every commit does; OSError if that fails.

        It is not synced. The times of sessions/ are reset: the probe must not look like a change to a backup tool.
        The probe always has the same name, so the next opening removes one that a killed process left.
        """
        fd, probe = self.open_temp()
        os.close(fd)
        before = os.stat(layout.SESSIONS, dir_fd=self._fd, follow_symlinks=False)
        target = f"{layout.SESSIONS}/{layout.PROBE}"
        try:
            self.move(probe, target)
        except OSError as error:
            self.remove(probe)
            raise OSError(
                error.errno,
                f"{error.strerror}: files cannot be moved from {layout.TMP} to {layout.SESSIONS}; "
                "both must be on one filesystem",
                str(self.home),
            ) from error
        self.remove(target)
        times = (before.st_atime_ns, before.st_mtime_ns)
        os.utime(layout.SESSIONS, ns=times, dir_fd=self._fd, follow_symlinks=False)

    @contextmanager
    def synced_once(self) -> Iterator[None]:
        """Sync nothing inside, and the whole filesystem at the end: for many new files, while nobody else writes.

        After a power failure inside, what was written may be missing or empty.
        """
        durability, self.durability = self.durability, "normal"
        try:
            yield
        finally:
            self.durability = durability
        if durability == "full":
            self.step("sync-all")
            with self.open_dir("") as fd:
                syncfs(fd)

    def fsync(self, fd: int, name: str) -> None:
        if self.durability == "full":
            self.step(name)
            os.fsync(fd)
