"""Let go of what is old: prune."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, confirm, open_store, plural, print_json, progress_bar
from fusefs.cli.terminal import echo
from store import Keep, PrunePlan, Store
from store.workspace.agent_records import BATCH


@app.command()
def prune(
    home: Home,
    days: Annotated[
        float | None, typer.Option("--days", help="Keep what was changed within so many days.", min=0.001)
    ] = None,
    newest: Annotated[int | None, typer.Option("--keep", help="Keep the newest so many, no more.", min=1)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    every: Annotated[
        float | None,
        typer.Option(help="For timers: at most once in so many seconds, without asking, and never everything.", min=0),
    ] = None,
    agents: Annotated[
        bool, typer.Option("--agents", help="Prune agent records (state/agents) instead, by when they were made.")
    ] = False,
    batch: Annotated[int, typer.Option(help="So many agent records in one step.", min=1)] = BATCH,
    as_json: Json = False,
) -> None:
    """Delete old sessions: not changed for some days, or beyond the newest.

    A root goes with all its children, and is as young as the youngest of
    them. What has a pinned session in it stays, and so does what cannot be
    read. What goes can be had back for seven days: `grovefs undelete`.

    Nothing is ever pruned by itself, unless someone runs this from a timer
    (--every) or opens a store with auto_prune.

    Example: grovefs prune --days 90 --keep 500 --dry-run
    """
    if days is None and newest is None:
        raise typer.BadParameter("say what to keep: --days, --keep, or both")
    if agents and every is not None:
        raise typer.BadParameter("--every is for sessions; agent records are pruned when you say so")
    keep = Keep(days, newest)
    with open_store(home) as store:
        if agents:
            _prune_agents(store, keep, batch, dry_run=dry_run, yes=yes, as_json=as_json)
            return
        if every is not None and not dry_run:
            _automatically(store, keep, every, as_json=as_json)
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
                    echo(f"left alone: {tree.root}: {tree.reason}")
            _print_outcome(plan, [str(location) for location in result.deleted], as_json=as_json)


def _automatically(store: Store, keep: Keep, every_s: float, *, as_json: bool) -> None:
    from store import AutoPrune

    result = store.prune.run_if_due(AutoPrune(keep, every_s))
    deleted = [str(location) for location in result.deleted] if result else []
    if as_json:
        print_json({"ran": result is not None, "deleted": deleted})
    elif result is None:
        echo("not now: the last run was too short ago, or nothing would be left")
    else:
        echo(f"{plural(len(deleted), 'session')} deleted; `grovefs undelete` has them back for seven days")


def _prune_agents(store: Store, keep: Keep, batch: int, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    plan = store.prune.plan_agents(keep)
    if not as_json:
        for record, reason in plan.to_delete:
            echo(f"{record.created_at[:10]}\t{record.name}\t{reason}")
        for name in plan.unreadable:
            echo(f"spared: {name}: it cannot be read, or does not say when it was made")
    records = plural(len(plan.to_delete), "agent record")
    gone: list[str] | None = None
    if plan.to_delete and not dry_run and (yes or confirm(f"Delete {records}?")):
        with progress_bar("pruning") as progress:
            gone = store.prune.apply(plan, batch=batch, progress=progress)
    if as_json:
        doomed = [
            {"name": record.name, "created_at": record.created_at, "reason": why} for record, why in plan.to_delete
        ]
        print_json({"doomed": doomed, "spared": list(plan.unreadable), "kept": plan.kept, "deleted": gone})
    elif gone is None:
        echo(f"{records} would go, {len(plan.unreadable)} spared, {plan.kept} kept")
    else:
        echo(f"{plural(len(gone), 'agent record')} deleted; `grovefs undelete` has them back for seven days")


def _print_plan(plan: PrunePlan) -> None:
    for tree in plan.to_delete:
        row = (tree.updated_at[:10], str(tree.root), plural(len(tree.sessions), "session"), tree.reason, tree.title)
        echo("\t".join(row))
    for tree in plan.protected:
        echo(f"spared: {tree.root}: {tree.reason}")


def _print_outcome(plan: PrunePlan, deleted: list[str] | None, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_dict(plan, deleted))
    elif deleted is None:
        going, spared = plural(plan.session_count, "session"), plural(len(plan.protected), "root")
        echo(f"{going} would go, {spared} spared, {plan.kept} kept")
    else:
        echo(f"{plural(len(deleted), 'session')} deleted; `grovefs undelete` has them back for seven days")


def _as_dict(plan: PrunePlan, deleted: list[str] | None) -> dict[str, Any]:
    def shown(trees: tuple[Any, ...]) -> list[dict[str, Any]]:
        return [
            {
                "root": str(tree.root),
                "title": tree.title,
                "updated_at": tree.updated_at,
                "sessions": list(map(str, tree.sessions)),
                "reason": tree.reason,
            }
            for tree in trees
        ]

    return {"doomed": shown(plan.to_delete), "spared": shown(plan.protected), "kept": plan.kept, "deleted": deleted}
