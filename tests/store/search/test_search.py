"""Full-text search: any string is a query, all content is found, and the rows follow every change."""

import json
import os
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from store import EmptyQuery, InvalidQuery, Location, Message, Session, Store, Timestamp, ToolCall
from store.documents.search_text import SNIPPET_CHARS, message_text, snippet
from store.index import fulltext
from store.model.budget import ConversationSummary
from store.model.message import FunctionCall, ImageOcrLine, ImageOcrResult, ImageUrl, MessagePart
from store.search.query import MAX_QUERY_BYTES, parse_query
from tests.builders import location_of, make_session
from tests.store.tables import dump_tables


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """A store without fsync: these tests do not depend on durability."""
    with Store.open(home, background=False, durability="normal") as opened:
        yield opened
        report = opened.check()
        assert report.is_clean, "\n".join(map(str, report.findings))


def said(store: Store, *texts: str, id: str = "s1", **fields: Any) -> Session:
    """Save a session with these user messages."""
    session = make_session(id, messages=0, **fields)
    for text in texts:
        session.add_message(Message.user(text))
    store.save(session)
    return session


def found(store: Store, query: str) -> list[int | None]:
    """Message indexes of the hits; None for title and summary."""
    hits = store.search(query, limit=100)
    return sorted((hit.message_index for hit in hits), key=lambda place: -1 if place is None else place)


def rows(store: Store) -> list[tuple[Any, ...]]:
    """All rows of search, by session and message instead of by number."""
    return store._core.db.reader.execute(
        "SELECT s.root, s.child, t.row & 0xffffff AS place, t.role, t.message_id, t.created_ns, t.digest, d.sz "
        "FROM texts t JOIN sessions s ON s.key = t.row >> 24 JOIN search_docsize d ON d.id = t.number "
        "ORDER BY s.root, s.child, place"
    ).fetchall()


# -- content --------------------------------------------------------------------------------------------


def test_every_kind_of_content_is_found(store: Store) -> None:
    """Text, reasoning, parts, OCR, tool calls with arguments, tool results; the session's title and summary."""
    session = make_session("s1", messages=0, title="titleword")
    now = Timestamp.now()
    session.conversation_summary = ConversationSummary(
        created_at=now, updated_at=now, content="summaryword", message_count=1, token_count=1
    )
    thinking = Message.assistant("plainword")
    thinking.reasoning = "reasonword"
    pictured = Message.user("")
    pictured.content_parts = [
        MessagePart(type="text", text="partword"),
        MessagePart(type="image_url", image_url=ImageUrl(url="data:image/png;base64,cGljdHVyZQ")),
    ]
    line = ImageOcrLine(text="ocrword", left=0, top=0, width=1, height=1)
    pictured.image_ocr = [ImageOcrResult(image_url="x", lines=[line])]
    calling = Message.assistant(
        "", [ToolCall(id="1", type="function", function=FunctionCall(name="callword", arguments='{"a":"argword"}'))]
    )
    for message in (thinking, pictured, calling, Message.tool_result("1", "resultword"), Message.system("sysword")):
        session.add_message(message)
    store.save(session)
    places = {
        "titleword": None,
        "summaryword": None,
        "plainword": 0,
        "reasonword": 0,
        "partword": 1,
        "ocrword": 1,
        "callword": 2,
        "argword": 2,
        "resultword": 3,
        "sysword": 4,
    }
    for word, place in places.items():
        assert found(store, word) == [place], word
    assert found(store, "role:tool") == [3]
    with_picture = "cGljdHVyZQ"
    assert found(store, with_picture) == []


@pytest.mark.parametrize("word", ["ls", "first", "café", "quoted", "deep", "7", "nul"])
def test_arguments_are_decoded_as_json(store: Store, word: str) -> None:
    """In a nested string, text after an escape is still a word."""
    arguments = json.dumps({"command": 'first\nls "quoted"\tcafé', "more": [{"deep": 7}, None], "nul": True})
    session = make_session("s1", messages=0)
    session.add_message(
        Message.assistant("", [ToolCall(id="1", type="function", function=FunctionCall(name="f", arguments=arguments))])
    )
    store.save(session)
    assert "\\n" in arguments
    assert found(store, word) == [0]
    assert found(store, "nls") == []


@pytest.mark.parametrize("arguments", ["", "{", "a\\nb", "[" * 5000 + "\\"])
def test_arguments_that_are_not_json_are_searched_verbatim(store: Store, arguments: str) -> None:
    """A model may have been interrupted in the middle of a call."""
    call = ToolCall(id="1", type="function", function=FunctionCall(name="f", arguments=arguments + " needle"))
    session = make_session("s1", messages=0)
    session.add_message(Message.assistant("", [call]))
    store.save(session)
    assert found(store, "needle") == [0]


