"""State documents by category and name: state list, show, save, delete."""

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
    help="""Store documents that belong to no session: notes, facts, configuration.

    DOCUMENT is CATEGORY/NAME.json or CATEGORY/NAME.md. Categories may be nested: memory/facts/f1.json. JSON is
    validated, Markdown may be any text. `grovefs search` finds both, and a mount has them in state/. Deleted
    documents stay in the trash for seven days.

    Example: echo '{"prefers": "short answers"}' | grovefs state save memory/facts/style.json""",
    no_args_is_help=True,
)
app.add_typer(state, name="state")

Document = Annotated[str, typer.Argument(metavar="DOCUMENT", help="CATEGORY/NAME.json or CATEGORY/NAME.md.")]


@state.command("list")
def list_documents(
    home: Home,
    category: Annotated[str | None, typer.Argument(help="Only this category and those nested in it.")] = None,
    as_json: Json = False,
) -> None:
    """List documents by category and name."""
    with open_store(home) as store:
        found = [path.partition("/")[2] for path in store.state.paths(f"state/{category}" if category else "state")]
    if as_json:
        print_json(found)
        return
    for path in found:
        echo(path)


@state.command()
def show(document: Document, home: Home, as_json: Json = False) -> None:
    """Print a document unchanged; with --json, a Markdown document as a JSON string."""
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
    """Save standard input as a document, atomically."""
    path, raw = _path(document), sys.stdin.buffer.read()
    with open_store(home) as store:
        changed = store.names.commit(WriteRequest(classify_path(path), raw)).is_changed
    if as_json:
        print_json({"document": document, "changed": changed})


@state.command()
def delete(document: Document, home: Home, as_json: Json = False) -> None:
    """Delete a document. It stays in the trash for seven days."""
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
    """The path of a document in the home; a usage error if the name is not valid."""
    category, _, name = document.rpartition("/")
    for ending in (JSON, MARKDOWN):
        if name.endswith(ending):
            return document_path(category, name.removesuffix(ending), ending)
    raise typer.BadParameter(f"{document!r} is neither CATEGORY/NAME.json nor CATEGORY/NAME.md")
