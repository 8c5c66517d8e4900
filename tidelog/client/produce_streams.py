"""The produce streams of a producer: one to each node at each of its addresses.

Not here: one stream (produce_stream.py), the tasks that run streams (producer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.client.accumulator import Attempt
from tidelog.client.produce_stream import ProduceStream, Report, Take
from tidelog.client.producer_options import checked_receipts
from tidelog.clock import Clock
from tidelog.protocol.network import Transport
from tidelog.types import Acks, Endpoint, Millis, NodeId


class ProduceStreams:
    """Opens a stream when a batch needs one. A stream that has ended is replaced."""

    def __init__(
        self,
        clock: Clock,
        acks: Acks,
        take: Take,
        report: Report,
        throttled: Callable[[NodeId, int, Millis], None],
        transactional_id: str | None,
        *,
        receipts: bool,
    ) -> None:
        """throttled: as for a stream, with the node. The other options are those of a stream. Raises InvalidConfig."""
        self._clock, self._acks, self._take, self._report, self._throttled = clock, acks, take, report, throttled
        self._transactional_id, self._receipts = transactional_id or "", checked_receipts(acks, receipts)
        self._streams: dict[tuple[NodeId, Endpoint], ProduceStream] = {}

    def give(self, attempt: Attempt, endpoint: Endpoint, transport: Transport) -> ProduceStream | None:
        """Queue the attempt on the stream of its node. Returns the stream if it is new: the caller runs it."""
        node = attempt.node
        stream = self._streams.get((node, endpoint))
        if stream is not None and stream.give(attempt):
            return None
        stream = self._streams[node, endpoint] = ProduceStream(
            endpoint,
            transport,
            self._clock,
            acks=self._acks,
            take=self._take,
            report=self._report,
            throttled=partial(self._throttled, node),
            transactional_id=self._transactional_id,
            receipts=self._receipts,
        )
        stream.give(attempt)
        return stream
