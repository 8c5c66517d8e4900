"""Two producers of the same transactional id, in any interleaving, with coordinators that are replaced at any time.

Each producer behaves as a client does: it repeats what was not answered, also long after, and it does not know yet
whether it is fenced. Checked: a transaction is decided once; a commit is acknowledged only if it was decided; a fenced
producer gets no producer id, enters no transaction and commits nothing; one that is not fenced is not refused, unless
the coordinator has aborted its transaction; each decided transaction completes once its markers are written; and what
World checks after each step (epochs never decrease, transitions of the table, replay equality)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.transaction_records import TransactionState as State
from replication.coordination.transaction_requests import MarkersWritten, WriteMarkers
from replication.coordination.transactions.transaction_states import PREPARED_STATES
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
Producer = tuple[int, int]


@dataclass
class Client:
    """A producer with the transactional id. producer: what it was answered last; None before."""

    version: int
    producer: Producer | None = None
    wrote: bool = False
    wanted: bool | None = None  # the outcome that it waits for
    fenced: bool = False  # another one has started since; it may not know
    aborted: bool = False  # the coordinator has aborted its transaction; it may not know
    sent: list[tuple[Producer, str | bool]] = field(default_factory=list)  # writes (to a partition) and ends

    def got(self, producer: Producer) -> None:
        assert producer[1] <= 32_766, "nobody may have the largest epoch"
        self.producer, self.wrote, self.wanted, self.fenced, self.aborted = producer, False, None, False, False


class Transactions(RuleBasedStateMachine):
    @initialize(first=st.sampled_from([0, 32_763, 32_764, 32_765, 32_765, 32_766]), version=st.sampled_from([1, 2, 2]))
    def start(self, first: int, version: int) -> None:
        self.world = World()
        self.world.with_epoch(first)
        self.version = version
        self.clients = [Client(version), Client(version)]
        self.decisions: dict[Producer, State] = {}
        self.seen = 0
        self.fenced: set[Producer] = set()
        self.former_markers: list[WriteMarkers] = []

    which = st.integers(0, 1)

    # --- producers ----------------------------------------------------------------------------------------------

    @rule(which=which, continues=st.booleans(), repeated=st.booleans())
    def init(self, which: int, continues: bool, repeated: bool) -> None:
        client = self.clients[which]
        expected = client.producer if continues and client.producer is not None else (-1, -1)
        was_open = self.world.state() is State.ONGOING
        answers = [self.world.init(expected=expected, version=self.version) for _ in range(1 + repeated)]
        if was_open and self.world.state() is not State.ONGOING:
            self._coordinator_aborted()
        answer = answers[-1]
        if isinstance(answer, TransactionalProducer):
            if expected == (-1, -1):
                for other in self.clients:
                    if other is not client:
                        other.fenced = True
                        if other.producer is not None:
                            self.fenced.add(other.producer)
            else:
                assert not client.fenced, "a fenced producer was given a producer id"
                assert answers[0] == answer, "KIP-360: a repeated request gets the same answer"
            client.got((answer.producer_id, answer.producer_epoch))
        elif isinstance(answer, FENCED):
            assert client.fenced and expected != (-1, -1)
        else:
            assert isinstance(answer, ConcurrentTransactions)

    @precondition(lambda self: any(client.producer for client in self.clients))
    @rule(which=which, name=st.sampled_from(PARTITIONS))
    def write(self, which: int, name: str) -> None:
        client = self.clients[which]
        if client.producer is None or client.wanted is not None:
            return
        error = self._write(client.producer, name)
        client.sent.append((client.producer, name))
        if client.fenced or client.aborted:
            assert error is ConcurrentTransactions or error in FENCED, "a fenced producer entered a transaction"
        else:
            assert error is None or error is ConcurrentTransactions, "a producer that is not fenced was refused"
        client.wrote |= error is None

    def _write(self, producer: Producer, name: str) -> type[TidelogError] | None:
        if self.version == 2:
            return self.world.write(producer, name)[0]
        answer = self.world.add(producer, name)
        return type(answer) if isinstance(answer, TidelogError) else None

    @precondition(lambda self: any(client.producer for client in self.clients))
    @rule(which=which, committed=st.booleans(), lost=st.booleans())
    def end(self, which: int, committed: bool, lost: bool) -> None:
        client = self.clients[which]
        if client.producer is None:
            return
        if client.wanted is not None:
            committed = client.wanted  # a client repeats what it has asked for
        answer = self.world.end(client.producer, committed=committed, version=self.version)
        if client.wrote or not committed:
            client.sent.append((client.producer, committed))
        if isinstance(answer, TransactionalProducer) and self.version == 2:
            self._was_decided(client.producer, committed=committed)
        if lost:
            client.wanted = committed
            return
        self._answered_end(client, committed, answer)

    def _answered_end(self, client: Client, committed: bool, answer: object) -> None:
        assert client.producer is not None
        match answer:
            case TransactionalProducer():
                assert not (client.fenced and committed)
                client.got((answer.producer_id, answer.producer_epoch))
            case ConcurrentTransactions():
                client.wanted = committed
            case TransactionAbortable():
                assert self.version == 2 and committed and (client.aborted or client.fenced)
                client.wanted = False
            case ProducerFenced() | InvalidProducerIdMapping():
                assert client.fenced or (client.aborted and self.version == 1)
                client.wanted = None
            case _:
                assert isinstance(answer, InvalidTxnState)
                assert self.version == 1 or (committed and not client.wrote)
                client.wanted = None

    def _was_decided(self, producer: Producer, *, committed: bool) -> None:
        """Version 2: an end that was acknowledged is decided."""
        self._read_log()
        decision = self.decisions.get((producer[0], producer[1] + 1))
        assert decision is (State.PREPARE_COMMIT if committed else State.PREPARE_ABORT)

    @precondition(lambda self: any(client.sent for client in self.clients))
    @rule(which=which, index=st.integers(0, 20), opposite=st.booleans())
    def late(self, which: int, index: int, opposite: bool) -> None:
        """A request arrives again, after others; or a defective client asks for the other outcome."""
        client = self.clients[which]
        if not client.sent:
            return
        producer, what = client.sent[-1 - index % len(client.sent)]
        opposite = opposite and producer != client.producer
        before = self.world.machine.values[TXN]
        if isinstance(what, str):
            if self.version == 2:
                self.world.write(producer, what)
            else:
                self.world.verify(producer, what)  # an old AddPartitionsToTxn cannot be told from a new one
        elif self.version == 2:
            answer = self.world.end(producer, committed=what is not opposite)
            if isinstance(answer, TransactionalProducer):
                self._was_decided(producer, committed=what is not opposite)
        if before.transaction_status in PREPARED_STATES:
            assert self.world.machine.values[TXN] == before, "a decision was changed"
        for each in self.clients:
            if each.producer == producer and not each.fenced and self.world.producer() != producer:
                each.aborted = True  # a late abort of nothing, or of what it has written
        if producer in self.fenced:
            assert self.world.machine.values[TXN] == before, "a zombie changed something"

    # --- the cluster --------------------------------------------------------------------------------------------

    @rule(compacted=st.booleans())
    def replace(self, compacted: bool) -> None:
        self.former_markers.extend(self.world.markers)
        self.world.replace(compacted=compacted)

    @precondition(lambda self: self.world.markers)
    @rule(repeated=st.booleans())
    def markers_are_written(self, repeated: bool) -> None:
        markers = self.world.markers.pop(0)
        for _ in range(1 + repeated):
            self.world.decide(MarkersWritten(markers))
        self.former_markers.append(markers)

    @precondition(lambda self: self.former_markers)
    @rule(index=st.integers(0, 20))
    def markers_are_reported_late(self, index: int) -> None:
        before = self.world.machine.values[TXN]
        self.world.decide(MarkersWritten(self.former_markers[index % len(self.former_markers)]))
        assert self.world.machine.values[TXN] == before

    @rule(ms=st.sampled_from([1, 20_000, 60_000]))
    def later(self, ms: int) -> None:
        was_open = self.world.state() is State.ONGOING
        self.world.later(ms)
        if was_open and self.world.state() is not State.ONGOING:
            self._coordinator_aborted()

    def _coordinator_aborted(self) -> None:
        for client in self.clients:
            client.aborted |= client.producer is not None and not client.fenced

    # --- what holds ---------------------------------------------------------------------------------------------

    def _read_log(self) -> None:
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
        assert isinstance(answer, TransactionalProducer)
        assert 0 <= answer.producer_epoch <= 32_766
        assert self.world.write((answer.producer_id, answer.producer_epoch), "orders-0") == [None]
        assert isinstance(self.world.commit((answer.producer_id, answer.producer_epoch)), TransactionalProducer)


Transactions.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestTransactions = Transactions.TestCase
