"""Charts: to scale, well formed, with every day on the axis and rounded numbers."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.views.html.charts import draw, render_file, ticks
from fusefs.views.html.dashboard import BarChart, Chart, Column, ColumnChart, HourChart, describe_usage
from fusefs.views.html.numbers import money, short
from fusefs.views.html.periods import MAX_COLUMNS, group_days
from store.search.usage import Key, Usage, UsageTotals

SVG = "{http://www.w3.org/2000/svg}"
names = st.text(max_size=60)
numbers = st.floats(0, 1e15)
columns = st.lists(st.builds(Column, names, st.tuples(numbers, numbers)))
hours = st.tuples(st.integers(0, 6), st.integers(0, 23))
charts: st.SearchStrategy[list[Chart]] = st.lists(
    st.one_of(
        st.builds(ColumnChart, names, columns, st.just([]), st.just(short)),
        st.builds(BarChart, names, st.dictionaries(names, numbers, max_size=5), st.just(money)),
        st.builds(HourChart, names, st.dictionaries(hours, st.integers(1, 10**9))),
    ),
    max_size=4,
)


@given(charts, names)
def test_file_is_well_formed(found: list[Chart], title: str) -> None:
    """Whatever the titles of sessions contain."""
    ElementTree.fromstring(render_file(found, title, "text { fill: red }"))


def heights(chart: Chart) -> list[float]:
    root = ElementTree.fromstring(render_file([chart], "x", ""))
    return [float(r.get("height", "")) for r in root.iter(f"{SVG}rect") if str(r.get("class")).startswith("part")]


def test_columns_are_to_scale() -> None:
    """Half the value has half the height; a value above zero is visible, zero is not drawn."""
    columns = [Column("a", [1_200_000]), Column("b", [600_000]), Column("c", [0]), Column("d", [1])]
    drawn = heights(ColumnChart("x", columns, [], short))
    assert drawn[0] == pytest.approx(2 * drawn[1], abs=0.02)
    assert (len(drawn), drawn[2]) == (3, 1.0)


@given(st.floats(1e-6, 1e15))
def test_scale_reaches_the_largest_value_in_few_round_steps(top: float) -> None:
    scale = ticks(top)
    assert scale[-1] >= top * (1 - 1e-6)
    assert 3 <= len(scale) <= 7
    assert scale[-2] < top


def usage(days: dict[str, int]) -> Usage:
    totals = {Key(day, "m"): UsageTotals(messages=n) for day, n in days.items()}
    return Usage(totals, {}, [], [], 0, 0, {})


def test_days_without_activity_are_on_the_axis() -> None:
    periods = group_days(usage({"2026-02-27": 1, "2026-03-02": 2, "unknown": 9}))
    assert periods.step == "day"
    assert [(str(start), used.messages) for start, used in periods.columns] == [
        ("2026-02-27", 1),
        ("2026-02-28", 0),
        ("2026-03-01", 0),
        ("2026-03-02", 2),
    ]


def test_many_days_are_weeks_or_months() -> None:
    weeks = group_days(usage({"2026-01-01": 1, "2026-06-30": 2}))
    assert (weeks.step, str(weeks.columns[0].start)) == ("week", "2025-12-29")
    months = group_days(usage({"2020-01-15": 1, "2026-06-30": 2}))
    assert (months.step, str(months.columns[0].start), len(months.columns)) == ("month", "2020-01-01", 78)
    assert len(weeks.columns) <= MAX_COLUMNS
    assert sum(used.messages for _, used in months.columns) == 3


def test_undated_usage_has_no_column() -> None:
    assert group_days(usage({"unknown": 1})).columns == []
    assert all(draw(chart).height > 0 for chart in describe_usage(usage({})))


def test_stronger_colour_means_more_messages() -> None:
    root = ElementTree.fromstring(render_file([HourChart("x", {(0, 9): 100, (6, 23): 1, (2, 2): 30})], "x", ""))
    found = {
        r.findtext(f"{SVG}title"): r.get("class") for r in root.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None
    }
    assert found["Mon 9:00–10:00: 100 messages"] == "heat4"
    assert found["Wed 2:00–3:00: 30 messages"] == "heat3"
    assert found["Sun 23:00–24:00: 1 message"] == "heat1"
    assert len(found) == 7 * 24


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *[(0, "0"), (0.25, "0.25"), (999, "999"), (1000, "1.0k"), (1960, "2.0k"), (12_500, "12k")],
        *[(999_960, "1.0M"), (2.5e9, "2.5G")],
    ],
)
def test_numbers_are_rounded_not_cut(value: float, shown: str) -> None:
    assert short(value) == shown


def test_costs_have_two_digits_at_least() -> None:
    assert [money(value) for value in (None, 0, 0.0048, 0.125, 1234.5)] == ["", "0.00", "0.0048", "0.12", "1,234.50"]
