"""Sequences of events that would commit half of a transaction, commit what was aborted, leave one open for ever, or
accept a fenced producer.

Producers are real ones (stepped_transactor.py); what they are told, each marker and each state in the coordinator's
log is judged throughout (coordinated_transactions.py, transaction_log.py). Sources: KIP-98, KIP-360, KIP-447,
KIP-588, KIP-664, KIP-890.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from replication.coordination.transaction_records import TransactionState as State
from testbed.sim.coordinated_transactions import CoordinatedTransaction
from testbed.sim.coordination import TRANSACTIONS
from testbed.sim.machine import endpoint_of
from testbed.sim.workload import Transaction
from testbed.sim.world import Simulation
from tests.sim.group_stories import (
    begin,
    coordinator_of,
    coordinator_place,
    joined,
    transaction_coordinator_of,
    wait_other_coordinator,
)
from tests.sim.stepped_transactor import SteppedTransactor
from tests.sim.stories import TOPIC
from tidelog.errors import ProducerFenced, TransactionOutcomeUnknown
from tidelog.protocol import methods
from tidelog.protocol.v1 import data_pb2

ID = "payments"
PARTITIONS = 6
STEPS = (
    "Transactions.InitProducerId",
    "Transactions.AddOrVerifyPartitions",
    "Transactions.EndTxn",
    "Data.WriteTxnMarkers",
)
"""The requests of a transaction."""


def cluster(sim: Simulation, *, nodes: int = 4, **settings: Any) -> None:
    """A cluster with coordinators."""
    begin(sim, nodes=nodes, partitions=PARTITIONS, **settings)


def state_of(sim: Simulation, transactional_id: str = ID) -> State | None:
    """The state of a transactional id by the committed log of its coordinator."""
    for log in sim.coordination.transaction_logs.values():
        if transactional_id in log.states:
            return log.states[transactional_id].transaction_status
    return None


def wait_state(sim: Simulation, state: State, transactional_id: str = ID, within: float = 20.0) -> None:
    sim.run_until(
        lambda: state_of(sim, transactional_id) is state,
        within=within,
        what=lambda: f"{transactional_id} is {state.name}, not {state_of(sim, transactional_id)}",
    )


def decided_values(sim: Simulation) -> list[bytes | None]:
    """What a reader with read_committed is given of all partitions, once every transaction has its markers."""
    ledgers = [sim.ledger(TOPIC, partition) for partition in range(PARTITIONS)]
    sim.run_until(lambda: all(ledger.stable == ledger.end for ledger in ledgers), what="every transaction has ended")
    return [value for partition in range(PARTITIONS) for value in sim.read_decided(TOPIC, partition)]


def two_places(sim: Simulation) -> tuple[int, int]:
    """Two partitions that different nodes lead, neither of them the transaction's coordinator."""
    coordinator = transaction_coordinator_of(sim, ID)
    first = next(p for p in range(PARTITIONS) if sim.leader(TOPIC, p) != coordinator)
    second = next(p for p in range(PARTITIONS) if sim.leader(TOPIC, p) not in (coordinator, sim.leader(TOPIC, first)))
    return first, second


def warmed(sim: Simulation) -> SteppedTransactor:
    """An instance that has committed one transaction, so that its coordinator exists."""
    instance = SteppedTransactor(sim, ID)
    instance.begin().send(b"warm").wait()
    assert instance.end() is True
    wait_state(sim, State.COMPLETE_COMMIT)
    return instance


# --- all or nothing -------------------------------------------------------------------------------------------------


def transactions_over_several_partitions(sim: Simulation) -> None:
    """A transaction over all partitions is committed, the next one aborted, the third committed: readers get all of the
    first and third, nothing of the second, and nothing of an open one."""
    cluster(sim)
    instance = SteppedTransactor(sim, ID)
    for number, commit in enumerate((True, False, True)):
        instance.begin()
        for partition in range(PARTITIONS):
            instance.send(b"%d of %d" % (partition, number), partition).wait()
        assert b"0 of %d" % number not in sim.read_decided(TOPIC)
        assert instance.end(commit=commit) is commit, "the producer is told another outcome than it asked for"
    assert sorted(value or b"" for value in decided_values(sim)) == sorted(
        b"%d of %d" % (partition, number) for partition in range(PARTITIONS) for number in (0, 2)
    )
    instance.close()
    sim.must_heal()


