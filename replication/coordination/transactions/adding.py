"""Partitions enter a transaction: by the producer (version 1), or by their leaders before the first write (version 2).

Version 1: the producer sends AddPartitionsToTxn and AddOffsetsToTxn, and a leader verifies that its partition was added
before it appends. Version 2 (KIP-890): a leader adds its partition itself. Either way the epoch has to be the current
one, so a late write can neither open a transaction that nobody ends nor enter the next one.
Source: KIP-98, KIP-890; Kafka's TransactionCoordinator.handleAddPartitionsToTransaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from replication.controller.image import ClusterImage
from replication.coordination.coordinator_machine import Decision, Instant, TransactionalProducer
from replication.coordination.group_requests import CommittedPartition, CommittedPartitions, NamedPartition
from replication.coordination.partitioning import partition_of
from replication.coordination.transaction_records import TransactionLogValue, TransactionRecord, TransactionState
from replication.coordination.transaction_requests import (
    AddOffsetsToTxn,
    AddOffsetsToTxnAnswer,
    AddPartitionsToTxn,
    TransactionToVerify,
    VerifiedTransaction,
)
from replication.coordination.transactions import identities, partitions, steps, transaction_refusals
from replication.coordination.transactions.identities import EPOCH_BUMPED_VERSION
from replication.coordination.transactions.transaction_states import PREPARED_STATES, TransactionCause
from tidelog.errors import CoordinatorNotAvailable, InvalidRequest, TidelogError, TransactionAbortable
from tidelog.types import OFFSETS_TOPIC, PartitionIndex

_Request: TypeAlias = AddPartitionsToTxn | AddOffsetsToTxn | TransactionToVerify
_Errors: TypeAlias = Mapping[NamedPartition, TidelogError]


def add_partitions(
    value: TransactionLogValue | None, request: AddPartitionsToTxn, image: ClusterImage, now: Instant
) -> Decision[CommittedPartitions]:
    """Decide on AddPartitionsToTxn: all of the partitions are added, or none is."""
    refused, after = _added(value, request, request.partitions, image, now, version=1)
    return Decision(CommittedPartitions(_outcomes(request.partitions, refused)), _records(request, after))


def add_offsets(
    value: TransactionLogValue | None, request: AddOffsetsToTxn, image: ClusterImage, now: Instant
) -> Decision[AddOffsetsToTxnAnswer]:
    """Decide on AddOffsetsToTxn: the partition of the group's offsets is added."""
    topic = image.topic(OFFSETS_TOPIC)
    if topic is None:
        raise CoordinatorNotAvailable(
            f"{OFFSETS_TOPIC} does not exist yet, so group {request.group_id!r} has no coordinator; look its "
            f"coordinator up, which creates the topic, and retry"
        )
    group = NamedPartition(OFFSETS_TOPIC, PartitionIndex(partition_of(request.group_id, len(topic.partitions))))
    _, after = _added(value, request, (group,), image, now, version=1)
    return Decision(AddOffsetsToTxnAnswer(), _records(request, after))


def verify(
    value: TransactionLogValue | None, request: TransactionToVerify, image: ClusterImage, now: Instant
) -> Decision[VerifiedTransaction]:
    """Decide on a leader's request."""
    after: TransactionLogValue | None = None
    try:
        if request.verify_only:
            refused = _verified(value, request)
        else:
            refused, after = _added(value, request, request.partitions, image, now, version=EPOCH_BUMPED_VERSION)
    except TidelogError as error:
        # The leader asks for several producers at once: what is wrong with one must not fail the others.
        refused = dict.fromkeys(request.partitions, error)
    answer = VerifiedTransaction(request.transactional_id, _outcomes(request.partitions, refused))
    return Decision(answer, _records(request, after))


def _added(
    value: TransactionLogValue | None,
    request: _Request,
    wanted: tuple[NamedPartition, ...],
    image: ClusterImage,
    now: Instant,
    *,
    version: int,
) -> tuple[_Errors, TransactionLogValue | None]:
    """The errors of partitions, and the next value, if there is something to add. Raises what refuses the request."""
    value = _writable(value, request)
    if not wanted:
        raise InvalidRequest(f"no partition is named to be added for {request.transactional_id!r}")
    is_open = value.transaction_status is TransactionState.ONGOING
    missing = set(wanted)
    if is_open:  # the partitions of a transaction that has ended say nothing about the next one
        missing = partitions.missing_from(value, wanted)
        if not missing:
            return {}, None
    refused = partitions.refusals(image, wanted)
    if refused:
        return refused, None
    after = steps.moved(
        value,
        TransactionCause.PARTITIONS_ADDED,
        now,
        transaction_partitions=partitions.recorded((*partitions.partitions_of(value), *missing)),
        transaction_start_timestamp_ms=value.transaction_start_timestamp_ms if is_open else now.wall_ms,
        client_transaction_version=steps.recorded_version(version),
    )
    return {}, after


def _verified(value: TransactionLogValue | None, request: TransactionToVerify) -> _Errors:
    return {
        partition: TransactionAbortable(
            f"{partition.topic}-{partition.partition} is not in the transaction of {request.transactional_id!r}: the "
            f"transaction has ended, or the partition was not added; abort the transaction, and begin again"
        )
        for partition in partitions.missing_from(_writable(value, request), request.partitions)
    }


def _writable(value: TransactionLogValue | None, request: _Request) -> TransactionLogValue:
    """The value, if the producer may write now. Raises why it may not."""
    if value is None:
        raise transaction_refusals.unknown(request.transactional_id)
    asked = TransactionalProducer(request.producer_id, request.producer_epoch)
    if asked != identities.current(value) or not identities.is_usable(asked):
        raise transaction_refusals.not_current(request.transactional_id, value, asked)
    if value.transaction_status in PREPARED_STATES:
        # A batch of the next transaction must not be appended before the marker of this one.
        raise transaction_refusals.completing(request.transactional_id, value)
    return value


def _outcomes(wanted: Iterable[NamedPartition], errors: _Errors) -> tuple[CommittedPartition, ...]:
    return tuple(CommittedPartition(each.topic, PartitionIndex(each.partition), errors.get(each)) for each in wanted)


def _records(request: _Request, after: TransactionLogValue | None) -> tuple[TransactionRecord, ...]:
    return () if after is None else (steps.record(request.transactional_id, after),)
