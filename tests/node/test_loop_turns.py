"""The work of one turn of a node's loop when the metadata change many partitions, and the work that later turns do.
Work is counted: partitions examined, calls to the disk. Disk calls that may wait run on executors only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

import pytest

from node.replicas.replica import Replica
from node.replicas.replica_config import ReplicaConfig
from node.requests.produce_session import BATCHES_PER_TURN
from replication.controller.image import ClusterImage, PartitionState, TopicState
from replication.controller.image_changes import changes_between
from tests.fakes.log_start import delete_records
from tests.node.wires import ANYWHERE, CALLER, TOPIC, Cluster, batch
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.types import (
    Incarnation,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    PartitionKey,
    TopicId,
)

COUNT, AT_ONCE = 120, 10
WAITS = {"sync", "sync_directory", "rename", "remove", "remove_directory", "make_directory"}
AGAIN = TopicId(UUID(int=71))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(2, partitions=COUNT, config=ReplicaConfig(applied_at_once=AT_ONCE))
    for index in range(COUNT):
        cluster.set(index, publish=False, leader=NodeId(1))
    cluster.publish()
    cluster.until(lambda: led(cluster, 1) == COUNT and len(logs(cluster, 2)) == COUNT)
    cluster.run(1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def led(cluster: Cluster, node: int) -> int:
    return sum(partition.leader is not None for partition in cluster.manager(node).partitions())


def logs(cluster: Cluster, node: int) -> list[str]:
    return [name for name in cluster.machines[node].disk.list("/data") if name.startswith("t-")]


def without_topic(image: ClusterImage) -> ClusterImage:
    return replace(image, topics={}, topic_ids={})


def lead_all(cluster: Cluster, node: int) -> None:
    for index in range(COUNT):
        cluster.set(index, publish=False, leader=NodeId(node))


def test_a_deleted_topic_is_let_go_a_few_partitions_in_each_turn(cluster: Cluster) -> None:
    manager = cluster.manager(1)
    left = [COUNT]
    cluster.image = without_topic(cluster.image)
    cluster.loop.call_soon(manager.on_image, cluster.image)
    while left[-1]:
        cluster.loop.step()
        left.append(sum(1 for _ in manager.partitions()))
        assert left[-2] - left[-1] <= AT_ONCE
    cluster.run(1)
    assert logs(cluster, 1) == []


def test_a_failover_of_many_partitions_takes_its_roles_a_few_in_each_turn(cluster: Cluster) -> None:
    lead_all(cluster, 2)
    cluster.loop.call_soon(cluster.manager(2).on_image, cluster.image)
    leads = [0]
    while leads[-1] < COUNT:
        cluster.loop.step()
        leads.append(led(cluster, 2))
        assert leads[-1] - leads[-2] <= AT_ONCE
    assert leads[-1] == COUNT


def test_an_image_with_one_change_is_about_one_partition(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[str] = []
    learn = Replica.learn

    def noting(self: Replica, *arguments: object) -> None:
        learned.append(str(self))
        learn(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Replica, "learn", noting)
    cluster.set(7, isr=(NodeId(1),))
    cluster.run(1)
    assert set(learned) == {"t-7"}


def test_while_some_are_still_due_the_newest_image_counts(cluster: Cluster) -> None:
    """The topic is deleted; another comes under its name, before the first one's partitions are all gone."""
    manager = cluster.manager(1)
    cluster.image = without_topic(cluster.image)
    manager.on_image(cluster.image)
    everyone = (NodeId(1), NodeId(2))
    states = tuple(
        PartitionState(
            AGAIN,
            PartitionIndex(index),
            everyone,
            (ANYWHERE,) * 2,
            everyone,
            (),
            (),
            NodeId(1),
            LeaderEpoch(0),
            PartitionEpoch(0),
        )
        for index in range(COUNT)
    )
    topics = {AGAIN: TopicState("t", AGAIN, cluster.configs, states)}
    cluster.image = replace(cluster.image, topics=topics, topic_ids={"t": AGAIN})
    assert sum(1 for _ in manager.partitions()) > 0, "the first one's are still there"
    cluster.publish()
    cluster.until(lambda: led(cluster, 1) == COUNT, within=30)
    assert {partition.key.topic_id for partition in manager.partitions()} == {AGAIN}
    assert not any("stray" in name for name in cluster.machines[1].disk.list("/data"))


