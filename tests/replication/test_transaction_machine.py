"""Two producers of the same transactional id, in any interleaving, with coordinators that are replaced at any time.

Each producer behaves as a client does: it repeats what was not answered, also long after. Checked: a transaction is
decided once; a producer that was answered by an error does not see its transaction committed; one that was fenced
commits nothing more; each decided transaction completes once its markers are written; and what World checks after each
step (epochs never decrease, transitions of the table, replay equality)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replication.coordination.transaction_records import TransactionLogValue
from replication.coordination.transaction_records import TransactionState as State
from replication.coordination.transaction_requests import EndTxnAnswer, InitTransactionalProducerAnswer, MarkersWritten
from replication.coordination.transactions.states import PREPARED_STATES
from tests.replication.transaction_world import TXN, World
from tidelog.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TidelogError,
    TransactionAbortable,
)

FENCED = (ProducerFenced, InvalidProducerIdMapping)
PARTITIONS = ("orders-0", "orders-1", "payments-0")


@dataclass
class Client:
    """A producer with the transactional id. producer: what it was answered last; None before."""

    version: int
    producer: tuple[int, int] | None = None
    wrote: bool = False
    wanted: bool | None = None  # the outcome that it waits for
    fenced: bool = False
    late: list[Callable[[], Any]] = field(default_factory=list)  # requests that arrive again


class Transactions(RuleBasedStateMachine):
    @initialize(first=st.sampled_from([0, 5, 32_763, 32_765, 32_766]), version=st.sampled_from([1, 2, 2]))
    def start(self, first: int, version: int) -> None:
        self.world = World()
        self.world.with_epoch(first)
        self.clients = [Client(version), Client(version)]
        self.decisions: dict[tuple[int, int], State] = {}
        self.seen = 0
        self.fenced: set[tuple[int, int]] = set()
        self.committed: set[tuple[int, int]] = set()

    which = st.integers(0, 1)

    # --- producers ----------------------------------------------------------------------------------------------

    @rule(which=which, continues=st.booleans(), repeated=st.booleans())
    def init(self, which: int, continues: bool, repeated: bool) -> None:
        client = self.clients[which]
        expected = client.producer if continues and client.producer and not client.fenced else (-1, -1)
        for _ in range(1 + repeated):
            self._answered_init(client, self.world.init(expected=expected, version=client.version), expected)

    def _answered_init(self, client: Client, answer: object, expected: tuple[int, int]) -> None:
        if isinstance(answer, InitTransactionalProducerAnswer):
            client.producer = (answer.producer_id, answer.producer_epoch)
            client.wrote, client.wanted, client.fenced = False, None, False
            if expected == (-1, -1):
                for other in self.clients:
                    if other is not client:
                        other.fenced = True
                        if other.producer is not None:
                            self.fenced.add(other.producer)
        elif isinstance(answer, FENCED):
            assert expected != (-1, -1)
            client.fenced = True
        else:
            assert isinstance(answer, ConcurrentTransactions)

    @precondition(lambda self: any(client.producer for client in self.clients))
    @rule(which=which, name=st.sampled_from(PARTITIONS))
    def write(self, which: int, name: str) -> None:
        client = self.clients[which]
        if client.producer is None or client.wanted is not None:
            return
        producer = client.producer
        if client.version == 2:
            (error,) = self.world.write(producer, name)
            client.late.append(lambda: self.world.write(producer, name))
        else:
            answer = self.world.add(producer, name)
            error = type(answer) if isinstance(answer, TidelogError) else None
            client.late.append(lambda: self.world.verify(producer, name))
        assert error in (None, ConcurrentTransactions, *FENCED)
        if client.fenced:
            assert error is not None, "a fenced producer entered a transaction"
        client.wrote |= error is None

    @precondition(lambda self: any(client.producer for client in self.clients))
    @rule(which=which, committed=st.booleans(), lost=st.booleans())
    def end(self, which: int, committed: bool, lost: bool) -> None:
        client = self.clients[which]
        if client.producer is None:
            return
        if client.wanted is not None:
            committed = client.wanted  # a client repeats what it has asked for
        elif committed and not client.wrote:
            return
        producer, version = client.producer, client.version
        answer = self.world.end(producer, committed=committed, version=version)
        if committed:
            client.late.append(lambda: self.world.end(producer, committed=True, version=version))
        if lost:
            client.wanted = committed
            return
        self._answered_end(client, committed, answer)

    def _answered_end(self, client: Client, committed: bool, answer: object) -> None:
        assert client.producer is not None
        match answer:
            case EndTxnAnswer():
                if committed and client.version == 2:
                    assert self.decisions_of(client.producer) is State.PREPARE_COMMIT
                    self.committed.add(client.producer)
                client.producer = (answer.producer_id, answer.producer_epoch)
                client.wrote, client.wanted = False, None
            case ConcurrentTransactions():
                client.wanted = committed
            case TransactionAbortable():
                assert client.version == 2 and committed
                assert self.decisions_of(client.producer) is not State.PREPARE_COMMIT
                client.wanted = False
            case ProducerFenced() | InvalidProducerIdMapping():
                client.fenced, client.wanted = True, None
            case _:
                assert isinstance(answer, InvalidTxnState) and client.version == 1
                client.wrote, client.wanted = False, None

    def decisions_of(self, producer: tuple[int, int]) -> State | None:
        """The decision about the transaction of this epoch (version 2)."""
        self._read_log()
        return self.decisions.get((producer[0], producer[1] + 1))

    @precondition(lambda self: any(client.late for client in self.clients))
    @rule(which=which, index=st.integers(0, 20))
    def late(self, which: int, index: int) -> None:
        """A request arrives a second time, or after what was sent later."""
        client = self.clients[which]
        if client.late:
            before = self.world.machine.values[TXN]
            client.late[index % len(client.late)]()
            self._stays_decided(before)

    def _stays_decided(self, before: TransactionLogValue) -> None:
        after = self.world.machine.values[TXN]
        if before.transaction_status in PREPARED_STATES:
            assert after == before

    # --- the cluster --------------------------------------------------------------------------------------------

    @rule(compacted=st.booleans())
    def replace(self, compacted: bool) -> None:
        self.world.replace(compacted=compacted)

    @precondition(lambda self: self.world.markers)
    @rule(repeated=st.booleans())
    def markers_are_written(self, repeated: bool) -> None:
        markers = self.world.markers.pop(0)
        for _ in range(1 + repeated):
            self.world.decide(MarkersWritten(markers))

    @rule(ms=st.sampled_from([1, 20_000, 60_000]))
    def later(self, ms: int) -> None:
        self.world.later(ms)

    # --- what holds ---------------------------------------------------------------------------------------------

    def _read_log(self) -> None:
        """Each decision is made once, by an epoch of its own in version 2."""
        previous = self.world.log[self.seen - 1].value if self.seen else None
        for record in self.world.log[self.seen :]:
            value = record.value
            assert value is not None
            if value.transaction_status in PREPARED_STATES and value.client_transaction_version == 2:
                marker = (int(value.producer_id), value.producer_epoch)
                assert marker not in self.decisions, "a transaction was decided twice"
                self.decisions[marker] = value.transaction_status
            if value.transaction_status is State.PREPARE_COMMIT:
                assert previous is not None and previous.transaction_status is State.ONGOING
                producer = (int(previous.producer_id), previous.producer_epoch)
                assert producer not in self.fenced, "a fenced epoch committed"
            previous = value
        self.seen = len(self.world.log)

    @invariant()
    def decisions_are_made_once(self) -> None:
        if hasattr(self, "world"):
            self._read_log()
            for producer in self.committed:
                assert self.decisions_of(producer) is State.PREPARE_COMMIT

    @invariant()
    def a_prepared_transaction_has_markers_on_their_way(self) -> None:
        if hasattr(self, "world") and self.world.state() in PREPARED_STATES:
            assert [each.coordinator_epoch for each in self.world.markers] == [self.world.coordinator_epoch]

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.settle()
        assert self.world.state() not in PREPARED_STATES
        for _ in range(3):  # a new producer can always start: abort, and perhaps another producer id
            answer = self.world.init()
            self.world.settle()
        assert isinstance(answer, InitTransactionalProducerAnswer)
        assert 0 <= answer.producer_epoch <= 32_766
        assert self.world.write((answer.producer_id, answer.producer_epoch), "orders-0") == [None]
        assert isinstance(self.world.commit((answer.producer_id, answer.producer_epoch)), EndTxnAnswer)


Transactions.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestTransactions = Transactions.TestCase
