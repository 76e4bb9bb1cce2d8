"""`grovefs stats`: tables, charts and images."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.cli.chart import bars
from store import Store, Timestamp
from store.search.usage import local_day
from tests.builders import make_session
from tests.fusefs.cli.commands.test_modify import run
from tests.fusefs.cli.test_cli import grovefs, on_a_terminal


@pytest.fixture
def used(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        store.save(make_session("one", model="big", messages=3))
        store.usage.append("one", {"ts": Timestamp.now(), "model": "big", "input_tokens": 1000, "output_tokens": 50})
        store.usage.append("one", {"ts": "2020-01-01T00:00:00Z", "model": "old", "output_tokens": 7})
    return home


def test_piped_output_is_two_tables_with_headings(used: Path) -> None:
    by_model, by_day = run(used, "stats").stdout.split("\n\n")
    rows = [line.split("\t") for line in by_model.splitlines()]
    assert rows[0] == ["model", "sessions", "messages", "calls", "tokens in", "out", "cached", "cost"]
    assert rows[1] == ["big", "1", "3", "1", "1000", "50", "0", ""]
    assert [row[0] for row in rows[2:]] == ["total"]
    assert [line.split("\t") for line in by_day.splitlines()] == [["day", "tokens"], [Timestamp.now()[:10], "1050"]]
    assert "2020-01-01\t7\n" in run(used, "stats", "--all").stdout


def test_terminal_output_is_a_table_and_a_chart(used: Path) -> None:
    shown = on_a_terminal(used, "stats")
    assert "tokens per day" in shown
    assert "█" * 40 in shown


def test_json_has_rows_and_costs_from_prices(used: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"big": {"input_tokens": 1, "output_tokens": 20}}')
    found = json.loads(run(used, "stats", "--json", "--prices", str(prices)).stdout)
    assert found["total"]["cost"] == pytest.approx(0.002)
    assert [(row["model"], row["output_tokens"]) for row in found["rows"]] == [("big", 50)]
    prices.write_text("[")
    wrong = run(used, "stats", "--prices", str(prices))
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)


def test_sessions_without_a_price_are_named(used: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"big": {"input_tokens": 1, "output_tokens": 20}}')
    shown = run(used, "stats", "--all", "--prices", str(prices))
    assert "1 call without a cost in the record or the price file, in 1 session:" in shown.stderr
    assert "  one: old\n" in shown.stderr
    found = json.loads(run(used, "stats", "--all", "--json", "--prices", str(prices)).stdout)
    assert found["unpriced_sessions"] == {"one": ["old"]}


def test_cost_uses_the_default_price_file(used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, only the costs that records state are shown, and the command says so."""
    prices = tmp_path / "prices.json"
    monkeypatch.setenv("GROVEFS_PRICES", str(prices))
    assert f"there is no price file at {prices}" in run(used, "stats", "--cost").stderr
    prices.write_text('{"*": {"input_tokens": 1, "output_tokens": 20}}')
    shown = run(used, "stats", "--cost", "--chart", "cost")
    assert shown.stdout.splitlines()[1].split("\t")[-1] == "0.0020"
    assert shown.stdout.splitlines()[-1] == f"{local_day(time.time_ns())}\t0.0020"
    assert shown.stderr == ""


def test_price_template_is_named_if_no_cost_is_known(
    used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = tmp_path / "prices.json"
    monkeypatch.setenv("GROVEFS_PRICES", str(prices))
    assert "--prices-template FILE" in on_a_terminal(used, "stats")
    assert "--prices-template FILE" in run(used, "stats", "--cost").stderr
    prices.write_text('{"*": {"input_tokens": 1, "output_tokens": 20}}')
    assert "--prices-template" not in on_a_terminal(used, "stats", "--cost")


def test_svg_has_all_charts_and_all_periods(used: Path, tmp_path: Path) -> None:
    """From January 2020 to now, in months."""
    picture = tmp_path / "chart.svg"
    assert run(used, "stats", "--all", "--svg", str(picture)).returncode == 0
    root = ElementTree.fromstring(picture.read_text())
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[:2] == ["2020-01: 7", "2020-02: 0"]
    headings = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text") if e.get("class") == "heading"]
    assert headings == [
        "Tokens by month",
        "Tokens by model",
        "Tokens by project",
        "Messages by weekday and hour",
        "Longest sessions, in messages",
        "Sessions with the most tokens",
    ]


def test_png_is_an_image(used: Path, tmp_path: Path) -> None:
    """Drawn by matplotlib; titles in any script cause no warning."""
    with Store.open(used, background=False) as store:
        store.save(make_session("two", title="日本語 $x^2$ \\frac 📈"))
    result = run(used, "stats", "--all", "--png", str(tmp_path / "chart.png"))
    assert (result.returncode, result.stderr) == (0, "")
    data = (tmp_path / "chart.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height > 500) == (1100, True)


def test_png_without_matplotlib_is_refused(used: Path, tmp_path: Path) -> None:
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib/__init__.py").write_text("raise ImportError")
    path = f"{tmp_path}:{os.getcwd()}"
    result = run(used, "stats", "--png", str(tmp_path / "chart.png"), PYTHONPATH=path)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "pip install 'grovefs[charts]'" in result.stderr
    assert not (tmp_path / "chart.png").exists()


@given(st.dictionaries(st.text(st.characters(exclude_categories=["C", "Z"])), st.integers(0, 10**15)))
def test_bars_are_to_scale(values: dict[str, int]) -> None:
    drawn = [line.count("█") for line in bars(values)]
    assert len(drawn) == len(values)
    order = sorted(range(len(values)), key=lambda place: list(values.values())[place])
    assert [drawn[place] for place in order] == sorted(drawn) or any("█" in name for name in values)


def test_price_template_names_the_models_seen(home: Path, tmp_path: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
        record = {"ts": "2026-01-01T00:00:00Z", "model": "oak", "input_tokens": 5, "output_tokens": 2}
        store.usage.append("s1", record)
    path = tmp_path / "prices.json"
    assert grovefs(home, "stats", "--all", "--prices-template", str(path)).returncode == 0
    assert json.loads(path.read_text()) == {"oak": {"input_tokens": None, "output_tokens": None}}
    assert grovefs(home, "stats", "--all", "--prices-template", str(path)).returncode == 1  # never overwritten
    unfilled = grovefs(home, "stats", "--all", "--prices", str(path))  # a price that is not known yet
    assert (unfilled.returncode, "s1: oak" in unfilled.stderr) == (0, True)
    path.write_text('{"oak": {"input_tokens": "cheap"}}')
    assert "oak: expected an object with prices" in grovefs(home, "stats", "--prices", str(path)).stderr
