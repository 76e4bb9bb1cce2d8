"""Charts as SVG: columns over time, bars, and activity by weekday and hour. Pure.

Colours and fonts are in chart.css, which a page includes and a file embeds. Every mark has a title with its exact
number, for the pointer and for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from fusefs.views.html.dashboard import BarChart, Chart, Column, ColumnChart, Format, HourChart

WIDTH = 960
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 12, 28  # around the columns
_COLUMNS, _BAR, _CELL = 230, 28, 26  # heights of the columns, of a bar and of an hour


class Drawing(NamedTuple):
    """The inside of an svg element, and its height. The width is WIDTH."""

    marks: str
    height: int

    def element(self, label: str) -> str:
        """The drawing inside a page."""
        return (
            f'<svg class="chart" role="img" aria-label="{escape(label)}" viewBox="0 0 {WIDTH} {self.height}">'
            f"{self.marks}</svg>"
        )


def draw(chart: Chart) -> Drawing:
    """A chart without its title."""
    if isinstance(chart, HourChart):
        return _draw_hours(chart.counts)
    if isinstance(chart, BarChart):
        marks = "".join(part for row in enumerate(chart.values.items()) for part in _bar(chart, *row))
        return Drawing(marks, _BAR * max(1, len(chart.values)))
    legend = f'<g transform="translate(0 {_COLUMNS + 2})">{"".join(_legend(chart.kinds))}</g>' if chart.kinds else ""
    return Drawing("".join(_columns(chart)) + legend, _COLUMNS + (24 if legend else 0))


def render_file(charts: Iterable[Chart], title: str, style: str) -> str:
    """Charts below each other with headings, as an SVG file."""
    inside, y = [_text(24, 40, title, "start", "title")], 64
    for chart in charts:
        drawing = draw(chart)
        inside.append(_text(24, y + 16, chart.title, "start", "heading"))
        inside.append(f'<g transform="translate(24 {y + 34})">{drawing.marks}</g>')
        y += drawing.height + 64
    width, height = WIDTH + 48, y + 8
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{style}</style>"]
    parts += ['<rect class="ground" width="100%" height="100%"/>', *inside, "</svg>", ""]
    return "\n".join(parts)


# -- columns -----------------------------------------------------------------------------------------


def _columns(chart: ColumnChart) -> Iterator[str]:
    """Columns over a scale with round numbers; names below, as many as fit."""
    scale = ticks(max((sum(column.parts) for column in chart.columns), default=0))
    yield from _grid(scale, chart.show)
    step = (WIDTH - _LEFT - _RIGHT) / max(len(chart.columns), 1)
    every = max(1, math.ceil(len(chart.columns) / 10))
    for place, column in enumerate(chart.columns):
        x = _LEFT + place * step
        yield from _stack(column, x, step, scale[-1], chart.show)
        if place % every == 0:
            yield _text(x + step / 2, _COLUMNS - 8, column.name, "middle")


def ticks(top: float) -> list[float]:
    """Round numbers from zero to at least `top`, in three to five steps."""
    if top <= 0:
        return [0.0, 1.0]
    unit = 10.0 ** math.floor(math.log10(top / 5))
    step = next(unit * factor for factor in (1, 2, 5, 10, 20) if top / (unit * factor) <= 5)
    return [step * place for place in range(math.ceil(top / step - 1e-9) + 1)]


def _grid(scale: Sequence[float], show: Format) -> Iterator[str]:
    for value in scale:
        y = _TOP + (_COLUMNS - _TOP - _BOTTOM) * (1 - value / scale[-1])
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(_LEFT - 8, y + 4, show(value), "end")


def _stack(column: Column, x: float, step: float, top: float, show: Format) -> Iterator[str]:
    """The parts of one column. A part above zero is at least one pixel high."""
    room = _COLUMNS - _TOP - _BOTTOM
    width, bottom = max(0.5, min(step * 0.78, 90)), float(_TOP + room)
    left = x + (step - width) / 2
    yield f"<g><title>{escape(_printable(column.name))}: {show(sum(column.parts))}</title>"
    yield f'<rect class="hit" x="{x:.2f}" y="{_TOP}" width="{step:.2f}" height="{room}"/>'
    for number, value in enumerate(column.parts):
        if value > 0:
            tall = max(1.0, room * value / top)
            bottom -= tall
            size = f'width="{width:.2f}" height="{tall:.2f}"'
            yield f'<rect class="part{number}" x="{left:.2f}" y="{bottom:.2f}" {size}/>'
    yield "</g>"


def _legend(kinds: Sequence[str]) -> Iterator[str]:
    x = float(_LEFT)
    for number, name in enumerate(kinds):
        yield f'<rect class="part{number}" x="{x:.1f}" y="4" width="12" height="12" rx="2"/>'
        yield _text(x + 18, 14, name)
        x += 34 + 7.2 * len(name)


# -- bars and hours ------------------------------------------------------------------------------------


def _bar(chart: BarChart, place: int, item: tuple[str, float]) -> Iterator[str]:
    """A row: name, bar, number."""
    (name, value), left, y = item, 250, place * _BAR
    longest = max(chart.values.values())
    width = max(1.0, (WIDTH - left - 90) * value / longest) if value > 0 else 0.0
    yield f"<g><title>{escape(_printable(name))}: {escape(chart.show(value))}</title>"
    yield _text(left - 10, y + _BAR / 2 + 4, _clip(name, 34), "end", "name")
    yield f'<rect class="part0" x="{left}" y="{y + 4.5}" width="{width:.1f}" height="{_BAR - 9}" rx="3"/>'
    yield f"{_text(left + width + 8, y + _BAR / 2 + 4, chart.show(value))}</g>"


def _draw_hours(counts: Mapping[tuple[int, int], int]) -> Drawing:
    """Weekdays down, hours across; the more messages, the stronger the colour."""
    most = max(counts.values(), default=0)
    wide = (WIDTH - _LEFT - _RIGHT) / 24
    marks = [_text(_LEFT - 8, day * _CELL + 17, name, "end") for day, name in enumerate(WEEKDAYS)]
    for day, name in enumerate(WEEKDAYS):
        for hour in range(24):
            count = counts.get((day, hour), 0)
            level = 0 if not count else math.ceil(4 * math.sqrt(count / most))
            place = (
                f'x="{_LEFT + hour * wide:.1f}" y="{day * _CELL}" width="{wide - 2:.1f}" height="{_CELL - 2}" rx="3"'
            )
            title = f"{name} {hour}:00–{hour + 1}:00: {count:,} message{'' if count == 1 else 's'}"
            marks.append(f'<rect class="heat{level}" {place}><title>{title}</title></rect>')
    for hour in range(0, 24, 3):
        marks.append(_text(_LEFT + (hour + 0.5) * wide - 1, 7 * _CELL + 16, f"{hour}:00", "middle"))
    return Drawing("".join(marks), 7 * _CELL + 24)


# -- text --------------------------------------------------------------------------------------------


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(_printable(text))}</text>'


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _printable(text: str) -> str:
    """XML has no control characters, surrogates or non-characters."""
    return "".join(c if c.isprintable() and ord(c) & 0xFFFE != 0xFFFE else " " for c in text)
