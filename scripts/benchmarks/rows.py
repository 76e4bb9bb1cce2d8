"""Comparisons of two sides measured in turn, and their result table."""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Target:
    bound: float
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:,g}"


@dataclass(frozen=True)
class Row:
    """One line of the table. The target applies to the ratio, or to `ours` if there is no ratio."""

    workload: str
    ours: float
    unit: str = "ms"
    versus: str = ""
    theirs: float | None = None
    ratio: float | None = None
    target: Target | None = None
    samples: int = 1
    spread: tuple[float, float] | None = None  # 10th and 90th percentile of ours
    faster: bool = False  # the ratio is theirs/ours: how many times faster we are

    @property
    def met(self) -> bool | None:
        return self.target.is_met(self.ours if self.ratio is None else self.ratio) if self.target else None


def compare(
    workload: str,
    ours: Callable[[], float],
    versus: str,
    theirs: Callable[[], float],
    target: Target | None,
    rounds: int,
    *,
    faster: bool = False,
    burst: int = 1,
) -> Row:
    """Run both sides in turn, alternating the first. Each side times itself, excluding its set-up.

    The ratio is ours to theirs; with `faster`, theirs to ours. `burst` is the number of runs per turn: more
    than one where a long run of one side slows down the first run of the other.
    """
    gc.collect()
    mine: list[float] = []
    other: list[float] = []
    for i in range(rounds + 2):  # the first two rounds are warm-up
        for side, samples in [(ours, mine), (theirs, other)][:: 1 if i % 2 else -1]:
            samples += [side() for _ in range(burst)]
    a, b = statistics.median(mine[2 * burst :]), statistics.median(other[2 * burst :])
    deciles = statistics.quantiles(mine[2 * burst :], n=10)
    ratio = b / a if faster else a / b
    return Row(workload, a, "ms", versus, b, ratio, target, rounds, (deciles[0], deciles[-1]), faster=faster)


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """Wrap a call into one that returns its duration in milliseconds."""

    def run() -> float:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3

    return run


def print_report(rows: list[Row], machine: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"rows": [{**asdict(r), "met": r.met} for r in rows], "machine": machine}, indent=2))
        return
    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else 170, highlight=False)
    table = Table(box=Table().box if is_terminal else None, pad_edge=False)
    for heading in ("workload", "ours", "compared with", "", "ratio", "target", "met"):
        table.add_column(heading, justify="left" if heading in ("workload", "compared with", "met") else "right")
    for row in rows:
        theirs = "" if row.theirs is None else f"{row.theirs:,.2f} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio:,.3g}{'× faster' if row.faster else ''}"
        met = "" if row.met is None else "yes" if row.met else "no"
        table.add_row(
            row.workload,
            f"{row.ours:,.{0 if row.ours >= 1_000 else 2}f} {row.unit}",
            row.versus,
            theirs,
            ratio,
            str(row.target or ""),
            met,
        )
    console.print(table)
    console.print(", ".join(f"{k} {v}" for k, v in machine.items()), soft_wrap=True)