def test_emoji_are_words(store: Store) -> None:
    """Alone, in sequence, and next to other text; one emoji does not find another."""
    said(store, "ship it 🚀now", "done✅🎉", "plain")
    assert (found(store, "🚀"), found(store, "✅"), found(store, "🎉")) == ([0], [1], [1])
    assert (found(store, "✅🎉"), found(store, "🎉✅"), found(store, "done ✅"), found(store, "now")) == (
        [1],
        [],
        [1],
        [0],
    )
    assert found(store, "-🚀 role:user") == [1, 2]


def test_hit_has_location_and_metadata(store: Store) -> None:
    """Session, message id, index, role, time and rank."""
    session = said(store, "nothing", "a needle here", title="haystack")
    hit = store.search("needle")[0]
    message = session.messages[1]
    assert hit.location == Location("s1")
    assert (hit.title, hit.message_index, hit.message_id, hit.role) == ("haystack", 1, message.id, "user")
    assert message.created_at is not None
    assert hit.created_ns == message.created_at.ns
    assert hit.rank < 0
    assert hit.snippet == "a [needle] here"
    assert (hit.kind, hit.path, hit.updated_ns) == ("message", "sessions/s1", session.updated_at.ns)
    assert store.search("haystack")[0].kind == "session"


def test_better_matches_come_first_and_the_limit_holds(store: Store) -> None:
    """bm25: a short text with two matches ranks before a long text with one."""
    said(store, "word " + "filler " * 200, "word word", *["other"] * 20)
    assert [hit.message_index for hit in store.search("word")] == [1, 0]
    assert len(store.search("word", limit=1)) == 1


def test_newest_comes_first_among_equals(store: Store) -> None:
    """With equal rank the newer session and the newer message come first."""
    for day, id in enumerate(("b", "c", "a"), 1):
        session = make_session(id, messages=0, title="x")
        session.updated_at = Timestamp(f"2026-06-0{day}T00:00:00Z")
        session.messages = [Message.user("word"), Message.user("word")]
        store.save(session)
    hits = [(location_of(hit).id, hit.message_index) for hit in store.search("word")]
    assert hits == [("a", 1), ("a", 0), ("c", 1), ("c", 0), ("b", 1), ("b", 0)]
    assert [(location_of(h).id, h.message_index) for h in store.search("word", limit=3)] == hits[:3]
    assert [location_of(h).id for h in store.search("word", by_session=True)] == ["a", "c", "b"]
    assert [location_of(h).id for h in store.search("word", by_session=True, limit=2)] == ["a", "c"]
    assert store.search("word", limit=0) == []


def test_ranking_of_frequent_words_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest CAP matches are ranked, in whichever session. Grouped by session, all sessions are found."""
    monkeypatch.setattr("store.search.results.CAP", 10)
    monkeypatch.setattr("store.search.results._PAGE", 7)
    for i in range(8):
        said(store, "word word", *["word filler filler"] * 5, id=f"s{i}", title=f"title {i}")
    store.append("s0", [Message.user("word is news")])
    hits = store.search("word", limit=100)
    assert len(hits) == 10
    assert ("s0", 6) in [(location_of(hit).id, hit.message_index) for hit in hits]
    assert {location_of(hit).id for hit in hits} == {"s0", "s7", "s6"}
    assert hits == sorted(hits, key=lambda hit: hit.rank)
    assert len(store.search("word role:user", limit=100)) == 10
    every = [location_of(hit).id for hit in store.search("word", limit=100, by_session=True)]
    assert sorted(every) == [f"s{i}" for i in range(8)]
    assert every[3:] == ["s5", "s4", "s3", "s2", "s1"]
    assert [location_of(hit).id for hit in store.search("word", limit=5, by_session=True)] == every[:5]


def test_state_documents_are_found(store: Store) -> None:
    """By title and text. Session filters do not find them, except title, kind and time."""
    said(store, "needle in a session", title="haystack")
    path = "state/memory/facts.md"
    store.state.save_markdown("memory", "facts", "The needle is in the barn.")
    os.utime(store.home / path, ns=(0, Timestamp("2026-01-02T00:00:00Z").ns))
    store.maintenance.rebuild()
    hit = store.search("barn")[0]
    assert (hit.kind, hit.location, hit.path, hit.title) == ("state", None, path, "facts")
    assert hit.snippet == "facts The needle is in the [barn]."
    assert {hit.kind for hit in store.search("needle")} == {"message", "state"}
    for query in ("needle kind:state", "needle -kind:root", "needle title:FACT", "needle before:2026-02", "kind:state"):
        assert [hit.path for hit in store.search(query)] == [path], query
        assert [hit.path for hit in store.search(query, by_session=True)] == [path], query
    for query in ("needle role:user", "needle kind:root", "needle pinned:yes", "needle model:x", "barn -pinned:no"):
        assert path not in [hit.path for hit in store.search(query)], query
    store.state.save_markdown("memory", "facts", "All is well.")
    assert (store.search("barn"), len(store.search("well"))) == ([], 1)
    store.state.delete("memory", "facts")
    assert store.search("well") == []


def test_rows_of_state_documents_are_put_and_removed(store: Store) -> None:
    """The functions that write, find, compare and delete them."""
    path = "state/memory/facts.md"
    with store._core.db.write() as db:
        fulltext.put_document(db, path, "facts", "the needle", 5)
        assert fulltext.documents(db) == [path]
        assert fulltext.document_matches(db, path, "facts", "the needle")
        assert not fulltext.document_matches(db, path, "facts", "other")
        assert not fulltext.document_matches(db, "state/other.md", "facts", "the needle")
        number = db.execute("SELECT number FROM texts WHERE row < 0").get
        fulltext.put_document(db, path, "facts", "the needle", 6)
        assert db.execute("SELECT number FROM texts WHERE row < 0").get == number
        fulltext.remove_document(db, path)
        fulltext.remove_document(db, path)
        assert fulltext.documents(db) == []
        assert fulltext.count_strays(db) == 0


# -- any input is legal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["foo-bar", "src/main.rs", "it's", "a.b.c", "x@y.z", "50%", "snake_case", "café"])
def test_word_with_punctuation_is_searched_as_a_phrase(store: Store, text: str) -> None:
    """Punctuation is not syntax, and the parts of a word must be adjacent."""
    said(store, f"before {text} after", "foo x bar, src x main x rs, it x s, a x b x c, x at y x z, snake x case")
    assert 0 in found(store, text)
    assert len(found(store, text)) == 1


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One home for all examples of a property test: queries change nothing."""
    with Store.open(tmp_path_factory.mktemp("shared") / "home", background=False) as store:
        said(store, "a word b", "alpha beta", "beta gamma", "gamma")
        said(store, "delta", id="s2", title="alpha")
        yield store


