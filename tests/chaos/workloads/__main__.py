"""All workers side by side, in a process of their own: `python -m tests.chaos.workloads --bootstrap A
--kafka-bootstrap B --nodes N --seed S --history FILE`.

Prints `at work` once every worker has begun. When its standard input ends the producers stop, the groups and the
pipeline read to the end, and what is stored then is noted. Exit code 0, whatever is stored: verdict.py judges.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from tests.chaos.history import History, Stored, StoredOffsets, StoredTopics, Undrained, now
from tests.chaos.workloads.administrators import create_and_delete, drain_and_rebalance, move_replicas
from tests.chaos.workloads.consumers import consume, consume_by_kafka
from tests.chaos.workloads.producers import produce, produce_by_kafka
from tests.chaos.workloads.spark import copy_by_spark
from tests.chaos.workloads.transactions import Pipeline
from tests.chaos.workloads.work import (
    CONFIGS,
    COPIES,
    LATEST,
    LEDGER,
    ORDERS,
    PARTITIONS,
    PIPELINE,
    REPLICAS,
    SPARKED,
    Work,
    places_of,
)
from tidelog import Admin, Consumer, TopicPartition

SPARK_DRAIN_S: Final = 180.0
"""The same for Spark's query, which may have to start again first."""
DRAIN_S: Final = 90.0
"""From the end of the producers until everything must be read."""
READERS: Final = {"tidelog-readers": ORDERS, "classic-readers": ORDERS, "consumer-readers": ORDERS, "watchers": COPIES}
"""The topic of each group, less the pipeline."""
LIFE_S: Final = 12.0
THREADS: Final = 16


