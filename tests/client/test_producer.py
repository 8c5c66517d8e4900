"""The producer over real connections: results of its callers, with and without faults."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest

import tidelog
from tests.client.memory_cluster import CLOCK, SILENCE, memory_cluster, start, until
from tidelog.client.producer import Producer
from tidelog.errors import (
    BufferExhausted,
    CommitUnknown,
    ConnectionFailed,
    DeliveryTimedOut,
    DiskFull,
    InvalidConfig,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTimestamp,
    NodeNotAvailable,
    NotEnoughReplicas,
    RecordTooLarge,
    TidelogError,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.records import RecordBatch
from tidelog.types import Codec, RecordError


async def test_send_returns_the_position_of_the_record() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            first = await producer.send("orders", b"a", partition=1, timestamp=77)
            second = await producer.send("orders", b"b", key=b"k", headers=[("h", b"1"), ("n", None)], partition=1)
            keyed = {(await producer.send("orders", b"c", key=b"same")).partition for _ in range(3)}
        assert first == tidelog.SendResult("orders", 1, 0, 77)  # type: ignore[arg-type]
        assert (second.partition, second.offset) == (1, 1)
        assert second.timestamp is not None and second.timestamp > 1_700_000_000_000
        assert len(keyed) == 1
        record = next(RecordBatch(cluster.topics["orders"].partitions[1].batches[1]).records())
        assert (record.key, record.value, record.headers) == (b"k", b"b", (("h", b"1"), ("n", None)))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_batches_are_compressed_as_configured(codec: str) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, compression=codec) as producer:
            deliveries = [await producer.enqueue("orders", b"x" * 1000) for _ in range(50)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(50))
        (data,) = cluster.topics["orders"].partitions[0].batches
        batch = RecordBatch(data)
        assert batch.codec is Codec[codec.upper()]
        assert batch.size < 10_000
        assert [record.value for record in batch.records()] == [b"x" * 1000] * 50


async def test_many_records_keep_their_order_although_batches_are_rejected() -> None:
    """A node that rejects a third of the batches causes delay, but no reordering and no duplicates. The third is
    random: with every third batch, the same one of three batches in flight could be rejected in every round."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        mood = random.Random(3)

        def moody(entry: object) -> object:
            return NotEnoughReplicas("one in sync, two needed") if mood.randrange(3) == 0 else None

        for node in cluster.nodes:
            node.on_produce = moody
        async with Producer(cluster.bootstrap, batch_bytes=2_000, linger_ms=1, retry_backoff_ms=5) as producer:
            deliveries = [
                await producer.enqueue("orders", f"{number}".encode().ljust(100), partition=number % 2)
                for number in range(400)
            ]
            await producer.flush()
        assert all(delivery.exception() is None for delivery in deliveries)
        for partition in (0, 1):
            values = [int(value or b"") for value in cluster.values("orders", partition)]
            assert values == list(range(partition, 400, 2))


async def test_a_producer_learns_which_records_were_rejected() -> None:
    """KIP-467."""
    wrong = (RecordError(0, "it has no key"),)
    async with memory_cluster() as cluster:
        cluster.create("orders")
        cluster.nodes[0].on_produce = lambda _: InvalidRecord("1 of 1 records were rejected", record_errors=wrong)
        async with Producer(cluster.bootstrap) as producer:
            with pytest.raises(InvalidRecord) as caught:
                await producer.send("orders", b"value")
        assert caught.value.record_errors == wrong


async def test_a_moved_leader_is_followed() -> None:
    async with memory_cluster(3) as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            await producer.send("orders", b"1")
            cluster.lead("orders", 0, 2)
            assert (await producer.send("orders", b"2")).offset == 1
            cluster.lead("orders", 0, -1)
            later = start(producer.send("orders", b"3"))
            await CLOCK.sleep_ms(300)
            assert not later.done(), "no leader"
            cluster.lead("orders", 0, 1)
            assert (await later).offset == 2


