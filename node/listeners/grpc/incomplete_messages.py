"""Limits the memory of messages that have not arrived completely.

gRPC keeps what has arrived of a message, up to `socket.request.max.bytes` for each call, before it gives the node
anything of it, and its Python interface has no limit of the sum
([decision 0022](../../../docs/decisions/0022-incomplete-messages-are-counted-at-the-socket.md)). The kernel counts what
each connection has received; less the messages that were delivered, that is what gRPC buffers.

Invariants:
  1. Above `bytes_max` in all, connections of the listener are shut down until less is buffered: at each step, of the
     IP address for which the most is buffered, the connection with the most.
  2. What a connection needs besides its messages (headers, acknowledgements, keepalive, TLS) does not add up over its
     life to something that looks like buffered messages.
  3. Connections are examined when the memory of the process has grown, and from time to time while it is above the
     least that it ever was: memory that was released stays with the process, so that it need not grow again.
Not here: complete messages (node/runtime/memory_budget.py). Linux only: elsewhere nothing is limited.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from node.listeners.grpc.connections import (
    COUNTS_TRAFFIC,
    Address,
    Traffic,
    address_of,
    private_memory,
    shut_down_addresses,
    traffic_of,
)

_log = logging.getLogger("node.requests")

INCOMPLETE_BYTES_MAX: Final = 256 << 20
"""Default limit of the bytes that are buffered in all."""

CHECK_MS: Final = 250
"""Interval of looking at the memory of the process."""

GROWTH_BYTES: Final = 16 << 20
"""Growth of the memory by which the connections are examined."""

EXAMINE_MS: Final = 2_000
"""Interval of examining the connections while the memory does not grow, and a millisecond more for each of them: one
takes the loop some 10 us."""

_MESSAGE_OVERHEAD: Final = 1_024
"""Bytes that may arrive with a message or a new call besides it: headers, frames, records of TLS."""

_TRAFFIC_OVERHEAD: Final = 100
"""Overhead of the wire: one byte for this many bytes of messages, for frames, records of TLS and acknowledgements."""

_KEEPALIVE_BYTES_S: Final = 16
"""Bytes a second of an idle connection: pings and their answers, some 4 B/s as plain text and 10 B/s in TLS. The node
sends as many, so that a caller hides no more than this by messages that it sends as slowly."""


class _Delivered:
    """What the node was given of a connection."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.bytes = self.messages = 0


class _Buffered(NamedTuple):
    """The bytes that gRPC buffered for a connection at the last examination."""

    unexplained: int
    """Bytes received, without those of messages that the node got."""
    buffered: int
    sent: int
    """Bytes sent by then."""


