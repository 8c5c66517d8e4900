"""Sequences of events that would return aborted records to a reader, or accept records of a fenced producer.

They use a scripted coordinator (transactions.py) that makes the leaders append its markers.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from typing import Any

from storage.checkpoints.checkpoint_file import RECOVERY_POINT_CHECKPOINT
from testbed.sim.network import Envelope
from testbed.sim.transactions import Coordinator, append_marker
from testbed.sim.workload import Transaction
from testbed.sim.world import Simulation
from tests.sim.failover_stories import break_connections
from tests.sim.log_stories import clean, log_of, three_replicas
from tests.sim.producer_stories import away_from_the_voter
from tests.sim.stories import TOPIC, committed, end, fenced, leads, write
from tidelog.errors import InvalidProducerEpoch
from tidelog.records import iter_batches
from tidelog.types import Offset

PRODUCER = 70


def done(sim: Simulation, work: Coroutine[Any, Any, None]) -> None:
    """Run the work of the coordinator to its end."""
    task = sim.client().start(work, "coordinates")
    sim.run_until(task.done, within=30, what="every marker is committed")
    task.result()


def decided_transactions_only(sim: Simulation) -> None:
    """Two transactions and a plain record between them, under a leader that is lost. A reader with read_committed
    gets no record of an open transaction, none of the aborted one, and all of the committed one."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, *_) = away_from_the_voter(sim)
    first, second = Transaction(70, 0), Transaction(71, 0)
    sim.produce(TOPIC, b"before", partition=p).wait()
    sim.produce_in(first, TOPIC, b"first 0", p).wait()
    sim.produce_in(second, TOPIC, b"second 0", p).wait()
    sim.produce(TOPIC, b"between", partition=p).wait()
    assert sim.read_decided(TOPIC, p) == [b"before"]
    sim.produce_in(first, TOPIC, b"first 1", p).wait()
    sim.decide(first, commit=False)
    assert sim.read_decided(TOPIC, p) == [b"before"]
    sim.kill(leader)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (leader, -1), what="another node leads")
    sim.produce_in(second, TOPIC, b"second 1", p).wait()
    assert sim.read_decided(TOPIC, p) == [b"before"]
    sim.decide(second, commit=True)
    assert sim.read_decided(TOPIC, p) == [b"before", b"second 0", b"between", b"second 1"]
    sim.must_heal()


def fenced_producer_continues(sim: Simulation) -> None:
    """A producer's record is in transit for so long that another instance takes over and aborts what the first left
    open. Then the record arrives, and another one at a new leader: both are refused as fenced, and nothing is
    written."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, *_) = away_from_the_voter(sim)
    coordinator = Coordinator(sim, PRODUCER, sim.rng)
    old = coordinator.begin()
    on_its_way = sim.hold("Data.ProduceStream", target=leader)
    late = sim.produce_in(old, TOPIC, b"late", p)
    sim.run_until(lambda: on_its_way.count > 0, what="the record is in transit")
    done(sim, coordinator.init(sim.client()))
    on_its_way.release()
    sim.run_until(lambda: late.done, what="the old instance has its answer")
    assert isinstance(late.error, InvalidProducerEpoch), f"what a fenced producer sent is {late.fate.value}"
    sim.kill(leader)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (leader, -1), what="another node leads")
    later = sim.produce_in(old, TOPIC, b"later", p)
    sim.run_until(lambda: later.done, what="the old instance has its answer")
    assert isinstance(later.error, InvalidProducerEpoch), f"what a fenced producer sent is {later.fate.value}"
    new = coordinator.begin()
    sim.produce_in(new, TOPIC, b"new", p).wait()
    done(sim, coordinator.end(sim.client(), new, commit=True))
    assert sim.read_decided(TOPIC, p) == [b"new"]
    sim.must_heal()


def replaced_coordinator_is_late(sim: Simulation) -> None:
    """A coordinator dies after its decision. Another one takes over and writes the marker; then the marker of the
    first arrives and is refused."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, _ = away_from_the_voter(sim)
    transaction = Transaction(PRODUCER, 0, marker_epoch=1)
    sim.produce_in(transaction, TOPIC, b"a", p).wait()
    transaction.committed = True
    append_marker(sim, transaction, TOPIC, p, coordinator_epoch=1)
    sim.run_until(lambda: committed(sim, p) == 2, what="the marker is committed")
    append_marker(sim, transaction, TOPIC, p, coordinator_epoch=0)
    sim.run_for(1)
    assert committed(sim, p) == 2, "the marker of a replaced coordinator is written"
    assert sim.read_decided(TOPIC, p) == [b"a"]
    sim.must_heal()