@pytest.mark.parametrize("how", ["break", "lose"])
async def test_a_broken_stream_leaves_the_outcome_unknown_and_nothing_is_resent(how: str) -> None:
    """The stream breaks before or after the append: the producer cannot know and reports it."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=0, enable_idempotence=False) as producer:
            await producer.send("orders", b"1")
            cluster.nodes[0].on_produce = lambda entry: how
            with pytest.raises(CommitUnknown) as caught:
                await producer.send("orders", b"2")
            cluster.nodes[0].on_produce = lambda entry: None
            assert isinstance(caught.value.__cause__, ConnectionFailed)
            assert str(caught.value.topic_partition) == "orders-0"
            await producer.send("orders", b"3")
        assert cluster.values("orders") == ([b"1", b"3"] if how == "break" else [b"1", b"2", b"3"])


async def test_resending_batches_of_unknown_outcome_keeps_the_order_and_may_duplicate() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        wishes = iter([None, "lose", "break"])
        cluster.nodes[0].on_produce = lambda entry: next(wishes, None)
        async with Producer(cluster.bootstrap, linger_ms=0, enable_idempotence=False, on_unknown="resend") as producer:
            for number in range(4):
                await producer.send("orders", str(number).encode())
        assert cluster.values("orders") == [b"0", b"1", b"1", b"2", b"3"]


async def test_a_silent_node_is_abandoned_after_the_request_timeout() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        cluster.nodes[0].on_produce = lambda entry: SILENCE if entry.partition == 0 else None
        async with Producer(
            cluster.bootstrap, linger_ms=0, enable_idempotence=False, request_timeout_ms=300
        ) as producer:
            stuck = start(producer.send("orders", b"1", partition=0))
            assert (await producer.send("orders", b"2", partition=1)).offset == 0, "other partitions continue"
            with pytest.raises(CommitUnknown, match="did not answer"):
                await stuck


async def test_a_record_for_a_stopped_node_waits_and_fails_as_not_written() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            await producer.send("orders", b"1", partition=1)
        await cluster.nodes[1].stop()
        async with Producer(cluster.bootstrap, linger_ms=0, delivery_timeout_ms=1_500) as producer:
            with pytest.raises(DeliveryTimedOut) as caught:
                await producer.send("orders", b"2", partition=1)
            assert isinstance(caught.value.__cause__, TidelogError)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            waiting = start(producer.send("orders", b"3", partition=1))
            await CLOCK.sleep_ms(300)
            await cluster.nodes[1].start()
            assert (await waiting).offset == 1


async def test_acks_zero_does_not_wait_for_an_answer() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, acks=0, linger_ms=0) as producer:
            assert (await producer.send("orders", b"1")).offset == -1
            assert (await producer.send("orders", b"2")).offset == -1
            await until(lambda: len(cluster.values("orders")) == 2)


async def test_a_record_that_is_too_large_is_rejected_before_anything_is_queued() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", configs={"max.message.bytes": "1000"})
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes of topic 'orders' allows 1000"):
                await producer.send("orders", b"x" * 1000)
            assert producer.buffered_bytes == 0
            exactly = 1000 - 61 - 9  # the header of the batch, the frame of the record
            assert (await producer.send("orders", b"x" * exactly)).offset == 0
            with pytest.raises(RecordTooLarge):
                await producer.send("orders", b"x" * (exactly + 1))
        assert len(cluster.topics["orders"].partitions[0].batches[0]) == 1000
        async with Producer(cluster.bootstrap, record_bytes_max=100) as producer:
            with pytest.raises(RecordTooLarge, match="record_bytes_max allows 100"):
                await producer.enqueue("orders", b"x" * 100)


async def test_batches_fit_into_a_segment_of_their_topic() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", configs={"segment.bytes": "1000"})
        async with Producer(cluster.bootstrap, linger_ms=50) as producer:
            for _ in range(20):
                await producer.enqueue("orders", b"x" * 200)
        sizes = [len(data) for data in cluster.topics["orders"].partitions[0].batches]
        assert max(sizes) <= 1000
        assert len(sizes) < 20


async def test_memory_is_bounded_and_callers_wait_in_order() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        gate = asyncio.Event()
        async with Producer(cluster.bootstrap, linger_ms=0, buffer_bytes=20_000, max_block_ms=400) as producer:
            await producer.partitions("orders")
            cluster.nodes[0].on_produce = lambda entry: None if gate.is_set() else SILENCE
            queued = 0
            with pytest.raises(BufferExhausted, match="max_block_ms=400"):
                while True:
                    await producer.enqueue("orders", b"x" * 1000)
                    queued += 1
            assert producer.buffered_bytes <= 20_000
            assert queued == 20_000 // 1224
            with pytest.raises(BufferExhausted):
                producer.send_nowait("orders", b"x" * 1000)
            await producer.close(flush=False)


async def test_memory_that_is_full_because_batches_are_refused_says_why() -> None:
    """The first refusals of a full disk are repeated within `delivery_timeout_ms`: the caller saw none of them, and was
    told to send more slowly."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        cluster.nodes[0].on_produce = lambda entry: DiskFull("the disk of /data is full: delete topics")
        async with Producer(cluster.bootstrap, linger_ms=0, buffer_bytes=20_000, max_block_ms=400) as producer:
            with pytest.raises(BufferExhausted) as raised:
                while True:
                    await producer.enqueue("orders", b"x" * 1000)
            assert "records for orders-0 are not acknowledged: the disk of /data is full" in raised.value.message
            assert "more slowly" not in raised.value.message
            assert isinstance(raised.value.__cause__, DiskFull)
            await producer.close(flush=False)


