"""Take back changes in many sessions: undo."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Annotated, Any

import typer

from fusefs.cli import completion
from fusefs.cli.app import (
    Home,
    Json,
    app,
    confirm,
    open_store,
    plural,
    print_json,
    print_table,
    progress_bar,
    short_names,
)
from fusefs.cli.commands.log import author_text
from fusefs.cli.terminal import echo
from store import Store, UndoItem, UndoPlan, UndoResult
from store.undo.versions_spec import TIME_FORMS, local_text


@app.command()
def undo(
    home: Home,
    since: Annotated[str, typer.Option("--since", metavar="T", help=f"From this time on: {TIME_FORMS}.")],
    sessions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SESSION...]",
            help="Only in these sessions or state documents; in all if none is named.",
            autocompletion=completion.sessions,
        ),
    ] = None,
    until: Annotated[str, typer.Option("--until", metavar="T", help="Up to this time.")] = "now",
    by: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Only changes by this author: sed, 'mount*', 'mount: sed (4711)'."),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Also where others changed a session since: keep what they did.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only show the plan.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Take back all changes of a span of time, or only those by one author, such as a wrong sed.

    Every session changed then goes back to the version before the first of those changes, as a new version. The plan
    is shown first. Not undone, with the reason: sessions made in that time, changed since by others, or in the trash
    now. --merge takes the changes out from between those of others, newest first, and keeps theirs; where both changed
    the same words it changes nothing and says so. Renaming is not undone.

    An undo can be undone: grovefs undo --since T --by 'revert*'. Exits with 1 if something was not undone.

    Example: grovefs undo --since 10:30 --by sed --dry-run
    """
    with open_store(home) as store:
        plan = store.history.plan_undo(since=since, until=until, by=by, merge=merge, names=sessions)
        if not as_json:
            _print_plan(store, plan)
        if dry_run or not plan.to_undo:
            _print_outcome(store, plan, None, as_json=as_json)
            is_complete = bool(plan.to_undo or plan.unchanged) and not plan.refused
        elif yes or confirm(f"Take back {_counted(plan)}?"):
            with progress_bar("undoing") as progress:
                result = store.history.undo(plan, progress=progress)
            _print_outcome(store, plan, result, as_json=as_json)
            is_complete = not plan.refused and not result.refused
        else:
            is_complete = False
    if not is_complete:
        raise typer.Exit(1)


def _counted(plan: UndoPlan) -> str:
    changes = sum(len(item.bad) for item in plan.to_undo)
    return f"{plural(changes, 'change')} in {_places(list(plan.to_undo))}"


def _places(items: list[UndoItem]) -> str:
    """The number of sessions and other documents."""
    counts = Counter("session" if item.path.startswith("sessions/") else "document" for item in items)
    return " and ".join(plural(counts[noun], noun) for noun in ("session", "document") if counts[noun]) or "0 sessions"


def _print_plan(store: Store, plan: UndoPlan) -> None:
    rows = [_row(store, item) for item in plan.to_undo]
    short = short_names(store, [row[0] for row in rows])
    print_table(("session", "changes", "last", "by", "back to"), rows, short=short)
    for refusal in plan.refused:
        echo(f"not undone: {store.history.name_of(refusal.path)}: {refusal.reason}")


def _row(store: Store, item: UndoItem) -> tuple[str, ...]:
    last, authors = item.bad[-1], list(dict.fromkeys(author_text(version.author) for version in item.bad))
    more = f" and {len(authors) - 1} more" if len(authors) > 1 else ""
    back = f"version {item.target.label}" + (", merged with later changes" if item.is_merge else "")
    name = store.history.name_of(item.path)
    return name, str(len(item.bad)), local_text(last.made_at_ns), f"{authors[-1]}{more}", back


def _print_outcome(store: Store, plan: UndoPlan, result: UndoResult | None, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_dict(store, plan, result))
        return
    unchanged = len(plan.unchanged) + (len(result.unchanged) if result else 0)
    refused = len(plan.refused) + (len(result.refused) if result else 0)
    rest = "".join(
        f", {count} {what}" for count, what in ((refused, "refused"), (unchanged, "already as before")) if count
    )
    if result is None:
        nothing = not plan.to_undo and not rest
        echo("no change matches; `grovefs log SESSION` lists them" if nothing else f"would undo {_counted(plan)}{rest}")
        return
    for refusal in result.refused:
        echo(f"not undone: {store.history.name_of(refusal.path)}: {refusal.reason}")
    again = shlex.join(["grovefs", "undo", "--since", local_text(result.began_ns), "--by", "revert*"])
    echo(f"undone in {_places(result.undone)}{rest}" + (f"; `{again}` takes it back" if result.undone else ""))


def _as_dict(store: Store, plan: UndoPlan, result: UndoResult | None) -> dict[str, Any]:
    def refusals(refused: Any) -> list[dict[str, Any]]:
        return [{"id": store.history.name_of(each.path), "reason": each.reason} for each in refused]

    def items(found: Any) -> list[dict[str, Any]]:
        return [
            {
                "id": store.history.name_of(item.path),
                "versions": [version.shown_number for version in item.bad],
                "back_to": item.target.shown_number,
                "merged": item.is_merge,
            }
            for item in found
        ]

    return {
        "to_undo": items(plan.to_undo),
        "refused": refusals([*plan.refused, *(result.refused if result else ())]),
        "unchanged": [store.history.name_of(path) for path in (*plan.unchanged, *(result.unchanged if result else ()))],
        "undone": items(result.undone) if result else None,
    }