@pytest.mark.parametrize("created_again", [True, False])
def test_a_topic_deleted_before_a_restarted_node_used_its_logs_leaves_none(
    cluster: Cluster, created_again: bool
) -> None:
    """The logs of later turns stayed open, so that those of the next topic of this name could not be created: that
    ended the node."""
    cluster.stop(1)
    cluster.start(1, publish=False)
    manager, old = cluster.manager(1), logs(cluster, 1)
    manager.on_image(cluster.image)
    assert sum(1 for _ in manager.partitions()) == AT_ONCE, "the others wait for their turn"
    states = tuple(replace(cluster.state(index), topic_id=AGAIN) for index in range(COUNT))
    topics = {AGAIN: TopicState("t" if created_again else "u", AGAIN, cluster.configs, states)}
    cluster.image = replace(cluster.image, topics=topics, topic_ids={topics[AGAIN].name: AGAIN})
    manager.on_image(cluster.image)
    cluster.until(lambda: led(cluster, 1) == COUNT, within=30)
    assert all(partition.key.topic_id == AGAIN for partition in manager.partitions())
    left = cluster.machines[1].disk.list("/data")
    assert len([name for name in left if name.startswith(("t-", "u-"))]) == len(old), "the earlier ones are deleted"
    assert not any("stray" in name for name in left)


def test_a_topic_whose_log_is_being_made_may_be_deleted_meanwhile(cluster: Cluster) -> None:
    machine, before = cluster.machines[1], cluster.image
    machine.executor.holding = True
    state = replace(cluster.state(), topic_id=AGAIN, partition=PartitionIndex(0))
    topic = TopicState("u", AGAIN, cluster.configs, (state,))
    cluster.image = replace(before, topics={**before.topics, AGAIN: topic})
    cluster.publish()
    cluster.run(0.1)
    cluster.image = before
    cluster.publish()
    machine.executor.release()
    cluster.run(1)
    assert not any(name.startswith("u-") for name in machine.disk.list("/data"))
    assert cluster.manager(1).registry.find(AGAIN.bytes, 0) is None


def test_a_log_that_waits_to_be_made_is_not_made_once_its_replica_has_moved_away(cluster: Cluster) -> None:
    """The change of its partition is not carried out yet when the log's turn comes to be made: that ended the node."""
    machine, manager = cluster.machines[1], cluster.manager(1)
    machine.executor.holding = True
    states = tuple(replace(cluster.state(), topic_id=AGAIN, partition=PartitionIndex(index)) for index in range(COUNT))
    with_logs = {AGAIN: TopicState("u", AGAIN, cluster.configs, states)}
    cluster.image = replace(cluster.image, topics={**cluster.image.topics, **with_logs})
    cluster.publish()
    cluster.run(0.1)
    two = (NodeId(2),)
    moved = tuple(
        replace(
            state, replicas=two, directories=(ANYWHERE,), isr=two, leader=NodeId(2), partition_epoch=PartitionEpoch(9)
        )
        for state in states
    )
    lead_all(cluster, 2)  # these changes come first
    away = {AGAIN: TopicState("u", AGAIN, cluster.configs, moved)}
    cluster.image = replace(cluster.image, topics={**cluster.image.topics, **away})
    cluster.loop.call_soon(manager.on_image, cluster.image)
    cluster.loop.call_soon(machine.executor.release)
    cluster.run(2)
    assert machine.task is not None
    assert not machine.task.done()
    assert not any(name.startswith("u-") for name in machine.disk.list("/data"))
    assert all(partition.key.topic_id == TOPIC for partition in manager.partitions())


def test_a_log_that_is_made_after_another_process_took_the_nodes_place_is_not_led(cluster: Cluster) -> None:
    machine, manager = cluster.machines[1], cluster.manager(1)
    machine.executor.holding = True
    state = replace(cluster.state(), topic_id=AGAIN, partition=PartitionIndex(0))
    topic = TopicState("u", AGAIN, cluster.configs, (state,))
    cluster.image = replace(cluster.image, topics={**cluster.image.topics, AGAIN: topic})
    cluster.publish()
    cluster.run(0.1)
    other = replace(cluster.image.nodes[NodeId(1)], incarnation=Incarnation(UUID(int=4711)))
    cluster.image = replace(cluster.image, nodes={**cluster.image.nodes, NodeId(1): other})
    cluster.publish()
    machine.executor.release()
    cluster.run(1)
    assert [str(each) for each in manager.partitions() if each.leader is not None] == []


