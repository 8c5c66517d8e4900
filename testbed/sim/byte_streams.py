"""Connections of bytes in the simulated network: TCP, for the listener of Kafka's protocol.

Bytes arrive in order and once, in pieces that are cut anywhere, or the connection breaks: each end learns of it by
itself, and before that it may have the first bytes of a message whose rest never comes. Links have the faults that they
have for other messages. The node's end is what the listener takes for an asyncio transport, and its protocol is the
listener's real one.

Not here: frames and requests of the client (kafka_client.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from node.listeners.kafka.kafka_connection import KafkaConnection
from testbed.sim.process import Process
from testbed.sim.streams import BREAK_US, SILENCE_US
from tidelog.errors import ConnectionFailed, ConnectionLost
from tidelog.types import Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.sim.network import Link, Network

WINDOW_BYTES: Final = 1_024
"""What the system of a node takes of an answer while the client does not read. Small, so that answers often wait."""

CUT: Final = 0.1
"""How often what is sent at once arrives in two pieces."""

END: Final = object()
"""The other side has closed the connection, after everything that it sent."""


class BytePipe:
    """One direction."""

    def __init__(self, connection: ByteConnection, link: Link) -> None:
        self.connection, self.link = connection, link
        self.unread = 0
        """Bytes that were sent and not read."""
        self._stalled: deque[bytes | object] = deque()
        self._is_lost = False
        self._last_us = 0

    def push(self, item: bytes | object) -> None:
        """Send bytes, or END."""
        if self._is_lost:
            return
        network = self.connection.network
        if isinstance(item, bytes):
            self.unread += len(item)
            if self.link.faults.loss and network.lost(self.link):
                item = item[: network.rng.randrange(len(item))]  # the rest is not acknowledged, nor what follows
                self._stalled.append(item)
                self.flush()
                self._is_lost = True
                self.connection.break_both("bytes were lost and not acknowledged", BREAK_US)
                return
            if len(item) > 1 and network.rng.random() < CUT:
                at = network.rng.randrange(1, len(item))
                self._stalled.append(item[:at])
                item = item[at:]
        self._stalled.append(item)
        self.flush()

    def flush(self) -> None:
        """Send what no disconnected link holds back."""
        network = self.connection.network
        loop = network.loop
        while self._stalled and not self.link.is_disconnected and not self._is_lost:
            item = self._stalled.popleft()
            self._last_us = max(self._last_us + 1, loop.now_us + network.delay_us(self.link))
            loop.call_at_us(self._last_us, self._arrive, item, context=loop.world)

    def _arrive(self, item: bytes | object) -> None:
        end = self.connection.client if self is self.connection.down else self.connection.server
        if end is not None and end.process.alive:
            end.take(item)

    def lose_rest(self) -> None:
        """Nothing that waits arrives any more."""
        self._is_lost = True
        self._stalled.clear()


class ClientSocket:
    """The client's end. One task reads."""

    def __init__(self, connection: ByteConnection, process: Process) -> None:
        self.process = process
        self._connection = connection
        self._received = bytearray()
        self._error: str | None = None
        self._reader: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        return self._error is not None

    def send(self, data: bytes) -> None:
        """Send bytes. Raises ConnectionLost."""
        if self._error is not None:
            raise ConnectionLost(f"{self._connection}: {self._error}")
        self._connection.up.push(data)

    async def read(self, count: int) -> bytes:
        """So many bytes. Raises ConnectionLost if they do not come."""
        while len(self._received) < count:
            if self._error is not None:
                raise ConnectionLost(f"{self._connection}: {self._error}")
            self._reader = self._connection.network.loop.create_future()
            await self._reader
        data = bytes(self._received[:count])
        del self._received[:count]
        self._connection.read_by_client(count)
        return data

    def close(self) -> None:
        """End the connection; the node learns of it."""
        if self._error is None:
            self._connection.up.push(END)
            self.fail("it was closed")

    def take(self, item: bytes | object) -> None:
        """Something has arrived."""
        if self._error is not None:
            return
        if isinstance(item, bytes):
            self._received += item
            self._wake()
        else:
            self.fail("the node closed it")

    def fail(self, why: str) -> None:
        """The connection is over for this end."""
        if self._error is None:
            self._error = why
            self._wake()
            self._connection.forget_if_over()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class ServerSocket(asyncio.Transport):
    """The node's end: what the listener reads from and writes to."""

    def __init__(self, connection: ByteConnection, process: Process, protocol: KafkaConnection, peer: str) -> None:
        super().__init__({"peername": (peer, connection.number)})
        self.process = process
        self._connection, self._protocol = connection, protocol
        self._received = bytearray()
        self._is_reading, self._is_due = True, False
        self._is_closing = self.is_over = self._has_end = self._is_blocked = False

    # --- what the listener calls ---

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Without effect: every byte that the system does not take blocks."""

    def get_write_buffer_size(self) -> int:
        return self._connection.down.unread

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._wake()

    def is_closing(self) -> bool:
        return self._is_closing

    def writelines(self, pieces: Sequence[Any]) -> None:  # type: ignore[override]
        if self.is_over:
            return
        self._connection.down.push(b"".join(pieces))
        if self._connection.down.unread > WINDOW_BYTES and not self._is_blocked:
            self._is_blocked = True
            self._protocol.pause_writing()

    def close(self) -> None:
        self._end()

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._connection.down.push(END)
            self._connection.network.loop.call_soon(self._lost)

    # --- what the network calls ---

    def take(self, item: bytes | object) -> None:
        """Something has arrived, for the process to see when it runs."""
        if isinstance(item, bytes):
            self._received += item
        else:
            self._has_end = True
        self._wake()

    def fail(self, _why: str) -> None:
        """The connection broke, and this end has noticed."""
        if not self._is_closing:
            self._is_closing = True
            self.process.run(self._connection.network.loop.call_soon, self._lost)

    def client_has_read(self) -> None:
        if self._is_blocked and self._connection.down.unread == 0 and not self.is_over:
            self._is_blocked = False
            self.process.run(self._connection.network.loop.call_soon, self._resume_writing)

    def _resume_writing(self) -> None:
        if not self.is_over:
            self._protocol.resume_writing()

    def _wake(self) -> None:
        if not self._is_due and self._is_reading and not self._is_closing and self.process.alive:
            self._is_due = True
            self.process.run(self._connection.network.loop.call_soon, self._read)

    def _read(self) -> None:
        """Give the protocol what has arrived, as much at once as it has a buffer for."""
        self._is_due = False
        while self._received and self._is_reading and not self._is_closing:
            buffer = self._protocol.get_buffer(-1)
            count = min(len(buffer), len(self._received))
            assert count, "a protocol that reads has a buffer"
            buffer[:count] = self._received[:count]
            del self._received[:count]
            self._connection.up.unread -= count
            self._protocol.buffer_updated(count)
        if self._has_end and self._is_reading and not self._is_closing and not self._received:
            self._is_closing = True
            self._lost()

    def _lost(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._protocol.connection_lost(None)
            self._connection.forget_if_over()


class ByteConnection:
    """A connection from its opening to its end."""

    def __init__(self, network: Network, source: str, to: Endpoint, process: Process) -> None:
        self.network, self.number = network, network.next_number()
        self._source, self._target, self._to = source, network.machine_of(to), to
        self.up = BytePipe(self, network.link(source, self._target))
        self.down = BytePipe(self, network.link(self._target, source))
        self.client = ClientSocket(self, process)
        self.server: ServerSocket | None = None
        self._opened: asyncio.Future[None] = network.loop.create_future()

    def __str__(self) -> str:
        return f"connection {self.number} {self._source} -> {self._target}"

    async def opened(self) -> ClientSocket:
        """Connect: one round trip, or a refusal. Raises ConnectionFailed."""
        self.network.connections.append(self)
        self.network.send(self.up.link, self._arrive)
        try:
            await self._opened
        except BaseException:
            self.client.close()
            raise
        return self.client

    def _arrive(self) -> None:
        listening = self.network.listening_at(self._to, self.up.link)
        if self.client.is_over or self.server is not None:
            return
        if listening is None or listening.accepts is None:
            if self._target not in self.network.machines_off:
                self.network.send(self.down.link, self._refused)
            return
        self.server = listening.process.run(self._accept, listening.process, listening.accepts)
        self.network.send(self.down.link, self._done)

    def _accept(self, process: Process, accepts: Any) -> ServerSocket:
        protocol = accepts()
        server = ServerSocket(self, process, protocol, self._source)
        self.network.loop.call_soon(protocol.connection_made, server)
        return server

    def _done(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def _refused(self) -> None:
        if not self._opened.done():
            self._opened.set_exception(ConnectionFailed(f"{self}: connection refused; try again later"))

    def read_by_client(self, count: int) -> None:
        """The client has taken so many bytes."""
        self.down.unread -= count
        if self.server is not None:
            self.server.client_has_read()

    # --- as the network sees every connection (streams.py) ---

    def break_both(self, why: str, after_us: tuple[int, int]) -> None:
        """Break both ends, each after its own delay."""
        for end in (self.client, self.server):
            if end is not None and not end.is_over:
                self.network.loop.call_world_later_us(self.network.rng.randint(*after_us), self._break, end, why)

    @staticmethod
    def _break(end: ClientSocket | ServerSocket, why: str) -> None:
        if end.process.alive:
            end.fail(why)

    def process_ended(self, process: Process, *, power_lost: bool) -> None:
        """The process of one end is gone. The other end learns of it late if the machine has no power."""
        ends: list[tuple[Any, Any, BytePipe]] = [
            (self.client, self.server, self.up),
            (self.server, self.client, self.down),
        ]
        for end, other, out in ends:
            if end is None or end.process is not process:
                continue
            if power_lost:
                out.lose_rest()
            if other is not None and not other.is_over:
                after = self.network.rng.randint(*(SILENCE_US if power_lost else (200, 5_000)))
                why = "the other side's process ended"
                self.network.loop.call_world_later_us(after, self._break, other, why)
            if end is self.client:
                self.client.fail("its process ended")
            else:
                end.is_over = True
                self._refused()
        self.forget_if_over()

    def crosses(self, link: Link) -> bool:
        return link is self.up.link or link is self.down.link

    def opened_over(self, link: Link) -> bool:
        return link is self.up.link

    def flush(self, link: Link) -> None:
        for pipe in (self.up, self.down):
            if pipe.link is link:
                pipe.flush()

    def forget_if_over(self) -> None:
        over = self.client.is_over and (self.server is None or self.server.is_over)
        if over and self in self.network.connections:
            self.network.connections.remove(self)
