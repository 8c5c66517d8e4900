"""Actions of operators in a random world while faults occur: each is a request to the cluster by its own client.

Invariants: a refused request is not repeated, and no request loses records unless the topic allows it or, after all
faults, flipped bits have taken them from the last replica that counted. Each action draws from its own numbers, so that
leaving one out changes no other. Not here: the times (plan.py, nemesis.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from replication.controller.image import PartitionState, TopicState
from testbed.sim.coordination import GROUPS, TRANSACTIONS
from testbed.sim.loop import MICROS
from testbed.sim.world import Simulation
from testbed.topic_requests import altering, growing
from tests.sim.deletion_requests import delete_records
from tests.sim.plan import Fault
from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, plan_moves
from tidelog.errors import TidelogError, TooFewNodes, UnknownTopicOrPartition
from tidelog.protocol import methods
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import HIGH_WATERMARK, NodeId, PartitionKey, TopicPartition

ATTEMPTS_MAX: Final = 5
PARTITIONS_MAX: Final = 4
FENCED_AFTER: Final = 2.6
"""Seconds: a session timeout and a heartbeat."""

LEADERLESS_US: Final = 10 * MICROS
"""So long after all faults a partition without a leader has lost its last replica that counted."""

SETTINGS: Final = (
    ("min.insync.replicas", ("1", "2")),
    ("segment.bytes", ("1024", "2048", "1048576")),
    ("min.cleanable.dirty.ratio", ("0.01", "0.9")),
    ("index.interval.bytes", ("0", "300", "4096")),
    ("compression.type", ("producer", "gzip")),
)


def _chance(fault: Fault) -> random.Random:
    return random.Random(str(fault))


def _ask(sim: Simulation, method: Any, request: Any) -> None:
    client = sim.client()

    async def ask() -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                answer = await client.admin(method, request, attempts_max=ATTEMPTS_MAX)
            except TidelogError as error:
                sim.note(f"operator: {method}: {error.message}")
                return
            refusals = [each for part in getattr(answer, "partitions", ()) if (each := error_of(part)) is not None]
            for refusal in refusals:
                sim.note(f"operator: {method}: {refusal.message}")
            # A node that was just started may not know the topic yet: the next one is asked.
            if not any(isinstance(each, UnknownTopicOrPartition) for each in refusals):
                return
            await client.pause()

    client.start(ask(), f"requests {method}")


def _topics(sim: Simulation, wanted: Callable[[TopicState], bool] = lambda topic: True) -> list[TopicState]:
    topics = [topic for topic in sim.image().topics.values() if topic.partitions and wanted(topic)]
    return sorted((topic for topic in topics if topic.name in ("orders", "events")), key=lambda topic: topic.name)


def _partition(sim: Simulation, fault: Fault) -> tuple[str, PartitionState]:
    rng = _chance(fault)
    topic = rng.choice(_topics(sim))
    return topic.name, rng.choice(topic.partitions)


def _reassignment(
    name: str, state: PartitionState, replicas: list[int]
) -> admin_pb2.AlterPartitionReassignmentsRequest:
    place = admin_pb2.TopicPartitionId(topic=name, partition=state.partition)
    wanted = admin_pb2.PartitionReassignment(partition=place, replicas=replicas, cancel=not replicas)
    return admin_pb2.AlterPartitionReassignmentsRequest(partitions=[wanted])


def reassign(sim: Simulation, fault: Fault) -> None:
    """Start the reassignment of a partition to two or three nodes."""
    name, state = _partition(sim, fault)
    rng = _chance(fault)
    replicas = rng.sample(sim.nodes, rng.choice((2, min(3, len(sim.nodes)))))
    _ask(sim, methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, _reassignment(name, state, replicas))


def queue_moves(sim: Simulation, fault: Fault) -> None:
    """Queue the moves that empty a node, as `tidelog cluster rebalance` plans them; if that is impossible, moves of all
    partitions to any nodes."""
    image = sim.image()
    placed = [
        PlacedPartition(
            TopicPartition(topic.name, state.partition),
            state.queued or tuple(node for node in state.replicas if node not in state.removing),
        )
        for topic in sorted(image.topics.values(), key=lambda topic: topic.name)
        for state in topic.partitions
    ]
    nodes = [
        BalancedNode(node.node_id, node.rack, takes_replicas=node.active and not node.gets_no_replicas)
        for node in image.nodes.values()
    ]
    rng = _chance(fault)
    try:
        moves = plan_moves(nodes, placed, emptied={NodeId(fault.node)}, evens_out=False)
        wanted = [(move.partition, move.after) for move in moves]
    except TooFewNodes:
        wanted = [(each.partition, tuple(rng.sample(sorted(image.nodes), len(each.replicas)))) for each in placed]
    _ask(sim, methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, _queued(wanted))


def cancel_moves(sim: Simulation, fault: Fault) -> None:
    """Cancel some plans before they are complete, with every other reassignment."""
    image = sim.image()
    moving = [state for state in image.partitions() if state.queued or state.adding or state.removing]
    if fault.amount < 0.4 and moving:
        wanted = [
            (TopicPartition(image.topics[state.topic_id].name, state.partition), tuple[NodeId, ...]())
            for state in moving
        ]
        _ask(sim, methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, _queued(wanted))


def _queued(
    wanted: Sequence[tuple[TopicPartition, tuple[NodeId, ...]]],
) -> admin_pb2.AlterPartitionReassignmentsRequest:
    """A request that queues these moves. No replicas: cancel."""
    return admin_pb2.AlterPartitionReassignmentsRequest(
        partitions=[
            admin_pb2.PartitionReassignment(
                partition=admin_pb2.TopicPartitionId(topic=partition.topic, partition=partition.partition),
                replicas=replicas,
                cancel=not replicas,
                queued=bool(replicas),
            )
            for partition, replicas in wanted
        ]
    )


def move_coordinator(sim: Simulation, fault: Fault) -> None:
    """Start the reassignment of a partition of an internal topic to three nodes: its coordinator moves with it."""
    rng = _chance(fault)
    image = sim.image()
    topics = [topic for name in (GROUPS, TRANSACTIONS) if (topic := image.topic(name)) is not None and topic.partitions]
    if topics:
        topic = rng.choice(topics)
        replicas = rng.sample(sim.nodes, min(3, len(sim.nodes)))
        request = _reassignment(topic.name, rng.choice(topic.partitions), replicas)
        _ask(sim, methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, request)


def end_reassignment(sim: Simulation, fault: Fault) -> None:
    """Cancel some reassignments before they complete."""
    if fault.amount < 0.4:
        name, state = _partition(sim, fault)
        _ask(sim, methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, _reassignment(name, state, []))


def alter(sim: Simulation, fault: Fault) -> None:
    """Change one setting of a topic."""
    rng = _chance(fault)
    topic = rng.choice(_topics(sim))
    key, values = rng.choice(SETTINGS)
    change = admin_pb2.ConfigChange(key=key, value=rng.choice(values))
    _ask(
        sim,
        methods.ADMIN_INCREMENTAL_ALTER_CONFIGS,
        altering(topic=topic.name, changes=[change]),
    )


def grow(sim: Simulation, fault: Fault) -> None:
    """Add a partition to a topic that has few."""
    for topic in _topics(sim, lambda topic: len(topic.partitions) < PARTITIONS_MAX)[:1]:
        request = growing(topic=topic.name, count=len(topic.partitions) + 1)
        _ask(sim, methods.ADMIN_CREATE_PARTITIONS, request)


def prefer(sim: Simulation, fault: Fault) -> None:
    """Elect the preferred leaders of all partitions."""
    _ask(sim, methods.ADMIN_ELECT_LEADERS, admin_pb2.ElectLeadersRequest(type=admin_pb2.ELECTION_TYPE_PREFERRED))


def elect_uncleanly(sim: Simulation, fault: Fault) -> None:
    """Elect uncleanly where the topic allows it and no node leads."""
    places = [
        admin_pb2.TopicPartitionId(topic=topic.name, partition=state.partition)
        for topic in _topics(sim, lambda topic: topic.allows_unclean)
        for state in topic.partitions
        if state.leader < 0
    ]
    if places:
        request = admin_pb2.ElectLeadersRequest(type=admin_pb2.ELECTION_TYPE_UNCLEAN, partitions=places)
        _ask(sim, methods.ADMIN_ELECT_LEADERS, request)


def accept_losses(sim: Simulation, leaderless: frozenset[PartitionKey] = frozenset()) -> None:
    """Elect uncleanly where no node leads since the last look, after all faults, and a bit has flipped on a node that
    counts: recovery may have set aside its file, so that it cannot be restored. leaderless: at the last look."""
    found = {
        state.key: admin_pb2.TopicPartitionId(topic=topic.name, partition=state.partition)
        for topic in sorted(sim.image().topics.values(), key=lambda topic: topic.name)
        for state in topic.partitions
        if state.leader < 0 and any(sim.machines[node].disk.rots for node in state.counted_on)
    }
    places = [place for key, place in found.items() if key in leaderless]
    if places:
        sim.note(f"operator: the records that no replica has are lost: {', '.join(map(_name_of, places))}")
        sim.accepted_losses |= found.keys() & leaderless
        request = admin_pb2.ElectLeadersRequest(type=admin_pb2.ELECTION_TYPE_UNCLEAN, partitions=places)
        _ask(sim, methods.ADMIN_ELECT_LEADERS, request)
    sim.loop.call_world_later_us(LEADERLESS_US, accept_losses, sim, frozenset(found))


def _name_of(place: admin_pb2.TopicPartitionId) -> str:
    return f"{place.topic}-{place.partition}"


def delete(sim: Simulation, fault: Fault) -> None:
    """Delete some of the oldest records of a partition, or all that are committed, in a topic that has retention; or
    try to delete records that need not be committed."""
    rng = _chance(fault)
    for topic in _topics(sim, _loses_records)[:1]:
        state = rng.choice(topic.partitions)
        ledger = sim.ledger(topic.name, state.partition)
        offset = rng.randint(ledger.start, ledger.end)
        offset = rng.choice((offset, offset, offset, HIGH_WATERMARK, ledger.end + rng.randint(1, 5)))
        sim.note(f"operator deletes the records of {ledger.name} below {offset}")
        delete_records(sim, topic.name, int(state.partition), offset)


def _loses_records(topic: TopicState) -> bool:
    """Whether plan.py gave the topic settings that delete old records."""
    return "file.delete.delay.ms" in topic.configs and "cleanup.policy" not in topic.configs


def cordon(sim: Simulation, fault: Fault) -> None:
    """Cordon a node for a while. The one operator ends it too, whatever the world does then: a cluster of three nodes
    could not place a topic any more."""
    client = sim.client()

    async def ask() -> None:
        await client.admin(methods.ADMIN_ALTER_CORDON, admin_pb2.AlterCordonRequest(node_id=fault.node, cordoned=True))
        await client.sleep(fault.lasts)
        await client.admin(methods.ADMIN_ALTER_CORDON, admin_pb2.AlterCordonRequest(node_id=fault.node))

    client.start(ask(), f"cordons node {fault.node}")


def remove_voter(sim: Simulation, fault: Fault) -> None:
    """Kill the node. Once it is fenced, remove it from the voters; the cluster refuses this if too few would remain."""
    sim.kill(fault.node)
    request = admin_pb2.RemoveVoterRequest(node_id=fault.node)
    sim.loop.call_world_later_us(int(FENCED_AFTER * MICROS), _remove_voter, sim, fault, request)


def _remove_voter(sim: Simulation, fault: Fault, request: admin_pb2.RemoveVoterRequest) -> None:
    if not sim.healing and not sim.machines[fault.node].up:
        _ask(sim, methods.ADMIN_REMOVE_VOTER, request)
