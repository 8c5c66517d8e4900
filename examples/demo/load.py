"""The load: items of the input become records at a steady pace, each known by its key and number, until it is stopped.

Kept true: records of one key are handed over in the order of their numbers, and the producer is idempotent, so that
each is written once and in that order; every record is in the ledger once it is acknowledged, and one that fails is
counted and remembered.
Open loop: a record is due by the clock, or when the input has it, whether or not the cluster keeps up; only the
producer's memory bounds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from examples.demo.inputs import Item
from examples.demo.ledger import NUMBER_HEADER, Ledger, Numbers, checksum
from examples.demo.meter import Failover, Meter
from tidelog import Delivery, Producer, TidelogError

ROUND_SECONDS: Final = 0.02
"""How often records are handed over: short beside any latency of interest."""


class Load:
    """Writes to one topic. `run` returns after `stop` or the input's end, once every record has its outcome."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        items: Iterator[Item],
        *,
        ledger: Ledger,
        meter: Meter,
        seconds: Callable[[], float],
        records_per_second: int,
    ) -> None:
        self.failed = 0
        self.failure: TidelogError | None = None
        self.failover: Failover | None = None
        self.numbers = Numbers()
        self.value_bytes = 0
        self._producer, self._topic, self._items = producer, topic, items
        self._ledger, self._meter, self._seconds = ledger, meter, seconds
        self._rate = records_per_second
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """No more records; what is under way gets its outcome."""
        self._stopping.set()

    async def run(self) -> None:
        """Hand records over until stopped, then wait for the outcomes. Raises what the input or the producer raises."""
        await self._producer.partitions(self._topic)
        per_round = max(1, round(self._rate * ROUND_SECONDS))
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="input") as reader:  # reading an input blocks

            def read() -> tuple[list[Item], float]:
                return list(islice(self._items, per_round)), self._seconds()

            def fetch() -> asyncio.Future[tuple[list[Item], float]]:
                return loop.run_in_executor(reader, read)

            coming = fetch()
            try:
                due = self._seconds()
                while not self._stopping.is_set():
                    items, there_at = await coming
                    if not items:
                        break
                    coming = fetch()
                    due = max(due, there_at)  # a slow input is no latency, and is not caught up with in a burst
                    await asyncio.sleep(max(0.0, due - self._seconds()))
                    for item in items:
                        await self._send(item, due)
                    due += len(items) / self._rate
            finally:
                await asyncio.wait([coming])
        await self._producer.flush()

    async def _send(self, item: Item, due: float) -> None:
        key, value = item.key, item.value
        n, crc = self.numbers.take(key), checksum(value)
        headers = ((NUMBER_HEADER, str(n).encode()),)
        handed_at = self._seconds()
        delivery = await self._producer.enqueue(self._topic, value, key.encode(), headers)
        self._meter.sent += 1
        self.value_bytes += len(value)

        def done(delivery: Delivery) -> None:
            now = self._seconds()
            failure = delivery.exception()
            if failure is not None:
                self.failed += 1
                self.failure = self.failure or failure
                return
            sent = delivery.result()
            self._ledger.add(key, n, crc, sent.partition, sent.offset)
            self._meter.acknowledge(sent.partition, due, now)
            if self.failover is not None:
                self.failover.acknowledge(sent.partition, handed_at, now)

        delivery.add_done_callback(done)
