"""One grove on many hosts: grove create, join, leave, rejoin, status, follow, demo, publish."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, command_author, confirm, open_store, plural, print_json, print_table
from fusefs.cli.app import progress_bar as show_progress
from fusefs.cli.terminal import echo
from store import Store, Timestamp
from store.errors import NotFound
from store.undo.versions_spec import local_text

if TYPE_CHECKING:
    from fusefs.cli.grove_demo import Demo
    from store.grove.administration import GroveStatus
    from store.grove.join_plan import JoinPlan

grove = typer.Typer(
    help="""Share one grove of sessions among many hosts, with a PostgreSQL database.

    Every host keeps an ordinary home: reading, search and the mount stay local and fast. A change is agreed to by the
    database before it is stored, and reaches the other hosts within a second.

    URL is what psql takes, such as postgresql://user@db.example/agents or service=agents. Passwords belong in
    ~/.pgpass or a service file; a URL with one is rejected. `grovefs help grove` explains how to run the database,
    what can be lost in which set-up, and what does not cross hosts yet.

    Example: grovefs grove create service=agents && grovefs grove join service=agents""",
    no_args_is_help=True,
)
app.add_typer(grove, name="grove")

Url = Annotated[str, typer.Argument(metavar="URL", help="Connection URL or string, as for psql; without a password.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_LOOK_S = 0.5  # how often `follow` looks whether changes of other hosts arrive

_MEANINGS = {
    "publish": "only here: published to the grove",
    "adopt": "the same here and in the grove",
    "fetch": "only in the grove: fetched",
    "discard": "deleted in the grove: moved to the trash here",
    "conflict": "different: the grove's version is taken, ours is kept as a copy named ID~HOST",
}


@grove.command()
def create(url: Url, as_json: Json = False) -> None:
    """Create an empty grove in a PostgreSQL database. Hosts then join it.

    The database gets a schema named grove. The user of the URL must be allowed to create it. A server that may lose
    what it acknowledged (fsync, full_page_writes or synchronous_commit off) is rejected.

    Example: grovefs grove create postgresql://postgres@db.example/agents
    """
    administration = _administration()
    epoch = administration.create(url)
    if as_json:
        print_json({"epoch": epoch})
    else:
        echo("created an empty grove; next, on every host: grovefs grove join URL")


@grove.command()
def join(
    url: Url,
    home: Home,
    name: Annotated[str | None, typer.Option("--name", help="Name of this host. Default: its host name.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make this home a host of a grove. A missing or empty directory becomes a copy of the grove.

    Sessions that only this home has are published, equal ones are adopted. Of those that differ, the grove's version
    is taken and ours is kept as a copy, which stays local until `grovefs grove publish`. The plan is shown first. No
    mount or other program may have the home open.

    Example: grovefs grove join service=agents --dry-run
    """
    administration = _administration()
    plan = administration.plan_joining(home, url)
    if dry_run:
        return _print_plan(plan, as_json=as_json)
    if not as_json:
        _print_plan(plan, as_json=False)
    if not yes and any(plan.counts().values()) and not confirm(f"Join {home}?"):
        raise typer.Exit(1)
    with show_progress("joining") as bar:
        done = administration.join(home, url, name, _told(bar))
    if as_json:
        _print_plan(done, as_json=True)
    else:
        echo(f"{home} has joined the grove")


@grove.command()
def leave(home: Home, yes: Yes = False, as_json: Json = False) -> None:
    """Make this home an ordinary one again. All sessions stay, here and in the grove.

    Example: grovefs grove leave
    """
    administration = _administration()
    if not yes and not confirm(f"Leave the grove with {home}?", "--yes"):
        raise typer.Exit(1)
    administration.leave(home)
    print_json({"left": True}) if as_json else echo(f"{home} has left the grove; its sessions are still here")


