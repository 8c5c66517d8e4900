"""Nodes with topics that have a remote tier, and what their tests ask of them."""

from __future__ import annotations

from collections.abc import Callable

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.replicas.replica import Replica
from node.tiering_settings import TieringConfig
from storage.directory.maintenance_config import MaintenanceConfig
from tests.node.real_nodes import RealNodes
from tidelog import Admin, Consumer, Producer
from tidelog.tiering.object_store import ObjectStore
from tidelog.types import NO_NODE, Millis

TOPIC = "orders"
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "2000",
    "local.retention.bytes": "0",
    "file.delete.delay.ms": "0",
}
RECORDS = 60
"""Two of them fill a segment."""


def of_store(store: ObjectStore, *, fetch_wait_ms: int = 500) -> Callable[[RealNodes], None]:
    def prepare(nodes: RealNodes) -> None:
        nodes.tiering = TieringConfig(url=store.url, partitions=1, min_isr=1, fetch_wait_ms=Millis(fetch_wait_ms))
        nodes.maintenance = MaintenanceConfig(retention_check_ms=25)
        nodes.open_store = lambda _url: store

    return prepare


COORDINATORS = CoordinatorSettings(GroupSettings(partitions=1), TransactionSettings(partitions=1, min_isr=1))


def bootstrap(nodes: RealNodes) -> str:
    return ",".join(map(str, nodes.addresses))


def replicas(nodes: RealNodes, topic: str = TOPIC, partition: int = 0) -> list[Replica]:
    managers = [each.node.replicas for each in nodes.nodes.values()]
    found = [each.registry.find(topic, partition) for each in managers if each is not None]
    return [each for each in found if each is not None]


def leader(nodes: RealNodes, topic: str = TOPIC, partition: int = 0) -> Replica:
    return next(each for each in replicas(nodes, topic, partition) if each.leader is not None)


def in_sync(nodes: RealNodes) -> tuple[int, ...]:
    """The in-sync set of the topic, as the controller has it."""
    image = nodes.nodes[0].node.image
    topic = None if image is None else image.topic(TOPIC)
    return () if topic is None else tuple(topic.partitions[0].isr)


async def elect_unclean(nodes: RealNodes, admin: Admin) -> None:
    """Once the topic has no leader, elect one of its replicas, whatever it lacks."""

    def is_leaderless() -> bool:
        image = nodes.nodes[0].node.image
        topic = None if image is None else image.topic(TOPIC)
        return topic is not None and topic.partitions[0].leader == NO_NODE

    await nodes.wait_until(is_leaderless)
    while (await admin.elect_leaders([(TOPIC, 0)], unclean=True))[0].error is not None:
        pass  # the node is not ready yet


def follower_number(nodes: RealNodes) -> int:
    """Of three nodes, one that neither leads the topic nor the quorum."""
    return next(number for number in (1, 2) if number != leader(nodes).leader_node)


async def produce(nodes: RealNodes, first: int, count: int, topic: str = TOPIC, partition: int = 0) -> None:
    async with Producer(bootstrap(nodes), linger_ms=0) as producer:
        for number in range(first, first + count):
            await producer.send(topic, f"{number}".encode() + b"." * 900, partition=partition)


async def consumed(
    nodes: RealNodes, count: int, topic: str = TOPIC, partition: int = 0, **options: object
) -> list[int]:
    """The numbers of the first records, from the start of the log."""
    found: list[int] = []
    async with Consumer(bootstrap(nodes), **options) as consumer:  # type: ignore[arg-type]
        consumer.assign([(topic, partition)])
        await consumer.seek_to_beginning()
        await consume_more(consumer, found, count)
    return found


async def consume_more(consumer: Consumer, numbers: list[int], count: int) -> None:
    """Poll until there are so many numbers of records."""
    while len(numbers) < count:
        for record in await consumer.poll():
            assert record.value is not None
            numbers.append(int(record.value.partition(b".")[0]))


def closed_left(nodes: RealNodes, topic: str = TOPIC, partition: int = 0) -> Callable[[], bool]:
    """True once the leader has its active segment only: nothing is copied and nothing leaves any more."""

    def have_left() -> bool:
        log = leader(nodes, topic, partition).log
        return log.local_log_start_offset == log.active.base_offset

    return have_left


def all_left(nodes: RealNodes, end: int, topic: str = TOPIC, partition: int = 0) -> Callable[[], bool]:
    """True once every replica has only what is not copied: less than two closed segments."""

    def have_left() -> bool:
        found = replicas(nodes, topic, partition)
        return all(end - each.log.local_log_start_offset <= 4 for each in found) and bool(found)

    return have_left
