"""Sequences of events that would return aborted records to a reader, or accept records of a fenced producer.

They use a scripted coordinator (transactions.py) that makes the leaders append its markers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tests.sim.producer_stories import away_from_the_voter
from tests.sim.stories import TOPIC, committed, write
from tests.sim.transactions import Coordinator, append_marker
from tests.sim.workload import Transaction
from tests.sim.world import Simulation
from tidelog.errors import InvalidProducerEpoch

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
    transactions_outlive_all_processes,
)
