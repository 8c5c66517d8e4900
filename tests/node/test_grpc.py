"""The real wires: calls and streams over gRPC on loopback, and what callers see when something breaks."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc
import pytest

from node.boundary.boundary import Boundary
from node.listeners.grpc import connections as connections_module
from node.listeners.grpc import server
from node.listeners.grpc.connections import shut_down_connections
from node.listeners.grpc.server import GrpcServer
from node.requests.context import RequestContext
from tests.node.echo_server import ELSEWHERE, LOOPBACK, PATIENCE_MS, EchoData, produce, serving
from tests.record_values import fetched, sent
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidConfig,
    InvalidRequest,
    NodeShuttingDown,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownServerError,
    UnsupportedVersion,
)
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.status import DETAILS_KEY, from_rpc_error, to_details
from tidelog.protocol.v1 import admin_pb2, data_pb2
from tidelog.record_exchange import FetchAnswer, ProduceRequest
from tidelog.types import Endpoint


async def test_records_travel_in_streams_and_calls() -> None:
    async with serving() as at:
        stream = await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM)
        payload = bytes(range(256)) * 1024
        for _ in range(3):
            await stream.send(produce(payload))
        answers = [await stream.receive() for _ in range(3)]
        assert [answer.partitions[0].base_offset for answer in answers if answer] == [len(payload)] * 3
        request = data_pb2.FetchRequest(partitions=[data_pb2.FetchPartition(partition=3)])
        fetched = await at.transport.call(at.address, methods.DATA_FETCH, request, timeout_ms=PATIENCE_MS)
        assert bytes(fetched.partitions[0].records) == payload
        stream.close()
        await at.service.gone.wait()
    assert at.meters.of("Data.Fetch").answered == 1
    assert list(at.meters.of("Data.ProduceStream").streams_ended) in [["ended"], ["ok"]]


async def test_errors_arrive_as_themselves() -> None:
    async with serving() as at:
        with pytest.raises(NotLeaderOrFollower, match="orders-3 is led by node 1") as caught:
            await at.transport.call(at.address, methods.DATA_PRODUCE, produce(b"", acks=1), timeout_ms=PATIENCE_MS)
        assert caught.value.leader == ELSEWHERE
        with pytest.raises(NotLeaderOrFollower) as caught:  # at once: it may come while the stream is being opened
            stream = await at.transport.open_stream(at.address, methods.DATA_FETCH_STREAM)
            await stream.receive()
        assert caught.value.leader == ELSEWHERE
        offsets = data_pb2.ListOffsetsRequest()
        with pytest.raises(UnsupportedVersion, match="asked by client"):
            await at.transport.call(at.address, methods.DATA_LIST_OFFSETS, offsets, timeout_ms=PATIENCE_MS)
        assert at.meters.of("Data.Produce").failed == {"NOT_LEADER_OR_FOLLOWER": 1}


async def test_a_stream_that_is_rejected_later_raises_for_receivers_and_senders() -> None:
    class RefusesTheFirst(EchoData):
        async def fetch_stream(self, stream: Any, context: RequestContext) -> None:
            await stream.receive()
            raise NotLeaderOrFollower("orders-3 is led by node 1", leader=ELSEWHERE)

    async with serving(RefusesTheFirst()) as at:
        stream = await at.transport.open_stream(at.address, methods.DATA_FETCH_STREAM)
        await stream.send(data_pb2.FetchRequest())
        with pytest.raises(NotLeaderOrFollower) as caught:
            await stream.receive()
        assert caught.value.leader == ELSEWHERE
        with pytest.raises(NotLeaderOrFollower):
            await stream.send(data_pb2.FetchRequest())


async def test_a_rejection_during_the_opening_of_a_stream_is_raised_there() -> None:
    """The call ends before the connection is established: the error of the node is not lost."""

    class Refused:
        async def wait_for_connection(self) -> None:
            details = to_details(NotLeaderOrFollower("orders-3 is led by node 1", leader=ELSEWHERE))
            trailing = grpc.aio.Metadata((DETAILS_KEY, details))
            raise grpc.aio.AioRpcError(grpc.StatusCode.FAILED_PRECONDITION, grpc.aio.Metadata(), trailing)

    class Refusing(GrpcTransport):
        def _make_callable(self, to: Endpoint, method: Any) -> Any:
            return lambda **_: Refused()

    with pytest.raises(NotLeaderOrFollower, match="orders-3 is led by node 1") as caught:
        await Refusing().open_stream(LOOPBACK, methods.DATA_FETCH_STREAM)
    assert caught.value.leader == ELSEWHERE


async def test_a_defect_is_logged_and_becomes_an_error_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as at:
        with pytest.raises(UnknownServerError, match="ZeroDivisionError"):
            await at.transport.call(at.address, methods.DATA_PRODUCE, produce(b"", acks=2), timeout_ms=PATIENCE_MS)
    assert "a defect: Data.Produce failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_no_answer_in_time_names_address_and_call() -> None:
    async with serving() as at:
        with pytest.raises(RequestTimedOut, match=f"Data.Produce at {at.address}"):
            await at.transport.call(at.address, methods.DATA_PRODUCE, produce(b""), timeout_ms=50)


async def test_a_service_that_the_node_does_not_have_is_named() -> None:
    async with serving() as at:
        request = admin_pb2.DescribeClusterRequest()
        with pytest.raises(UnsupportedVersion, match=r"Admin\.DescribeCluster"):
            await at.transport.call(at.address, methods.ADMIN_DESCRIBE_CLUSTER, request, timeout_ms=PATIENCE_MS)


async def test_without_a_listener() -> None:
    with socket.socket() as taken:  # bound, not listening: no other process can take the port meanwhile
        taken.bind(("127.0.0.1", 0))
        nowhere = Endpoint("127.0.0.1", taken.getsockname()[1])
        transport = GrpcTransport()
        with pytest.raises(ConnectionFailed, match=f"Data.Produce at {nowhere}: no connection") as caught:
            await transport.call(nowhere, methods.DATA_PRODUCE, produce(b""), timeout_ms=PATIENCE_MS)
        assert caught.value.written is False
        with pytest.raises(ConnectionFailed, match=f"Data.FetchStream at {nowhere}"):
            await transport.open_stream(nowhere, methods.DATA_FETCH_STREAM)
        await transport.close()


async def test_a_message_over_the_limit_is_rejected_and_the_connection_stays() -> None:
    async with serving() as at:
        request = produce(bytes(2 << 20), acks=1)
        with pytest.raises(InvalidRequest, match="limit"):
            await at.transport.call(at.address, methods.DATA_PRODUCE, request, timeout_ms=PATIENCE_MS)
        with pytest.raises(NotLeaderOrFollower):
            await at.transport.call(at.address, methods.DATA_PRODUCE, produce(b"", acks=1), timeout_ms=PATIENCE_MS)


async def test_a_stream_closed_on_this_side_wakes_its_waiters() -> None:
    async with serving() as at:
        stream = await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM)
        await stream.send(produce(b"x"))
        assert await stream.receive() is not None
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(_error_of(stream.receive()))
            asyncio.get_running_loop().call_soon(stream.close)
        assert isinstance(waiting.result(), ConnectionFailed)
        with pytest.raises(ConnectionFailed):
            await stream.send(produce(b"x"))
        stream.close()


async def test_a_stream_that_ends_while_a_message_is_written_is_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC's own error hides that of the node, and was taken for a defect of the node. Who opens a stream again learns
    why it ended."""
    async with serving() as at:
        stream = await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM)

        async def fails(_message: object) -> None:
            stream._call._cython_call.set_internal_error('Failed "execute_batch"')
            await stream._call._raise_for_status()

        monkeypatch.setattr(stream._call, "write", fails)
        with pytest.raises(ConnectionLost, match="the node ended the stream while a message was sent"):
            await stream.send(produce(b"a"))
        stream.close()