async def test_waiting_callers_continue_in_the_order_of_their_calls() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=0, buffer_bytes=5_000) as producer:
            sends = [start(producer.send("orders", str(number).encode().ljust(900))) for number in range(60)]
            results = await asyncio.gather(*sends)
        assert [result.offset for result in results] == list(range(60))
        assert [int(value or b"") for value in cluster.values("orders")] == list(range(60))


async def test_a_cancelled_send_withdraws_nothing_and_affects_no_other() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=50) as producer:
            await producer.partitions("orders")
            first = start(producer.send("orders", b"1"))
            second = start(producer.send("orders", b"2"))
            await CLOCK.sleep_ms(0)
            first.cancel()
            assert (await second).offset == 1
        assert cluster.values("orders") == [b"1", b"2"]


@pytest.mark.usefixtures("no_lag")
async def test_an_unknown_topic_and_an_unknown_partition_are_reported() -> None:
    async with memory_cluster() as cluster, Producer(cluster.bootstrap, linger_ms=0) as producer:
        with pytest.raises(UnknownTopicOrPartition, match="nothing"):
            await producer.send("nothing", b"1")
        with pytest.raises(InvalidRequest, match="await partitions"):
            producer.send_nowait("nothing", b"1")
        cluster.create("orders")
        with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 0; partition 1 does not exist: use an"):
            await producer.send("orders", b"1", partition=1)


async def test_a_new_topic_is_waited_for() -> None:
    async with memory_cluster() as cluster, Producer(cluster.bootstrap, linger_ms=0) as producer:
        soon = start(producer.send("orders", b"1"))
        await CLOCK.sleep_ms(150)
        cluster.create("orders")
        assert (await soon).offset == 0


async def test_no_node_at_all_names_every_address() -> None:
    async with Producer("127.0.0.1:1,127.0.0.1:2", max_block_ms=300) as producer:
        with pytest.raises(ConnectionFailed, match=r"2 queried.*127\.0\.0\.1:[12]"):
            await producer.send("orders", b"1")


async def test_leaving_the_block_sends_queued_records() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=60_000) as producer:
            delivery = await producer.enqueue("orders", b"1")
            assert not delivery.done()
        assert delivery.result().offset == 0
        with pytest.raises(InvalidRequest, match="closed"):
            await producer.send("orders", b"2")


async def test_closing_without_a_flush_fails_the_waiting_records() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        producer = Producer(cluster.bootstrap, linger_ms=60_000)
        await producer.start()
        delivery = await producer.enqueue("orders", b"1")
        await producer.close(flush=False)
        with pytest.raises(DeliveryTimedOut, match="closed before it was sent: it was waiting for its turn"):
            await delivery


