"""What each request passes between its listener and its handler, over real gRPC and on whole nodes."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from node.api.api import Api
from node.api.caller import Caller
from node.api.table import (
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_GET_METADATA,
    CONTROLLER_ENVELOPE,
    DATA_FETCH_STREAM,
    DATA_PRODUCE,
)
from node.boundary.boundary import REQUEST_BYTES_MAX, Boundary, EncodedAnswer, ProtocolCodec, Request
from node.listeners.grpc.codecs import codec_of
from node.listeners.grpc.server import CLIENT_ID_MAX, ServerStream
from node.quotas.throttle import Quotas
from node.requests.context import RequestContext
from node.requests.gate import Gate
from node.runtime.request_meter import RequestMeter, RequestMeters
from node.runtime.slow_requests import LINES_MAX, WINDOW_NS, SlowRequestLog
from node.security.authorizer import Authorizer
from testbed.message_bytes import bytes_of
from testbed.topic_requests import changed, creating, deleting
from tests.node.boundary_world import Data, batch, create_topic, entry, fetch, listener, produce
from tests.node.message_services import enveloped, messages_of
from tests.node.nanoseconds import Nanoseconds
from tests.node.real_nodes import CALL_MS, RealNodes, real_nodes
from tidelog.errors import (
    InvalidRequest,
    NotLeaderOrFollower,
    SaslAuthenticationFailed,
    TidelogError,
    TopicAuthorizationFailed,
)
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import CLIENT_ID_KEY
from tidelog.protocol.v1 import data_pb2
from tidelog.types import QuotaEntity, QuotaType

MS = 1_000_000


def test_a_caller_that_is_not_authenticated_uses_no_quota() -> None:
    """It could make up a client id for each attempt, and so push out the quotas of clients."""
    quotas = Quotas()
    limits = {QuotaEntity(None, ""): {QuotaType.REQUEST_PERCENTAGE: 1.0}}
    quotas.limits.configure(limits)
    quotas.enabled = True
    boundary = Boundary(quotas=quotas)
    refused = SaslAuthenticationFailed("the session is unknown")

    async def ask(client_id: str, unauthenticated: TidelogError | None) -> None:
        caller = Caller("client", "ipv4:127.0.0.1:1", client_id=client_id, unauthenticated=unauthenticated)
        with pytest.raises(TidelogError):
            await boundary.serve(ADMIN_GET_METADATA, Request(b"\xff", codec_of("Admin.GetMetadata")), caller)

    asyncio.run(ask("made up", refused))
    assert quotas.limits.tracked == 0
    asyncio.run(ask("reader", None))
    assert quotas.limits.tracked == 1, "a malformed request of a client is charged"


class Bytes:
    """The bytes of a request, whose release can be watched."""

    def __len__(self) -> int:
        return 10 if self.small else REQUEST_BYTES_MAX + 1

    def __init__(self, *, small: bool = True) -> None:
        self.small = small


class KeepingCodec:
    """Its values refer to the bytes."""

    tells_throttle = False

    def decode(self, data: Any) -> Any:
        return [data]

    def encode(self, answer: Any, throttle_time_ms: int) -> bytes:
        raise InvalidRequest("the answer is too large")


class RefusingCodec(KeepingCodec):
    def decode(self, data: Any) -> Any:
        try:
            raise ValueError(data)
        except ValueError as error:
            raise InvalidRequest(f"malformed: {error}") from None


class Handlers:
    """Handlers that fail, each with the request in its frames."""

    async def get_metadata(self, asked: Any, _context: RequestContext) -> Any:
        if asked[0].small:
            raise ZeroDivisionError("a defect")

    async def describe_cluster(self, asked: Any, _context: RequestContext) -> Any:
        return asked

    async def fetch_stream(self, stream: Any, _context: RequestContext) -> Any:
        asked = await stream.receive()
        raise InvalidRequest(f"{len(asked)} partitions are too many")


class OneMessage:
    """A stream with one message."""

    def __init__(self, data: Bytes) -> None:
        self.data: list[Bytes] = [data]

    async def receive(self) -> Any:
        return self.data.pop()

    async def accept(self) -> None: ...

    async def settle(self) -> None: ...

    def close(self) -> None: ...

    def send(self, answer: EncodedAnswer, /) -> Any: ...

    def end_of_cancelled(self) -> TidelogError | None: ...


KNOWN = Caller("client", "here")


@pytest.mark.parametrize(
    ("api", "codec", "caller", "small"),
    [
        (ADMIN_GET_METADATA, KeepingCodec(), replace(KNOWN, unauthenticated=SaslAuthenticationFailed("no")), True),
        (CONTROLLER_ENVELOPE, KeepingCodec(), replace(KNOWN, for_nodes=False), True),
        (ADMIN_GET_METADATA, KeepingCodec(), KNOWN, False),
        (ADMIN_GET_METADATA, RefusingCodec(), KNOWN, True),
        (DATA_PRODUCE, KeepingCodec(), KNOWN, True),
        (ADMIN_GET_METADATA, KeepingCodec(), KNOWN, True),
        (ADMIN_DESCRIBE_CLUSTER, KeepingCodec(), KNOWN, True),
        (DATA_FETCH_STREAM, RefusingCodec(), KNOWN, True),
        (DATA_FETCH_STREAM, KeepingCodec(), KNOWN, True),
    ],
    ids=(
        "not authenticated",
        "not a node",
        "too large",
        "malformed",
        "not allowed",
        "defect",
        "too large an answer",
        "malformed message",
        "refused message",
    ),
)
def test_a_refused_request_is_released_with_its_error(
    api: Api[Any, Any], codec: ProtocolCodec, caller: Caller, *, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of refused requests, which may be many and large, do not wait for the garbage collector."""
    monkeypatch.setattr(logging.getLogger("node.requests"), "disabled", True)  # pytest keeps what is logged
    handlers = Handlers()
    gates = {service: Gate(service, handlers) for service in ("Admin", "Data", "Controller")}
    boundary = Boundary(authorizer=NoProducing(), gates=gates)
    data = Bytes(small=small)
    left = weakref.ref(data)

    async def story(data: Bytes) -> None:
        if api.is_stream:
            asking: Any = boundary.serve_stream(api, OneMessage(data), codec, caller)
        else:
            asking = boundary.serve(api, Request(data, codec), caller)
        del data
        with pytest.raises(TidelogError) as raised:
            await asking
        del raised, asking

    gc.disable()
    try:
        task = story(data)
        del data
        asyncio.run(task)
        del task
        assert left() is None
    finally:
        gc.enable()