def coordinator_dies_before_the_markers(sim: Simulation) -> None:
    """The coordinator dies when its decision to commit is in its log and no marker is written. Its successor
    completes the commit, although the producer never asks again."""
    cluster(sim)
    instance = warmed(sim)
    first, second = two_places(sim)
    instance.begin().send(b"a", first).wait()
    instance.send(b"b", second).wait()
    markers = sim.hold("Data.WriteTxnMarkers")
    instance.ending()
    wait_state(sim, State.PREPARE_COMMIT)
    former = transaction_coordinator_of(sim, ID)
    sim.kill(former)
    instance.kill()
    markers.let_pass()
    wait_other_coordinator(sim, former, ID, TRANSACTIONS)
    wait_state(sim, State.COMPLETE_COMMIT)
    assert {b"a", b"b"} <= set(decided_values(sim))
    markers.release()  # late markers of the coordinator that died
    sim.run_for(1)
    sim.must_heal()


def coordinator_dies_between_two_markers(sim: Simulation) -> None:
    """The coordinator dies when one of two partitions has its marker. The successor writes the other one, with the same
    decision, and the first one's again without effect."""
    cluster(sim)
    instance = warmed(sim)
    first, second = two_places(sim)
    instance.begin().send(b"a", first).wait()
    instance.send(b"b", second).wait()
    held = sim.hold("Data.WriteTxnMarkers", target=sim.leader(TOPIC, second))
    ending = instance.ending(commit=False)
    sim.run_until(lambda: held.count > 0, what="one marker is on its way")
    ledger = sim.ledger(TOPIC, first)
    sim.run_until(lambda: ledger.stable == ledger.end, what="the other one is there")
    former = transaction_coordinator_of(sim, ID)
    sim.kill(former)
    held.let_pass()
    wait_other_coordinator(sim, former, ID, TRANSACTIONS)
    sim.run_until(ending.done, what="the producer knows how its transaction ended")
    wait_state(sim, State.COMPLETE_ABORT)
    held.release()
    instance.begin().send(b"c", second).wait()
    assert instance.end() is True
    assert {b"a", b"b"}.isdisjoint(decided_values(sim))
    sim.must_heal()


def marker_waits_for_a_leader(sim: Simulation) -> None:
    """A partition of the transaction has no leader when it is committed: its marker waits for one. Nothing of the
    transaction is complete before, and readers of other partitions have its records."""
    cluster(sim, nodes=6)
    instance = warmed(sim)
    move(sim, *coordinator_place(sim, ID, TRANSACTIONS), 0, 1, 2)
    move(sim, TOPIC, 0, 0, 1, 2)
    move(sim, TOPIC, 1, *(down := (3, 4, 5)))
    instance.begin().send(b"a", 1).wait()
    instance.send(b"b", 0).wait()
    markers = sim.hold("Data.WriteTxnMarkers")
    ending = instance.ending()
    wait_state(sim, State.PREPARE_COMMIT)
    for node in down:
        sim.kill(node)
    markers.release()
    sim.never(lambda: state_of(sim) is State.COMPLETE_COMMIT, seconds=4, what="it is complete without a marker")
    for node in down:
        sim.restart(node)
    sim.run_until(ending.done, within=60, what="the producer knows how its transaction ended")
    assert ending.result().told is True
    assert {b"a", b"b"} <= set(decided_values(sim))
    sim.must_heal()


def move(sim: Simulation, topic: str, partition: int, *replicas: int) -> None:
    """Move a partition to these nodes, and wait until it is there."""
    sim.reassign(topic, partition, *replicas)
    sim.run_until(
        lambda: set(sim.isr(topic, partition)) == set(sim.partition(topic, partition).replicas) == set(replicas),
        what=f"{topic}-{partition} is on {replicas}",
    )


