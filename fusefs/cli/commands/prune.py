"""Delete old sessions: prune."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, confirm, open_store, plural, print_json, print_table, progress_bar
from fusefs.cli.terminal import echo
from store import Keep, PrunePlan, Store
from store.workspace.agent_records import BATCH


@app.command()
def prune(
    home: Home,
    days: Annotated[
        float | None, typer.Option("--days", help="Keep sessions changed within the last N days.", min=0.001)
    ] = None,
    newest: Annotated[int | None, typer.Option("--keep", help="Keep at most N newest.", min=1)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Dry run: list what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            help="For timers: run at most once in N seconds, without asking; never deletes all sessions.", min=0
        ),
    ] = None,
    agents: Annotated[
        bool, typer.Option("--agents", help="Prune agent records (state/agents) by creation time instead.")
    ] = False,
    batch: Annotated[int, typer.Option(help="Number of agent records deleted in one step.", min=1)] = BATCH,
    all_hosts: Annotated[bool, typer.Option("--all-hosts", help="In a grove: delete on all its hosts.")] = False,
    as_json: Json = False,
) -> None:
    """Delete old sessions: those not changed for some days, or all but the newest.

    A root is deleted with all its children; its age is that of the most recently changed one. Trees with a pinned or
    unreadable session are protected. Deleted sessions stay in the trash for seven days (`grovefs trash`).

    Sessions are pruned automatically only if you run this from a timer (--every) or open a store with auto_prune. In a
    grove pruning deletes on every host and needs --all-hosts; auto_prune does nothing there.

    Example: grovefs prune --days 90 --keep 500 --dry-run
    """
    if days is None and newest is None:
        raise typer.BadParameter("pass --days, --keep or both")
    if agents and every is not None:
        raise typer.BadParameter("--every cannot be combined with --agents")
    keep = Keep(days, newest)
    with open_store(home) as store:
        if store.is_in_grove and not all_hosts and not dry_run:
            raise typer.BadParameter("this home belongs to a grove: pruning deletes on every host; pass --all-hosts")
        if agents:
            _prune_agents(store, keep, batch, dry_run=dry_run, yes=yes, as_json=as_json)
            return
        if every is not None and not dry_run:
            _prune_if_due(store, keep, every, as_json=as_json)
            return
        plan = store.prune.plan(keep)
        if not as_json:
            _print_plan(plan)
        if dry_run or not plan.to_delete:
            _print_outcome(plan, None, as_json=as_json)
        elif yes or confirm(f"Delete {plural(plan.session_count, 'session')}?"):
            with progress_bar("pruning") as progress:
                result = store.prune.apply(plan, progress=progress)
            if not as_json:
                for tree in result.left:
                    echo(f"not deleted: {tree.root}: {tree.reason}")
            _print_outcome(plan, [str(location) for location in result.deleted], as_json=as_json)


def _prune_if_due(store: Store, keep: Keep, every_s: float, *, as_json: bool) -> None:
    from store import AutoPrune

    result = store.prune.run_if_due(AutoPrune(keep, every_s, all_hosts=True))
    deleted = [str(location) for location in result.deleted] if result else []
    if as_json:
        print_json({"ran": result is not None, "deleted": deleted})
    elif result is None:
        echo("skipped: the last run was too recent, or no session would be left")
    else:
        echo(f"deleted {plural(len(deleted), 'session')}; `grovefs trash` lists what can be restored")


def _prune_agents(store: Store, keep: Keep, batch: int, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    plan = store.prune.plan_agents(keep)
    if not as_json:
        rows = [(record.created_at[:10], record.name, reason) for record, reason in plan.to_delete]
        print_table(("created", "name", "reason"), rows)
        for name in plan.unreadable:
            echo(f"protected: {name}: unreadable or without a creation time")
    records = plural(len(plan.to_delete), "agent record")
    deleted: list[str] | None = None
    if plan.to_delete and not dry_run and (yes or confirm(f"Delete {records}?")):
        with progress_bar("pruning") as progress:
            deleted = store.prune.apply(plan, batch=batch, progress=progress)
    if as_json:
        to_delete = [
            {"name": record.name, "created_at": record.created_at, "reason": why} for record, why in plan.to_delete
        ]
        print_json({"to_delete": to_delete, "protected": list(plan.unreadable), "kept": plan.kept, "deleted": deleted})
    elif deleted is None:
        echo(f"would delete {records}, {len(plan.unreadable)} protected, {plan.kept} kept")
    else:
        echo(f"deleted {plural(len(deleted), 'agent record')}; `grovefs trash` lists what can be restored")


def _print_plan(plan: PrunePlan) -> None:
    rows = [
        (tree.updated_at[:10], str(tree.root), plural(len(tree.sessions), "session"), tree.reason, tree.title)
        for tree in plan.to_delete
    ]
    print_table(("updated", "root", "size", "reason", "title"), rows)
    for tree in plan.protected:
        echo(f"protected: {tree.root}: {tree.reason}")


def _print_outcome(plan: PrunePlan, deleted: list[str] | None, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_dict(plan, deleted))
    elif deleted is None:
        to_delete, protected = plural(plan.session_count, "session"), plural(len(plan.protected), "root")
        echo(f"would delete {to_delete}, {protected} protected, {plan.kept} kept")
    else:
        echo(f"deleted {plural(len(deleted), 'session')}; `grovefs trash` lists what can be restored")


def _as_dict(plan: PrunePlan, deleted: list[str] | None) -> dict[str, Any]:
    def shown(trees: tuple[Any, ...]) -> list[dict[str, Any]]:
        return [
            {
                "id": str(tree.root),
                "title": tree.title,
                "updated_at": tree.updated_at,
                "sessions": list(map(str, tree.sessions)),
                "reason": tree.reason,
            }
            for tree in trees
        ]

    return {
        "to_delete": shown(plan.to_delete),
        "protected": shown(plan.protected),
        "kept": plan.kept,
        "deleted": deleted,
    }
