"""What a page works with: the request, its visitor, and a client of the cluster that acts as this visitor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tidelog.client.admin import Admin
from tidelog.client.offset_lookup import time_at
from tidelog.client.replica_reader import ReplicaReader
from tidelog.console.html import Html
from tidelog.console.live_figures import LiveFigures
from tidelog.console.page_exchange import PageRequest, Visitor
from tidelog.errors import InvalidRequest

DIGITS_MAX: Final = 18
"""Of a number in a form: as many as every offset may have."""


@dataclass(frozen=True, slots=True)
class PageCall:
    """One request for a page."""

    request: PageRequest
    visitor: Visitor
    admin: Admin
    reader: Callable[[], ReplicaReader]
    """A client that reads records; to be used inside `async with`."""
    reading: asyncio.Semaphore
    """To be held while records are read and decoded, which may take a lot of memory."""
    live: LiveFigures
    now_ms: int
    """The time of the node, in milliseconds since 1970."""

    def needed(self, name: str) -> str:
        """A field that must be filled in. Raises InvalidRequest."""
        found = self.request.text(name)
        if not found:
            raise InvalidRequest(f"the field {name!r} is missing: go back and fill it in")
        return found

    def identity(self, name: str) -> str:
        """The name or id of a thing, which may begin or end with a space: not changed at all. Raises InvalidRequest."""
        found = self.request.exact(name)
        if not found:
            raise InvalidRequest(f"the field {name!r} is missing: begin again with the list that the thing is in")
        return found

    def number(self, name: str, default: int) -> int:
        """A field with a whole number. Raises InvalidRequest."""
        found = self.request.text(name)
        if not found:
            return default
        return whole(name, found)

    def ago(self, since_ms: int) -> str:
        """How long ago a time was, in words."""
        seconds = max(0, (self.now_ms - since_ms) // 1_000)
        for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
            if seconds >= 2 * unit:
                return f"{seconds // unit} {name}s"
        return f"{seconds} s"


@dataclass(frozen=True, slots=True)
class Shown:
    """A page without what all pages have in common."""

    title: str
    body: Sequence[Html | None]


Page = Callable[[PageCall], Awaitable[Shown]]


def whole(name: str, text: str) -> int:
    """A whole number that a person wrote. Raises InvalidRequest."""
    digits = text.replace(",", "").replace("_", "")
    if not digits.removeprefix("-").isdecimal() or not digits.isascii() or len(digits) > DIGITS_MAX:
        raise InvalidRequest(f"{name}: {text[:100]!r} is no whole number of at most {DIGITS_MAX} digits")
    return int(digits)


def moment(text: str) -> datetime:
    """A time that a person wrote, in UTC unless it says another zone. Raises InvalidRequest."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is no time: write it as 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def shown_time(milliseconds: int) -> str:
    """A timestamp for people, in UTC; those that no calendar has as a number."""
    try:
        return f"{time_at(milliseconds):%Y-%m-%d %H:%M:%S}.{milliseconds % 1_000:03d} UTC"
    except OverflowError:
        return str(milliseconds)
