"""Run functions in a forked process, which may hang or be killed without affecting the caller."""

from __future__ import annotations

import os
import select
import signal
import traceback
from collections.abc import Callable

PATIENCE_S = 60.0  # on a busy machine; the work itself takes milliseconds


def in_child(work: Callable[[], object], rescue: Callable[[], None] | None = None) -> OSError | None:
    """Run `work` in a child; returns its OSError, if any. Any other exception, or a hang, fails here.

    A process that hangs in the kernel cannot be killed: `rescue` is called first, to end what it waits for.
    """
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        _work(work, writes)
    os.close(writes)
    try:
        with os.fdopen(reads, "rb") as pipe:
            if rescue is not None and not select.select([pipe], [], [], PATIENCE_S / 2)[0]:
                rescue()
            if not select.select([pipe], [], [], PATIENCE_S)[0]:
                raise AssertionError(f"the child hangs: {where(pid)}")
            said = pipe.read().decode()
    finally:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if not said:
        raise AssertionError(f"the child ended without a result: status {status}")
    if said.startswith("errno "):
        _, number, text = said.split(" ", 2)
        return OSError(int(number), text)
    assert said == "well", said
    return None


def _work(work: Callable[[], object], writes: int) -> None:
    said = "well"
    try:
        work()
    except OSError as error:
        said = f"errno {error.errno or 0} {error}"
    except BaseException:
        said = traceback.format_exc()
    finally:
        os.write(writes, said.encode()[:60_000])  # fits into a pipe
        os._exit(0)


def where(pid: int) -> str:
    """Where a process waits, according to /proc."""
    try:
        with open(f"/proc/{pid}/wchan") as file:
            return file.read() or "running"
    except OSError as error:
        return str(error)
