"""What the statistics show, as charts to draw: SVG in `charts`, PNG in `fusefs.cli.png`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Literal, NamedTuple

from fusefs.views.html.numbers import money, short
from fusefs.views.html.periods import Step, group_days
from store.search.usage import SessionUsage, Usage, UsageTotals

Quantity = Literal["tokens", "messages", "sessions", "cost"]
Format = Callable[[float], str]
TOP = 10  # models, projects and sessions
_KINDS = {  # parts of a column of tokens, from the bottom up
    "output": "output_tokens",
    "input": "input_tokens",
    "read from cache": "cache_read_input_tokens",
    "written to cache": "cache_creation_input_tokens",
}


class Column(NamedTuple):
    """A column of stacked parts, from the bottom up."""

    name: str
    parts: Sequence[float]


class ColumnChart(NamedTuple):
    """Columns over time."""

    title: str
    columns: Sequence[Column]
    kinds: Sequence[str]  # names of the parts; empty if a column has only one
    show: Format


class BarChart(NamedTuple):
    """A bar per name, the longest first."""

    title: str
    values: Mapping[str, float]
    show: Format


class HourChart(NamedTuple):
    """Messages by weekday (Monday = 0) and hour."""

    title: str
    counts: Mapping[tuple[int, int], int]


Chart = ColumnChart | BarChart | HourChart


def value_of(used: UsageTotals, what: Quantity) -> float:
    if what == "cost":
        return used.cost or 0.0
    return {"tokens": used.total, "messages": used.messages, "sessions": used.sessions}[what]


def describe_usage(usage: Usage, what: Quantity = "tokens") -> Iterator[Chart]:
    """All charts: the quantity, and the cost if one is known, by time, model and project; hours; sessions."""
    has_cost = usage.total().cost is not None and what != "cost"
    quantities: list[Quantity] = [what, "cost"] if has_cost else [what]
    for quantity in quantities:
        yield _over_time(usage, quantity)
    for quantity in quantities:
        yield _by_name(usage.by_model(), quantity, "model")
        yield _by_name(usage.by_project(), quantity, "project")
    yield HourChart("Messages by weekday and hour", usage.by_hour)
    yield _by_session("Longest sessions, in messages", usage.longest, lambda one: one.messages, short)
    if any(one.used.cost for one in usage.costliest):
        yield _by_session("Most expensive sessions", usage.costliest, lambda one: one.used.cost or 0.0, money)
    else:
        yield _by_session("Sessions with the most tokens", usage.costliest, lambda one: one.used.total, short)


def _over_time(usage: Usage, what: Quantity) -> ColumnChart:
    """Columns by day, week or month. Tokens are stacked by kind."""
    step, periods = group_days(usage)
    total = usage.total()
    kinds = {name: key for name, key in _KINDS.items() if what == "tokens" and total.tokens[key]}
    columns = []
    for start, used in periods:
        parts = [float(used.tokens[key]) for key in kinds.values()] if kinds else [value_of(used, what)]
        columns.append(Column(_name(start, step), parts))
    title = f"{what.capitalize()} by {step}"
    return ColumnChart(title, columns, [*kinds] if len(kinds) > 1 else [], _format(what))


def _by_name(totals: Mapping[str, UsageTotals], what: Quantity, kind: str) -> BarChart:
    """The largest first; the rest as one bar."""
    values = sorted(((name, value_of(used, what)) for name, used in totals.items()), key=lambda item: -item[1])
    shown = {name or f"(no {kind})": value for name, value in values[:TOP] if value > 0}
    rest = sum(value for _, value in values[TOP:])
    if rest:
        shown[f"{len(values) - TOP} others"] = rest
    return BarChart(f"{what.capitalize()} by {kind}", shown, _format(what))


def _by_session(
    title: str, sessions: Sequence[SessionUsage], value: Callable[[SessionUsage], float], show: Format
) -> BarChart:
    shown: dict[str, float] = {}
    for one in sessions:
        if value(one) > 0:
            name = one.title or str(one.location)
            shown[name if name not in shown else f"{name} ({one.location})"] = value(one)
    return BarChart(title, shown, show)


def _format(what: Quantity) -> Format:
    return money if what == "cost" else short


def _name(start: date, step: Step) -> str:
    return f"{start:%Y-%m}" if step == "month" else start.isoformat()
