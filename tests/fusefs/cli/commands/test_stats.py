"""`grovefs stats`: tables, charts and images."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.cli.chart import bars, svg
from fusefs.cli.png import _DOTS, png
from store import Store, Timestamp
from tests.builders import make_session
from tests.fusefs.cli.commands.test_modify import run
from tests.fusefs.cli.test_cli import on_a_terminal


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


def test_chart_images_are_written(used: Path, tmp_path: Path) -> None:
    picture = tmp_path / "chart.svg"
    assert run(used, "stats", "--all", "--svg", str(picture)).returncode == 0
    titles = [
        element.text
        for element in ElementTree.fromstring(picture.read_text()).iter("{http://www.w3.org/2000/svg}title")
    ]
    assert titles[0] == "2020-01-01: 7"
    assert run(used, "stats", "--all", "--png", str(tmp_path / "chart.png")).returncode == 0
    assert (tmp_path / "chart.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def pixels(picture: bytes) -> list[bytes]:
    """Decode the rows of a PNG, three bytes per pixel, and verify its checksums."""
    place, found = 8, dict[bytes, bytes]()
    while place < len(picture):
        (size,) = struct.unpack_from(">I", picture, place)
        kind, data = picture[place + 4 : place + 8], picture[place + 8 : place + 8 + size]
        assert struct.unpack_from(">I", picture, place + 8 + size) == (zlib.crc32(kind + data),)
        found[kind] = data
        place += 12 + size
    width, height, depth, colour = struct.unpack_from(">IIBB", found[b"IHDR"])
    raw = zlib.decompress(found[b"IDAT"])
    assert (depth, colour, len(raw), found[b"IEND"]) == (8, 2, height * (1 + 3 * width), b"")
    return [raw[y * (1 + 3 * width) + 1 : (y + 1) * (1 + 3 * width)] for y in range(height)]


def test_bars_of_an_image_are_to_scale() -> None:
    """The PNG is valid, half the value is half the height, and the font has all characters needed."""
    rows = pixels(png({"2026-11-15": 1_200_000, "2026-11-16": 600_000, "unknown": 0}, "tokens per day"))
    bars = [sum(row[3 * x : 3 * x + 3] == b"\x3a\x7d\x44" for row in rows) for x in (60, 120, 180)]
    assert bars == [320, 160, 0]
    assert set("0123456789-.kMG" + "tokens messages sessions per day unknown".replace(" ", "")) <= set(_DOTS)
    assert pixels(png({}, "sessions per day"))


@given(st.dictionaries(st.text(st.characters(exclude_categories=["C", "Z"])), st.integers(0, 10**15)))
def test_bars_are_to_scale_and_svg_is_well_formed(values: dict[str, int]) -> None:
    drawn = [line.count("█") for line in bars(values)]
    assert len(drawn) == len(values)
    order = sorted(range(len(values)), key=lambda place: list(values.values())[place])
    assert [drawn[place] for place in order] == sorted(drawn) or any("█" in name for name in values)
    ElementTree.fromstring(svg(values, "<&>"))
