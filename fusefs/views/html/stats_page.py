"""html/stats.html: the charts of `grovefs stats --svg` as a page, with the numbers as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from fusefs.prices import load_prices
from fusefs.views.html.charts import draw
from fusefs.views.html.dashboard import describe_usage
from fusefs.views.html.names import INDEX, STATS, link, path_of
from fusefs.views.html.numbers import money, short
from fusefs.views.html.shell import load_shell
from store import Location, Store
from store.search.usage import SessionUsage, Usage, UsageTotals

SHELL = load_shell("style.css", "chart.css", "stats.css")
_TOP = f"""\
<a class="skip" href="#main">Skip to the statistics</a>
<nav class="top" aria-label="Pages">
<a class="brand" href="{INDEX}">Sessions</a>
<a href="{STATS}" aria-current="page">Statistics</a>
</nav>
<main id="main">
<h1>Statistics</h1>
<p>All sessions; days and hours in local time.</p>
"""
_HEADS = ("sessions", "messages", "calls", "input", "output", "read from cache", "written to cache", "cost")


def render_stats(store: Store) -> bytes:
    """The whole page: all days, with costs if the user has a price file."""
    usage = store.usage.totals(prices=load_prices())
    body = "".join(_body(usage)).encode(errors="replace")
    return SHELL.head("Statistics") + body + b"</body>\n</html>\n"


def _body(usage: Usage) -> Iterator[str]:
    yield _TOP
    yield from _figures(usage.total())
    yield from _charts(usage)
    has_cost = usage.total().cost is not None
    yield from _table("By model", "model", usage.by_model(), has_cost=has_cost)
    yield from _table("By project", "project", usage.by_project(), has_cost=has_cost)
    yield from _sessions("Longest sessions", usage.longest, has_cost=has_cost)
    title = "Most expensive sessions" if has_cost else "Sessions with the most tokens"
    yield from _sessions(title, usage.costliest, has_cost=has_cost)
    yield from _unpriced(usage.unpriced_sessions)
    yield "</main>\n"


def _figures(total: UsageTotals) -> Iterator[str]:
    """The totals. A cost is in the currency of the user's price file, which it does not name."""
    shown = {"sessions": short(total.sessions), "messages": short(total.messages), "model calls": short(total.calls)}
    shown |= {"tokens": short(total.total)} | ({"cost": money(total.cost)} if total.cost is not None else {})
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in shown.items())
    yield f'<dl class="figures">{items}</dl>\n'


def _charts(usage: Usage) -> Iterator[str]:
    for chart in describe_usage(usage):
        title = escape(chart.title)
        yield f'<section><h2>{title}</h2>\n<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        yield f"{draw(chart).element(chart.title)}</div>\n</section>\n"


def _table(title: str, column: str, totals: Mapping[str, UsageTotals], *, has_cost: bool) -> Iterator[str]:
    used = sorted(totals.items(), key=lambda item: -item[1].total)
    rows = [(_text(name) or f"(no {column})", *_numbers(one)) for name, one in used]
    yield from _rows(title, (column, *_HEADS), rows, has_cost=has_cost)


def _sessions(title: str, sessions: Sequence[SessionUsage], *, has_cost: bool) -> Iterator[str]:
    rows = [
        (_link(one.location, one.title), f"{one.messages:,}", f"{one.used.total:,}", money(one.used.cost))
        for one in sessions
    ]
    yield from _rows(title, ("session", "messages", "tokens", "cost"), rows, has_cost=has_cost)


def _rows(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, has_cost: bool) -> Iterator[str]:
    """A table. The cost is the last column, which is left out if none is known."""
    end = len(heads) if has_cost else -1
    yield f"<section><h2>{title}</h2>\n"
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table>\n<thead><tr>'
    yield "".join(f'<th scope="col">{name}</th>' for name in heads[:end])
    yield "</tr></thead>\n<tbody>\n"
    for name, *cells in (row[:end] for row in rows):
        yield f'<tr><th scope="row"><bdi>{name}</bdi></th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>\n'
    yield "</tbody></table></div></section>\n"


def _numbers(used: UsageTotals) -> tuple[str, ...]:
    kinds = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    counts = (used.sessions, used.messages, used.calls, *(used.tokens[kind] for kind in kinds))
    return (*(f"{count:,}" for count in counts), money(used.cost))


def _unpriced(sessions: Mapping[Location, Sequence[str]]) -> Iterator[str]:
    if not sessions:
        return
    yield f'<section><h2>Without a known price: {len(sessions)}</h2>\n<ul class="unpriced" tabindex="0">\n'
    for location, models in sessions.items():
        names = ", ".join(_text(model) or "no model" for model in models)
        yield f"<li>{_link(location, str(location))} ({names})</li>\n"
    yield "</ul></section>\n"


def _link(location: Location, title: str) -> str:
    return f'<a href="{escape(link(None, path_of(location)))}"><bdi>{_text(title) or "Untitled"}</bdi></a>'


def _text(text: str) -> str:
    return escape(" ".join(text.split()))
