"""The links between the nodes of a local cluster: a proxy before each node, which can hold back or slow down what
others send to it.

Nodes advertise the addresses of these proxies to each other. A connection belongs to the node whose process owns its
other end. Invariants: bytes of a link that is cut are held, not lost: as on a network that drops packets, a connection
continues after the repair unless an end has given it up. Clients do not use these addresses.

The owner is searched for once a link is cut or shaped, not for each connection: the search takes milliseconds of the
thread that passes everything on. On a busy machine, nodes that connect again after a failure would give up connections
faster than the thread accepts them, and their cluster would never recover.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from testbed.socket_owners import HOST, owner_of
from tidelog.types import Endpoint

_CHUNK_BYTES: Final = 1 << 16
_START_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class LinkShape:
    """What one direction between two nodes does to the bytes. They arrive in order, one piece after the other: a link
    with a delay is a narrow one too."""

    delay_ms: float = 0
    bytes_per_s: float = 0
    """0: without limit."""

    def seconds(self, size: int) -> float:
        """How long a piece of so many bytes takes."""
        return self.delay_ms / 1_000 + (size / self.bytes_per_s if self.bytes_per_s else 0)


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection from another process to a node."""

    target: int
    port: int
    """Of the other process."""
    own_port: int
    """Of the proxy."""
    source: int | None = None
    """The node that has opened it; None for another process, which nothing cuts off."""
    is_source_known: bool = False


class Links:
    """All links of a cluster, on a thread of their own. pid_of: the present process of a node; None: it does not
    run."""

    def __init__(self, targets: Iterable[tuple[int, Endpoint]], pid_of: Callable[[int], int | None]) -> None:
        """targets: each node with the address at which it listens for the others."""
        self._targets = dict(targets)
        self._pid_of = pid_of
        self._sockets = {node: _bound() for node in self._targets}
        self._cut: set[tuple[int, int]] = set()
        self._shapes: dict[tuple[int | None, int | None], LinkShape] = {}
        self._loop = asyncio.new_event_loop()
        self._moved = asyncio.Event()
        """Set, and replaced, whenever a link is repaired."""
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidelog links", daemon=True)

    def address_of(self, node: int) -> Endpoint:
        """Where the other nodes reach a node."""
        return Endpoint(HOST, self._sockets[node].getsockname()[1])

    def start(self) -> None:
        """Accept connections from now on."""
        self._thread.start()
        self._started.wait(_START_S)

    def close(self) -> None:
        """End all connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        for each in self._sockets.values():
            each.close()

    def cut(self, *links: tuple[int, int]) -> None:
        """Hold back everything from the first node of each link to the second one, until `repair`."""
        self._cut.update(links)
        # Now, while both ends exist: that a process is killed later must not reach the other side of a cut either.
        self._find_sources()

    def repair(self, source: int, target: int) -> None:
        """Send what was held back, and hold back nothing more."""
        self._cut.discard((source, target))
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._wake)

    def shape(self, shape: LinkShape, *links: tuple[int, int]) -> None:
        """Let these links do this to what is sent from now on; the default shape does nothing."""
        for link in links:
            if shape == LinkShape():
                self._shapes.pop(link, None)
            else:
                self._shapes[link] = shape
        self._find_sources()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    # --- on the thread ---

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _listen(self) -> None:
        for node, listening in self._sockets.items():
            self._servers.append(await asyncio.start_server(self._accepts(node), sock=listening))

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        # What was accepted before that may still become a task: until there is none.
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _accepts(self, target: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            port, own_port = writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1]
            connection = _Connection(target, port, own_port)
            task = self._loop.create_task(self._carry(connection, reader, writer))
            self._connections[task] = connection
            task.add_done_callback(self._connections.pop)

        return accept

    async def _carry(self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its end."""
        try:
            await self._open(connection)
            address = self._targets[connection.target]
            inner_reader, inner_writer = await asyncio.open_connection(address.host, address.port)
        except OSError:
            writer.close()  # the node does not listen: its peer sees a connection that ends at once
            return
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, inner_writer, connection))
                pumps.create_task(self._pump(inner_reader, writer, connection, is_answer=True))
        finally:
            writer.close()
            inner_writer.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: _Connection,
        *,
        is_answer: bool = False,
    ) -> None:
        """One direction of a connection, until either end closes it."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if self._shapes and (shape := self._shapes.get(self._link(connection, is_answer=is_answer))):
                    await asyncio.sleep(shape.seconds(len(data)))
                await self._open(connection, is_answer=is_answer)
                writer.write(data)
                await writer.drain()
        await self._open(connection, is_answer=is_answer)
        writer.close()

    async def _open(self, connection: _Connection, *, is_answer: bool = False) -> None:
        """Wait until the link is not cut, in this direction."""
        while self._cut and self._link(connection, is_answer=is_answer) in self._cut:
            await self._moved.wait()

    def _link(self, connection: _Connection, *, is_answer: bool) -> tuple[int | None, int | None]:
        """What a direction of a connection belongs to."""
        self._find_source(connection)
        ends = (connection.source, connection.target)
        return ends[::-1] if is_answer else ends

    def _find_sources(self) -> None:
        for each in tuple(self._connections.values()):
            self._find_source(each)

    def _find_source(self, connection: _Connection) -> None:
        if not connection.is_source_known:
            pids = {node: pid for node in self._targets if (pid := self._pid_of(node)) is not None}
            connection.source = owner_of(connection.port, connection.own_port, pids)
            connection.is_source_known = True


def _bound() -> socket.socket:
    listening = socket.socket()
    listening.bind((HOST, 0))
    listening.listen(64)
    return listening
