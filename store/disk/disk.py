"""What "durable" means here: the one door through which the store touches the disk.

Every path is relative to the home and is walked name by name without following symbolic links, so a
link planted in the home leads nowhere. A file is never changed in place: it is written whole under
`.grovefs/tmp/`, synced, and moved to its name. Each step that changes the disk is announced to `step`
first, by name, so that tests can stop or fail the process at every one of them.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from store import layout
from store.disk.file import DirEntry, File, NewFile, Stamp
from store.disk.file_io import iter_chunks, read_all, write_all
from store.disk.syscalls import TO_READ, birth_ns, exchange, open_beneath
from store.errors import Corrupt, InvalidName, Problem

Durability = Literal["full", "normal"]

DIR_MODE = 0o700
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Step = Callable[[str], None]


def no_step(name: str) -> None:
    """Outside tests a step is not remarkable."""


def unsynced_error(error: OSError, path: str) -> OSError:
    """What to say where a change could not be synced any more: it is there, for now."""
    text = f"{error.strerror}: the new version is in place but may not survive a loss of power"
    return OSError(error.errno, text, path)


class Disk:
    """The home directory, opened once. Safe to use from several threads."""

    home: Path
    durability: Durability
    step: Step

    def __init__(self, home: Path, durability: Durability = "full", step: Step = no_step) -> None:
        self.home = home
        self.durability = durability
        self.step = step
        self._fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.dir_mode = DIR_MODE
        with suppress(FileNotFoundError):  # "unless the home says otherwise"
            self.dir_mode = stat.S_IMODE(os.stat(layout.SESSIONS, dir_fd=self._fd).st_mode)
        self.file_mode = self.dir_mode & 0o666

    def close(self) -> None:
        os.close(self._fd)

    # -- looking -----------------------------------------------------------------------------------

    @contextmanager
    def open_dir(self, path: str) -> Iterator[int]:
        """A descriptor of the directory at `path`, reached without following a link, or going back up."""
        if ".." in path.split("/"):
            raise InvalidName(f"{path!r} leads out of where it begins")
        try:
            fd = open_beneath(self._fd, path or ".")
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise Corrupt(path, Problem("not a directory; links are not followed")) from None
            raise
        try:
            yield fd
        finally:
            os.close(fd)

    def read(self, path: str, limit: int | None = None) -> File | None:
        """The file at `path`, whole; None if there is none. What is not a plain file is Corrupt."""
        try:
            fd = self.open_to_read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ENXIO:  # a socket
                raise Corrupt(path, Problem("not a plain file")) from None
            if error.errno == errno.ENOTDIR:
                raise Corrupt(path, Problem("it lies in what is no directory; links are not followed")) from None
            raise OSError(error.errno, error.strerror, path) from error
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise Corrupt(path, Problem("not a plain file"))
            if limit is not None and info.st_size > limit:
                raise Corrupt(path, Problem(f"{info.st_size} bytes are over the limit of {limit}"))
            data = read_all(fd, info.st_size)
        finally:
            os.close(fd)
        stamp = Stamp.of(info)._replace(size=len(data))
        return File(data, stamp, stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)

    def iter_chunks(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of the file at `path`; the file is opened by the first step of the iteration."""
        fd = self.open_to_read(path)
        try:
            yield from iter_chunks(fd)
        finally:
            os.close(fd)

    def stat_file(self, path: str) -> File | None:
        """What a file at `path` is like, without reading it."""
        info = self.stat(path)
        if info is None or not stat.S_ISREG(info.st_mode):
            return None
        return File(b"", Stamp.of(info), stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)

    def stamp(self, path: str) -> Stamp | None:
        """The stamp of whatever lies at `path`; None if nothing does."""
        info = self.stat(path)
        return Stamp.of(info) if info is not None else None

    def stat(self, path: str) -> os.stat_result | None:
        directory, _, name = path.rpartition("/")
        if ".." in path and ".." in path.split("/"):
            raise InvalidName(f"{path!r} leads out of where it begins")
        # By hand what `opened` does: a mount asks for nothing more often.
        try:
            parent = open_beneath(self._fd, directory or ".")
            try:
                return os.stat(name, dir_fd=parent, follow_symlinks=False)
            finally:
                os.close(parent)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link on the way leads nowhere
                return None
            raise

    def birth_ns(self, path: str) -> int | None:
        """When the file at `path` was made; None where that is not known."""
        directory, _, name = path.rpartition("/")
        with self.open_dir(directory) as parent:
            return birth_ns(parent, name)

    def open_to_read(self, path: str) -> int:
        """A descriptor of the file at `path`, in one system call where the kernel knows it."""
        if ".." in path and ".." in path.split("/"):
            raise InvalidName(f"{path!r} leads out of where it begins")
        try:
            return open_beneath(self._fd, path, TO_READ)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Corrupt(path, Problem("not a plain file; links are not followed")) from None
            raise

    def entries(self, path: str) -> list[DirEntry]:
        """The entries of a directory, by name; none if it does not exist."""
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
        """The names in a directory, and what each is like; none if it does not exist."""
        found: list[tuple[str, os.stat_result]] = []
        with suppress(FileNotFoundError), self.open_dir(path) as fd:
            for name in os.listdir(fd):
                with suppress(FileNotFoundError):  # gone since
                    found.append((name, os.stat(name, dir_fd=fd, follow_symlinks=False)))
        return found

    def directories(self, path: str) -> list[str]:
        """The names of the real directories in a directory; links to one do not count."""
        return [entry.name for entry in self.entries(path) if entry.is_dir]

    # -- changing ----------------------------------------------------------------------------------

    def make_dirs(self, path: str) -> list[str]:
        """Create what is missing of a directory; returns what was created, outermost first."""
        made: list[str] = []
        with suppress(FileNotFoundError), self.open_dir(path):
            return made
        walked = ""
        try:
            for name in path.split("/"):
                parent, walked = walked, f"{walked}/{name}" if walked else name
                if self._make_dir(parent, name):
                    made.append(walked)
            with self.open_dir(path):  # the last name too must be a real directory
                return made
        except BaseException:
            self.remove_dirs(made)
            raise

    def _make_dir(self, parent: str, name: str) -> bool:
        """Not synced: the commit that needs it does that, once."""
        with self.open_dir(parent) as fd:
            try:
                self.step("make-dir")
                os.mkdir(name, self.dir_mode, dir_fd=fd)
            except FileExistsError:
                return False
        return True

    def remove_dirs(self, paths: Iterable[str]) -> None:
        """Take back directories made in vain, innermost last in `paths`; what is not empty stays."""
        for path in reversed(list(paths)):
            directory, _, name = path.rpartition("/")
            with suppress(OSError, Corrupt), self.open_dir(directory) as parent:
                os.rmdir(name, dir_fd=parent)

    def write_temp(self, parts: Iterable[bytes | memoryview], like: File | None = None) -> str:
        """Write one new file under tmp/ and sync it; returns its path."""
        return self.write_temps([NewFile("", parts, like)])[0]

    def write_temps(self, files: Sequence[NewFile]) -> list[str]:
        """Write new files under tmp/ and sync them; returns their paths. All of them, or none.

        None is synced before all are written: one commit of the filesystem's journal then serves them all.
        """
        made: list[str] = []
        fds: list[int] = []
        try:
            for file in files:
                self.step("write-temp")
                fd, path = self.open_temp()
                fds.append(fd)
                made.append(path)
                self._write_pieces(fd, file)
            for fd in fds:
                self.fsync(fd, "sync-temp")
        except BaseException:
            for path in made:
                with suppress(OSError):  # it is what failed first that counts; the next opening clears the rest away
                    self.drop_temp(path)
            raise
        finally:
            for fd in fds:
                os.close(fd)
        return made

    def _write_pieces(self, fd: int, file: NewFile) -> None:
        like = file.like
        mode = file.mode if file.mode is not None else like.mode if like else self.file_mode
        if mode != 0o600:  # as it was created
            os.fchmod(fd, mode)
        write_all(fd, file.parts)
        if like is not None and (like.uid, like.gid) != (os.geteuid(), os.getegid()):
            with suppress(PermissionError):  # only root can give files away
                os.fchown(fd, like.uid, like.gid)
        if file.mtime_ns is not None:
            os.utime(fd, ns=(file.mtime_ns, file.mtime_ns))

    def put(self, file: NewFile) -> None:
        """One file in its place, whole, outside of any commit. That its name lasts is for the caller to see to."""
        temp = self.write_temps([file])[0]
        try:
            self.move(temp, file.path)
        except BaseException:
            with suppress(OSError):  # as above
                self.remove(temp)
            raise

    def open_temp(self) -> tuple[int, str]:
        """A new file under tmp/: its descriptor and path. Gone at the next opening if forgotten."""
        path = self.temp_path()
        with self.open_dir(layout.TMP) as parent:
            return os.open(path.rpartition("/")[2], _CREATE, 0o600, dir_fd=parent), path

    def drop_temp(self, path: str) -> None:
        """What was made under tmp/ in vain. Not a step: nobody knows of it."""
        name = path.rpartition("/")[2]
        with suppress(FileNotFoundError), self.open_dir(layout.TMP) as parent:
            try:
                os.unlink(name, dir_fd=parent)
            except IsADirectoryError:
                shutil.rmtree(name, dir_fd=parent)

    def temp_path(self) -> str:
        return f"{layout.TMP}/{os.getpid()}-{uuid.uuid4().hex}"

    def move(self, source: str, target: str) -> None:
        """Rename within the home; the target's directory is reached without following links."""
        self.step("move")
        source_dir, _, source_name = source.rpartition("/")
        target_dir, _, target_name = target.rpartition("/")
        with self.open_dir(source_dir) as src, self.open_dir(target_dir) as dst:
            os.rename(source_name, target_name, src_dir_fd=src, dst_dir_fd=dst)

    def link(self, source: str, target: str) -> None:
        """A second name for a file; where the filesystem has no such thing, the only one."""
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
        """Sync the directories of a change that is made: an error says that it is."""
        try:
            self.sync_dirs(paths)
        except OSError as error:
            raise unsynced_error(error, paths[0]) from error

    def exchange(self, one: str, other: str) -> None:
        """Two names change places, in one step, and that lasts."""
        (a_dir, _, a_name), (b_dir, _, b_name) = one.rpartition("/"), other.rpartition("/")
        with self.open_dir(a_dir) as a, self.open_dir(b_dir) as b:
            self.step("exchange")
            exchange(a, a_name, b, b_name)
        self.sync_after_change([a_dir, b_dir])

    def sync_dirs(self, paths: Iterable[str]) -> None:
        for path in dict.fromkeys(paths):
            with self.open_dir(path) as fd:
                self.fsync(fd, "sync-dir")

    def remove(self, path: str) -> None:
        """Unlink a file; it may be gone already."""
        directory, _, name = path.rpartition("/")
        with suppress(FileNotFoundError), self.open_dir(directory) as fd:
            self.step("remove")
            os.unlink(name, dir_fd=fd)

    def remove_tree(self, path: str) -> None:
        """Remove a file or a directory with all it holds; links in it are removed, not followed."""
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
        """A trial rename from tmp/ to sessions/: a commit is nothing else. No backup shall see that we looked."""
        probe = self.write_temp([b""])
        before = os.stat(layout.SESSIONS, dir_fd=self._fd, follow_symlinks=False)
        name = f".grovefs-probe-{uuid.uuid4().hex}"
        target = f"{layout.SESSIONS}/{name}"
        try:
            self.move(probe, target)
        except OSError as error:
            self.remove(probe)
            raise OSError(
                error.errno,
                f"{error.strerror}: files cannot be moved from {layout.TMP} to {layout.SESSIONS}; "
                "both must lie on one filesystem",
                str(self.home),
            ) from error
        self.remove(target)
        times = (before.st_atime_ns, before.st_mtime_ns)
        os.utime(layout.SESSIONS, ns=times, dir_fd=self._fd, follow_symlinks=False)

    def fsync(self, fd: int, name: str) -> None:
        if self.durability == "full":
            self.step(name)
            os.fsync(fd)
