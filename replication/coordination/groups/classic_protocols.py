"""The choice of the protocol of a generation: one that all members support, by their votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from replication.coordination.group_records import ClassicProtocol

Protocols = tuple[ClassicProtocol, ...]


def names_of(protocols: Protocols) -> frozenset[str]:
    """The names of some protocols."""
    return frozenset(each.name for each in protocols)


def metadata_of(protocols: Protocols, name: str | None) -> bytes:
    """The metadata of a member for a protocol; empty if it does not support that."""
    return next((each.metadata for each in protocols if each.name == name), b"")


def common_to(members: Iterable[Protocols]) -> frozenset[str]:
    """The names of the protocols that all members support; there must be a member."""
    names = [names_of(protocols) for protocols in members]
    return names[0].intersection(*names[1:])


def elected(members: Iterable[Protocols]) -> str:
    """The protocol with the most votes: each member votes for the one that it prefers among those that all support. Of
    several with as many votes, the one that the first of their voters prefers."""
    protocols = list(members)
    candidates = common_to(protocols)
    votes = Counter(next(each.name for each in preferred if each.name in candidates) for preferred in protocols)
    return votes.most_common(1)[0][0]
