"""Disk reads for the fetches of one stream. Only the fetch waits for the disk; the loop does not.

Invariants:
  1. At most `AT_ONCE` reads of a stream are in progress or unsent, since their results occupy memory. Other fetches are
     queued.
  2. The result of a read is given once, to the fetch that it was read for. If that fetch has ended, its read keeps its
     place until the disk has answered.
  3. A read that fails on another thread is repeated on the loop, so that errors are handled in one place.
Not here: the read and its validity (storage/log/cold_read.py), the answer (partition.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from node.runtime.memory_budget import Share
from storage.log.cold_read import ReadTicket
from storage.log.log import Log
from storage.log.log_reader import LogRead
from storage.segment.batch_walk import BrokenChain
from storage.segment.index_errors import CorruptIndex
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from node.replicas.waiting_fetch import WaitingFetch

AT_ONCE: Final = 4
"""Reads of one stream in progress or unsent: enough to keep a disk busy, and some MiB at most."""

TRIES_MAX: Final = 8
"""Reads for one fetch: for records, then for the transaction indexes of segments. After these it reads on the loop."""


class ColdReads:
    """The disk reads of one fetch session: queued, in progress, and read but not yet sent."""

    def __init__(
        self, ready: Callable[[WaitingFetch], None], charge: Callable[[int], Share], freed: Callable[[], None]
    ) -> None:
        """ready: called with a fetch to try again. charge: reserves the memory of an answer with this number of bytes
        of records. freed: called when a read was discarded."""
        self._ready, self._charge, self._freed = ready, charge, freed
        self._shares: dict[WaitingFetch, Share] = {}
        """The memory of the busy fetches."""
        self._busy: dict[WaitingFetch, ReadTicket | None] = {}
        """None while the read is in progress, then its result until it is sent."""
        self._queue: dict[WaitingFetch, None] = {}
        """Fetches that wait for one of the `AT_ONCE` places. While there are any, no place is free."""
        self._called: dict[WaitingFetch, None] = {}
        """Fetches from the queue that are being tried again; each has a place."""

    def __contains__(self, fetch: WaitingFetch) -> bool:
        """True if this fetch waits for a disk or for a place."""
        return fetch in self._queue or (fetch in self._busy and self._busy[fetch] is None)

    @property
    def is_busy(self) -> bool:
        """True if any read is in progress or unsent; it has its memory."""
        return bool(self._busy)

    @property
    def read(self) -> list[WaitingFetch]:
        """The fetches whose read has ended and was not yet sent."""
        return [fetch for fetch, ticket in self._busy.items() if ticket is not None]

    def fetch(self, fetch: WaitingFetch, log: Log) -> LogRead | None:
        """The records for the fetch; None if they must be read from disk, after which `ready` is called. Raises as
        `Log.read`."""
        ticket, share = self._busy.pop(fetch, None), self._shares.pop(fetch, None)
        self._called.pop(fetch, None)
        try:
            if fetch.cold_tries > TRIES_MAX:
                return log.fetch(fetch.next_offset, fetch.max_bytes, fetch.isolation)
            found = log.try_fetch(fetch.next_offset, fetch.max_bytes, fetch.isolation, ticket)
            if isinstance(found, LogRead):
                self._queue.pop(fetch, None)
                return found
            if self._is_full:
                found.release()
                self._queue[fetch] = None
            else:
                self._begin(fetch, log, found)
            return None
        finally:
            if ticket is not None:
                ticket.release()
            if share is not None:
                share.release()
            self._call_next()

    @property
    def _is_full(self) -> bool:
        return len(self._busy) + len(self._called) >= AT_ONCE

    def _begin(self, fetch: WaitingFetch, log: Log, ticket: ReadTicket) -> None:
        self._queue.pop(fetch, None)
        self._busy[fetch] = None
        self._shares[fetch] = self._charge(fetch.max_bytes)
        fetch.cold_tries += 1
        log.directory.reader.submit(ticket.run, lambda failure: self._done(fetch, ticket, failure))

    def _done(self, fetch: WaitingFetch, ticket: ReadTicket, failure: BaseException | None) -> None:
        if failure is None and not fetch.ended:
            self._busy[fetch] = ticket
            self._ready(fetch)
            return
        self._free(fetch, ticket)
        self._call_next()
        if not (failure is None or isinstance(failure, OSError | BrokenChain | CorruptIndex | TidelogError)):
            raise failure
        if not fetch.ended:
            fetch.cold_tries = TRIES_MAX + 1
            self._ready(fetch)

    def _call_next(self) -> None:
        """Give all free places to queued fetches."""
        while self._queue and not self._is_full:
            fetch = next(iter(self._queue))
            del self._queue[fetch]
            self._called[fetch] = None
            self._ready(fetch)

    def drop(self, fetch: WaitingFetch) -> None:
        """Forget a fetch that has ended."""
        self._queue.pop(fetch, None)
        self._called.pop(fetch, None)
        ticket = self._busy.get(fetch)
        if ticket is not None:
            self._free(fetch, ticket)
        self._call_next()

    def _free(self, fetch: WaitingFetch, ticket: ReadTicket) -> None:
        """Discard the result of a read and free its place and memory."""
        ticket.release()
        del self._busy[fetch]
        self._shares.pop(fetch).release()
        self._freed()
