"""What was used, in numbers and as a chart: stats."""

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
    days: Annotated[int, typer.Option("--days", "-d", min=1, help="So many days back, today included.")] = 30,
    everything: Annotated[bool, typer.Option("--all", help="Ever since, also what has no date.")] = False,
    what: Annotated[What, typer.Option("--chart", help="What the chart shows.")] = "tokens",
    prices: Annotated[
        Path | None,
        typer.Option(help='A JSON file: {"MODEL": {"input_tokens": 3, "output_tokens": 15}}, for a million tokens.'),
    ] = None,
    picture: Annotated[Path | None, typer.Option("--svg", help="Write the chart there, as a picture.")] = None,
    png_picture: Annotated[Path | None, typer.Option("--png", help="The same as PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Count sessions begun, messages, and tokens by day and by model.

    Tokens are those in token-usage.jsonl; what a fork copied counts once. A cost is shown only where records carry one,
    or your price file covers all that a call used: nothing is guessed. Days are those of UTC. Piped, it is two tables
    with tabs and a line of heads each, and an empty line between them: by model, then by day.

    Example: grovefs stats --days 7 --prices prices.json --svg week.svg
    """
    table = parse_prices(prices.read_bytes(), str(prices)) if prices else None
    since = "" if everything else Timestamp.from_ns(time.time_ns() - (days - 1) * DAY_NS)[:10]
    with open_store(home) as store:
        usage = store.usage.totals(since=since, prices=table)
    by_day = {day: _value(used, what) for day, used in usage.by_day().items()}
    if picture is not None:
        picture.write_text(svg(by_day, f"{what} per day"))
    if png_picture is not None:
        from fusefs.cli.png import png

        png_picture.write_bytes(png(by_day, f"{what} per day"))
    if as_json:
        print_json(_as_dict(usage))
    else:
        _print(usage, by_day, what)


def _value(used: UsageTotals, what: What) -> int:
    return {"tokens": used.total, "messages": used.messages, "sessions": used.sessions}[what]


_HEADS = ("model", "sessions", "messages", "calls", "tokens in", "out", "cached", "cost")


def _print(usage: Usage, by_day: dict[str, int], what: What) -> None:
    """Two tables; on a terminal the second is a chart. Piped, each says what its columns are: there are two."""
    rows = [_row(model or "(no model)", used) for model, used in usage.by_model().items()]
    is_piped = not sys.stdout.isatty()
    print_table(_HEADS, [*([_HEADS] if is_piped else []), *rows, _row("total", usage.total())])
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
        notes.append(f"{plural(usage.unpriced, 'call')} without a cost: neither the record nor a price file says")
    if usage.unread:
        notes.append(f"{plural(usage.unread, 'line')} of token-usage.jsonl could not be read")
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