async def test_a_cancelled_task_stays_cancelled() -> None:
    async with serving() as at:
        stream = await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await stream.receive()


async def test_a_service_may_end_a_stream() -> None:
    async with serving() as at:
        stream = await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM)
        await stream.send(produce(b"x", acks=99))
        while await stream.receive() is not None:
            pass


async def test_stopping_ends_streams_with_node_shutting_down() -> None:
    async with serving() as at:
        stream = await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM)
        await stream.send(produce(b"x"))
        assert await stream.receive() is not None
        at.server.refuse()
        await stream.send(produce(b"y"))  # open streams continue
        assert await stream.receive() is not None
        with pytest.raises(NodeShuttingDown, match="use another node"):
            await at.transport.call(at.address, methods.DATA_PRODUCE, produce(b"", acks=1), timeout_ms=PATIENCE_MS)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(_error_of(stream.receive()))
            await at.server.stop(grace_ms=1000)
        assert isinstance(waiting.result(), NodeShuttingDown)


async def test_many_tasks_may_answer_on_one_stream() -> None:
    class Answers(EchoData):
        async def produce_stream(self, stream: Any, context: RequestContext) -> None:
            async with asyncio.TaskGroup() as tasks:
                while (request := await stream.receive()) is not None:
                    batch_id = request.partitions[0].correlation_id
                    answer = data_pb2.PartitionProduced(batch_id=batch_id)
                    tasks.create_task(stream.send(data_pb2.ProduceResponse(partitions=[answer] * 1000)))

    async with serving(Answers()) as at:
        stream = await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM)
        async with asyncio.TaskGroup() as tasks:
            for batch_id in range(20):
                tasks.create_task(stream.send(ProduceRequest(-1, 0, [sent(correlation_id=batch_id)])))
        answers = [await stream.receive() for _ in range(20)]
        assert [answer.partitions[0].batch_id for answer in answers if answer] == list(range(20))