STRANGE = [
    "",
    " ",
    '"',
    '""',
    "'",
    "AND",
    "OR",
    "OR OR",
    "NOT",
    "*",
    "**",
    "NEAR(",
    "NEAR(a b, 5)",
    "(",
    ")",
    "()",
    ")(",
    "((a)",
    "(a))",
    "-",
    "--",
    "---a",
    "- a",
    "-(",
    "-)",
    "-OR",
    "a OR",
    "OR a",
    "a OR OR b",
    "a AND OR b",
    "(OR)",
    '"unbalanced',
    'a"b',
    'a "b" c"',
    "😀",
    "😀 word",
    "\ud800",
    "a\udcff",
    "title:a\udcff",
    "role:",
    'role:"',
    "role:()",
    "before:",
    "before:x",
    "before:9999",
    "after:0000",
    "before:9999-12-31T23:59:59Z",
    "before:2026-99-99",
    "-role:user",
    "text:foo",
    "{a}",
    "^a",
    "a+b",
    "a:b",
    "column:a",
    "rowid:1",
    "\u0301",
    "\U0001e2c0",
    "İ ß ǅ",
    "a\u200bb",
    "-" * 1000 + "a",
    "(" * 5000 + "a" + ")" * 5000,
    "(a OR " * 500,
    "(a b OR -(c " * 300,
    "-(" * 2001 + "a",
]


@pytest.mark.parametrize("query", STRANGE, ids=range(len(STRANGE)))
def test_odd_query_is_valid(shared: Store, query: str) -> None:
    """It gives hits or EmptyQuery, never a syntax error."""
    with suppress(EmptyQuery):
        shared.search(query)


LONG = [
    "x" * 16_000,
    " ".join(f"w{i}" for i in range(2_600)),
    " OR ".join(f"w{i}" for i in range(1_600)),
    " ".join(f"-w{i}" for i in range(2_300)),
    " OR ".join(f"-w{i}" for i in range(1_500)),
    " ".join(f"title:w{i}" for i in range(1_300)),
    " OR ".join(f"-role:w{i}" for i in range(1_100)),
    "-".join(f"w{i}" for i in range(2_600)),
    '"' * 16_000,
    "文" * 5_000,
    "(" * 16_000,
    "a (b OR " * 2_000,
]


@pytest.mark.parametrize("query", LONG, ids=range(len(LONG)))
def test_long_query_is_valid(shared: Store, query: str) -> None:
    """A pasted paragraph of any shape."""
    assert len(query.encode()) <= MAX_QUERY_BYTES
    try:
        shared.search(query)
    except EmptyQuery:
        assert not query.strip('"(')


@pytest.mark.parametrize("query", ["x" * 100_000, "word " * 20_000, "文" * 40_000, "\0", "a\0b", "role:\0"])
def test_oversized_or_binary_query_is_rejected(shared: Store, query: str) -> None:
    """A whole file, or a NUL byte: rejected immediately."""
    with pytest.raises(InvalidQuery, match=r"too long|NUL") as refused:
        shared.search(query)
    assert len(str(refused.value)) < 200


def test_query_without_words_raises_empty_query(store: Store) -> None:
    """Punctuation alone cannot be searched for."""
    for query in ("", '"', "-", "()", "AND", "*", "*** ...", "“”"):
        with pytest.raises(EmptyQuery, match="nothing to search for"):
            store.search(query)