class IncompleteMessages:
    """The incomplete messages of one listener."""

    def __init__(
        self,
        bytes_max: int = INCOMPLETE_BYTES_MAX,
        *,
        memory: Callable[[], int] = private_memory,
        traffic: Callable[[int], Mapping[Address, Traffic]] = traffic_of,
        shut_down: Callable[[Collection[Address]], object] = shut_down_addresses,
    ) -> None:
        self._bytes_max, self._memory, self._traffic, self._shut_down = bytes_max, memory, traffic, shut_down
        self._delivered: defaultdict[str, _Delivered] = defaultdict(_Delivered)
        self._buffered: dict[Address, _Buffered] = {}
        self._port = 0
        self._examined_with = self._least = 0
        """The memory when the connections were examined, or less if it has fallen since; and the least ever."""
        self._examined_at = 0.0
        """The time of the loop at the last examination."""
        self._timer: asyncio.TimerHandle | None = None

    def delivered(self, peer: str, size: int) -> None:
        """Note that the node got a message of this size, or a call without a message. peer: as gRPC reports it."""
        if COUNTS_TRAFFIC:
            total = self._delivered[peer]
            total.bytes += size
            total.messages += 1

    def start(self, port: int) -> None:
        """Examine the connections to this local port from now on."""
        self._port = port
        if COUNTS_TRAFFIC:
            self._examined_with = self._least = self._memory()
            self._examined_at = asyncio.get_running_loop().time()
            self._again()

    def stop(self) -> None:
        """Examine no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_MS / 1_000, self._check)

    def _check(self) -> None:
        self._again()  # first: a failed examination must not be the last one
        memory, now = self._memory(), asyncio.get_running_loop().time()
        self._least = min(self._least, memory)
        has_grown = memory - self._examined_with >= GROWTH_BYTES
        is_due = now - self._examined_at >= (EXAMINE_MS + len(self._buffered)) / 1_000
        if has_grown or (is_due and memory - self._least >= GROWTH_BYTES):
            since, self._examined_with, self._examined_at = now - self._examined_at, memory, now
            self.examine(since)
        self._examined_with = min(self._examined_with, memory)

    def examine(self, since_s: float) -> None:
        """Shut down connections if more is buffered than may be. since_s: seconds since the last examination."""
        traffic = self._traffic(self._port)
        delivered = {peer: total for peer, total in self._delivered.items() if address_of(peer) in traffic}
        self._delivered = defaultdict(_Delivered, delivered)
        by_address = {address_of(peer): total for peer, total in delivered.items()}
        none = _Delivered()
        self._buffered = {
            address: self._buffered_now(address, each, by_address.get(address, none), since_s)
            for address, each in traffic.items()
        }
        chosen = _to_close({address: each.buffered for address, each in self._buffered.items()}, self._bytes_max)
        if chosen:
            buffered = sum(self._buffered[address].buffered for address in chosen)
            hosts = sorted({host for host, _ in chosen})
            _log.warning(
                "closed %d connections of %s%s, which had sent %d bytes of messages without completing them: all "
                "connections together may have %d bytes (memory.max.bytes)",
                len(chosen),
                ", ".join(hosts[:5]),
                f" and {len(hosts) - 5} other addresses" if len(hosts) > 5 else "",
                buffered,
                self._bytes_max,
            )
            self._shut_down(chosen)

    def _buffered_now(self, address: Address, traffic: Traffic, delivered: _Delivered, since_s: float) -> _Buffered:
        explained = delivered.bytes + delivered.messages * _MESSAGE_OVERHEAD
        overhead = (delivered.bytes + traffic.sent) // _TRAFFIC_OVERHEAD
        unexplained = traffic.received - explained - overhead
        # A connection that is not known yet was made since the last examination, which saw all.
        before = self._buffered.get(address, _Buffered(0, 0, 0))
        growth = unexplained - before.unexplained
        if growth > 0:  # else an idle client looks like one that buffers its keepalive pings for days
            growth -= min(growth, max(0, traffic.sent - before.sent), int(since_s * _KEEPALIVE_BYTES_S))
        # Never below 0: a caller must not save up what its former messages did not need.
        return _Buffered(unexplained, max(0, before.buffered + growth), traffic.sent)


def _to_close(buffered: Mapping[Address, int], bytes_max: int) -> set[Address]:
    """The connections to close so that at most `bytes_max` are buffered: at each step, of the host for which the most
    is buffered, the one with the most. So a caller cannot have the connections of others closed."""
    excess = sum(buffered.values()) - bytes_max
    if excess <= 0:
        return set()
    of_host: dict[str, list[tuple[int, int]]] = {}
    for (host, port), count in buffered.items():
        of_host.setdefault(host, []).append((count, port))
    for connections in of_host.values():
        connections.sort()
    hosts = [(-sum(count for count, _ in connections), host) for host, connections in of_host.items()]
    heapq.heapify(hosts)
    chosen: set[Address] = set()
    while excess > 0:
        total, host = hosts[0]
        count, port = of_host[host].pop()
        chosen.add((host, port))
        excess -= count
        heapq.heapreplace(hosts, (total + count, host))
    return chosen
