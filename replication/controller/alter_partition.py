"""AlterPartition: checks a leader's proposal for its in-sync set, versioned by the partition epoch (KIP-497).

Invariants:
  1. Only the current leader, in its current epoch, changes the set, and only if it knows the current partition epoch.
  2. No node is admitted that is fenced, draining or of an earlier registration (KIP-841, KIP-903), or whose log
     directory has failed (KIP-858).
  3. Every accepted proposal raises the partition epoch, even one that changes nothing, so that an older copy of any
     proposal is rejected from then on.
  4. A leader that leaves itself out resigns from both sets. This is accepted only if another member of either set can
     lead.
"""

from __future__ import annotations

from replication.controller.elections import electable, has_directory, reformed
from replication.controller.events import IsrMember, Proposal
from replication.controller.image import ClusterImage, PartitionState
from replication.controller.metadata_records import PartitionChangeRecord
from tidelog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.types import NodeId


def judge(image: ClusterImage, leader: NodeId, proposal: Proposal) -> PartitionChangeRecord:
    """The partition change that the proposal of `leader` leads to. Raises the reason for a rejection."""
    state = _state_of(image, proposal)
    _refuse_stale(state, leader, proposal)
    members = tuple(member.node_id for member in proposal.new_isr)
    if not (members or state.elr) or len(set(members)) != len(members) or not set(members) <= set(state.replicas):
        raise InvalidRequest(
            f"the in-sync set {list(members)} proposed for {state.key} is no subset of its replicas "
            f"{list(state.replicas)}"
        )
    for member in proposal.new_isr:
        _refuse_ineligible(image, state, leader, member)
    if leader in members:
        unchanged = PartitionChangeRecord(state.topic_id, state.partition, isr=state.isr)
        return reformed(image, state, members) or unchanged
    successors = (*members, *state.elr)
    if not any(electable(image, state, node) for node in successors):
        raise IneligibleReplica(
            f"node {leader} cannot resign from {state.key}: none of nodes {sorted(successors)} can lead it"
        )
    change = reformed(image, state, members, lost=(leader,))
    assert change is not None, "a leader that leaves itself out no longer leads"
    return change


def _state_of(image: ClusterImage, proposal: Proposal) -> PartitionState:
    if proposal.key.topic_id not in image.topics:
        raise UnknownTopicId(f"topic id {proposal.key.topic_id} does not exist: the topic was deleted")
    state = image.partition(proposal.key)
    if state is None:
        raise UnknownTopicOrPartition(f"partition {proposal.key} does not exist")
    return state


def _refuse_stale(state: PartitionState, leader: NodeId, proposal: Proposal) -> None:
    if proposal.leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch(
            f"{state.key} is in leader epoch {state.leader_epoch}, led by node {state.leader}: the proposal names the "
            f"older epoch {proposal.leader_epoch}"
        )
    if proposal.leader_epoch > state.leader_epoch:
        raise UnknownLeaderEpoch(
            f"{state.key} is in leader epoch {state.leader_epoch}, the proposal names epoch {proposal.leader_epoch}"
        )
    if state.leader != leader:
        raise InvalidRequest(f"{state.key} is led by node {state.leader}, node {leader} may not change its in-sync set")
    if proposal.partition_epoch != state.partition_epoch:
        raise InvalidUpdateVersion(
            f"{state.key} is at partition epoch {state.partition_epoch}, the proposal is based on "
            f"{proposal.partition_epoch}: wait for the current state"
        )


def _refuse_ineligible(image: ClusterImage, state: PartitionState, leader: NodeId, member: IsrMember) -> None:
    node = image.nodes.get(member.node_id)
    if node is None or node.node_epoch != member.node_epoch:
        current = "none" if node is None else node.node_epoch
        why = f"its node epoch is {current}, not {member.node_epoch}"
    elif node.fenced:
        why = "it is fenced"
    elif node.draining and member.node_id != leader:  # a draining leader may admit others, which then replace it
        why = "it is draining"
    elif not has_directory(state, node):
        why = "its log directory is gone or has failed"
    else:
        return
    raise IneligibleReplica(f"node {member.node_id} may not join the in-sync set of {state.key}: {why}")