@given(st.text() | st.text(alphabet='ab -()"*:\0ORAND文\t😀role:before:2'))
@settings(deadline=None, max_examples=300)
def test_any_text_is_a_valid_query(shared: Store, text: str) -> None:
    """Property: any text without NUL gives hits, no hits, or EmptyQuery."""
    with suppress(InvalidQuery if "\0" in text else EmptyQuery):
        shared.search(text)


TEXTS = ["alpha", "alpha beta", "beta gamma", "gamma", "delta", ""]
words = st.sampled_from(["alpha", "beta", "gamma", "delta", "role:user", "role:tool"])


def negate(query: tuple[str, Any]) -> tuple[str, Any]:
    return f"-({query[0]})", lambda text: not query[1](text)


def both(pair: tuple[tuple[str, Any], tuple[str, Any]]) -> tuple[str, Any]:
    (one, first), (other, second) = pair
    return f"({one}) ({other})", lambda text: first(text) and second(text)


def either(pair: tuple[tuple[str, Any], tuple[str, Any]]) -> tuple[str, Any]:
    (one, first), (other, second) = pair
    return f"({one} OR {other})", lambda text: first(text) or second(text)


def leaf(word: str) -> tuple[str, Any]:
    if word.startswith("role:"):
        return word, lambda text: word == "role:user"
    return word, lambda text: word in text.split()


queries = st.recursive(
    words.map(leaf),
    lambda inner: inner.map(negate) | st.tuples(inner, inner).map(both) | st.tuples(inner, inner).map(either),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def greek(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Store.open(tmp_path_factory.mktemp("greek") / "home", background=False) as store:
        said(store, *TEXTS, title="x")
        yield store


@given(queries)
@settings(deadline=None, max_examples=200)
def test_boolean_operators(greek: Store, query: tuple[str, Any]) -> None:
    """Property: parentheses, OR and - work for any mix of words and filters."""
    text, is_wanted = query
    depth = deepest = 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        deepest = max(deepest, depth)
    if deepest > 6:  # deeper parentheses are ignored
        return
    hits = {hit.message_index for hit in greek.search(text, limit=100)} - {None}
    assert hits == {i for i, said in enumerate(TEXTS) if is_wanted(said)}


# -- query language --------------------------------------------------------------------------------------------


@pytest.fixture
def zoo(store: Store) -> Store:
    said(store, "red fox", "red dog", "quick red fox", "the fox is red", "blue whale", title="animals")
    return store


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("red fox", [0, 2, 3]),
        ("RED Fox", [0, 2, 3]),
        ("red AND fox", [0, 2, 3]),
        ('"red fox"', [0, 2]),
        ('"red  fox', [0, 2]),
        ("qui*", [2]),
        ('"quick re"*', [2]),
        ("qui", []),
        ("q*", []),
        ("dog OR whale", [1, 4]),
        ("dog or whale", []),
        ("red -fox", [1]),
        ('red -"red fox"', [1, 3]),
        ("red -(quick OR dog)", [0, 3]),
        ("-red role:user", [4]),
        ("(dog OR quick) red", [1, 2]),
        ("red (fox -quick)", [0, 3]),
        ("--dog", [1]),
        ("-(-dog)", [1]),
        ("dog OR (whale blue)", [1, 4]),
        ("dog OR -red", [None, 1, 4]),
        ("animals", [None]),
        ("-red", [None, 4]),
        ("(role:user OR role:tool) dog", [1]),
        ("-(role:user dog) red", [0, 2, 3]),
        ("-(role:user)", [None]),
        ("dog OR role:tool", [1]),
    ],
)
def test_query_language(zoo: Store, query: str, places: list[int | None]) -> None:
    """Words, phrases, prefixes, OR, minus and parentheses."""
    assert found(zoo, query) == places


@pytest.fixture
def varied(store: Store) -> Store:
    """Three sessions that differ in everything a filter can select."""
    one = make_session("one", messages=0, title="Alpha plan", model="gpt-5")
    one.add_message(Message.user("word"))
    one.add_message(Message.assistant("word"))
    one.add_message(Message.tool_result("1", "word"))
    one.last_run_status = "completed"
    one.project_id = "p1"
    one.pinned = True
    one.updated_at = Timestamp("2026-06-20T08:15:30Z")
    for message in one.messages:
        message.created_at = one.updated_at
    store.save(one)
    two = make_session("two", messages=0, title="Beta", model="claude")
    two.add_message(Message.system("word"))
    two.updated_at = Timestamp("2025-03-01T00:00:00Z")
    for message in two.messages:
        message.created_at = two.updated_at
    store.save(two)
    kid = Session.new_child("kid", "two", "claude", "Gamma")
    kid.add_message(Message.user("word"))
    kid.last_run_status = "error"
    kid.updated_at = Timestamp("2200-01-01T00:00:00Z")
    for message in kid.messages:
        message.created_at = kid.updated_at
    store.save(kid)
    return store