@grove.command()
def rejoin(
    home: Home,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Go on with the database as it is, although it lost commits; for all hosts."
        ),
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Join again as a new host: after copying or restoring a home, or after the database lost history.

    What differs from the grove is kept as a copy, as by `join`. With --accept-loss a frozen grove is thawed; every
    other host then has to rejoin too, and keeps copies of what the database lost.

    Example: grovefs grove rejoin
    """
    administration = _administration()
    if not yes and not confirm(f"Rejoin the grove with {home}?", "--yes"):
        raise typer.Exit(1)
    with show_progress("joining") as bar:
        plan = administration.rejoin(home, thaw=accept_loss, told=_told(bar))
    _print_plan(plan, as_json=as_json)


@grove.command()
def status(home: Home, as_json: Json = False) -> None:
    """Show the hosts of the grove, how far each is, and what is wrong.

    Exits with 1 if the database does not answer, the grove is frozen, this home must rejoin, units are behind, or
    edits made on disk wait to be confirmed.

    Example: grovefs grove status
    """
    found = _administration().status(home)
    if as_json:
        print_json(_status_members(found))
    else:
        _print_status(found)
    if found.unreachable or found.frozen or found.problem or found.behind or found.waiting:
        raise typer.Exit(1)


def _status_members(found: GroveStatus) -> dict[str, Any]:
    """The state with the times that all JSON has: RFC 3339."""
    member = found.membership._asdict()
    hosts = [asdict(host) for host in found.hosts]
    behind = [unit._asdict() for unit in found.behind]
    return asdict(found) | {
        "membership": member | {"joined_at": Timestamp.from_ns(member.pop("joined_ns"))},
        "hosts": [host | {"seen_at": Timestamp.from_ns(host.pop("seen_ms") * 10**6)} for host in hosts],
        "behind": [unit | {"since": Timestamp.from_ns(unit.pop("since_ns"))} for unit in behind],
    }


@grove.command()
def follow(home: Home, as_json: Json = False) -> None:
    """Keep this home up to date until interrupted. A mount does the same; use this on a host without one.

    Says when changes of other hosts stop arriving, for example because the database does not answer, and when they
    arrive again. With --json each of these events is one line.

    Example: grovefs grove follow
    """
    _require_joined(home)
    with Store.open(home, author=command_author()) as store:
        signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        if not as_json:
            echo(f"following the grove in {home}; press Ctrl-C to stop")
        shown: str | None = None if as_json else ""
        while True:
            problem = store.grove.problem
            if problem != shown:
                _print_following(home, problem, as_json=as_json)
                shown = problem
            time.sleep(_LOOK_S)


def _print_following(home: Path, problem: str, *, as_json: bool) -> None:
    if as_json:
        event = "interrupted" if problem else "following"
        echo(json.dumps({"event": event, "at": Timestamp.now(), "home": str(home), "problem": problem}))
    elif problem:
        echo(f"{local_text(time.time_ns())}: changes of other hosts do not arrive: {problem}", err=True)
    else:
        echo(f"{local_text(time.time_ns())}: following again")


@grove.command()
def demo(as_json: Json = False) -> None:
    """Try a grove: start a private PostgreSQL, two homes and two mounts until interrupted, then remove everything.

    Needs an installed PostgreSQL (Debian: apt-get install postgresql) and psycopg (pip install 'grovefs[grove]'). Your
    own server and homes are not touched.

    Example: grovefs grove demo
    """
    _administration()
    from fusefs.cli.grove_demo import running_demo

    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with running_demo() as running:
        if as_json:
            print_json(
                {
                    "url": running.url,
                    "hosts": [{"home": str(host.home), "mount": str(host.mountpoint)} for host in running.hosts],
                }
            )
        else:
            _print_demo(running)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # everything is removed first
    if not as_json:
        echo("removed the demo")


@grove.command()
def publish(
    home: Home,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION]...", help="Sessions that only this home has.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Publish sessions that only this home has, such as the copies that `join` kept.

    Without a session: publish the files that other programs edited on disk. A few are published by themselves; more
    than 20 at once wait for this, because a restored backup would look the same.

    Example: grovefs grove publish fix-login~laptop
    """
    _administration()
    _require_joined(home)
    with open_store(home) as store:
        if not names:
            return _publish_edits(store, yes=yes, as_json=as_json)
        units = [unit for name in names for unit in store.grove.publish(str(store.resolve(name)))]
    print_json(units) if as_json else echo(f"published {plural(len(units), 'unit')}")


def _publish_edits(store: Store, *, yes: bool, as_json: bool) -> None:
    waiting = store.grove.waiting()
    if waiting and not as_json:
        print_table(("edited on disk",), [(path,) for path in waiting])
    if waiting and not yes and not confirm(f"Publish {plural(len(waiting), 'edit')}?", "--yes"):
        raise typer.Exit(1)
    store.grove.publish_edits()
    print_json(waiting) if as_json else echo(f"published {plural(len(waiting), 'edit')}")


def _administration() -> Any:
    """The module that needs psycopg, or an error that says how to install it."""
    try:
        from store.grove import administration
    except ImportError as error:
        if error.name != "psycopg":
            raise
        raise NotFound("psycopg is not installed: pip install 'grovefs[grove]'") from None
    return administration


def _require_joined(home: Home) -> None:
    from store.grove.replica import NotJoined, is_joined

    if not is_joined(home):
        raise NotJoined(f"{home} has not joined a grove; see `grovefs help grove`")


def _told(bar: Callable[[int, int], None]) -> Callable[[str, int, int], None]:
    return lambda what, done, total: bar(done, total)


def _print_demo(running: Demo) -> None:
    from fusefs.cli.grove_demo import SESSION

    one, two = running.hosts
    echo("Two hosts of one grove are mounted. In another terminal:")
    echo("")
    echo(f"    vim {one.mountpoint}/sessions/{SESSION}/session.json      # edit on one host")
    echo(f"    cat {two.mountpoint}/transcripts/{SESSION}.md             # read on the other")
    echo(f"    grovefs log {SESSION} --home {two.home}      # who changed it, and where")
    echo(f"    grovefs grove status --home {one.home}")
    echo("")
    echo("Press Ctrl-C to end. Everything is removed then.")


def _print_plan(plan: JoinPlan, *, as_json: bool) -> None:
    if as_json:
        return print_json(plan.actions)
    rows = [(str(count), _MEANINGS[action]) for action, count in plan.counts().items() if count]
    print_table(("units", "what happens"), rows)
    for unit in plan.units("conflict")[:20]:
        echo(f"different: {unit}")


def _print_status(found: GroveStatus) -> None:
    echo(
        f"host {found.membership.name}, {plural(found.units, 'unit')}, joined {local_text(found.membership.joined_ns)}"
    )
    for text in filter(None, (found.unreachable, found.frozen and f"frozen: {found.frozen}", found.problem)):
        echo(text)
    rows = [
        (host.name + (" (this)" if host.is_this else ""), local_text(host.seen_ms * 10**6), str(host.lag))
        for host in found.hosts
    ]
    print_table(("host", "last seen", "commits behind"), rows)
    if found.waiting:
        echo(f"{plural(len(found.waiting), 'file')} edited on disk, to be confirmed: grovefs grove publish")
    for unit in found.behind:
        echo(f"behind since {Timestamp.from_ns(unit.since_ns)}: {unit.unit}: {unit.why}")
