"""What the parent process asks of a client process, what the client answers, and how records are counted.

One job is one line of JSON on standard input: `{"do": "produce", ...}`. The client connects, answers `{"ready": true}`,
waits for the line `go`, so that several clients begin at once, works, and answers with one line of JSON. It ends when
its standard input ends. Times are those of the monotonic clock, which all processes of a machine share.

Records are counted by samples: every 17th record carries a callback, and an acknowledged sample counts for 17. A job
sends for its time and ends when all is acknowledged, or ten seconds later; the rate is that of acknowledged records. So
a client that queues much at first, or fills its batches only by and by, has no advantage and no disadvantage.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from array import array
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

STRIDE: Final = 17
"""Not a divisor of the number of keys: the samples visit every partition."""
KEYS: Final = 20_000
DRAIN_SECONDS: Final = 10.0
"""How long the acknowledgements of what was sent are waited for."""
TICK_SECONDS: Final = 0.01
"""A paced load sends once per tick."""


class Job(NamedTuple):
    """One measurement of one client; see the loads for the fields that each uses."""

    do: str
    bootstrap: str
    topic: str = ""
    partitions: int = 1
    keyed: bool = False
    value_bytes: int = 100
    seconds: float = 1.0
    warm_up_seconds: float = 0.0
    rate: float = 0.0
    """Records per second of this client; 0: as many as possible."""
    batch_records: int = 0
    """Send bursts of this many records, each a batch, to one partition after another; 0: the client's own batches."""
    repeats: int = 0
    consumers: int = 1
    group: str = ""
    fsync: bool = False
    pid: int = 0
    replicas: int = 3
    rows: int = 0
    columns: str = ""
    connector: str = ""
    options: Mapping[str, str] = {}
    """These five are of Spark's load."""

    @classmethod
    def parse(cls, line: str) -> Job:
        return cls(**json.loads(line))

    def line(self) -> str:
        return json.dumps(self._asdict()) + "\n"


class Gate:
    """Tells the parent that the client is connected, and waits until all clients are."""

    def wait(self) -> None:
        print('{"ready": true}', flush=True)
        if sys.stdin.readline().strip() != "go":
            raise SystemExit(0)

    async def wait_async(self) -> None:
        await asyncio.to_thread(self.wait)


class Count:
    """Counts sampled records from `begin` to `end`, and keeps their times to the acknowledgement."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0
        self.failed = ""
        self._latencies = array("d")
        self._counting = False
        self.begin()

    def begin(self) -> None:
        self._latencies = array("d")
        self._counting = True
        self.began = time.perf_counter()

    def end(self) -> None:
        self._counting = False
        self.ended = time.perf_counter()

    def acknowledged(self, sent_at: float) -> None:
        """A sampled record of this measurement was acknowledged."""
        if self._counting and sent_at >= self.began:
            self._latencies.append(time.perf_counter() - sent_at)
        elif self._counting:
            self._latencies.append(-1.0)  # sent before the measurement began: counts, but has no latency

    def failure(self, error: object) -> None:
        if self._counting:
            self.failed = self.failed or str(error)

    def result(self, value_bytes: int, each: int = STRIDE) -> dict[str, Any]:
        """Raises RuntimeError if a sampled record failed."""
        if self.failed:
            raise RuntimeError(self.failed)
        records = len(self._latencies) * each
        timed = sorted(latency * 1000 for latency in self._latencies if latency >= 0)
        return {
            "records": records,
            "bytes": records * value_bytes,
            "began": self.began,
            "ended": self.ended,
            "p50_ms": _at(timed, 0.50),
            "p99_ms": _at(timed, 0.99),
        }


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def keys() -> list[bytes]:
    """Distinct keys in an order without a pattern."""
    found = [b"key-%08d" % number for number in range(KEYS)]
    random.Random(1).shuffle(found)
    return found


class Pace:
    """How many records are due: by the clock, or always another burst."""

    def __init__(self, rate: float, seconds: float, burst: int) -> None:
        self._rate, self._burst, self._sent = rate, burst, 0
        self._began = time.perf_counter()
        self._deadline = self._began + seconds

    def due(self) -> int:
        """Records to send now: 0 if it is early, -1 after the end."""
        now = time.perf_counter()
        if now >= self._deadline:
            return -1
        if not self._rate:
            return self._burst
        due = int((now - self._began) * self._rate) - self._sent
        due -= due % self._burst
        self._sent += due
        return due