@pytest.mark.parametrize(
    ("filters", "sessions"),
    [
        ("role:user", {"one", "kid"}),
        ("role:Assistant", {"one"}),
        ("role:tool", {"one"}),
        ("role:system", {"two"}),
        ("-role:user", {"one", "two"}),
        ("model:gpt", {"one"}),
        ("model:CLAUDE", {"two", "kid"}),
        ("-model:claude", {"one"}),
        ("title:alpha", {"one"}),
        ('title:"alpha plan"', {"one"}),
        ("-title:alpha", {"two", "kid"}),
        ("kind:root", {"one", "two"}),
        ("kind:child", {"kid"}),
        ("-kind:root", {"kid"}),
        ("pinned:true", {"one"}),
        ("pinned:yes", {"one"}),
        ("pinned:false", {"two", "kid"}),
        ("-pinned:true", {"two", "kid"}),
        ("status:completed", {"one"}),
        ("status:error", {"kid"}),
        ("-status:completed", {"two", "kid"}),
        ("project:p1", {"one"}),
        ("-project:p1", {"two", "kid"}),
        ("before:2026", {"two"}),
        ("before:2026-06-20", {"two"}),
        ("before:2026-06-21", {"one", "two"}),
        ("before:2026-06-20T08:15:30Z", {"two"}),
        ("before:2026-06-20T08:16", {"one", "two"}),
        ("before:9999", {"one", "two", "kid"}),
        ("after:2026-06", {"one", "kid"}),
        ("after:2026-06-20T08:15:30Z", {"one", "kid"}),
        ("after:2026-06-20T10:15:31+02:00", {"kid"}),
        ("-after:2026", {"two"}),
        ("after:2025-01-01 before:2026-01-01", {"two"}),
        ("kind:root pinned:false", {"two"}),
    ],
)
def test_filters(varied: Store, filters: str, sessions: set[str]) -> None:
    """Each filter, plain and negated, with a word and alone."""
    assert {location_of(hit).id for hit in varied.search(f"word {filters}")} == sessions
    assert {location_of(hit).id for hit in varied.search(f"{filters} word")} == sessions
    alone = {location_of(hit).id for hit in varied.search(filters)}
    assert alone >= sessions


def test_message_from_a_far_future_is_found(store: Store) -> None:
    """Nanoseconds in a 64-bit integer end in the year 2262; a later message is saved and found all the same."""
    message = Message.user("far away")
    message.created_at = Timestamp("9999-12-31T23:59:59Z")
    session = make_session("s1", messages=0)
    session.messages = [message]
    store.save(session)
    assert found(store, "far") == [0]


# -- Chinese, Japanese, Korean ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "会话存储的全文搜索",
        "セッションストアの全文検索",
        "세션저장소의전문검색",
        "ﾃｽﾄﾃﾞｰﾀ",
        "ㄅㄆㄇㄈ",
        "𠮷野家の牛丼",
        "人々と〇〇",
    ],
)
def test_cjk_is_found_by_any_two_or_more_characters(store: Store, text: str) -> None:
    """Without word boundaries: every substring finds the text, and other strings do not."""
    said(store, f"abc{text}def mixed", "会存 索搜 ストセ 장세 ﾄｽ ㄆㄅ 家野 〇々")
    for start in range(len(text)):
        for stop in range(start + 2, len(text) + 1):
            assert 0 in found(store, text[start:stop]), text[start:stop]
    assert found(store, text[1] + text[0]) in ([], [1])
    assert found(store, f"mixed {text[:2]}") == [0]
    assert found(store, f"-{text[:2]} mixed") == []


@pytest.mark.parametrize("composed", ["がぎぐ", "한글", "café"])
def test_composed_and_decomposed_text_are_the_same(store: Store, composed: str) -> None:
    """NFD text, as in macOS file names, is found by NFC input, and the other way round."""
    typed = unicodedata.normalize("NFD", composed)
    assert typed != composed
    said(store, composed, typed)
    assert found(store, composed) == [0, 1]
    assert found(store, typed) == [0, 1]


# -- snippets ----------------------------------------------------------------------------------------------------------


def test_snippet_shows_the_match_in_its_surroundings() -> None:
    """One line, truncated on both sides, with the match in brackets."""
    text = "start " + "x " * 200 + "the\n  needle\there " + "y " * 200
    cut = snippet(text, ["needle"])
    assert "the [needle] here" in cut
    assert cut.startswith("…")
    assert cut.endswith("…")
    assert len(cut) <= SNIPPET_CHARS + 4


