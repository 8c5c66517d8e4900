"""The metadata of a node's partitions, carried out: logs created, set aside, deleted; roles taken and left."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from node.replicas.replica_config import ReplicaConfig
from node.replication_settings import ReplicationConfig
from replication.controller.image import PartitionState, TopicState
from tests.node.wires import ANYWHERE, CALLER, TOPIC, Cluster, as_value, batch, fetch_request
from tests.record_values import collected
from tidelog.errors import FencedLeaderEpoch, InconsistentTopicId, NotLeaderOrFollower, StaleNodeEpoch, UnknownTopicId
from tidelog.protocol.v1 import data_pb2
from tidelog.records import iter_batches
from tidelog.types import (
    Buffer,
    LeaderEpoch,
    Millis,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
)

AGAIN = TopicId(UUID(int=71))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.set(leader=1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def values(records: Buffer) -> list[bytes | None]:
    return [record.value for found in iter_batches(records) for record in found.records()]


def stray_logs(cluster: Cluster, node: int) -> list[str]:
    return [name for name in cluster.machines[node].disk.list("/data") if name.endswith("-stray")]


def make_again(cluster: Cluster) -> None:
    """The topic is deleted and created again under the same name, led by node 1."""
    everyone = tuple(NodeId(node) for node in (1, 2, 3))
    state = PartitionState(
        AGAIN,
        PartitionIndex(0),
        everyone,
        (ANYWHERE,) * 3,
        everyone,
        (),
        (),
        NodeId(1),
        LeaderEpoch(1),
        PartitionEpoch(1),
    )
    topic = TopicState("t", AGAIN, {}, (state,))
    cluster.image = replace(cluster.image, topics={AGAIN: topic}, topic_ids={"t": AGAIN})


# --- logs ---


def test_the_logs_of_a_removed_topic_are_deleted(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.image = replace(cluster.image, topics={}, topic_ids={})
    cluster.publish()
    for node in (1, 2, 3):
        assert "t-0" not in cluster.machines[node].disk.list("/data")
        assert stray_logs(cluster, node) == []
    [answer] = cluster.produce(1, batch(b"b"))
    assert answer.error.code == UnknownTopicId.code


def test_a_topic_created_again_starts_empty_and_its_earlier_id_is_rejected(cluster: Cluster) -> None:
    """Scenario 12"""
    cluster.produce(1, batch(b"old"))
    make_again(cluster)
    cluster.publish(1)  # node 2 and 3 still fetch the old one
    cluster.run(1.0)
    assert cluster.log(1).log_end_offset == 0
    assert cluster.watermark(1) == 0
    assert [a.error.code for a in cluster.produce(1, batch(b"x"))] == [InconsistentTopicId.code]
    cluster.publish()
    [answer] = cluster.produce(1, batch(b"new"), topic=AGAIN)
    assert (answer.base_offset, answer.error.code) == (0, 0)
    assert values(cluster.contents(2)) == values(cluster.contents(3)) == [b"new"]


def test_a_log_of_another_topic_id_is_set_aside_not_used(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"old"))
    cluster.kill(2)
    make_again(cluster)
    cluster.start(2)
    cluster.produce(1, batch(b"new"), topic=AGAIN)
    assert values(cluster.contents(2)) == [b"new"]
    assert len(stray_logs(cluster, 2)) == 1


def test_a_log_that_the_metadata_does_not_know_is_set_aside_not_deleted(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.kill(2)
    cluster.image = replace(cluster.image, topics={}, topic_ids={})
    cluster.start(2)
    assert len(stray_logs(cluster, 2)) == 1
    assert "t-0" not in cluster.machines[2].disk.list("/data")


def test_many_logs_are_made_a_few_at_a_time() -> None:
    cluster = Cluster(partitions=30)
    for index in range(30):
        cluster.set(index, publish=False, leader=1 + index % 3)
    cluster.publish()
    cluster.run(0.1)
    for node in (1, 2, 3):
        assert len(list(cluster.manager(node).partitions())) == 30
    assert [a.error.code for a in cluster.produce(1, batch(b"a"), index=27)] == [0]
    cluster.close()


def test_a_log_that_cannot_be_made_for_now_is_made_later(cluster: Cluster) -> None:
    make_again(cluster)
    cluster.machines[1].disk.fail("make_directory", "t-0", error=errno.ENOSPC)
    cluster.publish()
    [refused] = cluster.produce(1, batch(b"a"), topic=AGAIN)
    assert (refused.error.code, refused.error.written) == (NotLeaderOrFollower.code, 1)
    cluster.run(1.0)
    assert [a.error.code for a in cluster.produce(1, batch(b"a"), topic=AGAIN)] == [0]


def test_a_recovered_log_with_invalid_settings_is_used_once_they_are_corrected(cluster: Cluster) -> None:
    """A node starts with a topic setting that it does not know. Its replica takes part again once the setting is
    removed, with its log and without a restart."""
    cluster.produce(1, batch(b"a"))
    cluster.run(1)
    cluster.kill(2)
    cluster.set(publish=False, isr=(NodeId(1), NodeId(3)))
    topic = cluster.image.topics[TOPIC]
    cluster.image = replace(cluster.image, topics={TOPIC: replace(topic, configs={"setting.of.tomorrow": "1"})})
    cluster.start(2)
    cluster.run(3)
    assert not cluster.manager(2).partitions()
    topic = cluster.image.topics[TOPIC]
    cluster.image = replace(cluster.image, topics={TOPIC: replace(topic, configs={})})
    cluster.publish()
    assert [each.error.code for each in cluster.produce(1, batch(b"b"))] == [0]
    cluster.run(1)
    assert values(cluster.contents(2)) == [b"a", b"b"]
    assert not stray_logs(cluster, 2)
    assert not cluster.manager(2)._missing, "no log is to be created"


def test_a_log_that_could_not_be_made_is_forgotten_with_its_topic(cluster: Cluster) -> None:
    """The topic is deleted during the attempt."""
    cluster.stop(3)
    cluster.start(3, publish=False)
    machine = cluster.machines[3]
    machine.disk.fail("make_directory", "/data/t-0", error=errno.ENOSPC, times=-1)
    machine.executor.holding = True
    make_again(cluster)
    cluster.publish()
    cluster.run(0.1)
    cluster.image = replace(cluster.image, topics={}, topic_ids={})
    cluster.publish()
    machine.executor.release()
    cluster.run(5.0)
    missing = cluster.manager(3)._missing
    assert (bool(missing), missing._failed) == (False, {})


# --- roles ---


def test_nothing_is_done_before_the_nodes_own_registration(cluster: Cluster) -> None:
    """An image from before this incarnation would make the node act in an epoch of its earlier one."""
    cluster.produce(1, batch(b"a"))
    cluster.kill(1)
    old = cluster.image
    cluster.start(1, publish=False)
    cluster.manager(1).on_image(old)
    assert list(cluster.manager(1).partitions()) == []
    cluster.set(leader=1)
    assert cluster.partition(1).leader is not None
    assert cluster.partition(1).leader_epoch == 2


def test_a_node_whose_id_another_process_has_taken_steps_down(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    node = cluster.image.nodes[NodeId(1)]
    taken = replace(node, node_epoch=NodeEpoch(99), incarnation=cluster.machines[2].incarnation)
    cluster.image = replace(cluster.image, nodes={**cluster.image.nodes, NodeId(1): taken})
    cluster.publish()
    assert cluster.partition(1).leader is None
    assert [a.error.code for a in cluster.produce(1, batch(b"b"))] == [NotLeaderOrFollower.code]


def test_each_epoch_has_progress_of_its_own(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    first = cluster.partition(1).leader
    cluster.set(publish=True, min_insync=1)
    assert cluster.partition(1).leader is first
    cluster.set(leader=1)
    assert cluster.partition(1).leader is not first
    assert cluster.partition(1).leader.core.leader_epoch == 2


def test_a_partition_without_a_leader_waits(cluster: Cluster) -> None:
    cluster.set(leader=-1)
    assert [a.error.code for a in cluster.produce(1, batch(b"a"))] == [NotLeaderOrFollower.code]
    assert not cluster.produce(1, batch(b"a"))[0].error.HasField("leader")
    cluster.set(leader=2)
    assert [a.error.code for a in cluster.produce(2, batch(b"a"))] == [0]


def follower_fetch(cluster: Cluster, *, node: int, incarnation: bytes, epoch: int, topic: TopicId = TOPIC) -> int:
    """The error code that node 1 answers this follower's fetch with."""
    request = fetch_request(0, topic=topic, epoch=epoch)
    request.replica.CopyFrom(data_pb2.Replica(node_id=node, incarnation=incarnation))
    request.partitions[0].durable_offset = request.partitions[0].log_start_offset = 0
    session = cluster.sessions(1).open(CALLER)
    session.take(as_value(request))
    answers = collected(session)
    cluster.sessions(1).close(session)
    return 0 if not answers or answers[0].error is None else int(answers[0].error.code)


