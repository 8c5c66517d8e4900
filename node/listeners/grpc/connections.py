"""The connections of the process by the addresses of their peers, and its memory: gRPC exposes neither sockets nor file
descriptors, nor what it buffers."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote

_MAPPED: Final = "::ffff:"
"""Prefix of IPv4 addresses on a socket for both versions of IP. gRPC reports them without it."""

Address: TypeAlias = tuple[str, int]
"""The address of a peer: its IP address in the usual form, and its port."""

_TRAFFIC: Final = struct.Struct("=120xQQ")
"""`tcpi_bytes_acked` and `tcpi_bytes_received` in Linux's `struct tcp_info` (since Linux 4.1)."""

COUNTS_TRAFFIC: Final = hasattr(socket, "TCP_INFO")
"""Whether `traffic_of` and `private_memory` work: on Linux."""

PAUSE: Final = 20
"""Between two searches the loop does other work for so many times the duration of the first one."""


def host_of(peer: str) -> str:
    """The IP address of a caller, in the usual form; empty if gRPC does not report one. peer: as gRPC reports it."""
    found = re.fullmatch(r"ipv[46]:\[?([^\]]+?)\]?:\d+", unquote(peer) if "%" in peer else peer)
    return "" if found is None else found[1].removeprefix(_MAPPED)


def address_of(peer: str) -> Address | None:
    """The address of a caller; None if gRPC does not report one. peer: as gRPC reports it, `ipv4:127.0.0.1:40000` or
    `ipv6:%5B::1%5D:40000`."""
    found = re.fullmatch(r"ipv[46]:\[?([^\]]+?)\]?:(\d+)", unquote(peer))
    return None if found is None else (found[1], int(found[2]))


def shut_down_connections(peers: Collection[str]) -> int:
    """Shut down the TCP connections to these callers in both directions. peers: as gRPC reports them. Returns how many
    such connections there were."""
    wanted = {address for peer in peers if (address := address_of(peer)) is not None}
    return shut_down_addresses(wanted)


def shut_down_addresses(wanted: Collection[Address]) -> int:
    """Shut down the TCP connections to these peers in both directions. Returns how many there were."""
    if not wanted:
        return 0
    ended = 0
    for connection, peer in _connections():
        if peer in wanted:
            with suppress(OSError):  # closed meanwhile
                connection.shutdown(socket.SHUT_RDWR)
                ended += 1
    return ended


class Traffic(NamedTuple):
    """Bytes of a TCP connection since it was made: those that its peer has acknowledged, and those received."""

    sent: int
    received: int


def private_memory() -> int:
    """The memory of this process that no file backs (bytes)."""
    resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def traffic_of(port: int) -> dict[Address, Traffic]:
    """The traffic of the connections that were made to this local port, by peer."""
    found = {}
    for connection, peer in _connections():
        with suppress(OSError):  # closed meanwhile
            if connection.getsockname()[1] == port:
                told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TRAFFIC.size)
                found[peer] = Traffic(*_TRAFFIC.unpack(told))
    return found


def _connections() -> Iterator[tuple[socket.socket, Address]]:
    """The TCP connections of the process with their peers. Each socket is valid until the next one is asked for.

    Cost: about 5 us for each open file of the process.
    """
    with os.scandir("/proc/self/fd") as entries:
        for entry in entries:
            with suppress(OSError):  # closed meanwhile, or not connected
                if not stat.S_ISSOCK(os.fstat(int(entry.name)).st_mode):
                    continue
                with _copied(int(entry.name)) as connection:
                    peer = connection.getpeername()
                    if isinstance(peer, tuple) and isinstance(peer[0], str):
                        yield connection, (peer[0].removeprefix(_MAPPED), peer[1])


def _copied(descriptor: int) -> socket.socket:
    """A socket of its own for the same connection. Raises OSError if the descriptor is none of a socket any more."""
    copy = os.dup(descriptor)
    try:  # without questions to the socket; the family only decides how much room an address has
        return socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=copy)
    except OSError:
        os.close(copy)
        raise


class ConnectionShutdown:
    """Shuts down connections of one event loop, many at once: one caller can have thousands of overdue answers, and a
    search for the connection of each would stop the loop for minutes."""

    def __init__(self) -> None:
        self._peers: set[str] = set()
        self._search_at = 0.0
        """The time of the loop before which the next search must not begin."""

    def request(self, peer: str) -> bool:
        """Shut down the connection to this caller soon. Returns False if that was requested already. peer: as gRPC
        reports it."""
        if peer in self._peers:
            return False
        self._peers.add(peer)
        if len(self._peers) == 1:
            loop = asyncio.get_running_loop()
            loop.call_at(max(self._search_at, loop.time()), self._shut_down)
        return True

    def _shut_down(self) -> None:
        loop = asyncio.get_running_loop()
        peers, self._peers = self._peers, set()
        began = loop.time()
        shut_down_connections(peers)
        self._search_at = loop.time() + PAUSE * (loop.time() - began)
