"""Has the leaders of partitions append the markers of decided transactions, until all of them have.

Invariants:
  1. A transaction is reported as marked once each of its markers is committed or its partition no longer exists.
  2. Markers are repeated, also to a new leader, until then, or until the coordinator that decided is dropped.
  3. A partition has markers of at most one request under way: those that wait for a slow or absent leader delay no
     other partition.

A topic that this node does not know was deleted: a coordinator has applied the metadata of its own election, which
follows the creation of every topic that its partition of `__transaction_state` can name.
Not here: the decision (replication/coordination/transactions), how a leader appends (node/requests/marker_handlers.py).
Source: KIP-98; Kafka's TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

from node.api.marker_requests import PartitionId, TransactionMarker, WriteTxnMarkersAnswer, WriteTxnMarkersRequest
from node.api.peers import Peers
from node.api.table import DATA_WRITE_TXN_MARKERS
from node.coordinators.transactions.node_requests import NodeRequests
from node.coordinators.transactions.transaction_location import TransactionLocation
from replication.coordination.group_requests import NamedPartition
from replication.coordination.transaction_requests import MarkersRefused, MarkersWritten, WriteMarkers
from tidelog.clock import Clock
from tidelog.errors import (
    InvalidProducerEpoch,
    TidelogError,
    TransactionCoordinatorFenced,
    UnknownServerError,
    UnsupportedForMessageFormat,
)
from tidelog.types import NO_NODE, NodeId, PartitionIndex
from tidelog.values import dataclass

_log = logging.getLogger("node.transactions")

CALL_TIMEOUT_MS: Final = 5_000
"""How long a request is waited for. A leader answers earlier (MARKER_WAIT_MS in node/requests/marker_handlers.py)."""

PAUSE_MS_MIN: Final = 10
PAUSE_MS_MAX: Final = 500
"""The pause before a marker is sent again doubles from the minimum to the maximum."""

WARN_AFTER: Final = 20
"""Attempts after which the failures of a marker are logged, some 6 s; then again after twice as many."""

Report: TypeAlias = Callable[[PartitionIndex, MarkersWritten | MarkersRefused], None]
"""Tells the coordinator of this partition of `__transaction_state` about a transaction that it decided."""


@dataclass(eq=False, slots=True)
class _Transaction:
    """A decided transaction."""

    coordinator: PartitionIndex
    markers: WriteMarkers
    missing: set[NamedPartition]
    """The partitions whose markers are not committed yet."""
    ended: bool = False
    """It is reported, or its coordinator was dropped: late answers change nothing."""


@dataclass(eq=False, slots=True)
class _MarkerToWrite:
    """The marker of a transaction for one partition."""

    transaction: _Transaction
    partition: NamedPartition
    attempts: int = 0
    """Number of attempts that failed."""


class MarkerSender:
    """The markers of all coordinators of a node."""

    def __init__(
        self,
        location: TransactionLocation,
        *,
        clock: Clock,
        peers: Peers,
        local: Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersAnswer]],
        report: Report,
    ) -> None:
        """location: for the leaders of partitions. local: the handler of this node. report: must not wait."""
        self._location, self._clock, self._peers = location, clock, peers
        self._local, self._report = local, report
        self._transactions: dict[PartitionIndex, dict[_Transaction, None]] = {}
        self._requests = NodeRequests(self._send)
        self._early: list[_MarkerToWrite] = []
        """Markers that were asked for before `run`."""

    @property
    def waiting(self) -> int:
        """Markers that are not committed yet."""
        return sum(len(each.missing) for found in self._transactions.values() for each in found)

    def write(self, coordinator: PartitionIndex, markers: WriteMarkers) -> None:
        """Write these markers. coordinator: the partition of `__transaction_state` that decided."""
        transaction = _Transaction(coordinator, markers, set(markers.partitions))
        self._transactions.setdefault(coordinator, {})[transaction] = None
        if not transaction.missing:
            self._end(transaction, MarkersWritten(markers))
            return
        self._route([_MarkerToWrite(transaction, partition) for partition in markers.partitions])

    def cancel(self, coordinator: PartitionIndex) -> None:
        """The coordinator was dropped. If it is loaded again, it asks for its markers again."""
        for transaction in self._transactions.pop(coordinator, {}):
            transaction.ended = True

    async def run(self) -> None:
        """Send markers until cancelled."""
        await self._requests.run(self._began)

    def _began(self) -> None:
        early, self._early = self._early, []
        self._route(early)

    # --- sending ---

    def _route(self, markers: Iterable[_MarkerToWrite]) -> None:
        """Send each marker to its leader; those without one wait for a pause."""
        if self._requests.tasks is None:
            self._early += markers
            return
        leaderless: list[_MarkerToWrite] = []
        for marker in markers:
            if marker.transaction.ended:
                continue
            leader = self._location.leader_of(marker.partition)
            if leader is None:
                self._written(marker)  # its topic was deleted: nobody could ever write it
            elif leader == NO_NODE:
                self._failed(marker, "its partition has no leader")
                leaderless.append(marker)
            else:
                self._requests.add(leader, marker.partition, marker)
        self._repeat(leaderless)

    def _repeat(self, markers: list[_MarkerToWrite]) -> None:
        if markers and self._requests.tasks is not None:
            self._requests.tasks.create_task(self._route_later(markers))

    async def _route_later(self, markers: list[_MarkerToWrite]) -> None:
        attempts = min(marker.attempts for marker in markers)
        await self._clock.sleep_ms(min(PAUSE_MS_MIN << min(attempts, 10), PAUSE_MS_MAX))
        self._route(markers)

    async def _send(self, node: NodeId, markers: list[_MarkerToWrite]) -> None:
        """Send one request, and settle its markers."""
        markers = [marker for marker in markers if not marker.transaction.ended]
        outcomes = await self._outcomes(node, markers) if markers else []
        self._repeat(
            [marker for marker, error in zip(markers, outcomes, strict=True) if not self._settled(marker, error)]
        )

    async def _outcomes(self, node: NodeId, markers: list[_MarkerToWrite]) -> list[TidelogError | None]:
        """The outcome of each marker; None: it is committed."""
        grouped: dict[_Transaction, list[_MarkerToWrite]] = {}
        for marker in markers:
            grouped.setdefault(marker.transaction, []).append(marker)
        request = WriteTxnMarkersRequest(tuple(self._message(*each) for each in grouped.items()))
        try:
            answer = await self._call(node, request)
        except TidelogError as error:
            return [error] * len(markers)
        found: dict[_MarkerToWrite, TidelogError | None] = {}
        for written, sent in zip(answer.markers, grouped.values(), strict=False):
            for partition, marker in zip(written.partitions, sent, strict=False):
                found[marker] = partition.error
        missing = UnknownServerError(f"node {node} did not answer what it was asked: check its version")
        return [found.get(marker, missing) for marker in markers]

    def _message(self, transaction: _Transaction, sent: list[_MarkerToWrite]) -> TransactionMarker:
        markers = transaction.markers
        return TransactionMarker(
            markers.producer_id,
            markers.producer_epoch,
            markers.coordinator_epoch,
            markers.committed,
            tuple(PartitionId(self._location.topic_id(each.partition), each.partition.partition) for each in sent),
            markers.transaction_version,
        )

    async def _call(self, node: NodeId, request: WriteTxnMarkersRequest) -> WriteTxnMarkersAnswer:
        if node == self._location.me:
            return await self._local(request)
        endpoint = self._location.endpoint(node)
        return await self._peers.call(endpoint, DATA_WRITE_TXN_MARKERS, request, timeout_ms=CALL_TIMEOUT_MS)

    # --- outcomes ---

    def _settled(self, marker: _MarkerToWrite, error: TidelogError | None) -> bool:
        """Apply an outcome. Returns False if the marker must be sent again."""
        transaction = marker.transaction
        if transaction.ended:
            return True
        match error:
            case None | UnsupportedForMessageFormat():  # such a log has no transactional records that a marker ends
                self._written(marker)
            case InvalidProducerEpoch():
                _log.warning(
                    "transaction %r: partition %s-%d needs no marker, since its producer has a newer epoch there: %s",
                    transaction.markers.transactional_id,
                    marker.partition.topic,
                    marker.partition.partition,
                    error.message,
                )
                self._written(marker)
            case TransactionCoordinatorFenced():
                self._end(transaction, MarkersRefused(transaction.markers, error))
            case _:
                self._failed(marker, error.message)
                return False
        return True

    def _failed(self, marker: _MarkerToWrite, why: str) -> None:
        marker.attempts += 1
        doubled = marker.attempts // WARN_AFTER
        if marker.attempts % WARN_AFTER == 0 and doubled & (doubled - 1) == 0:
            _log.warning(
                "transaction %r: the marker for partition %s-%d is not written after %d attempts, and is tried again: "
                "%s",
                marker.transaction.markers.transactional_id,
                marker.partition.topic,
                marker.partition.partition,
                marker.attempts,
                why,
            )

    def _written(self, marker: _MarkerToWrite) -> None:
        transaction = marker.transaction
        transaction.missing.discard(marker.partition)
        if not transaction.missing:
            self._end(transaction, MarkersWritten(transaction.markers))

    def _end(self, transaction: _Transaction, outcome: MarkersWritten | MarkersRefused) -> None:
        transaction.ended = True
        found = self._transactions[transaction.coordinator]
        del found[transaction]
        if not found:
            del self._transactions[transaction.coordinator]
        self._report(transaction.coordinator, outcome)