@pytest.mark.parametrize(
    ("text", "words", "shown"),
    [
        ("a Needle b", ["needle"], "a [Needle] b"),
        ("see src main rs now", ["src/main.rs"], "see [src main rs] now"),
        ("see src/main.rs now", ["src main rs"], "see [src/main.rs] now"),
        ("foo\n  bar", ["foo bar"], "[foo bar]"),
        ("全文搜索很好", ["搜索"], "全文[搜索]很好"),
        ("short", ["absent"], "short"),
        ("short", [], "short"),
        ("", ["a"], ""),
        ("a.b*c", ["."], "a.b*c"),
        ("other bother the rest", ["the"], "other bother [the] rest"),
        ("their theory the rest", ["the*"], "[the]ir [the]ory [the] rest"),
        ("un café là", ["cafe"], "un [café] là"),
        ("un cafe\u0301 là", ["CAFÉ"], "un [cafe\u0301] là"),
        ("a cafe", ["café"], "a [cafe]"),
        ("が か", ["か"], "が [か]"),
        ("abc会话def", ["def"], "abc会话[def]"),
        ("会 话", ["会话"], "[会 话]"),
        ("ship it 🚀 now", ["🚀"], "ship it [🚀] now"),
        ("a [b] c", ["c"], "a [b] [c]"),
        ("red \x1b[31m alert", ["alert"], "red  [31m [alert]"),
    ],
)
def test_snippet(text: str, words: list[str], shown: str) -> None:
    """Whatever the index finds is marked in the text, with or without punctuation."""
    assert snippet(text, [wanted for word in words for wanted in parse_query(f'"{word}"').words]) == shown


def test_snippet_of_a_session_is_its_current_title_and_summary(store: Store) -> None:
    """From the sidecar, if that is newer than session.json."""
    session = said(store, "x", title="before")
    session.title = "afterwards"
    store.save_runtime(session)
    assert store.search("afterwards")[0].snippet == "[afterwards]"
    assert store.search("before") == []


@pytest.mark.warns
def test_hit_without_snippet_if_its_file_is_corrupt(store: Store) -> None:
    """A file corrupted outside the store loses the snippet, not the hit."""
    said(store, "needle", title="the title")
    path = store.home / "sessions/s1/session.json"
    good = path.read_bytes()
    for corrupt in (lambda: path.write_bytes(b"{"), path.unlink, lambda: path.symlink_to("/dev/null")):
        corrupt()
        assert store.search("needle")[0].snippet == "the title"
    path.unlink()
    path.write_bytes(good)
    store.maintenance.sweep()


# -- index rows -------------------------------------------------------------------------------------------------


def test_rows_follow_every_change(store: Store) -> None:
    """Rule 7: save, append, edit, rename, clear, delete and undelete, each visible immediately."""
    session = said(store, "first", title="oldname")
    assert found(store, "first") == [0]
    store.append(session, [Message.assistant("second")])
    assert found(store, "second") == [1]
    session.messages[0].content = "edited"
    store.save(session)
    assert (found(store, "first"), found(store, "edited"), found(store, "second")) == ([], [0], [1])
    session.title = "newname"
    store.save(session)
    assert (found(store, "oldname"), found(store, "newname")) == ([], [None])
    session.messages.pop(0)
    store.save(session, shorten=True)
    assert (found(store, "edited"), found(store, "second")) == ([], [0])
    store.delete("s1")
    assert found(store, "second") == []
    assert rows(store) == []
    store.trash.undelete(store.trash.deleted()[0].name)
    assert (found(store, "second"), found(store, "newname")) == ([0], [None])
    store.clear("s1")
    assert (found(store, "second"), found(store, "newname")) == ([], [None])


def changed(store: Store, session: Session) -> int:
    """How many rows of `texts` a save writes or removes."""
    written: list[str] = []
    store._core.db._writer.set_update_hook(lambda kind, _, table, row: written.append(table))
    try:
        store.save(session, shorten=True)
    finally:
        store._core.db._writer.set_update_hook(None)
    return written.count("texts")


def test_only_rows_of_changed_messages_are_rewritten(store: Store) -> None:
    """The index cost of saving a long session depends only on what changed (rule 10)."""
    session = said(store, *(f"message {i}" for i in range(50)))
    session.messages[20].content = "edited"
    assert changed(store, session) == 2  # the old row and the new one
    session.add_message(Message.user("more"))
    assert changed(store, session) == 1
    session.title = "renamed"
    assert changed(store, session) == 2
    session.pinned = True
    assert changed(store, session) == 0
    session.messages.pop()
    assert changed(store, session) == 1


def written_words(store: Store, change: Callable[[], object]) -> int:
    """How many rows of the full-text index a change writes or removes."""
    tables: list[str] = []
    store._core.db._writer.set_update_hook(lambda kind, _, table, row: tables.append(table))
    try:
        change()
    finally:
        store._core.db._writer.set_update_hook(None)
    return tables.count("search_docsize")


def test_moved_messages_are_not_indexed_again(store: Store) -> None:
    """After removing the first message, or inserting one before it."""
    session = said(store, *(f"message {i}" for i in range(50)), "twin", "twin")
    session.messages.pop(0)
    assert written_words(store, lambda: store.save(session, shorten=True)) == 1
    session.messages.insert(0, Message.user("newcomer"))
    assert written_words(store, lambda: store.save(session)) == 1
    session.messages.reverse()
    assert written_words(store, lambda: store.save(session)) == 0
    assert (found(store, "newcomer"), found(store, '"message 49"'), found(store, "twin")) == ([51], [2], [0, 1])
    assert written_words(store, lambda: store.append(session, [Message.user("more")])) == 1


