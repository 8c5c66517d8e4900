"""The choice of the protocol of a generation: one that all members support, by their votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable

from replication.coordination.group_records import ClassicProtocol

Protocols = tuple[ClassicProtocol, ...]


def names_of(protocols: Protocols) -> frozenset[str]:
    """The names of some protocols."""
    return frozenset(each.name for each in protocols)


def metadata_of(protocols: Protocols, name: str | None) -> bytes:
    """The metadata of a member for a protocol; empty if it does not support that."""
    return next((each.metadata for each in protocols if each.name == name), b"")


def elected(members: Iterable[Protocols], candidates: Container[str]) -> str:
    """The protocol with the most votes: each member votes for the one that it prefers among the candidates, of which it
    supports all. Of several with as many votes, the one that the first of their voters prefers."""
    votes = Counter(next(each.name for each in preferred if each.name in candidates) for preferred in members)
    return votes.most_common(1)[0][0]
