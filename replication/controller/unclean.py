"""Elections of a replica that may lack committed records: where nobody else is left, and the topic allows it or an
operator commands it.

Kept true:
  1. Whoever is there is asked first; of those that answer the highest (epoch of the last record, log end) leads.
  2. When the answers are in, the partition must still be without a leader, and the chosen node still unfenced.
  3. What may be lost is told: to the operator who commanded it, in the log, and in a count.

Left to others: the asking (node/controller/controller_driver.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from replication.controller.elections import directories_for_all, name_of
from replication.controller.events import AskLogEnds, LogEndsTold, PartitionOutcome, PartitionOutcomes, ReplicaEnd
from replication.controller.image import ClusterImage, PartitionState
from replication.controller.metadata import LOST_DIRECTORY, PartitionChangeRecord
from tidelog.errors import EligibleLeadersNotAvailable, TidelogError
from tidelog.types import NO_NODE, NodeId, PartitionKey


def present(image: ClusterImage, state: PartitionState) -> tuple[NodeId, ...]:
    """The replicas that can be asked."""
    return tuple(node for node in state.replicas if node in image.nodes and not image.nodes[node].fenced)


def nobody(image: ClusterImage, state: PartitionState) -> EligibleLeadersNotAvailable:
    """Why there is none to be elected."""
    return EligibleLeadersNotAvailable(
        f"no replica of {name_of(image, state)} answers: {list(state.replicas)} are fenced, damaged, or do not say "
        "what they have; start one of their nodes"
    )


@dataclass(frozen=True, slots=True)
class Chosen:
    """The record of an unclean election, and what it may cost."""

    change: PartitionChangeRecord
    leader: NodeId
    loss: str


def choose(image: ClusterImage, state: PartitionState, ends: Collection[ReplicaEnd]) -> Chosen | None:
    """Who leads, of those that answered; None where nobody may."""
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


def _loss(image: ClusterImage, state: PartitionState, best: ReplicaEnd, asked: Collection[ReplicaEnd]) -> str:
    had = [node for node in (*state.isr, *state.elr, *state.last_known_elr) if node != best.node_id]
    lost = f"; what only nodes {', '.join(map(str, sorted(set(had))))} had is gone" if had else ""
    if best.lost:
        lost += f"; of its own log {best.lost} cannot be read and is given up (the node keeps a copy of the log)"
    elif best.node_id in state.replicas and state.directory_of(best.node_id) == LOST_DIRECTORY:
        lost += "; its own log was damaged or an older copy"
    others = ", ".join(
        f"node {end.node_id} (epoch {end.last_epoch}, end {end.log_end})" for end in asked if end is not best
    )
    return (
        f"{name_of(image, state)} is led by node {best.node_id} from epoch {best.last_epoch} and log end "
        f"{best.log_end}, elected uncleanly{lost}"
        + (f"; it had most of those asked, beside {others}" if others else "")
    )


# --- under way ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Command:
    """An operator's request and the partitions that it still waits for."""

    request_id: int
    order: tuple[PartitionKey, ...]
    validate_only: bool = False
    outcomes: dict[PartitionKey, PartitionOutcome] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return len(self.outcomes) == len(self.order)

    def result(self) -> PartitionOutcomes:
        """The answer, once it is done."""
        return PartitionOutcomes(tuple(self.outcomes[key] for key in self.order))

    def settle(self, key: PartitionKey, outcome: PartitionState | TidelogError, loss: str = "") -> None:
        """One partition has its outcome."""
        self.outcomes[key] = PartitionOutcome(key, outcome, loss)


@dataclass(slots=True)
class _Asked:
    key: PartitionKey
    validate_only: bool
    commands: list[Command]


class Elections:
    """The unclean elections for which answers are awaited."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._asked: dict[int, _Asked] = {}

    def ask(self, key: PartitionKey, nodes: tuple[NodeId, ...], command: Command | None = None) -> AskLogEnds | None:
        """Ask, unless that is under way; a command waits for it all the same."""
        validate_only = command is not None and command.validate_only
        for asked in self._asked.values():
            if (asked.key, asked.validate_only) == (key, validate_only):
                asked.commands += [] if command is None else [command]
                return None
        number = next(self._numbers)
        self._asked[number] = _Asked(key, validate_only, [] if command is None else [command])
        return AskLogEnds(number, key, nodes, command is not None)

    def told(self, event: LogEndsTold) -> tuple[PartitionKey, list[Command], bool] | None:
        """Which partition the answers are of, who waits for them, and whether nothing is to be changed; None where
        nobody waits any more."""
        asked = self._asked.pop(event.number, None)
        return None if asked is None else (asked.key, asked.commands, asked.validate_only)

    def forget(self) -> list[int]:
        """Nobody decides here any more. Returns the requests that waited."""
        waiting = {command.request_id for asked in self._asked.values() for command in asked.commands}
        self._asked.clear()
        return sorted(waiting)


def wanted(image: ClusterImage, state: PartitionState) -> bool:
    """Does the topic let whoever is there lead this partition now?"""
    return state.leader == NO_NODE and image.topics[state.topic_id].allows_unclean and bool(present(image, state))
