"""A simulated stream: two pipes, each in order, between a client's process and a task of the server's process.

Invariants: a message arrives once, after all earlier ones of its direction. If one is lost, no later one of that
direction arrives and both ends break, each when it detects the loss. What arrived before can still be read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from node.api.caller import Caller
from node.api.table import APIS
from node.boundary.boundary import EncodedAnswer
from node.listeners.grpc.server import ANSWER_COPIES, REQUEST_COPIES
from testbed.message_bytes import bytes_of
from testbed.sim.loop import MICROS
from testbed.sim.process import Process
from tidelog.errors import ConnectionFailed, ConnectionLost, TidelogError, UnknownServerError
from tidelog.protocol import wire
from tidelog.protocol.rpc import Method
from tidelog.types import Endpoint

if TYPE_CHECKING:
    from testbed.sim.network import Link, Listening, Network

WINDOW_BYTES = 256 * 1024  # flow control window of a sender: bytes in transit or unread, as in HTTP/2
BREAK_US = (1_000, 2 * MICROS)
SILENCE_US = (
    3 * MICROS,
    12 * MICROS,
)  # time until the peer of a machine without power, or behind a disconnected link, detects it

END = object()  # the other side ended the stream after everything that it had sent
LAST = object()  # the other side sends nothing more, and still receives


def caller_of(listener: str, source: str) -> Caller:
    """A caller that is served as over gRPC."""
    return Caller(listener, source, request_copies=REQUEST_COPIES, answer_copies=ANSWER_COPIES)


class Pipe:
    """One direction of a stream."""

    def __init__(self, connection: Connection, link: Link, part: str) -> None:
        self.connection = connection
        self.link = link
        self.part = part
        self.unread_bytes = 0
        self.lost = False  # a message was lost: no later one arrives
        self._stalled: deque[bytes | object] = deque()  # waits until the link is connected and no story holds it
        self._durable_offset = False
        self._last_us = 0

    def push(self, item: bytes | object) -> None:
        """Send one item: a message, LAST, END, or an error that ends the stream."""
        network = self.connection.network
        if isinstance(item, bytes):
            self.unread_bytes += len(item)
            if self.link.faults.loss and network.lost(self.link):
                self.lost = True
                self.connection.break_both("a message was lost and not acknowledged", BREAK_US)
            elif network.holds and network.held_back(
                self.link, self.connection.method, self.part, item, self._unhold, self._break
            ):
                self._durable_offset = True
        if self.lost:
            return
        self._stalled.append(item)
        self.flush()

    def _break(self) -> None:
        self.connection.break_both("its connection broke", (0, 0))

    def _unhold(self) -> None:
        self._durable_offset = False
        self.flush()

    def flush(self) -> None:
        """Send the items that neither a disconnected link nor a story holds back."""
        network = self.connection.network
        while self._stalled and not self._durable_offset and not self.link.is_disconnected:
            item = self._stalled.popleft()
            loop = network.loop
            self._last_us = max(self._last_us + 1, loop.now_us + network.delay_us(self.link))
            loop.call_at_us(self._last_us, self._arrive, item, context=loop.world)

    def _arrive(self, item: bytes | object) -> None:
        self.connection.end_behind(self).take(item)

    def drop_stalled(self) -> None:
        self.lost = True
        self._stalled.clear()


class SimStream:
    """One end of a stream: see MessageStream in tidelog/protocol/network.py."""

    def __init__(self, connection: Connection, process: Process, out: Pipe, inbound: Pipe, receives: Any) -> None:
        self.process = process
        self._connection, self._out, self._in, self._receives = connection, out, inbound, receives
        self._inbox: deque[bytes] = deque()
        self._closed = False
        self.closed_itself = False
        self._ended = False  # the other side ended the stream
        self._has_last = False  # the other side sends nothing more
        self._error: TidelogError | None = None
        self._receiver: asyncio.Future[None] | None = None
        self._sender: asyncio.Future[None] | None = None

    @property
    def over(self) -> bool:
        return self._closed or self._ended or self._error is not None

    async def send(self, message: Any, /) -> None:
        data = bytes(bytes_of(message))
        while self._out.unread_bytes > WINDOW_BYTES and not self.over:
            assert self._sender is None, "one task sends on a stream"
            self._sender = self._connection.network.loop.create_future()
            try:
                await self._sender
            except asyncio.CancelledError:
                self._connection.cancelled_at(self)
                raise
            finally:
                self._sender = None
        if self.over:
            raise self._failure()
        self._out.push(data)

    async def receive(self) -> Any:
        while True:
            if self._closed:
                raise self._failure()
            if self._inbox:
                data = self._inbox.popleft()
                self._in.unread_bytes -= len(data)
                sender = self._connection.end_before(self._in)
                if sender._sender is not None:
                    sender.wake_sender()
                return wire.reader(self._receives)(data)
            if self._ended or self._has_last:
                return None
            if self._error is not None:
                raise self._failure()
            assert self._receiver is None, "one task receives from a stream"
            self._receiver = self._connection.network.loop.create_future()
            try:
                await self._receiver
            except asyncio.CancelledError:
                self._connection.cancelled_at(self)
                raise
            finally:
                self._receiver = None

    async def end(self) -> None:
        if self.over:
            raise self._failure()
        self._out.push(LAST)

    def close(self) -> None:
        """End the stream at once; the other side gets the end after the messages sent before. On the server side
        this also cancels the method that serves it, as the real server does."""
        if self._closed:
            return
        self.closed_itself = not self.over
        self._closed = True
        self._wake_all()
        self._connection.closed_by(self)

    def finish(self, ending: object) -> None:
        """Report the end of the serving method to the other side, if that still exists."""
        if not self.over or self.closed_itself:
            self._out.push(ending)
        self._closed = True

    def take(self, item: bytes | object) -> None:
        """Receive an item from the other side."""
        if self.over or not self.process.alive:
            return
        if isinstance(item, bytes):
            self._inbox.append(item)
            self._wake_receiver()
            return
        if item is LAST:
            self._has_last = True
            self._wake_receiver()
            return
        if item is END:
            self._ended = True
        else:
            assert isinstance(item, TidelogError)
            self._error = item
        self._connection.ended_for(self)
        self._wake_all()

    def break_now(self, why: str) -> None:
        if not self.over:
            self.take(ConnectionLost(f"{self._connection} broke: {why}; open it again"))

    def wake_sender(self) -> None:
        if self._sender is not None and not self._sender.done():
            self._sender.set_result(None)

    def _wake_all(self) -> None:
        self.wake_sender()
        self._wake_receiver()

    def _wake_receiver(self) -> None:
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)

    def _failure(self) -> TidelogError:
        if self._error is not None:
            return type(self._error)(*self._error.args) if isinstance(self._error, ConnectionFailed) else self._error
        return ConnectionLost(f"{self._connection} is closed; open it again")


class _Bytes:
    """The message of a server's end, whose boundary decodes the bytes and encodes them."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:
        return self._data

    @staticmethod
    def FromString(data: bytes) -> bytes:
        return data


