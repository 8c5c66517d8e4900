"""Transaction markers, and the producers of a partition: WriteTxnMarkers, DescribeProducers, AbortTransaction."""

from __future__ import annotations

from typing import Final

from tidelog.cluster_descriptions import KnownProducer
from tidelog.errors import TidelogError
from tidelog.record_exchange import TopicReference
from tidelog.types import Offset, ProducerId
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class PartitionId:
    """A partition."""

    topic_id: TopicReference
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """The end of a transaction in partitions that the node leads."""

    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    """Leader epoch of the coordinator's partition."""
    committed: bool
    partitions: tuple[PartitionId, ...]
    transaction_version: int
    """2: the marker's epoch is above that of the transaction (KIP-890)."""


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersRequest:
    """From a transaction coordinator to a leader."""

    markers: tuple[TransactionMarker, ...]


@dataclass(frozen=True, slots=True)
class MarkedPartition:
    """error: None: the marker is committed."""

    topic_id: TopicReference
    partition: int
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class WrittenMarker:
    """In the order of the request."""

    partitions: tuple[MarkedPartition, ...]


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersAnswer:
    """In the order of the request."""

    markers: tuple[WrittenMarker, ...]


@dataclass(frozen=True, slots=True)
class DescribeProducersRequest:
    """The partitions, which the node leads (KIP-664)."""

    partitions: tuple[PartitionId, ...]
    of_any_replica: bool = False
    """Also those that it follows, with what it has replicated."""


@dataclass(frozen=True, slots=True)
class DescribedProducers:
    """producers: by producer id."""

    topic_id: TopicReference
    partition: int
    error: TidelogError | None = None
    last_stable_offset: Offset = Offset(-1)
    producers: tuple[KnownProducer, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeProducersAnswer:
    """In the order of the request."""

    partitions: tuple[DescribedProducers, ...]


ANY_TRANSACTION: Final = Offset(-1)
"""As the first offset of a transaction to abort: the one that is open. Kafka's clients cannot name another."""


@dataclass(frozen=True, slots=True)
class AbortTransactionRequest:
    """End a transaction that has no coordinator any more (KIP-664). transaction_start: its first offset: another
    transaction is not aborted; or ANY_TRANSACTION."""

    topic_id: TopicReference
    partition: int
    producer_id: ProducerId
    producer_epoch: int
    transaction_start: Offset


@dataclass(frozen=True, slots=True)
class AbortTransactionAnswer:
    """The marker is committed."""