def coordinator_is_lost_at_each_step(sim: Simulation) -> None:
    """In every step of a transaction its coordinator is killed, and its successor has moved by the next one: when
    the producer id is asked for, a partition is added, offsets are added, the decision is asked for, the markers are
    written. Each transaction is all or nothing, and the producer knows which."""
    cluster(sim)
    warmed(sim).close()
    told = {step.encode(): _loses_its_coordinator(sim, step) for step in STEPS}
    SteppedTransactor(sim, ID).begin().end()
    sim.must_heal()
    found = set(decided_values(sim)) & set(told)
    assert found == {value for value, committed in told.items() if committed}, f"{found} is committed, told was {told}"


def _loses_its_coordinator(sim: Simulation, step: str) -> bool | None:
    """One transaction whose coordinator is lost while a request of that kind is on its way. Returns what the producer
    is told."""
    held = sim.hold(step)
    instance = SteppedTransactor(sim, ID, max_block_ms=20_000)
    instance.beginning()
    sim.run_until(lambda: held.count > 0 or instance.is_open, what="the transaction is open, or its request is held")
    partition = two_places(sim)[0]
    ending = _sends_and_ends(instance, step, partition) if instance.is_open else None
    sim.run_until(lambda: held.count > 0, what=f"{step} is on its way")
    _lose_coordinator(sim)
    held.release()
    sim.run_until(lambda: instance.is_open, what="the transaction is open")
    ending = ending or _sends_and_ends(instance, step, partition)
    sim.run_until(ending.done, within=60, what=f"the producer knows how its transaction ended, at {step}")
    instance.kill()
    return ending.result().told


def _sends_and_ends(instance: SteppedTransactor, step: str, partition: int) -> asyncio.Task[CoordinatedTransaction]:
    instance.send(step.encode(), partition)
    return instance.ending()


def _lose_coordinator(sim: Simulation) -> None:
    former = transaction_coordinator_of(sim, ID)
    sim.kill(former)
    wait_other_coordinator(sim, former, ID, TRANSACTIONS)
    sim.restart(former)
    place = coordinator_place(sim, ID, TRANSACTIONS)
    sim.run_until(lambda: former in sim.isr(*place), what="the former coordinator is in sync again")


def answer_to_a_commit_is_lost(sim: Simulation) -> None:
    """The answer to EndTxn is lost: the producer asks again and learns that its transaction is committed. The next one
    has an epoch of its own, which the repetition does not end."""
    cluster(sim)
    instance = warmed(sim)
    instance.begin().send(b"a").wait()
    answers = sim.hold("Transactions.EndTxn", part="answer")
    ending = instance.ending()
    sim.run_until(lambda: answers.count > 0, what="the answer is on its way")
    answers.let_pass()
    answers.break_connections()
    sim.run_until(ending.done, what="the producer knows how its transaction ended")
    assert ending.result().told is True
    instance.begin().send(b"b").wait()
    answers.release()
    assert instance.end(commit=False) is False
    assert decided_values(sim) == [b"warm", b"a"]
    instance.close()
    sim.must_heal()


def late_end_of_a_transaction(sim: Simulation) -> None:
    """A request to abort is so late that the producer asks again and begins the next transaction before it arrives:
    it has no effect on that one (KIP-890: each has its own epoch)."""
    cluster(sim)
    instance = warmed(sim)
    instance.begin().send(b"a").wait()
    late = sim.hold("Transactions.EndTxn")
    ending = instance.ending(commit=False)
    sim.run_until(lambda: late.count > 0, what="the request is on its way")
    late.let_pass()
    late.break_connections()
    sim.run_until(ending.done, what="the producer knows how its transaction ended")
    instance.begin().send(b"b").wait()
    late.release()
    sim.run_for(1)
    instance.send(b"c").wait()
    assert instance.end() is True
    assert decided_values(sim) == [b"warm", b"b", b"c"]
    sim.must_heal()


# --- fencing --------------------------------------------------------------------------------------------------------


def newer_instance_fences_the_older(sim: Simulation) -> None:
    """A producer is paused within a transaction, and another one with its transactional id begins: what the first left
    open is aborted. When it continues, nothing that it sends is accepted, and it cannot commit."""
    cluster(sim)
    old = warmed(sim)
    old.begin().send(b"old", 0).wait()
    old.pause()
    new = SteppedTransactor(sim, ID)
    new.begin().send(b"new", 0).wait()
    old.resume()
    late = old.send(b"late", 1)
    sim.run_until(lambda: late.done, what="the old instance has its answer")
    assert old.end() is not True
    assert isinstance(old.over, ProducerFenced), f"the old instance was not fenced: {old.over!r}"
    assert new.end() is True
    assert set(decided_values(sim)) == {b"warm", b"new"}
    sim.must_heal()