def compaction_stops_at_an_open_transaction(sim: Simulation) -> None:
    """A key's value is overwritten in a transaction that stays open for a long time while the log is compacted, and
    is then aborted: the first value is still there."""
    sim.start(
        nodes=4,
        min_insync=2,
        partitions=12,
        cleaning=True,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_bytes="1024",
    )
    p, (leader, *_) = away_from_the_voter(sim)
    sim.produce(TOPIC, b"the first value", partition=p, key=b"k").wait()
    transaction = Transaction(PRODUCER, 0)
    sim.produce_in(transaction, TOPIC, b"a value that is aborted", p, key=b"k").wait()
    for number in range(12):
        sim.produce(TOPIC, b"%03d" % number + b"." * 300, partition=p, key=b"another").wait()
    sim.run_for(10)
    sim.decide(transaction, commit=False)
    sim.kill(leader)
    sim.restart(leader)
    sim.must_heal()
    assert sim.read_decided(TOPIC, p)[0] == b"the first value"
    assert b"a value that is aborted" not in sim.read_decided(TOPIC, p)


# --- markers that compaction has removed ------------------------------------------------------------------------------


def begun_and_compacted(sim: Simulation) -> tuple[int, int, Transaction]:
    """A partition whose log may lose markers at once, its leader, and an open transaction at offset 0, which all
    replicas have."""
    p, leader, *_ = three_replicas(
        sim, cleanup_policy="compact", delete_retention_ms="0", min_cleanable_dirty_ratio="0", segment_bytes="1000"
    )
    begun = Transaction(PRODUCER, 0, marker_epoch=1)
    sim.produce_in(begun, TOPIC, b"aborted", p, key=b"k").wait()
    sim.run_until(lambda: all(end(sim, node, p) == 1 for node in sim.partition(TOPIC, p).replicas), what="all have it")
    return p, leader, begun


def end_by(sim: Simulation, transaction: Transaction, p: int, *, commit: bool, coordinator_epoch: int) -> None:
    """The marker of a coordinator of this epoch is committed."""
    sim.run_until(lambda: leads(sim, sim.leader(TOPIC, p), p), what="the leader leads")
    before, transaction.committed = committed(sim, p), commit
    append_marker(sim, transaction, TOPIC, p, coordinator_epoch=coordinator_epoch)
    sim.run_until(lambda: committed(sim, p) > before, what="the marker is committed")


def committed_next(sim: Simulation, producer: int, p: int) -> None:
    """The second transaction of a producer, with the next coordinator."""
    following = Transaction(producer, 1, marker_epoch=2)
    sim.produce_in(following, TOPIC, b"committed by %d" % producer, p, key=b"of %d" % producer).wait()
    end_by(sim, following, p, commit=True, coordinator_epoch=2)


def compact(sim: Simulation, p: int) -> Offset:
    """Compact the leader's log until markers may go. Returns the offset of its first batch then."""
    log = log_of(sim, sim.leader(TOPIC, p), p)
    for number in range(3):  # removes the record, gives the marker its horizon, removes the marker
        for filler in range(4):
            value = b"%d.%d from %d " % (number, filler, log.log_end_offset) + b"." * 400
            sim.produce(TOPIC, value, partition=p, key=b"filler").wait()
        clean(log)
    return next(iter(iter_batches(log.read(Offset(0), 1, up_to=log.high_watermark).records))).base_offset


def leads_again(sim: Simulation, p: int, away: int) -> list[bytes | None]:
    """The replica is in sync again, and leads. Returns what readers with read_committed get from it."""
    sim.run_until(lambda: away in sim.isr(TOPIC, p), what="it is in sync again")
    sim.elect(TOPIC, p)
    sim.run_until(lambda: leads(sim, away, p), what="it leads")
    return [value for value in sim.read_decided(TOPIC, p) if value is not None and b"..." not in value]


def marker_is_gone_when_the_replica_returns(sim: Simulation) -> None:
    """A replica is away while a transaction is aborted and compaction removes its record and its marker. It still has
    the record, which nothing ends, until the next marker of the producer, a commit, would make it a committed one. It
    fetches again from there."""
    p, away, begun = begun_and_compacted(sim)
    sim.kill(away)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (away, -1), what="another node leads")
    end_by(sim, begun, p, commit=False, coordinator_epoch=1)
    committed_next(sim, PRODUCER, p)
    assert compact(sim, p) > 1, "the record or its marker is still there"
    sim.restart(away)
    assert leads_again(sim, p, away) == [b"committed by 70"]
    sim.must_heal()


