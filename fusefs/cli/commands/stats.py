"""Usage statistics and charts: stats."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from fusefs.cli.app import Home, Json, app, open_store, plural, print_json, print_table
from fusefs.cli.chart import bars, svg
from fusefs.cli.completion import files
from fusefs.cli.terminal import echo
from fusefs.prices import default_path, load_prices
from fusefs.views.html.dashboard import Quantity, describe_usage, value_of
from fusefs.views.html.numbers import money, short
from fusefs.views.html.periods import group_days
from store.search.usage import Usage, UsageTotals, local_day

DAY_NS = 86_400 * 10**9
SHOWN_SESSIONS = 10  # without a price; --json lists all


@app.command()
def stats(
    home: Home,
    days: Annotated[int, typer.Option("--days", "-d", min=1, help="Number of days, including today.")] = 30,
    everything: Annotated[bool, typer.Option("--all", help="Include all history, including undated records.")] = False,
    what: Annotated[Quantity, typer.Option("--chart", help="Quantity shown in the charts.")] = "tokens",
    with_cost: Annotated[
        bool, typer.Option("--cost", help="Show costs by the default price file, and sessions without a price.")
    ] = False,
    prices: Annotated[
        Path | None,
        typer.Option(
            help='Price file, per million tokens: {"MODEL": {"input_tokens": 3, "output_tokens": 15}}.',
            autocompletion=files,
        ),
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(
            "--prices-template", help="Write a price file with the models seen, to be filled in; - prints it."
        ),
    ] = None,
    svg_path: Annotated[Path | None, typer.Option("--svg", help="Write all charts to this file as SVG.")] = None,
    png_path: Annotated[
        Path | None, typer.Option("--png", help="Write all charts to this file as PNG; needs grovefs[charts].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count new sessions, messages, tokens and costs by day, model and project.

    Tokens are read from token-usage.jsonl; records copied by a fork count once. Costs are never estimated: one is
    shown only if the record has it, or if the price file covers everything a call used; sessions with other calls are
    named. The default price file is $GROVEFS_PRICES or ~/.config/grovefs/prices.json; `grovefs help look` describes
    it. Days are in local time. When piped, the output is two tab-separated tables with headings, by model and by day,
    with an empty line between them. In a mount, html/stats.html shows the same charts.

    Example: grovefs stats --days 7 --prices prices.json --svg week.svg
    """
    table = load_prices(prices) if prices or with_cost else None
    since = "" if everything else local_day(time.time_ns() - (days - 1) * DAY_NS)
    with open_store(home) as store:
        usage = store.usage.totals(since=since, prices=table)
    if template is not None:
        _write_template(usage, template)
        return
    title = "Usage" if everything else f"Usage of {plural(days, 'day')}"
    charts = [*describe_usage(usage, what)] if svg_path or png_path else []
    if svg_path is not None:
        svg_path.write_text(svg(charts, title))
    if png_path is not None:
        from fusefs.cli.png import save_png

        save_png(charts, title, png_path)
    if as_json:
        print_json(_as_dict(usage))
    else:
        notes = [*_notes(usage), *_price_notes(usage, with_cost=with_cost, has_prices=table is not None)]
        _print(usage, what, notes)


def _write_template(usage: Usage, path: Path) -> None:
    """Write a price file without prices: each is null until it is filled in, and such a file is rejected."""
    used = {
        model: {kind: None for kind, count in totals.tokens.items() if count and kind != "thinking_tokens"}
        for model, totals in usage.by_model().items()
        if model and totals.calls
    }
    text = orjson.dumps(used, option=orjson.OPT_INDENT_2) + b"\n"
    if str(path) == "-":
        sys.stdout.buffer.write(text)
        return
    with path.expanduser().open("xb") as file:  # never over prices that were filled in
        file.write(text)
    echo(f"{path}: {plural(len(used), 'model')}; replace each null by the price per million tokens")