def commit_of_a_fenced_instance(sim: Simulation) -> None:
    """A commit is in transit while a newer instance begins: it is refused when it arrives, and what the newer one has
    aborted stays so."""
    cluster(sim)
    old = warmed(sim)
    old.begin().send(b"old").wait()
    late = sim.hold("Transactions.EndTxn")
    old.ending()
    sim.run_until(lambda: late.count > 0, what="the commit is on its way")
    late.let_pass()
    new = SteppedTransactor(sim, ID)
    new.begin().send(b"new").wait()
    late.release()
    sim.run_until(lambda: old.over is not None, what="the old instance is fenced")
    assert new.end() is True
    assert set(decided_values(sim)) == {b"warm", b"new"}
    sim.must_heal()


def late_write_enters_no_other_transaction(sim: Simulation) -> None:
    """KIP-890: a batch is so late that its transaction was aborted by the timeout and the next one of the same
    producer is open when it arrives: it does not become a part of it."""
    cluster(sim)
    instance = warmed(sim)
    first, second = two_places(sim)
    instance.begin().send(b"a", first).wait()
    late = sim.hold("Data.ProduceStream", target=sim.leader(TOPIC, second))
    instance.send(b"late", second)
    sim.run_until(lambda: late.count > 0, what="a batch is on its way")
    instance.pause()
    new = SteppedTransactor(sim, ID)
    late.let_pass()
    new.begin().send(b"b", second).wait()
    late.release()
    sim.run_for(1)
    new.send(b"c", second).wait()
    assert new.end() is True
    assert b"late" not in decided_values(sim)
    instance.kill()
    sim.must_heal()


def late_write_hangs_no_transaction(sim: Simulation) -> None:
    """KIP-890: the first batch of a partition arrives when its transaction has ended and no marker will come there
    again. The leader asks the coordinator and refuses it, so that readers are not stopped for ever."""
    cluster(sim)
    instance = warmed(sim)
    first, second = two_places(sim)
    instance.begin().send(b"a", first).wait()
    late = sim.hold("Data.ProduceStream", target=sim.leader(TOPIC, second))
    instance.send(b"late", second)
    sim.run_until(lambda: late.count > 0, what="a batch is on its way")
    instance.pause()
    new = SteppedTransactor(sim, ID)
    assert new.begin().end(commit=False) is False
    late.release()
    sim.run_for(2)
    assert sim.ledger(TOPIC, second).stable == sim.ledger(TOPIC, second).end, "a transaction hangs"
    new.close()
    instance.kill()
    sim.must_heal()


# --- timeouts -------------------------------------------------------------------------------------------------------


def dead_producer_is_aborted(sim: Simulation) -> None:
    """A producer dies within a transaction and does not come back: its transaction is aborted when its timeout has
    passed, and readers continue behind it."""
    cluster(sim)
    instance = SteppedTransactor(sim, ID, transaction_timeout_ms=3_000)
    instance.begin().send(b"a", 1).wait()
    sim.produce(TOPIC, b"plain", partition=1).wait()
    instance.kill()
    assert sim.read_decided(TOPIC, 1) == []
    wait_state(sim, State.COMPLETE_ABORT, within=6)
    assert sim.read_decided(TOPIC, 1) == [b"plain"]
    sim.must_heal()


def dead_producer_is_aborted_by_the_next_coordinator(sim: Simulation) -> None:
    """As before, but the coordinator is lost as well: its successor knows the transaction from the log and aborts
    it."""
    cluster(sim)
    instance = warmed(sim)
    instance.close()
    instance = SteppedTransactor(sim, ID, transaction_timeout_ms=3_000)
    instance.begin().send(b"a", 1).wait()
    instance.kill()
    former = transaction_coordinator_of(sim, ID)
    sim.kill(former)
    wait_other_coordinator(sim, former, ID, TRANSACTIONS)
    wait_state(sim, State.COMPLETE_ABORT, within=10)
    sim.must_heal()


