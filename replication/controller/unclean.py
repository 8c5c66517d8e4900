"""Unclean elections: a replica that may lack committed records becomes leader because no other is left. The topic must
allow it, or an operator must request it.

Invariants:
  1. All present replicas are queried first. Of those that answer, the one with the highest (epoch of the last record,
     log end) leads.
  2. When the answers arrive, the partition must still be without a leader, and the chosen node unfenced.
  3. The possible loss is reported to the operator who requested the election, in the log, and in a counter.

Not here: sending the queries (node/controller/controller_driver.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import field, replace

from replication.controller.elections import directories_for_all, name_of
from replication.controller.events import LogEndsReported, PartitionOutcome, PartitionOutcomes, QueryLogEnds, ReplicaEnd
from replication.controller.image import ClusterImage, PartitionState
from replication.controller.metadata_records import LOST_DIRECTORY, PartitionChangeRecord
from tidelog.errors import EligibleLeadersNotAvailable, TidelogError
from tidelog.types import NO_NODE, NodeId, PartitionKey
from tidelog.values import dataclass


def present(image: ClusterImage, state: PartitionState) -> tuple[NodeId, ...]:
    """The replicas that can be queried: registered and unfenced."""
    return tuple(node for node in state.replicas if node in image.nodes and not image.nodes[node].fenced)


def no_eligible_replica(image: ClusterImage, state: PartitionState) -> EligibleLeadersNotAvailable:
    """The error if no replica can be elected."""
    return EligibleLeadersNotAvailable(
        f"no replica of {name_of(image, state)} can be elected: nodes {list(state.replicas)} are fenced, damaged, or "
        "do not report their log end; start one of them"
    )


@dataclass(frozen=True, slots=True)
class Chosen:
    """The record of an unclean election, and its possible loss."""

    change: PartitionChangeRecord
    leader: NodeId
    loss: str


def choose(image: ClusterImage, state: PartitionState, ends: Collection[ReplicaEnd]) -> Chosen | None:
    """The new leader among the replicas that answered; None if none is able to lead."""
    there = present(image, state)
    able = sorted((end for end in ends if end.node_id in there), key=lambda end: state.replicas.index(end.node_id))
    if not able:
        return None
    best = max(able, key=lambda end: (end.last_epoch, end.log_end, end.directory_id is not None))
    directories = state.directories
    if best.directory_id is not None:
        directories = tuple(
            best.directory_id if node == best.node_id else directory
            for node, directory in zip(state.replicas, directories, strict=True)
        )
    directories = directories_for_all(image, replace(state, directories=directories), ()) or directories
    change = PartitionChangeRecord(
        state.topic_id,
        state.partition,
        leader=best.node_id,
        isr=(best.node_id,),
        elr=(),
        last_known_elr=(),
        directories=None if directories == state.directories else directories,
    )
    return Chosen(change, best.node_id, _loss(image, state, best, able))


def _loss(image: ClusterImage, state: PartitionState, best: ReplicaEnd, query: Collection[ReplicaEnd]) -> str:
    had = [node for node in (*state.isr, *state.elr, *state.last_known_elr) if node != best.node_id]
    lost = f"; records that only nodes {', '.join(map(str, sorted(set(had))))} had are lost" if had else ""
    if best.lost:
        lost += f"; in its own log {best.lost} cannot be read and is discarded (the node keeps a copy of the log)"
    elif best.node_id in state.replicas and state.directory_of(best.node_id) == LOST_DIRECTORY:
        lost += "; its own log was damaged or is an older copy"
    others = ", ".join(
        f"node {end.node_id} (epoch {end.last_epoch}, end {end.log_end})" for end in query if end is not best
    )
    return (
        f"unclean election of {name_of(image, state)}: node {best.node_id} leads, last epoch {best.last_epoch}, log "
        f"end {best.log_end}{lost}" + (f"; other replicas that answered: {others}" if others else "")
    )


# --- in progress --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Command:
    """An operator's request, with the outcomes known so far."""

    request_id: int
    order: tuple[PartitionKey, ...]
    validate_only: bool = False
    outcomes: dict[PartitionKey, PartitionOutcome] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return len(self.outcomes) == len(self.order)

    def result(self) -> PartitionOutcomes:
        """The answer, once every partition has its outcome."""
        return PartitionOutcomes(tuple(self.outcomes[key] for key in self.order))

    def settle(self, key: PartitionKey, outcome: PartitionState | TidelogError, loss: str = "") -> None:
        """Record the outcome of one partition."""
        self.outcomes[key] = PartitionOutcome(key, outcome, loss)


@dataclass(slots=True)
class _Query:
    key: PartitionKey
    validate_only: bool
    commands: list[Command]


class Elections:
    """Unclean elections that wait for answers."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._queries: dict[int, _Query] = {}

    def ask(self, key: PartitionKey, nodes: tuple[NodeId, ...], command: Command | None = None) -> QueryLogEnds | None:
        """Start a query unless one is in progress for the partition; a command waits for either. Returns None if one is
        in progress."""
        validate_only = command is not None and command.validate_only
        for query in self._queries.values():
            if (query.key, query.validate_only) == (key, validate_only):
                query.commands += [] if command is None else [command]
                return None
        number = next(self._numbers)
        self._queries[number] = _Query(key, validate_only, [] if command is None else [command])
        return QueryLogEnds(number, key, nodes, command is not None)

    def reported(self, event: LogEndsReported) -> tuple[PartitionKey, list[Command], bool] | None:
        """The partition that the answers belong to, the commands that wait for them, and whether they only validate.
        None if no election waits for them."""
        query = self._queries.pop(event.number, None)
        return None if query is None else (query.key, query.commands, query.validate_only)

    def forget(self) -> list[int]:
        """Drop all elections: this node is no longer the active controller. Returns the ids of the waiting requests."""
        waiting = {command.request_id for query in self._queries.values() for command in query.commands}
        self._queries.clear()
        return sorted(waiting)


def wanted(image: ClusterImage, state: PartitionState) -> bool:
    """Whether the partition has no leader, has present replicas, and its topic allows unclean elections."""
    return state.leader == NO_NODE and image.topics[state.topic_id].allows_unclean and bool(present(image, state))
