"""Answers to fetches, as they go over the wire.

Left to others: which answer, and when (partition.py); errors (open_fetch.py), which have no partition at times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.log import Log
from storage.log_reader import LogRead
from tidelog._wire import PartitionFetched
from tidelog.types import EpochEnd, LeaderEpoch, Offset
from tidelog.v1 import common_pb2, data_pb2

if TYPE_CHECKING:
    from node.open_fetch import OpenFetch


def read_answer(
    fetch: OpenFetch, log: Log, leader_epoch: LeaderEpoch, watermark: Offset, read: LogRead, *, waits: bool = False
) -> PartitionFetched:
    """What was read, maybe nothing. waits: it is news, and the fetch goes on waiting."""
    answer = PartitionFetched(
        fetch_id=fetch.fetch_id,
        topic_id=fetch.topic_id,
        partition=fetch.index,
        leader_epoch=leader_epoch,
        high_watermark=watermark,
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
