"""The command `bench mount`: arguments and exit code. benchmarks/mount.py does the work."""

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
from benchmarks.results import print_report
from rich.console import Console
from rich.progress import Progress

ALL = ",".join(CONTENDERS)


def bench_mount(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Use a small tree and two rounds; takes about a minute and judges no targets."),
    ] = False,
    only: Annotated[str, typer.Option(help="Workloads to run, by the start of their names: find,ls,…; or none.")] = "",
    contenders: Annotated[str, typer.Option(help="Filesystems to compare; ratios need native.")] = ALL,
    cache: Annotated[Literal["warm", "cold", "both"], typer.Option(help="Cache state of the read workloads.")] = "both",
    rounds: Annotated[int | None, typer.Option(min=1, help="Runs of each contender; 5 by default.")] = None,
    roots: Annotated[int | None, typer.Option(min=10, help="Number of root sessions; 2,000 by default.")] = None,
    scale: Annotated[
        int, typer.Option(help="Also measure memory with this number of sessions, e.g. 20000.", min=0)
    ] = 0,
    mount_options: Annotated[str, typer.Option(help="More options for `grovefs mount`, as one string.")] = "",
    parent: Annotated[
        Path, typer.Option("--dir", help="Directory for temporary files; must be on a real disk.")
    ] = Path("/var/tmp"),
) -> None:
    """Measure reading and writing through the mount, compared with the disk, bindfs and a plain pass-through.

    All contenders serve the same files and take turns. A ratio is printed only if all saw the same files and bytes.
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
            print_report(bench.report(), as_json=as_json)
            raise
    print_report(report, as_json=as_json)
    if not quick and not report.is_met:
        raise typer.Exit(1)


def workloads(names: str) -> tuple[str, ...]:
    """Parse --only; empty means all workloads."""
    asked = tuple(filter(None, names.split(",")))
    for name in asked:
        one = Settings(only=(name,))
        if name != "none" and not one.reads and not one.writes:
            there_are = ", ".join(
                [read.name for read in Settings().reads] + [write.name for write in Settings().writes]
            )
            raise typer.BadParameter(f"no workload begins with {name!r}; expected one of {there_are}")
    return asked


def chosen(names: str) -> tuple[str, ...]:
    """Parse --contenders. The disk comes first: the others are checked against it."""
    asked = names.split(",")
    if unknown := set(asked) - set(CONTENDERS):
        raise typer.BadParameter(f"no contender {unknown.pop()!r}; expected some of {ALL}")
    return tuple(name for name in CONTENDERS if name in asked)