class LateData(EchoData):
    """Keeps its stream, whatever becomes of the caller."""

    stream: Any = None

    async def fetch_stream(self, stream: Any, context: RequestContext) -> None:
        self.stream = stream
        try:
            await stream.send(FetchAnswer([]))  # the caller may have it, and be gone, before this returns
            await asyncio.Event().wait()
        finally:
            self.gone.set()


async def test_a_caller_that_does_not_read_cannot_keep_a_stream_that_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message that was being written was kept for as long as the connection."""

    class Answers(EchoData):
        async def fetch_stream(self, stream: Any, context: RequestContext) -> None:
            answer = FetchAnswer([fetched(records=bytes(1_000_000))])
            with pytest.raises(TimeoutError):
                while True:
                    async with asyncio.timeout(0.5):  # on a busy machine, less may pass before the window is full
                        await stream.send(answer)
            raise InvalidRequest("the request is malformed")

    shut = asyncio.Event()

    def shut_down(peers: set[str]) -> int:
        shut.set()
        return shut_down_connections(peers)

    monkeypatch.setattr(server, "SLOW_READER_MS", 100)
    monkeypatch.setattr(connections_module, "shut_down_connections", shut_down)
    async with serving(Answers()) as at:
        stream = await at.transport.open_stream(at.address, methods.DATA_FETCH_STREAM)
        await shut.wait()
        with pytest.raises(ConnectionLost):
            while True:
                await stream.receive()
        meter = at.meters.of(str(methods.DATA_FETCH_STREAM))
    assert meter.streams_open == 0
    # gRPC may say first that the write has failed, or that the caller is gone.
    assert meter.streams_ended in ({"ended": 1}, {"INVALID_REQUEST": 1})


async def test_an_answer_to_a_disconnected_caller_is_an_error_that_names_it() -> None:
    """gRPC's own call has ended by then too, and must not be used: that would end the process."""
    service = LateData()
    async with serving(service) as fixture:
        stream = await fixture.transport.open_stream(fixture.address, methods.DATA_FETCH_STREAM)
        await stream.receive()
        stream.close()
        await service.gone.wait()
        with pytest.raises(ConnectionLost, match=r"the caller at ipv4:127\.0\.0\.1:\d+ went away"):
            while True:
                await service.stream.send(FetchAnswer([]))


async def test_a_killed_server_breaks_the_stream() -> None:
    async with serving() as at:
        stream = await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM)
        await stream.send(produce(b"x"))
        assert await stream.receive() is not None
        await at.server._server.stop(0)
        with pytest.raises(ConnectionLost):
            await stream.receive()


async def test_a_taken_port_is_named() -> None:
    first, second = GrpcServer("client", boundary=Boundary()), GrpcServer("inner", boundary=Boundary())
    taken = first.bind(LOOPBACK)
    with pytest.raises(InvalidConfig, match=f"'inner': {taken} cannot be bound"):
        second.bind(taken)


async def _error_of(waiting: Any) -> BaseException | None:
    try:
        await waiting
    except Exception as error:  # noqa: BLE001
        return error
    return None


async def test_bytes_that_are_no_message_are_refused_as_such(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as fixture, grpc.aio.insecure_channel(str(fixture.address)) as channel:
        unary: Any = channel.unary_unary(methods.DATA_PRODUCE.path)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unary(b"\xff" * 9, timeout=PATIENCE_MS / 1000)
        assert type(from_rpc_error(refused.value, address=fixture.address, phase="a test")) is InvalidRequest
        stream: Any = channel.stream_stream(methods.DATA_PRODUCE_STREAM.path)(timeout=PATIENCE_MS / 1000)
        await stream.write(b"\xff" * 9)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        assert type(from_rpc_error(ended.value, address=fixture.address, phase="a test")) is InvalidRequest
        assert fixture.meters.of("Data.Produce").failed == {"INVALID_REQUEST": 1}
        assert fixture.meters.of("Data.ProduceStream").failed == {"INVALID_REQUEST": 1}
    assert not [record for record in caplog.records if record.exc_info]
