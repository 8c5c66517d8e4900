"""The real consumer as a client of a simulated cluster: tidelog.Consumer on virtual time and the simulated network.

Invariants: everything that it returns is compared with what is committed (readings.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.sim.clock import SimClock
from testbed.sim.readings import Reading, in_log
from testbed.sim.workload import CORRUPT, Client
from tidelog.client.consumer import Consumer
from tidelog.types import Isolation

Place = tuple[str, int]


class SimConsumer:
    """A consumer in its own client process, of all partitions that it has a reading of."""

    def __init__(self, client: Client, readings: Mapping[Place, Reading], *, decided: bool, rack: str) -> None:
        """decided: it reads with read_committed. rack: its location; empty: it reads from leaders."""
        self._client, self._readings = client, readings
        self.consumer = Consumer(
            [str(endpoint) for endpoint in client.bootstrap],
            max_wait_ms=client.rng.choice((50, 500)),
            fetch_bytes=client.rng.choice((500, 20_000)),
            request_timeout_ms=3_000,
            isolation=Isolation.READ_COMMITTED if decided else Isolation.READ_UNCOMMITTED,
            on_out_of_range="earliest",
            rack=rack,
            transport=client.transport,
            clock=SimClock(client.loop),
            rng=client.rng,
        )

    async def run(self) -> None:
        """Read without end."""
        await self.consumer.start()
        self.consumer.assign(list(self._readings))
        while True:
            try:
                for found in await self.consumer.poll():
                    reading = self._readings[found.topic, int(found.partition)]
                    reading.got(in_log(found))
            except CORRUPT:
                await self._ask_again()

    async def _ask_again(self) -> None:
        """Handle corruption at the node asked: continue at the present position, and retry until a node with a sound
        log leads."""
        await self._client.pause()
        for place in self._readings:
            await self.consumer.seek(place, await self.consumer.position(place))
