"""Nodes: lifetime by lookup counts, inode numbers, names and paths."""

from __future__ import annotations

from fusefs.tree.nodes import ROOT_INODE, Node, Nodes
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
