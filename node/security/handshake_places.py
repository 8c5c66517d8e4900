"""The bounds of SASL handshakes under way: at one listener, and of one address there. No input or output.

Each listener has bounds of its own, so that strangers at one listener keep nobody out of another one, nodes least of
all. An attempt that failed keeps its place for a while, whether its caller waits for the answer or not.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from tidelog.errors import TooManyHandshakes
from tidelog.types import Millis

OF_ADDRESS_MAX: Final = 64
OF_LISTENER_MAX: Final = 2_048


class HandshakePlaces:
    """Times are monotonic, and never go back."""

    def __init__(self) -> None:
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[tuple[str, str]] = Counter()
        """By listener and address; never 0."""
        self._kept: deque[tuple[Millis, str, str]] = deque()
        """Places of failed attempts: until when, listener, address."""

    def ensure_room(self, listener: str, address: str, at: Millis) -> None:
        """Raise TooManyHandshakes if there is no place."""
        self._free_kept(at)
        of_address, of_listener = self._of_address[listener, address], self._of_listener[listener]
        if of_address >= OF_ADDRESS_MAX or of_listener >= OF_LISTENER_MAX:
            raise TooManyHandshakes(
                f"{of_address} SASL handshakes of this address, {of_listener} in all, are under way at listener "
                f"{listener!r}: wait for some of them"
            )

    def enter(self, listener: str, address: str) -> None:
        """A handshake has begun."""
        self._of_listener[listener] += 1
        self._of_address[listener, address] += 1

    def leave(self, listener: str, address: str) -> None:
        """A handshake has ended, or was given up."""
        self._of_listener[listener] -= 1
        self._of_address[listener, address] -= 1
        if not self._of_address[listener, address]:
            del self._of_address[listener, address]

    def leave_at(self, until: Millis, listener: str, address: str) -> None:
        """A handshake has failed: it leaves at this time, which is never before that of the failure before it."""
        self._kept.append((until, listener, address))

    def taken(self, at: Millis) -> int:
        """The places in use, those of failed attempts included."""
        self._free_kept(at)
        return self._of_listener.total()

    def _free_kept(self, at: Millis) -> None:
        while self._kept and self._kept[0][0] <= at:
            _, *place = self._kept.popleft()
            self.leave(*place)
