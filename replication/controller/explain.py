"""Explanations for operators: why a partition cannot be read or written, and what stops if a node stops.

Pure functions of an image. Findings on the nodes' disks are known only as far as the caller passes them (`OnDisks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Final, TypeAlias

from replication.controller.elections import electable, has_directory, name_of, why_leaderless
from replication.controller.image import ClusterImage, PartitionState, TopicState
from replication.controller.topic_cache import TopicCache
from tidelog.types import NO_NODE, DirectoryId, NodeId, PartitionKey
from tidelog.values import dataclass

NAMED_MAX: Final = 5
"""Partitions named in one sentence; further ones are counted."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """State of a partition: whether it can be read and written, the causes if not, and the steps for an operator."""

    readable: bool
    writable: bool
    causes: tuple[str, ...]
    steps: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        return not self.causes


Full: TypeAlias = Mapping[DirectoryId, str]
"""Log directories that reject appends because their disk is full: reason by directory id."""


@dataclass(frozen=True, slots=True)
class OnDisks:
    """Findings that nodes report about their own disks."""

    full: Full = field(default_factory=dict)
    damaged: Mapping[tuple[NodeId, PartitionKey], str] = field(default_factory=dict)
    """Lost parts of replica logs, by node and partition."""
    unanswered: tuple[NodeId, ...] = ()
    """Unfenced nodes that did not answer the query; their disks may be full or damaged."""

    def refuses(self, state: PartitionState) -> str | None:
        """Why the partition's leader rejects every write; None if it accepts them, or if there is no leader."""
        return None if state.leader == NO_NODE else self.full.get(state.directory_of(state.leader))

    def is_damaged(self, state: PartitionState) -> bool:
        """Whether a replica of the partition has lost records."""
        return any((node_id, state.key) in self.damaged for node_id in state.replicas)


def explain(image: ClusterImage, state: PartitionState, disks: OnDisks | None = None) -> Explanation:
    """Explain the state of a partition. `writable` refers to acks=all. disks: reports of the nodes of its replicas."""
    disks = disks or OnDisks()
    full = disks.full
    minimum = image.min_insync(state)
    led, enough = state.leader != NO_NODE, len(state.isr) >= minimum
    causes: list[str] = []
    steps: list[str] = []
    refusal = disks.refuses(state)
    if not led:
        causes.append(why_leaderless(image, state))
    if refusal is not None:
        causes.append(f"the leader, node {state.leader}, rejects every write: {refusal}")
        steps.append(_make_room(state.leader))
        steps += _let_another_lead(image, state, full)
    for node_id in state.replicas:
        if (lost := disks.damaged.get((node_id, state.key))) is not None:
            cause, step = _why_damaged(state, node_id, lost)
            causes.append(cause)
            steps.append(step)
    if not enough:
        causes.append(
            f"{len(state.isr)} of {len(state.replicas)} replicas are in sync, min.insync.replicas is {minimum}: "
            "acks=all is rejected, nothing is committed"
        )
    for node_id in state.replicas:
        if node_id not in state.isr:
            cause, step = _why_out(image, state, node_id, full)
            causes.append(cause)
            steps.append(step)
    if not led and not (state.isr or state.elr):
        steps.append("if the lost log cannot be restored: `tidelog partition elect --unclean`, which loses records")
    if state.adding or state.removing:
        causes.append(f"a reassignment is in progress: adding {list(state.adding)}, removing {list(state.removing)}")
    return Explanation(led, led and enough and refusal is None, tuple(causes), tuple(dict.fromkeys(steps)))


def _make_room(node_id: NodeId) -> str:
    return (
        f"free space on node {node_id}: delete topics, lower retention.ms or retention.bytes of the largest ones, or "
        "enlarge its disk; appends then resume without a restart"
    )


def _let_another_lead(image: ClusterImage, state: PartitionState, full: Full) -> Iterator[str]:
    """The commands that move the leadership to a member whose disk has free space, to restore writes at once."""
    nodes = image.nodes
    able = (
        node_id
        for node_id in state.isr
        if node_id != state.leader and not nodes[node_id].draining and state.directory_of(node_id) not in full
    )
    chosen = next(able, None)
    if chosen is not None:
        name = name_of(image, state)
        order = ",".join(str(node) for node in (chosen, *(node for node in state.replicas if node != chosen)))
        yield (
            f"to resume writes at once, move the leadership to node {chosen}: `tidelog partition reassign {name} "
            f"--replicas {order}`, then `tidelog partition elect {name}`"
        )


def _why_damaged(state: PartitionState, node_id: NodeId, lost: str) -> tuple[str, str]:
    if node_id != state.leader:
        return f"the log of replica {node_id} lost {lost}", f"check the disk of node {node_id} (SMART)"
    cause = (
        f"the leader, node {node_id}, leads with a damaged log because no other replica is eligible: reads of the lost "
        f"part fail; it lost {lost}"
    )
    others = ", ".join(str(node) for node in state.replicas if node != node_id)
    first = f"start nodes {others}, or bring them back in sync: one of them then leads; otherwise " if others else ""
    return cause, (
        f"{first}stop node {node_id}, restore the file from a copy, and start it again; without a copy the lost "
        "offsets stay unreadable: let consumers seek past them, all other offsets are served"
    )


