"""Corrupt or malicious sources: never a traceback, never a document that cannot be loaded."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from benchmarks.agent_logs import LogWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import Store
from store.transfer.formats import registry
from store.transfer.formats.source import Source
from tests.store.transfer import foreign

# One for each layout; the first word is the format.
MAKERS: dict[str, Callable[[Path], Path]] = {
    "claude-code": foreign.make_claude,
    "codex": foreign.make_codex,
    "chatgpt": foreign.make_chatgpt,
    "oxios": foreign.make_oxios,
    "a3s": foreign.make_a3s,
    "a3s v1": foreign.make_a3s_v1,
    "bamboo": foreign.make_bamboo,
}

DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]

ODD: list[Any] = [
    *(None, True, False, 0, -1, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, "", " ", ".", "..", "../../x", "/etc/passwd"),
    *(
        "a\\b",
        "nul\0",
        "line\nbreak",
        "\ud83d",
        "😀",
        "x" * 300,
        "s" * 70_000,
        "9999-12-31T23:59:60Z",
        "0000-01-01T00:00:00Z",
    ),
    *([], {}, [[]], [None], [1, "two"], {"": None}, {"type": "text"}, {"type": "tool_use"}, {"role": "user"}, DEEP),
    *([{"type": "image", "source": {"type": "base64", "data": "!!", "media_type": 5}}], {"../x": {"y": "\0"}}),
    *(
        [{"type": "tool_result", "tool_use_id": "t", "content": {"a": 1}, "is_error": "yes"}],
        float("nan"),
        float("inf"),
    ),
]


def places_in(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every value inside a JSON value."""
    found = [path]
    if isinstance(value, dict):
        return found + [p for key, part in value.items() for p in places_in(part, (*path, key))]
    if isinstance(value, list):
        return found + [p for i, part in enumerate(value) for p in places_in(part, (*path, i))]
    return found


def replaced(value: Any, path: tuple[str | int, ...], other: Any) -> Any:
    if not path:
        return other
    value = copy.deepcopy(value)
    inner = value
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = other
    return value


def tampered_value(draw: st.DataObject, text: str) -> str:
    """The same text with one value replaced, or one member removed or duplicated."""
    value = json.loads(text)
    path = draw.draw(st.sampled_from(places_in(value)))
    other = draw.draw(st.sampled_from(ODD))
    return json.dumps(replaced(value, path, other))


def tampered_bytes(draw: st.DataObject, data: bytes) -> bytes:
    at = draw.draw(st.integers(0, len(data)))
    cut = draw.draw(st.integers(0, 30))
    put = draw.draw(
        st.binary(max_size=4)
        | st.sampled_from([b"\0", b"\xff\xfe", b'"', b"{", b"]", b"\n", b"\\ud800", b"\xef\xbb\xbf"])
    )
    return data[:at] + put + data[at + cut :]


def tamper(draw: st.DataObject, base: Path) -> None:
    files = sorted(path for path in base.rglob("*") if path.suffix in (".json", ".jsonl"))
    path = draw.draw(st.sampled_from(files))
    if draw.draw(st.booleans()):
        path.write_bytes(tampered_bytes(draw, path.read_bytes()))
    elif path.suffix == ".jsonl":
        lines = path.read_text().splitlines()
        number = draw.draw(st.integers(0, len(lines) - 1))
        lines[number] = tampered_value(draw, lines[number])
        path.write_text("\n".join(lines) + "\n")
    else:
        path.write_text(tampered_value(draw, path.read_text()))


def locations(store: Store) -> list[str]:
    return [f"{e.root_session_id}/{e.id}" if e.kind == "child" else e.id for e in store.entries(limit=-1)]


