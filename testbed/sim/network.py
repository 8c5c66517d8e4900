"""The simulated network: machines, links with faults, connections, and the transport of a node.

Links are one-way: `a -> b` may be disconnected, or reject connections, while `b -> a` works. A unary request may be
lost, arrive twice, or arrive after its caller has timed out, as after a retry by a proxy or a reconnect. A stream is
TCP: its messages arrive in order and once, or the stream breaks. A disconnection stalls a stream until the keepalive
times out, so stalled messages may still arrive late. Every message is encoded to bytes and decoded: processes share no
object.

Not here: the times of faults (faults.py), what ends with a process (world.py), streams (streams.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from node.api.table import APIS
from node.boundary.boundary import Boundary, ProtocolCodec
from node.boundary.boundary import Request as ServedRequest
from testbed.message_bytes import bytes_of
from testbed.sim.byte_streams import ByteConnection
from testbed.sim.classic_wire import codec_of
from testbed.sim.loop import MICROS, SimLoop
from testbed.sim.process import Process, current_process
from testbed.sim.streams import Connection, caller_of
from tidelog.errors import ConnectionFailed, ConnectionLost, RequestTimedOut, TidelogError, UnknownServerError
from tidelog.protocol import status, wire
from tidelog.protocol.network import MessageStream
from tidelog.protocol.rpc import Answer, CallKind, Method, Request
from tidelog.protocol.v1 import common_pb2
from tidelog.types import Endpoint

CONNECT_TIMEOUT_US = (1 * MICROS, 3 * MICROS)
KEEPALIVE_US = (3 * MICROS, 8 * MICROS)  # as the pings of tidelog/protocol/grpc_transport.py
LATE_US = (1 * MICROS, 8 * MICROS)


@dataclass(slots=True)
class LinkFaults:
    """What may happen to messages on a link; probabilities are per message."""

    delay_us: tuple[int, int] = (100, 900)
    spike: float = 0.01
    spike_us: tuple[int, int] = (1_000, 60_000)
    loss: float = 0.0  # a unary message is lost; a lost stream message breaks its stream
    duplicate: float = 0.0  # a unary request arrives a second time, later
    late: float = 0.0  # a unary request arrives only after seconds


@dataclass(slots=True)
class Link:
    """One direction between two machines."""

    source: str
    target: str
    faults: LinkFaults
    is_disconnected: bool = False
    is_rejecting: bool = False  # a firewall refuses connections in the name of the target
    disconnections: int = 0  # so far; the number identifies the present disconnection
    clogged_until_us: int = 0
    stuck: list[Callable[[], None]] = field(default_factory=list)  # sends that wait for the end of a disconnection


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message in transit, as a story may match it."""

    source: str
    target: str
    method: str  # `Controller.AlterPartition`
    part: str  # "request" or "answer"; messages of a stream are requests towards the server
    message: Any


@dataclass(slots=True)
class Held:
    """Messages that a story holds back: those that match, from its creation until `release` or `drop`."""

    matches: Callable[[Envelope], bool]
    envelopes: list[Envelope] = field(default_factory=list)
    _deliveries: list[Callable[[], None]] = field(default_factory=list)
    _breaks: list[Callable[[], None]] = field(default_factory=list)
    active: bool = True

    @property
    def count(self) -> int:
        return len(self.envelopes)

    def take(self, envelope: Envelope, deliver: Callable[[], None], broken: Callable[[], None]) -> bool:
        if not self.active or not self.matches(envelope):
            return False
        self.envelopes.append(envelope)
        self._deliveries.append(deliver)
        self._breaks.append(broken)
        return True

    def let_pass(self) -> None:
        """Hold no further messages; those held stay held."""
        self.active = False

    def release(self) -> None:
        """Send all held messages in their order and hold no more."""
        self.active = False
        for deliver in self._deliveries:
            deliver()
        self._deliveries.clear()

    def break_connections(self) -> None:
        """Report a broken connection to the callers of the held messages; those may still be released, late."""
        for broken in self._breaks:
            broken()
        self._breaks.clear()