def test_a_request_of_many_batches_is_appended_a_few_in_each_turn(cluster: Cluster) -> None:
    """10,000 batches kept the loop for a second."""
    count = 3 * BATCHES_PER_TURN
    one = batch(b"x")
    entries = [ProduceBatch(correlation_id=i, topic_id=TOPIC.bytes, partition=0, records=one) for i in range(count)]
    request = ProduceRequest(acks=1, timeout_ms=1_000, partitions=entries)
    produced = cluster.loop.create_task(cluster.service(1).produce(request, CALLER))
    ends = [0]

    def is_done() -> bool:
        ends.append(cluster.log(1).log_end_offset)
        return produced.done()

    cluster.until(is_done)
    assert max(end - before for before, end in pairwise(ends)) <= BATCHES_PER_TURN
    answers = sorted(produced.result().partitions, key=lambda answer: answer.batch_id)
    assert [answer.base_offset for answer in answers] == list(range(count))


def test_deleting_many_partitions_syncs_a_few_times(cluster: Cluster) -> None:
    """Each cost five to seven fsyncs, on the loop: an unrelated sender waited 5.2 s for 1,500."""
    for index in range(COUNT):
        cluster.append(1, batch(b"x"), index=index)
    cluster.run(2)
    cluster.directory(1).write_checkpoints()
    calls: Counter[str] = Counter()
    cluster.machines[1].disk.on_call = lambda operation: calls.update((operation,))
    cluster.machines[1].executor.holding = True
    cluster.image = without_topic(cluster.image)
    cluster.publish()
    cluster.run(1)
    assert {operation: count for operation, count in calls.items() if operation in WAITS} == {}, "on the loop"
    cluster.machines[1].executor.release()
    cluster.run(1)
    assert logs(cluster, 1) == []
    assert calls["sync"] + calls["sync_directory"] <= 20
    cluster.machines[1].disk.on_call = None


def test_followers_let_their_logs_start_later_with_one_write(cluster: Cluster) -> None:
    for index in range(COUNT):
        cluster.append(1, batch(b"a"), index=index)
    cluster.run(2)
    calls: Counter[str] = Counter()
    machine = cluster.machines[2]
    machine.executor.holding = True
    machine.disk.on_call = lambda operation: calls.update((operation,))
    for index in range(COUNT):
        delete_records(cluster.log(1, index), Offset(1))
        cluster.partition(1, index).log_start_moved()
    cluster.run(1)
    assert {operation: count for operation, count in calls.items() if operation in WAITS} == {}, "on the loop"
    machine.executor.release()
    cluster.until(lambda: all(cluster.log(2, index).log_start_offset == 1 for index in range(COUNT)))
    machine.disk.on_call = None
    assert calls["sync"] + calls["sync_directory"] <= 6


def test_changes_between_two_images_are_listed_by_partition(cluster: Cluster) -> None:
    old = cluster.image
    cluster.set(3, publish=False, isr=(NodeId(1),))
    changes = changes_between(old, cluster.image)
    assert changes.partitions == (PartitionKey(TOPIC, PartitionIndex(3)),)
    assert (changes.removed, changes.nodes) == ((), frozenset())
    configs = {TOPIC: replace(cluster.image.topics[TOPIC], configs={**cluster.configs, "retention.ms": "1"})}
    assert len(changes_between(cluster.image, replace(cluster.image, topics=configs)).partitions) == COUNT
    node = replace(cluster.image.nodes[NodeId(2)], fenced=True)
    fenced = replace(cluster.image, nodes={**cluster.image.nodes, NodeId(2): node})
    assert changes_between(cluster.image, fenced).nodes == {NodeId(2)}
    gone = changes_between(cluster.image, without_topic(cluster.image))
    assert [topic.name for topic in gone.removed] == ["t"]
