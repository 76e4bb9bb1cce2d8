"""Numbers as people read them. Pure."""

from __future__ import annotations


def short(value: float) -> str:
    """A number with two or three digits, rounded: 1,234 is 1.2k and 999,960 is 1.0M."""
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= limit * 0.9995:
            scaled = value / limit
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}" if value == int(value) else f"{value:.2g}"


def money(value: float | None) -> str:
    """A cost; two decimals, or two significant digits below ten cents. Empty if it is unknown."""
    if value is None:
        return ""
    return f"{value:,.2f}" if value >= 0.1 or value == 0 else f"{value:.2g}"
