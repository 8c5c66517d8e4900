"""The replicas of a partition as an audit reads them, with their history from the object store, past the nodes.

What has left the disk of the leader has left those of the followers, or is about to: all replicas have these offsets in
the same objects. They are read there once, and compared with the checksums that the leader knows.
Not here: comparing (replica_comparison.py), one partition (partition_audit.py).
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import Final, Protocol

from tidelog.client.admin import Admin
from tidelog.client.cluster import ClusterView, TopicView
from tidelog.client.machine import run_beside
from tidelog.client.remote_logs import RemoteSegments
from tidelog.client.replica_reader import FETCH_BYTES, ReplicaRead, ReplicaReader
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.obstore_store import open_object_store
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_segment_reader import RemoteSegmentReader
from tidelog.tiering.segment_manifest import segment_key
from tidelog.tiering.store_option import remote_storage
from tidelog.types import NodeId, Offset, TopicPartition

CACHE_BYTES: Final = 16 << 20
"""Replicas are read in lockstep: each range is there for all of them."""


class AuditedReplicas(Protocol):
    """Reads from each replica; `ReplicaReader` documents the members."""

    @property
    def view(self) -> ClusterView: ...

    async def read(
        self,
        node: NodeId,
        topic: TopicView,
        topic_partition: TopicPartition,
        offset: Offset,
        *,
        patience_ms: int,
        wait_ms: int,
    ) -> ReplicaRead: ...


class StoredReplicas:
    """Replicas whose history is in a store."""

    def __init__(
        self, reader: ReplicaReader, store: ObjectStore, topic: str, stored: RemoteSegments, end: Offset
    ) -> None:
        """end: offsets from here on are read from the nodes."""
        self._reader, self._end = reader, end
        self._store, self._cache, self._topic = store, RemoteCache(CACHE_BYTES), topic
        self._segments = stored.segments
        self._in_use: RemoteSegmentReader | None = None
        self._known: dict[NodeId, ReplicaRead] = {}
        """The last answer of each node."""

    @property
    def view(self) -> ClusterView:
        return self._reader.view

    async def read(
        self,
        node: NodeId,
        topic: TopicView,
        topic_partition: TopicPartition,
        offset: Offset,
        *,
        patience_ms: int,
        wait_ms: int,
    ) -> ReplicaRead:
        """As `ReplicaReader.read`. The first answer is that of the node: it tells log start and high watermark."""
        known = self._known.get(node)
        while known is not None and known.log_start <= offset < min(self._end, known.high_watermark):
            segment = self._reader_at(offset)
            if segment is None:
                break
            found = await run_beside(lambda: segment.read(offset, FETCH_BYTES, up_to=segment.segment.end_offset))  # noqa: B023 - it ends in this round
            if len(found.records):
                return ReplicaRead(known.log_start, known.high_watermark, found.records)
            offset = found.next_offset  # the segment has no further batch
        read = self._known[node] = await self._reader.read(
            node, topic, topic_partition, offset, patience_ms=patience_ms, wait_ms=wait_ms
        )
        return read

    def _reader_at(self, offset: Offset) -> RemoteSegmentReader | None:
        """The reader of the first segment with this offset; None if none has it. The end offsets grow."""
        number = bisect_right(self._segments, offset, key=attrgetter("end_offset"))
        if number == len(self._segments) or self._segments[number].start_offset > offset:
            return None
        segment = self._segments[number]
        if self._in_use is None or self._in_use.segment is not segment:
            key = segment_key(self._topic, segment)
            self._in_use = RemoteSegmentReader(self._store, self._cache, key, segment)
        return self._in_use


async def audited_replicas(
    admin: Admin, reader: ReplicaReader, topic: TopicView, place: TopicPartition, option: str, *, timeout_ms: int
) -> AuditedReplicas:
    """The replicas of a partition. option: the value of `remoteStorage`. Raises as `Admin.list_offsets`,
    `describe_remote_logs`, `open_object_store`."""
    url = remote_storage(option)
    if url is None:
        return reader
    ends = await admin.list_offsets([place], "earliest-local")
    stored = await reader.stored(topic, place, Offset(0), ends[place], timeout_ms=timeout_ms)
    if not stored.segments:
        return reader
    store = open_object_store(url or stored.store_url, create=False)
    return StoredReplicas(reader, store, topic.name, stored, ends[place])