@pytest.mark.parametrize("turns", range(5))
async def test_closing_without_a_flush_is_no_defect_while_a_stream_is_about_to_send(turns: int) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        producer = Producer(cluster.bootstrap, linger_ms=0)
        await producer.start()
        await producer.send("orders", b"1")
        delivery = producer.send_nowait("orders", b"2")
        for _ in range(turns):
            await CLOCK.sleep_ms(0)
        await producer.close(flush=False)
        error = delivery.exception()
        assert isinstance(error, CommitUnknown | DeliveryTimedOut)
        with pytest.raises(InvalidRequest, match="is closed"):
            await producer.send("orders", b"3")


class Defective(GrpcTransport):
    """A network that fails with a defect on request."""

    where = ""

    async def call(self, to: Any, method: Any, request: Any, *, timeout_ms: int) -> Any:
        if self.where == "call":
            raise ZeroDivisionError
        return await super().call(to, method, request, timeout_ms=timeout_ms)

    async def open_stream(self, to: Any, method: Any) -> Any:
        if self.where == "stream":
            raise ZeroDivisionError
        return await super().open_stream(to, method)


@pytest.mark.parametrize("where", ["call", "stream"])
async def test_a_defect_ends_the_producer_and_is_raised_by_its_next_call(where: str) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        transport = Defective()
        transport.where = where
        async with Producer(cluster.bootstrap, linger_ms=0, transport=transport) as producer:
            with pytest.raises(TidelogError, match="defect"):
                await producer.send("orders", b"1")
            with pytest.raises(InvalidRequest, match="failed by a defect") as caught:
                await producer.send("orders", b"2")
            assert caught.value.__cause__ is not None


async def test_a_failure_that_no_caller_reads_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "tidelog.producer"):
        async with memory_cluster() as cluster:
            cluster.create("orders")
            cluster.nodes[0].on_produce = lambda entry: InvalidRecord("no key")
            async with Producer(cluster.bootstrap, linger_ms=0) as producer:
                await producer.enqueue("orders", b"1")
    assert "1 records for orders-0 failed and no caller read the error: no key" in caplog.text


