"""`tidelog.testing.InProcessNode`: a cluster of one in the process of a unit test."""

from __future__ import annotations

import gc
import signal
from time import perf_counter

import pytest

import tidelog
from tidelog.errors import ConnectionFailed, InvalidConfig, TidelogError
from tidelog.sync import Consumer, Producer
from tidelog.testing import InProcessNode

START_S_MAX = 0.5
"""Of the second node of a process, which imports nothing; the best of three, since others use these cores."""


async def test_records_groups_and_transactions_work_in_it(tidelog_node: InProcessNode) -> None:
    source, target = tidelog_node.create_topic(), tidelog_node.create_topic()
    async with tidelog.Producer(tidelog_node.bootstrap) as producer:
        await producer.send(source, b"3")
    async with (
        tidelog.Consumer(
            tidelog_node.bootstrap, group=source, topics=[source], auto_offset_reset="earliest", auto_commit=False
        ) as consumer,
        tidelog.Producer(tidelog_node.bootstrap, transactional_id=source) as producer,
    ):
        while not (records := await consumer.poll()):
            pass
        async with producer.transaction() as transaction:
            for record in records:
                await producer.send(target, b"%d" % (int(record.value or b"") ** 2))
            await transaction.send_offsets(consumer)
    async with tidelog.Consumer(tidelog_node.bootstrap, isolation="read_committed") as reader:
        reader.assign([(target, 0)])
        await reader.seek((target, 0), "earliest")
        while not (records := await reader.poll()):
            pass
    assert [record.value for record in records] == [b"9"]


def test_synchronous_clients_use_it_too(tidelog_node: InProcessNode) -> None:
    with Producer(tidelog_node.bootstrap) as producer:
        topic = tidelog_node.create_topic()
        sent = producer.send(topic, b"a")
    with Consumer(tidelog_node.bootstrap) as consumer:
        consumer.assign([(topic, sent.partition)])
        consumer.seek((topic, sent.partition), "earliest")
        while not (records := consumer.poll()):
            pass
    assert [record.value for record in records] == [b"a"]


def test_it_starts_soon_and_leaves_the_process_as_it_was() -> None:
    before = gc.get_threshold(), signal.getsignal(signal.SIGINT)
    frozen = gc.get_freeze_count()
    starts = []
    for _ in range(3):
        begun = perf_counter()
        with InProcessNode():
            starts.append(perf_counter() - begun)
    assert min(starts) < START_S_MAX
    assert (gc.get_threshold(), signal.getsignal(signal.SIGINT)) == before
    assert gc.get_freeze_count() <= frozen, "no object of the process was excluded from garbage collection"


async def test_after_its_end_nothing_answers_and_nothing_is_left() -> None:
    async with InProcessNode() as node:
        directory = node.directory
        assert directory.is_dir()
    assert not directory.exists()
    with pytest.raises(TidelogError) as failed:
        async with tidelog.Producer(node.bootstrap, delivery_timeout_ms=300, max_block_ms=300) as producer:
            await producer.send("orders", b"late")
    assert isinstance(failed.value, ConnectionFailed) or isinstance(failed.value.__cause__, ConnectionFailed)


def test_wrong_settings_are_refused_with_their_names() -> None:
    with pytest.raises(InvalidConfig, match=r"log\.segment\.bytes"):
        InProcessNode(settings={"log.segment.bytes": "many"})
