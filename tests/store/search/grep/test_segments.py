"""Segments: finding documents by trigram; damage is always detected."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from store.search.grep.regex_trigrams import ANY, query_of
from store.search.grep.segments import DOCUMENTS, Damaged, Postings, Segment, candidates, merged, render

TEXTS = {
    1: b'{"content": "Hello World"}\nnext line',
    2: "希少な単語 and emoji 🎉".encode(),
    300: b"\x89PNG\0\0\xff\xfe hello in an image",
    301: b"",
    302: b"ab",
    900: b"x" * 10,
}


def make_segment(path: Path, texts: dict[int, bytes]) -> Segment:
    postings = Postings()
    for document in sorted(texts):
        postings.add(document, texts[document])
    path.write_bytes(b"".join(render(postings.rows())))
    return Segment(str(path))


def ask(segments: list[Segment], pattern: str) -> set[int]:
    return set(candidates(query_of([pattern.encode()], "fixed", fold=False), segments))


def test_segment_finds_documents_by_text(tmp_path: Path) -> None:
    """Case is ignored. Of binary documents only printable ASCII is indexed."""
    segment = make_segment(tmp_path / "s", TEXTS)
    assert ask([segment], "hello") == {1, 300}
    assert ask([segment], "HELLO WORLD") == {1}
    assert ask([segment], "希少") == {2, 300}  # 300 is binary: only its ASCII is indexed
    assert ask([segment], "xxxx") == {900}
    assert ask([segment], "absent words") == set()
    assert set(candidates(ANY, [segment])) == set(TEXTS)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.text("abcé漢 \n", max_size=60).map(str.encode), max_size=12), st.data())
def test_every_substring_finds_its_document(
    tmp_path_factory: pytest.TempPathFactory, texts: list[bytes], data: st.DataObject
) -> None:
    """Any part of a line finds the document, whichever segment holds it."""
    place = tmp_path_factory.mktemp("segments")
    numbered = dict(enumerate(texts))
    halves = [{n: t for n, t in numbered.items() if n % 2 == half} for half in (0, 1)]
    segments = [make_segment(place / str(i), half) for i, half in enumerate(halves)]
    for number, text in numbered.items():
        for line in text.replace(b"\0", b"\n").split(b"\n"):
            start = data.draw(st.integers(0, len(line)))
            part = line[start : data.draw(st.integers(start, len(line)))]
            assert number in candidates(query_of([part], "fixed", fold=False), segments)


def test_many_documents_and_a_long_one(tmp_path: Path) -> None:
    """More than one batch, and a document of several slices with a word across their boundary."""
    texts = {i: b"common text %d" % i for i in range(1000)}
    texts[2000] = b"a" * ((1 << 20) - 3) + b"across" + b"b" * (1 << 20) + b"at the end"
    segment = make_segment(tmp_path / "s", texts)
    assert ask([segment], "common") == set(range(1000))
    assert ask([segment], "text 77") == {77, *range(770, 780)}
    assert ask([segment], "across") == {2000}
    assert ask([segment], "the end") == {2000}


def test_each_trigram_has_exactly_its_documents() -> None:
    """Texts with many repeated trigrams and with few, longer than what is sorted at once."""
    chance = Random(7)
    texts = [
        bytes(chance.choices(b"abcdefgh", k=200_000)),
        b"ab" * 90_000,
        *(b"text %d of many" % n for n in range(600)),
    ]
    postings = Postings()
    wanted: dict[int, BitMap] = {}
    for document, text in enumerate(texts):
        postings.add(document, text)
        for trigram in {text[at : at + 3] for at in range(len(text) - 2)}:
            wanted.setdefault(int.from_bytes(trigram, "little"), BitMap()).add(document)
    assert dict(postings.rows()) == {**wanted, DOCUMENTS: BitMap(range(len(texts)))}


def test_merging_drops_obsolete_documents(tmp_path: Path) -> None:
    one = make_segment(tmp_path / "1", {1: b"hello", 2: b"hello you"})
    two = make_segment(tmp_path / "2", {3: b"hello there", 4: b"\xff hello"})
    (tmp_path / "3").write_bytes(b"".join(render(merged([one, two], BitMap([2, 3, 4])))))
    both = Segment(str(tmp_path / "3"))
    assert ask([both], "hello") == {2, 3, 4}
    assert ask([both], "there") == {3}
    assert ask([both], "漢") == {4}
    assert set(candidates(ANY, [both])) == {2, 3, 4}


@pytest.mark.parametrize("what", ["missing", "empty", "short", "garbage", "directory", "link"])
def test_opening_an_invalid_segment_fails(tmp_path: Path, what: str) -> None:
    make_segment(tmp_path / "good", TEXTS).close()
    good = (tmp_path / "good").read_bytes()
    path = tmp_path / "s"
    if what == "directory":
        path.mkdir()
    elif what == "link":
        path.symlink_to("good")
    elif what != "missing":
        path.write_bytes({"empty": b"", "short": good[:-7], "garbage": b"\xa5" * len(good)}[what])
    with pytest.raises(Damaged):
        Segment(str(path))


def test_changed_byte_never_hides_a_match(tmp_path: Path) -> None:
    """One byte changed anywhere: the segment is reported as damaged, or all results are still complete."""
    texts = {i: b"some words, %d of them, and one more" % i for i in range(40)}
    make_segment(tmp_path / "s", texts).close()
    good = (tmp_path / "s").read_bytes()
    questions = ["some words", "39 of them", "absent", "7 of"]
    truth = [{n for n, t in texts.items() if q.encode() in t} for q in questions]
    found = 0
    for at in range(0, len(good), 7):
        (tmp_path / "s").write_bytes(good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :])
        try:
            segment = Segment(str(tmp_path / "s"))
            answers = [ask([segment], question) for question in questions]
            segment.close()
        except Damaged:
            found += 1
            continue
        assert all(answer >= right for answer, right in zip(answers, truth, strict=True)), at
    assert found > 10
