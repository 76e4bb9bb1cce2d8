"""Charts of the command line: bars on a terminal, and all charts as an SVG file. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files

from fusefs.views.html.charts import render_file
from fusefs.views.html.dashboard import Chart

WIDTH = 40  # characters of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bars(values: Mapping[str, float], width: int = WIDTH, show: Callable[[float], str] | None = None) -> Iterator[str]:
    """One line per value: name, bar to scale, number. Every value above zero gets a visible bar."""
    longest = max(values.values(), default=0)
    names = max(map(len, values), default=0)
    for name, value in values.items():
        yield f"{name:<{names}}  {_bar(value, longest, width):<{width}}  {show(value) if show else f'{value:.0f}'}"


def _bar(value: float, longest: float, width: int) -> str:
    if value <= 0:
        return ""
    eighths = max(1, round(value * width * 8 / longest))
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def svg(charts: Sequence[Chart], title: str) -> str:
    """All charts below each other, readable on light and dark backgrounds."""
    return render_file(charts, title, files("fusefs.views.html").joinpath("chart.css").read_text())
