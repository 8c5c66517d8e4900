"""Nodes with topics that have a remote tier, and what their tests ask of them."""

from __future__ import annotations

from collections.abc import Callable

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.replicas.replica import Replica
from node.tiering_settings import TieringConfig
from storage.directory.maintenance_config import MaintenanceConfig
from testbed.fake_object_store import FakeObjectStore
from tests.node.real_nodes import RealNodes
from tidelog import Consumer, Producer

TOPIC = "orders"
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "2000",
    "local.retention.bytes": "0",
    "file.delete.delay.ms": "0",
}
RECORDS = 60
"""Two of them fill a segment."""


def of_store(store: FakeObjectStore) -> Callable[[RealNodes], None]:
    def prepare(nodes: RealNodes) -> None:
        nodes.tiering = TieringConfig(url=store.url, partitions=1, min_isr=1)
        nodes.maintenance = MaintenanceConfig(retention_check_ms=200)
        nodes.open_store = lambda _url: store

    return prepare


COORDINATORS = CoordinatorSettings(GroupSettings(partitions=1), TransactionSettings(partitions=1, min_isr=1))


def bootstrap(nodes: RealNodes) -> str:
    return ",".join(map(str, nodes.addresses))


def replicas(nodes: RealNodes) -> list[Replica]:
    found = [each.node.replicas.registry.find(TOPIC, 0) for each in nodes.nodes.values() if each.node.replicas]
    return [each for each in found if each is not None]


def leader(nodes: RealNodes) -> Replica:
    return next(each for each in replicas(nodes) if each.leader is not None)


async def produce(nodes: RealNodes, first: int, count: int) -> None:
    async with Producer(bootstrap(nodes), linger_ms=0) as producer:
        for number in range(first, first + count):
            await producer.send(TOPIC, f"{number}".encode() + b"." * 900, partition=0)


async def consumed(nodes: RealNodes, count: int, **options: object) -> list[int]:
    """The numbers of the first records, from the start of the log."""
    found: list[int] = []
    async with Consumer(bootstrap(nodes), **options) as consumer:  # type: ignore[arg-type]
        consumer.assign([(TOPIC, 0)])
        await consumer.seek_to_beginning()
        while len(found) < count:
            for record in await consumer.poll():
                assert record.value is not None
                found.append(int(record.value.partition(b".")[0]))
    return found


def all_left(nodes: RealNodes, end: int) -> Callable[[], bool]:
    """True once every replica has only what is not copied: less than two closed segments."""

    def have_left() -> bool:
        return all(end - each.log.local_log_start_offset <= 4 for each in replicas(nodes)) and bool(replicas(nodes))

    return have_left
