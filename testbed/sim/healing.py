"""Reports what a cluster lacks for full recovery, and compares logs and readers after it.

Not here: the wait for it (world.py), what cleaning may remove from a log (ledger.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from replication.controller.image import PartitionState, TopicState
from storage.log.log import Log
from storage.segment.segment import LogSegment
from testbed.sim import views
from testbed.sim.coordinator_answers import coordinators_agree
from testbed.sim.ledger import Ledger, Violation
from tidelog.errors import LeadershipLost
from tidelog.records import iter_batches
from tidelog.records.v2.record import Record

if TYPE_CHECKING:
    from testbed.sim.machine import Machine
    from testbed.sim.world import Simulation


_LAST: Final = b"after all "
"""How the record begins with which `must_heal` shows that a partition can be written again."""


def is_last_record(record: Record) -> bool:
    """Whether `must_heal` has written this record."""
    return record.key is not None and record.key == record.value and bytes(record.key).startswith(_LAST)


def must_heal(sim: Simulation, within: float, *, lossy: bool) -> None:
    """Wait until a cluster without faults has recovered, then check it; see Simulation.must_heal."""
    sim.run_until(lambda: is_healed(sim), within=within, what=lambda: f"the cluster heals: {what_is_missing(sim)}")
    for name, state in _partitions(sim):
        if name.startswith("__"):
            continue  # only coordinators write to internal topics
        value = _LAST + f"{name}-{state.partition}".encode()
        sent = sim.produce(name, value, partition=state.partition, key=value)
        # leadership moved to the preferred leader meanwhile: the outcome is unknown
        with contextlib.suppress(LeadershipLost):
            sent.wait(within=within)
    sim.run_until(lambda: is_healed(sim), within=within, what=lambda: f"all is replicated: {what_is_missing(sim)}")
    for topic in sim.image().topics.values():
        for state in topic.partitions:
            replicas_are_equal(sim, topic, state)  # before the reads: replicas may move during them
    for name, state in _partitions(sim):
        all_is_read(sim, name, state.partition)
    if not lossy:
        sim.checkers.all_sent_are_accounted_for()
        sim.coordination.transactions.all_or_nothing(sim.checkers.ledgers.values())
    coordinators_agree(sim)


def _partitions(sim: Simulation) -> list[tuple[str, PartitionState]]:
    return [(topic.name, state) for topic in sim.image().topics.values() for state in topic.partitions]


def is_healed(sim: Simulation) -> bool:
    """Whether the cluster has fully recovered. Asked after every event: it looks no further than the first thing that
    is missing."""
    return all(next(missing(sim), None) is None for missing in _MISSING)


def what_is_missing(sim: Simulation) -> str:
    """What the cluster lacks for full recovery, as a text: all of the first kind that is missing."""
    found = next((found for missing in _MISSING if (found := list(missing(sim)))), [])
    return "; ".join(found) or "nothing is missing now"


def _absent_nodes(sim: Simulation) -> Iterator[str]:
    for machine in sim.machines.values():
        if not machine.up:
            yield f"{machine.name} is down"
    for node in sim.image().nodes.values():
        if node.fenced:
            yield f"node {node.node_id} is fenced"


def _unhealed_partitions(sim: Simulation) -> Iterator[str]:
    for topic in sim.image().topics.values():
        for state in topic.partitions:
            if set(state.isr) != set(state.replicas) or state.leader < 0 or state.adding or state.removing:
                yield f"{topic.name}-{state.partition}: leader {state.leader}, isr {state.isr} of {state.replicas}"
                continue
            if state.queued:
                yield f"{topic.name}-{state.partition}: its move to {state.queued} is queued and does not begin"
            key = state.key
            views_there = [sim.machines[node].replica(key) for node in state.replicas]
            there = [view.log for view in views_there if view is not None and view.log is not None]
            ends, marks = {log.log_end_offset for log in there}, {log.high_watermark for log in there}
            if len(there) != len(state.replicas) or len(ends) != 1 or ends != marks:
                yield f"{topic.name}-{state.partition}: {len(there)} logs online, ends {ends}, watermarks {marks}"


def tier_is_known(sim: Simulation) -> bool:
    """Whether the leader of each partition whose log begins in the remote tier can read from it."""
    for topic in sim.image().topics.values():
        for state in topic.partitions:
            leader = sim.machines[state.leader].node if state.leader >= 0 else None
            if leader is not None and not views.knows_tier(leader, state.key):
                return False
    return True


def _open_transactions(sim: Simulation) -> Iterator[str]:
    """Those of real producers: coordinators end those that nobody ends."""
    if not sim.coordination.transactions.all:
        return
    for key, ledger in sim.checkers.ledgers.items():
        if ledger.stable < ledger.end and not ledger.lossy and sim.image().partition(key) is not None:
            yield f"{ledger.name}: a transaction is open since offset {ledger.stable}"


def rotten_segments(sim: Simulation) -> Iterator[str]:
    """The segments in use with a flipped bit at or above the log start offset."""
    for machine in sim.machines.values():
        for view in machine.replicas() if machine.disk.rots else ():
            log = view.log
            if not isinstance(log, Log):
                continue
            for segment in log.segments:
                if found := _rotten_in(machine, log, segment):
                    yield f"{segment.path} of {machine.name}: its bytes {found} are corrupt"


def _rotten_in(machine: Machine, log: Log, segment: LogSegment) -> list[int]:
    """The positions of flipped bits in the readable part of a segment."""
    inode = views.inode_at(machine.disk, segment.path)
    if inode is None or not inode.seen.rot:
        return []
    with machine.disk.as_written():
        first = segment.find(log.log_start_offset)
    begin = segment.size if first is None else first.position
    return sorted(position for position in inode.seen.rot if position >= begin)


_MISSING: Final = (_absent_nodes, _unhealed_partitions, _open_transactions, rotten_segments)
"""Each names what is missing; the later ones count once the former find nothing."""


def replicas_are_equal(sim: Simulation, topic: TopicState, state: PartitionState) -> None:
    """Check that all replicas of a partition have the same bytes. Replicas of a compacted topic, each compacted by
    its own node, must have what the ledger requires."""
    name, ledger = f"{topic.name}-{state.partition}", sim.ledger(topic.name, state.partition)
    cleanup = ledger.cleanup
    logs = {node: sim.log(node, topic.name, state.partition) for node in state.replicas}
    start = max(log.log_start_offset for log in logs.values())
    if start > max(logs[state.leader].log_start_offset, ledger.deleted_to) and not cleanup.expires:
        # an operator's deletion may be lost if the leader fails before the next leader has learned of it
        raise Violation(f"{name}: a replica's log starts at {start}, above the log start of its leader")
    if cleanup.compact:
        for node in logs:
            replica = sim.replica(node, topic.name, state.partition)
            assert replica is not None, f"node {node} has no replica of {name} now"
            sim.checkers.look_again(sim.machines[node].name, replica)
        return
    start = max(start, *(log.local_log_start_offset for log in logs.values()))
    contents = {
        _without_accepted_losses(ledger, sim.undisturbed.read(sim.machines[node].name, log, start, log.log_end_offset))
        for node, log in logs.items()
    }
    if len(contents) != 1:
        raise Violation(f"{name}: the logs of {sorted(logs)} are not equal")


def _without_accepted_losses(ledger: Ledger, data: bytes) -> bytes:
    if ledger.loss is None or not ledger.loss.accepted:
        return data
    lost = ledger.loss.accepted
    return b"".join(
        bytes(batch.buffer)
        for batch in iter_batches(data)
        if not any(int(batch.base_offset) in offsets for offsets in lost)
    )


def all_is_read(sim: Simulation, topic: str, partition: int) -> None:
    """Check that a reader receives exactly what was committed, and with read_committed only committed transactions."""
    ledger, start = sim.ledger(topic, partition), sim.start_of(topic, partition)
    for decided in (False, True) if ledger.markers else (False,):
        read = sim.read_decided(topic, partition) if decided else sim.read_committed(topic, partition)
        if ledger.loss is not None:
            read = [value for value in read if value not in ledger.loss.given_up]
        wanted = [
            value
            for offset, value in sorted(ledger.values.items())
            if offset >= start and not (decided and offset in ledger.aborted)
        ]
        if read != wanted and not (ledger.cleanup.compact or ledger.cleanup.expires or ledger.lossy):
            raise Violation(f"{topic}-{partition}: the records read are not what was committed")
