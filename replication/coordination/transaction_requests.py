"""Requests to a transaction coordinator and their answers, and its effects. Fields as in
proto/tidelog/protocol/v1/transactions.proto.

Source: KIP-98, KIP-360, KIP-664, KIP-890.
"""

from __future__ import annotations

from enum import IntEnum
from uuid import UUID

from replication.coordination.group_requests import CommittedPartition, ListedCoordinator, NamedPartition
from tidelog.errors import TidelogError
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Millis, PartitionIndex, ProducerId
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class InitTransactionalProducer:
    """Assign a producer id and epoch to the producer of a transactional id."""

    transactional_id: str
    transaction_timeout_ms: int
    producer_id: ProducerId
    """The present producer id and epoch of a producer that continues after an error (KIP-360); -1 for a new one."""
    producer_epoch: int
    transaction_version: int


@dataclass(frozen=True, slots=True)
class InitWithProducerId:
    """As its request, which was answered by ProducerIdNeeded. fresh: a producer id that was never assigned."""

    request: InitTransactionalProducer | EndTxn
    fresh: ProducerId


@dataclass(frozen=True, slots=True)
class ProducerIdNeeded:
    """Answer to the driver: repeat the request in an InitWithProducerId."""


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxn:
    """Transaction version 1: the producer is about to write to these partitions."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    partitions: tuple[NamedPartition, ...]


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxn:
    """Transaction version 1: the producer is about to commit offsets of the group."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnAnswer:
    """The partition of the group was added."""


@dataclass(frozen=True, slots=True)
class EndTxn:
    """Commit or abort the open transaction."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    committed: bool
    transaction_version: int


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """duration_ms_min: only transactions that are open for at least this time; negative: all. transactional_id_pattern:
    only ids that match it as a whole (RE2, KIP-1152); empty: all. The node applies it, not the coordinator."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[ProducerId, ...] = ()
    duration_ms_min: int = -1
    transactional_id_pattern: str = ""


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """start_ms: when the open transaction began (wall time); -1 none is open."""

    transactional_id: str
    producer_id: ProducerId
    state: str
    start_ms: Millis


@dataclass(frozen=True, slots=True)
class ListTransactionsAnswer:
    """The transactions, by transactional id."""

    transactions: tuple[ListedTransaction, ...]
    coordinators: tuple[ListedCoordinator, ...] = ()
    """As in ListGroupsAnswer, like `partition_count`."""
    partition_count: int = 0
    max_timeout_ms: int = 0
    """The node's setting `transaction.max.timeout.ms`; 0 in the answer of one coordinator."""


@dataclass(frozen=True, slots=True)
class DescribeTransactions:
    """The transactional ids to describe, all of this coordinator."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """state: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", ..."""

    transactional_id: str
    error: TidelogError | None = None
    state: str = ""
    producer_id: ProducerId = ProducerId(-1)
    producer_epoch: int = -1
    transaction_timeout_ms: int = 0
    start_ms: Millis = NO_TIMESTAMP
    partitions: tuple[NamedPartition, ...] = ()
    coordinator_epoch: int = -1


@dataclass(frozen=True, slots=True)
class DescribeTransactionsAnswer:
    """In the order of the request."""

    transactions: tuple[DescribedTransaction, ...]


# --- between nodes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TransactionToVerify:
    """A leader is to append batches of a transaction. verify_only: version 1, the producer has added the partitions."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    verify_only: bool
    partitions: tuple[NamedPartition, ...]


@dataclass(frozen=True, slots=True)
class AddOrVerifyPartitions:
    """One entry for each producer, all of this coordinator. A machine gets each entry as a request of its own, and
    answers it with a VerifiedTransaction."""

    transactions: tuple[TransactionToVerify, ...]


@dataclass(frozen=True, slots=True)
class VerifiedTransaction:
    """partitions: in the order of the request."""

    transactional_id: str
    partitions: tuple[CommittedPartition, ...]


@dataclass(frozen=True, slots=True)
class AddOrVerifyPartitionsAnswer:
    """In the order of the request."""

    transactions: tuple[VerifiedTransaction, ...]


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Effect: have the leaders of these partitions append the marker of a decided transaction, then report
    MarkersWritten. Repeated until every leader has answered; a partition whose topic was deleted counts as written."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    """The producer epoch in the marker."""
    coordinator_epoch: int
    """The leader epoch of this coordinator's partition."""
    committed: bool
    partitions: tuple[NamedPartition, ...]
    transaction_version: int


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Event: every marker of the effect is committed, or its partition does not exist any more."""

    markers: WriteMarkers


@dataclass(frozen=True, slots=True)
class MarkersRefused:
    """Event: a leader refused the marker because a newer coordinator has written one (TransactionCoordinatorFenced):
    this coordinator has been replaced."""

    markers: WriteMarkers
    error: TidelogError


class HoldStep(IntEnum):
    """What is asked about a hold of commits."""

    BEGIN = 0
    LOOK = 1
    """Does it still hold, and which decided transactions are not complete?"""
    RELEASE = 2


@dataclass(frozen=True, slots=True)
class HoldCommits:
    """From a node that takes a topic snapshot to the coordinators of another one: commit no transaction with these
    topics for a moment."""

    hold_id: UUID
    step: HoldStep
    topics: tuple[str, ...]
    hold_ms: int
    """How long the hold lasts at most, from its beginning on."""
    partitions: tuple[PartitionIndex, ...]
    """The partitions of `__transaction_state` whose coordinators are asked."""


@dataclass(frozen=True, slots=True)
class LocalHold:
    """As HoldCommits, to the machine of one coordinator, which answers with LocalHeld."""

    hold_id: UUID
    step: HoldStep
    topics: tuple[str, ...]
    hold_ms: int


@dataclass(frozen=True, slots=True)
class LocalHeld:
    """The answer of a machine."""

    held: bool
    """Nothing with these topics was committed since the hold began."""
    completing: int
    """Transactions with these topics that were committed and whose markers are not all written."""


@dataclass(frozen=True, slots=True)
class HeldCoordinator:
    """The answer of one coordinator."""

    partition: PartitionIndex
    error: TidelogError | None = None
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """In which it coordinates."""
    held: bool = False
    """As in LocalHeld."""
    completing: int = 0
    """As in LocalHeld."""


@dataclass(frozen=True, slots=True)
class HoldCommitsAnswer:
    """In the order of the request."""

    coordinators: tuple[HeldCoordinator, ...]
