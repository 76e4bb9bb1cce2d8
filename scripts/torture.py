"""Run the attacks of tests/torture/, each in its share of the time, and tell what fell and how to see it again."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.torture.attack import Attack, Case
from tests.torture.attacks import ATTACKS

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
console = Console(stderr=True)


@dataclass
class Tally:
    attack: str
    cases: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    is_complete: bool = False  # nothing was left to try


def attempt(attack: Attack, case: Case, seed: int, tally: Tally) -> None:
    tally.cases += attack.cases_at_once
    try:
        case.run()
    except Exception:
        tally.failures.append(case.name)
        console.print(f"[red]{attack.name}: {case.name} fell[/red]", highlight=False)
        console.print(traceback.format_exc(), markup=False, highlight=False)
        console.print(f"again: scripts/torture {attack.name} --seed {seed} --case '{case.name}'\n", highlight=False)


def run_attack(attack: Attack, seed: int, seconds: float, only: str | None, progress: Progress) -> Tally:
    tally, began = Tally(attack.name), time.monotonic()
    task = progress.add_task(f"{attack.name}: {attack.about}", total=seconds)
    stream = attack.cases(seed)
    try:
        for case in stream:
            if only is None or case.name == only:
                attempt(attack, case, seed, tally)
            spent = time.monotonic() - began
            progress.update(task, completed=min(spent, seconds), description=f"{attack.name}: {tally.cases:,} cases")
            if case.name == only or (only is None and spent > seconds):
                break
        else:
            tally.is_complete = True
    finally:
        getattr(stream, "close", lambda: None)()
    tally.seconds = time.monotonic() - began
    progress.update(task, completed=seconds)
    return tally


def tell(tallies: list[Tally], seed: int) -> None:
    table = Table("attack", "cases", "seconds", "complete", "fell", title=f"seed {seed}")
    for tally in tallies:
        complete = "yes" if tally.is_complete else "time was up"
        table.add_row(
            tally.attack, f"{tally.cases:,}", f"{tally.seconds:.0f}", complete, str(len(tally.failures) or "none")
        )
    Console().print(table)


@app.command()
def torture(
    attacks: Annotated[list[str] | None, typer.Argument(help="Which; all without.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed, the same cases. Drawn and printed without.")] = None,
    minutes: Annotated[float, typer.Option(help="For all together.")] = 30.0,
    case: Annotated[str | None, typer.Option(help="Only the case of this name.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    names: Annotated[bool, typer.Option("--list", help="What there is.")] = False,
) -> None:
    """Attack GroveFS as the world does, harder. Every failure tells how to see it again."""
    unknown = set(attacks or ()) - {attack.name for attack in ATTACKS}
    if unknown:
        raise typer.BadParameter(f"no attack is called {', '.join(sorted(unknown))}; --list shows them")
    chosen = [attack for attack in ATTACKS if not attacks or attack.name in attacks]
    if names:
        for attack in chosen:
            print(f"{attack.name:14} {attack.about}")
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # attacks take their mounts away
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    console.print(f"seed {seed}", highlight=False)
    tallies: list[Tally] = []
    ends = time.monotonic() + minutes * 60
    with Progress(console=console, transient=True) as progress:
        for number, attack in enumerate(chosen):
            wanted = sum(other.minutes for other in chosen[number:])
            share = (ends - time.monotonic()) * attack.minutes / wanted
            tallies.append(run_attack(attack, seed, max(share, 1.0), case, progress))
    if as_json:
        print(json.dumps({"seed": seed, "attacks": [asdict(tally) for tally in tallies]}))
    else:
        tell(tallies, seed)
    raise typer.Exit(1 if any(tally.failures for tally in tallies) else 0)


if __name__ == "__main__":
    app()
