"""Where the log of a follower goes on behind the remote tier: finds the remote segment, and reads what the log needs.

Invariants:
  1. A segment counts only if it is finished and agrees with the leader's epochs: others have records of a lost epoch.
  2. It contains the leader's local log start or ends there. One further behind would leave fewer copies of records of
     which the leader has the only one outside of the store.
  3. Nothing is used whose checksum is wrong, and nothing is changed before all of it was read.
  4. Searches wait for each other, fetches and other partitions do not.
Not here: when a follower needs it (replication/partition/follower.py), the change of the log (storage/log/).
Source: KIP-405; Kafka's TierStateMachine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from node.replicas.remote_reads import RemoteReads
from replication.coordination.encoded_segment import decode_segment, segment_head
from replication.coordination.remote_log_requests import RemoteSegmentsPage, SegmentPlace
from replication.coordination.tiering.remote_log import believed
from replication.partition.follower_events import RestartBehindRemote
from storage.checkpoints.checkpoint_file import decode_epochs
from storage.log.log import Log
from storage.log.truncation_ticket import RemotePart
from storage.segment.epoch_cache import LeaderEpochCache
from tidelog.errors import CorruptLog, OffsetNotAvailable, TidelogError
from tidelog.records.producer_snapshot import decode_snapshot
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentState, SectionKind
from tidelog.tiering.remote_segment_reader import RemoteSegmentReader
from tidelog.tiering.segment_object import damaged
from tidelog.types import INT64_MAX, Offset, PartitionKey

AT_ONCE: Final = 4
"""Searches at the same time: the store has as many threads for reads."""

Pages: TypeAlias = Callable[[PartitionKey, SegmentPlace | None], AsyncIterator[RemoteSegmentsPage]]
"""As `RemoteLogClient.pages`."""


class RemoteStart(NamedTuple):
    """The log is to be emptied and goes on at `offset`."""

    offset: Offset
    part: RemotePart
    """Of the records below."""


class _Search(NamedTuple):
    log: Log
    wanted: RestartBehindRemote
    done: Callable[[RemoteStart | TidelogError], None]


class RemoteStarts:
    """The searches of one node."""

    def __init__(self, reads: RemoteReads) -> None:
        self._reads = reads
        self._waiting: asyncio.Queue[_Search] = asyncio.Queue()
        self.found = self.failed = 0
        """Searches since the node has started."""

    def find(self, log: Log, wanted: RestartBehindRemote, done: Callable[[RemoteStart | TidelogError], None]) -> None:
        """Find where this log goes on. done: called on the loop, later, with the place or the error."""
        self._waiting.put_nowait(_Search(log, wanted, done))

    async def run(self, pages: Pages) -> None:
        """Search until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._work(pages))

    async def _work(self, pages: Pages) -> None:
        while True:
            search = await self._waiting.get()
            result: RemoteStart | TidelogError
            try:
                segment = await self._segment(search, pages)
                reader = self._reads.reader(search.log, segment)
                result = await self._reads.call(reader, partial(_read, reader, search.wanted.log_start))
                self.found += 1
            except TidelogError as error:
                result = error
                self.failed += 1
            search.done(result)

    async def _segment(self, search: _Search, pages: Pages) -> RemoteSegment:
        """The segment at the local log start of the leader, the one that ends first."""
        log, wanted = search.log, search.wanted
        at, found = wanted.local_start, None
        partition = PartitionKey(log.topic_id, log.topic_partition.partition)
        async for page in pages(partition, None):
            for encoded in page.segments:
                segment = segment_head(encoded)
                if segment.start_offset > at:
                    break
                is_there = segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED and segment.end_offset >= at
                # The leader has copied nothing above its log end: its present epoch, the last one, has no end.
                is_nearer = found is None or segment.end_offset < found[1].end_offset
                if is_there and is_nearer and believed(segment, wanted.history, wanted.log_start, Offset(INT64_MAX)):
                    found = encoded, segment
            else:
                continue
            break
        if found is None:
            raise OffsetNotAvailable(
                f"no remote segment of {log.topic_partition} agrees with the leader's log and has or ends at offset "
                f"{at}, where the leader's local log starts: it may just have been deleted; the leader is asked again"
            )
        return decode_segment(partition, found[0])


def _read(reader: RemoteSegmentReader, log_start: Offset) -> RemoteStart:
    """On the executor. Raises as the reader does."""
    segment = reader.segment
    producers = reader.section(SectionKind.PRODUCER_SNAPSHOT)
    name = f"segment {segment.segment_id}"
    try:
        decode_snapshot(producers, f"the producer snapshot of {name}")
        epochs = LeaderEpochCache(decode_epochs(reader.section(SectionKind.LEADER_EPOCHS), f"the epochs of {name}"))
    except CorruptLog as error:
        raise damaged(name, error.message) from error
    epochs.truncate_from_start(log_start)
    epochs.truncate_from_end(segment.end_offset)
    return RemoteStart(segment.end_offset, RemotePart(log_start, epochs.entries, producers))
