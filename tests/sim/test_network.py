"""The simulated network: calls and streams behave as the Transport protocol requires, under every fault."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from node.boundary.boundary import Boundary
from node.requests.context import RequestContext
from testbed.sim.loop import SimLoop
from testbed.sim.network import LinkFaults, Network
from testbed.sim.process import Process, ProcessState
from testbed.topic_requests import creating
from tests.node.message_services import gates_of, messages_of
from tests.record_values import sent
from tidelog.errors import ConnectionFailed, RequestTimedOut, TidelogError, TopicExists
from tidelog.protocol import methods
from tidelog.protocol.network import MessageStream
from tidelog.protocol.v1 import admin_pb2, data_pb2
from tidelog.record_exchange import ProduceRequest
from tidelog.types import Endpoint

HERE = Endpoint("node-1", 9092)
STEADY = LinkFaults(delay_us=(1_000, 1_000), spike=0)


class Admin:
    """A service that counts its requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def create_topics(
        self, request: admin_pb2.CreateTopicsRequest, context: RequestContext
    ) -> admin_pb2.ChangedTopics:
        [topic] = request.topics
        self.asked.append(topic.name)
        if topic.name == "old":
            raise TopicExists("topic old exists; choose another name")
        return admin_pb2.ChangedTopics(topics=[admin_pb2.ChangedTopic(topic_id=context.connection.encode())])


class Echo:
    """Answers each batch with its ID, until the client sends a negative one."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.ended: object = None

    async def produce_stream(
        self, stream: MessageStream[data_pb2.ProduceResponse, ProduceRequest], context: RequestContext
    ) -> None:
        try:
            while (request := await stream.receive()) is not None:
                number = request.partitions[0].correlation_id
                self.got.append(number)
                if number < 0:
                    return
                await stream.send(data_pb2.ProduceResponse(partitions=[data_pb2.PartitionProduced(batch_id=number)]))
        except (TidelogError, asyncio.CancelledError) as error:
            self.ended = error
            raise


class World:
    """One client and one server machine."""

    def __init__(self, seed: int = 1, faults: LinkFaults = STEADY) -> None:
        self.loop = SimLoop(random.Random(seed))
        self.network = Network(self.loop, random.Random(seed))
        self.network.faults = faults
        self.client, self.server = Process("client"), Process("node-1")
        self.admin, self.echo = Admin(), Echo()
        boundary = Boundary(gates=gates_of({methods.ADMIN: self.admin, methods.DATA: self.echo}))
        self.network.listen(HERE, self.server, "node-1", "client", boundary, messages_of)
        self.transport = self.network.transport("client")

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run the work as a task of the client. Returns its result or raises its error."""
        task = self.client.run(self.loop.create_task, work())
        self.loop.run_until(task.done, within=100)
        return task.result()

    def create(self, name: str, timeout_ms: int = 1000) -> Any:
        request = creating(name)
        return self.run(lambda: self.transport.call(HERE, methods.ADMIN_CREATE_TOPICS, request, timeout_ms=timeout_ms))

    def open(self) -> MessageStream[Any, Any]:
        return self.run(lambda: self.transport.open_stream(HERE, methods.DATA_PRODUCE_STREAM))  # type: ignore[no-any-return]


def batch(number: int, size: int = 0) -> ProduceRequest:
    return ProduceRequest(-1, 0, [sent(bytes(size), correlation_id=number)])


def test_a_call_takes_a_round_trip_and_errors_arrive_as_themselves() -> None:
    world = World()
    assert world.create("new").topics[0].topic_id == b"client"
    assert world.loop.now_us == 2_000
    with pytest.raises(TopicExists, match="topic old exists"):
        world.create("old")


def test_what_was_sent_before_the_end_is_read_and_answered() -> None:
    world = World()
    stream = world.open()

    async def send_and_end() -> list[int]:
        for number in range(3):
            await stream.send(batch(number))
        await stream.end()
        answered = []
        while (answer := await stream.receive()) is not None:
            answered.append(answer.partitions[0].batch_id)
        return answered

    assert world.run(send_and_end) == [0, 1, 2]
    assert world.echo.got == [0, 1, 2]
    assert world.echo.ended is None


def test_a_node_that_is_down_refuses_and_a_dead_machine_is_silent() -> None:
    world = World()
    world.server.state = ProcessState.DEAD
    with pytest.raises(ConnectionFailed, match="refused"):
        world.create("new")
    world.network.machines_off.add("node-1")
    with pytest.raises(RequestTimedOut):
        world.create("new")


