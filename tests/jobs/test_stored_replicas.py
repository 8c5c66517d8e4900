"""The replicas of an audit with their history in a store: which offsets come from which segment, and which from the
nodes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from testbed.fake_object_store import FakeObjectStore
from tests.storage.producer_batches import eventful
from tests.storage.workbench import SMALL, TP, Bench
from tests.tiering.remote_bench import TOPIC, copy_all
from tidelog.client.remote_logs import RemoteSegments
from tidelog.client.replica_reader import ReplicaRead, ReplicaReader
from tidelog.jobs.stored_replicas import StoredReplicas
from tidelog.records import iter_batches
from tidelog.types import NodeId, Offset


class Nodes:
    """Replicas that all have this log. `asked`: where they were read."""

    def __init__(self, bench: Bench) -> None:
        self.log = bench.log
        self.asked: list[Offset] = []

    async def read(self, _node: Any, _topic: Any, _place: Any, offset: Offset, **_: int) -> ReplicaRead:
        self.asked.append(offset)
        found = self.log.read(offset, 300, up_to=self.log.high_watermark)
        return ReplicaRead(Offset(0), self.log.high_watermark, found.records)


@pytest.fixture
def bench() -> Bench:
    bench = Bench(SMALL)
    eventful(bench, steps=400)
    bench.commit()
    return bench


async def test_offsets_of_a_segment_come_from_the_store_and_those_between_from_the_nodes(bench: Bench) -> None:
    """One segment has no copy. Replicas of two nodes are read in turns."""
    store, nodes = FakeObjectStore(), Nodes(bench)
    segments = copy_all(bench.log, store)
    lacking = segments.pop(3)
    last = segments[-1].end_offset
    stored = RemoteSegments(tuple(segments), "fake://bucket")
    replicas = StoredReplicas(cast("ReplicaReader", nodes), store, TOPIC, stored, last)
    reached = {NodeId(1): Offset(0), NodeId(2): Offset(0)}
    data = dict.fromkeys(reached, b"")
    while min(reached.values()) < bench.log.high_watermark:
        for node, offset in reached.items():
            if offset < bench.log.high_watermark:
                read = await replicas.read(node, cast("Any", None), TP, offset, patience_ms=1_000, wait_ms=0)
                data[node] += bytes(read.records)
                (*_, end) = iter_batches(read.records)
                reached[node] = Offset(end.next_offset)
    log = bench.log
    whole, offset = b"", Offset(0)
    while offset < log.high_watermark:
        read_here = log.read(offset, 300, up_to=log.high_watermark)
        whole, offset = whole + bytes(read_here.records), read_here.next_offset
    assert set(data.values()) == {whole}
    from_nodes = {each for each in nodes.asked if each}
    assert from_nodes
    assert all(lacking.start_offset <= each < lacking.end_offset or each >= last for each in from_nodes)
