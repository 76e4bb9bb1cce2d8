"""Days grouped for a chart. Pure.

Every day is on the axis, also those without activity; if there are many, columns are weeks or months.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Literal, NamedTuple

from store.search.usage import NO_DAY, Usage, UsageTotals

MAX_COLUMNS = 100
Step = Literal["day", "week", "month"]


class ChartColumn(NamedTuple):
    """One column: a day, or the week or month that starts on it."""

    start: date
    used: UsageTotals


class Periods(NamedTuple):
    step: Step
    columns: list[ChartColumn]


_STARTS: dict[Step, Callable[[date], date]] = {
    "day": lambda day: day,
    "week": lambda day: day - timedelta(days=day.weekday()),
    "month": lambda day: day.replace(day=1),
}


def group_days(usage: Usage) -> Periods:
    """All days from the first to the last; grouped if that is more than a chart can show."""
    days = [(date.fromisoformat(day), used) for day, used in usage.every_day().items() if day != NO_DAY]
    step: Step = "day" if len(days) <= MAX_COLUMNS else "week" if len(days) <= 7 * MAX_COLUMNS else "month"
    grouped: dict[date, UsageTotals] = {}
    for day, used in days:
        grouped.setdefault(_STARTS[step](day), UsageTotals()).add(used)
    return Periods(step, [ChartColumn(start, used) for start, used in grouped.items()])
