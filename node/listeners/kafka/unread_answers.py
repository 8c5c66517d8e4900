"""The memory of the answers that the clients of a Kafka listener have not read yet, but for records, which are in the
memory budget of the node.

A connection has only one such answer, because nothing is begun for a client that does not read. But an answer about
thousands of topics has megabytes, and there are thousands of connections.

Invariant: all of them have at most `bytes_max` bytes, or there is only one.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol


class Unread(Protocol):
    """A connection whose client has not read its answers."""

    @property
    def host(self) -> str:
        """The address of the client, without the port."""

    def end_unread(self) -> None:
        """End the connection: there is no memory for its answers."""


class UnreadAnswers:
    """The unread answers of one listener."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._sizes: dict[Unread, int] = {}
        """By connection. The newest is the last one."""

    @property
    def is_short(self) -> bool:
        """True if clients that read slowly should make room."""
        return self.used > self.bytes_max // 2

    def add(self, connection: Unread, size: int) -> None:
        """A connection waits for its client to read so many bytes. If there are too many, the newest connection of the
        address with the most bytes is ended, and so on: the older ones have been read in part, and clients at other
        addresses have no harm."""
        self.remove(connection)
        self._sizes[connection] = size
        self.used += size
        while self.used > self.bytes_max and len(self._sizes) > 1:
            newest = self._newest_of_heaviest_address()
            self.remove(newest)
            newest.end_unread()

    def remove(self, connection: Unread) -> None:
        """The client has read everything, or the connection has ended."""
        self.used -= self._sizes.pop(connection, 0)

    def _newest_of_heaviest_address(self) -> Unread:
        by_host = Counter[str]()
        for connection, size in self._sizes.items():
            by_host[connection.host] += size
        ((heaviest, _),) = by_host.most_common(1)
        return next(each for each in reversed(self._sizes) if each.host == heaviest)
