"""Nodes live as long as the kernel knows them, in whatever order it forgets."""

from __future__ import annotations

from fusefs.tree.nodes import ROOT_INODE, Node, Nodes
from store.path_kinds import classify_path


def add(nodes: Nodes, parent: Node, name: str) -> Node:
    path = parent.path_of(name)
    node = nodes.add(Node(nodes.number(path, "same"), parent, name, path, classify_path(f"sessions/{path}")))
    node.lookups = 1
    return node


def test_what_is_forgotten_late_takes_no_other_directory_along() -> None:
    """The kernel may drop a directory before an old version of a document in it, and look it up anew in between."""
    nodes = Nodes()
    root = nodes.add(Node(ROOT_INODE, None, "", "", None))
    directory = add(nodes, root, "s")
    version = add(nodes, directory, "session.json")
    nodes.detach(version)  # another version has the name by now
    nodes.forget(directory.inode, 1)
    again = add(nodes, root, "s")
    dropped: list[Node] = []
    nodes.dropped = dropped.append  # type: ignore[method-assign, assignment]
    nodes.forget(version.inode, 1)
    assert nodes.get(again.inode) is again
    assert root.children == {"s": again}
    assert dropped == [version]
