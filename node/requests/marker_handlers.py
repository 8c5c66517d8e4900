"""Handlers of the Data service for transactions: markers of coordinators, and tools that end hanging transactions.

Invariant: a marker may be sent any number of times. The log refuses those of an older coordinator, and in transaction
version 2 those whose epoch is not above that of the open transaction (storage/producers/producer_entry.py).
Not here: the coordinator that sends markers (node/coordinators/transactions), how a coordinator of groups learns of
markers in its partition (`LeaderObserver` in node/replicas/leadership_watch.py).
Source: KIP-98, KIP-664, KIP-890; Kafka's KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

import asyncio
from typing import Final

from node.api.marker_requests import (
    ANY_TRANSACTION,
    AbortTransactionAnswer,
    AbortTransactionRequest,
    DescribedProducers,
    DescribeProducersAnswer,
    DescribeProducersRequest,
    MarkedPartition,
    PartitionId,
    TransactionMarker,
    WriteTxnMarkersAnswer,
    WriteTxnMarkersRequest,
    WrittenMarker,
)
from node.api.table import DATA_DESCRIBE_PRODUCERS, DATA_WRITE_TXN_MARKERS
from node.replicas.leader_replica import ProduceDone
from node.replicas.replica import Replica
from node.replicas.replica_manager import ReplicaManager
from node.requests.context import RequestContext
from node.requests.group_checks import ensure_possible
from node.requests.permitted import locate_permitted
from node.runtime.limits import ensure_few
from storage.append_info import LogAppendInfo, Origin
from storage.producers.producer_entry import ProducerState
from storage.producers.verification import TransactionCheck
from tidelog.clock import Clock
from tidelog.cluster_descriptions import KnownProducer
from tidelog.errors import InvalidProducerEpoch, InvalidTxnState, NodeShuttingDown, TidelogError
from tidelog.records import EndTxnMarker, control_batch
from tidelog.types import NO_LEADER_EPOCH, Acks, Millis

MARKER_WAIT_MS: Final = 2_000
"""How long a marker may wait for the in-sync replicas. The coordinator sends it again afterwards. The other markers of
the request are not answered earlier."""

MARKERS_PER_TURN: Final = 100
"""Markers that are appended in one turn of the loop: some 10 ms."""


class _Outcomes:
    """The outcomes of the markers of one request."""

    def __init__(self, count: int) -> None:
        self.errors: list[TidelogError | None] = [None] * count
        self._open = count
        self._done = asyncio.Event()
        if not count:
            self._done.set()

    def settle(self, number: int, error: TidelogError | None) -> None:
        """Note the outcome of one marker. error: None if it is committed."""
        self.errors[number] = error
        self._open -= 1
        if not self._open:
            self._done.set()

    async def wait(self) -> None:
        """Return when all outcomes are known."""
        await self._done.wait()


class MarkerHandlers:
    """The handlers, one method for each API."""

    def __init__(self, manager: ReplicaManager, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock

    # --- markers ---

    async def write_txn_markers(
        self, request: WriteTxnMarkersRequest, context: RequestContext
    ) -> WriteTxnMarkersAnswer:
        """Append the markers to partitions that this node leads; answer when all are committed or refused. Raises
        InvalidRequest for a negative producer id or an impossible epoch."""
        context.ensure_for_nodes(DATA_WRITE_TXN_MARKERS)
        appends = [(marker, partition) for marker in request.markers for partition in marker.partitions]
        ensure_few(appends, "markers")
        for marker in request.markers:
            ensure_possible(marker.producer_id, marker.producer_epoch)
        outcomes = _Outcomes(len(appends))
        for number, (marker, partition) in enumerate(appends):
            if (number + 1) % MARKERS_PER_TURN == 0:
                await self._clock.sleep_ms(0)
            self._append(outcomes, number, marker, partition, context)
        await outcomes.wait()
        errors = iter(outcomes.errors)
        return WriteTxnMarkersAnswer(
            tuple(
                WrittenMarker(
                    tuple(MarkedPartition(each.topic_id, each.partition, next(errors)) for each in marker.partitions)
                )
                for marker in request.markers
            )
        )

    def _append(
        self,
        outcomes: _Outcomes,
        number: int,
        marker: TransactionMarker,
        partition: PartitionId,
        context: RequestContext,
    ) -> None:
        replica: Replica | None = None

        def refused(error: TidelogError) -> None:
            outcomes.settle(number, self._manager.registry.with_leader(error, replica, context.listener))

        def done(_info: LogAppendInfo | None, error: TidelogError | None) -> None:
            outcomes.settle(number, None) if error is None else refused(error)

        try:
            replica = self._manager.registry.locate(partition.topic_id, partition.partition, context.listener)
            self._append_to(replica, marker, done)
        except TidelogError as error:
            refused(error)

    def _append_to(self, replica: Replica, marker: TransactionMarker, done: ProduceDone) -> None:
        """Append a marker. Raises the reason if it is refused."""
        if self._manager.stopping:
            raise NodeShuttingDown("the node is stopping and rejects markers: send to the next leader")
        replica.leading_in(NO_LEADER_EPOCH).produce(
            control_batch(
                EndTxnMarker(marker.committed, marker.coordinator_epoch),
                timestamp=self._clock.wall_ms(),
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
            ),
            origin=Origin.COORDINATOR,
            # The coordinator forgets the transaction once its markers are acknowledged: a marker that only the leader
            # has could be lost with it, and the transaction would stay open for ever.
            acks=Acks.ALL,
            deadline=Millis(self._clock.monotonic_ms() + MARKER_WAIT_MS),
            done=done,
            check=TransactionCheck(marker.transaction_version),
        )

    # --- tools ---

    async def describe_producers(
        self, request: DescribeProducersRequest, context: RequestContext
    ) -> DescribeProducersAnswer:
        """List the producers of each partition, with their open transactions."""
        ensure_few(request.partitions, "partitions")
        described = []
        for partition in request.partitions:
            described.append(self._describe_partition(partition, context, of_any_replica=request.of_any_replica))
            await self._clock.sleep_ms(0)  # a partition can have thousands: let other requests run
        return DescribeProducersAnswer(tuple(described))

    def _describe_partition(
        self, partition: PartitionId, context: RequestContext, *, of_any_replica: bool
    ) -> DescribedProducers:
        replica: Replica | None = None
        try:
            replica = locate_permitted(
                self._manager, context, DATA_DESCRIBE_PRODUCERS, partition.topic_id, partition.partition
            )
            if replica.follower is None or not of_any_replica:
                replica.leading_in(NO_LEADER_EPOCH)
        except TidelogError as error:
            refused = self._manager.registry.with_leader(error, replica, context.listener)
            return DescribedProducers(partition.topic_id, partition.partition, refused)
        states = sorted(replica.log.producers.state.active_producers(), key=lambda state: state.producer_id)
        return DescribedProducers(
            partition.topic_id,
            partition.partition,
            None,
            replica.log.last_stable_offset,
            tuple(map(_known_producer, states)),
        )

    async def abort_transaction(
        self, request: AbortTransactionRequest, context: RequestContext
    ) -> AbortTransactionAnswer:
        """Append the abort marker of a transaction that is open in one partition; answer when it is committed. Raises
        InvalidTxnState if no such transaction is open, InvalidProducerEpoch if it has another epoch, or the reason why
        the marker is refused."""
        ensure_possible(request.producer_id, request.producer_epoch)
        replica = self._manager.registry.locate(request.topic_id, request.partition, context.listener)
        try:
            replica.leading_in(NO_LEADER_EPOCH)
            coordinator_epoch = _epoch_for_abort(replica, request)
            marker = TransactionMarker(
                request.producer_id,
                request.producer_epoch,
                coordinator_epoch,
                committed=False,
                partitions=(),
                transaction_version=1,  # version 2 would refuse the epoch of the open transaction
            )
            outcomes = _Outcomes(1)
            self._append_to(replica, marker, lambda _info, error: outcomes.settle(0, error))
            await outcomes.wait()
            if outcomes.errors[0] is not None:
                raise outcomes.errors[0]
        except TidelogError as error:
            raise self._manager.registry.with_leader(error, replica, context.listener) from None
        return AbortTransactionAnswer()


def _known_producer(state: ProducerState) -> KnownProducer:
    return KnownProducer(
        state.producer_id,
        state.epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.transaction_start,
    )


def _epoch_for_abort(replica: Replica, request: AbortTransactionRequest) -> int:
    """Return the coordinator epoch for the abort marker. Raises the reason if the transaction is not open."""
    state = replica.log.producers.state.state_of(request.producer_id)
    meant = request.transaction_start
    if state is None or state.transaction_start < 0 or meant not in (ANY_TRANSACTION, state.transaction_start):
        open_now = (
            "none is open" if state is None or state.transaction_start < 0 else f"one from {state.transaction_start}"
        )
        raise InvalidTxnState(
            f"producer {request.producer_id} has no open transaction{'' if meant < 0 else f' from offset {meant}'} in "
            f"partition {replica} ({open_now}): nothing was aborted; describe the producers again"
        )
    if state.epoch != request.producer_epoch:
        raise InvalidProducerEpoch(
            f"the open transaction of producer {request.producer_id} in partition {replica} has epoch {state.epoch}, "
            f"not {request.producer_epoch}: nothing was aborted; describe the producers again"
        )
    # That of the producer's last marker: an older one would be refused, a newer one would fence the coordinator.
    return max(0, state.coordinator_epoch)
