"""Usage statistics and charts: stats."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fusefs.cli.app import Home, Json, app, open_store, plural, print_json, print_table
from fusefs.cli.chart import bars, svg
from fusefs.cli.terminal import echo
from store import Timestamp
from store.search.usage import Usage, UsageTotals, parse_prices

DAY_NS = 86_400 * 10**9
What = Literal["tokens", "messages", "sessions"]


@app.command()
def stats(
    home: Home,
    days: Annotated[int, typer.Option("--days", "-d", min=1, help="Number of days, including today.")] = 30,
    everything: Annotated[bool, typer.Option("--all", help="Include all history, including undated records.")] = False,
    what: Annotated[What, typer.Option("--chart", help="Quantity shown in the chart.")] = "tokens",
    prices: Annotated[
        Path | None,
        typer.Option(help='Prices per million tokens, as JSON: {"MODEL": {"input_tokens": 3, "output_tokens": 15}}.'),
    ] = None,
    svg_path: Annotated[Path | None, typer.Option("--svg", help="Write the chart to this file as SVG.")] = None,
    png_path: Annotated[Path | None, typer.Option("--png", help="Write the chart to this file as PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Count new sessions, messages and tokens by day and model.

    Tokens are read from token-usage.jsonl; records copied by a fork count once. Costs are never estimated: one is
    shown only if the record has it, or if the price file covers everything a call used. Days are in UTC. When
    piped, the output is two tab-separated tables with headings, by model and by day, with an empty line between
    them.

    Example: grovefs stats --days 7 --prices prices.json --svg week.svg
    """
    table = parse_prices(prices.read_bytes(), str(prices)) if prices else None
    since = "" if everything else Timestamp.from_ns(time.time_ns() - (days - 1) * DAY_NS)[:10]
    with open_store(home) as store:
        usage = store.usage.totals(since=since, prices=table)
    by_day = {day: _value(used, what) for day, used in usage.by_day().items()}
    if svg_path is not None:
        svg_path.write_text(svg(by_day, f"{what} per day"))
    if png_path is not None:
        from fusefs.cli.png import png

        png_path.write_bytes(png(by_day, f"{what} per day"))
    if as_json:
        print_json(_as_dict(usage))
    else:
        _print(usage, by_day, what)


def _value(used: UsageTotals, what: What) -> int:
    return {"tokens": used.total, "messages": used.messages, "sessions": used.sessions}[what]


_HEADINGS = ("model", "sessions", "messages", "calls", "tokens in", "out", "cached", "cost")


def _print(usage: Usage, by_day: dict[str, int], what: What) -> None:
    """Print usage by model and by day: a table and a chart on a terminal, two tables with headings when piped."""
    rows = [_row(model or "(no model)", used) for model, used in usage.by_model().items()]
    is_piped = not sys.stdout.isatty()
    print_table(_HEADINGS, [*([_HEADINGS] if is_piped else []), *rows, _row("total", usage.total())])
    if by_day:
        days = [f"{day}\t{value}" for day, value in by_day.items()] if is_piped else bars(by_day)
        echo("\n".join(["", f"day\t{what}" if is_piped else f"{what} per day", *days]))
    for note in _notes(usage):
        echo(f"grovefs: {note}" if is_piped else note, err=is_piped)


def _row(name: str, used: UsageTotals) -> tuple[str, ...]:
    cached = used.tokens["cache_read_input_tokens"] + used.tokens["cache_creation_input_tokens"]
    counts = (used.sessions, used.messages, used.calls, used.tokens["input_tokens"], used.tokens["output_tokens"])
    return (name, *map(str, (*counts, cached)), "" if used.cost is None else f"{used.cost:.4f}")


def _notes(usage: Usage) -> list[str]:
    notes = []
    if usage.unpriced:
        notes.append(f"{plural(usage.unpriced, 'call')} without a cost in the record or the price file")
    if usage.unread:
        notes.append(f"{plural(usage.unread, 'line')} of token-usage.jsonl unreadable")
    return notes


def _as_dict(usage: Usage) -> dict[str, Any]:
    def shown(used: UsageTotals) -> dict[str, Any]:
        return {
            "sessions": used.sessions,
            "messages": used.messages,
            "calls": used.calls,
            **used.tokens,
            "cost": used.cost,
        }

    rows = [{"day": key.day, "model": key.model, **shown(used)} for key, used in usage.by_key.items()]
    return {"total": shown(usage.total()), "rows": rows, "unread": usage.unread, "unpriced": usage.unpriced}
