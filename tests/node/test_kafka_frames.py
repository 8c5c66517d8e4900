"""Frames of Kafka's protocol: their order, their limits, and bytes that are none."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from bisect import bisect_left
from contextlib import suppress

import pytest

from node.boundary.boundary import Boundary
from node.listeners.kafka import connection_log, kafka_connection
from node.listeners.kafka.exchange import ELEMENTS_MAX, ERROR_TEXT_MAX, HEADER_BYTES_MIN
from node.listeners.kafka.frame_budget import SMALL_BYTES
from node.listeners.kafka.kafka_connection import PIPELINED_MAX
from node.runtime.request_meter import BOUNDS_MS, RequestMeters
from tests.node.kafka_frames import (
    API_VERSIONS,
    FETCH,
    FRAME_BYTES_MAX,
    METADATA,
    PRODUCE,
    Throttling,
    both_ways,
    decoded,
    fetch,
    framed,
    kafka_listener,
    metadata,
    produce,
    request_frame,
)
from tidelog.errors import (
    InvalidRequest,
    NodeNotAvailable,
    NodeShuttingDown,
    RequestTimedOut,
    TidelogError,
    UnknownServerError,
)


def api_versions(version: int, name: str = "librdkafka", correlation_id: int = 1) -> bytes:
    module = both_ways("ApiVersionsRequest").module
    software = {"client_software_name": name, "client_software_version": "1.0"} if version >= 3 else {}
    return request_frame("ApiVersions", version, module.ApiVersionsRequest(**software), correlation_id)


# --- ApiVersions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
async def test_clients_learn_what_is_offered(version: int) -> None:
    """librdkafka before 2.11.1 compresses nothing unless Produce 0 is announced (KAFKA-18659), and its 2.6.0 sends
    Fetch 12 whatever is announced. The rest is as in Kafka 4.1."""
    async with kafka_listener() as listener:
        client = await listener.connect()
        client.send(api_versions(version, correlation_id=7))
        correlation_id, answer = decoded("ApiVersions", version, await client.receive(), plain=True)
        offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert (correlation_id, answer.error_code) == (7, 0)
        assert (offered[PRODUCE], offered[FETCH], offered[METADATA], offered[API_VERSIONS]) == (
            (0, 13),
            (4, 18),
            (0, 13),
            (0, 4),
        )
        assert list(offered) == sorted(offered)


@pytest.mark.parametrize("version", range(5))
async def test_transactions_of_version_2_are_announced_when_every_node_serves_them(version: int) -> None:
    """Whatever a node serves itself: a client that used them at a node of an earlier version would lose records."""
    level = 0
    async with kafka_listener(feature_level=lambda: level) as listener:
        client = await listener.connect()
        finalized: dict[int, tuple[int, list[tuple[str, int, int]]]] = {}
        for level in (0, 5, 6):
            client.send(api_versions(version))
            _, answer = decoded("ApiVersions", version, await client.receive(), plain=True)
            named = [(each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features]
            finalized[level] = (answer.finalized_features_epoch, named)
            # Clients of version 3 cannot read a lowest level of 0 (KAFKA-17011).
            supported = [(each.name, each.min_version, each.max_version) for each in answer.supported_features]
            assert supported == ([("transaction.version", 0, 2)] if version >= 4 else [])
    known = version >= 3
    assert finalized == {
        0: (-1, []),
        5: (5, [("transaction.version", 1, 1)]) if known else (-1, []),
        6: (6, [("transaction.version", 2, 2)]) if known else (-1, []),
    }


async def test_a_version_that_is_too_new_is_answered_in_version_0() -> None:
    """The client asks again with a version of the range (KIP-511); nothing behind the head of its request is read."""
    async with kafka_listener() as listener:
        client = await listener.connect()
        client.send(framed(struct.pack(">hhi", API_VERSIONS, 9, 5) + b"\xff\xff\xff\xff\xff"), api_versions(4))
        correlation_id, answer = decoded("ApiVersions", 0, await client.receive(), plain=True)
        assert (correlation_id, answer.error_code) == (5, 35)
        assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 4)]
        assert decoded("ApiVersions", 4, await client.receive(), plain=True)[1].error_code == 0


async def test_the_name_of_a_client_that_is_none_is_refused() -> None:
    async with kafka_listener() as listener:
        client = await listener.connect()
        client.send(api_versions(3, name="a b"))
        assert decoded("ApiVersions", 3, await client.receive(), plain=True)[1].error_code == 42


# --- order --------------------------------------------------------------------------------------------------------


async def test_requests_are_handled_one_after_another() -> None:
    """As in Kafka: a client may rely on the effect of its last request."""
    async with kafka_listener() as listener:
        first = listener.service.holds["first"] = asyncio.Event()
        client = await listener.connect()
        client.send(metadata("first", correlation_id=1), metadata("second", correlation_id=2))
        client.send(api_versions(0, correlation_id=3))
        await listener.service.until_begun(1)
        other = await listener.connect()  # is not delayed
        other.send(metadata("third", correlation_id=4))
        assert await other.correlation_id() == 4
        assert [request.topics for request in listener.service.begun] == [("first",), ("third",)]
        first.set()
        assert [await client.correlation_id() for _ in range(3)] == [1, 2, 3]


async def test_produce_requests_are_handled_together_and_answered_in_order() -> None:
    """Five of them may wait for acknowledgements at once; the sixth is begun when the first is answered."""
    async with kafka_listener() as listener:
        values = [b"%d" % number for number in range(PIPELINED_MAX + 1)]
        listener.service.holds = {value: asyncio.Event() for value in values}
        client = await listener.connect()
        client.send(*(produce(value, correlation_id=number) for number, value in enumerate(values)))
        client.send(metadata("after", correlation_id=99))
        await listener.service.until_begun(PIPELINED_MAX)
        for value in reversed(values[1:PIPELINED_MAX]):
            listener.service.holds[value].set()
        await listener.until(lambda: len(listener.state.tasks) == 1)
        assert len(listener.service.begun) == PIPELINED_MAX
        listener.service.holds[values[0]].set()
        assert [await client.correlation_id() for _ in range(PIPELINED_MAX)] == [0, 1, 2, 3, 4]
        await listener.service.until_begun(PIPELINED_MAX + 1)
        listener.service.holds[values[-1]].set()
        assert [await client.correlation_id() for _ in range(2)] == [PIPELINED_MAX, 99]


async def test_acks_0_has_no_answer_and_its_failure_ends_the_connection() -> None:
    async with kafka_listener() as listener:
        client = await listener.connect()
        client.send(produce(b"a", acks=0, correlation_id=1), metadata("topic", correlation_id=2))
        assert await client.correlation_id() == 2
        listener.service.error = UnknownServerError("no")
        client.send(produce(b"b", acks=0, correlation_id=3), metadata("topic", correlation_id=4))
        assert await client.is_closed()


async def test_a_throttled_client_is_answered_at_once_and_then_not_read() -> None:
    """KIP-219: librdkafka does not look at the time in the answer."""
    async with kafka_listener(Throttling()) as listener:
        client, loop = await listener.connect(), asyncio.get_running_loop()
        requests, sent_s = (metadata("first", correlation_id=1), metadata("second", correlation_id=2)), loop.time()
        client.send(*requests)
        first = await client.receive()
        assert len(listener.service.begun) == 1
        assert await client.correlation_id() == 2
        assert loop.time() - sent_s >= Throttling.throttle_ms / 1_000
        assert decoded("Metadata", 9, first)[1].throttle_time_ms == Throttling.throttle_ms


async def test_a_request_that_is_refused_as_a_whole_has_an_answer() -> None:
    async with kafka_listener() as listener:
        listener.service.error = RequestTimedOut("the node is busy")
        client = await listener.connect()
        client.send(fetch(version=12), fetch(version=6), produce(b"a"))
        assert decoded("Fetch", 12, await client.receive())[1].error_code == 7
        (topic,) = decoded("Fetch", 6, await client.receive())[1].responses
        assert [(each.error_code, each.records) for each in topic.partitions] == [(7, b"")]
        (topic,) = decoded("Produce", 9, await client.receive())[1].responses
        assert [each.error_code for each in topic.partition_responses] == [7]
        client.send(metadata("topic"))  # whose answer has no error before version 13
        assert await client.is_closed()


async def test_an_error_that_quotes_a_long_name_is_cut() -> None:
    """The text of an error is a string of Kafka's, which has less room than a request: the answer could not be written,
    and the request was taken for a defect."""
    async with kafka_listener() as listener:
        listener.service.error = InvalidRequest(f"topic {'x' * 40_000}: no")
        client = await listener.connect()
        client.send(produce(b"a", version=8))
        _, answer = decoded("Produce", 8, await client.receive())
        [topic] = answer.responses
        [partition] = topic.partition_responses
        assert partition.error_code == InvalidRequest.code
        assert len(partition.error_message) == ERROR_TEXT_MAX


@pytest.mark.parametrize("error", [NodeShuttingDown("the node is stopping"), NodeNotAvailable("the node is starting")])
async def test_a_node_that_stops_or_starts_ends_the_connection(error: TidelogError) -> None:
    """A client finds another node then; an error for each partition would only delay it, or end a transaction."""
    async with kafka_listener() as listener:
        listener.service.error = error
        client = await listener.connect()
        client.send(produce(b"a"))
        assert await client.is_closed()


async def test_stopping_answers_what_was_begun() -> None:
    async with kafka_listener() as listener:
        held = listener.service.holds["held"] = asyncio.Event()
        client = await listener.connect()
        client.send(metadata("held", correlation_id=1), metadata("never", correlation_id=2))
        await listener.service.until_begun(1)
        stopping = asyncio.get_running_loop().create_task(listener.server.stop(10_000))
        await listener.until(listener.is_stopping)
        held.set()
        assert await client.correlation_id() == 1
        assert await client.is_closed()
        await stopping
        assert len(listener.service.begun) == 1


async def test_a_producer_with_a_transactional_id_asks_another_service() -> None:
    """Which has its own permission and its own metrics: the body tells, before the boundary decides."""
    module = both_ways("InitProducerIdRequest").module
    async with kafka_listener() as listener:
        client = await listener.connect()
        for name in (None, "t1"):
            client.send(request_frame("InitProducerId", 4, module.InitProducerIdRequest(name, 1_000)))
            assert decoded("InitProducerId", 4, await client.receive())[1].producer_id == 12
        assert [context.meter.api for context in listener.service.contexts] == [
            "Data.InitProducerId",
            "Transactions.InitProducerId",
        ]
        client.send(framed(struct.pack(">hhih", 22, 0, 1, -1) + struct.pack(">h", 100) + b"cut"))
        assert await client.is_closed()
        assert listener.state.budget.used == 0


async def test_a_throttled_answer_may_have_no_field_that_says_so() -> None:
    """That of brokers to each other, which operators get for the abort of a transaction."""
    module = both_ways("WriteTxnMarkersRequest").module
    topics = (module.WritableTxnMarkerTopic("orders", (0,)),)
    marker = module.WritableTxnMarker(12, 3, transaction_result=False, topics=topics, coordinator_epoch=0)
    async with kafka_listener(Throttling()) as listener:
        client = await listener.connect()
        client.send(request_frame("WriteTxnMarkers", 1, module.WriteTxnMarkersRequest((marker,))))
        (written,) = decoded("WriteTxnMarkers", 1, await client.receive())[1].markers
        assert written.producer_id == 12


async def test_the_client_and_its_address_reach_the_handlers() -> None:
    async with kafka_listener() as listener:
        client = await listener.connect()
        client.send(request_frame("Metadata", 1, both_ways("MetadataRequest").module.MetadataRequest(()), 1, "x" * 300))
        await client.receive()
        (context,) = listener.service.contexts
        assert (context.listener, context.host, context.client_id) == ("kafka", "127.0.0.1", "x" * 255)
        assert not context.for_nodes


async def test_a_client_may_change_its_id_with_each_request() -> None:
    """A connection remembers the last header of plain and of flexible versions, if it is short."""
    sent = [(version, name) for name in ("a", "ab", "x" * 600, "a", "") for version in (1, 9, 1, 9)]
    async with kafka_listener() as listener:
        client = await listener.connect()
        message = both_ways("MetadataRequest").module.MetadataRequest(())
        for number, (version, name) in enumerate(sent):
            client.send(request_frame("Metadata", version, message, number, name))
            assert await client.correlation_id() == number
        assert [context.client_id for context in listener.service.contexts] == [name[:255] for _, name in sent]
        (connection,) = listener.state.connections
        assert max(map(len, connection._client_headers)) < 600


# --- bytes --------------------------------------------------------------------------------------------------------


async def test_a_request_may_come_byte_by_byte_and_have_bytes_behind_its_body() -> None:
    """librdkafka leaves three bytes behind the body when it asks for all topics."""
    async with kafka_listener() as listener:
        client = await listener.connect()
        request = metadata("topic", correlation_id=3)[4:] + b"\0\0\0"
        for byte in framed(request):
            client.send(bytes([byte]))
            await client.writer.drain()
        assert await client.correlation_id() == 3


@pytest.mark.parametrize("size", [-(2**31), -1, 0, HEADER_BYTES_MIN - 1, FRAME_BYTES_MAX + 1, 2**31 - 1])
async def test_a_size_that_no_request_has_closes_the_connection(size: int) -> None:
    async with kafka_listener() as listener:
        client = await listener.connect()
        client.send(struct.pack(">i", size))
        assert await client.is_closed()
        assert listener.state.budget.used == 0


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (-1, 0),
        (4, 0),
        (32_767, 0),
        (PRODUCE, 2),
        (PRODUCE, 14),
        (FETCH, 3),
        (FETCH, 19),
        (METADATA, 14),
        (METADATA, -1),
    ],
)
async def test_a_request_that_is_not_offered_closes_the_connection(key: int, version: int) -> None:
    """As in Kafka, Produce 0 to 2 too, which is announced for the sake of librdkafka alone."""
    async with kafka_listener() as listener:
        client = await listener.connect()
        client.send(framed(struct.pack(">hhih", key, version, 1, -1) + b"\0" * 50))
        assert await client.is_closed()
        assert listener.service.begun == []


@pytest.mark.parametrize("kept", [1, 4, 12, 20, -1])
async def test_a_connection_that_ends_within_a_request_leaves_nothing(kept: int) -> None:
    async with kafka_listener() as listener:
        client = await listener.connect()
        client.send(produce(b"a" * 1_000)[:kept])
        await listener.until(lambda: listener.state.connections)
        client.writer.close()
        await listener.until(lambda: not listener.state.connections)
        assert (listener.state.budget.used, listener.state.tasks) == (0, set())


async def test_a_connection_that_ends_cancels_its_requests() -> None:
    async with kafka_listener() as listener:
        listener.service.holds["held"] = asyncio.Event()
        client = await listener.connect()
        client.send(metadata("held"))
        await listener.service.until_begun(1)
        client.writer.close()
        await listener.until(lambda: not listener.state.tasks)
        assert (listener.state.budget.used, len(listener.service.begun)) == (0, 1)


async def test_requests_wait_for_memory_in_the_order_in_which_they_came() -> None:
    """Two requests of the largest size fill the memory. A smaller one waits behind a third, and is not lost. One that
    is small is served."""
    async with kafka_listener() as listener:
        held = [b"%d" % number + b"x" * (FRAME_BYTES_MAX - 1_000) for number in range(3)]
        smaller = b"y" * SMALL_BYTES
        listener.service.holds = {value: asyncio.Event() for value in held[:2]}
        budget, clients = listener.state.budget, [await listener.connect() for _ in range(5)]
        for client, value in zip(clients, held, strict=False):
            client.send(produce(value))
            await listener.until(lambda: budget.used or budget.is_short(FRAME_BYTES_MAX))
        await listener.service.until_begun(2)
        await listener.until(lambda: listener.state.budget.is_short(FRAME_BYTES_MAX))
        clients[3].send(produce(smaller))
        used = listener.state.budget.used
        await listener.until(lambda: len(listener.state.budget._large._waiting) == 2)
        assert listener.state.budget.used == used <= listener.state.budget.bytes_max
        clients[4].send(metadata("small", correlation_id=9))
        assert await clients[4].correlation_id() == 9
        listener.service.holds[held[0]].set()
        assert await clients[2].correlation_id() == await clients[3].correlation_id() == 1
        assert len(listener.service.begun) == 5


async def test_a_slow_sender_does_not_keep_memory_that_others_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_connection, "FRAME_MS", 0)
    async with kafka_listener() as listener:
        slow = [await listener.connect() for _ in range(2)]
        for client in slow:
            client.send(struct.pack(">i", FRAME_BYTES_MAX))
        await listener.until(lambda: listener.state.budget.used == 2 * FRAME_BYTES_MAX)
        for connection in list(listener.state.connections):
            connection.check()
        assert len(listener.state.connections) == 2, "nobody waits"
        client = await listener.connect()
        client.send(produce(b"x" * (FRAME_BYTES_MAX - 1_000), correlation_id=8))
        await listener.until(lambda: listener.state.budget.is_short(FRAME_BYTES_MAX))
        for connection in list(listener.state.connections):
            connection.check()
        assert [await each.is_closed() for each in slow] == [True, True]
        assert await client.correlation_id() == 8


async def test_nothing_is_begun_for_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that a client does not take would pile up. In the end its connection is closed."""
    async with kafka_listener() as listener:
        listener.service.records = bytes(32 << 20)
        client = await listener.connect()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.send(*(fetch(correlation_id=number) for number in range(3)))
        await listener.service.until_begun(1)
        (connection,) = listener.state.connections
        await listener.until(lambda: connection.is_busy and not listener.state.tasks)
        assert connection._transport.get_write_buffer_size() > 16 << 20, "a copy of the records"
        assert listener.service.contexts[-1].answer_copies == 2
        connection.check()
        assert (len(listener.service.begun), len(listener.state.connections)) == (1, 1)
        monkeypatch.setattr(kafka_connection, "UNREAD_ANSWER_MS", 0)
        monkeypatch.setattr(kafka_connection, "SLOW_READER_MS", 0)
        connection.check()
        await listener.until(lambda: not listener.state.connections)