def _why_out(image: ClusterImage, state: PartitionState, node_id: NodeId, full: Full) -> tuple[str, str]:
    node = image.nodes.get(node_id)
    who = f"replica {node_id}" + (" (eligible)" if node_id in state.elr else "")
    if node is None:
        return f"{who}: its node never registered", f"start node {node_id}, or move the replica (reassign)"
    if node.fenced:
        return f"{who} is out of sync: its node is fenced (not running, or not ready)", f"start node {node_id}"
    if node.draining:
        return f"{who} is out of sync: its node is being stopped", f"wait until node {node_id} is back"
    directory = state.directory_of(node_id)
    if not has_directory(state, node):
        return (
            f"{who} is out of sync: its log directory {directory} is gone or has failed",
            f"restore that log directory on node {node_id}, or replace its disk, and restart the node",
        )
    if directory in full:
        return f"{who} is out of sync: {full[directory]}", _make_room(node_id)
    return (
        f"{who} is out of sync: it is catching up, or its disk or network is slow",
        f"check the log messages and the disk of node {node_id}",
    )


def why_not_restart(image: ClusterImage, node_id: NodeId) -> list[str]:
    """What would stop working while this node is stopped; empty if it can be restarted safely."""
    return RestartReview(node_id).reasons(image)


class RestartReview:
    """`why_not_restart` for one node, asked again and again: partitions are looked at again where something changed."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self._interrupted = TopicCache(lambda image, topic: _interrupted(image, topic, node_id))

    def reasons(self, image: ClusterImage, *, if_it_can_pass: bool = False) -> list[str]:
        """What would stop working while this node is stopped; empty if it can be restarted safely.

        if_it_can_pass: only what other nodes can end by coming back or catching up, so that it is worth waiting for:
        not what any restart of the node interrupts, even if all replicas are in sync and all voters run.
        """
        node_id, reasons = self._node_id, []
        node = image.nodes.get(node_id)
        if node is None:
            return [f"node {node_id} is not registered"]
        voters = [voter.node_id for voter in image.voters]
        there = [each for each in voters if each != node_id and each in image.nodes and not image.nodes[each].fenced]
        has_spare = len(voters) - 1 > len(voters) // 2
        if node_id in voters and len(there) <= len(voters) // 2 and (has_spare or not if_it_can_pass):
            reasons.append(
                f"the metadata quorum of nodes {voters} would have {len(there)} of {len(voters)} voters: no majority, "
                "metadata could not be changed and no leader elected"
            )
        found = [
            each for each in chain.from_iterable(self._interrupted.of(image)) if each.can_pass or not if_it_can_pass
        ]
        if leaderless := [each.state for each in found if each.leaderless]:
            reasons.append(f"no other replica could lead {_names(image, leaderless)}")
        if refusing := [each.state for each in found if not each.leaderless]:
            reasons.append(f"acks=all would be rejected (min.insync.replicas) by {_names(image, refusing)}")
        return reasons


@dataclass(frozen=True, slots=True)
class _Interrupted:
    """A partition that stops working while a node is stopped: without a leader, or it refuses acks=all."""

    state: PartitionState
    leaderless: bool
    can_pass: bool
    """Whether it is worth waiting for: the partition has replicas enough on other nodes."""


def _interrupted(image: ClusterImage, topic: TopicState, node_id: NodeId) -> list[_Interrupted]:
    """The partitions of a topic that stop working while this node is stopped."""
    found = []
    for state in topic.partitions:
        if node_id not in state.isr:
            continue
        others = len(state.replicas) - 1
        staying = [each for each in state.isr if each != node_id]
        if not any(electable(image, state, each) for each in (*staying, *state.elr) if each != node_id):
            found.append(_Interrupted(state, leaderless=True, can_pass=others > 0))
        elif len(staying) < (minimum := image.min_insync(state)) <= len(state.isr):
            found.append(_Interrupted(state, leaderless=False, can_pass=others >= minimum))
    return found


def awaited_replicas(image: ClusterImage, node_id: NodeId) -> list[str]:
    """The partitions of which this node has a replica that is not in sync, by name, if it is to be waited for; else
    empty. Not those without a leader, from whom nothing can be fetched, nor those that a reassignment adds to the node.

    Empty as well while no other node in service has all its replicas in sync: if each waited for its own, none might
    ever be ready.
    """
    behind: dict[NodeId, list[PartitionState]] = {}
    for state in image.partitions():
        if state.leader == NO_NODE or len(state.isr) == len(state.replicas):
            continue
        for replica in state.replicas:
            if replica not in state.isr and replica not in state.adding:
                behind.setdefault(replica, []).append(state)
    others = (each for each in image.nodes.values() if each.node_id != node_id and not each.fenced)
    if all(each.draining or each.node_id in behind for each in others):
        return []
    return [name_of(image, state) for state in behind.get(node_id, ())]


def _names(image: ClusterImage, states: Iterable[PartitionState]) -> str:
    return some_of([name_of(image, state) for state in states])


def some_of(names: Sequence[str], separator: str = ", ") -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return separator.join(names[:NAMED_MAX]) + more