class NoProducing(Authorizer):
    """Refuses everything that writes records."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def ensure_allowed(self, caller: Caller, api: Api[Any, Any], asked: Any) -> None:
        self.asked.append((caller.principal, api.name))
        if api.name.startswith("Data.Produce"):
            raise TopicAuthorizationFailed(f"{caller.principal} may not write")


async def test_a_rejected_request_leaves_the_log_unchanged_and_its_caller_gets_the_reason(tmp_path: Path) -> None:
    async with real_nodes(tmp_path) as nodes:
        topic_id = await create_topic(nodes)
        await nodes.call(0, methods.DATA_PRODUCE, produce(entry(topic_id, batch(b"a"))))
        running = nodes.nodes[0].node
        assert running.replicas is not None
        partition = running.replicas.registry.find(topic_id, 0)
        assert partition is not None
        boundary = Boundary(authorizer=NoProducing())
        async with listener(running.services["Data"], boundary) as (transport, address):
            with pytest.raises(TopicAuthorizationFailed, match="User:ANONYMOUS may not write"):
                await transport.call(
                    address, methods.DATA_PRODUCE, produce(entry(topic_id, batch(b"b"))), timeout_ms=CALL_MS
                )
            stream = await transport.open_stream(address, methods.DATA_PRODUCE_STREAM)
            await stream.send(produce(entry(topic_id, batch(b"c"))))
            with pytest.raises(TopicAuthorizationFailed):
                await stream.receive()
            read = await transport.call(address, methods.DATA_FETCH, fetch(topic_id, 0), timeout_ms=CALL_MS)
            assert len(read.partitions[0].records) > 0, "reading is allowed"
        assert partition.log.log_end_offset == 1
        assert partition.topic_meter.messages_in == 1
        assert boundary.meters.of("Data.Produce").errors == {"TOPIC_AUTHORIZATION_FAILED": 1}
        assert boundary.meters.of("Data.ProduceStream").failed == {"TOPIC_AUTHORIZATION_FAILED": 1}
        assert list(boundary.meters.of("Data.ProduceStream").streams_ended) == ["TOPIC_AUTHORIZATION_FAILED"]


async def test_requests_and_topics_are_counted_exactly(tmp_path: Path) -> None:
    """Each message of a stream is a request, each entry's error is counted by code, a deleted topic's meter goes."""
    async with real_nodes(tmp_path) as nodes:
        topic_id = await create_topic(nodes, **{"max.message.bytes": "5000"})
        good, large, to = batch(b"a", b"b"), batch(b"x" * 9_000), nodes.addresses[0]
        sent = [
            produce(entry(topic_id, good)),
            produce(entry(topic_id, good), entry(topic_id, large), entry(topic_id, good, partition=7)),
            produce(entry(topic_id, good), acks=1),
            produce(entry(topic_id, good), acks=0),
        ]
        stream = await nodes.transport.open_stream(to, methods.DATA_PRODUCE_STREAM)
        for request in sent:
            await stream.send(request)
        answers, received = 0, 0
        while answers < 5:
            response = await stream.receive()
            assert response is not None
            answers += len(response.partitions)
            received += response.ByteSize()
        meters = nodes.nodes[0].meters
        meter = meters.of("Data.ProduceStream")
        await nodes.wait_until(lambda: meter.answered == 4 and meter.response_bytes == received)
        assert meter.failed == {}
        assert meter.errors == {"MESSAGE_TOO_LARGE": 1, "UNKNOWN_TOPIC_OR_PARTITION": 1}
        assert meter.request_bytes == sum(len(bytes_of(request)) for request in sent)
        assert sum(meter.times) == 4
        assert meter.streams_open == 1
        stream.close()
        await nodes.wait_until(lambda: meter.streams_open == 0)

        call = meters.of("Data.Produce")
        await nodes.call(0, methods.DATA_PRODUCE, produce(entry(topic_id, good), entry(topic_id, large)))
        assert (call.answered, call.errors, sum(call.times)) == (1, {"MESSAGE_TOO_LARGE": 1}, 1)

        fetching = await nodes.transport.open_stream(to, methods.DATA_FETCH_STREAM)
        read = 0
        await fetching.send(fetch(topic_id, 0))
        await fetching.send(fetch(topic_id, 99))
        outcomes: list[bool] = []
        while len(outcomes) < 2:
            fetched = await fetching.receive()
            assert fetched is not None
            outcomes += [each.error is None for each in fetched.partitions]
            read += sum(len(each.records) for each in fetched.partitions)
        fetch_meter = meters.of("Data.FetchStream")
        refused = outcomes.count(False)
        assert refused >= 1
        assert fetch_meter.answered == 2
        assert fetch_meter.errors == {"OFFSET_OUT_OF_RANGE": refused}
        fetching.close()

        replicas = nodes.nodes[0].node.replicas
        assert replicas is not None
        [(name, topic)] = replicas.topics
        assert name == "orders"
        assert (topic.messages_in, topic.bytes_in) == (10, 5 * len(good))
        assert topic.bytes_rejected == 2 * len(large)
        assert (topic.failed_produces, topic.failed_fetches) == (2, refused)
        assert (topic.bytes_out, topic.conversions) == (read, 0)
        changed(await nodes.call(0, methods.ADMIN_DELETE_TOPICS, deleting(topic_id=topic_id)))
        await nodes.wait_until(lambda: list(replicas.topics) == [])


async def test_a_context_contains_the_caller_and_its_deadline() -> None:
    service = Data(Nanoseconds())
    meters = RequestMeters(itertools.count().__next__)
    async with (
        listener(Gate("Data", service), Boundary(meters), messages_of) as (_, address),
        grpc.aio.insecure_channel(str(address)) as channel,
    ):
        call: Any = channel.unary_unary(methods.DATA_PRODUCE.path)
        request = bytes_of(produce())
        await call(request, metadata=((CLIENT_ID_KEY, "loader-7"),), timeout=60)
        context = service.context
        assert context is not None
        assert (context.listener, context.client_id) == ("client", "loader-7")
        assert context.connection.startswith("ipv4:127.0.0.1:")
        assert context.deadline_ms is not None
        assert 0 < context.deadline_ms <= 61_000, "gRPC rounds it up"
        await call(request)
        assert service.context is not None
        assert (service.context.client_id, service.context.deadline_ms) == ("", None)
        open_stream: Any = channel.stream_stream(methods.DATA_PRODUCE_STREAM.path)
        stream = open_stream(metadata=((CLIENT_ID_KEY, "x" * 300),))
        await stream.write(request)
        assert await stream.read() == b""
        assert service.context.client_id == "x" * CLIENT_ID_MAX
    assert meters.of("Data.Produce").send_ns > 0


async def test_a_slow_request_is_logged_once_and_waiting_as_asked_is_not_slow(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "node.slow_requests"):
        clock = Nanoseconds()
        boundary = Boundary(RequestMeters(clock, SlowRequestLog(20, clock)))
        async with listener(Gate("Data", Data(clock)), boundary, messages_of) as (transport, address):
            waiting = data_pb2.FetchRequest(max_wait_ms=500)
            await transport.call(address, methods.DATA_FETCH, waiting, timeout_ms=CALL_MS)
            await transport.call(address, methods.DATA_PRODUCE, produce(), timeout_ms=CALL_MS)
    [line] = [record.getMessage() for record in caplog.records if record.name == "node.slow_requests"]
    assert line.startswith("slow request Data.Produce from ipv4:127.0.0.1:")
    assert "client id '': 30 ms, of these 30 ms of work and 0 ms of waiting; the threshold is 20 ms" in line
    fetching, producing = boundary.meters.of("Data.Fetch"), boundary.meters.of("Data.Produce")
    assert (fetching.local_ns, fetching.remote_ns) == (0, 501 * MS)
    assert (producing.local_ns, producing.remote_ns) == (30 * MS, 0)


def test_the_slow_log_of_a_burst_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    clock = Nanoseconds()
    slow = SlowRequestLog(20, clock)
    with caplog.at_level(logging.WARNING, "node.slow_requests"):
        for _ in range(LINES_MAX + 5):
            slow.look_at("Data.Fetch", 30 * MS, 0, 0, connection="here", client_id="")
        assert len(caplog.records) == LINES_MAX
        clock.now += WINDOW_NS
        slow.look_at("Data.Fetch", 30 * MS, 0, None, connection="here", client_id="")
        assert len(caplog.records) == LINES_MAX, "it waits without a limit, and its work was short"
        slow.look_at("Data.Fetch", 30 * MS, 25 * MS, None, connection="here", client_id="")
    assert caplog.records[-1].getMessage().endswith("; 5 earlier slow requests were not logged")


def test_no_slow_log_for_a_threshold_of_0(caplog: pytest.LogCaptureFixture) -> None:
    clock = Nanoseconds()
    slow = SlowRequestLog(0, clock)
    request = RequestContext("client", "here", meter=RequestMeter("Data.Fetch", clock, slow)).begin()
    clock.pass_ms(100_000_000)
    with caplog.at_level(logging.WARNING, "node.slow_requests"):
        request.entry_ended()
    assert caplog.records == []


def test_a_message_ends_with_its_last_entry_or_its_failure() -> None:
    clock = Nanoseconds()
    meter = RequestMeter("Data.ProduceStream", clock)
    context = RequestContext("client", "here", meter=meter)
    request = context.begin(entries=2)
    with request:
        clock.pass_ms(2)
        request.entry_ended()
    assert meter.answered == 0
    clock.pass_ms(5)
    request.entry_ended()
    assert (meter.answered, meter.local_ns, meter.remote_ns) == (1, 2 * MS, 5 * MS)
    failing = context.begin(entries=2)
    with pytest.raises(InvalidRequest), failing:
        failing.entry_ended()
        raise InvalidRequest("too many entries")
    failing.entry_ended()
    assert (meter.answered, meter.failed, meter.errors) == (1, {"INVALID_REQUEST": 1}, {"INVALID_REQUEST": 1})
    with pytest.raises(asyncio.CancelledError), context.begin():
        raise asyncio.CancelledError
    assert sum(meter.times) == 2


async def test_the_time_of_a_handler_is_split_into_work_and_waiting() -> None:
    clock = Nanoseconds()
    meter = RequestMeter("Data.Fetch", clock)

    async def works(gate: asyncio.Event, error: Exception | None = None) -> str:
        clock.pass_ms(1)
        try:
            await gate.wait()
        finally:
            clock.pass_ms(2)
        if error is not None:
            raise error
        return "done"

    gate = asyncio.Event()
    request = RequestContext("client", "here", meter=meter).begin()

    async def call(error: Exception | None = None) -> str:
        return await request.on_loop(works(gate, error))

    task = asyncio.get_running_loop().create_task(call())
    await asyncio.wait((task,), timeout=0)
    clock.pass_ms(10)
    gate.set()
    assert await task == "done"
    request.entry_ended()
    assert (meter.local_ns, meter.remote_ns) == (3 * MS, 10 * MS)
    with pytest.raises(NotLeaderOrFollower):
        await call(NotLeaderOrFollower("elsewhere"))
    gate.clear()
    task = asyncio.get_running_loop().create_task(call())
    await asyncio.wait((task,), timeout=0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_a_node_changes_in_its_own_name_is_recorded_by_the_controller(tmp_path: Path) -> None:
    """A request of a client has a line at the node that was asked, and one at the controller, which names that node. A
    node that has been taken over leaves the second one only."""

    def lines(nodes: RealNodes) -> list[tuple[int, str, str, str]]:
        events = [json.loads(line) for line in nodes.audit]
        nodes.audit.clear()
        return sorted(
            (event["node"], event["request"], event["principal"], event.get("forwarded_for", "")) for event in events
        )

    async with real_nodes(tmp_path) as nodes:
        nodes.audit.clear()
        await create_topic(nodes)
        assert lines(nodes) == [
            (0, "Admin.CreateTopics", "User:ANONYMOUS", ""),
            (0, "Controller.CreateTopics", "node 0", "User:ANONYMOUS"),
        ]
        forged = creating(name="hidden", partitions=1, replication_factor=1)
        await nodes.call(0, methods.CONTROLLER_ENVELOPE, enveloped(methods.ADMIN_CREATE_TOPICS, forged))
        assert lines(nodes) == [(0, "Controller.CreateTopics", "User:ANONYMOUS", "")]


async def test_an_answer_on_a_stream_is_counted_once_it_is_written() -> None:
    """A caller that does not read has not received what is queued for it."""

    class SlowCall:
        def __init__(self) -> None:
            self.reads = asyncio.Event()

        async def write(self, _answer: EncodedAnswer) -> None:
            await self.reads.wait()

    call, meter, task = SlowCall(), RequestMeter(), asyncio.current_task()
    assert task is not None
    left: Any = None  # the connection is not shut down
    stream = ServerStream(call, task, KNOWN, meter, left, left, has_session=False)
    async with asyncio.TaskGroup() as tasks:
        sends = [tasks.create_task(stream.send(EncodedAnswer(bytes(size), None, 0))) for size in (100, 20)]
        await asyncio.wait(sends, timeout=0)
        assert meter.response_bytes == 0
        call.reads.set()
    assert meter.response_bytes == 120
