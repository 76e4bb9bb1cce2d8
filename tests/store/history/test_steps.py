"""Steps from one version of a text to the next: they apply exactly, and appends are not compared."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.history import steps
from store.history.steps import Step
from store.history.versions import Splice

TEXTS = st.one_of(
    st.binary(max_size=400),
    st.lists(st.sampled_from([b"the ", b"message ", b"{}", b"\n", b"\xff", b"x" * 40]), max_size=60).map(b"".join),
)


def applied(old: bytes, step: Step) -> bytes:
    text = bytearray(old)
    steps.apply(text, step)
    return bytes(text)


@given(TEXTS, TEXTS)
def test_a_step_turns_the_old_text_into_the_new(old: bytes, new: bytes) -> None:
    """Whatever the two texts have in common."""
    assert applied(old, steps.encode(old, new)) == new
    assert applied(b"anything", steps.encode(None, new)) == new


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_a_changed_middle_is_a_patch(head: bytes, old: bytes, new: bytes, tail: bytes) -> None:
    """Common beginnings and ends of any length are found."""
    before, after = head + old + tail, head + new + tail
    assert applied(before, steps.encode(before, after)) == after


@given(TEXTS, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 20), TEXTS), max_size=4))
def test_splices_equal_the_splices_applied_by_hand(old: bytes, raw: list[tuple[int, int, bytes]]) -> None:
    """Several splices of one step have offsets in the old text."""
    found: list[Splice] = []
    for start, removed, text in sorted(raw):
        start = max(start, found[-1].start + found[-1].removed if found else 0)
        if start + removed <= len(old):
            found.append(Splice(start, removed, text))
    expected = old
    for start, removed, text in reversed(found):
        expected = expected[:start] + text + expected[start + removed :]
    assert applied(old, steps.encode_splices(old, found)) == expected


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 30), st.binary(max_size=30)), min_size=1, max_size=6))
def test_a_few_small_changes_are_few_bytes(changes: list[tuple[int, int, bytes]]) -> None:
    """A title and a time, far apart, must not cost what is between them. Changes near each other may."""
    old = random.Random(2).randbytes(4096)
    new = bytearray(old)
    for start, removed, text in sorted(changes, reverse=True):
        new[start : start + removed] = text
    step = steps.encode(old, bytes(new))
    assert applied(old, step) == new
    if len(changes) <= 3:
        assert len(step.data) < 200 + sum(8 + len(text) for _, _, text in changes)


def test_two_changes_far_apart_are_splices() -> None:
    """The text between them is neither stored nor compressed."""
    old = random.Random(3).randbytes(50_000)
    new = old[:10] + b"title" + old[20:40_000] + b"time" + old[40_004:]
    step = steps.encode(old, new)
    assert step.kind == steps.SPLICES
    assert len(step.data) < 30
    assert applied(old, step) == new


@given(TEXTS, TEXTS, st.integers(0, 500))
def test_damaged_data_raises_or_gives_some_text(old: bytes, new: bytes, cut: int) -> None:
    """Never an exception that callers do not expect."""
    step = steps.encode(old, new)
    text = bytearray(old)
    with suppress(ValueError, steps.Error):
        steps.apply(text, Step(step.kind, step.data[:cut]))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 300_000), st.integers(0, 300_000), st.binary(max_size=50))
def test_common_parts_longer_than_one_comparison(at: int, removed: int, text: bytes) -> None:
    """The texts are compared in pieces of 64 KiB."""
    old = random.Random(1).randbytes(200_000)
    new = old[:at] + text + old[at + removed :]
    step = steps.encode(old, new)
    assert applied(old, step) == new
    if removed < 1000 and text:
        assert len(step.data) < 2000


def test_many_small_changes_cost_little() -> None:
    """`sed` in a hundred places: the replaced text is the prefix of the new one."""
    random.seed(2)
    words = [random.randbytes(6).hex().encode() for _ in range(5000)]
    old = b" teh ".join(words)
    step = steps.encode(old, old.replace(b"teh", b"the", 100))
    assert step.kind == steps.PATCH
    assert len(step.data) < len(old) // 20


def test_an_append_is_compressed_against_the_text_before_it() -> None:
    """A message like the one before costs almost nothing."""
    message = random.Random(3).randbytes(800)
    old = message * 2 + b"]"
    step = steps.encode_splices(old, [Splice(len(old) - 1, 0, message)])
    assert len(step.data) < 60
    assert applied(old, step) == message * 3 + b"]"


def test_a_patch_that_does_not_fit_is_rejected() -> None:
    """The text it is applied to is not the one it was made from."""
    step = steps.encode(b"a" * 1000, b"a" * 500 + b"b" + b"a" * 500)
    with pytest.raises(ValueError, match="does not fit"):
        steps.apply(bytearray(b"short"), step)
    splice = steps.encode_splices(b"a" * 1000, [Splice(990, 5, b"x")])
    with pytest.raises(ValueError, match="does not fit"):
        steps.apply(bytearray(b"short"), splice)
