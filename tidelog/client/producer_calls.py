"""Calls of a producer that wait until their records can be queued, and the arguments of a single record.

Invariant: a call ends once: its records are queued or rejected, or it gave up and no more of them are queued.
Not here: the order of the calls, and the way of their records into batches (producer.py, many_records.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import TypeAlias

from tidelog.client.accumulator import Headers, as_bytes, checked_headers
from tidelog.client.batch_delivery import BatchDelivery
from tidelog.client.delivery import Delivery
from tidelog.client.many_records import ManyRecords
from tidelog.client.options import partition_index, timestamp_ms
from tidelog.records.v2.record import Header

WaitingRecord: TypeAlias = tuple[bytes | None, bytes | None, Headers, int | None, int | None]
"""Value, key, headers, partition, timestamp."""


def checked_record(
    value: object, key: object, headers: Iterable[Header], partition: object, timestamp: object
) -> WaitingRecord:
    """Return the checked fields of a record. Raises TypeError, InvalidRecord, InvalidTimestamp,
    UnknownTopicOrPartition."""
    return (
        as_bytes("value", value),
        as_bytes("key", key),
        checked_headers(headers),
        None if partition is None else partition_index(partition),
        None if timestamp is None else timestamp_ms(timestamp),
    )


class Pause(Enum):
    """Why a call has records that are not queued yet."""

    FLUSH = "memory is full, and the batches that have it may be waiting for more records"
    WAIT = "memory is full, or the call continues in the next turn of the loop"


Placed: TypeAlias = Delivery | BatchDelivery


@dataclass(slots=True, eq=False)
class Call:
    """A call that waits until its records can be queued."""

    topic: str
    put: Callable[[], Placed | Pause]
    placed: asyncio.Future[Placed | None]
    """Done once the records are queued or rejected, or the call gave up: with None after its time limit, or
    cancelled."""
    many: ManyRecords | None = None
    partition: int = 0
    """The highest partition that the caller has chosen."""
    timer: asyncio.TimerHandle | None = None

    def time_out(self, max_block_ms: int, queued: int = 0) -> None:
        """Give up, unless the records are queued already: from now on none is queued. queued: how many records were
        queued when the timer was set; if there are more now, the call of many records waits for another
        `max_block_ms`."""
        if self.placed.done():
            return
        if self.many is not None and self.many.queued > queued:
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(max_block_ms / 1000, self.time_out, max_block_ms, self.many.queued)
        else:
            self.placed.set_result(None)


class CallsForTopics:
    """Calls that wait for the metadata of their topic, in order."""

    def __init__(self) -> None:
        self._calls: dict[str, list[Call]] = {}

    def __iter__(self) -> Iterator[Call]:
        return chain.from_iterable(self._calls.values())

    def add(self, call: Call) -> None:
        """Let the call wait."""
        self._calls.setdefault(call.topic, []).append(call)

    def remove(self, call: Call) -> bool:
        """Let the call no longer wait. Returns whether it did."""
        calls = self._calls.get(call.topic, [])
        if call not in calls:
            return False
        calls.remove(call)
        if not calls:
            del self._calls[call.topic]
        return True

    def pop(self, topic: str) -> list[Call]:
        """Remove and return the calls that wait for a topic."""
        return self._calls.pop(topic, [])
