"""Bar charts of named numbers, as terminal lines or an SVG image. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from fusefs.cli.png import short

WIDTH = 40  # characters of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR, _GAP, _HEIGHT, _MARGIN = 24, 6, 160, 48  # of the image, in pixels


def bars(values: Mapping[str, int], width: int = WIDTH) -> Iterator[str]:
    """One line per value: name, bar to scale, number. Every value above zero gets a visible bar."""
    longest = max(values.values(), default=0)
    names = max(map(len, values), default=0)
    for name, value in values.items():
        yield f"{name:<{names}}  {_bar(value, longest, width):<{width}}  {value}"


def _bar(value: int, longest: int, width: int) -> str:
    if value <= 0:
        return ""
    eighths = max(1, value * width * 8 // longest)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def svg(values: Mapping[str, int], title: str) -> str:
    """Vertical bars, each with its number above and its name below."""
    longest = max(values.values(), default=0) or 1
    width = max(240, 2 * _MARGIN + len(values) * (_BAR + _GAP))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT + 3 * _MARGIN}" '
        'font-family="sans-serif" font-size="10">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_MARGIN}" y="24" font-size="14">{escape(title)}</text>',
    ]
    for place, (name, value) in enumerate(values.items()):
        parts += _upright(_MARGIN + place * (_BAR + _GAP), name, value, longest)
    return "\n".join([*parts, "</svg>", ""])


def _upright(x: int, name: str, value: int, longest: int) -> list[str]:
    height = value * _HEIGHT / longest
    bottom, middle = _MARGIN + _HEIGHT, x + _BAR / 2
    return [
        f'<rect x="{x}" y="{bottom - height:.1f}" width="{_BAR}" height="{height:.1f}" fill="#3a7d44">'
        f"<title>{escape(name)}: {value}</title></rect>",
        f'<text x="{middle}" y="{bottom - height - 4:.1f}" text-anchor="middle" font-size="8">{short(value)}</text>',
        f'<text transform="translate({middle + 3},{bottom + 8}) rotate(90)">{escape(name)}</text>',
    ]