def timeout_races_a_commit(sim: Simulation) -> None:
    """A commit arrives when the timeout of its transaction has passed and the abort is decided: it is refused, and the
    producer is not told that it is committed. Then it begins the next transaction."""
    cluster(sim)
    warmed(sim).close()
    instance = SteppedTransactor(sim, ID, transaction_timeout_ms=2_000)
    instance.begin().send(b"a").wait()
    sim.run_for(1.2)
    late = sim.hold("Transactions.EndTxn")
    ending = instance.ending()
    wait_state(sim, State.COMPLETE_ABORT, within=6)
    late.release()
    sim.run_until(ending.done, within=60, what="the producer knows how its transaction ended")
    assert ending.result().told is not True
    assert b"a" not in decided_values(sim)
    again = instance if instance.over is None else SteppedTransactor(sim, ID)
    assert again.begin().end() is True
    sim.must_heal()


def coordinator_cannot_be_reached(sim: Simulation) -> None:
    """No coordinator answers after a commit was asked for, until the producer gives up: it reports that the outcome is
    unknown, not that it was aborted, since the commit may be decided."""
    cluster(sim)
    instance = SteppedTransactor(sim, ID, transaction_timeout_ms=4_000, max_block_ms=3_000)
    instance.begin().send(b"a").wait()
    answers = sim.hold("Transactions.EndTxn", part="answer")
    ending = instance.ending()
    sim.run_until(ending.done, within=60, what="the producer gives up")
    assert ending.result().told is None, f"the producer says that it is {ending.result().told}"
    assert isinstance(instance.over, TransactionOutcomeUnknown)
    answers.release()
    assert decided_values(sim) == [b"a"]
    sim.must_heal()


def decision_is_not_replicated(sim: Simulation) -> None:
    """The coordinator decides to commit, and its followers do not get the decision: no marker is written and the
    producer is not told. The coordinator is lost, and its successor, which has never heard of the decision, is asked
    again."""
    cluster(sim, nodes=5)
    instance = warmed(sim)
    place, former = coordinator_place(sim, ID, TRANSACTIONS), transaction_coordinator_of(sim, ID)
    followers = [node for node in sim.partition(*place).replicas if node != former]
    outside = next(p for p in range(PARTITIONS) if sim.leader(TOPIC, p) != former)
    instance.begin().send(b"a", outside).wait()
    for node in followers:
        sim.disconnect_link(former, node)
    ledger = sim.ledger(TOPIC, outside)
    ending = instance.ending()
    sim.never(lambda: ledger.stable == ledger.end or ending.done(), seconds=1, what="it is decided without a majority")
    sim.power_off(former, forget_all=True)
    for node in followers:
        sim.heal_link(former, node)
    wait_other_coordinator(sim, former, ID, TRANSACTIONS)
    sim.restart(former)
    sim.run_until(ending.done, within=60, what="the producer knows how its transaction ended")
    assert (ending.result().told is True) == (b"a" in decided_values(sim))
    sim.must_heal()


def timed_out_transaction_continues(sim: Simulation) -> None:
    """The coordinator aborts a transaction whose timeout has passed, and its producer, which has not noticed, writes
    more and commits: the later records are no transaction of their own, and the producer learns of the abort."""
    cluster(sim)
    warmed(sim).close()
    instance = SteppedTransactor(sim, ID, transaction_timeout_ms=2_000)
    instance.begin().send(b"a").wait()
    wait_state(sim, State.COMPLETE_ABORT, within=6)
    instance.send(b"b")
    assert instance.end() is not True
    assert {b"a", b"b"}.isdisjoint(decided_values(sim))
    again = instance if instance.over is None else SteppedTransactor(sim, ID)
    again.begin().send(b"c").wait()
    assert again.end() is True
    sim.must_heal()


# --- offsets --------------------------------------------------------------------------------------------------------


