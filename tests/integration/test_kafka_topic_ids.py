"""Topics by id on the wire (KIP-516), at a real node and in the frames of a client: a topic that is created again under
the same name is another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

import tidelog
from node.process.local_cluster import LocalCluster
from tests.node.kafka_frames import Connection, both_ways, decoded, request_frame
from tidelog.records import Record, build_batch
from tidelog.types import Millis, Offset

pytestmark = pytest.mark.integration

UNKNOWN_TOPIC_ID, FETCH_SESSION_TOPIC_ID_ERROR = 100, 106


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 1, kafka=True) as started:
        started.wait_healthy(60)
        yield started


def message(api: str) -> Any:
    return both_ways(f"{api}Request").module


class Client:
    """One connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def ask(self, api: str, version: int, request: Any) -> Any:
        self._connection.send(request_frame(api, version, request))
        return decoded(api, version, await self._connection.receive())[1]

    async def topic(self, **named: Any) -> Any:
        """The metadata of one topic."""
        sent = message("Metadata")
        asked = sent.MetadataRequest((sent.MetadataRequestTopic(**named),), allow_auto_topic_creation=False)
        [topic] = (await self.ask("Metadata", 13, asked)).topics
        return topic

    async def produce(self, topic_id: UUID, value: bytes) -> int:
        """Returns the number of the error."""
        sent = message("Produce")
        data = build_batch([Record(Offset(0), Millis(1), None, value)])
        topic = sent.TopicProduceData(topic_id=topic_id, partition_data=(sent.PartitionProduceData(0, data),))
        answer = await self.ask("Produce", 13, sent.ProduceRequest(None, -1, 5_000, (topic,)))
        [answered] = answer.responses
        assert answered.topic_id == topic_id
        return int(answered.partition_responses[0].error_code)

    async def fetch(self, *topics: Any, version: int = 18, session_id: int = 0, session_epoch: int = -1) -> Any:
        sent = message("Fetch")
        session = {"session_id": session_id, "session_epoch": session_epoch}
        return await self.ask("Fetch", version, sent.FetchRequest(100, 1, 1 << 20, 0, topics, **session))


def fetched(**named: Any) -> Any:
    sent = message("Fetch")
    return sent.FetchTopic(partitions=(sent.FetchPartition(0, 0, 1 << 20),), **named)


def outcome(answer: Any) -> list[tuple[UUID, int, bool]]:
    """Of each partition: the id of its topic, its error, and whether it has records."""
    return [
        (topic.topic_id, each.error_code, bool(each.records)) for topic in answer.responses for each in topic.partitions
    ]


@asynccontextmanager
async def connected(cluster: LocalCluster) -> AsyncIterator[Client]:
    host, _, port = cluster.kafka_bootstrap.partition(":")
    connection = Connection(*await asyncio.open_connection(host, int(port)))
    try:
        yield Client(connection)
    finally:
        connection.writer.close()


async def test_a_former_id_reaches_no_topic_that_was_created_again(cluster: LocalCluster) -> None:
    """Neither its records nor those of the new one: also not within a session that is open."""
    await asyncio.to_thread(cluster.create_topic, "orders", 1, 1)
    async with connected(cluster) as client, tidelog.Admin(cluster.bootstrap) as admin:
        former: UUID = (await client.topic(name="orders")).topic_id
        assert await client.produce(former, b"old") == 0
        begun = await client.fetch(fetched(topic_id=former), session_epoch=0)
        assert outcome(begun) == [(former, 0, True)]

        await admin.delete_topic("orders")
        await asyncio.to_thread(cluster.create_topic, "orders", 1, 1)
        present: UUID = (await client.topic(name="orders")).topic_id
        assert present != former
        assert await client.produce(former, b"stray") == UNKNOWN_TOPIC_ID
        assert outcome(await client.fetch(fetched(topic_id=former))) == [(former, UNKNOWN_TOPIC_ID, False)]
        answer = await client.fetch(session_id=begun.session_id, session_epoch=1)
        assert [(each[0], each[2]) for each in outcome(answer)] == [(former, False)]
        assert outcome(answer)[0][1] != 0
        gone = await client.topic(topic_id=former, name=None)
        assert (gone.error_code, gone.name, gone.topic_id) == (UNKNOWN_TOPIC_ID, None, former)

        assert await client.produce(present, b"new") == 0
        [(topic_id, error, _)] = outcome(await client.fetch(fetched(topic_id=present)))
        assert (topic_id, error) == (present, 0)
        async with tidelog.Consumer(cluster.bootstrap) as consumer:
            consumer.assign(await consumer.partitions("orders"))
            assert [each.value for each in await consumer.poll()] == [b"new"]


@pytest.mark.parametrize("topic_id", [UUID(int=0), uuid4(), UUID(int=(1 << 128) - 1)])
async def test_an_id_that_no_topic_has(cluster: LocalCluster, topic_id: UUID) -> None:
    async with connected(cluster) as client:
        assert await client.produce(topic_id, b"x") == UNKNOWN_TOPIC_ID
        begun = await client.fetch(fetched(topic_id=topic_id), session_epoch=0)
        assert outcome(begun) == [(topic_id, UNKNOWN_TOPIC_ID, False)]
        assert begun.session_id
        again = await client.fetch(session_id=begun.session_id, session_epoch=1)
        assert outcome(again) == [(topic_id, UNKNOWN_TOPIC_ID, False)], "until it is forgotten"


async def test_a_client_may_fall_back_to_names(cluster: LocalCluster) -> None:
    """As Java does where not every topic has an id. A session is either of names or of ids."""
    await asyncio.to_thread(cluster.create_topic, "named", 1, 1)
    async with connected(cluster) as client:
        topic_id: UUID = (await client.topic(name="named")).topic_id
        begun = await client.fetch(fetched(topic_id=topic_id), session_epoch=0)
        refused = await client.fetch(session_id=begun.session_id, session_epoch=1, version=12)
        assert refused.error_code == FETCH_SESSION_TOPIC_ID_ERROR
        by_name = await client.fetch(fetched(topic="named"), session_id=begun.session_id, session_epoch=0, version=12)
        assert (by_name.error_code, [each.topic for each in by_name.responses]) == (0, ["named"])
        refused = await client.fetch(session_id=by_name.session_id, session_epoch=1)
        assert refused.error_code == FETCH_SESSION_TOPIC_ID_ERROR
        assert await client.produce(topic_id, b"x") == 0
        more = await client.fetch(session_id=by_name.session_id, session_epoch=1, version=12)
        [topic] = more.responses
        assert (topic.topic, bool(topic.partitions[0].records)) == ("named", True)
