"""The TCP connections and the memory of this process, read from /proc: gRPC exposes neither its sockets nor the bytes
that it buffers."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
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
"""True if `traffic_of` and `private_memory` work: on Linux."""

PAUSE: Final = 20
"""The pause after a search, as a multiple of the time that it took: searches take at most 5 % of the loop's time."""


def host_of(peer: str) -> str:
    """The IP address of a caller, in the usual form; empty if gRPC does not report one. peer: as gRPC reports it."""
    match = re.fullmatch(r"ipv[46]:\[?([^\]]+?)\]?:\d+", unquote(peer) if "%" in peer else peer)
    return "" if match is None else match[1].removeprefix(_MAPPED)


def address_of(peer: str) -> Address | None:
    """The address of a caller; None if gRPC does not report one. peer: as gRPC reports it, `ipv4:127.0.0.1:40000` or
    `ipv6:%5B::1%5D:40000`."""
    match = re.fullmatch(r"ipv[46]:\[?([^\]]+?)\]?:(\d+)", unquote(peer))
    return None if match is None else (match[1], int(match[2]))


def shut_down_connections(peers: Collection[str]) -> int:
    """Shut down the TCP connections to these callers in both directions. peers: as gRPC reports them. Returns the
    number of connections that were shut down."""
    return shut_down_addresses({address for peer in peers if (address := address_of(peer)) is not None})


def shut_down_addresses(addresses: Collection[Address]) -> int:
    """Shut down the TCP connections to these peers in both directions. Returns the number that were shut down."""
    if not addresses:
        return 0
    ended = 0
    for connection, peer in _connections():
        if peer in addresses:
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
    traffic = {}
    for connection, peer in _connections():
        with suppress(OSError):  # closed meanwhile
            if connection.getsockname()[1] == port:
                tcp_info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TRAFFIC.size)
                traffic[peer] = Traffic(*_TRAFFIC.unpack(tcp_info))
    return traffic


_ESTABLISHED: Final = "01"
"""The state of a connection in Linux's /proc/net/tcp."""


def connections_to(ports: Mapping[str, int]) -> dict[str, int]:
    """The number of connections that were made to each of these local ports, by its name; without all of them where the
    system does not tell (not Linux). Runs on a thread: with thousands of connections the file takes milliseconds."""
    found = dict.fromkeys(ports, 0)
    names = {f"{port:04X}": name for name, port in ports.items()}
    is_known = False
    for path in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with suppress(OSError):
            lines = Path(path).read_text(encoding="ascii").splitlines()
            is_known = True
            for line in lines:
                _, local, _, state, *_ = line.split(None, 4)
                if state == _ESTABLISHED and (name := names.get(local.rpartition(":")[2])) is not None:
                    found[name] += 1
    return found if is_known else {}


def _connections() -> Iterator[tuple[socket.socket, Address]]:
    """The TCP connections of the process with their peers. A socket is closed when the iteration continues.

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
    """A second socket object for the same connection: closing it leaves gRPC's descriptor open. Raises OSError if the
    descriptor no longer belongs to a socket."""
    copy = os.dup(descriptor)
    try:  # named family and type save system calls; a wrong family only decides the size of the buffer for addresses
        return socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=copy)
    except OSError:
        os.close(copy)
        raise


class ConnectionShutdown:
    """Shuts down connections of one event loop, all that were requested in one search: a caller can have thousands of
    overdue answers, and one search for each would stop the loop for minutes."""

    def __init__(self) -> None:
        self._peers: set[str] = set()
        self._search_at = 0.0
        """The next search begins at this time of the loop at the earliest."""

    def request(self, peer: str) -> bool:
        """Shut down the connection to this caller soon. Returns False if that was requested already. peer: as gRPC
        reports it."""
        if peer in self._peers:
            return False
        self._peers.add(peer)
        if len(self._peers) == 1:  # later requests are served by the same search
            loop = asyncio.get_running_loop()
            loop.call_at(max(self._search_at, loop.time()), self._shut_down)
        return True

    def _shut_down(self) -> None:
        loop = asyncio.get_running_loop()
        peers, self._peers = self._peers, set()
        began = loop.time()
        shut_down_connections(peers)
        self._search_at = loop.time() + PAUSE * (loop.time() - began)
