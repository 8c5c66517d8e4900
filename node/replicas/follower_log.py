"""Changes of a follower's log that its core requests: appends of the leader's records, and truncations.

Not here: the decision (replication/partition/follower.py), failures (follower_replica.py).
"""

from __future__ import annotations

import logging
from contextlib import suppress

from node.replicas.remote_starts import RemoteStart
from replication.partition.follower_events import FetchAgainFrom, LogView, RestartAt, TruncateTo
from storage.directory.kept_copy import copied_first
from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from storage.log.truncation_ticket import TruncationTicket
from tidelog.errors import CorruptRecord
from tidelog.record_exchange import FetchedPartition
from tidelog.records import iter_batches, walk_headers
from tidelog.types import Buffer, LeaderEpoch, Offset

_log = logging.getLogger("node.partition")


def view_of(log: Log) -> LogView:
    """The state of the log for the core."""
    return LogView(log.log_start_offset, log.log_end_offset, log.durable_offset, log.last_epoch)


def prepare_append(log: Log, answer: FetchedPartition, leader_epoch: LeaderEpoch) -> None:
    """Check the records of a leader's answer before they are appended; an empty log is restarted where they begin.
    Raises CorruptRecord for records of an epoch after the leader's: with them, the log could not take the records of
    the next leader."""
    named = [entry.epoch for entry in answer.epochs] or [header.leader_epoch for header in walk_headers(answer.records)]
    if max(named, default=leader_epoch) > leader_epoch:
        raise CorruptRecord(
            f"{log.topic_partition}: the leader of epoch {leader_epoch} sent records of epoch {max(named)}"
        )
    begin = _begins_below(log, answer.records)
    if begin is not None:  # the log start follows the leader again once these are committed
        log.truncate_fully_and_start_at(begin)


def unended_transaction(log: Log, records: Buffer, held_from: Offset) -> Offset | None:
    """First offset of the oldest transaction that began in the log below `held_from`, is open, and whose marker may
    be missing in these records of the leader: compaction has left a gap before any marker of its producer, or that
    marker without its record. None if there is none, and for records that are corrupt: the append reports them."""
    open_since = {
        producer: first for first, producer in log.producers.state.open_transactions.items() if first < held_from
    }
    expected = log.log_end_offset
    with suppress(CorruptRecord):
        for batch in iter_batches(records) if open_since else ():
            header = batch.header
            if header.magic == 2:  # the header of a compressed message set has its last offset only
                is_gap = header.base_offset > expected
                if is_gap or (batch.is_control and not batch.count and header.producer_id in open_since):
                    batch.ensure_valid()
                    return min(open_since.values()) if is_gap else open_since[header.producer_id]
                if batch.is_control and open_since.pop(header.producer_id, None) is not None and not open_since:
                    break
            expected = batch.next_offset
    return None


def begin_truncation(
    log: Log, directory: LogDirectory, effect: TruncateTo | FetchAgainFrom | RestartAt | RemoteStart
) -> TruncationTicket | None:
    """Begin to truncate or to empty the log; None if there is nothing to truncate. If this removes committed records
    that the leader lacks, after an unclean election, a copy of the log is kept. Raises as `Log.begin_truncation`."""
    committed = log.high_watermark
    match effect:
        case FetchAgainFrom(offset, reason):
            _log.info("%s", reason)
            return log.begin_truncation(offset, fully=offset <= log.log_start_offset)
        case RemoteStart(offset, part):
            text = "%s: offsets %d..%d are in the remote tier, the log goes on behind them; it ended at %d"
            _log.info(text, log.topic_partition, part.log_start, offset - 1, log.log_end_offset)
            return log.begin_truncation(offset, remote=part)
        case TruncateTo(offset):
            _log.info("%s: truncating from %d to %d: it diverges", log.topic_partition, log.log_end_offset, offset)
            ticket = log.begin_truncation(offset)
        case RestartAt(offset, reason):
            _log.warning("%s: %s", log.topic_partition, reason)
            ticket = log.begin_truncation(offset, fully=True)
    if ticket is not None and offset < committed:
        copy = directory.name_aside(log.topic_partition)
        copied_first(ticket, copy)
        at = log.topic_partition, offset, committed - 1, copy
        _log.error("%s: truncating committed offsets %d..%d, which the leader lacks; a copy of the log is in %s", *at)
    return ticket


def _begins_below(log: Log, records: Buffer) -> Offset | None:
    """The offset at which an empty log must start to take these records, if its start is inside their first batch: it
    was restarted at the leader's log start, which deletion of records had moved. None in all other cases. Raises
    CorruptRecord."""
    end = log.log_end_offset
    if log.log_start_offset == end:
        for header in walk_headers(records):
            return header.base_offset if header.base_offset < end <= header.last_offset else None
    return None
