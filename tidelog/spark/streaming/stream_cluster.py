"""What only a stream asks the cluster: where leader epochs end.

Not here: decisions (stream_planner.py, data_loss.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.cluster import QUERY_TIMEOUT_MS
from tidelog.client.offset_lookup import ensure_current
from tidelog.errors import Retry, TidelogError, UnknownLeaderEpoch, UnknownTopicOrPartition
from tidelog.protocol import methods
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import data_pb2
from tidelog.spark.ranges.read_admin import ReadAdmin
from tidelog.types import Endpoint, EpochEnd, LeaderEpoch, Offset, TopicId, TopicPartition


class StreamAdmin(ReadAdmin):
    """Asks the cluster for a stream. Calls retry for `patience_ms` as those of Admin."""

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, tuple[TopicId, LeaderEpoch]]
    ) -> dict[TopicPartition, EpochEnd]:
        """The largest leader epoch of each log that is not above the given one, and its end offset; epoch -1 if there
        is none. A leader of an older epoch than the given one is not asked. Looks leaders up again and retries for
        `request_timeout_ms`, then raises the last error.
        """
        found: dict[TopicPartition, EpochEnd] = {}
        retries = self._cluster.retries(self._timeout_ms)
        while True:
            left = {key: each for key, each in questions.items() if key not in found}
            if not left:
                return found
            failures = await self._epoch_round(left, found)
            for error in failures:
                if error.retry is Retry.NEVER:
                    raise error
            if any(isinstance(error, UnknownLeaderEpoch) for error in failures):
                self._cluster.distrust_last()
            if failures:
                await retries.pause(failures[0])
                for topic in sorted({key.topic for key in left}):
                    await self._cluster.refresh(topic)

    async def _epoch_round(
        self,
        left: Mapping[TopicPartition, tuple[TopicId, LeaderEpoch]],
        found: dict[TopicPartition, EpochEnd],
    ) -> list[TidelogError]:
        """Ask each leader once. Stores answers in `found`, returns errors."""
        failures: list[TidelogError] = []
        by_leader: dict[Endpoint, dict[TopicPartition, data_pb2.EpochQuestion]] = {}
        for key, (topic_id, epoch) in left.items():
            try:
                await self._cluster.wait_topic(key.topic, timeout_ms=self._timeout_ms)
                endpoint, partition = self._cluster.view.leader(key)
                if self._cluster.view.topic(key.topic).topic_id == topic_id:
                    ensure_current(key, partition, epoch)
            except UnknownTopicOrPartition:
                raise  # `wait_topic` has already waited
            except TidelogError as error:
                failures.append(error)
                continue
            by_leader.setdefault(endpoint, {})[key] = data_pb2.EpochQuestion(
                topic_id=topic_id.bytes,
                partition=key.partition,
                current_leader_epoch=partition.leader_epoch,
                leader_epoch=epoch,
            )
        for endpoint, entries in by_leader.items():
            request = data_pb2.OffsetForLeaderEpochRequest(partitions=entries.values())
            try:
                answer = await self._cluster.transport.call(
                    endpoint, methods.DATA_OFFSET_FOR_LEADER_EPOCH, request, timeout_ms=QUERY_TIMEOUT_MS
                )
            except TidelogError as error:
                failures.append(error)
                continue
            for key, result in zip(entries, answer.partitions, strict=True):
                if result.HasField("error"):
                    refusal = from_proto(result.error)
                    self._cluster.note_leader(key, refusal.leader)
                    failures.append(refusal)
                else:
                    found[key] = EpochEnd(LeaderEpoch(result.end.epoch), Offset(result.end.end_offset))
        return failures