async def test_the_time_until_an_answer_has_left_is_measured() -> None:
    """Also while it waits for its turn: that is the answer's time, and not the handler's."""
    now_ms = 0
    boundary = Boundary(RequestMeters(lambda: now_ms * 1_000_000))
    async with kafka_listener(boundary) as listener:
        first = listener.service.holds[b"first"] = asyncio.Event()
        produced, fetched = boundary.meters.of("Data.Produce"), boundary.meters.of("Data.Fetch")
        client = await listener.connect()
        client.send(produce(b"first"), produce(b"second"))
        await listener.until(lambda: produced.answered == 1)
        now_ms = 30
        first.set()
        await client.receive()
        await client.receive()
        assert produced.send_ns == 30_000_000

        listener.service.records = bytes(32 << 20)
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.send(fetch())
        await listener.until(lambda: fetched.answered == 1 and not listener.state.tasks)
        now_ms = 100
        assert fetched.send_ns == 0
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        await client.receive()
        await listener.until(lambda: fetched.send_ns)
        assert fetched.send_ns == 70_000_000


async def test_the_time_in_which_a_request_waits_for_the_ones_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its own name, and as part of its total time; what it waits because its client is throttled is neither."""
    now_ms = 0
    boundary = Throttling(RequestMeters(lambda: now_ms * 1_000_000))
    async with kafka_listener(boundary) as listener:
        held = listener.service.holds["held"] = asyncio.Event()
        meter = boundary.meters.of("Admin.GetMetadata")
        client = await listener.connect()
        client.send(metadata("held"), metadata("next"))
        await listener.until(lambda: any(each._frames for each in listener.state.connections))
        (connection,) = listener.state.connections
        now_ms = 40
        held.set()
        await client.receive()
        await listener.until(lambda: connection._unmuting is not None)
        assert meter.queue_ns == 0
        now_ms = 70
        await client.receive()
        assert meter.queue_ns == 0, "it was throttled meanwhile"
        assert (meter.remote_ns, meter.times[bisect_left(BOUNDS_MS, 40)]) == (40_000_000, 1)

        monkeypatch.setattr(Throttling, "throttle_ms", 0)
        await listener.until(lambda: connection._unmuting is None)
        held.clear()
        client.send(metadata("held"), metadata("next"))
        await listener.until(lambda: connection._frames)
        now_ms = 170
        held.set()
        await client.receive()
        await client.receive()
        assert meter.queue_ns == 100_000_000
        assert meter.times[bisect_left(BOUNDS_MS, 100)] == 2, "that is the time of the second one, too"


async def test_the_time_in_which_a_request_waits_for_memory_is_measured() -> None:
    now_ms = 0
    boundary = Boundary(RequestMeters(lambda: now_ms * 1_000_000))
    async with kafka_listener(boundary) as listener:
        large = bytes(FRAME_BYTES_MAX - 1_000)
        held = listener.service.holds[large] = asyncio.Event()
        produced = boundary.meters.of("Data.Produce")
        clients = [await listener.connect() for _ in range(3)]
        for number, client in enumerate(clients):
            client.send(produce(large))
            await listener.service.until_begun(min(number + 1, 2))
        await listener.until(lambda: listener.state.budget.is_short(FRAME_BYTES_MAX))
        now_ms = 30
        held.set()
        for client in clients:
            await client.receive()
        assert produced.queue_ns == 30_000_000


async def test_idle_connections_are_closed() -> None:
    async with kafka_listener() as listener:
        held = listener.service.holds["held"] = asyncio.Event()
        busy, idle = await listener.connect(), await listener.connect()
        busy.send(metadata("held"))
        await listener.service.until_begun(1)
        await listener.until(lambda: len(listener.state.connections) == 2)
        listener.state.idle_ms_max = 0
        for connection in list(listener.state.connections):
            connection.check()
        assert await idle.is_closed()
        held.set()
        assert await busy.correlation_id() == 1


async def test_further_connections_than_allowed_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with kafka_listener(connections_max=2) as listener:
        clients = [await listener.connect() for _ in range(2)]
        await listener.until(lambda: len(listener.state.connections) == 2)
        for _ in range(3):
            assert await (await listener.connect()).is_closed()
        clients[0].send(metadata("topic"))
        assert await clients[0].correlation_id() == 1
    (said,) = caplog.messages
    assert "2 are open, as many as max.connections" in said


async def test_a_port_scan_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Each cause has one line for an address in a minute. The others are counted."""
    caplog.set_level("INFO", "node.requests")
    async with kafka_listener() as listener:

        async def must_be_refused(*frames: bytes) -> None:
            client = await listener.connect()
            client.send(*frames)
            while not await client.is_closed():
                pass

        for _ in range(30):
            await must_be_refused(b"GET / HTTP/1.1\r\n\r\n")
        listener.service.error = NodeNotAvailable("starting")
        await must_be_refused(metadata("topic"))
        scan, other = caplog.messages
        assert scan.startswith("listener 'kafka': closing the connection of 127.0.0.1:")
        assert "(User:ANONYMOUS, client id '', no request): it sent a request of 1195725856 bytes" in scan
        assert "(User:ANONYMOUS, client id 'c', last request Admin.GetMetadata): starting" in other
        listener.state.log._window_ends = 0.0
        listener.state.log.turn()
        assert caplog.messages[2:] == [
            "listener 'kafka': 29 more connections were closed (29: it sent no request that is offered)"
        ]


