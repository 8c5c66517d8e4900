"""What only a stream asks the cluster: where leader epochs end.

Not here: decisions (stream_planner.py, data_loss.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.cluster import PartitionView
from tidelog.client.offset_lookup import ask_leaders
from tidelog.protocol import methods
from tidelog.protocol.v1 import data_pb2
from tidelog.spark.ranges.read_admin import ReadAdmin
from tidelog.types import NO_LEADER_EPOCH, EpochEnd, LeaderEpoch, Offset, TopicId, TopicPartition


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

        def known(key: TopicPartition) -> LeaderEpoch:
            topic_id, epoch = questions[key]
            # The epochs of another topic of this name begin again.
            return epoch if self._cluster.view.topic(key.topic).topic_id == topic_id else NO_LEADER_EPOCH

        def question(key: TopicPartition, partition: PartitionView) -> dict[str, object]:
            topic_id, epoch = questions[key]
            epochs = {"current_leader_epoch": partition.leader_epoch, "leader_epoch": epoch}
            return {"topic_id": topic_id.bytes, **epochs}

        def take(key: TopicPartition, answer: data_pb2.EpochAnswer) -> bool:
            found[key] = EpochEnd(LeaderEpoch(answer.end.epoch), Offset(answer.end.end_offset))
            return True

        method, timeout_ms = methods.DATA_OFFSET_FOR_LEADER_EPOCH, self._timeout_ms
        await ask_leaders(self._cluster, questions, method, question, take, known, timeout_ms=timeout_ms)
        return found