def test_only_a_present_replica_in_the_present_epoch_may_follow(cluster: Cluster) -> None:
    cluster.set(leader=1)
    second = cluster.machines[2].incarnation.bytes
    assert follower_fetch(cluster, node=2, incarnation=second, epoch=2) == 0
    assert follower_fetch(cluster, node=2, incarnation=second, epoch=1) == FencedLeaderEpoch.code
    assert follower_fetch(cluster, node=2, incarnation=bytes(16), epoch=2) == StaleNodeEpoch.code
    assert follower_fetch(cluster, node=9, incarnation=bytes(16), epoch=2) == NotLeaderOrFollower.code
    assert follower_fetch(cluster, node=2, incarnation=second, epoch=2, topic=AGAIN) == UnknownTopicId.code


# --- in-sync sets ---


def test_a_proposal_is_repeated_until_it_is_decided(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.refuse = StaleNodeEpoch("not now")
    cluster.kill(3)
    waiting = cluster.append(1, batch(b"b"))
    cluster.run(8.0)
    assert len(cluster.proposals) > 2
    assert set(cluster.proposals) == {(1, 2)}
    assert not waiting.done()
    cluster.refuse = None
    cluster.until(waiting.done, within=1.0)


def test_a_failed_proposal_is_repeated_soon_while_a_request_waits_whatever_the_lag_time() -> None:
    """With a lag time of 40 s, reviews are 2.5 s apart."""
    cluster = Cluster(config=ReplicaConfig(ReplicationConfig(lag_ms_max=Millis(40_000))))
    cluster.set(leader=1)
    cluster.produce(1, batch(b"a"))
    cluster.refuse = StaleNodeEpoch("not now")
    cluster.kill(3)
    waiting = cluster.append(1, batch(b"b"))
    cluster.until(lambda: bool(cluster.proposals), within=50.0, what="the dead member lags")
    assert not waiting.done()
    cluster.refuse = None
    cluster.until(waiting.done, within=0.5, what="the next proposal unblocks the request")
    cluster.close()


def test_many_partitions_share_one_request_to_the_controller() -> None:
    requests = []
    cluster = Cluster(partitions=20, config=ReplicaConfig(ReplicationConfig(lag_ms_max=Millis(1_000))))
    alter = cluster.alter_partition

    async def counting(request):  # type: ignore[no-untyped-def]
        requests.append(len(request.partitions))
        return await alter(request)

    cluster.manager(1)._proposer._alter_partition = counting
    for index in range(20):
        cluster.set(index, publish=False, leader=1)
    cluster.publish()
    cluster.run(0.2)
    cluster.kill(3)
    for index in range(20):
        cluster.append(1, batch(b"a"), index=index)
    cluster.until(lambda: all(cluster.state(index).isr == (1, 2) for index in range(20)), within=4.0)
    assert requests == [20]
    cluster.close()


# --- disks ---


def test_a_full_disk_of_a_follower_slows_only_that_follower(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.machines[3].disk.fail("write", "t-0", error=errno.ENOSPC, times=1_000_000)
    waiting = cluster.append(1, batch(b"b"))
    cluster.until(waiting.done, within=8.0)
    assert cluster.state().isr == (1, 2)
    assert cluster.directory(3).offline is None
    cluster.machines[3].disk.heal()
    cluster.until(lambda: cluster.state().isr == (1, 2, 3), within=5.0)


def test_a_failing_disk_takes_the_leadership_elsewhere_and_the_node_stays_up(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.machines[1].disk.fail("write", "t-0", error=errno.EIO)
    [answer] = cluster.produce(1, batch(b"b"))
    assert answer.error.name == "KAFKA_STORAGE_ERROR"
    assert [a.error.code for a in cluster.produce(1, batch(b"c"))] == [NotLeaderOrFollower.code]
    cluster.until(lambda: cluster.state().isr == (2, 3), within=2.0, what="it leaves itself out")
    cluster.set(leader=2)
    assert [a.error.code for a in cluster.produce(2, batch(b"d"))] == [0]
    assert values(cluster.contents(2)) == values(cluster.contents(3)) == [b"a", b"d"]


def test_a_failed_fsync_answers_waiting_requests_and_stops_the_directory(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.machines[1].disk.fail("sync", "t-0", error=errno.EIO)
    [answer] = cluster.produce(1, batch(b"b"))
    assert (answer.error.name, answer.error.written) == ("NOT_LEADER_OR_FOLLOWER", 3)
    assert cluster.directory(1).offline is not None


def test_a_damaged_log_waits_until_no_set_contains_it_and_is_fetched_again(cluster: Cluster) -> None:
    """Rule 6: its durable records are lost; it must neither fetch as if it had them, nor lead."""
    cluster.produce(1, batch(b"a"), batch(b"b"))
    cluster.stop(3)
    disk = cluster.machines[3].disk
    disk.flip_bit("/data/t-0/00000000000000000000.log", 65)
    disk.remove("/data/.kafka_cleanshutdown")
    disk.remove("/data/recovery-point-offset-checkpoint")
    cluster.start(3)
    cluster.run(1.0)
    assert cluster.log(3).damage is not None
    cluster.set(leader=3)
    assert cluster.partition(3).leader is None, "a damaged replica does not lead"
    cluster.set(leader=1, isr=(1, 2))
    cluster.until(lambda: cluster.state().isr == (1, 2, 3), within=5.0)
    assert cluster.contents(3) == cluster.contents(1)
    assert len(stray_logs(cluster, 3)) == 1


def test_a_topic_with_a_damaged_log_can_be_deleted_and_created_again(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"), batch(b"b"))
    cluster.machines[1].disk.flip_bit("/data/t-0/00000000000000000000.log", 16)  # the magic of the first batch
    assert type(cluster.fetch(1, 0).error) is NotLeaderOrFollower, "the client must ask the next leader"
    assert cluster.partition(1).offline is not None
    make_again(cluster)
    cluster.publish()
    [answer] = cluster.produce(1, batch(b"new"), topic=AGAIN)
    assert (answer.base_offset, answer.error.code) == (0, 0)
    assert stray_logs(cluster, 1) == []


def test_a_leader_whose_log_takes_no_appends_any_more_lets_another_lead() -> None:
    """An append found the damage: the leader stayed in office and rejected every later append, too."""
    cluster = Cluster(index_interval_bytes="100")
    cluster.set(leader=2)
    for _ in range(10):
        cluster.produce(2, batch(b"a" * 30))
    cluster.run(1.0)
    cluster.stop(1)
    cluster.start(1)
    cluster.until(lambda: cluster.state().isr == (1, 2, 3), within=5.0)
    disk, segment = cluster.machines[1].disk, "/data/t-0/00000000000000000000"
    disk.flip_bit(f"{segment}.index", 3 * 8, 4)  # the index must be rebuilt before the next append,
    disk.flip_bit(f"{segment}.log", 16)  # but the magic of the first batch is wrong
    cluster.set(leader=1)
    [answer] = cluster.produce(1, batch(b"b" * 200))
    assert (answer.error.name, answer.error.written) == ("NOT_LEADER_OR_FOLLOWER", 1)
    cluster.until(lambda: cluster.state().isr == (2, 3), within=2.0, what="it leaves itself out")
    cluster.set(leader=2)
    [answer] = cluster.produce(2, batch(b"b" * 200))
    assert answer.error.code == 0
    cluster.until(lambda: cluster.state().isr == (1, 2, 3), within=5.0)
    assert cluster.contents(1) == cluster.contents(2)
    cluster.loop.raise_defects()
    cluster.close()


def test_a_directory_that_fails_behind_an_append_leaves_its_outcome_unknown() -> None:
    """The append rolls a segment, which requests a flush, and the flush finds the disk broken."""
    cluster = Cluster(segment_bytes="150", durability="page-cache")
    cluster.set(leader=1)
    cluster.produce(1, batch(b"a" * 50))
    cluster.machines[1].disk.fail("open", ".index", skip=1)
    [answer] = cluster.produce(1, batch(b"b" * 50))
    assert (answer.error.name, answer.error.written) == ("NOT_LEADER_OR_FOLLOWER", 3)
    assert cluster.directory(1).offline is not None
    cluster.loop.raise_defects()
    cluster.close()


def test_a_lost_log_is_not_recreated_while_others_rely_on_it(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.stop(3)
    disk = cluster.machines[3].disk
    for name in disk.list("/data/t-0"):
        disk.remove(f"/data/t-0/{name}")
    disk.remove_directory("/data/t-0")
    cluster.start(3)
    cluster.run(1.0)
    assert list(cluster.manager(3).partitions()) == []
    cluster.set(isr=(1, 2))
    cluster.until(lambda: cluster.state().isr == (1, 2, 3), within=5.0)
    assert cluster.contents(3) == cluster.contents(1)


# --- checkpoints and the end ---


def test_watermarks_are_written_every_few_seconds(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.run(6.0)
    for node in (1, 2, 3):
        checkpoint = cluster.machines[node].disk.open("/data/replication-offset-checkpoint", read_only=True)
        assert b"t 0 1" in checkpoint.pread(1_000, 0)


def test_a_graceful_stop_ends_every_task_and_closes_clean(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.stop(1)
    cluster.set(leader=2, isr=(2, 3))
    cluster.produce(2, batch(b"b"))
    cluster.start(1)
    assert cluster.directory(1).identity.was_clean
    cluster.until(lambda: set(cluster.state().isr) == {1, 2, 3}, within=5.0)


def test_page_cache_topics_with_flush_messages_acknowledge_flushed_records() -> None:
    """As in Kafka, which flushes within the append: nothing is acknowledged, or committed before."""
    flushed = Cluster(durability="page-cache", flush_messages="1")
    flushed.set(leader=1)
    flushed.run(0.1)
    for acks, waits_for in ((1, (1,)), (-1, (1, 2, 3))):
        for node in (1, 2, 3):
            flushed.machines[node].executor.holding = True
        end = flushed.log(1).log_end_offset + 1
        task = flushed.append(1, batch(b"a"), acks=acks)
        for node in waits_for:
            flushed.run(0.2)
            assert not task.done(), f"acks={acks} is acknowledged before node {node} has flushed"
            assert flushed.watermark(1) < end
            flushed.machines[node].executor.release()
        flushed.until(task.done, within=0.2)
        assert [each.error.code for each in task.result().partitions] == [0]
        assert all(flushed.log(node).recovery_point == end for node in waits_for)
        for node in (1, 2, 3):
            flushed.machines[node].executor.release()
        flushed.run(0.2)
    flushed.close()


def test_page_cache_topics_acknowledge_records_in_the_page_cache() -> None:
    cached = Cluster(durability="page-cache")
    cached.set(leader=1)
    cached.run(0.1)
    for node in (1, 2, 3):
        cached.machines[node].executor.holding = True
    [answer] = cached.produce(1, batch(b"a"))
    assert answer.error.code == 0
    assert cached.watermark(1) == 1
    cached.close()
