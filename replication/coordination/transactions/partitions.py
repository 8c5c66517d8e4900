"""The partitions of a transaction, in a record and in requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from replication.controller.image import ClusterImage
from replication.coordination.group_requests import NamedPartition
from replication.coordination.transaction_records import TransactionLogValue, TransactionTopicPartitions
from tidelog.errors import InvalidTopic, OperationNotAttempted, TidelogError, UnknownTopicOrPartition
from tidelog.types import TRANSACTIONS_TOPIC, PartitionIndex


def partitions_of(value: TransactionLogValue) -> tuple[NamedPartition, ...]:
    """The partitions of the transaction, in the order of the record."""
    return tuple(
        NamedPartition(topic.topic, index)
        for topic in value.transaction_partitions or ()
        for index in topic.partition_ids
    )


def missing_from(value: TransactionLogValue, partitions: Iterable[NamedPartition]) -> set[NamedPartition]:
    """Those of `partitions` that are not in the transaction."""
    wanted = set(partitions)
    topics = {partition.topic for partition in wanted}
    for topic in value.transaction_partitions or ():
        if topic.topic in topics:
            wanted.difference_update(NamedPartition(topic.topic, index) for index in topic.partition_ids)
    return wanted


def recorded(partitions: Iterable[NamedPartition]) -> tuple[TransactionTopicPartitions, ...]:
    """As a record has them: by topic name and index."""
    by_topic: dict[str, set[PartitionIndex]] = defaultdict(set)
    for partition in partitions:
        by_topic[partition.topic].add(PartitionIndex(partition.partition))
    return tuple(TransactionTopicPartitions(topic, tuple(sorted(by_topic[topic]))) for topic in sorted(by_topic))


def refusals(image: ClusterImage, partitions: Iterable[NamedPartition]) -> dict[NamedPartition, TidelogError]:
    """The errors of partitions that cannot be added. If one cannot, none is: the others get OperationNotAttempted.
    Empty: all can be added."""
    wanted = set(partitions)
    refused = {partition: error for partition in wanted if (error := _refusal(image, partition)) is not None}
    if refused:
        for partition in wanted - refused.keys():
            refused[partition] = OperationNotAttempted(
                f"{partition.topic}-{partition.partition} was not added to the transaction, because another partition "
                f"of the request was refused; correct that one and repeat the request"
            )
    return refused


def _refusal(image: ClusterImage, partition: NamedPartition) -> TidelogError | None:
    if partition.topic == TRANSACTIONS_TOPIC:
        return InvalidTopic(f"{TRANSACTIONS_TOPIC} cannot be part of a transaction: only coordinators write to it")
    topic = image.topic(partition.topic)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return UnknownTopicOrPartition(
            f"{partition.topic}-{partition.partition} does not exist according to the transaction coordinator's "
            f"metadata; create it, or retry if it was created just now"
        )
    return None
