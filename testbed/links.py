"""The links between the nodes of a local cluster: a proxy before each node, which can hold back what others send to it.

Nodes advertise the addresses of these proxies to each other. A connection belongs to the node whose process owns its
other end. Invariants: bytes of a link that is cut are held, not lost: as on a network that drops packets, a connection
continues after the repair unless an end has given it up. Clients do not use these addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final

from testbed.socket_owners import HOST, owner_of
from tidelog.types import Endpoint

_CHUNK_BYTES: Final = 1 << 16
_START_S: Final = 10.0


class Links:
    """All links of a cluster, on a thread of their own. pid_of: the present process of a node; None: it does not
    run."""

    def __init__(self, targets: Iterable[tuple[int, Endpoint]], pid_of: Callable[[int], int | None]) -> None:
        """targets: each node with the address at which it listens for the others."""
        self._targets = dict(targets)
        self._pid_of = pid_of
        self._sockets = {node: _bound() for node in self._targets}
        self._cut: set[tuple[int, int]] = set()
        self._loop = asyncio.new_event_loop()
        self._moved = asyncio.Event()
        """Set, and replaced, whenever a link is repaired."""
        self._connections: set[asyncio.Task[None]] = set()
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

    def cut(self, source: int, target: int) -> None:
        """Hold back everything from one node to another, until `repair`."""
        self._cut.add((source, target))

    def repair(self, source: int, target: int) -> None:
        """Send what was held back, and hold back nothing more."""
        self._cut.discard((source, target))
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    # --- on the thread ---

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._started.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self._loop), return_exceptions=True))
        self._loop.close()

    async def _listen(self) -> None:
        for node, listening in self._sockets.items():
            await asyncio.start_server(self._accepts(node), sock=listening)

    def _accepts(self, target: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._carry(target, reader, writer))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        return accept

    async def _carry(self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its end."""
        source = self._owner(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        try:
            await self._open(source, target)
            address = self._targets[target]
            inner_reader, inner_writer = await asyncio.open_connection(address.host, address.port)
        except OSError:
            writer.close()  # the node does not listen: its peer sees a connection that ends at once
            return
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, inner_writer, source, target))
                pumps.create_task(self._pump(inner_reader, writer, target, source))
        finally:
            writer.close()
            inner_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int | None, target: int | None
    ) -> None:
        """One direction of a connection, until either end closes it."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._open(source, target)
                writer.write(data)
                await writer.drain()
        await self._open(source, target)
        writer.close()

    async def _open(self, source: int | None, target: int | None) -> None:
        """Wait until the link is not cut."""
        while (source, target) in self._cut:
            await self._moved.wait()

    def _owner(self, port: int, own_port: int) -> int | None:
        """The node that has this port as its end of a connection; None for another process, which nothing cuts off."""
        pids = {node: pid for node in self._targets if (pid := self._pid_of(node)) is not None}
        return owner_of(port, own_port, pids)


def _bound() -> socket.socket:
    listening = socket.socket()
    listening.bind((HOST, 0))
    listening.listen(64)
    return listening