def test_append_writes_one_row_per_message(store: Store) -> None:
    """Earlier rows are not touched."""
    session = said(store, *(f"message {i}" for i in range(50)))
    before = rows(store)
    store.append(session, [Message.user("more")])
    after = rows(store)
    assert len(after) == len(before) + 1
    assert [row for row in after if row not in before] == after[-1:]


def test_rebuild_gives_the_same_rows(store: Store) -> None:
    """Rule 1: index and search are derived from the files only."""
    session = said(store, "one", "two", "三四五")
    store.append(session, [Message.user("more")])
    said(store, "other", id="s2", title="second")
    child = Session.new_child("c1", "s2", "m", "child")
    store.save(child)
    store.save(make_session("gone"))
    store.delete("gone")
    before = rows(store)
    assert store.maintenance.rebuild() == 3
    assert rows(store) == before
    assert found(store, "四五") == [2]


WORDS = ["alpha", "beta", "会话存储", "🚀", "src/main.rs", "it's", "café", "", 'say "hi"\n']
IDS = ["s0", "s1", "s2"]
texts = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
places = st.integers(0, 5)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(IDS), texts, places),
        st.tuples(st.just("edit"), st.sampled_from(IDS), texts, places),
        st.tuples(st.just("insert"), st.sampled_from(IDS), texts, places),
        st.tuples(st.just("remove"), st.sampled_from(IDS), texts, places),
        st.tuples(st.just("title"), st.sampled_from(IDS), texts, places),
        st.tuples(st.just("foreign"), st.sampled_from(IDS), texts, places),
        st.tuples(st.just("document"), st.sampled_from(IDS), texts, places),
        st.tuples(st.just("fork"), st.sampled_from(IDS), texts, places),
        st.tuples(st.just("rename"), st.sampled_from(IDS), texts, places),
        st.tuples(st.sampled_from(["clear", "delete", "undelete"]), st.sampled_from(IDS), texts, places),
        st.tuples(st.just("state"), st.sampled_from(IDS), texts, places),
    ),
    min_size=1,
    max_size=14,
)


def operate(store: Store, what: str, id: str, text: str, place: int) -> None:
    """One change of any kind: through the API, as raw bytes, or outside the store."""
    if what == "state":
        store.state.save_markdown("notes", id, text)
        return
    if what == "undelete":
        known = [deleted for deleted in store.trash.deleted() if deleted.what == "deleted"]
        if known and store.entry(known[0].session_id) is None:
            store.trash.undelete(known[0].name)
        return
    session = store.load(id)
    if session is None:
        store.save(make_session(id, messages=3, title=text))
        return
    path = store.home / f"sessions/{id}/session.json"
    if what == "append":
        store.append(id, [Message.user(text), Message.assistant(text)])
    elif what == "edit" and session.messages:
        session.messages[place % len(session.messages)].content = text
        store.save(session)
    elif what == "insert":
        session.messages.insert(place, Message.user(text))
        store.save(session)
    elif what == "remove" and session.messages:
        session.messages.pop(place % len(session.messages))
        store.save(session, shorten=True)
    elif what == "title":
        session.title = text
        store.save_runtime(session)
    elif what in ("foreign", "document"):
        document = json.loads(path.read_bytes())
        document["messages"] = [*document["messages"][place:], {**Message.user(text).model_dump()}]
        raw = json.dumps(document, ensure_ascii=False).encode()
        if what == "foreign":
            path.write_bytes(raw)
            store.maintenance.sweep()
        else:
            store.put_document(id, "session.json", raw, on_conflict="overwrite")
    elif what == "fork" and store.entry(f"{id}-fork") is None:
        store.put_document(f"{id}-fork", "session.json", path.read_bytes(), on_conflict="overwrite")
    elif what == "rename" and store.entry(f"{id}-new") is None:
        store.rename(id, f"{id}-new")
    elif what in ("clear", "delete"):
        getattr(store, what)(id)


@given(operations)
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_equal_a_rebuild_after_any_changes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str, int]]
) -> None:
    """Property, rules 1 and 7: after any changes the rows and their words equal those of a rebuild."""
    home = tmp_path_factory.mktemp("property") / "home"
    with Store.open(home, background=False, durability="normal") as store:
        for step in steps:
            operate(store, *step)
        report = store.check()
        assert report.is_clean, "\n".join(map(str, report.findings))
    kept_up = dump_tables(home)
    with Store.open(home, background=False, durability="normal") as store:
        store.maintenance.rebuild()
    assert dump_tables(home) == kept_up


def searching(store: Store, change: Callable[[], object]) -> tuple[int, int]:
    """The search cost of a change: rows written and SQLite virtual machine steps, which are deterministic."""
    tables: list[str] = []
    steps = [0]
    db = store._core.db._writer

    def step() -> bool:
        steps[0] += 1
        return False

    db.set_update_hook(lambda kind, _, table, row: tables.append(table))
    db.set_progress_handler(step, 1)
    try:
        change()
    finally:
        db.set_update_hook(None)
        db.set_progress_handler(None, 1)
    return sum(table in ("texts", "search_docsize", "pieces") for table in tables), steps[0]


