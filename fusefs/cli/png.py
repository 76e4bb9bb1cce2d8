"""The charts of `grovefs stats` as PNG, drawn by matplotlib: the optional extra `charts`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fusefs.views.html.charts import WEEKDAYS
from fusefs.views.html.dashboard import BarChart, Chart, ColumnChart, HourChart
from store.errors import StoreError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#2c6e3a", "#d08a1d", "#a9cdae", "#5b8fc4")
_NAME_CHARS = 40
# The first is part of matplotlib; the others have characters that it lacks.
_FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "Noto Emoji",
)


class NoPictureLibrary(StoreError):
    """matplotlib is not installed."""


def save_png(charts: Sequence[Chart], title: str, path: Path) -> None:
    """Draw the charts below each other."""
    try:
        from matplotlib import rcParams
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.font_manager import fontManager
    except ImportError:
        raise NoPictureLibrary(
            "--png needs matplotlib, and nothing was written: pip install 'grovefs[charts]'. --svg works without it"
        ) from None
    installed = set(fontManager.get_font_names())
    rcParams["font.family"] = [name for name in _FONTS if name in installed]
    heights = [_inches(chart) for chart in charts]
    figure = Figure(figsize=(10, sum(heights) + 0.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=16, x=0.02, ha="left")
    for axes, chart in zip(figure.subplots(len(charts), 1, height_ratios=heights), charts, strict=True):
        _draw(axes, chart)
    with path.open("wb") as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a character that no installed font has is drawn as a box
        figure.savefig(file, format="png")


def _inches(chart: Chart) -> float:
    return 0.6 + 0.28 * max(1, len(chart.values)) if isinstance(chart, BarChart) else 2.6


def _draw(axes: Axes, chart: Chart) -> None:
    if isinstance(chart, ColumnChart):
        _draw_columns(axes, chart)
    elif isinstance(chart, BarChart):
        _draw_bars(axes, chart)
    else:
        _draw_hours(axes, chart)
    axes.set_title(chart.title, loc="left", fontsize=12)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_columns(axes: Axes, chart: ColumnChart) -> None:
    places, names = range(len(chart.columns)), [column.name for column in chart.columns]
    bottom = [0.0] * len(names)
    for number in range(max((len(column.parts) for column in chart.columns), default=0)):
        values = [column.parts[number] for column in chart.columns]
        label = chart.kinds[number] if chart.kinds else None
        axes.bar(places, values, bottom=bottom, color=_COLOURS[number], label=label)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    if chart.kinds:
        axes.legend(frameon=False, ncols=4, fontsize=9)
    every = max(1, math.ceil(len(names) / 8))
    axes.set_xticks([*places][::every], names[::every], fontsize=9)
    axes.yaxis.set_major_formatter(lambda value, _: chart.show(value))


def _draw_bars(axes: Axes, chart: BarChart) -> None:
    names = [_plain(name) for name in chart.values]
    drawn = axes.barh(range(len(names)), [*chart.values.values()], color=_COLOURS[0], height=0.7)
    axes.set_yticks(range(len(names)), names)
    axes.bar_label(drawn, [chart.show(value) for value in chart.values.values()], padding=4)
    axes.invert_yaxis()
    axes.xaxis.set_visible(False)


def _draw_hours(axes: Axes, chart: HourChart) -> None:
    grid = [[chart.counts.get((day, hour), 0) ** 0.5 for hour in range(24)] for day in range(7)]
    axes.imshow(grid, cmap="Greens", aspect="auto")
    axes.set_yticks(range(7), WEEKDAYS)
    axes.set_xticks(range(0, 24, 3), [f"{hour}:00" for hour in range(0, 24, 3)])


def _plain(name: str) -> str:
    """Without characters that the font may lack, and with $ as itself: it begins a formula."""
    shown = "".join(c if c.isprintable() else " " for c in name)[:_NAME_CHARS]
    return shown.replace("$", r"\$")
