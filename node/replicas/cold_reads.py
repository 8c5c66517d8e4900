"""Reads from disk and from the object store for waiting fetches. Only the fetch waits for them; the loop does not.

Invariants:
  1. The result of a read is given once, to the fetch that it was read for.
  2. A read that fails on another thread is repeated on the loop, so that errors are handled in one place.
Not here: the read and its validity (storage/log/cold_read.py), how many of a stream are in progress (waiting_fetch.py),
the answer (replica.py).
"""

from __future__ import annotations

from typing import Final

from node.replicas.fetch_state import READING, READY, FetchCause
from node.replicas.remote_reads import RemoteReads, RemoteTicket
from node.replicas.waiting_fetch import DiskResult, WaitingFetch
from storage.files.disk_executor import Executor
from storage.log.cold_read import ReadTicket
from storage.segment.abstract_index import CorruptIndex
from storage.segment.batch_walk import BrokenChain
from tidelog.errors import TidelogError
from tidelog.types import Millis

TRIES_MAX: Final = 8
"""Reads for one fetch: for records, then for the transaction indexes of segments. After these it reads on the loop."""


def wait_for_disk(fetch: WaitingFetch, reader: Executor, ticket: ReadTicket) -> None:
    """Read from the disk what a fetch that is being tried needs. It is tried again after that."""
    if _has_place(fetch, ticket):
        result = DiskResult(ticket, fetch.outbox.charge(fetch.max_bytes))
        reader.submit(ticket.run, lambda failure: _done(fetch, result, failure))


def wait_for_store(fetch: WaitingFetch, remote: RemoteReads, ticket: RemoteTicket, now: Millis) -> None:
    """As `wait_for_disk`, for the object store: the fetch need not wait for it for longer than `remote.wait_ms`."""
    fetch.store_until = Millis(now + remote.wait_ms)
    if not _has_place(fetch, ticket):
        return
    begun: list[DiskResult] = []

    def done(failure: BaseException | None) -> None:
        _done(fetch, begun[0] if begun else DiskResult(ticket, fetch.outbox.charge(0)), failure)

    remote.reads.submit(
        ticket,
        done,
        is_wanted=lambda: fetch.state is READING,
        # Memory only for the few that are at the store: those that wait for one that is down would use up the budget of
        # all others.
        begun=lambda: begun.append(DiskResult(ticket, fetch.outbox.charge(fetch.max_bytes))),
    )


def _has_place(fetch: WaitingFetch, ticket: ReadTicket | RemoteTicket) -> bool:
    """Begin a read of the fetch, or let it wait for a place of its stream."""
    if fetch.state is READY and fetch.outbox.is_full:
        ticket.release()
        fetch.outbox.move(fetch, FetchCause.NO_PLACE)
        return False
    fetch.cold_tries += 1
    fetch.outbox.move(fetch, FetchCause.READ_BEGUN)
    return True


def _done(fetch: WaitingFetch, result: DiskResult, failure: BaseException | None) -> None:
    is_open = fetch.state is READING
    if is_open and failure is None:
        fetch.result = result
        fetch.outbox.move(fetch, FetchCause.READ_ENDED)
        return
    result.release()
    if not (failure is None or isinstance(failure, OSError | BrokenChain | CorruptIndex | TidelogError)):
        raise failure
    if is_open:
        fetch.cold_tries = TRIES_MAX + 1
        fetch.outbox.move(fetch, FetchCause.READ_FAILED)
    elif fetch.store_until is None:
        fetch.outbox.read_abandoned()
