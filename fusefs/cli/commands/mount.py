"""Mount and unmount."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from collections.abc import Callable
from io import FileIO, RawIOBase, TextIOWrapper
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fusefs.cli.app import Home, Json, app, print_json
from fusefs.cli.completion import files
from fusefs.cli.terminal import echo
from fusefs.daemon import fuse_connection
from fusefs.tree.writers import LIMBO_S
from store import layout
from store.errors import NotFound, StoreError

if TYPE_CHECKING:
    from fusefs.daemon.mount import MountOptions

Durability = Literal["full", "normal"]
LOG = f"{layout.PRIVATE}/mount.log"


@app.command()
def mount(
    mountpoint: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="An empty directory; made if there is none.", autocompletion=files, parser=Path
        ),
    ],
    home: Home,
    foreground: Annotated[
        bool, typer.Option("--foreground", "-f", help="Stay; do not go into the background.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nothing can be changed.")] = False,
    allow_other: Annotated[
        bool,
        typer.Option(
            "--allow-other",
            help="Let other users in, as far as the modes of the home's files allow (0700 and 0600, unless you change "
            "them). Without it only you can look in, not even root. Who is not root needs user_allow_other in "
            "/etc/fuse.conf for this.",
        ),
    ] = False,
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
    kernel_options: Annotated[list[str] | None, typer.Option("--kernel-option", hidden=True)] = None,  # of mount(8)
    install_unit: Annotated[
        bool, typer.Option("--install-unit", help="Mount nothing now: write a systemd unit that mounts at each login.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --install-unit: replace a unit that was changed by hand.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a home as a filesystem. Returns when it is ready, and goes on in the background.

    DIR is made if it is not there, and stays when the mount has ended. DIR/README.md in the mount says what is where.
    `grovefs umount DIR` ends it, and so does SIGTERM; after a kill -9 the next mount clears the dead mountpoint.
    .grovefs/stats.json in the mount counts and times the requests, and
    GROVEFS_WITHOUT=loop,companion,timeouts,pages,listings turns off what makes it fast, to measure it or to doubt it.

    With --install-unit it is mounted at each login and unmounted at each
    logout, with the home and the options that are given along with it.

    With grovefs in /usr/local/bin, a line in /etc/fstab does it too:
    /home/ada/.grovefs /home/ada/grove fuse.grovefs setuid=ada,nofail 0 0

    Example: grovefs mount ~/grove
    """
    from fusefs.daemon.mount import MountOptions, make_mountpoint

    options = MountOptions(
        home.expanduser().absolute(),
        mountpoint.expanduser().absolute(),
        read_only=read_only,
        allow_other=allow_other,
        durability=durability,
        overwrite=on_conflict == "overwrite",
        beside_bamboo=beside_bamboo,
        hidden_s=limbo_seconds,
        debug=debug,
        profile=profile.expanduser().absolute() if profile else None,
        kernel_options=frozenset(kernel_options or ()),
    )
    with make_mountpoint(options):
        if install_unit:
            _install_unit(options, log_file, force=force)
            return
        code = _mount(options, log_file, foreground=foreground)
        if code:
            raise typer.Exit(code)
    if as_json and not foreground:
        print_json({"home": str(options.home), "mountpoint": str(options.mountpoint)})


def _mount(options: MountOptions, log_file: Path | None, *, foreground: bool) -> int:
    """Until it is unmounted, or in the background; 0 if all went well."""
    from fusefs.daemon.mount import check_place, serve

    check_place(options)
    if foreground:
        _log_to(log_file, debug=options.debug)
        serve(options, _tell_systemd)
        return 0

    def work(ready: Callable[[], None]) -> None:
        _log_to(log_file or options.home / LOG, debug=options.debug, is_ours=log_file is None)
        serve(options, ready)

    return _in_background(work)


def _install_unit(options: MountOptions, log_file: Path | None, *, force: bool) -> None:
    from fusefs.cli import systemd_unit
    from fusefs.daemon.mount import is_dead

    if not options.mountpoint.is_dir() and not is_dead(options.mountpoint):
        raise NotFound(f"{options.mountpoint} is not a directory")
    name = systemd_unit.unit_name(options.mountpoint)
    text = systemd_unit.render(present_command(), _as_flags(options, log_file), options.home, options.mountpoint)
    path, state = systemd_unit.install(name, text, force=force)
    quoted = shlex.quote(name)
    echo(f"{path}: {state}")
    echo("")
    echo("Mount it now, and at each login from now on:")
    echo(f"  systemctl --user daemon-reload && systemctl --user enable --now {quoted}")
    echo("At logout it is unmounted, because then your services end. To have it from boot on, and when you are")
    echo("logged out, let them linger:")
    echo("  loginctl enable-linger")
    echo("What it logs, and how to be rid of it:")
    echo(f"  journalctl --user -u {quoted}")
    echo(f"  systemctl --user disable --now {quoted} && rm {shlex.quote(str(path))}")


def _as_flags(options: MountOptions, log_file: Path | None) -> list[str]:
    """The options of `mount` that say the same."""
    flags = {
        "--read-only": options.read_only,
        "--allow-other": options.allow_other,
        "--beside-bamboo": options.beside_bamboo,
        "--debug": options.debug,
    }
    values = {
        "--durability": options.durability if options.durability != "full" else None,
        "--on-conflict": "overwrite" if options.overwrite else None,
        "--log-file": str(log_file.expanduser().absolute()) if log_file else None,
    }
    said = [flag for flag, is_set in flags.items() if is_set]
    return [*said, *(word for name, value in values.items() if value is not None for word in (name, value))]


def present_command() -> list[str]:
    """How this very program is started, from wherever: the script, or Python with our module."""
    script = which(sys.argv[0])
    if script is not None and Path(script).name == "grovefs":
        return [os.path.abspath(script)]
    return [sys.executable, "-m", "fusefs.cli"]


def _tell_systemd() -> None:
    """That all is ready, where a unit of type notify has started us; see sd_notify(3)."""
    address = os.environ.pop("NOTIFY_SOCKET", None)
    if address is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as door:
        door.connect("\0" + address[1:] if address.startswith("@") else address)
        door.send(b"READY=1")


@app.command()
def umount(
    mountpoint: Annotated[  # by a parser that asks the mount nothing: its daemon may never answer
        Path, typer.Argument(metavar="DIR", help="Where it is mounted.", autocompletion=files, parser=Path)
    ],
    as_json: Json = False,
) -> None:
    """End a mount, a dead one too. `grovefs status` lists them.

    Example: grovefs umount ~/grove
    """
    from fusefs.daemon.mount import is_dead, unmount, unmount_dead

    place = mountpoint.expanduser().absolute()
    if fuse_connection.find_number(place) is None:
        raise NotFound(f"there is no mount of GroveFS at {place}; `grovefs status` lists them")
    if is_dead(place):
        unmount_dead(place)
    else:
        unmount(place)
    if as_json:
        print_json({"mountpoint": str(place)})


class _OwnLog(logging.FileHandler):
    """In the home, for its owner alone; what is planted in its place is neither followed nor waited for."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return TextIOWrapper(FileIO(os.open(self.baseFilename, flags, 0o600), "a"), write_through=True)


def _log_to(path: Path | None, *, debug: bool, is_ours: bool = False) -> None:
    """In a home that is yet to be made, ours is opened with the first line."""
    kind = _OwnLog if is_ours else logging.FileHandler
    handler = kind(path, delay=is_ours and not path.parent.exists()) if path else logging.StreamHandler()
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
        echo(f"grovefs: {answer or 'the mount ended before it was ready'}", err=True)
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