async def run(work: Work, spark: Path | None) -> None:
    """From the creation of the topics until everything that is stored has been noted. spark: the directory of its
    query, if it runs."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    await _create_topics(work)
    async with asyncio.TaskGroup() as readers:
        for index in range(2):
            readers.create_task(Pipeline(work, f"pipeline-{index}").run())
            readers.create_task(
                consume(work, f"tidelog-reader-{index}", "tidelog-readers", ORDERS, life_s=LIFE_S * index)
            )
            for protocol in ("classic", "consumer"):
                name, group = f"{protocol}-reader-{index}", f"{protocol}-readers"
                readers.create_task(asyncio.to_thread(consume_by_kafka, work, name, group, ORDERS, protocol))
        if spark is not None:
            readers.create_task(copy_by_spark(work, "spark", spark))
        readers.create_task(consume(work, "watcher", "watchers", COPIES))
        async with asyncio.TaskGroup() as producers:
            for index in range(2):
                producers.create_task(produce(work, f"tidelog-producer-{index}", ORDERS, LEDGER))
            producers.create_task(produce(work, "keeper", LATEST))
            producers.create_task(asyncio.to_thread(produce_by_kafka, work, "kafka-producer"))
            producers.create_task(create_and_delete(work, "topics"))
            producers.create_task(move_replicas(work, "moves"))
            producers.create_task(drain_and_rebalance(work, "drains"))
            producers.create_task(_stop_when_input_ends(work))
            print("at work", flush=True)
        await _drain(work, with_spark=spark is not None)
        work.stopping_readers.set()
    await _note_rest(work)


async def _create_topics(work: Work) -> None:
    async with Admin(work.bootstrap) as admin:
        for topic, partitions in PARTITIONS.items():
            configs = {"min.insync.replicas": "2", **CONFIGS[topic]}
            await admin.create_topic(topic, partitions=partitions, replication_factor=REPLICAS, configs=configs)


async def _stop_when_input_ends(work: Work) -> None:
    await asyncio.to_thread(sys.stdin.read)
    work.stopping_producers.set()


# --- the end ---


async def _drain(work: Work, *, with_spark: bool) -> None:
    """Until every group has read what is stored now, and the pipeline has copied it."""
    deadline, deadline_of_spark = now() + DRAIN_S, now() + SPARK_DRAIN_S
    newest = await _note_stored(work, ORDERS)
    source = await _note_stored(work, LEDGER)
    await _note_stored(work, LATEST)

    def behind(group: str, ends: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        reached = work.reached[group]
        return {place: reached.get(place, -1) for place, end in ends.items() if reached.get(place, -1) < end}

    for group, topic in READERS.items():
        if topic == ORDERS:
            await _until(work, deadline, partial(behind, group, newest), f"{group} stay behind {newest}")
    while True:
        committed = await _committed(work, PIPELINE, LEDGER)
        late = {place: committed.get(place, 0) for place, end in source.items() if committed.get(place, 0) <= end}
        if not late:
            break
        if now() > deadline:
            work.history.note(Undrained(f"the pipeline stays at {late} of {source}"))
            break
        await asyncio.sleep(0.2)
    await _until_no_transaction_is_open(work, deadline)
    copies = await _note_stored(work, COPIES)
    await _until(work, deadline, partial(behind, "watchers", copies), f"watchers stay behind {copies}")
    if with_spark:
        await _until_copied_by_spark(work, deadline_of_spark)
        await _note_stored(work, SPARKED)


async def _until(work: Work, deadline: float, missing: Callable[[], object], what: str) -> None:
    while found := missing():
        if now() > deadline:
            work.history.note(Undrained(f"{what}, at {found}"))
            return
        await asyncio.sleep(0.1)


async def _until_copied_by_spark(work: Work, deadline: float) -> None:
    """As many records are committed in its target as there are in its source; verdict.py compares them."""
    async with Consumer(work.bootstrap, isolation="read_committed") as consumer:
        source, target = _places(LEDGER), _places(SPARKED)
        wanted = sum((await consumer.end_offsets(source)).values())
        consumer.assign(target)
        copied = 0
        while copied < wanted:
            copied += len(await consumer.poll(timeout=0.5))
            if now() > deadline:
                work.history.note(Undrained(f"Spark has copied {copied} of {wanted} records"))
                return


async def _until_no_transaction_is_open(work: Work, deadline: float) -> None:
    """The last stable offsets have reached the ends of the partitions."""
    places = _places(COPIES)
    async with (
        Consumer(work.bootstrap, isolation="read_committed") as stable,
        Consumer(work.bootstrap, isolation="read_uncommitted") as every,
    ):
        while dict(await stable.end_offsets(places)) != dict(await every.end_offsets(places)):
            if now() > deadline:
                work.history.note(Undrained(f"a transaction of {COPIES} stays open"))
                return
            await asyncio.sleep(0.2)


async def _note_stored(work: Work, topic: str) -> dict[tuple[str, int], int]:
    """Note all records of a topic. Returns the newest offset of each partition that has any."""
    found: dict[int, list[tuple[int, str]]] = {partition: [] for partition in range(PARTITIONS[topic])}
    places = _places(topic)
    async with Consumer(work.bootstrap, isolation="read_committed") as consumer, asyncio.timeout(DRAIN_S):
        ends = await consumer.end_offsets(places)
        consumer.assign(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for record in await consumer.poll(timeout=0.5):
                if record.offset < ends[TopicPartition(topic, int(record.partition))]:
                    found[int(record.partition)].append((int(record.offset), (record.value or b"").decode()))
    for partition, records in found.items():
        work.history.note(Stored(topic, partition, records))
    return {(topic, partition): records[-1][0] for partition, records in found.items() if records}


async def _note_rest(work: Work) -> None:
    for group, topic in (*READERS.items(), (PIPELINE, LEDGER)):
        offsets = [(*place, offset) for place, offset in (await _committed(work, group, topic)).items()]
        work.history.note(StoredOffsets(group, offsets))
    async with Admin(work.bootstrap) as admin:
        work.history.note(StoredTopics([each.name for each in await admin.list_topics()]))


async def _committed(work: Work, group: str, topic: str) -> dict[tuple[str, int], int]:
    async with Consumer(work.bootstrap, group=group) as consumer:
        found = await consumer.committed(_places(topic))
    return {(each.topic, int(each.partition)): int(at.offset) for each, at in found.items() if at is not None}


def _places(topic: str) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in places_of(topic)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="workloads")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--kafka-bootstrap", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--spark", type=Path)
    parser.add_argument("--history", type=Path, required=True)
    options = parser.parse_args()
    with History(options.history) as history:
        work = Work(options.bootstrap, options.kafka_bootstrap, options.nodes, options.seed, history)
        asyncio.run(run(work, options.spark))
    return 0


if __name__ == "__main__":
    sys.exit(main())