@dataclass(slots=True)
class Listening:
    """A process that serves an endpoint."""

    process: Process
    machine: str
    listener: str
    boundary: Boundary
    codec_of: Callable[[str], ProtocolCodec] = codec_of
    accepts: Callable[[], asyncio.BaseProtocol] | None = None
    """Makes the protocol of a connection of bytes; None: it serves calls and streams."""


class Network:
    """All machines and the messages between them."""

    def __init__(self, loop: SimLoop, rng: random.Random, note: Callable[[str], None] | None = None) -> None:
        self.loop = loop
        self.rng = rng
        self.faults = LinkFaults()
        self.has_kafka = False  # nodes that are added have a listener of Kafka's protocol, too
        self.calm_since: float | None = (
            None  # a story says so: the time from which on nothing disturbs a node or a link
        )
        self.machines_off: set[str] = set()
        self.connections: list[Connection | ByteConnection] = []
        self.duplicable: Callable[[Method[Any, Any]], bool] = lambda method: False
        self._note = note
        self._links: dict[tuple[str, str], Link] = {}
        self._listening: dict[Endpoint, Listening] = {}
        self._machine_of: dict[Endpoint, str] = {}
        self._durable_offset: list[Held] = []
        self._open_calls: dict[Process, list[Callable[[str], None]]] = {}
        self._connections_made = 0

    # --- links and their faults ---

    def link(self, source: str, target: str) -> Link:
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(source, target, self.faults)
        return found

    def set_faults(self, faults: LinkFaults) -> None:
        """Set the faults of every link from now on."""
        self.faults = faults
        for link in self._links.values():
            link.faults = faults

    def disconnect(self, source: str, target: str) -> None:
        """Drop or stall all messages from source to target; messages in transit still arrive."""
        link = self.link(source, target)
        if link.is_disconnected or source == target:
            return
        link.is_disconnected = True
        link.disconnections += 1
        self.loop.call_world_later_us(self.rng.randint(*KEEPALIVE_US), self._keepalive, link, link.disconnections)

    def reject(self, source: str, target: str) -> None:
        """Refuse all connections from source to target, as a firewall does, and break those that exist."""
        link = self.link(source, target)
        link.is_rejecting = True
        for connection in list(self.connections):
            if connection.opened_over(link):
                connection.break_both("rejected by a firewall", (0, 1_000))

    def heal(self, source: str, target: str) -> None:
        """Repair the link; messages stalled in connections that still exist are sent now, late."""
        link = self.link(source, target)
        link.is_disconnected = link.is_rejecting = False
        stuck, link.stuck = link.stuck, []
        for deliver in stuck:
            deliver()
        for connection in list(self.connections):
            connection.flush(link)

    def heal_all(self) -> None:
        for key in sorted(self._links):
            self._links[key].clogged_until_us = 0
            self.heal(*key)

    @property
    def is_disturbed(self) -> bool:
        """Whether any link is disconnected or clogged, or loses messages."""
        if self.faults != type(self.faults)():
            return True
        return any(
            link.is_disconnected or link.is_rejecting or link.clogged_until_us > self.loop.now_us
            for link in self._links.values()
        )

    def clog(self, source: str, target: str, seconds: float) -> None:
        """Let messages from source to target arrive only after that time, all at once."""
        self.link(source, target).clogged_until_us = self.loop.now_us + int(seconds * MICROS)

    def _keepalive(self, link: Link, disconnection: int) -> None:
        if not link.is_disconnected or link.disconnections != disconnection:
            return
        for connection in list(self.connections):
            if connection.crosses(link):
                connection.break_both("keepalive: no answer to a ping", (0, 6 * MICROS))
        self.loop.call_world_later_us(self.rng.randint(*KEEPALIVE_US), self._keepalive, link, disconnection)

    def delay_us(self, link: Link) -> int:
        faults, draw = link.faults, self.rng.random  # one C call per draw: `randint` makes three Python calls
        least, most = faults.delay_us
        delay = least + int(draw() * (most - least + 1))
        if faults.spike and draw() < faults.spike:
            delay += self.rng.randint(*faults.spike_us)
        if link.clogged_until_us > self.loop.now_us:
            delay += link.clogged_until_us - self.loop.now_us
        return delay

    def lost(self, link: Link) -> bool:
        return link.faults.loss > 0 and self.rng.random() < link.faults.loss

    # --- messages held back by stories ---

    @property
    def holds(self) -> bool:
        """Whether a story holds back messages from now on."""
        if self._durable_offset:
            self._durable_offset = [durable_offset for durable_offset in self._durable_offset if durable_offset.active]
        return bool(self._durable_offset)

    def hold(self, matches: Callable[[Envelope], bool]) -> Held:
        durable_offset = Held(matches)
        self._durable_offset.append(durable_offset)
        return durable_offset

    def held_back(
        self,
        link: Link,
        method: Method[Any, Any],
        part: str,
        data: bytes,
        go: Callable[[], None],
        broken: Callable[[], None],
    ) -> bool:
        """Whether a story holds this message back; called only if one `holds` any. go: sends it on. broken: fails
        its call or stream."""
        kind = method.request if part == "request" else method.answer
        envelope = Envelope(link.source, link.target, str(method), part, wire.reader(kind)(data))
        return any(durable_offset.take(envelope, go, broken) for durable_offset in self._durable_offset)

    # --- processes and machines ---

    def name_endpoint(self, endpoint: Endpoint, machine: str) -> None:
        """Bind an address to a machine, whether a process answers there or not."""
        self._machine_of[endpoint] = machine

    def listen(
        self,
        endpoint: Endpoint,
        process: Process,
        machine: str,
        listener: str,
        boundary: Boundary,
        codec_of: Callable[[str], ProtocolCodec] = codec_of,
    ) -> None:
        self.name_endpoint(endpoint, machine)
        self._listening[endpoint] = Listening(process, machine, listener, boundary, codec_of)

    def listen_for_bytes(
        self, endpoint: Endpoint, process: Process, machine: str, accepts: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        """A listener of another protocol than gRPC. accepts: makes the protocol of a new connection."""
        self.name_endpoint(endpoint, machine)
        self._listening[endpoint] = Listening(process, machine, "", Boundary(), accepts=accepts)

    def cut_byte_streams(self, share: float, within_us: int) -> None:
        """Break this share of the connections of bytes, each end within that time: until then it believes in them."""
        for connection in [each for each in self.connections if isinstance(each, ByteConnection)]:
            if self.rng.random() < share:
                connection.break_both("it is cut", (0, within_us))

    def transport(self, machine: str) -> SimTransport:
        return SimTransport(self, machine)

    def machine_of(self, endpoint: Endpoint) -> str:
        return self._machine_of.get(endpoint, f"nowhere:{endpoint}")

    def process_ended(self, process: Process, *, power_lost: bool) -> None:
        """Close the connections of a dead process. If its machine lost power, the peers get no notice and must find
        out."""
        for endpoint in [at for at, listening in self._listening.items() if listening.process is process]:
            del self._listening[endpoint]
        for connection in list(self.connections):
            connection.process_ended(process, power_lost=power_lost)
        for fail in self._open_calls.pop(process, []):
            if not power_lost:
                fail("the process that worked on the request ended")

    def listening_at(self, endpoint: Endpoint, link: Link) -> Listening | None:
        """The process that accepts a connection over this link; None if it is refused."""
        found = self._listening.get(endpoint)
        return found if found is not None and found.process.alive and not link.is_rejecting else None

    # --- unary calls ---

    def send(self, link: Link, deliver: Callable[[], None]) -> None:
        """Carry one unary message, which may be lost. A disconnected link drops it or delivers it after the repair."""
        if link.faults.loss and self.lost(link):
            return
        if link.is_disconnected:
            if self.rng.random() < 0.5:
                link.stuck.append(lambda: self.send(link, deliver))
            return
        self.loop.call_world_later_us(self.delay_us(link), deliver)

    @staticmethod
    def over_the_wire(error: TidelogError) -> TidelogError:
        """An error as the other side receives it."""
        return status.from_proto(common_pb2.Error.FromString(status.to_proto(error).SerializeToString()))

    def report_defect(self, refused: TidelogError, description: str) -> None:
        """Fail the world if the boundary answered for a defect. An error may have another one as its cause: that is how
        a transaction is refused for what its group says."""
        if isinstance(refused, UnknownServerError) and isinstance(refused.__cause__, Exception):
            self.loop.call_exception_handler({"message": description, "exception": refused.__cause__})

    def note(self, words: str) -> None:
        if self._note is not None:
            self._note(words)

    def open_calls(self, process: Process) -> list[Callable[[str], None]]:
        return self._open_calls.setdefault(process, [])

    def next_number(self) -> int:
        self._connections_made += 1
        return self._connections_made


class SimTransport:
    """The Transport of the processes of one machine."""

    def __init__(self, network: Network, machine: str) -> None:
        self._network = network
        self._machine = machine

    async def call(self, to: Endpoint, method: Method[Request, Answer], request: Request, *, timeout_ms: int) -> Answer:
        """See tidelog/protocol/network.py."""
        assert method.kind is CallKind.UNARY, f"{method} is a stream"
        loop = self._network.loop
        exchange = Exchange(self._network, self._machine, to, method, bytes(bytes_of(request)), timeout_ms)
        exchange.begin()
        timer = loop.call_later(timeout_ms / 1000, exchange.time_out)
        try:
            answer: bytes = await exchange.answered
        finally:
            timer.cancel()
            exchange.caller_is_gone()
        return wire.reader(method.answer)(answer)

    async def open_stream(self, to: Endpoint, method: Method[Request, Answer]) -> MessageStream[Request, Answer]:
        """See tidelog/protocol/network.py."""
        assert method.kind is CallKind.STREAM, f"{method} is a unary call"
        connection = Connection(
            self._network, self._network.next_number(), self._machine, to, method, current_process()
        )
        self._network.connections.append(connection)
        try:
            async with asyncio.timeout(self._network.rng.randint(*CONNECT_TIMEOUT_US) / MICROS):
                await connection.opened()
        except TimeoutError:
            connection.client.close()
            raise ConnectionFailed(f"no answer from {to} while connecting for {method}; try again later") from None
        except BaseException:
            connection.client.close()
            raise
        return connection.client

    async def is_refused(self, to: Endpoint, *, timeout_ms: int) -> bool:
        """See tidelog/protocol/network.py. A machine without power does not answer; a paused process is listening."""
        network, target = self._network, self._network.machine_of(to)
        outcome: asyncio.Future[bool] = network.loop.create_future()
        process = current_process()

        def settle(*, refused: bool) -> None:
            if not outcome.done() and process.alive:
                outcome.set_result(refused)

        def arrive() -> None:
            if target not in network.machines_off:
                refused = network.listening_at(to, network.link(self._machine, target)) is None
                network.send(network.link(target, self._machine), partial(settle, refused=refused))

        network.send(network.link(self._machine, target), arrive)
        timer = network.loop.call_later(timeout_ms / 1_000, partial(settle, refused=False))
        try:
            return await outcome
        finally:
            timer.cancel()

    async def close(self) -> None:
        """No effect: streams are closed by their owners."""


class Exchange:
    """One unary call: a request, its copies, and the first answer that returns."""

    def __init__(
        self, network: Network, source: str, to: Endpoint, method: Method[Any, Any], data: bytes, timeout_ms: int
    ) -> None:
        self._network, self._to, self._method, self._data = network, to, method, data
        self._timeout_ms = timeout_ms
        self._context = current_process()
        self._source, self._target = source, network.machine_of(to)
        self._out, self._back = network.link(source, self._target), network.link(self._target, source)
        self.answered: asyncio.Future[bytes] = network.loop.create_future()
        self._handlers: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        network, faults = self._network, self._out.faults
        if network.holds and network.held_back(
            self._out, self._method, "request", self._data, self._arrive, self._break
        ):
            return
        if faults.late and network.rng.random() < faults.late:
            network.loop.call_world_later_us(network.rng.randint(*LATE_US), network.send, self._out, self._arrive)
            return
        network.send(self._out, self._arrive)
        if faults.duplicate and network.duplicable(self._method) and network.rng.random() < faults.duplicate:
            network.note(f"{self._source} -> {self._target} {self._method} will arrive twice")
            network.loop.call_world_later_us(network.rng.randint(*LATE_US), network.send, self._out, self._arrive)

    def time_out(self) -> None:
        if not self.answered.done():
            self.answered.set_exception(
                RequestTimedOut(
                    f"{self._method} to {self._to} was not answered within {self._timeout_ms} ms; try again"
                )
            )

    def caller_is_gone(self) -> None:
        """The caller has its answer or has timed out. Later answers are dropped, and a method that still runs is
        cancelled, as by a deadline on the wire. Copies that arrive even later run to their end."""
        self.answered.cancel()
        for handler in self._handlers:
            if not handler.done():
                self._network.loop.call_world_later_us(self._network.delay_us(self._out), handler.cancel)

    def _fail(self, why: str) -> None:
        """Report to the caller's context, over the reverse link, that the connection is lost."""
        error = ConnectionLost(f"{self._method} to {self._to}: {why}; try again later")
        self._network.send(self._back, lambda: self._finish(error))

    def _break(self) -> None:
        self._fail("the connection broke")

    def _refuse(self) -> None:
        error = ConnectionFailed(f"{self._method} to {self._to}: connection refused; try again later")
        self._network.send(self._back, lambda: self._finish(error))

    def _finish(self, outcome: bytes | TidelogError) -> None:
        if self.answered.done() or not self._context.alive:
            return
        if isinstance(outcome, TidelogError):
            self.answered.set_exception(outcome)
        else:
            self.answered.set_result(outcome)

    def _arrive(self) -> None:
        network = self._network
        listening = network.listening_at(self._to, self._out)
        if listening is None:
            if self._target not in network.machines_off:
                self._refuse()
            return
        network.open_calls(listening.process).append(self._fail)
        self._handlers.append(
            listening.process.run(
                network.loop.create_task, self._serve(listening), name=f"{self._target} {self._method}"
            )
        )

    async def _serve(self, listening: Listening) -> None:
        """The server side; runs as a task of the serving process."""
        network = self._network
        try:
            outcome = await self._answer(listening)
        finally:
            calls = network.open_calls(listening.process)
            if self._fail in calls:
                calls.remove(self._fail)
        if (
            network.holds
            and isinstance(outcome, bytes)
            and network.held_back(
                self._back, self._method, "answer", outcome, lambda: self._finish(outcome), self._break
            )
        ):
            return
        network.send(self._back, lambda: self._finish(outcome))

    async def _answer(self, listening: Listening) -> bytes | TidelogError:
        """The service's answer as it crosses the wire: bytes, or an error decoded from its bytes."""
        api = APIS[str(self._method)]
        if api.service not in listening.boundary.gates:
            return UnknownServerError(f"{listening.machine} serves no {self._method.service}")
        request = ServedRequest(self._data, listening.codec_of(api.name))
        try:
            answer = await listening.boundary.serve(api, request, caller_of(listening.listener, self._source))
        except TidelogError as refused:
            self._network.report_defect(refused, f"{self._method} failed on {listening.machine} by a defect")
            return self._network.over_the_wire(refused)
        return bytes(answer.data)
