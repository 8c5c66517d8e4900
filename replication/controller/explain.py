"""For people: why a partition cannot be read or written, and what would stop if a node stopped. Pure words about an
image. Of what nodes see on their own disks only what is told beside it is known (`OnDisks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from replication.controller.elections import choose_leader, name_of, why_leaderless
from replication.controller.image import ClusterImage, PartitionState
from tidelog.types import NO_NODE, DirectoryId, NodeId, PartitionKey

NAMED_MAX: Final = 5
"""Partitions named in one sentence; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A partition as it is: what works, what is wrong, and what a person can do about it."""

    readable: bool
    writable: bool
    causes: tuple[str, ...]
    steps: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        return not self.causes


Full: TypeAlias = Mapping[DirectoryId, str]
"""Data directories that refuse appends for want of room: why, by id."""


@dataclass(frozen=True, slots=True)
class OnDisks:
    """What nodes say of their own disks. damaged: what the logs of replicas have lost, by node and partition.
    unanswered: unfenced nodes that were asked and did not answer, so that their disks may be full or damaged."""

    full: Full = field(default_factory=dict)
    damaged: Mapping[tuple[NodeId, PartitionKey], str] = field(default_factory=dict)
    unanswered: tuple[NodeId, ...] = ()

    def refuses(self, state: PartitionState) -> str | None:
        """Why the partition's leader refuses every write, None where it takes them, or there is none."""
        return None if state.leader == NO_NODE else self.full.get(state.directory_of(state.leader))

    def is_damaged(self, state: PartitionState) -> bool:
        """Has a replica of the partition lost records?"""
        return any((node_id, state.key) in self.damaged for node_id in state.replicas)


def explain(image: ClusterImage, state: PartitionState, disks: OnDisks | None = None) -> Explanation:
    """See `Explanation`. `writable`: with acks=all. disks: as the nodes of this partition's replicas say."""
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
        causes.append(f"its leader, node {state.leader}, refuses every write: {refusal}")
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
            "acks=all is refused, nothing is committed"
        )
    for node_id in state.replicas:
        if node_id not in state.isr:
            cause, step = _why_out(image, state, node_id, full)
            causes.append(cause)
            steps.append(step)
    if not led and not (state.isr or state.elr):
        steps.append("if what was lost cannot be given back: `tidelog partition elect --unclean`, which loses records")
    if state.adding or state.removing:
        causes.append(f"a reassignment is under way: {list(state.adding)} come, {list(state.removing)} go")
    return Explanation(led, led and enough and refusal is None, tuple(causes), tuple(dict.fromkeys(steps)))


def _make_room(node_id: NodeId) -> str:
    return (
        f"make room on node {node_id}: delete topics, lower retention.ms or retention.bytes of the largest, or make "
        "its disk larger; it takes appends again by itself"
    )


def _let_another_lead(image: ClusterImage, state: PartitionState, full: Full) -> Iterator[str]:
    """To write on at once: the commands that give the leadership to a member whose disk has room."""
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
            f"to write on at once let node {chosen} lead: `tidelog partition reassign {name} --replicas {order}`, then "
            f"`tidelog partition elect {name}`"
        )


def _why_damaged(state: PartitionState, node_id: NodeId, lost: str) -> tuple[str, str]:
    if node_id != state.leader:
        return f"the log of replica {node_id} lost {lost}", f"look at the disk of node {node_id} (SMART)"
    cause = (
        f"its leader, node {node_id}, leads with a damaged log, since no other replica is eligible: reads of what it "
        f"lost fail; it lost {lost}"
    )
    others = ", ".join(str(node) for node in state.replicas if node != node_id)
    first = f"start nodes {others}, or bring them back in sync: one of them then leads; else " if others else ""
    return cause, (
        f"{first}stop node {node_id} and give the file back from a copy, or delete the records up to there "
        "(delete_records)"
    )


def _why_out(image: ClusterImage, state: PartitionState, node_id: NodeId, full: Full) -> tuple[str, str]:
    node = image.nodes.get(node_id)
    who = f"replica {node_id}" + (" (eligible)" if node_id in state.elr else "")
    if node is None:
        return f"{who} is on a node that never registered", f"start node {node_id}, or move the replica (reassign)"
    if node.fenced:
        return f"{who} is out: its node is fenced, not heard of or not ready", f"start node {node_id}"
    if node.draining:
        return f"{who} is out: its node is being stopped", f"wait until node {node_id} is back"
    directory = state.directory_of(node_id)
    if all(named.directory_id != directory for named in node.directories):
        return (
            f"{who} is out: its log directory {directory} is gone or has failed",
            f"give node {node_id} that log directory back, or another disk in its place, and start it again",
        )
    if directory in full:
        return f"{who} is out: {full[directory]}", _make_room(node_id)
    return (
        f"{who} is catching up, or its disk or network is slow",
        f"look at the log of node {node_id} and at its disk",
    )


def why_not_restart(image: ClusterImage, node_id: NodeId) -> list[str]:
    """What would not work while this node is stopped; nothing: it may be restarted."""
    reasons = []
    node = image.nodes.get(node_id)
    if node is None:
        return [f"node {node_id} is not registered"]
    voters = [voter.node_id for voter in image.voters]
    there = [each for each in voters if each != node_id and each in image.nodes and not image.nodes[each].fenced]
    if node_id in voters and len(there) <= len(voters) // 2:
        reasons.append(
            f"the metadata quorum of nodes {voters} would have {len(there)} of {len(voters)} voters: no majority, "
            "nothing could be changed and no leader elected"
        )
    leaderless, refusing = [], []
    for state in image.partitions():
        if node_id not in state.isr:
            continue
        staying = [each for each in state.isr if each != node_id]
        if choose_leader(image, state, (*staying, *(each for each in state.elr if each != node_id))) == NO_NODE:
            leaderless.append(state)
        elif len(staying) < image.min_insync(state) <= len(state.isr):
            refusing.append(state)
    if leaderless:
        reasons.append(f"nobody else could lead {_names(image, leaderless)}")
    if refusing:
        reasons.append(f"acks=all would be refused (min.insync.replicas) by {_names(image, refusing)}")
    return reasons


def _names(image: ClusterImage, states: Iterable[PartitionState]) -> str:
    names = [name_of(image, state) for state in states]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
