"""Reads of one stream that wait for a disk: the fetch waits too, everything else goes on.

Kept true:
  1. A few are under way at once, the other fetches wait their turn: what was read and not sent costs memory.
  2. What was read is given to the fetch that it was read for, once; a fetch that has ended meanwhile costs its place
     until the disk has answered.
  3. What cannot be read beside the loop is read on it, waiting, so that whoever judges it does so as always.
Left to others: what is read, and what of it still counts (storage/log/cold_read.py), the answer (partition.py).
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
    from node.replicas.fetch_session import OpenFetch

AT_ONCE: Final = 4
"""Of one stream, on the way from the disk or waiting to be sent: enough to keep a disk busy, and some MiB at most."""

TRIES_MAX: Final = 8
"""Of one fetch, each for another thing: bytes, and what transactions did in some segments. Then it may wait."""


class ColdReads:
    """See the module's words. One for each desk."""

    def __init__(
        self, ready: Callable[[OpenFetch], None], charge: Callable[[int], Share], freed: Callable[[], None]
    ) -> None:
        """ready: told which fetches are to be looked at, now that something was read for them. charge: the memory of
        an answer with so many bytes of records. freed: told when a read has ended that nobody waits for."""
        self._ready, self._charge, self._freed = ready, charge, freed
        self._shares: dict[OpenFetch, Share] = {}
        """Of those that are busy."""
        self._busy: dict[OpenFetch, ReadTicket | None] = {}
        """Being read: None; or read, and not given yet."""
        self._queue: dict[OpenFetch, None] = {}
        """Waiting for a place: there is none while somebody waits here."""
        self._called: dict[OpenFetch, None] = {}
        """Those whose turn has come, until they are looked at: a place is kept for each."""

    def __contains__(self, fetch: OpenFetch) -> bool:
        """Does this fetch wait for a disk, or for its turn?"""
        return fetch in self._queue or (fetch in self._busy and self._busy[fetch] is None)

    @property
    def is_busy(self) -> bool:
        """Is anything being read, or read and not given yet? It has its memory."""
        return bool(self._busy)

    @property
    def read(self) -> list[OpenFetch]:
        """Those for which something was read that is not given yet."""
        return [fetch for fetch, ticket in self._busy.items() if ticket is not None]

    def fetch(self, fetch: OpenFetch, log: Log) -> LogRead | None:
        """What the fetch asks of the log; None where that has to be read first: the fetch is `ready` then. Raises as
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

    def _begin(self, fetch: OpenFetch, log: Log, ticket: ReadTicket) -> None:
        self._queue.pop(fetch, None)
        self._busy[fetch] = None
        self._shares[fetch] = self._charge(fetch.max_bytes)
        fetch.cold_tries += 1
        log.directory.reader.submit(ticket.run, lambda failure: self._done(fetch, ticket, failure))

    def _done(self, fetch: OpenFetch, ticket: ReadTicket, failure: BaseException | None) -> None:
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
        """Every place is for somebody, while there are some who wait: it may have come free in any way."""
        while self._queue and not self._is_full:
            fetch = next(iter(self._queue))
            del self._queue[fetch]
            self._called[fetch] = None
            self._ready(fetch)

    def drop(self, fetch: OpenFetch) -> None:
        """The fetch has ended."""
        self._queue.pop(fetch, None)
        self._called.pop(fetch, None)
        ticket = self._busy.get(fetch)
        if ticket is not None:
            self._free(fetch, ticket)
        self._call_next()

    def _free(self, fetch: OpenFetch, ticket: ReadTicket) -> None:
        """Let go of what was read, and of its place."""
        ticket.release()
        del self._busy[fetch]
        self._shares.pop(fetch).release()
        self._freed()
