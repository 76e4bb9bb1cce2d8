"""Mount and unmount."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from io import RawIOBase
from pathlib import Path
from typing import Annotated, Literal

import typer

from fusefs.cli.app import Home, app
from fusefs.writers import LIMBO_S
from store import layout
from store.errors import StoreError

Durability = Literal["full", "normal"]
LOG = f"{layout.PRIVATE}/mount.log"


@app.command()
def mount(
    mountpoint: Annotated[Path, typer.Argument(help="An empty directory.")],
    home: Home,
    foreground: Annotated[
        bool, typer.Option("--foreground", "-f", help="Stay; do not go into the background.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nothing can be changed.")] = False,
    allow_other: Annotated[bool, typer.Option("--allow-other", help="Other users may look in too.")] = False,
    durability: Annotated[
        Durability, typer.Option(help="full: a save survives a power cut; normal: only a crash.")
    ] = "full",
    on_conflict: Annotated[
        Literal["reject", "overwrite"], typer.Option(help="What to do with a document older than the one it replaces.")
    ] = "reject",
    beside_bamboo: Annotated[
        bool, typer.Option("--beside-bamboo", help="Write though a Bamboo server is at work.")
    ] = False,
    limbo_seconds: Annotated[float, typer.Option(hidden=True, min=0.01)] = LIMBO_S,  # for tests
    log_file: Annotated[
        Path | None, typer.Option(help="Where the log goes; by default .grovefs/mount.log in the home.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Log every request.")] = False,
    profile: Annotated[
        Path | None, typer.Option(help="Write there, at the end, what the daemon's time went into; slows it down.")
    ] = None,
) -> None:
    """Show a home as a filesystem. Returns when it is ready, and goes on in the background."""
    from fusefs.mount import Options, check_place, serve

    options = Options(
        home.expanduser().absolute(),
        mountpoint.expanduser().absolute(),
        read_only=read_only,
        allow_other=allow_other,
        durability=durability,
        overwrite=on_conflict == "overwrite",
        beside_bamboo=beside_bamboo,
        limbo_s=limbo_seconds,
        debug=debug,
        profile=profile.expanduser().absolute() if profile else None,
    )
    check_place(options)
    if foreground:
        _log_to(log_file, debug=debug)
        serve(options, lambda: None)
        return

    def work(ready: Callable[[], None]) -> None:
        _log_to(log_file or options.home / LOG, debug=debug, delay=log_file is None)
        serve(options, ready)

    sys.exit(_in_background(work))


@app.command()
def umount(mountpoint: Annotated[Path, typer.Argument(help="Where it is mounted.")]) -> None:
    """End a mount."""
    from fusefs.mount import is_dead, unmount

    place = mountpoint.expanduser().absolute()
    unmount(place, lazily=is_dead(place))


def _log_to(path: Path | None, *, debug: bool, delay: bool = False) -> None:
    """`delay` opens the file with the first line: a home that is to be made does not exist yet."""
    handler = logging.FileHandler(path, delay=delay) if path else logging.StreamHandler()
    logging.basicConfig(
        handlers=[handler],
        level=logging.DEBUG if debug else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _in_background(work: Callable[[Callable[[], None]], None]) -> int:
    """Run `work` in a daemon; 0 once it says that it is ready, else what went wrong on stderr and 1."""
    reads, writes = os.pipe()
    if os.fork():
        os.close(writes)
        with os.fdopen(reads, "rb") as answers:
            answer = answers.read().decode(errors="replace")
        if answer == "ready":
            return 0
        print(f"grovefs: {answer or 'the mount ended before it was ready'}", file=sys.stderr)
        return 1
    os.setsid()
    os.close(reads)
    with os.fdopen(writes, "wb", buffering=0) as pipe:

        def ready() -> None:
            pipe.write(b"ready")
            pipe.close()
            _let_go_of_terminal()

        try:
            work(ready)
        except Exception as error:
            _report(error, pipe)
            os._exit(1)
    os._exit(0)


def _report(error: Exception, pipe: RawIOBase) -> None:
    """Who waits is told in one line. The log keeps what that would miss: a bug, or an end after the beginning."""
    is_refusal = isinstance(error, (StoreError, OSError))
    if not is_refusal or pipe.closed:
        logging.getLogger("grovefs.mount").error("the mount failed", exc_info=error)
    if not pipe.closed:
        text = str(error) if is_refusal else f"{type(error).__name__}: {error} (more is in the log)"
        pipe.write(" ".join(text.split()).encode())


def _let_go_of_terminal() -> None:
    os.chdir("/")  # the directory it was started in may be unmounted one day
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
