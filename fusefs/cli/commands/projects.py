"""Project sessions, grouped by workspace: projects list, show, key, rebuild."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table
from fusefs.cli.terminal import echo
from store import NotFound, ProjectSession, Store
from store.workspace.projects import project_key

projects = typer.Typer(
    help="""Show projects: sessions grouped by workspace.

    PROJECT is a key or the path of a workspace; `grovefs projects key .` prints the key of a path. Keys usually begin
    with a dash: put -- before them. Each session has a payload, any JSON object. index.json and children.json list the
    sessions. They are derived: every write updates them, missing ones are created again, and they are read-only. When
    restoring with rsync, exclude them: --exclude index.json --exclude children.json.

    Example: grovefs projects list ~/src/shop""",
    no_args_is_help=True,
)
app.add_typer(projects, name="projects")

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="Key of the project, or path of its workspace.")]
Session = Annotated[str, typer.Argument(help="PARENT, PARENT/CHILD, or the id of a child.")]


@projects.command("list")
def list_projects(
    home: Home,
    project: Annotated[str | None, typer.Argument(help="List the sessions of this project (key or path).")] = None,
    as_json: Json = False,
) -> None:
    """List all projects, or the sessions of one with their children."""
    with open_store(home) as store:
        rows = _projects(store) if project is None else _sessions(store, _key(store, project))
    if as_json:
        print_json(rows)
        return
    if rows:
        print_table(list(rows[0]), [[str(value) for value in row.values()] for row in rows])


def _projects(store: Store) -> list[dict[str, object]]:
    keys = store.projects.all_keys()
    return [{"key": key, "sessions": sum(1 for _ in store.projects.members(key))} for key in keys]


def _sessions(store: Store, key: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    roots = {entry.session_id: entry for entry in store.projects.roots(key)}
    for parent in dict.fromkeys(member.parent for member in store.projects.members(key)):
        root = roots.get(parent)
        rows.append({"id": parent, "type": "", "status": "", "title": root.title if root else ""})
        for entry in store.projects.children(key, parent):
            fields = {"type": entry.subagent_type, "status": entry.status, "title": entry.title}
            rows.append({"id": f"{parent}/{entry.child_id}", **fields})
    return rows


@projects.command()
def show(project: Project, session: Session, home: Home, as_json: Json = True) -> None:  # always JSON
    """Print the payload of a session as JSON."""
    with open_store(home) as store:
        payload = _payload(store, _key(store, project), session)
    if payload is None:
        raise NotFound(f"project {project} has no session {session!r}; `grovefs projects list` lists them")
    print_json(payload)


def _payload(store: Store, key: str, session: str) -> dict[str, Any] | None:
    parent, _, child = session.partition("/")
    payload = store.projects.load(ProjectSession(key, parent, child or None))
    resolved = store.projects.resolve(key, session) if payload is None and not child else None
    return store.projects.load(resolved) if resolved is not None else payload


@projects.command("key")
def print_key(workspace: Annotated[Path, typer.Argument(help="Working directory.")], as_json: Json = False) -> None:
    """Print the key of a workspace."""
    key = project_key(workspace)
    print_json({"key": key}) if as_json else echo(key)


@projects.command("rebuild")
def rebuild_indices(project: Project, home: Home, as_json: Json = False) -> None:
    """Rebuild index.json and every children.json of a project from the payloads."""
    with open_store(home) as store:
        key = _key(store, project)
        store.projects.rebuild(key)
    print_json({"rebuilt": key}) if as_json else echo(f"{key}: rebuilt")


def _key(store: Store, project: str) -> str:
    """The key of an existing project, given its key or the path of its workspace."""
    key = project_key(project) if "/" in project or project in (".", "..") else project
    if key not in store.projects.all_keys():
        raise NotFound(f"there is no project {key!r}; `grovefs projects list` lists them")
    return key
