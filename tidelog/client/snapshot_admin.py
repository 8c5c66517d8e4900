"""Admin calls about snapshots of topics: take, describe, extend and delete them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.client.admin_calls import AdminCalls
from tidelog.client.options import text, topic_name, whole_number
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message
from tidelog.protocol.v1 import admin_pb2
from tidelog.topic_snapshots import TopicSnapshot
from tidelog.types import INT64_MAX

SNAPSHOT_KEEP_MS: Final = 7 * 24 * 60 * 60 * 1_000
"""How long a snapshot is kept if nothing else is asked for: a week, as records by Kafka's default."""


class SnapshotAdmin(AdminCalls):
    """Part of Admin."""

    async def create_topic_snapshot(
        self, name: str, topics: Iterable[str], *, keep_ms: int = SNAPSHOT_KEEP_MS
    ) -> TopicSnapshot:
        """Freeze a consistent end of several topics: every transaction is below it in all partitions, or in none. No
        record of these topics is removed until the snapshot expires in `keep_ms`, or is deleted.

        Raises DuplicateResource, InvalidRequest, UnknownTopicOrPartition, TopicAuthorizationFailed, UnsupportedVersion
        below feature level 11; PolicyViolation for compacted topics and too many snapshots; TopicSnapshotInterrupted if
        nodes are slow or fail: nothing was recorded then.
        """
        if isinstance(topics, str):
            topics = (topics,)
        request = admin_pb2.CreateTopicSnapshotRequest(
            name=text("name", name),
            topics=[topic_name(each) for each in topics],
            keep_ms=whole_number("keep_ms", keep_ms, most=INT64_MAX),
        )
        answer = await self._change(methods.ADMIN_CREATE_TOPIC_SNAPSHOT, request)
        return read_message(TopicSnapshot, answer.snapshot)

    async def list_topic_snapshots(self) -> list[TopicSnapshot]:
        """Return the snapshots whose topics this client may describe, by name."""
        return await self._topic_snapshots(admin_pb2.DescribeTopicSnapshotsRequest())

    async def describe_topic_snapshot(self, name: str) -> TopicSnapshot:
        """Return a snapshot. Raises ResourceNotFound, TopicAuthorizationFailed."""
        request = admin_pb2.DescribeTopicSnapshotsRequest(names=[text("name", name)])
        (found,) = await self._topic_snapshots(request)
        return found

    async def _topic_snapshots(self, request: admin_pb2.DescribeTopicSnapshotsRequest) -> list[TopicSnapshot]:
        answer = await self._query(methods.ADMIN_DESCRIBE_TOPIC_SNAPSHOTS, request)
        return [read_message(TopicSnapshot, each) for each in answer.snapshots]

    async def extend_topic_snapshot(self, name: str, expires_ms: int) -> None:
        """Let a snapshot expire at another time, in milliseconds since 1970. Raises ResourceNotFound,
        TopicAuthorizationFailed."""
        request = admin_pb2.ExtendTopicSnapshotRequest(
            name=text("name", name), expires_ms=whole_number("expires_ms", expires_ms, most=INT64_MAX)
        )
        await self._change(methods.ADMIN_EXTEND_TOPIC_SNAPSHOT, request)

    async def delete_topic_snapshot(self, name: str) -> None:
        """Delete a snapshot: retention removes the records of its topics again. Raises ResourceNotFound,
        TopicAuthorizationFailed."""
        await self._change(
            methods.ADMIN_DELETE_TOPIC_SNAPSHOT, admin_pb2.DeleteTopicSnapshotRequest(name=text("name", name))
        )
