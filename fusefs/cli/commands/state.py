"""Plain documents by category and name: state list, show, save, delete."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json
from fusefs.cli.terminal import echo
from store import NotFound, Store
from store.commit.write_request import WriteRequest
from store.path_kinds import classify_path
from store.workspace.state import JSON, MARKDOWN, document_path

state = typer.Typer(
    help="""Keep plain documents beside the sessions: notes, facts, configuration.

    DOCUMENT is category/name.json or category/name.md; a category may be nested, as in memory/facts/f1.json. JSON is
    checked, markdown is any text. `grovefs search` finds both, a mount has them in state/, and deleted ones are in the
    trash for seven days.

    Example: echo '{"prefers": "short answers"}' | grovefs state save memory/facts/style.json""",
    no_args_is_help=True,
)
app.add_typer(state, name="state")

Document = Annotated[str, typer.Argument(metavar="DOCUMENT", help="category/name.json or category/name.md")]


@state.command("list")
def list_documents(
    home: Home,
    category: Annotated[str | None, typer.Argument(help="Only this one, and those nested in it.")] = None,
    as_json: Json = False,
) -> None:
    """List documents, by category and name."""
    with open_store(home) as store:
        found = [path.partition("/")[2] for path in store.state.paths(f"state/{category}" if category else "state")]
    if as_json:
        print_json(found)
        return
    for path in found:
        echo(path)


@state.command()
def show(document: Document, home: Home, as_json: Json = False) -> None:
    """Print a document as it is; with --json, one that is Markdown as a JSON text."""
    with open_store(home) as store:
        raw = store.names.read(classify_path(_path(document)))
    if raw is None:
        raise NotFound(f"there is no state document {document!r}; `grovefs state list` lists them")
    if as_json and document.endswith(MARKDOWN):
        print_json(raw.decode(errors="replace"))
    elif sys.stdout.isatty():
        echo(raw.decode(errors="replace").removesuffix("\n"))
    else:
        sys.stdout.buffer.write(raw)


@state.command()
def save(document: Document, home: Home, as_json: Json = False) -> None:
    """Save standard input as a document: whole, or not at all."""
    path, raw = _path(document), sys.stdin.buffer.read()
    with open_store(home) as store:
        changed = store.names.commit(WriteRequest(classify_path(path), raw)).is_changed
    if as_json:
        print_json({"document": document, "changed": changed})


@state.command()
def delete(document: Document, home: Home, as_json: Json = False) -> None:
    """Delete a document. It is kept in the trash for seven days."""
    path = _path(document)
    with open_store(home) as store:
        _require(store, path, document)
        store.names.remove_file(classify_path(path))
    if as_json:
        print_json({"document": document, "deleted": True})


def _require(store: Store, path: str, document: str) -> None:
    if store.names.stat(path) is None:
        raise NotFound(f"there is no state document {document!r}; `grovefs state list` lists them")


def _path(document: str) -> str:
    """Its path in the home, if it can be one."""
    category, _, name = document.rpartition("/")
    for ending in (JSON, MARKDOWN):
        if name.endswith(ending):
            return document_path(category, name.removesuffix(ending), ending)
    raise typer.BadParameter(f"{document!r} is neither category/name.json nor category/name.md")
