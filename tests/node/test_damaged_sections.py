"""A changed byte in each section of an object: who notices it, what is said, and that the rest goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.node.real_nodes import RealNodes, real_nodes
from tests.node.tiered_nodes import COORDINATORS, TIERED, bootstrap, consumed, leader, of_store, produce
from tidelog import Consumer, Producer
from tidelog.client.admin import Admin
from tidelog.errors import TidelogError
from tidelog.spark.options.query_options import parse_batch_options
from tidelog.spark.ranges.batch_reader import TidelogReader
from tidelog.tiering.obstore_store import open_object_store
from tidelog.tiering.remote_errors import RemoteObjectDamaged
from tidelog.tiering.remote_segment import RemoteSegment, SectionKind
from tidelog.tiering.segment_manifest import manifest_key, read_manifest, segment_key

COLD, HOT = "history", "present"
RECORDS = 300
NODE, TIMES, SPARK = "a consumer", "a search by time", "Spark"
NOTICED = {
    SectionKind.LOG: {NODE, TIMES, SPARK},
    SectionKind.LOG_CHECKSUMS: {NODE, TIMES, SPARK},
    SectionKind.OFFSET_INDEX: {NODE, TIMES, SPARK},
    SectionKind.TIME_INDEX: {TIMES},
    SectionKind.TRANSACTION_INDEX: {NODE, SPARK},
    SectionKind.PRODUCER_SNAPSHOT: {NODE, SPARK},
    SectionKind.LEADER_EPOCHS: set[str](),
}
"""Leader epochs are read by replicas that begin empty (test_remote_start.py)."""


async def history(nodes: RealNodes) -> None:
    """A topic in which every segment has an aborted transaction, and one that does not end in it."""
    configs = {**TIERED, "segment.bytes": "16000", "index.interval.bytes": "1000"}
    async with Admin(bootstrap(nodes)) as admin:
        await admin.create_topic(COLD, partitions=1, replication_factor=1, configs=configs)
        await admin.create_topic(HOT, partitions=1, replication_factor=1)
    async with Producer(bootstrap(nodes), transactional_id="t", linger_ms=0) as producer:
        for first in range(0, RECORDS, 5):
            with pytest.raises(KeyError):
                async with producer.transaction() as transaction:
                    for number in range(first, first + 5):
                        await transaction.send(COLD, b"%d." % number + bytes(900), partition=0)
                    raise KeyError
    await produce(nodes, 0, 20, HOT)


@pytest.mark.deep
async def test_each_section_that_is_read_was_compared_with_its_checksum(tmp_path: Path) -> None:
    """Goal: no changed byte of an object is used, and the error names the object, the section and the next step.
    Method: in one object after the other, another section is changed; a consumer, a search by time and Spark read in
    the middle of that segment. Passed: those that need the section end with RemoteObjectDamaged, the others do not; the
    segments beside it and other topics are read; a changed manifest, which is for people and tools, harms no reader.
    Takes longer than 10 s on a busy machine: transactions, one after the other."""
    folder = tmp_path / "store"
    store = open_object_store(f"file://{folder}")
    async with real_nodes(tmp_path / "nodes", 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        await history(nodes)
        segments = await copied(nodes, folder)
        # All of them before the first read: nothing of a damaged segment is in the cache of the node.
        damaged = dict(zip(NOTICED, segments[::2], strict=False))
        for kind, segment in damaged.items():
            section = next(each for each in segment.sections if each.kind is kind)
            change(folder / segment_key(COLD, segment), section.start + section.size // 2)
        found: dict[SectionKind, set[str]] = {}
        for kind, segment in damaged.items():
            key = segment_key(COLD, segment)
            errors = {name: await error_of(read(nodes, segment)) for name, read in READERS.items()}
            # A consumer reads ahead, and may be told of the next object: then it has passed this one.
            found[kind] = {name for name, error in errors.items() if error is not None and key in error.message}
            for error in errors.values():
                if error is not None:
                    assert isinstance(error, RemoteObjectDamaged)
                    assert "restore it from a backup of the store, or delete the records up to" in error.message
            for read in READERS.values():
                assert await error_of(read(nodes, segments[-1])) is None, "other segments are read"
            assert await consumed(nodes, 20, HOT) == [*range(20)]
        assert found == NOTICED
        change(folder / manifest_key(COLD, segments[-1]), 10)
        for read in READERS.values():
            assert await error_of(read(nodes, segments[-1])) is None
        with pytest.raises(RemoteObjectDamaged):
            read_manifest(store, manifest_key(COLD, segments[-1]))


def change(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


async def copied(nodes: RealNodes, folder: Path) -> list[RemoteSegment]:
    """The segments of the topic, once they have left the node, with their manifests."""
    store = open_object_store(f"file://{folder}")

    def manifests() -> list[str]:
        return sorted(str(file.relative_to(folder)) for file in folder.glob(f"{COLD}-*/0/*.manifest"))

    await nodes.wait_until(lambda: len(manifests()) > 2 * len(NOTICED))
    segments = [read_manifest(store, key).segment for key in manifests()][: 2 * len(NOTICED) + 1]
    await nodes.wait_until(lambda: leader(nodes, COLD).log.local_log_start_offset >= segments[-1].end_offset)
    return segments


async def error_of(reading: Awaitable[object]) -> TidelogError | None:
    try:
        await reading
    except TidelogError as error:
        return error
    return None


def middle_of(segment: RemoteSegment) -> int:
    return (segment.start_offset + segment.end_offset) // 2


async def consume(nodes: RealNodes, segment: RemoteSegment) -> None:
    """From the middle of the segment to its end."""
    async with Consumer(bootstrap(nodes), isolation="read_committed", fetch_bytes=1, buffer_bytes=2_000) as consumer:
        consumer.assign([(COLD, 0)])
        await consumer.seek((COLD, 0), middle_of(segment))
        while await consumer.position((COLD, 0)) < segment.end_offset:
            await consumer.poll(timeout=0.2)


async def search(nodes: RealNodes, segment: RemoteSegment) -> None:
    """The record with the youngest time of the segment."""
    async with Consumer(bootstrap(nodes)) as consumer:
        await consumer.offsets_for_times({(COLD, 0): segment.max_timestamp})


async def read_with_spark(nodes: RealNodes, segment: RemoteSegment) -> None:
    """As an executor does: from the middle of the segment to its end."""
    options = {
        "tidelog.bootstrap.servers": bootstrap(nodes),
        "subscribe": COLD,
        "remoteStorage": "on",
        "startingOffsets": f'{{"{COLD}":{{"0":{middle_of(segment)}}}}}',
        "endingOffsets": f'{{"{COLD}":{{"0":{segment.end_offset}}}}}',
    }
    reader = TidelogReader(parse_batch_options(options), ("offset", "value"))

    def read() -> None:
        for task in reader.partitions():
            for _ in reader.read(task):
                pass

    await asyncio.get_running_loop().run_in_executor(None, read)


READERS: dict[str, Callable[[RealNodes, RemoteSegment], Awaitable[None]]] = {
    NODE: consume,
    TIMES: search,
    SPARK: read_with_spark,
}