class _Served:
    """A server's end as the boundary gets it."""

    def __init__(self, stream: SimStream) -> None:
        self._stream = stream
        self.receive, self.close = stream.receive, stream.close

    async def send(self, answer: EncodedAnswer, /) -> None:
        await self._stream.send(_Bytes(answer.data))

    async def accept(self) -> None: ...

    async def settle(self) -> None: ...

    def end_of_cancelled(self) -> TidelogError | None:
        if not self._stream.closed_itself:
            raise asyncio.CancelledError
        return None


class Connection:
    """A stream from open to end: both sides and the handler that serves it."""

    def __init__(
        self, network: Network, number: int, source: str, to: Endpoint, method: Method[Any, Any], process: Process
    ) -> None:
        self.network, self.method, self._to, self._number = network, method, to, number
        self._source, self._target = source, network.machine_of(to)
        self._up = Pipe(self, network.link(source, self._target), "request")
        self._down = Pipe(self, network.link(self._target, source), "answer")
        self.client = SimStream(self, process, self._up, self._down, method.answer)
        self.server: SimStream | None = None
        self._handler: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] = network.loop.create_future()

    def __str__(self) -> str:
        return f"{self.method} stream {self._number} {self._source} -> {self._target}"

    def __repr__(self) -> str:
        return str(self)

    # --- opening and serving ---

    async def opened(self) -> None:
        """Connect: one round trip, a refusal, or no answer."""
        self.network.send(self._up.link, self._arrive)
        await self._opened

    def _arrive(self) -> None:
        listening = self.network.listening_at(self._to, self._up.link)
        if self.client.over:
            return
        if listening is None:
            if self._target not in self.network.machines_off:
                self.network.send(self._down.link, lambda: self._open_failed("connection refused"))
            return
        if self.server is not None:
            return
        self.server = SimStream(self, listening.process, self._down, self._up, _Bytes)
        self._handler = listening.process.run(
            self.network.loop.create_task, self._serve(listening), name=f"{self._target} serves {self}"
        )
        self.network.send(self._down.link, self._open_done)

    def _open_done(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def _open_failed(self, why: str) -> None:
        if not self._opened.done():
            self._opened.set_exception(ConnectionFailed(f"{self}: {why}; try again later"))

    async def _serve(self, listening: Listening) -> None:
        """The server side; runs as a task of the serving process."""
        assert self.server is not None
        ending: object = END
        api = APIS[str(self.method)]
        try:
            if api.service not in listening.boundary.gates:
                raise UnknownServerError(f"{self._target} serves no {self.method.service}")
            caller = caller_of(listening.listener, self._source)
            await listening.boundary.serve_stream(api, _Served(self.server), listening.codec_of(api.name), caller)
        except TidelogError as refused:
            self.network.report_defect(refused, f"{self} failed by a defect")
            ending = self.network.over_the_wire(refused)
        finally:
            self.server.finish(ending)

    # --- ending ---

    def end_behind(self, pipe: Pipe) -> SimStream:
        """The receiving end of a pipe."""
        if pipe is self._down:
            return self.client
        assert self.server is not None
        return self.server

    def end_before(self, pipe: Pipe) -> SimStream:
        """The sending end of a pipe."""
        if pipe is self._up:
            return self.client
        assert self.server is not None
        return self.server

    def closed_by(self, end: SimStream) -> None:
        if end is self.client:
            if self.server is not None:
                self._up.push(END)
        elif self._handler is not None:
            self._handler.cancel()
        self.forget_if_over()

    def cancelled_at(self, end: SimStream) -> None:
        """A task was cancelled while it sent or received: gRPC then ends the stream of the calling side."""
        if end is self.client:
            end.close()

    def ended_for(self, end: SimStream) -> None:
        """That end has just learned that the stream is over. If it is the caller, the method that serves it is
        cancelled."""
        if end is self.server and self._handler is not None:
            self._handler.cancel()
        self.forget_if_over()

    def break_both(self, why: str, after_us: tuple[int, int]) -> None:
        """Break both ends, each after its own delay."""
        for end in (self.client, self.server):
            if end is not None and not end.over:
                self.network.loop.call_world_later_us(self.network.rng.randint(*after_us), end.break_now, why)

    def process_ended(self, process: Process, *, power_lost: bool) -> None:
        for end, other, out in ((self.client, self.server, self._up), (self.server, self.client, self._down)):
            if end is None or end.process is not process:
                continue
            if power_lost:
                out.drop_stalled()
            if other is not None and not other.over:
                after = self.network.rng.randint(*(SILENCE_US if power_lost else (200, 5_000)))
                self.network.loop.call_world_later_us(after, other.break_now, "the other side's process ended")
            end.break_now("its process ended")
            if end is self.server:
                self._open_failed("the process ended while connecting")
        self.forget_if_over()

    def crosses(self, link: Link) -> bool:
        return link is self._up.link or link is self._down.link

    def opened_over(self, link: Link) -> bool:
        return link is self._up.link

    def flush(self, link: Link) -> None:
        for pipe in (self._up, self._down):
            if pipe.link is link and not pipe.lost:
                pipe.flush()

    def forget_if_over(self) -> None:
        if self.client.over and (self.server is None or self.server.over) and self in self.network.connections:
            self.network.connections.remove(self)
