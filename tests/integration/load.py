"""A producer that never stops, and the question that follows: is everything that was acknowledged there to be read?

The rule is Kafka's: acknowledged minus consumed is empty. Here it is asked record by record: at the offset that the
acknowledgement named, the log must hold exactly the value that was sent; and what was sent in order to one partition is
read once, in that order: the producer is idempotent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tidelog.client.consumer import Consumer
from tidelog.client.delivery import Delivery
from tidelog.client.producer import Producer
from tidelog.security.sasl_user import Sasl
from tidelog.security.tls_files import Tls

OUTSTANDING_MAX = 400


@dataclass
class Load:
    """What was sent to one topic, and what became of it."""

    bootstrap: str
    topic: str
    partitions: int
    padding: int = 100
    pause_ms: float = 1.0
    """After 20 records: by default some 10,000 records a second, because the nodes share these cores."""
    tls: Tls | None = None
    sasl: Sasl | None = None
    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _sent: int = 0
    _newest: dict[int, int] = field(default_factory=dict)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Load]:
        """Produce while the block runs; leaving it waits for the last acknowledgement."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._produce(stop))
            try:
                yield self
            finally:
                stop.set()

    async def wait_more(self, records: int = 200) -> None:
        """Until so many further records are acknowledged."""
        goal = len(self.acknowledged) + records
        async with asyncio.timeout(60):
            while len(self.acknowledged) < goal:
                self._moved.clear()
                await self._moved.wait()

    async def wait_for_new_records(self) -> float:
        """Until every partition has acknowledged a record that is sent from now on. Returns how many seconds that
        took."""
        began, first = asyncio.get_running_loop().time(), self._sent
        async with asyncio.timeout(60):
            while min(self._newest.get(index, -1) for index in range(self.partitions)) < first:
                self._moved.clear()
                await self._moved.wait()
        return asyncio.get_running_loop().time() - began

    async def _produce(self, stop: asyncio.Event) -> None:
        waiting: deque[tuple[Delivery, bytes]] = deque()
        async with Producer(
            self.bootstrap, acks="all", delivery_timeout_ms=60_000, tls=self.tls, sasl=self.sasl
        ) as producer:
            while not stop.is_set():
                partition = self._sent % self.partitions
                value = b"%d-%d-" % (partition, self._sent) + b"." * self.padding
                waiting.append((await producer.enqueue(self.topic, value, partition=partition), value))
                self._sent += 1
                while waiting and (waiting[0][0].done() or len(waiting) > OUTSTANDING_MAX):
                    await self._settle(*waiting.popleft())
                if self._sent % 20 == 0:
                    await asyncio.sleep(self.pause_ms / 1_000)
            await producer.flush()
            while waiting:
                await self._settle(*waiting.popleft())

    async def _settle(self, delivery: Delivery, value: bytes) -> None:
        result = await delivery
        place = (int(result.partition), int(result.offset))
        assert place not in self.acknowledged, f"two records were acknowledged at {place}"
        self.acknowledged[place] = value
        self._newest[place[0]] = int(value.split(b"-")[1])
        self._moved.set()

    async def read_all(self) -> dict[tuple[int, int], bytes]:
        """Everything that is committed now, by partition and offset."""
        found: dict[tuple[int, int], bytes] = {}
        async with Consumer(self.bootstrap, tls=self.tls, sasl=self.sasl) as consumer:
            partitions = [(self.topic, index) for index in range(self.partitions)]
            consumer.assign(partitions)
            ends = {(at.topic, int(at.partition)): end for at, end in (await consumer.end_offsets(partitions)).items()}
            open_ends = {partition for partition in partitions if ends[partition] > 0}
            async with asyncio.timeout(60):
                while open_ends:
                    for record in await consumer.poll():
                        found[int(record.partition), int(record.offset)] = record.value or b""
                    for partition in list(open_ends):
                        if await consumer.position(partition) >= ends[partition]:
                            open_ends.discard(partition)
        return found

    async def check(self) -> int:
        """Everything acknowledged is where it was said to be, once and in order. Returns how many records there are."""
        found = await self.read_all()
        missing = {place: value for place, value in self.acknowledged.items() if found.get(place) != value}
        assert not missing, (
            f"{len(missing)} of {len(self.acknowledged)} acknowledged records are gone: {sorted(missing)[:5]}"
        )
        for partition in range(self.partitions):
            values = [value for (index, _), value in sorted(found.items()) if index == partition]
            numbers = [int(value.split(b"-")[1]) for value in values]
            assert numbers == sorted(set(numbers)), f"partition {partition} has copies, or is out of order"
        return len(found)