async def test_lines_about_many_addresses_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "node.requests")
    log = connection_log.ConnectionLog("kafka")
    for number in range(1_000):
        log.closed("it is idle", f"10.0.0.{number}", "closing")
    assert len(caplog.messages) == connection_log.LINES_MAX
    for number in range(3):
        log.closed("too many connections", "", f"closing all further ones, {number}", level=logging.WARNING)
    assert caplog.messages[-1] == "listener 'kafka': closing all further ones, 0", "a warning has its line even so"
    assert len(caplog.messages) == connection_log.LINES_MAX + 1


@pytest.mark.parametrize(
    ("begin", "says"),
    [
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "it sent gRPC, as clients of Tidelog do: they have a listener of their own",
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "it sent TLS, and the listener is in plain text"),
        (b"\x7f\xff\xff\xff", "it sent a request of 2147483647 bytes"),
    ],
)
async def test_the_log_tells_a_client_of_another_protocol(
    begin: bytes, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients of Tidelog had the port of Kafka's before, and take a reset connection for a node that is down."""
    caplog.set_level("INFO", "node.requests")
    async with kafka_listener() as listener:
        client = await listener.connect()
        client.send(begin)
        assert await client.is_closed()
    assert [says in line for line in caplog.messages if "closing the connection" in line] == [True]


async def test_a_small_request_does_not_become_a_large_one() -> None:
    """A list of a hundred thousand names of no character is refused; each would be an object."""
    async with kafka_listener() as listener:
        client = await listener.connect()
        client.send(metadata(*[""] * (ELEMENTS_MAX + 1)))
        assert await client.is_closed()
        assert listener.service.begun == []


async def test_bytes_that_are_no_request_harm_nobody_else() -> None:
    """A thousand requests with a few bytes changed: each has an answer or closes its own connection."""
    rng = random.Random(1)
    async with kafka_listener() as listener:
        good = await listener.connect()
        requests = [metadata("a", "b"), fetch(), produce(b"batch"), api_versions(3), metadata("a", version=1)]
        for number in range(1_000):
            damaged = bytearray(rng.choice(requests)[4:])
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            client = await listener.connect()
            client.send(framed(bytes(damaged[: rng.randint(HEADER_BYTES_MIN, len(damaged))])), api_versions(0))
            with suppress(ConnectionError):
                await client.reader.read(4)
            client.writer.close()
            if number % 100 == 0:
                good.send(metadata("topic", correlation_id=number))
                assert await good.correlation_id() == number
        await listener.until(lambda: len(listener.state.connections) == 1)
        assert (listener.state.budget.used, listener.state.tasks) == (0, set())
