"""The offset commits that clients of a world have sent, each with an identity that its record carries.

The metadata text of a committed offset identifies the request, so that the log of a group tells whose commit it is.
Invariants: an identity is used once. Not here: what the log makes of a commit (group_log.py), the requests themselves
(watched_transport.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Place = tuple[str, int]
"""Topic name and partition index."""


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """One offset of one request. member_id: empty if the committer is no member. given_to: the records below this
    offset were given to the application, or need not be; None if it is not known. resets: an operator sets the
    offset, to any value. is_ordered: a late copy has no effect after a later commit of the same member; that is so with
    gRPC, where a member says which offset it knows. sent_us: virtual time of the request."""

    identity: str
    group: str
    member_id: str
    member_epoch: int
    place: Place
    offset: int
    given_to: int | None
    resets: bool
    is_ordered: bool
    sent_us: int

    def may_follow(self, before: CommitAttempt | None) -> bool:
        """Whether its offset may be committed after a higher one: it was on its way when its member sent that."""
        is_late = before is not None and before.member_id == self.member_id and before.sent_us >= self.sent_us
        return self.resets or (is_late and not self.is_ordered)


class CommitAttempts:
    """All attempts of a world."""

    def __init__(self) -> None:
        self._by_identity: dict[str, CommitAttempt] = {}
        self._deletable: set[tuple[str, Place | None]] = set()

    def __iter__(self) -> Iterator[CommitAttempt]:
        return iter(self._by_identity.values())

    def sending(
        self,
        group: str,
        place: Place,
        offset: int,
        *,
        client: str,
        member_id: str = "",
        member_epoch: int = -1,
        given_to: int | None = None,
        resets: bool = False,
        is_ordered: bool = True,
        now_us: int = 0,
    ) -> str:
        """A client is about to send this offset. Returns the text that must be its metadata."""
        identity = f"{client}/{len(self._by_identity)}"
        self._by_identity[identity] = CommitAttempt(
            identity, group, member_id, member_epoch, place, offset, given_to, resets, is_ordered, now_us
        )
        return identity

    def of(self, identity: str) -> CommitAttempt | None:
        """The attempt with this identity; None if no client sent it."""
        return self._by_identity.get(identity)

    def may_delete(self, group: str, place: Place | None = None) -> None:
        """An operator asks for the deletion of a committed offset, or of the whole group."""
        self._deletable.add((group, place))

    def is_deletable(self, group: str, place: Place) -> bool:
        """Whether someone has asked for the deletion of this offset."""
        return (group, place) in self._deletable or (group, None) in self._deletable
