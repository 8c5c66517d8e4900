"""The demo's load over real streams: whatever happens to a batch, each key's first occurrences stay in order."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from examples.demo.inputs import Item
from examples.demo.ledger import NUMBER_HEADER, Ledger, checksum
from examples.demo.load import Load
from examples.demo.meter import Failover, Meter
from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tidelog import Producer
from tidelog.errors import InvalidRecord, TidelogError
from tidelog.records import iter_batches

KEYS = 20
PARTITIONS = 3
RATE = 5_000


def items(count: int) -> Iterator[Item]:
    return (Item(f"key-{number % KEYS}", b"value %d" % number) for number in range(count))


class Bench:
    """A load on a cluster in memory, and what came of it."""

    def __init__(self, cluster: MemoryCluster, directory: Path) -> None:
        self.cluster, self.ledger, self.meter = cluster, Ledger(directory / "ledger.parquet"), Meter()
        cluster.create("demo", PARTITIONS)

    async def run(self, source: Iterator[Item], failover: Failover | None = None) -> Load:
        """Until the source ends and every record has its outcome."""
        async with Producer(self.cluster.bootstrap, acks="all", retry_backoff_ms=10, linger_ms=2) as producer:
            seconds = asyncio.get_running_loop().time
            load = Load(
                producer,
                "demo",
                source,
                ledger=self.ledger,
                meter=self.meter,
                seconds=seconds,
                records_per_second=RATE,
            )
            load.failover = failover
            async with asyncio.timeout(20):
                await load.run()
        return load

    def stored(self) -> dict[tuple[int, int], tuple[str, int, int]]:
        """What lies at each partition and offset: key, n, crc."""
        return {
            (index, record.offset): (
                (record.key or b"").decode(),
                int(dict(record.headers)[NUMBER_HEADER] or b""),
                checksum(record.value or b""),
            )
            for index, partition in enumerate(self.cluster.topics["demo"].partitions)
            for batch in iter_batches(b"".join(partition.batches))
            for record in batch.records()
        }

    def acknowledged_rows(self) -> dict[tuple[int, int], tuple[str, int, int]]:
        """What the ledger says lies there."""
        self.ledger.close()
        rows = pq.read_table(self.ledger.path).to_pylist()
        assert len(rows) == self.meter.acknowledged
        return {(row["partition"], row["offset"]): (row["key"], row["n"], row["crc"]) for row in rows}


def numbers_by_key(stored: dict[tuple[int, int], tuple[str, int, int]]) -> dict[str, list[int]]:
    """The numbers of each key in the order in which they are stored."""
    order: dict[str, list[int]] = defaultdict(list)
    for place in sorted(stored):
        key, n, _ = stored[place]
        order[key].append(n)
    return order


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_lost_answers_and_refusals_keep_keys_in_order_and_the_ledger_true(tmp_path: Path, seed: int) -> None:
    """Goal: once and in order. Method: break a tenth of the streams before, or after, the append."""
    chance = random.Random(seed)

    def mischief(_: Any) -> object:
        return chance.choices(["lose", "break", None], [1, 1, 18])[0]

    async with memory_cluster(3) as cluster:
        bench = Bench(cluster, tmp_path)
        for node in cluster.nodes:
            node.on_produce = mischief
        load = await bench.run(items(3_000))
        stored, acknowledged_rows = bench.stored(), bench.acknowledged_rows()
        assert load.failed == 0
        assert acknowledged_rows == stored
        assert len(acknowledged_rows) == bench.meter.sent == 3_000
        for key, numbers in numbers_by_key(stored).items():
            assert numbers == list(range(len(numbers))), key


async def test_a_failover_is_watched_by_partition(tmp_path: Path) -> None:
    async with memory_cluster(3) as cluster:
        failover = Failover(range(PARTITIONS), killed_at=asyncio.get_running_loop().time())
        await Bench(cluster, tmp_path).run(items(500), failover)
        assert failover.missing == []
        assert 0 < failover.seconds < 20


async def test_records_that_are_refused_for_good_are_counted_and_their_cause_kept(tmp_path: Path) -> None:
    def refuse(entry: Any) -> TidelogError | None:
        return InvalidRecord("not here") if entry.partition == 0 else None

    async with memory_cluster() as cluster:
        bench = Bench(cluster, tmp_path)
        cluster.nodes[0].on_produce = refuse
        load = await bench.run(items(500))
        assert isinstance(load.failure, InvalidRecord)
        assert load.failed > 0
        assert load.failed + len(bench.acknowledged_rows()) == bench.meter.sent == 500


async def test_an_input_that_breaks_ends_the_load_with_its_cause(tmp_path: Path) -> None:
    def broken() -> Iterator[Item]:
        yield Item("key", b"one")
        raise OSError("the disk was pulled out")

    async with memory_cluster() as cluster:
        with pytest.raises(OSError, match="pulled out"):
            await Bench(cluster, tmp_path).run(broken())
