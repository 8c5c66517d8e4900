"""A transaction coordinator and its log, for tests: commits at once, and can be replaced at any step.

After each step the world checks what always holds: a replay of the log, whole or compacted, gives the state that the
coordinator has; the transitions are those of the table; the epoch of a producer id does not decrease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from replication.controller.image import EMPTY, ClusterImage, PartitionState, TopicState
from replication.coordination.coordinator_machine import CoordinatorMachine, Decision, Instant
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_requests import NamedPartition
from replication.coordination.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
    TransactionState,
)
from replication.coordination.transaction_requests import (
    AddPartitionsToTxn,
    EndTxn,
    InitTransactionalProducer,
    InitWithProducerId,
    MarkersWritten,
    ProducerIdNeeded,
    TransactionToVerify,
    WriteMarkers,
)
from replication.coordination.transactions.transaction_config import TransactionConfig
from replication.coordination.transactions.transaction_machine import TransactionMachine
from replication.coordination.transactions.transaction_states import TRANSITIONS
from tidelog.errors import TidelogError
from tidelog.types import (
    DirectoryId,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    ProducerId,
    TopicId,
)

TXN = "payments-1"
TOPICS = {"orders": 3, "payments": 2, "__consumer_offsets": 4, "__transaction_state": 2}
TIMEOUT_MS = 60_000
_MOVES = {(source, target) for (source, _), target in TRANSITIONS.items()}


def image(topics: dict[str, int]) -> ClusterImage:
    """A cluster with these topics, by number of partitions."""
    states = {}
    for number, (name, count) in enumerate(topics.items()):
        topic_id = TopicId(UUID(int=number + 1))
        partitions = tuple(
            PartitionState(
                topic_id,
                PartitionIndex(index),
                (NodeId(1),),
                (DirectoryId(UUID(int=1)),),
                (NodeId(1),),
                (),
                (),
                NodeId(1),
                LeaderEpoch(0),
                PartitionEpoch(0),
            )
            for index in range(count)
        )
        states[topic_id] = TopicState(name, topic_id, {}, partitions)
    ids = {state.name: topic_id for topic_id, state in states.items()}
    return ClusterImage(EMPTY.offset, "", 0, (), {}, states, ids)


def parts(*names: str) -> tuple[NamedPartition, ...]:
    """Partitions by "topic-index"."""
    return tuple(
        NamedPartition(topic, PartitionIndex(int(i))) for topic, _, i in (name.rpartition("-") for name in names)
    )


def is_error(answer: object, kind: type[TidelogError]) -> bool:
    """The answer is that error, and no other kind of it."""
    return type(answer) is kind


def compacted_log(log: Sequence[TransactionRecord]) -> list[TransactionRecord]:
    """The last record of each key, in the order of the log."""
    last = {record.key: number for number, record in enumerate(log)}
    return [record for number, record in enumerate(log) if last[record.key] == number]


class World:
    """One coordinator. `markers`: those that it has asked for and that nobody has reported yet."""

    def __init__(self, config: TransactionConfig | None = None, *, topics: dict[str, int] | None = None) -> None:
        self.config = TransactionConfig() if config is None else config
        self.image = image(TOPICS if topics is None else topics)
        self.log: list[TransactionRecord] = []
        self.batches: list[tuple[TransactionRecord, ...]] = []
        self.now = Instant(Millis(1_000_000), Millis(1_700_000_000_000))
        self.coordinator_epoch = 0
        self.markers: list[WriteMarkers] = []
        self.next_id = 1_000
        self._epochs: dict[ProducerId, int] = {}
        self.machine = self._load(self.log)

    # --- the runtime --------------------------------------------------------------------------------------------

    def _load(self, log: Sequence[TransactionRecord]) -> TransactionMachine:
        machine = TransactionMachine(self.config)
        runs: CoordinatorMachine[TransactionLogKey, TransactionLogValue] = machine
        for offset, record in enumerate(log):
            runs.apply(record, Offset(offset), None)
        self.markers = []
        self._done(machine, runs.loaded(self.image, self.coordinator_epoch, self.now))
        return machine

    def _done(self, machine: TransactionMachine, decisions: Sequence[Decision[Any]]) -> None:
        for decision in decisions:
            for record in decision.records:
                self._moves(machine, record)
                machine.apply(record, Offset(-1), None)
            if decision.records:
                self.log.extend(decision.records)
                self.batches.append(decision.records)
            for effect in decision.effects:
                assert isinstance(effect, WriteMarkers)
                self.markers.append(effect)

    def _moves(self, machine: TransactionMachine, record: TransactionRecord) -> None:
        before, after = machine.values.get(record.key.transactional_id), record.value
        if after is None:
            return
        if before is None:
            assert after.transaction_status is TransactionState.EMPTY
        else:
            retried = before.transaction_status is after.transaction_status is TransactionState.EMPTY
            assert retried or (before.transaction_status, after.transaction_status) in _MOVES
        assert after.producer_epoch >= self._epochs.get(after.producer_id, 0)
        self._epochs[after.producer_id] = after.producer_epoch

    def step(self, decisions: Sequence[Decision[Any]]) -> None:
        self._done(self.machine, decisions)
        for log in (self.log, compacted_log(self.log)):
            replayed = TransactionMachine(self.config)
            for record in log:
                replayed.apply(record, Offset(0), None)
            assert dict(replayed.values) == dict(self.machine.values)
            assert replayed.open_transactions == self.machine.open_transactions
            assert replayed.oldest_open_start() == self.machine.oldest_open_start()

    def decide(self, request: object) -> Any:
        """The answer to a request, without the producer id that it may need."""
        decision = self.machine.handle(request, self.now)
        self.step([decision])
        return decision.answer

    def ask(self, request: object) -> Any:
        """The answer to a request, as a client gets it."""
        answer = self.decide(request)
        if isinstance(answer, ProducerIdNeeded):
            assert isinstance(request, InitTransactionalProducer | EndTxn)
            self.next_id += 1
            answer = self.decide(InitWithProducerId(request, ProducerId(self.next_id)))
        return answer

    def decide_quickly(self, name: str) -> None:
        """A new producer, without the checks."""
        self.next_id += 1
        request = InitTransactionalProducer(name, TIMEOUT_MS, ProducerId(-1), -1, 2)
        self._done(self.machine, [self.machine.handle(InitWithProducerId(request, ProducerId(self.next_id)), self.now)])

    def settle(self) -> None:
        """All markers are written."""
        while self.markers:
            self.decide(MarkersWritten(self.markers.pop(0)))

    def later(self, ms: int) -> None:
        """Time passes; the runtime ticks when the machine wants it to."""
        end = self.now.monotonic_ms + ms
        while (due := self.machine.deadline()) is not None and due <= end:
            self._at(max(due, self.now.monotonic_ms))
            decisions = self.machine.tick(self.now)
            self.step(decisions)
            again = self.machine.deadline()
            moved = again is None or again > due or again > self.now.monotonic_ms
            assert decisions or moved, "a tick must decide something or move the deadline"
        self._at(Millis(end))

    def _at(self, monotonic_ms: Millis) -> None:
        ms = monotonic_ms - self.now.monotonic_ms
        self.now = Instant(monotonic_ms, Millis(self.now.wall_ms + ms))

    def replace(self, *, compacted: bool = False) -> None:
        """Another node becomes the coordinator and loads the log."""
        self.coordinator_epoch += 1
        self.machine = self._load(compacted_log(self.log) if compacted else self.log)

    # --- requests -----------------------------------------------------------------------------------------------

    def init(
        self, *, expected: tuple[int, int] = (-1, -1), name: str = TXN, version: int = 2, timeout_ms: int = TIMEOUT_MS
    ) -> Any:
        return self.ask(InitTransactionalProducer(name, timeout_ms, ProducerId(expected[0]), expected[1], version))

    def write(self, producer: tuple[int, int], *names: str, name: str = TXN) -> list[type[TidelogError] | None]:
        """Version 2: the leaders of these partitions ask before the first write. Returns the errors."""
        request = TransactionToVerify(name, ProducerId(producer[0]), producer[1], False, parts(*names))  # noqa: FBT003
        return [type(each.error) if each.error else None for each in self.ask(request).partitions]

    def verify(self, producer: tuple[int, int], *names: str, name: str = TXN) -> list[type[TidelogError] | None]:
        """Version 1: the leaders of these partitions ask before the first write. Returns the errors."""
        request = TransactionToVerify(name, ProducerId(producer[0]), producer[1], True, parts(*names))  # noqa: FBT003
        return [type(each.error) if each.error else None for each in self.ask(request).partitions]

    def add(self, producer: tuple[int, int], *names: str, name: str = TXN) -> Any:
        """Version 1: the producer adds partitions."""
        return self.ask(AddPartitionsToTxn(name, ProducerId(producer[0]), producer[1], parts(*names)))

    def end(self, producer: tuple[int, int], *, committed: bool, name: str = TXN, version: int = 2) -> Any:
        return self.ask(
            EndTxn(name, ProducerId(producer[0]), producer[1], committed=committed, transaction_version=version)
        )

    def commit(self, producer: tuple[int, int], *, version: int = 2) -> Any:
        return self.end(producer, committed=True, version=version)

    def abort(self, producer: tuple[int, int], *, version: int = 2) -> Any:
        return self.end(producer, committed=False, version=version)

    # --- state --------------------------------------------------------------------------------------------------

    def state(self, name: str = TXN) -> TransactionState:
        return self.machine.values[name].transaction_status

    def producer(self, name: str = TXN) -> tuple[int, int]:
        value = self.machine.values[name]
        return value.producer_id, value.producer_epoch

    def started(self, *, version: int = 2) -> tuple[int, int]:
        """A new producer."""
        answer = self.init(version=version)
        return answer.producer_id, answer.producer_epoch

    def with_epoch(self, epoch: int, state: TransactionState = TransactionState.EMPTY) -> tuple[int, int]:
        """A transactional id whose producer id 7 has got as far as this epoch."""
        value = TransactionLogValue(
            ProducerId(7), epoch, TIMEOUT_MS, state, None, self.now.wall_ms, Millis(-1), client_transaction_version=0
        )
        self.log.append(CoordinatorRecord(TransactionLogKey(TXN), value))
        self._epochs[ProducerId(7)] = epoch
        self.replace()
        return 7, epoch
