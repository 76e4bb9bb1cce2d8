"""Nodes: lifetime by lookup counts, inode numbers, names and paths."""

from __future__ import annotations

import os

from fusefs.fast import PROBED_NAMES
from fusefs.tree.nodes import ROOT_INODE, Listing, Node, Nodes
from store.path_kinds import classify_path


def add(nodes: Nodes, parent: Node, name: str) -> Node:
    path = parent.path_of(name)
    node = nodes.add(Node(nodes.number(path, "same"), parent, name, path, classify_path(f"sessions/{path}")))
    node.lookups = 1
    return node


def test_late_forget_of_a_version_keeps_the_new_directory_node() -> None:
    """The kernel may forget a directory before an old version in it, and look the directory up again in between."""
    nodes = Nodes()
    root = nodes.add(Node(ROOT_INODE, None, "", "", None))
    directory = add(nodes, root, "s")
    version = add(nodes, directory, "session.json")
    nodes.detach(version)  # a newer version has the name
    nodes.forget(directory.inode, 1)
    again = add(nodes, root, "s")
    dropped: list[Node] = []
    nodes.dropped = dropped.append  # type: ignore[method-assign, assignment]
    nodes.forget(version.inode, 1)
    assert nodes.get(again.inode) is again
    assert root.children == {"s": again}
    assert dropped == [version]


def test_number_of_a_live_node_is_not_used_twice() -> None:
    """Another node gets a salted number; a free number is always the same."""
    nodes = Nodes()
    root = nodes.add(Node(ROOT_INODE, None, "", "", None))
    first = nodes.number("s", "same")
    node = add(nodes, root, "s")
    assert node.inode == first
    assert nodes.number("s", "same") != first
    nodes.forget(node.inode, 1)
    assert nodes.number("s", "same") == first


def test_rename_updates_all_paths_below_and_detaches_the_replaced_node() -> None:
    nodes = Nodes()
    root = nodes.add(Node(ROOT_INODE, None, "", "", None))
    old, replaced = add(nodes, root, "old"), add(nodes, root, "new")
    below = add(nodes, old, "session.json")
    nodes.rename(old, root, "new")
    assert root.children == {"new": old}
    assert (old.path, below.path) == ("new", "new/session.json")
    assert nodes.get(replaced.inode) is replaced, "open handles still use it"
    nodes.detach(replaced)
    assert root.children == {"new": old}


def test_directory_is_kept_while_it_has_children() -> None:
    """Forgetting the last child drops both."""
    nodes = Nodes()
    root = nodes.add(Node(ROOT_INODE, None, "", "", None))
    directory = add(nodes, root, "s")
    child = add(nodes, directory, "session.json")
    nodes.forget(directory.inode, 1)
    assert nodes.get(directory.inode) is directory
    nodes.forget(child.inode, 1)
    assert list(nodes) == [root]


def test_stale_listing_keeps_names_and_drops_stat_results() -> None:
    listing = Listing(["a", "b"], {"a": os.stat("/")})
    assert listing.knows("b")
    assert not listing.knows("c")
    listing.mark_stale()
    assert (listing.names, listing.infos, listing.is_stale) == (["a", "b"], {}, True)


def test_nodes_own_only_the_containers_that_they_use() -> None:
    """Most nodes are files: empty sets and dictionaries would be a fifth of their memory."""
    nodes = Nodes()
    root = nodes.add(Node(ROOT_INODE, None, "", "", None))
    one, two = add(nodes, root, "one"), add(nodes, root, "two")
    assert one.children is two.children
    assert one.absent is two.absent
    assert root.children == {"one": one, "two": two}
    one.note_absent("note")
    assert (one.absent, two.absent) == ({"note"}, set())
    assert [one.forget_absent("note"), one.forget_absent("note"), two.forget_absent("note")] == [True, False, False]


def test_names_that_the_extension_answers_stay_noted_as_absent() -> None:
    """It may answer again that there is none, after the kernel was notified."""
    node = Node(7, None, "", "", None, absent=PROBED_NAMES)
    assert node.forget_absent(".git")
    assert node.forget_absent(".git")
    node.note_absent("note")
    assert node.absent == {"note", *PROBED_NAMES}
    assert node.forget_absent("note")
    assert node.absent == PROBED_NAMES