def transactions_overlap_where_the_replica_returns(sim: Simulation) -> None:
    """As before, but another transaction was open when the first one began, and was aborted before the replica left.
    Where the replica fetches again from the first one, the other one is open again, and its marker is gone, too."""
    p, away, other = begun_and_compacted(sim)
    begun = Transaction(PRODUCER + 1, 0, marker_epoch=1)
    sim.produce_in(begun, TOPIC, b"aborted too", p, key=b"k").wait()
    end_by(sim, other, p, commit=False, coordinator_epoch=1)
    sim.run_until(lambda: end(sim, away, p) == 3, what="the replica has the marker of the other one")
    sim.kill(away)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (away, -1), what="another node leads")
    end_by(sim, begun, p, commit=False, coordinator_epoch=1)
    committed_next(sim, PRODUCER, p)
    committed_next(sim, PRODUCER + 1, p)
    assert compact(sim, p) > 3, "a record or a marker is still there"
    sim.restart(away)
    assert leads_again(sim, p, away) == [b"committed by 70", b"committed by 71"]
    sim.must_heal()


def marker_is_kept_between_two_fetches(sim: Simulation) -> None:
    """A replica that has lost its disk fetches the record of a transaction, once its node is in service. Before its
    next fetch the transaction is aborted and its record compacted away. The marker stays until the replica has it."""
    p, away, begun = begun_and_compacted(sim)
    sim.kill(away)
    sim.empty(away)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (away, -1), what="another node leads")
    for number in range(4):
        sim.produce(TOPIC, b"rolled %d " % number + b"." * 400, partition=p, key=b"filler").wait()
    leader = sim.leader(TOPIC, p)

    def is_next(envelope: Envelope) -> bool:
        asked = envelope.message.partitions
        return any(entry.partition == p and entry.fetch_offset >= 1 for entry in asked)

    first = sim.hold("Data.FetchStream", source=away, target=leader)
    sim.restart(away)
    sim.run_until(lambda: not fenced(sim, away), what="its node is unfenced")
    fetches = sim.hold("Data.FetchStream", source=away, target=leader, when=is_next)
    first.release()
    sim.run_until(lambda: fetches.count > 0, what="it has fetched the record and asks for the next ones")
    end_by(sim, begun, p, commit=False, coordinator_epoch=1)
    committed_next(sim, PRODUCER, p)
    compact(sim, p)
    assert 0 < end(sim, away, p) < 5, "it has the record, and not the marker"
    fetches.release()
    assert leads_again(sim, p, away) == [b"committed by 70"]
    assert compact(sim, p) > 5, "the marker stays although all have it"
    sim.must_heal()


def marker_goes_while_the_replica_is_fenced(sim: Simulation) -> None:
    """As before, but the node of the replica is unfenced only after the marker is gone: the leader keeps nothing for
    it. What it fetched until then is not believed, although its stream and the epoch are the same."""
    p, away, begun = begun_and_compacted(sim)
    sim.kill(away)
    sim.empty(away)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (away, -1), what="another node leads")
    for number in range(4):
        sim.produce(TOPIC, b"rolled %d " % number + b"." * 400, partition=p, key=b"filler").wait()
    leader = sim.leader(TOPIC, p)

    def is_next(envelope: Envelope) -> bool:
        asked = envelope.message.partitions
        return any(entry.partition == p and entry.fetch_offset >= 1 for entry in asked)

    fetches = sim.hold("Data.FetchStream", source=away, target=leader, when=is_next)
    heartbeats = sim.hold("Controller.Heartbeat", source=away)
    sim.restart(away)
    sim.run_until(lambda: fetches.count > 0, what="it has fetched the record and asks for the next ones")
    end_by(sim, begun, p, commit=False, coordinator_epoch=1)
    committed_next(sim, PRODUCER, p)
    assert compact(sim, p) > 5, "the record or its marker is still there"
    assert 0 < end(sim, away, p) < 5, "it has the record, and not the marker"
    assert fenced(sim, away)
    heartbeats.release()
    fetches.release()
    assert leads_again(sim, p, away) == [b"committed by 70"]
    sim.must_heal()


