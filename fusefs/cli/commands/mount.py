"""Mount a home as a filesystem: mount, umount."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fusefs.cli.app import Home, Json, app, print_json
from fusefs.cli.completion import files
from fusefs.cli.terminal import echo
from fusefs.daemon import fuse_connection
from fusefs.tree.hidden_names import HIDDEN_S
from store import layout
from store.errors import NotFound

if TYPE_CHECKING:
    from fusefs.daemon.mountpoint import MountOptions

Durability = Literal["full", "normal"]
LOG = f"{layout.PRIVATE}/mount.log"
FOLLOW_LOG = f"{layout.PRIVATE}/follow.log"  # problems of imports with --follow
FOLLOWER_END_S = 20  # for the commit it is making
DAEMON_END_S = 30.0  # the same, and for closing the home


@app.command()
def mount(
    mountpoint: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="An empty directory; created if missing.", autocompletion=files, parser=Path
        ),
    ],
    home: Home,
    foreground: Annotated[bool, typer.Option("--foreground", "-f", help="Stay in the foreground.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Mount read-only.")] = False,
    allow_other: Annotated[
        bool,
        typer.Option(
            "--allow-other",
            help="Give other users access, as far as the file modes in the home allow (0700 and 0600 unless changed). "
            "Without this option only the mounting user has access; even root has none. Non-root users need "
            "user_allow_other in /etc/fuse.conf to use it.",
        ),
    ] = False,
    durability: Annotated[
        Durability, typer.Option(help="full: a save survives power loss; normal: only a crash of GroveFS.")
    ] = "full",
    on_conflict: Annotated[
        Literal["merge", "reject", "overwrite"],
        typer.Option(
            help="How to save a document that others have changed since it was opened: merge both changes; reject "
            "it; or overwrite what others did, for restores."
        ),
    ] = "merge",
    beside_bamboo: Annotated[
        bool, typer.Option("--beside-bamboo", help="Allow writes while a Bamboo server uses the home.")
    ] = False,
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Keep no old versions (grovefs help history).")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="While mounted, import what the known agents write (grovefs help import).")
    ] = False,
    limbo_seconds: Annotated[float, typer.Option(hidden=True, min=0.01)] = HIDDEN_S,  # for tests
    log_file: Annotated[Path | None, typer.Option(help="Log file; default: .grovefs/mount.log in the home.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Log every request.")] = False,
    profile: Annotated[
        Path | None, typer.Option(help="Write a profile of the daemon to this file at exit; slows it down.")
    ] = None,
    kernel_options: Annotated[
        list[str] | None, typer.Option("--kernel-option", hidden=True)
    ] = None,  # passed on by mount(8)
    install_unit: Annotated[
        bool,
        typer.Option("--install-unit", help="Instead of mounting, write a systemd user unit that mounts at login."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --install-unit: replace a unit that was edited by hand.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Mount a home as a filesystem. Returns when the mount is ready; the daemon runs in the background.

    DIR is created if missing, and not removed at unmount. DIR/README.md describes the tree. To unmount, run
    `grovefs umount DIR` or send SIGTERM. After kill -9 the next mount replaces the dead one. .grovefs/stats.json in the
    mount has request counts and times. GROVEFS_WITHOUT=fast,loop,ahead,timeouts,pages,listings disables individual
    optimisations, for benchmarking and debugging.

    --install-unit writes a systemd user unit that mounts at login and unmounts at logout, with the given home and
    options.

    With grovefs in /usr/local/bin, a line in /etc/fstab works too:

    /home/ada/.grovefs /home/ada/grove fuse.grovefs setuid=ada,nofail 0 0

    Example: grovefs mount ~/grove
    """
    from fusefs.daemon.mountpoint import MountOptions, make_mountpoint

    options = MountOptions(
        home.expanduser().absolute(),
        mountpoint.expanduser().absolute(),
        read_only=read_only,
        allow_other=allow_other,
        durability=durability,
        on_conflict=on_conflict,
        beside_bamboo=beside_bamboo,
        history=not no_history,
        hidden_s=limbo_seconds,
        debug=debug,
        profile=profile.expanduser().absolute() if profile else None,
        kernel_options=frozenset(kernel_options or ()),
    )
    with make_mountpoint(options):
        if install_unit:
            _install_unit(options, log_file, force=force, follow=follow)
            return
        code = _mount(options, log_file, foreground=foreground, follow=follow)
        if code:
            raise typer.Exit(code)
    if as_json and not foreground:
        print_json({"home": str(options.home), "mountpoint": str(options.mountpoint)})


def _mount(options: MountOptions, log_file: Path | None, *, foreground: bool, follow: bool) -> int:
    """Mount and serve in the foreground or background; returns the exit code."""
    from fusefs.daemon.background import log_to, run_in_background
    from fusefs.daemon.mountpoint import check_mountpoint

    check_mountpoint(options)
    if foreground:
        from fusefs.daemon.mount import serve

        log_to(log_file, debug=options.debug)
        with _following(options, None) if follow else nullcontext():
            serve(options, _notify_systemd)
        return 0

    def work(ready: Callable[[], None]) -> None:
        log_to(log_file or options.home / LOG, debug=options.debug, is_ours=log_file is None)
        # Loaded in the daemon, not before it: as a session of its own it gets its share of busy processors.
        from fusefs.daemon.mount import serve

        with _following(options, options.home / FOLLOW_LOG) if follow else nullcontext():
            serve(options, ready)

    failure = run_in_background(work)
    if failure is None:
        return 0
    echo(f"grovefs: {failure}", err=True)
    return 1


