"""Display names: safe, short and unique."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from store import Location
from store.documents import display_names

texts = st.text(max_size=300) | st.text("ab~ -./", max_size=20) | st.text("字😀é", max_size=200)
ids = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\."), min_size=1, max_size=60)


@given(texts, st.none() | texts, ids, st.none() | ids)
def test_names_are_safe_in_a_shell_and_on_a_filesystem(
    title: str, opening: str | None, root: str, child: str | None
) -> None:
    """No slash, no control character, nothing to quote, at most 200 bytes, with or without suffix."""
    location = Location(root, child)
    plain = display_names.session_name(title, opening, location)
    for name in (plain, display_names.with_suffix(plain, location)):
        assert 0 < len(name.encode()) <= display_names.MAX_BYTES
        assert name.isprintable()
        assert "/" not in name
        assert not name.startswith((".", "-", "~"))
        if name.isascii():
            assert shlex.split(name) == [name]
            assert not set(name) & set(" !\"#$&'()*;<>?[\\]^`{|}")


@given(texts, ids)
def test_suffix_can_be_split_off(title: str, root: str) -> None:
    name = display_names.session_name(title, None, Location(root))
    assert display_names.split_suffix(display_names.with_suffix(name, Location(root))) == (
        name,
        display_names.digest_suffix(root),
    )


@given(st.sets(texts | st.sampled_from(["none", "None", "a b", "a-b", "a/b", "", ".x", "x~12345678"]), max_size=8))
def test_labels_are_unique(values: set[str]) -> None:
    """Two values never share a directory."""
    assert len({display_names.label(value) for value in values}) == len(values)
    for value in values:
        name = display_names.label(value)
        assert 0 < len(name.encode()) <= display_names.MAX_BYTES
        assert "/" not in name
        assert not name.startswith(".")


def test_name_consists_of_title_and_id() -> None:
    assert display_names.session_name("Fix the `login` page: it's blank", "Hello", Location("fix-login")) == (
        "Fix-the-login-page-it-s-blank~fix-login"
    )
    assert display_names.session_name("中文 标题", None, Location("r", "0b0e9d64-aaaa-bbbb")) == "中文-标题~0b0e9d64"
    assert display_names.session_name("", None, Location("s1")) == "untitled~s1"
    assert display_names.session_name("New Session", "Hello, you", Location("s1")) == "Hello,-you~s1"
    assert display_names.label("completed") == "completed"
    assert display_names.label("gpt-5/mini").startswith("gpt-5-mini~")
    assert display_names.label(None) == "none"
