"""The rules of committed offsets, applied to what one client sends and is told, whichever protocol it speaks.

Each offset that the client commits gets an identity (commit_attempts.py); an offset that it is given must have been the
committed one since the request began; what is answered as committed must be in the committed log. Not here: the rules
(coordination.py).
"""

from __future__ import annotations

from testbed.sim.commit_attempts import Place
from testbed.sim.coordination import Coordination
from testbed.sim.ledger import Violation
from testbed.sim.loop import SimLoop


class WatchedOffsets:
    """The offsets of one client. name: of the client."""

    def __init__(self, coordination: Coordination, loop: SimLoop, name: str) -> None:
        self._coordination, self._loop, self._name = coordination, loop, name

    def sending(
        self,
        group: str,
        place: Place,
        offset: int,
        *,
        member_id: str,
        member_epoch: int,
        given_to: int | None = None,
        resets: bool = False,
        is_ordered: bool = True,
    ) -> str:
        """The client is about to commit this offset. Returns the text that must be its metadata. The options are those
        of CommitAttempt."""
        return self._coordination.attempts.sending(
            group,
            place,
            offset,
            client=self._name,
            member_id=member_id,
            member_epoch=member_epoch,
            given_to=given_to,
            resets=resets,
            is_ordered=is_ordered,
            now_us=self._loop.now_us,
        )

    def fetched(self, group: str, place: Place, offset: int, sent_us: int) -> None:
        """The client is given a committed offset, -1 for none. sent_us: when it asked."""
        log = self._coordination.log_of(group)
        if log is not None and not log.was_committed(group, place, offset, sent_us):
            present = log.committed(group, place)
            self.report(
                f"{self._name} was given {offset} as the committed offset of {place[0]}-{place[1]} in group {group}, "
                f"where {present} is committed"
            )

    def committed(self, group: str, place: Place, offset: int, identity: str) -> None:
        """What is answered as committed is in the committed log."""
        log = self._coordination.log_of(group)
        if log is None or identity not in log.commits:
            self.report(
                f"{self._name} was told that offset {offset} of {place[0]}-{place[1]} is committed in group {group}, "
                "and its log does not have it"
            )

    def report(self, what: str) -> None:
        """Fail the world: a violation must not become an error of the client."""
        self._loop.call_soon(_fail, what)


def _fail(what: str) -> None:
    raise Violation(what)
