"""A transport that is handed to several clients: none of them closes it."""

from __future__ import annotations

from tests.client.memory_cluster import memory_cluster
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.protocol.grpc_transport import GrpcTransport


async def test_a_client_that_closes_leaves_the_connections_to_others() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        transport = GrpcTransport()
        try:
            async with Producer(cluster.bootstrap, transport=transport, linger_ms=0) as producer:
                await producer.send("orders", b"1")
                async with Admin(cluster.bootstrap, transport=transport) as admin:
                    await admin.list_topics()
                async with Consumer(cluster.bootstrap, transport=transport) as consumer:
                    consumer.assign([("orders", 0)])
                    assert [record.value for record in await consumer.poll(timeout=5)] == [b"1"]
                assert (await producer.send("orders", b"2")).offset == 1
        finally:
            await transport.close()
