"""Answers to the fetches of partitions.

Not here: which answer, and when (replica.py); errors (node/requests/fetch_session.py), which may have no partition.
"""

from __future__ import annotations

from node.api.fetch import AbortedStart, FetchedPartition
from node.replicas.waiting_fetch import WaitingFetch
from storage.log.log import Log
from storage.log.log_reader import LogRead
from tidelog.epochs import divergence
from tidelog.errors import OffsetNotAvailable
from tidelog.types import NO_LEADER_EPOCH, NO_NODE, EpochEnd, LeaderEpoch, NodeId, Offset, TopicPartition


def read_answer(
    fetch: WaitingFetch,
    log: Log,
    leader_epoch: LeaderEpoch,
    read: LogRead,
    *,
    waits: bool = False,
    held_from: Offset = Offset(0),
    preferred: NodeId = NO_NODE,
) -> FetchedPartition:
    """The result of a read, possibly nothing. waits: the fetch keeps waiting. held_from: for a follower, as of
    `InSyncSet.held_from`. preferred: the consumer should fetch from this node instead."""
    return FetchedPartition(
        fetch.fetch_id,
        fetch.topic_id,
        fetch.index,
        leader_epoch,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        None,
        None,
        () if fetch.follower is None else read.epochs,
        tuple(AbortedStart(each.producer_id, each.first_offset) for each in read.aborted) if read.aborted else (),
        preferred,
        waits,
        held_from,
        read.records,
    )


def diverging_answer(fetch: WaitingFetch, log: Log, leader_epoch: LeaderEpoch, end: EpochEnd) -> FetchedPartition:
    """The logs diverge: neither records nor a high watermark."""
    return FetchedPartition(
        fetch.fetch_id,
        fetch.topic_id,
        fetch.index,
        leader_epoch,
        Offset(-1),
        Offset(-1),
        log.log_start_offset,
        diverging=end,
    )


def committed_divergence(log: Log, fetch: WaitingFetch) -> EpochEnd | None:
    """Where a consumer's position diverges from the committed part of a follower's log; None if it agrees, or is above
    the high watermark."""
    if fetch.last_epoch == NO_LEADER_EPOCH or fetch.next_offset > log.high_watermark:
        return None
    return divergence(
        log.epoch_entries(), log.log_start_offset, log.log_end_offset, fetch.next_offset, fetch.last_epoch
    )


def beyond_follower(name: TopicPartition, log: Log, offset: Offset) -> OffsetNotAvailable:
    """The error for a consumer's offset above the log end of a follower: the leader may have it."""
    return OffsetNotAvailable(
        f"this follower of partition {name} has offsets below {log.log_end_offset}, not {offset}; fetch from the "
        "leader, or retry after a pause"
    )
