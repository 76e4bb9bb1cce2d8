"""Split a conversation tree into chains: the main path and its branches. Pure.

Every node is in exactly one chain, even in an inconsistent mapping with disconnected nodes, cycles, or parents that do
not list their children.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

Node = dict[str, Any]


@dataclass
class Chain:
    """Consecutive nodes; `parent` is the chain it branches off, None for the main path."""

    nodes: list[str]
    parent: Chain | None = None
    depth: int = 0


@dataclass
class ConversationNodes:
    """The nodes of a mapping. The `parent` members define the tree; `children` members only the order."""

    nodes: dict[str, Node]
    children: dict[str | None, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for id in self.nodes:
            self.children.setdefault(self._parent(id), []).append(id)
        for parent, ids in self.children.items():
            if parent is not None:
                ids.sort(key=self._child_order(parent))

    def _parent(self, id: str) -> str | None:
        parent = self.nodes[id].get("parent")
        return parent if isinstance(parent, str) and parent in self.nodes else None

    def _child_order(self, parent: str) -> Any:
        """Sort key: the order in which a parent lists its children; unlisted ones come last."""
        listed = self.nodes[parent].get("children")
        names = [id for id in listed if isinstance(id, str)] if isinstance(listed, list) else []
        places = {id: place for place, id in enumerate(names)}
        return lambda id: places.get(id, len(places))

    def path_to(self, current: Any) -> list[str]:
        """The nodes from the root to `current`; if that is not a node, along the latest child of each node."""
        if not isinstance(current, str) or current not in self.nodes:
            tops = self.children.get(None, [])
            return self._follow(tops[0], set()) if tops else []
        path: list[str] = []
        seen: set[str] = set()
        at: str | None = current
        while at is not None and at not in seen:
            seen.add(at)
            path.append(at)
            at = self._parent(at)
        return path[::-1]

    def chains(self, current: Any) -> list[Chain]:
        """The main path, then all branches, each after the chain it branches off."""
        main = Chain(self.path_to(current))
        chains, taken = [main], set(main.nodes)
        self._add_branches(main, chains, taken)
        for node in self.nodes:  # disconnected nodes and cycles
            if node not in taken:
                self._add_branches(self._add_branch(node, main, chains, taken), chains, taken)
        return chains

    def _add_branches(self, chain: Chain, chains: list[Chain], taken: set[str]) -> None:
        waiting = deque([chain])
        while waiting:
            above = waiting.popleft()
            for node in above.nodes:
                for child in self.children.get(node, []):
                    if child not in taken:
                        waiting.append(self._add_branch(child, above, chains, taken))

    def _add_branch(self, start: str, above: Chain, chains: list[Chain], taken: set[str]) -> Chain:
        chain = Chain(self._follow(start, taken), above, above.depth + 1)
        taken.update(chain.nodes)
        chains.append(chain)
        return chain

    def _follow(self, start: str, taken: set[str]) -> list[str]:
        """A node and its successors, following the latest child of each."""
        line: list[str] = []
        seen: set[str] = set()
        at: str | None = start
        while at is not None:
            seen.add(at)
            line.append(at)
            below = [id for id in self.children.get(at, []) if id not in taken and id not in seen]
            at = below[-1] if below else None
        return line