@pytest.mark.parametrize("layout", MAKERS)
@settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
@given(draw=st.data())
def test_tampered_source_is_handled(layout: str, draw: st.DataObject) -> None:
    """Every imported session can be loaded, the home is clean, and a second import changes nothing."""
    with TemporaryDirectory() as place:
        source, format = MAKERS[layout](Path(place) / "source"), layout.split()[0]
        for _ in range(draw.draw(st.integers(1, 3))):
            try:
                tamper(draw, source)
            except ValueError:  # no longer JSON after an earlier change
                break
        outside = set(os.listdir(place))
        with Store.open(Path(place) / "home", background=False, durability="normal") as store:
            first = store.imports.run(str(source), format=format)
            assert all(store.load(place) is not None for place in locations(store))
            assert len(locations(store)) == first.counts["new"]
            report = store.check()
            assert report.is_clean, report.findings
            second = store.imports.run(str(source), format=format)
            assert second.counts["unchanged"] == first.counts["new"]
            assert sum(second.counts.values()) == sum(first.counts.values())
            assert second.problems == first.problems
        assert set(os.listdir(place)) == outside | {"home"}


@pytest.mark.parametrize("layout", MAKERS)
def test_each_format_recognises_only_its_own_sources(layout: str, tmp_path: Path) -> None:
    with Source(MAKERS[layout](tmp_path / "source")) as source:
        assert registry.recognise(source).name == layout.split()[0]
        sure = [f.name for f in registry.FORMATS if f.recognise(source) is not None]
        assert sure == layout.split()[:1]


PEAK = """
import resource, sys
from store import Store
from store.transfer.formats import registry
with Store.open(sys.argv[1], background=False, durability="normal") as store:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    summary = store.imports.run(sys.argv[2])
    print(sum(summary.counts.values()), len(summary.problems))
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def run_measured(home: Path, source: Path) -> tuple[str, int]:
    """The counts of imported sessions and problems, and the growth of memory in bytes."""
    command = [sys.executable, "-c", PEAK, str(home), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    counts, peak = result.stdout.splitlines()
    return counts, int(peak)


def test_large_export_is_streamed(home: Path, tmp_path: Path) -> None:
    size, count = 200_000, 300
    (tmp_path / "export").mkdir()
    with (tmp_path / "export/conversations.json").open("w") as file:
        for number in range(count):
            conversation = foreign.chat_conversation(f"chat-{number}", current="a2")
            conversation["mapping"] = {"a2": conversation["mapping"]["a2"] | {"parent": None}}
            conversation["mapping"]["a2"]["message"]["content"]["parts"] = ["word " * (size // 5)]
            file.write(("[" if number == 0 else ",\n") + json.dumps(conversation))
        file.write("]")
    counts, peak = run_measured(home, tmp_path / "export")
    assert counts == f"{count} 0"
    assert peak < size * count  # less than the source itself


def test_f18_a_long_session_takes_three_times_its_size(home: Path, tmp_path: Path) -> None:
    """Once a session was in memory as lines, as objects and as text: more than five times its file."""
    size = LogWriter().write(tmp_path / "p", sessions=1, size_bytes=40_000_000)
    counts, peak = run_measured(home, tmp_path / "p")
    assert counts == "1 0"
    assert peak < 3 * size


def test_endless_line_is_reported_and_skipped(home: Path, tmp_path: Path) -> None:
    """The line is never in memory as a whole."""
    (tmp_path / "p").mkdir()
    good = json.dumps(foreign.claude_line("user", "u1", {"role": "user", "content": "hi"}, "00:00")).encode()
    with (tmp_path / "p/s1.jsonl").open("wb") as file:
        file.write(good + b"\n")
        file.truncate(300_000_000)  # a hole: NUL bytes without a newline
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + good.replace(b'"u1"', b'"u2"') + b"\n")
    counts, peak = run_measured(home, tmp_path / "p")
    assert counts == "1 1"
    assert peak < 250_000_000
    with Store.open(home, background=False) as store:
        session = store.load("s1")
        assert session is not None
        assert [message.id for message in session.messages] == ["u1", "u2"]
