"""The only table from StoreError to errno, and the wrapper around every handler.

EBADMSG means rejected content and nothing else, so EBADMSG from the disk becomes EIO. EXDEV makes
mv and rsync copy and delete instead. It is answered only for MustBeCopied, where that is right;
EXDEV from the disk becomes EIO.
"""

from __future__ import annotations

import errno
import functools
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pyfuse3
import trio

from fusefs.tree.nodes import RetryLookup
from store import errors

log = logging.getLogger("grovefs.mount")

ERRNOS: dict[type[errors.StoreError], int] = {
    errors.NotFound: errno.ENOENT,
    errors.AlreadyExists: errno.EEXIST,
    errors.NotEmpty: errno.ENOTEMPTY,
    errors.InvalidName: errno.EINVAL,
    errors.InvalidContent: errno.EBADMSG,  # "Bad message": rejected, nothing changed
    errors.TooLarge: errno.EFBIG,
    errors.Protected: errno.EPERM,
    errors.MustBeCopied: errno.EXDEV,  # mv(1) copies, as between filesystems
    errors.ReadOnly: errno.EROFS,
    errors.Conflict: errno.ESTALE,
    RetryLookup: errno.ESTALE,  # the kernel retries once
    errors.Busy: errno.EBUSY,
    errors.Unsure: errno.EIO,  # not ESTALE or EROFS: those say that nothing was changed
    errors.LocalOnly: errno.EOPNOTSUPP,
    errors.Closed: errno.EIO,
    errors.Corrupt: errno.EIO,
    errors.StoreError: errno.EIO,
}

_DISK_ERRNOS = {errno.EBADMSG: errno.EIO, errno.EXDEV: errno.EIO}

C = TypeVar("C", bound=type)
Handler = Callable[..., Awaitable[Any]]


def errno_of(error: BaseException) -> int:
    """The errno for an exception; EIO for unexpected ones."""
    if isinstance(error, errors.StoreError):
        return next(ERRNOS[kind] for kind in type(error).__mro__ if kind in ERRNOS)
    if isinstance(error, OSError) and error.errno:
        return _DISK_ERRNOS.get(error.errno, error.errno)
    return errno.EIO


def guarded(operations: C) -> C:
    """Class decorator that wraps every handler: any exception other than FUSEError would end the mount.

    The wrapper also counts and times requests in the attribute `timings`.
    """
    for name, handler in list(vars(operations).items()):
        if inspect.iscoroutinefunction(handler) and not name.startswith("_"):
            is_request = hasattr(pyfuse3.Operations, name)
            setattr(operations, name, _guard(name, handler, is_request=is_request))
    return operations


def spawn_guarded(what: str, work: Callable[[], Awaitable[object]]) -> None:
    """Run a background task. An unexpected exception is logged and does not end the mount."""

    async def guard() -> None:
        try:
            await work()
        except Exception:
            log.exception("%s failed", what)

    trio.lowlevel.spawn_system_task(guard)


def call_guarded(what: str, work: Callable[[], bool]) -> bool:
    """Call a function between requests. An unexpected exception is logged, does not end the mount, and means False."""
    try:
        return work()
    except Exception:
        log.exception("%s failed", what)
        return False


def _guard(name: str, handler: Handler, *, is_request: bool) -> Handler:
    @functools.wraps(handler)
    async def guard(operations: Any, *arguments: Any) -> Any:
        began_ns = time.perf_counter_ns()
        try:
            return await handler(operations, *arguments)
        except pyfuse3.FUSEError:
            raise
        except (errors.StoreError, OSError) as error:
            number = errno_of(error)
            log.debug("%s: %s: %s", name, errno.errorcode.get(number, number), error)
            raise pyfuse3.FUSEError(number) from error
        except Exception as error:  # a bug: EIO for the caller, a traceback in the log, the mount continues
            log.exception("%s failed", name)
            raise pyfuse3.FUSEError(errno.EIO) from error
        finally:
            if is_request:
                operations.timings.note(name, time.perf_counter_ns() - began_ns)

    return guard