def stream_breaks_among_overlapping_transactions(sim: Simulation) -> None:
    """A replica that has lost its disk fetches a compacted log in which some transaction is open at every offset. Its
    streams break after each answer. It may fetch its whole log again after its node is unfenced, but not with each
    stream: the leader keeps the markers meanwhile."""
    p, away, begun = begun_and_compacted(sim)
    sim.kill(away)
    sim.empty(away)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (away, -1), what="another node leads")
    for number in range(1, 20):
        following = Transaction(PRODUCER + number, 0, marker_epoch=1)
        for part in range(2):
            value = b"%d.%d of a transaction " % (number, part) + b"," * 300
            sim.produce_in(following, TOPIC, value, p, key=b"%d.%d" % (number, part)).wait()
        sim.produce(TOPIC, b"filler %d" % number + b"." * 300, partition=p, key=b"filler").wait()
        end_by(sim, begun, p, commit=True, coordinator_epoch=1)
        begun = following
    end_by(sim, begun, p, commit=True, coordinator_epoch=1)
    compact(sim, p)
    leader = sim.leader(TOPIC, p)
    sim.restart(away)
    sim.run_until(lambda: sim.replica(away, TOPIC, p) is not None, what="it has a new log")
    restarts = 0
    for _ in range(60):
        before = end(sim, away, p)
        sim.run_until(lambda before=before: end(sim, away, p) != before or away in sim.isr(TOPIC, p), within=30)  # type: ignore[misc]
        if away in sim.isr(TOPIC, p):
            break
        restarts += end(sim, away, p) < before
        break_connections(sim, leader)
    assert restarts <= 2, f"it fetched its log {restarts + 1} times"
    assert len(leads_again(sim, p, away)) == 39
    sim.must_heal()


def disk_is_full_when_the_replica_returns(sim: Simulation) -> None:
    """As `marker_is_gone_when_the_replica_returns`, but the truncation fails, since its disk has no space to record
    that less is durable. The record is not shown, and once there is space the replica fetches again from there."""
    p, away, begun = begun_and_compacted(sim)
    sim.run_for(30)  # what is durable is recorded
    sim.kill(away)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (away, -1), what="another node leads")
    end_by(sim, begun, p, commit=False, coordinator_epoch=1)
    committed_next(sim, PRODUCER, p)
    assert compact(sim, p) > 1, "the record or its marker is still there"
    answers = sim.hold("Data.FetchStream", source=sim.leader(TOPIC, p), target=away, part="answer")
    sim.restart(away)
    sim.run_until(lambda: answers.count > 0, what="it is about to find the gap")
    sim.break_disk(away, "write", error=errno.ENOSPC, path=RECOVERY_POINT_CHECKPOINT)
    answers.release()
    assert leads_again(sim, p, away) == [b"committed by 70"]
    sim.must_heal()


def transactions_outlive_all_processes(sim: Simulation) -> None:
    """Every node is stopped with one transaction open, one aborted and one committed: decisions stay, and the open
    one is decided afterwards."""
    sim.start(nodes=3, min_insync=2)
    ended, aborted, still_open = (Transaction(PRODUCER + number, 0) for number in range(3))
    for transaction in (ended, aborted, still_open):
        sim.produce_in(transaction, TOPIC, b"of %d" % transaction.producer_id).wait()
    sim.decide(ended, commit=True)
    sim.decide(aborted, commit=False)
    assert sim.read_decided(TOPIC) == [b"of 70"]
    for node in sim.nodes:
        sim.stop(node)
    sim.run_until(lambda: not any(machine.up for machine in sim.machines.values()), within=90, what="all have stopped")
    for node in sim.nodes:
        sim.restart(node)
    write(sim, 0, "plain ", 2)
    assert sim.read_decided(TOPIC) == [b"of 70"]
    sim.decide(still_open, commit=True)
    assert sim.read_decided(TOPIC) == [b"of 70", b"of 72", b"plain 0", b"plain 1"]
    sim.must_heal()


ALL: tuple[Callable[[Simulation], None], ...] = (
    decided_transactions_only,
    fenced_producer_continues,
    replaced_coordinator_is_late,
    compaction_stops_at_an_open_transaction,
    marker_is_gone_when_the_replica_returns,
    transactions_overlap_where_the_replica_returns,
    marker_is_kept_between_two_fetches,
    marker_goes_while_the_replica_is_fenced,
    stream_breaks_among_overlapping_transactions,
    disk_is_full_when_the_replica_returns,
    transactions_outlive_all_processes,
)
