"""Rename directories below `projects/`: a session, or a whole project.

A payload does not contain its path, so it does not change. The index files of both ends are
updated before the journal entry is removed: after a crash, recovery updates them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from store import layout
from store.commit.commit import Commit, IndexRefresh
from store.commit.commits import Commits
from store.commit.core import Core
from store.errors import AlreadyExists, NotEmpty, NotFound, Protected
from store.layout import PROJECTS, Location
from store.path_kinds import PathInfo, PathKind
from store.workspace.project_records import member_of
from store.workspace.projects import Projects, check_key, check_member


@dataclass(frozen=True)
class ProjectMover:
    core: Core
    commits: Commits
    projects: Projects

    def move(self, source: PathInfo, target: PathInfo) -> None:
        """Rename a directory. At least one end is the directory of a session or a project."""
        self._check_allowed(source, target)
        ends = [place.location for place in (source, target) if place.path.startswith(f"{PROJECTS}/")]
        touched = [_project(location) for location in ends if location is not None]
        with self._locked(touched):
            if self.core.disk.stat(source.path) is None:
                raise NotFound(f"{source.path} does not exist")
            if self.core.disk.entries(target.path):
                raise AlreadyExists(f"{target.path} exists and is not empty")
            # Recovery takes an existing target for a completed move.
            self.core.disk.remove_dirs([target.path])
            moves = [(source.path, target.path)]
            commit = Commit(touched[0], moves=moves, dirs=[target.directory], touched=touched, whole_tree=True)
            self.commits.run(commit, IndexRefresh(touched), "project")

    @contextmanager
    def _locked(self, projects: list[Location]) -> Iterator[None]:
        with ExitStack() as stack:
            # A fixed order prevents deadlocks.
            for root in sorted({location.root for location in projects}):
                stack.enter_context(self.core.locked_tree(root))
            yield

    def _check_allowed(self, source: PathInfo, target: PathInfo) -> None:
        if source.kind in (PathKind.PROJECT, PathKind.PROJECT_SESSION) and target.kind is not source.kind:
            what = "project" if source.kind is PathKind.PROJECT else "session of a project"
            raise Protected(f"{source.path} is a {what}; it can only be renamed to another one")
        if target.kind is PathKind.PROJECT:
            check_key(target.name)
        member = member_of(target.location) if target.kind is PathKind.PROJECT_SESSION and target.location else None
        if member is not None:
            check_member(member)
        if member is not None and member.child is not None and self._has_children(source):
            raise NotEmpty(f"{source.path} has children, so it cannot become a child itself")

    def _has_children(self, source: PathInfo) -> bool:
        return bool(self.core.disk.entries(f"{source.path}/{layout.CHILDREN}"))


def _project(location: Location) -> Location:
    return Location(location.root)
