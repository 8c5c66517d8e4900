"""What a follower's core wants done to its log (partition.py): append what the leader sent, or cut.

Left to others: the decision (replication/partition/follower.py), what a failure means (partition.py).
"""

from __future__ import annotations

import logging

from node.requests.types.fetch import FetchedPartition
from replication.partition.follower_events import LogView, RestartAt, TruncateTo
from storage.append_info import Origin
from storage.directory.kept_copy import copied_first
from storage.directory.log_directory import LogDirectory
from storage.files.file_system import Buffer
from storage.log.log import Log
from storage.log.log_truncation import TruncationTicket
from tidelog.errors import CorruptRecord
from tidelog.records import walk_headers
from tidelog.types import LeaderEpoch, Offset

_log = logging.getLogger("node.partition")


def view_of(log: Log) -> LogView:
    """The log, as the core sees it."""
    return LogView(log.log_start_offset, log.log_end_offset, log.durable_offset, log.last_epoch)


def append_answer(log: Log, answer: FetchedPartition, leader_epoch: LeaderEpoch) -> None:
    """Append the records of a leader's answer. Raises what `Log.append` raises, and CorruptRecord for records of an
    epoch after the leader's: with them in its log this replica could take none of the next leader's."""
    named = [entry.epoch for entry in answer.epochs] or [header.leader_epoch for header in walk_headers(answer.records)]
    if max(named, default=leader_epoch) > leader_epoch:
        raise CorruptRecord(
            f"{log.topic_partition}: the leader of epoch {leader_epoch} sent records of epoch {max(named)}"
        )
    begin = _begins_below(log, answer.records)
    if begin is not None:  # its start is the leader's again once these are known to be committed
        log.truncate_fully_and_start_at(begin)
    log.append(
        answer.records,
        assign_offsets=False,
        leader_epoch=leader_epoch,
        origin=Origin.REPLICATION,
        epochs=answer.epochs,
    )


def begin_truncation(log: Log, directory: LogDirectory, effect: TruncateTo | RestartAt) -> TruncationTicket | None:
    """Begin to cut, or to empty, the log; None where there is nothing to cut. Where committed records go, which only an
    unclean election asks for, a copy of the log is kept. Raises what `Log.begin_truncation` raises."""
    committed = log.high_watermark
    match effect:
        case TruncateTo(offset):
            _log.info("%s: cut from %d to %d, where it agrees", log.topic_partition, log.log_end_offset, offset)
            ticket = log.begin_truncation(offset)
        case RestartAt(offset, reason):
            _log.warning("%s: %s", log.topic_partition, reason)
            ticket = log.begin_truncation(offset, anew=True)
    if ticket is not None and offset < committed:
        copy = directory.name_aside(log.topic_partition)
        copied_first(ticket, copy)
        at = log.topic_partition, offset, committed - 1, copy
        _log.error("%s gives up committed offsets %d..%d, which its leader lacks: its log is kept in %s", *at)
    return ticket


def _begins_below(log: Log, records: Buffer) -> Offset | None:
    """Where an empty log has to begin to take these records, where its start lies within their first batch: it began
    anew at the leader's start, up to which records had been deleted. None where it can take them as it is, or not at
    all. Raises CorruptRecord."""
    end = log.log_end_offset
    if log.log_start_offset == end:
        for header in walk_headers(records):
            return header.base_offset if header.base_offset < end <= header.last_offset else None
    return None
