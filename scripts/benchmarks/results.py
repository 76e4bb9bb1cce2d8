"""Results of `bench mount`: rows with a verdict, and their output. Pure, except for printing.

A row exists only if all contenders proved that they did the same work. Ratios are ratios of medians. A demand
compares GroveFS with one other contender of the same row.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from .reads import Failed, Proof

OURS = "grovefs"


@dataclass(frozen=True)
class Demand:
    """GroveFS may need at most `bound` times as long as `versus`."""

    versus: str
    bound: float

    def __str__(self) -> str:
        bound = f"1/{1 / self.bound:g}" if self.bound < 1 else f"{self.bound:g}"
        return f"{bound}× {self.versus}"


FASTER_THAN_BINDFS = Demand("bindfs", 1.0)
FAR_FROM_PLAIN = Demand("passthrough", 1 / 3)
AS_A_SAVE = [Demand("store", 1.3)]

DEMANDS: dict[tuple[str, str], list[Demand]] = {
    ("find", "warm"): [Demand("native", 1.3), FASTER_THAN_BINDFS, FAR_FROM_PLAIN],
    ("ls -lR", "warm"): [Demand("native", 1.2), FASTER_THAN_BINDFS, FAR_FROM_PLAIN],
    ("grep -r", "warm"): [Demand("native", 2.5), FASTER_THAN_BINDFS, FAR_FROM_PLAIN],
    ("rg", "warm"): [Demand("native", 3), FASTER_THAN_BINDFS],
    ("rsync -a", "warm"): [Demand("native", 3)],
    ("rsync idle", "warm"): [Demand("native", 2), FASTER_THAN_BINDFS],
    ("tar", "warm"): [Demand("native", 2.5), FASTER_THAN_BINDFS],
    ("cat", "warm"): [Demand("native", 1.2), FASTER_THAN_BINDFS],
    ("find", "cold"): [Demand("native", 2.5)],
    ("grep -r", "cold"): [Demand("native", 2.5)],
    ("tar", "cold"): [Demand("native", 2.5)],
    ("cat", "cold"): [Demand("native", 1.6)],
    ("edit in place", "write"): AS_A_SAVE,
    ("temp and rename", "write"): AS_A_SAVE,
    ("create", "write"): AS_A_SAVE,
}


@dataclass
class Samples:
    """The runs of one workload on one contender."""

    times_ms: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    requests: list[Counter[str]] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)

    def add(self, time_ms: float, cpu_s: float, requests: Counter[str] | None, proof: Proof) -> None:
        self.times_ms.append(time_ms)
        self.cpu_s.append(cpu_s)
        self.proofs.append(proof)
        if requests is not None:
            self.requests.append(requests)


@dataclass(frozen=True)
class Row:
    """One workload on all contenders. Times are medians in milliseconds."""

    workload: str
    cache: str  # warm, cold, or write
    rounds: int
    times_ms: dict[str, float]
    cpu_ms: dict[str, float]  # of the daemon, per run
    requests: dict[str, float] | None  # that reached GroveFS, per run
    files: int
    bytes: int

    def ratio(self, to: str, of: str = OURS) -> float | None:
        if of not in self.times_ms or to not in self.times_ms:
            return None
        return self.times_ms[of] / self.times_ms[to]

    @property
    def demands(self) -> list[tuple[Demand, float]]:
        """The demands whose contenders took part, each with its ratio."""
        found = [(demand, self.ratio(demand.versus)) for demand in DEMANDS.get((self.workload, self.cache), [])]
        return [(demand, ratio) for demand, ratio in found if ratio is not None]

    @property
    def missed(self) -> list[str]:
        return [f"{ratio:.2g}× {d.versus}" for d, ratio in self.demands if ratio > d.bound]

    @property
    def verdict(self) -> str:
        if not self.demands:
            return ""
        if self.missed:
            return "no: " + ", ".join(self.missed)
        return "yes"


@dataclass(frozen=True)
class Fact:
    """A measurement of a daemon, with an optional upper bound."""

    what: str
    value: float
    unit: str
    bound: float | None = None

    @property
    def verdict(self) -> str:
        return "" if self.bound is None else "yes" if self.value <= self.bound else "no"


@dataclass(frozen=True)
class Report:
    rows: list[Row]
    facts: list[Fact]
    machine: dict[str, Any]
    failures: list[str] = field(default_factory=list)  # the reasons why workloads have no row

    @property
    def is_met(self) -> bool:
        return (
            not self.failures
            and not any(row.missed for row in self.rows)
            and not any(fact.verdict == "no" for fact in self.facts)
        )


def row_of(workload: str, cache: str, samples: dict[str, Samples]) -> Row:
    """The medians of a workload, after checking that all contenders did the same work in every round."""
    check_proofs(workload, samples)
    proof = next(iter(samples.values())).proofs[-1]
    return Row(
        workload,
        cache,
        rounds=min(len(s.times_ms) for s in samples.values()),
        times_ms={name: statistics.median(s.times_ms) for name, s in samples.items()},
        cpu_ms={name: statistics.fmean(s.cpu_s) * 1e3 for name, s in samples.items()},
        requests=median_requests(samples[OURS].requests) if OURS in samples and samples[OURS].requests else None,
        files=proof.files,
        bytes=proof.bytes,
    )


def check_proofs(workload: str, samples: dict[str, Samples]) -> None:
    """Compare files and bytes of every contender with the first one, the disk, round by round."""
    first = next(iter(samples))
    for name, other in samples.items():
        for number, (wanted, found) in enumerate(zip(samples[first].proofs, other.proofs, strict=True), 1):
            if wanted != found:
                raise Failed(
                    f"{workload}, round {number}: {name} saw {found.files:,} files and {found.bytes:,} bytes where "
                    f"{first} saw {wanted.files:,} and {wanted.bytes:,} ({found.digest[:8]}, {wanted.digest[:8]})"
                )


def median_requests(counted: list[Counter[str]]) -> dict[str, float]:
    names = {name for counts in counted for name in counts}
    medians = {name: statistics.median(counts[name] for counts in counted) for name in sorted(names)}
    return {name: value for name, value in medians.items() if value}


# -- output ---------------------------------------------------------------------------------------------


def print_report(report: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(as_data(report), indent=2))
        return
    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else 190, highlight=False)
    tables = [main_table(report.rows, boxed=is_terminal), fact_table(report.facts, boxed=is_terminal)]
    for table in tables:
        if table.row_count:
            console.print(table)
            console.print()
    for failure in report.failures:
        console.print(f"not compared: {failure}", soft_wrap=True)
    console.print(", ".join(f"{k} {v}" for k, v in report.machine.items()), soft_wrap=True)


def as_data(report: Report) -> dict[str, Any]:
    rows = [
        {
            **vars(row),
            "ratios_to_native": {name: row.ratio("native", name) for name in row.times_ms},
            "demands": [
                {"versus": d.versus, "at_most": d.bound, "ratio": ratio, "met": ratio <= d.bound}
                for d, ratio in row.demands
            ],
        }
        for row in report.rows
    ]
    facts = [{**vars(fact), "met": {"yes": True, "no": False}.get(fact.verdict)} for fact in report.facts]
    return {"rows": rows, "facts": facts, "failures": report.failures, "machine": report.machine, "met": report.is_met}


def main_table(rows: list[Row], *, boxed: bool = False) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row.times_ms))
    table = Table(box=Table().box if boxed else None, pad_edge=False)
    table.add_column("workload")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    for heading in ("requests", "CPU"):
        table.add_column(heading, justify="right")
    table.add_column("at most")
    table.add_column("met")
    for row in rows:
        requests = "" if row.requests is None else f"{sum(row.requests.values()):,.0f}"
        cpu = f"{row.cpu_ms[OURS]:,.0f} ms" if OURS in row.cpu_ms else ""
        demands = ", ".join(str(demand) for demand, _ in row.demands)
        times = [time_cell(row, name) for name in names]
        table.add_row(row.workload, row.cache, *times, requests, cpu, demands, row.verdict)
    return table


def line_of(row: Row) -> str:
    """A row as one line, printed before the whole table."""
    cells = ", ".join(f"{name} {time_cell(row, name)}" for name in row.times_ms)
    return f"{row.workload}, {row.cache}: {cells}  {row.verdict}".rstrip()


def time_cell(row: Row, name: str) -> str:
    """Milliseconds, and the ratio to the disk."""
    if name not in row.times_ms:
        return ""
    time_ms, ratio = row.times_ms[name], row.ratio("native", name)
    text = f"{time_ms:,.0f} ms" if time_ms >= 100 else f"{time_ms:.3g} ms"
    return text if name == "native" or ratio is None else f"{text} {ratio:>5.2f}×"


def fact_table(facts: list[Fact], *, boxed: bool = False) -> Table:
    table = Table(box=Table().box if boxed else None, pad_edge=False)
    for heading in ("daemon", "", "at most", "met"):
        table.add_column(heading, justify="right" if heading == "" else "left")
    for fact in facts:
        bound = "" if fact.bound is None else f"{fact.bound:g} {fact.unit}"
        table.add_row(fact.what, f"{fact.value:,.1f} {fact.unit}", bound, fact.verdict)
    return table
