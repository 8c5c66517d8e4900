"""One batch for each value in a partition of a memory cluster."""

from __future__ import annotations

from tests.client.memory_cluster import MemoryCluster
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Millis, Offset


def fill(cluster: MemoryCluster, *values: str) -> None:
    for value in values:
        records = [Record(Offset(0), Millis(1), None, value.encode())]
        cluster.topics["orders"].partitions[0].append(build_batch(records))