_HEADINGS = ("model", "sessions", "messages", "calls", "tokens in", "out", "cached", "cost")


def _print(usage: Usage, what: Quantity, notes: list[str]) -> None:
    """Print usage by model and by day: a table and a chart on a terminal, two tables with headings when piped."""
    rows = [_row(model or "(no model)", used) for model, used in usage.by_model().items()]
    is_piped = not sys.stdout.isatty()
    rows.append(_row("total", usage.total()))
    rounded = {cell: short(int(cell)) for row in rows for cell in row[1:-1]}
    print_table(_HEADINGS, [*([_HEADINGS] if is_piped else []), *rows], short=rounded)
    lines = [*(_day_rows(usage, what) if is_piped else _day_bars(usage, what))]
    if len(lines) > 1:
        echo("\n".join(["", *lines]))
    for note in notes:
        echo(f"grovefs: {note}" if is_piped else note, err=is_piped)


def _day_rows(usage: Usage, what: Quantity) -> Iterator[str]:
    """Days with activity."""
    yield f"day\t{what}"
    for day, used in usage.by_day().items():
        value = value_of(used, what)
        yield f"{day}\t{value:.4f}" if what == "cost" else f"{day}\t{value:.0f}"


def _day_bars(usage: Usage, what: Quantity) -> Iterator[str]:
    """All days, or weeks or months if there are many."""
    step, periods = group_days(usage)
    yield f"{what} per {step}"
    values: Mapping[str, float] = {start.isoformat(): value_of(used, what) for start, used in periods}
    yield from bars(values, show=money if what == "cost" else None)


def _row(name: str, used: UsageTotals) -> tuple[str, ...]:
    cached = used.tokens["cache_read_input_tokens"] + used.tokens["cache_creation_input_tokens"]
    counts = (used.sessions, used.messages, used.calls, used.tokens["input_tokens"], used.tokens["output_tokens"])
    return (name, *map(str, (*counts, cached)), "" if used.cost is None else f"{used.cost:.4f}")


def _notes(usage: Usage) -> Iterator[str]:
    if usage.unread:
        yield f"{plural(usage.unread, 'line')} of token-usage.jsonl unreadable"


def _price_notes(usage: Usage, *, with_cost: bool, has_prices: bool) -> Iterator[str]:
    """Calls without a known price, by session: they are part of no cost above."""
    if with_cost and not has_prices:
        yield f"there is no price file at {default_path()}; costs are those that the records state"
    total = usage.total()
    if not has_prices and total.calls and total.cost is None and (with_cost or sys.stdout.isatty()):
        yield "no costs known; `grovefs stats --prices-template FILE` writes a price file"
    if not usage.unpriced:
        return
    count = len(usage.unpriced_sessions)
    yield (
        f"{plural(usage.unpriced, 'call')} without a cost in the record or the price file, "
        f"in {plural(count, 'session')}:"
    )
    for location, models in [*usage.unpriced_sessions.items()][:SHOWN_SESSIONS]:
        yield f"  {location}: {', '.join(model or '(no model)' for model in models)}"
    if count > SHOWN_SESSIONS:
        yield f"  … and {count - SHOWN_SESSIONS} more; --json lists them all"


def _as_dict(usage: Usage) -> dict[str, Any]:
    def shown(used: UsageTotals) -> dict[str, Any]:
        return {
            "sessions": used.sessions,
            "messages": used.messages,
            "calls": used.calls,
            **used.tokens,
            "cost": used.cost,
        }

    rows = [{**key._asdict(), **shown(used)} for key, used in usage.by_key.items()]
    return {
        "total": shown(usage.total()),
        "rows": rows,
        "hours": [{"weekday": day, "hour": hour, "messages": n} for (day, hour), n in sorted(usage.by_hour.items())],
        "unread": usage.unread,
        "unpriced": usage.unpriced,
        "unpriced_sessions": {str(location): models for location, models in usage.unpriced_sessions.items()},
    }