@contextmanager
def _following(options: MountOptions, log_file: Path | None) -> Iterator[None]:
    """Import from the known agents in another process, for as long as the mount is served.

    Problems go to standard error, or to a log: a daemon must not keep the terminal or a pipe open.
    """
    command = [*present_command(), "import", "--follow", "--with-parent", "--yes", "--home", str(options.home)]
    if log_file is None:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    else:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=FOLLOWER_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _install_unit(options: MountOptions, log_file: Path | None, *, force: bool, follow: bool) -> None:
    from fusefs.cli import systemd_unit
    from fusefs.daemon.mountpoint import is_dead

    if not options.mountpoint.is_dir() and not is_dead(options.mountpoint):
        raise NotFound(f"{options.mountpoint} is not a directory")
    name = systemd_unit.unit_name(options.mountpoint)
    flags = [*_as_flags(options, log_file), *(["--follow"] if follow else [])]
    text = systemd_unit.render(present_command(), flags, options.home, options.mountpoint)
    path, state = systemd_unit.install(name, text, force=force)
    quoted = shlex.quote(name)
    echo(f"{path}: {state}")
    echo("")
    echo("To mount now and at each login:")
    echo(f"  systemctl --user daemon-reload && systemctl --user enable --now {quoted}")
    echo("systemd stops user services at logout, which unmounts it. To mount at boot and stay mounted after logout:")
    echo("  loginctl enable-linger")
    echo("Logs and removal:")
    echo(f"  journalctl --user -u {quoted}")
    echo(f"  systemctl --user disable --now {quoted} && rm {shlex.quote(str(path))}")


def _as_flags(options: MountOptions, log_file: Path | None) -> list[str]:
    """The command-line options for these settings."""
    flags = {
        "--read-only": options.read_only,
        "--allow-other": options.allow_other,
        "--beside-bamboo": options.beside_bamboo,
        "--no-history": not options.history,
        "--debug": options.debug,
    }
    values = {
        "--durability": options.durability if options.durability != "full" else None,
        "--on-conflict": options.on_conflict if options.on_conflict != "merge" else None,
        "--log-file": str(log_file.expanduser().absolute()) if log_file else None,
    }
    set_flags = [flag for flag, is_set in flags.items() if is_set]
    return [*set_flags, *(word for name, value in values.items() if value is not None for word in (name, value))]


def present_command() -> list[str]:
    """Command that starts this program from any directory: the installed script, or Python with the module."""
    script = which(sys.argv[0])
    if script is not None and Path(script).name == "grovefs":
        return [os.path.abspath(script)]
    return [sys.executable, "-m", "fusefs.cli"]


def _notify_systemd() -> None:
    """Report readiness to a systemd unit of type notify; see sd_notify(3)."""
    address = os.environ.pop("NOTIFY_SOCKET", None)
    if address is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify_socket:
        notify_socket.connect("\0" + address[1:] if address.startswith("@") else address)
        notify_socket.send(b"READY=1")


@app.command()
def umount(
    mountpoint: Annotated[  # the parser must not stat the mountpoint: the daemon may hang
        Path, typer.Argument(metavar="DIR", help="Mountpoint.", autocompletion=files, parser=Path)
    ],
    lazy: Annotated[
        bool,
        typer.Option("--lazy", "-z", help="Unmount although programs use it: they get errors from then on."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Unmount, also a dead mount. `grovefs status` lists mounts.

    If programs use the mount, they are named and nothing is unmounted, unless --lazy is given.

    Example: grovefs umount ~/grove
    """
    from fusefs.daemon.mountpoint import is_dead, unmount, unmount_dead

    place = fuse_connection.find_mountpoint(mountpoint.expanduser())
    if place is None:
        shown = os.path.abspath(mountpoint.expanduser())
        raise NotFound(f"no GroveFS mount at {shown}; `grovefs status` lists mounts")
    if is_dead(place):
        unmount_dead(place)
    else:
        daemons = fuse_connection.find_daemons(place)
        unmount(place, lazily=lazy)
        if not lazy:
            _wait_closed(daemons)
    if as_json:
        print_json({"mountpoint": str(place)})


def _wait_closed(daemons: list[int]) -> None:
    """Wait until the home is closed: it may be copied, or its disk unmounted, right after this command."""
    late = fuse_connection.wait_ended(daemons, DAEMON_END_S)
    if late:
        pids = ", ".join(map(str, late))
        echo(
            f"grovefs: unmounted, but process {pids} has not closed the home; wait for its end before you copy the "
            "home (it does not end while a container has the mount too)",
            err=True,
        )
