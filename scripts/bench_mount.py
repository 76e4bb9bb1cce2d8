"""The command `bench mount`: arguments and exit code. What it does is in benchmarks/mount.py."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from benchmarks.contenders import CONTENDERS
from benchmarks.machine import workplace
from benchmarks.mount import Bench, Settings, smaller
from benchmarks.reads import Failed
from benchmarks.results import tell
from rich.console import Console
from rich.progress import Progress

ALL = ",".join(CONTENDERS)


def bench_mount(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small tree, two rounds, about a minute, no verdict.")
    ] = False,
    only: Annotated[str, typer.Option(help="Workloads to run, by how their names begin: find,ls,…; or none.")] = "",
    contenders: Annotated[str, typer.Option(help="Whom to compare; native is needed for ratios.")] = ALL,
    cache: Annotated[Literal["warm", "cold", "both"], typer.Option(help="Which of the reading runs.")] = "both",
    rounds: Annotated[int | None, typer.Option(min=1, help="How often each contender runs; 5 by default.")] = None,
    roots: Annotated[int | None, typer.Option(min=10, help="Another size of the tree; 2,000 by default.")] = None,
    scale: Annotated[int, typer.Option(help="Also: memory with so many sessions, as 20000.", min=0)] = 0,
    mount_options: Annotated[str, typer.Option(help="More options for `grovefs mount`, as one text.")] = "",
    parent: Annotated[Path, typer.Option("--dir", help="Where everything is made: a real disk.")] = Path("/var/tmp"),
) -> None:
    """What reading and writing through the mount costs, beside the disk, bindfs and a plain pass-through.

    Everybody shows the same files and takes turns; a ratio is printed only if all saw the same files and bytes.
    """
    wanted = Settings(
        rounds=rounds or 5,
        caches=("warm", "cold") if cache == "both" else (cache,),
        only=workloads(only),
        contenders=chosen(contenders),
        mount_options=tuple(shlex.split(mount_options)),
        scale=scale,
    )
    settings = smaller(wanted, rounds) if quick else wanted
    if roots is not None:
        settings = replace(settings, shape=replace(settings.shape, roots=roots), jq_sessions=min(200, roots))
    err = Console(stderr=True)
    with workplace(parent) as place, Progress(console=err, disable=not err.is_terminal, transient=True) as meter:
        bench = Bench(place, settings, meter)
        try:
            report = bench.run()
        except (Failed, RuntimeError) as error:
            raise SystemExit(f"bench: {error}") from None
        except (KeyboardInterrupt, SystemExit):
            tell(bench.report(), as_json=as_json)
            raise
    tell(report, as_json=as_json)
    if not quick and not report.is_met:
        raise typer.Exit(1)


def workloads(names: str) -> tuple[str, ...]:
    """Empty for all of them."""
    asked = tuple(filter(None, names.split(",")))
    for name in asked:
        one = Settings(only=(name,))
        if name != "none" and not one.reads and not one.writes:
            there_are = ", ".join(
                [read.name for read in Settings().reads] + [write.name for write in Settings().writes]
            )
            raise typer.BadParameter(f"no workload begins with {name!r}; there are {there_are}")
    return asked


def chosen(names: str) -> tuple[str, ...]:
    """The disk first: it is what the others are checked against."""
    asked = names.split(",")
    if unknown := set(asked) - set(CONTENDERS):
        raise typer.BadParameter(f"there is no contender {unknown.pop()!r}; there are {ALL}")
    return tuple(name for name in CONTENDERS if name in asked)
