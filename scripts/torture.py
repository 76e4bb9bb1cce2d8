"""Run the attacks of tests/torture/, one per processor at a time, and report each failure and how to repeat it."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.torture.attack import Attack, Failure, Tally
from tests.torture.attacks import ATTACKS, DEFAULT_MINUTES
from tests.torture.runner import run_all

LINE_EVERY_S = 60.0  # between progress lines where there is no terminal

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Screen:
    """Progress output: a line for each running attack, one for each finished attack, and all failures."""

    def __init__(self, seed: int, console: Console) -> None:
        self.seed, self.console = seed, console
        # No refresh thread: attacks are forked from this process.
        line = TextColumn("{task.description}", markup=False)
        self.progress = Progress(line, console=console, transient=True, auto_refresh=False)
        self.tasks: dict[str, TaskID] = {}
        self.next_s = time.monotonic() + LINE_EVERY_S  # when the next progress line is due

    def started(self, attack: Attack) -> None:
        self.tasks[attack.name] = self.progress.add_task(f"{attack.name}: {attack.about}", total=None)
        self.progress.refresh()

    def progressed(self, tally: Tally, now: str) -> None:
        line = f"{tally.attack}: {tally.cases:,} cases, {now}"
        self.progress.update(self.tasks[tally.attack], description=line[: self.console.width - 1])
        self.progress.refresh()
        if not self.console.is_terminal and time.monotonic() > self.next_s:
            self.next_s = time.monotonic() + LINE_EVERY_S
            self.console.print("; ".join(task.description for task in self.progress.tasks), markup=False)

    def failed(self, failure: Failure) -> None:
        self.console.print(f"[red]{failure.attack}: {failure.case} failed[/red]", highlight=False)
        self.console.print(failure.how, markup=False, highlight=False)
        self.console.print(
            f"repeat: {failure.repeat_command(self.seed)}\n", markup=False, highlight=False, soft_wrap=True
        )

    def ended(self, tally: Tally) -> None:
        self.progress.remove_task(self.tasks.pop(tally.attack))
        line = f"{tally.attack}: {tally.cases:,} cases in {tally.seconds:.0f} s, {_how_far(tally)}"
        self.console.print(line, highlight=False)


def _how_far(tally: Tally) -> str:
    if tally.is_endless:
        return "endless"
    return "complete" if tally.is_complete else "out of time"


def print_report(tallies: list[Tally], seed: int) -> None:
    table = Table("attack", "cases", "seconds", "complete", "failed", title=f"seed {seed}")
    for tally in tallies:
        complete = _how_far(tally).replace("complete", "yes")
        table.add_row(
            tally.attack, f"{tally.cases:,}", f"{tally.seconds:.0f}", complete, str(len(tally.failures) or "none")
        )
    Console().print(table)


@app.command()
def torture(
    attacks: Annotated[list[str] | None, typer.Argument(help="Attacks to run; all by default.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same cases; random by default, and printed.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Time for all attacks together.")] = DEFAULT_MINUTES,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Attacks to run at the same time; one per processor by default.")
    ] = None,
    case: Annotated[str | None, typer.Option(help="Run only the case with this name.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    names: Annotated[bool, typer.Option("--list", help="List the attacks.")] = False,
) -> None:
    """Attack GroveFS with crashes, errors, hostile input and load. Each failure prints the command to repeat it."""
    unknown = set(attacks or ()) - {attack.name for attack in ATTACKS}
    if unknown:
        raise typer.BadParameter(f"unknown attack {', '.join(sorted(unknown))}; --list lists them")
    chosen = [attack for attack in ATTACKS if not attacks or attack.name in attacks]
    if names:
        for attack in chosen:
            print(f"{attack.name:16} {attack.about}")
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # lets attacks unmount
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    jobs = jobs or os.cpu_count() or 1
    screen = Screen(seed, Console(stderr=True))
    screen.console.print(f"seed {seed}, {jobs} at a time", highlight=False)
    with screen.progress:
        tallies = run_all(chosen, seed, minutes * 60, case, jobs, screen)
    if as_json:
        report = {"seed": seed, "jobs": jobs, "minutes": minutes, "attacks": [asdict(tally) for tally in tallies]}
        print(json.dumps(report))
    else:
        print_report(tallies, seed)
    raise typer.Exit(1 if any(tally.failures for tally in tallies) else 0)


if __name__ == "__main__":
    app()