def test_append_costs_search_the_same_at_any_length(store: Store) -> None:
    """Rule 10: the same rows written and the same database work for 10 messages as for 5,000."""
    short = said(store, *(f"message {i}" for i in range(10)), id="short")
    long = said(store, *(f"message {i}" for i in range(5_000)), id="long")
    costs = {}
    for session in (short, long, short, long):
        costs[session.id] = searching(store, partial(store.append, session, [Message.user("one more")]))
    assert costs["short"][0] == costs["long"][0] == 3
    assert costs["long"][1] <= costs["short"][1] * 1.2


def test_message_text_contains_equal_parts_once() -> None:
    """Content and its first part are often equal; indexing both would count matches twice."""
    message = Message.user("same")
    message.content_parts = [MessagePart(type="text", text="same"), MessagePart(type="text", text="more")]
    assert message_text(message.model_dump()) == "same\nmore"


# -- hints for likely mistakes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("role:bogus", "unknown role 'bogus'; expected one of system, user, assistant, tool"),
        ("-kind:leaf", "unknown kind 'leaf'; expected one of root, child, state"),
        (
            "before:nonsense",
            "before: expected a date such as 2026-11-16, 2026-11, yesterday or 7d, got 'nonsense'",
        ),
        ("after:2026-13", "after: expected a date"),
        ("pinned:maybe", "pinned: expected yes or no, got 'maybe'; read as no"),
        ("status:eror", "unusual status 'eror'"),
        ("model:", "model: has no value and was searched as a word"),
        ("foo:bar", "unknown filter 'foo:', searched as words; filters are role:"),
        ("Role:user", "unknown filter 'Role:', searched as words; did you mean role:?"),
        ('say "it all', "unclosed quote before 'it all'; everything after it is read as one phrase"),
        ("(race", "unclosed parenthesis before 'race'; everything after it is read as one group"),
        ("((a OR b) c", "unclosed parenthesis before '(a OR b) c'"),
        ("a*", "a prefix needs at least two letters"),
        ("model:claude*", "model: takes no pattern, the star in 'claude*' is an ordinary character; write a part"),
        ("tool:Ba*", "tool: takes no pattern, the star in 'Ba*' is an ordinary character; write the whole name"),
        ("hello NOT goodbye", "NOT is searched as a word; write -word"),
    ],
)
def test_likely_mistake_gets_a_hint(query: str, hint: str) -> None:
    (found,) = parse_query(query).hints
    assert found.startswith(hint)


def test_plain_query_gets_no_hint() -> None:
    for query in (
        *("login blank", '"a phrase" -not (a OR b) pre*', "https://x.org/y", "std::vector", "localhost:80", "12:30"),
        *("TypeError: x", "role:USER kind:root pinned:no status:Error before:2026-02 after:2026-01-31T10", "C:\\x"),
        *('title:"two words"', "foo-bar", "it's", "AND", "*", "NEAR(", "a) (b)", "🙂", ""),
    ):
        assert parse_query(query).hints == (), query


@given(st.text(max_size=60))
def test_hint_is_one_printable_line(query: str) -> None:
    assume("\0" not in query)
    assert all(hint.isprintable() for hint in parse_query(query).hints)


def test_d3_dates_are_those_of_the_messages(store: Store) -> None:
    """Not of the last change of the session; relative dates count back from now."""
    session = make_session("s1", messages=0)
    for hours, text in ((24 * 20, "old needle"), (24 * 3, "recent needle"), (1, "new needle")):
        message = Message.user(text)
        message.created_at = Timestamp.from_ns(time.time_ns() - hours * 3600 * 10**9)
        session.messages.append(message)
    store.save(session)
    day = Timestamp.from_ns(time.time_ns() - 10 * 86_400 * 10**9)[:10]
    for query, places in (
        ("needle after:7d", [1, 2]),
        ("needle before:7d", [0]),
        ("needle after:12h", [2]),
        ("needle after:4w before:2w", [0]),
        (f"needle after:{day}", [1, 2]),
        ("needle before:yesterday", [0, 1]),
    ):
        assert found(store, query) == places, query
    assert "yesterday or 7d" in parse_query("after:soon").hints[0]


def test_d11_the_tool_filter_finds_calls_and_results(store: Store) -> None:
    """By the name of the tool, not by words that happen to be equal."""
    call = Message.assistant(
        "checking", [ToolCall(id="1", type="function", function=FunctionCall(name="Bash", arguments="{}"))]
    )
    result = Message.tool_result("1", "checking")
    result.metadata = {"tool_name": "bash"}
    session = make_session("s1", messages=0)
    session.messages = [Message.user("checking bash"), call, result]
    store.save(session)
    assert found(store, "checking tool:bash") == [1, 2]
    assert found(store, "checking -tool:bash") == [0]
    assert found(store, "tool:read") == []


def test_d11_near_spellings_are_offered(store: Store) -> None:
    said(store, "the certificate expired", "another certificate")
    assert store.near_spellings("certifcate") == ["certificate"]
    assert store.near_spellings("certificate") == []
    assert store.near_spellings("zzzzzz") == []
