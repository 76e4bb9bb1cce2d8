"""Every StoreError maps to an errno, and only FUSEError leaves a handler."""

from __future__ import annotations

import errno
from typing import Any

import pyfuse3
import pytest
import trio

from fusefs.requests.errnos import ERRNOS, errno_of, guarded
from fusefs.requests.timings import Timings
from store import errors


def family(kind: type[errors.StoreError]) -> set[type[errors.StoreError]]:
    return {kind}.union(*(family(sub) for sub in kind.__subclasses__()))


def test_every_store_error_has_an_errno() -> None:
    """By its own row or that of its nearest ancestor. Only StoreError itself falls back to EIO."""
    for kind in family(errors.StoreError):
        nearest = next(ancestor for ancestor in kind.__mro__ if ancestor in ERRNOS)
        if kind.__module__ == "store.errors":
            assert nearest is not errors.StoreError or kind is errors.StoreError, kind


def test_errnos_that_tools_rely_on() -> None:
    problem = errors.Problem("broken")
    assert errno_of(errors.InvalidContent("f", problem)) == errno.EBADMSG
    assert errno_of(errors.TooLarge("f", problem)) == errno.EFBIG
    assert errno_of(errors.Conflict("newer")) == errno.ESTALE
    assert errno_of(errors.Protected("pinned")) == errno.EPERM
    assert errno_of(errors.BambooAtWork("busy")) == errno.EROFS
    assert errno_of(OSError(errno.ENOSPC, "full")) == errno.ENOSPC
    assert errno_of(OSError(errno.EBADMSG, "from the disk")) == errno.EIO
    assert errno_of(OSError(errno.EXDEV, "from the disk")) == errno.EIO
    assert errno_of(ZeroDivisionError()) == errno.EIO


@pytest.mark.warns
@pytest.mark.parametrize(
    ("error", "number"),
    [
        (errors.NotFound("x"), errno.ENOENT),
        (OSError(errno.EACCES, "x"), errno.EACCES),
        (KeyError("x"), errno.EIO),
        (pyfuse3.FUSEError(errno.ENOSYS), errno.ENOSYS),
    ],
)
def test_only_fuse_errors_leave_a_handler(error: BaseException, number: int) -> None:
    """Any other exception would end the mount."""

    @guarded
    class Handlers:
        timings = Timings()

        async def lookup(self) -> Any:
            raise error

    with pytest.raises(pyfuse3.FUSEError) as raised:
        trio.run(Handlers().lookup)
    assert raised.value.errno == number