def offsets_are_committed_with_the_records(sim: Simulation) -> None:
    """KIP-447: offsets of a group in a transaction that is aborted do not count; those of one that is committed do,
    and a member that gets the partition waits until the transaction is decided."""
    group = begin(sim, nodes=4, partitions=1)
    (member,) = joined(group, 1, auto_commit=False)
    member.commits = False
    instance = SteppedTransactor(sim, ID)
    sim.produce(TOPIC, b"x").wait()
    sim.run_until(lambda: member.values == [b"x"], what="the member has read the record")
    instance.begin()
    instance.send_offsets(member)
    assert instance.end(commit=False) is False
    assert group.committed((TOPIC, 0)) == -1
    instance.begin()
    instance.send_offsets(member)
    member.kill()
    other = group.join()
    sim.never(lambda: bool(other.owned), seconds=6, what="the next member does not wait for the open transaction")
    assert instance.end() is True
    sim.run_until(lambda: bool(other.owned), what="the next member has the partition")
    sim.produce(TOPIC, b"y").wait()
    sim.run_until(lambda: other.values == [b"y"], what="it reads on behind the committed offset")
    sim.must_heal()


def aborted_offsets_do_not_count(sim: Simulation) -> None:
    """Offsets of a transaction that was aborted, by its producer or by the coordinator that it fails with, are not
    what the next member continues from."""
    group = begin(sim, nodes=4, partitions=1)
    (member,) = joined(group, 1, auto_commit=False)
    member.commits = False
    instance = SteppedTransactor(sim, ID)
    for number in range(3):
        sim.produce(TOPIC, b"%d" % number).wait()
    sim.run_until(lambda: len(member.values) == 3, what="the member has read the records")
    instance.begin()
    instance.send_offsets(member)
    assert instance.end(commit=False) is False
    wait_state(sim, State.COMPLETE_ABORT)
    former = coordinator_of(sim, group.name)
    sim.kill(former)
    wait_other_coordinator(sim, former)
    member.stop()
    sim.run_until(lambda: member.is_over, what="the member has left")
    other = group.join()
    sim.run_until(lambda: len(other.values) == 3, what="the next member reads everything")
    sim.must_heal()


def hanging_transaction_is_aborted_by_hand(sim: Simulation) -> None:
    """KIP-664: a transaction hangs in a partition, because a leader has accepted its batch without asking the
    coordinator. An operator aborts it there, and readers continue."""
    cluster(sim, verification=False)
    hanging = Transaction(990, 0)
    sim.produce_in(hanging, TOPIC, b"hanging").wait()
    sim.produce(TOPIC, b"plain").wait()
    assert sim.read_decided(TOPIC) == []
    hanging.committed = False
    sim.coordination.decisions.aborts_by_hand((TOPIC, 0), 990)
    client = sim.client()
    request = data_pb2.AbortTransactionRequest(
        topic_id=sim.topic(TOPIC).topic_id.bytes, partition=0, producer_id=990, producer_epoch=0, transaction_start=0
    )
    endpoint = endpoint_of(sim.leader(TOPIC))
    work = client.transport.call(endpoint, methods.DATA_ABORT_TRANSACTION, request, timeout_ms=3_000)
    task = client.start(work, "aborts a hanging transaction")
    sim.run_until(task.done, what="the operator is answered")
    task.result()
    assert sim.read_decided(TOPIC) == [b"plain"]
    sim.must_heal()


ATOMICITY: tuple[Callable[[Simulation], None], ...] = (
    transactions_over_several_partitions,
    coordinator_dies_before_the_markers,
    coordinator_dies_between_two_markers,
    marker_waits_for_a_leader,
    coordinator_is_lost_at_each_step,
    answer_to_a_commit_is_lost,
    late_end_of_a_transaction,
    decision_is_not_replicated,
)
FENCING: tuple[Callable[[Simulation], None], ...] = (
    newer_instance_fences_the_older,
    commit_of_a_fenced_instance,
    late_write_enters_no_other_transaction,
    late_write_hangs_no_transaction,
)
TIMES: tuple[Callable[[Simulation], None], ...] = (
    dead_producer_is_aborted,
    dead_producer_is_aborted_by_the_next_coordinator,
    timeout_races_a_commit,
    coordinator_cannot_be_reached,
    timed_out_transaction_continues,
)
OFFSETS: tuple[Callable[[Simulation], None], ...] = (
    offsets_are_committed_with_the_records,
    aborted_offsets_do_not_count,
)
ALL = (*ATOMICITY, *FENCING, *TIMES, *OFFSETS, hanging_transaction_is_aborted_by_hand)
