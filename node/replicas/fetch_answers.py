"""Answers to fetches, as they go over the wire.

Left to others: which answer, and when (partition.py); errors (fetch_session.py), which have no partition at times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.epochs import divergence
from storage.log.log import Log
from storage.log.log_reader import LogRead
from tidelog.errors import OffsetNotAvailable
from tidelog.protocol.v1 import common_pb2, data_pb2
from tidelog.protocol.wire import PartitionFetched
from tidelog.types import NO_LEADER_EPOCH, EpochEnd, LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    from node.replicas.fetch_session import OpenFetch


def read_answer(
    fetch: OpenFetch, log: Log, leader_epoch: LeaderEpoch, read: LogRead, *, waits: bool = False
) -> PartitionFetched:
    """What was read, maybe nothing. waits: it is news, and the fetch goes on waiting."""
    answer = PartitionFetched(
        fetch_id=fetch.fetch_id,
        topic_id=fetch.topic_id,
        partition=fetch.index,
        leader_epoch=leader_epoch,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        preferred_read_replica=-1,
        waits=waits,
        records=read.records,
    )
    if read.aborted:
        answer.aborted = [
            data_pb2.AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
            for entry in read.aborted
        ]
    if fetch.follower is not None:
        answer.epochs = [
            common_pb2.EpochStart(epoch=entry.epoch, start_offset=entry.start_offset) for entry in read.epochs
        ]
    return answer


def diverging_answer(fetch: OpenFetch, log: Log, leader_epoch: LeaderEpoch, end: EpochEnd) -> PartitionFetched:
    """The logs disagree: neither records nor watermark."""
    return PartitionFetched(
        fetch_id=fetch.fetch_id,
        topic_id=fetch.topic_id,
        partition=fetch.index,
        leader_epoch=leader_epoch,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=log.log_start_offset,
        diverging=common_pb2.EpochEnd(epoch=end.epoch, end_offset=end.end_offset),
        preferred_read_replica=-1,
    )


def committed_divergence(name: TopicPartition, log: Log, fetch: OpenFetch) -> EpochEnd | None:
    """Where a consumer's position stops agreeing with what is committed in a follower's log; None where it agrees, or
    lies where the follower cannot know. Raises OffsetNotAvailable where it is ahead: the leader knows more."""
    if fetch.next_offset > log.log_end_offset:
        raise OffsetNotAvailable(
            f"this follower of partition {name} has offsets below {log.log_end_offset}, {fetch.next_offset} was asked "
            "for; ask the leader, or again after a pause"
        )
    if fetch.last_epoch == NO_LEADER_EPOCH or fetch.next_offset > log.high_watermark:
        return None
    return divergence(
        log.epoch_entries(), log.log_start_offset, log.log_end_offset, fetch.next_offset, fetch.last_epoch
    )
