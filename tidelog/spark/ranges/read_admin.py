"""The client that asks the cluster where a query begins and ends.

A leader that was deposed and does not know it yet has fewer records than its successor: it would report offsets as out
of range, or the log as truncated, that are neither (KIP-320). Such an answer is believed once another node names the
same leader in the same epoch, and never of a leader in an older epoch than that of records that were read.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.admin import Admin
from tidelog.client.offset_lookup import ensure_current
from tidelog.types import LeaderEpoch, NodeId, TopicId, TopicPartition

Leaders = dict[TopicPartition, tuple[TopicId, NodeId, LeaderEpoch]]
"""Who leads a partition of which topic, and in which epoch."""


class ReadAdmin(Admin):
    """Asks the cluster for a query. Calls retry for `patience_ms` as those of Admin."""

    async def confirmed_leaders(self, doubtful: Mapping[TopicPartition, tuple[TopicId, LeaderEpoch]]) -> Leaders:
        """The leaders of partitions in which records are missing, as another node than these leaders names them.

        The caller asks the leaders again, and believes them once this returns the same as before: then they were led
        by them all the time. doubtful: with the topic's id, and the leader epoch of a record that was read;
        NO_LEADER_EPOCH if there is none.
        Raises UnknownLeaderEpoch if the nodes know only a leader of an older epoch, ConnectionFailed if no node but the
        leader answers, UnknownTopicOrPartition if a partition is gone meanwhile.
        """
        topics = {key: self._cluster.view.topic(key.topic, key.partition) for key in doubtful}
        for name, node in sorted({(key.topic, each.partitions[key.partition].leader) for key, each in topics.items()}):
            await self._cluster.refresh_beside(node, name)
        leaders: Leaders = {}
        for key, (topic_id, epoch) in doubtful.items():
            topic = self._cluster.view.topic(key.topic, key.partition)
            partition = topic.partitions[key.partition]
            if topic.topic_id == topic_id:
                ensure_current(key, partition, epoch)
            leaders[key] = topic.topic_id, partition.leader, partition.leader_epoch
        return leaders
