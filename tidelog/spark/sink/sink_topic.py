"""Whether the topic of a write exists: asked once on the driver, before any task runs.

A task would wait for the topic until its records time out. Topics in the column `topic` are seen only there.
"""

from __future__ import annotations

import asyncio

from tidelog.errors import UnknownTopicOrPartition
from tidelog.spark.options.connection_options import ConnectionOptions
from tidelog.spark.options.topic_selection import TopicSelection
from tidelog.spark.ranges.read_admin import ReadAdmin
from tidelog.spark.sink.sink_options import TOPIC, SinkOptions


def ensure_topic_exists(options: SinkOptions) -> None:
    """Check the topic that the options name. Raises UnknownTopicOrPartition, ConnectionFailed, and the error of a topic
    that the user may not describe."""
    if options.topic is not None:
        asyncio.run(_ensure_topic_exists(options.connection, options.topic))


async def _ensure_topic_exists(connection: ConnectionOptions, topic: str) -> None:
    selection = TopicSelection(topics=(topic,))
    async with ReadAdmin(connection.bootstrap, **connection.of_client) as admin:
        if topic in (await admin.snapshot(selection)).topics:
            return
        # The node that answered may not have applied the topic's creation yet.
        if topic not in (await admin.newest_snapshot(selection)).topics:
            raise UnknownTopicOrPartition(
                f"option {TOPIC!r} is {topic!r}, and there is no such topic: correct the name (`tidelog topic list`), "
                f"or create it (`tidelog topic create {topic}`)"
            )
