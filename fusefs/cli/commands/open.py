"""Look at a conversation in a browser: open."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fusefs.cli import completion
from fusefs.cli.app import Home, Json, app, open_store, print_json
from fusefs.cli.message_names import resolve_message
from fusefs.cli.mount_status import iter_mounts_of
from fusefs.cli.terminal import echo
from fusefs.views.html.names import INDEX, path_of
from store import Location, Store, StoreError


class NoBrowser(StoreError):
    """No browser could be started."""


@app.command("open")
def open_page(
    home: Home,
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION[#N]",
            help="Session, and the number of a message in it. Omit it to open the list of all sessions.",
            autocompletion=completion.sessions,
        ),
    ] = None,
    only_print: Annotated[bool, typer.Option("--print", help="Print the address; start no browser.")] = False,
    as_json: Json = False,
) -> None:
    """Open a conversation, or the list of all sessions, in a browser.

    If the home is mounted, the page is the one in html/, which shows the present state at every reload. Otherwise
    the session and its children, or all sessions, are exported to a new temporary directory, which is yours to delete.
    #7 is message 7, as search prints it. $BROWSER selects the browser; --json prints the address as --print does.

    Example: grovefs open fix-login#7
    """
    with open_store(home) as store:
        location, message = resolve_message(store, session) if session else (None, None)
        mounted = _mounted_pages(store.home)
        top = mounted or _export(store, location)
    page = top / (path_of(location) if location else INDEX)
    address = page.as_uri() + (f"#m{message}" if message is not None else "")
    if as_json:
        print_json({"address": address, "is_mounted": mounted is not None})
    elif only_print:
        echo(address)
    elif not webbrowser.open(address):
        raise NoBrowser(f"no browser could be started; open {address}, or set $BROWSER")


def _mounted_pages(home: Path) -> Path | None:
    """html/ in a mount of the home; None if it is not mounted."""
    pages = (mountpoint / "html" for mountpoint, _ in iter_mounts_of(home))
    return next((place for place in pages if place.is_dir()), None)


def _export(store: Store, location: Location | None) -> Path:
    from fusefs.views.html.site import write_site

    top = Path(tempfile.mkdtemp(prefix="grovefs-pages-"))  # readable only by this user
    selected = store.exports.select([location.root] if location else None)
    for item in write_site(store, selected, top, with_stats=location is None, with_history=location is not None):
        if not isinstance(item, Path):
            echo(f"problem: {item}", err=True)
    return top
