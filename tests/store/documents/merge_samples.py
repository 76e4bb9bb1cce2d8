"""Random documents edited by two sides, and the laws of merging them.

A seed determines one case, so a failure of the long attack can be repeated in a test.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

from store.documents import json_text
from store.documents.json_splice import same
from store.documents.merge import Merge, MergeConflict, merge_documents
from store.documents.merge_plan import alike
from store.model.timestamp import Timestamp
from tests.store.documents.json_samples import LAYOUTS, write_randomly

Members = dict[str, Any]

_TEXTS = ["", "a", "b", "é\n", '"', "日本"]
_KEYS = ["title", "pinned", "workspace", "x", "y"]
_MARKS = ["compressed", "compressed_by_event_id"]
# Members of which theirs wins, or that always change.
ONE_SIDED = ("token_usage", "conversation_summary", "updated_at")


def make_base(how: random.Random) -> Members:
    document: Members = {"id": "s", "title": "t", "messages": _messages(how), "metadata_version": 1}
    document |= {"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}
    if how.random() < 0.7:
        document["metadata"] = {k: how.choice(_TEXTS) for k in how.sample("abcd", how.randrange(4))}
    if how.random() < 0.3:
        document["n"] = how.choice([1, 1.0, 2**63, 0.1])
    return document


def _messages(how: random.Random) -> list[Members]:
    with_ids = how.choice([1.0, 1.0, 0.5, 0.0])
    found = []
    for index in range(how.randrange(7)):
        message: Members = {"role": how.choice(["user", "assistant", "tool"]), "content": how.choice(_TEXTS)}
        if how.random() < with_ids:
            message = {"id": f"m{index}" if how.random() < 0.95 else "m0", **message}
        if message["role"] == "assistant" and how.random() < 0.5:
            message["tool_calls"] = [{"id": f"c{index}"}]
        if message["role"] == "tool":
            message["tool_call_id"] = f"c{how.randrange(7)}"
        found.append(message)
    return found


def edit(base: Members, who: str, how: random.Random) -> Members:
    """The document after a few edits by one side."""
    document: Members = json.loads(json.dumps(base))
    for _ in range(how.choice([0, 1, 1, 2, 3, 5])):
        how.choice(_EDITS)(document, who, how)
    return document


def _edit_member(document: Members, who: str, how: random.Random) -> None:
    key = how.choice(_KEYS)
    if how.random() < 0.2:
        document.pop(key, None)
    else:
        document[key] = how.choice(["u", who, 1, None, {"p": 1, who: 2}, [1]])


def _edit_nested(document: Members, who: str, how: random.Random) -> None:
    inside = document.setdefault("metadata", {})
    key = how.choice(["a", "b", who])
    if how.random() < 0.3:
        inside.pop(key, None)
    else:
        inside[key] = how.choice(_TEXTS)


def _edit_agent(document: Members, who: str, how: random.Random) -> None:
    document[how.choice(ONE_SIDED[:2])] = {"by": who, "n": how.randrange(3)}
    document["metadata_version"] += how.randrange(3)


def _rewrite_digits(document: Members, _: str, how: random.Random) -> None:
    if "n" in document:
        document["n"] = float(document["n"])


def _add(document: Members, who: str, how: random.Random) -> None:
    messages = document["messages"]
    new: Members = {"role": how.choice(["user", "tool"]), "content": f"{who}{how.randrange(4)}"}
    if how.random() < 0.7:
        new["id"] = f"{who}{how.randrange(1000)}"
    if new["role"] == "tool":
        new["tool_call_id"] = f"c{how.randrange(7)}"
    messages.insert(len(messages) if how.random() < 0.6 else how.randrange(len(messages) + 1), new)


def _add_equal(document: Members, _: str, how: random.Random) -> None:
    document["messages"].append({"id": "both", "role": "user", "content": how.choice(["1", "1", "2"])})


def _delete(document: Members, _: str, how: random.Random) -> None:
    if document["messages"]:
        document["messages"].pop(how.randrange(len(document["messages"])))


def _change(document: Members, who: str, how: random.Random) -> None:
    if document["messages"]:
        message = how.choice(document["messages"])
        message[how.choice(["content", "content", "reasoning", *_MARKS])] = how.choice([who, "u"])


def _move(document: Members, _: str, how: random.Random) -> None:
    messages = document["messages"]
    if len(messages) > 1:
        messages.insert(how.randrange(len(messages)), messages.pop(how.randrange(len(messages))))


_EDITS = [_edit_member, _edit_nested, _edit_agent, _rewrite_digits, _add, _add, _add_equal, _delete, _change, _change]
_EDITS += [_move]


def make_text(document: Members, how: random.Random) -> bytes:
    """The document in a random layout."""
    if how.random() < 0.2:
        return write_randomly(document, how).encode()
    return json.dumps(document, ensure_ascii=how.random() < 0.3, **how.choice(LAYOUTS)).encode()


# -- the laws --------------------------------------------------------------------------------------


def check_laws(seed: int) -> bool:
    """All laws for one case. Returns whether the two sides could be merged."""
    how = random.Random(seed)
    base = make_base(how)
    ours, theirs = edit(base, "o", how), edit(base, "t", how)
    _check_identities(base, ours, theirs)
    merged, reverse = try_merge(base, ours, theirs), try_merge(base, theirs, ours)
    assert (merged is None) == (reverse is None), "one direction clashes"
    if merged is None or reverse is None:
        return False
    _check_symmetry(merged.data, reverse.data)
    _check_messages(base, ours, theirs, merged.data)
    again = merge_documents(ours, ours, merged.data, "x")
    assert alike(without(again.data), without(merged.data)), "a second save of the same text changes something"
    _check_text(ours, theirs, merged, how)
    return True


def try_merge(base: Members, ours: Members, theirs: Members) -> Merge | None:
    try:
        return merge_documents(base, ours, theirs, "x")
    except MergeConflict:
        return None


def without(document: Members, *keys: str) -> Members:
    return {k: v for k, v in document.items() if k not in ("updated_at", *keys)}


def _check_identities(base: Members, ours: Members, theirs: Members) -> None:
    assert alike(without(merge_documents(base, ours, base, "x").data), without(ours))
    assert alike(without(merge_documents(base, base, theirs, "x").data), without(theirs))
    assert alike(without(merge_documents(base, ours, ours, "x").data), without(ours))


def _check_symmetry(one: Members, other: Members) -> None:
    skipped = ("messages", *ONE_SIDED)
    assert alike(without(one, *skipped), without(other, *skipped))
    assert _contents(one) == _contents(other)


def _contents(document: Members) -> list[str]:
    """The messages as a sorted list, without the marks that theirs wins."""
    return sorted(
        json.dumps({k: v for k, v in m.items() if k not in _MARKS}, sort_keys=True) for m in document["messages"]
    )


def _check_messages(base: Members, ours: Members, theirs: Members, merged: Members) -> None:
    """Every message that one side added is there, and each missing one was removed by one side."""
    known = {m["id"] for m in base["messages"] if "id" in m}
    found = {m["id"] for m in merged["messages"] if "id" in m}
    for side in (ours, theirs):
        assert {m["id"] for m in side["messages"] if "id" in m} - known <= found
    kept = [{m["id"] for m in side["messages"] if "id" in m} for side in (ours, theirs)]
    ids = [m.get("id") for m in base["messages"]]
    assert {id for id in known & kept[0] & kept[1] if ids.count(id) == 1} <= found
    for side, other in ((ours, theirs), (theirs, ours)):
        _check_with_ids(base, side, other, merged)
        _check_texts(base, side, other, merged)
    _check_untouched(base, ours, theirs, merged)


def _check_with_ids(base: Members, side: Members, other: Members, merged: Members) -> None:
    """A message that only one side added or changed is in the result as that side has it."""
    before, mine, their, found = (_by_unique_id(document) for document in (base, side, other, merged))
    shared = _shared_ids(base) | _shared_ids(side) | _shared_ids(other)
    for id, message in mine.items():
        is_added = id not in before and id not in their
        is_changed_here_only = id in before and id in their and alike(their[id], before[id])
        if id not in shared and (is_added or is_changed_here_only):
            assert alike(found.get(id), message), f"{id} differs from what its only writer wrote"


def _by_unique_id(document: Members) -> dict[str, Members]:
    shared = _shared_ids(document)
    return {m["id"]: m for m in document["messages"] if "id" in m and m["id"] not in shared}


def _shared_ids(document: Members) -> set[str]:
    counts = Counter(m["id"] for m in document["messages"] if "id" in m)
    return {id for id, count in counts.items() if count > 1}


def _check_texts(base: Members, side: Members, other: Members, merged: Members) -> None:
    """A text that only one side wrote is there as often as there, also in messages without id."""
    elsewhere = {m["content"] for document in (base, other) for m in document["messages"]}
    written = Counter(m["content"] for m in side["messages"] if m["content"] not in elsewhere)
    found = Counter(m["content"] for m in merged["messages"])
    assert {text: found[text] for text in written} == written, "a text that one side wrote is lost, or there twice"


def _check_untouched(base: Members, ours: Members, theirs: Members, merged: Members) -> None:
    """Messages that both sides left alone are there, also without id. Two moves of one may leave it twice."""
    before, one, other, found = (Counter(_contents(document)) for document in (base, ours, theirs, merged))
    for text, count in before.items():
        if one[text] == other[text] == count:
            assert found[text] >= count, f"a message that nobody removed is lost: {text}"


def _check_text(ours: Members, theirs: Members, merged: Merge, how: random.Random) -> None:
    """The text says what the data says, in every mix of layouts."""
    our_text, their_text = make_text(ours, how), make_text(theirs, how)
    text = merged.render(our_text, their_text)
    assert same(json_text.parse(text, "x"), merged.data), (our_text, their_text, text)
    alone = merge_documents(theirs, ours, theirs, "x", updated_at=Timestamp(ours["updated_at"]))
    expected = our_text if same(alone.data, ours) else None
    assert expected is None or alone.render(our_text, their_text) == expected, "unchanged parts lost their bytes"