def test_a_request_is_executed_although_its_answer_is_cut_off() -> None:
    world = World()
    world.network.disconnect("node-1", "client")
    with pytest.raises(RequestTimedOut):
        world.create("new")
    assert world.admin.asked == ["new"]


def test_a_late_request_is_served_after_its_caller_gave_up() -> None:
    world = World(faults=LinkFaults(late=1.0))
    with pytest.raises(RequestTimedOut):
        world.create("new", timeout_ms=500)
    assert world.admin.asked == []
    world.loop.run_for(20)
    assert world.admin.asked == ["new"]


def test_a_request_may_arrive_twice_where_that_is_allowed() -> None:
    world = World(faults=LinkFaults(duplicate=1.0))
    world.network.duplicable = lambda method: method.service == methods.ADMIN
    world.create("new")
    world.loop.run_for(20)
    assert world.admin.asked == ["new", "new"]


def test_a_story_delays_and_releases_a_request() -> None:
    world = World()
    durable_offset = world.network.hold(lambda envelope: envelope.method == "Admin.CreateTopics")
    with pytest.raises(RequestTimedOut):
        world.create("new")
    assert durable_offset.count == 1
    assert durable_offset.envelopes[0].message.topics[0].name == "new"
    durable_offset.release()
    world.loop.run_for(1)
    assert world.admin.asked == ["new"]


def test_a_stream_keeps_its_order_whatever_the_delays() -> None:
    world = World(faults=LinkFaults(spike=0.5))
    stream = world.open()

    async def talk() -> list[int]:
        for number in range(50):
            await stream.send(batch(number))
        answers = [await stream.receive() for _ in range(50)]
        return [answer.partitions[0].batch_id for answer in answers if answer is not None]

    assert world.run(talk) == list(range(50))


def test_the_server_ends_a_stream_and_the_client_closes_one() -> None:
    world = World()
    stream = world.open()

    async def talk() -> object:
        await stream.send(batch(-1))
        return await stream.receive()

    assert world.run(talk) is None

    stream = world.open()
    world.run(lambda: stream.send(batch(1)))
    stream.close()
    with pytest.raises(ConnectionFailed):
        world.run(stream.receive)
    world.loop.run_for(1)
    assert isinstance(world.echo.ended, asyncio.CancelledError)
    assert world.network.connections == []


def test_a_sender_waits_while_the_other_side_does_not_read() -> None:
    world = World()
    stream = world.open()
    world.server.state = ProcessState.PAUSED
    sent: list[int] = []

    async def flood() -> None:
        for number in range(10):
            await stream.send(batch(number, size=100_000))
            sent.append(number)

    task = world.client.run(world.loop.create_task, flood())
    world.loop.run_for(5)
    assert len(sent) == 3
    world.loop.resume(world.server)
    world.loop.run_until(task.done, within=5)
    assert world.echo.got[:3] == [0, 1, 2]


def test_a_lost_message_breaks_the_stream_for_both() -> None:
    world = World()
    stream = world.open()
    world.network.link("client", "node-1").faults = LinkFaults(loss=1.0)
    world.run(lambda: stream.send(batch(1)))
    with pytest.raises(ConnectionFailed):
        world.run(stream.receive)
    world.loop.run_for(20)
    assert isinstance(world.echo.ended, asyncio.CancelledError)
    assert world.echo.got == []


def test_a_short_disconnection_delays_and_a_long_one_breaks() -> None:
    world = World()
    stream = world.open()
    world.network.disconnect("client", "node-1")
    world.run(lambda: stream.send(batch(1)))
    world.loop.run_for(1)
    world.network.heal("client", "node-1")
    assert world.run(stream.receive).partitions[0].batch_id == 1

    world.network.disconnect("client", "node-1")
    world.run(lambda: stream.send(batch(2)))
    with pytest.raises(ConnectionFailed, match="keepalive"):
        world.run(stream.receive)
    assert world.echo.got == [1]


@pytest.mark.parametrize("power_lost", [False, True])
def test_the_peer_of_a_dead_process_finds_out(power_lost: bool) -> None:
    world = World()
    stream = world.open()
    world.server.state = ProcessState.DEAD
    world.network.process_ended(world.server, power_lost=power_lost)
    began = world.loop.now_us
    with pytest.raises(ConnectionFailed):
        world.run(stream.receive)
    assert (world.loop.now_us - began > 1_000_000) == power_lost
    with pytest.raises(ConnectionFailed):
        world.open()
