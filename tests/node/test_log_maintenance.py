"""Maintenance of logs on nodes: retention on every replica, and damage that the scrub or a reader finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from storage.directory.maintenance_config import MaintenanceConfig
from tests.fakes.log_start import delete_records
from tests.node.wires import CALLER, TOPIC, Cluster, as_value, batch
from tests.record_values import collected
from tidelog.errors import CorruptLog, NotController, OffsetOutOfRange
from tidelog.protocol.v1 import data_pb2
from tidelog.records import iter_batches
from tidelog.types import Offset

SEGMENT = "/data/t-0/00000000000000000000.log"
OFTEN = MaintenanceConfig(retention_check_ms=1_000, scrub_interval_ms=1_000)


def stray_logs(cluster: Cluster, node: int) -> list[str]:
    return [name for name in cluster.machines[node].disk.list("/data") if name.endswith("-stray")]


Make = Callable[..., Cluster]


@pytest.fixture
def rolled() -> Iterator[Make]:
    """Returns a function that creates a cluster whose topic has at least five small segments, led by node 1."""
    made: list[Cluster] = []

    def make(nodes: int = 3, *, retention_bytes: int = -1) -> Cluster:
        cluster = Cluster(
            nodes,
            maintenance=OFTEN,
            segment_bytes="150",
            index_interval_bytes="100",
            retention_bytes=str(retention_bytes),
            file_delete_delay_ms="5000",
        )
        made.append(cluster)
        fill(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.close()


def fill(cluster: Cluster) -> None:
    cluster.set(leader=1)
    for number in range(10):
        cluster.produce(1, batch(b"%d" % number * 40))
    cluster.run(0.2)
    assert len(cluster.log(1).segments) >= 5


def test_every_replica_deletes_old_segments_and_then_their_files(rolled: Make) -> None:
    cluster = rolled(retention_bytes=300)
    cluster.run(3.0)
    for node in (1, 2, 3):
        log = cluster.log(node)
        assert log.log_start_offset > 0
        assert log.size <= 450
        assert any(name.endswith(".deleted") for name in cluster.machines[node].disk.list("/data/t-0"))
    assert type(cluster.fetch(1, 0).error) is OffsetOutOfRange
    cluster.run(6.0)
    for node in (1, 2, 3):
        assert not any(name.endswith(".deleted") for name in cluster.machines[node].disk.list("/data/t-0"))


def test_followers_adopt_the_leaders_log_start(rolled: Make) -> None:
    cluster = rolled()
    delete_records(cluster.log(1), Offset(7))
    cluster.produce(1, batch(b"one more"))
    cluster.run(2.0)
    assert [cluster.log(node).log_start_offset for node in (1, 2, 3)] == [7, 7, 7]
    assert cluster.contents(2) == cluster.contents(1)


def test_a_corrupt_replica_is_fetched_again_after_it_left_the_in_sync_set(rolled: Make) -> None:
    """Rule 6, at run time: no corrupt record spreads, and no committed record is lost."""
    cluster = rolled()
    whole = cluster.contents(1)
    cluster.machines[3].disk.flip_bit(SEGMENT, 70)
    cluster.until(lambda: bool(cluster.manager(3).damage.reports()), within=5.0)
    assert "checksum" in cluster.manager(3).damage.reports()[0].reason
    cluster.produce(1, batch(b"on two of three"))
    cluster.set(leader=3)
    assert cluster.partition(3).leader is None, "a corrupt replica must not lead"
    assert not stray_logs(cluster, 3), "its log stays while the controller counts on the replica"
    cluster.set(leader=1, isr=(1, 2))
    cluster.until(lambda: cluster.state().isr == (1, 2, 3), within=8.0)
    assert cluster.contents(3) == cluster.contents(1)
    assert cluster.contents(3)[: len(whole)] == whole
    assert len(stray_logs(cluster, 3)) == 1
    assert cluster.manager(3).damage.reports() == []


def test_a_corrupt_follower_outside_the_set_is_fetched_again_in_the_next_epoch(rolled: Make) -> None:
    """A report of this epoch may still be in flight to the leader, which would then admit the follower."""
    cluster = rolled()
    cluster.refuse = NotController("no replica is admitted for now")
    cluster.set(isr=(1, 2))
    cluster.machines[3].disk.flip_bit(SEGMENT, 70)
    cluster.until(lambda: bool(cluster.manager(3).damage.reports()), within=10.0)
    assert cluster.manager(3).damage.reports()[0].leader_epoch == cluster.state().leader_epoch
    cluster.set(isr=(1, 2))
    assert stray_logs(cluster, 3) == []
    cluster.set(leader=1)
    assert len(stray_logs(cluster, 3)) == 1
    cluster.run(5.0)
    assert cluster.contents(3) == cluster.contents(1)


def test_the_only_replica_continues_with_its_sound_records(rolled: Make) -> None:
    cluster = rolled(nodes=1)
    cluster.machines[1].disk.flip_bit(SEGMENT, 70)
    cluster.run(5.0)
    assert cluster.partition(1).leader is not None
    assert cluster.manager(1).damage.reports() == []
    [answer] = cluster.produce(1, batch(b"next"))
    assert answer.error.code == 0


def test_the_only_replica_continues_after_a_read_of_damaged_bytes(rolled: Make) -> None:
    cluster = rolled(nodes=1)
    log = cluster.log(1)
    cluster.machines[1].disk.flip_bit(log.active.path, 11)  # the length of its first batch
    assert type(cluster.fetch(1, log.active.base_offset).error) is CorruptLog
    assert cluster.partition(1).leader is not None
    assert cluster.manager(1).damage.reports() == [], "no other replica could lead"
    [answer] = cluster.produce(1, batch(b"next"))
    assert answer.error.code == 0
    [read] = iter_batches(cluster.fetch(1, answer.base_offset).records)
    assert [record.value for record in read.records()] == [b"next"]


def test_a_leader_verifies_bytes_that_a_follower_refuses_and_resigns(rolled: Make) -> None:
    """Scenario 15, second half: the followers of a corrupt leader must not fall behind forever."""
    cluster = rolled()
    cluster.read_files_only(1)
    cluster.kill(3)
    cluster.set(isr=(1, 2))
    cluster.produce(1, batch(b"rots"))
    path = cluster.log(1).active.path
    cluster.machines[1].disk.flip_bit(path, cluster.log(1).active.size - 1)
    cluster.start(3)
    cluster.until(lambda: bool(cluster.manager(1).damage.reports()), within=3.0, what="the leader reports its damage")
    assert cluster.partition(1).leader is None
    assert cluster.log(3).log_end_offset < cluster.log(2).log_end_offset, "the corrupt record was not replicated"
    cluster.set(leader=2, isr=(2,))
    cluster.until(lambda: cluster.state().isr == (1, 2, 3), within=8.0)
    assert cluster.contents(1) == cluster.contents(2) == cluster.contents(3)


def test_a_refusal_of_sound_bytes_changes_nothing(rolled: Make) -> None:
    """The bytes were damaged in transit: the follower fetches again and gets sound bytes."""
    cluster = rolled()
    cluster.produce(1, batch(b"sound"))
    item = data_pb2.FetchPartition(
        fetch_id=1,
        topic_id=TOPIC.bytes,
        current_leader_epoch=cluster.state().leader_epoch,
        refused=True,
        max_bytes=1,
    )
    replica = data_pb2.Replica(node_id=3, incarnation=cluster.machines[3].incarnation.bytes)
    request = data_pb2.FetchRequest(replica=replica, max_wait_ms=100, partitions=[item])
    item = request.partitions[0]
    item.fetch_offset = item.durable_offset = cluster.log(3).log_end_offset
    item.last_fetched_epoch = cluster.log(3).last_epoch
    session = cluster.sessions(1).open(CALLER)
    session.take(as_value(request))
    [answer] = collected(session)
    assert answer.error is None
    assert cluster.partition(1).leader is not None
    assert cluster.manager(1).damage.reports() == []


def test_a_wrong_index_is_repaired_without_a_report_to_the_controller(rolled: Make) -> None:
    cluster = rolled()
    log = cluster.log(2)
    path = log.segments[1].path.replace(".log", ".timeindex")
    before = cluster.machines[2].disk.open(path).pread(100, 0)
    log.segments[1].close()
    cluster.machines[2].disk.flip_bit(path, 7)
    cluster.run(4.0)
    assert cluster.machines[2].disk.open(path).pread(100, 0) == before
    assert cluster.manager(2).damage.reports() == []
    assert cluster.partition(2).follower is not None
