"""Start of a follower for an open home that has joined a grove."""

from __future__ import annotations

import logging

from store.commit.core import Core
from store.errors import StoreError
from store.grove.agreeing import GroveAgreement
from store.grove.follower import LogFollower

log = logging.getLogger("grovefs.store")

CATCH_UP_S = 1.0  # opening a home waits no longer for what other hosts did


def follow(core: Core, *, background: bool) -> LogFollower:
    """Bring a joined home up to date, for a second at most, and keep it so with `background`."""
    agreement = core.agreement
    assert isinstance(agreement, GroveAgreement)
    follower = LogFollower(
        core, agreement.replica, agreement.server, agreement.outside, agreement.deletions, agreement.chains
    )
    try:
        follower.catch_up(CATCH_UP_S)
    except (StoreError, OSError) as error:
        log.info("opened without the newest changes of other hosts: %s", error)
        follower.problem = str(error)
    if background:
        follower.start()
    return follower