async def test_a_recreated_topic_with_more_partitions_is_written_on() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 1)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            await producer.send("orders", b"1")
            cluster.delete("orders")
            cluster.create("orders", 4)
            assert (await producer.send("orders", b"2")).offset == 0
            assert await producer.partitions("orders") == 4
            assert (await producer.send("orders", b"3", partition=3)).partition == 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"value": "text"}, TypeError),
        ({"value": b"", "key": 5}, TypeError),
        ({"value": b"", "headers": [(b"name", b"")]}, TypeError),
        ({"value": b"", "headers": [("name", "text")]}, TypeError),
        ({"value": b"", "timestamp": -5}, InvalidTimestamp),
    ],
)
async def test_an_invalid_record_is_rejected_at_once(arguments: dict[str, Any], error: type[Exception]) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap) as producer:
            with pytest.raises(error):
                await producer.enqueue("orders", **arguments)
            assert producer.buffered_bytes == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"acks": 2}, InvalidRequiredAcks),
        ({"compression": "brotli"}, UnsupportedCompressionType),
        ({"linger_ms": -1}, InvalidConfig),
        ({"batch_bytes": 0}, InvalidConfig),
        ({"linger_ms": 100, "delivery_timeout_ms": 50}, InvalidConfig),
        ({"on_unknown": "forget"}, InvalidConfig),
    ],
)
async def test_options_outside_their_range_are_rejected(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Producer("127.0.0.1:1", **options)


@pytest.mark.parametrize("servers", ["", "host", "host:", ":1", "host:x", "host:0", "a:1,,b:2"])
def test_an_invalid_address_is_rejected(servers: str) -> None:
    with pytest.raises(InvalidConfig, match="host:port"):
        Producer(servers)


async def test_a_delivery_can_be_awaited_by_several_tasks_and_read_later() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            delivery = await producer.enqueue("orders", b"1")
            with pytest.raises(asyncio.InvalidStateError):
                delivery.result()
            called: list[int] = []
            delivery.add_done_callback(lambda done: called.append(done.result().offset))
            both = await asyncio.gather(delivery, delivery)
            assert [result.offset for result in both] == [0, 0]
            delivery.add_done_callback(lambda done: called.append(done.result().offset))
            assert called == [0, 0]


@pytest.mark.parametrize("how", ["break", "lose"])
async def test_an_idempotent_producer_resends_and_each_record_is_written_once(how: str) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        wishes = iter([None, how, how, None, how])
        cluster.nodes[0].on_produce = lambda entry: next(wishes, None)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            assert await producer.partitions("orders") == 1
            assert producer.is_idempotent("orders")
            sent = [await producer.send("orders", str(number).encode()) for number in range(5)]
        assert [result.offset for result in sent] == list(range(5))
        assert cluster.values("orders") == [b"0", b"1", b"2", b"3", b"4"]
        batches = [RecordBatch(data) for data in cluster.topics["orders"].partitions[0].batches]
        assert [(batch.producer_id, batch.producer_epoch, batch.base_sequence) for batch in batches] == [
            (1, 0, sequence) for sequence in range(5)
        ]


async def test_full_batches_keep_their_order_when_a_stream_breaks() -> None:
    """Five batches are in flight when the stream breaks after the second: all are resent, each is written once."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        count = 0

        def third_loses(entry: object) -> object:
            nonlocal count
            count += 1
            return "lose" if count % 3 == 0 else None

        cluster.nodes[0].on_produce = third_loses
        async with Producer(cluster.bootstrap, batch_bytes=1_500, linger_ms=0, retry_backoff_ms=5) as producer:
            deliveries = [await producer.enqueue("orders", f"{number}".encode().ljust(200)) for number in range(200)]
            await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(200))
        assert [int(value or b"") for value in cluster.values("orders")] == list(range(200))


async def test_a_silent_leader_keeps_an_idempotent_producer_waiting_no_longer_than_the_delivery_timeout() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(
            cluster.bootstrap, linger_ms=0, request_timeout_ms=600, delivery_timeout_ms=3_000
        ) as producer:
            await producer.send("orders", b"1")
            cluster.nodes[0].on_produce = lambda entry: SILENCE
            with pytest.raises(CommitUnknown, match="did not answer"):
                await producer.send("orders", b"2")
            cluster.nodes[0].on_produce = lambda entry: None
            assert (await producer.send("orders", b"3")).offset == 1
        last = RecordBatch(cluster.topics["orders"].partitions[0].batches[-1])
        assert (last.producer_epoch, last.base_sequence) == (1, 0), "the sequence of 2 is never used again"


async def test_the_producer_reports_where_idempotence_is_not_possible(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tidelog.producer"):
        async with memory_cluster() as cluster:
            cluster.create("old", configs={"message.format": "v1"})
            cluster.create("orders")
            async with Producer(cluster.bootstrap, linger_ms=0) as producer:
                with pytest.raises(InvalidRequest, match="await partitions"):
                    producer.is_idempotent("old")
                await producer.send("old", b"1")
                await producer.send("orders", b"1")
                assert (producer.is_idempotent("old"), producer.is_idempotent("orders")) == (False, True)
            async with Producer(cluster.bootstrap, linger_ms=0, acks=1) as producer:
                await producer.send("orders", b"2")
                assert not producer.is_idempotent("orders")
            ids = [
                RecordBatch(cluster.topics[topic].partitions[0].batches[-1]).producer_id for topic in ("old", "orders")
            ]
            assert ids == [-1, -1]
    assert "topic 'old' has message.format=v1: its records are sent without idempotence" in caplog.text
    assert "acks=1: records are sent without idempotence" in caplog.text


async def test_a_producer_id_comes_from_any_node_that_has_one() -> None:
    async with memory_cluster(3) as cluster:
        cluster.create("orders")
        for node in cluster.nodes[:2]:
            node.on_init_producer_id = lambda request: NodeNotAvailable("not registered yet")
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            assert (await producer.send("orders", b"1")).offset == 0
