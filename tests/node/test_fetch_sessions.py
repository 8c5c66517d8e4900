"""The fetches of one follower from one leader, many partitions on one stream: what has nothing new is not mentioned."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from node.api.fetch import FetchingReplica, FetchRequest
from node.replicas.follower_replica import FollowerReplica
from node.replicas.leader_replica import LeaderReplica
from node.replicas.replica_fetcher import ReplicaFetcher
from node.replication_settings import ReplicationConfig
from node.requests.fetch_session import FetchSession
from replication.partition.follower_states import FollowerState
from storage.append_info import Origin
from tests.fakes.log_start import delete_records
from tests.node.wires import CALLER, Cluster, as_value, batch, fetch_request
from tests.record_values import collected
from tidelog.errors import ClusterAuthorizationFailed, InvalidRequest
from tidelog.types import NO_LEADER_EPOCH, Acks, Millis, NodeId, Offset

MANY = 40


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(2, partitions=MANY, segment_index_bytes="1024")
    for index in range(MANY):
        cluster.set(index, leader=NodeId(1), publish=False)
    cluster.publish()
    cluster.run(1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


@pytest.fixture
def mentioned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which partitions the follower's requests are about, one number for each mention."""
    numbers: list[int] = []
    make = ReplicaFetcher._next_request

    def recorded(fetcher: ReplicaFetcher) -> FetchRequest:
        request = make(fetcher)
        numbers.extend(item.partition for item in request.partitions)
        numbers.extend(item.partition for item in request.durable_positions)
        return request

    monkeypatch.setattr(ReplicaFetcher, "_next_request", recorded)
    return numbers


def produce_everywhere(cluster: Cluster) -> None:
    """One batch for each partition, all in one turn of the loop."""
    for index in range(MANY):
        leader = cluster.partition(1, index).leading_in(NO_LEADER_EPOCH)
        leader.produce(batch(b"x"), origin=Origin.CLIENT, acks=Acks.LEADER, deadline=Millis(1 << 60), done=ignore)


def ignore(*outcome: object) -> None:
    """The outcome does not matter."""


def test_idle_partitions_are_not_mentioned_and_cost_no_ticks(
    cluster: Cluster, mentioned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticked: list[object] = []
    for role in (LeaderReplica, FollowerReplica):
        monkeypatch.setattr(role, "tick", ticked.append)
        monkeypatch.setattr(role, "review", ticked.append)
    sent = cluster.wires.messages
    cluster.run(30)
    assert mentioned == []
    assert ticked == []
    wait_s = ReplicationConfig().fetch_wait_ms / 1000
    assert cluster.wires.messages - sent <= 30 / wait_s, "a sign of life, no more often than a fetch may wait"
    assert not cluster.manager(2).fetchers.of(NodeId(1))._failures, "which keeps the stream from being given up"


def test_one_busy_partition_wakes_no_other(cluster: Cluster, mentioned: list[int]) -> None:
    cluster.produce(1, batch(b"a"), index=7)
    cluster.run(1)
    assert set(mentioned) == {7}
    assert cluster.watermark(2, 7) == 1, "the follower hears of the watermark without records"
    assert mentioned.count(7) == 1, "the next fetch, which says what is held already"


def test_many_busy_partitions_share_messages(cluster: Cluster) -> None:
    produce_everywhere(cluster)
    sent = cluster.wires.messages
    cluster.run(1)
    assert all(cluster.watermark(2, index) == 1 for index in range(MANY))
    assert cluster.wires.messages - sent < MANY // 2


def test_a_waiting_fetch_gets_a_moved_log_start(cluster: Cluster, mentioned: list[int]) -> None:
    cluster.produce(1, batch(b"a"), index=3)
    cluster.run(1)
    mentioned.clear()
    delete_records(cluster.log(1, 3), Offset(1))
    cluster.partition(1, 3).log_start_moved()
    cluster.until(lambda: cluster.log(2, 3).log_start_offset == 1)
    assert mentioned == []


def test_a_member_removed_while_its_fetch_waited_counts_again(cluster: Cluster) -> None:
    """The controller took it out because it was silent; it has everything, and nothing new will ever come."""
    cluster.produce(1, batch(b"a"), index=5)
    cluster.run(1)
    assert cluster.partition(2, 5).follower.core.state is FollowerState.OPEN
    cluster.set(5, isr=(NodeId(1),))
    cluster.until(lambda: cluster.state(5).isr == (1, 2), what="it is proposed again")


def test_a_new_stream_begins_with_the_watermark(cluster: Cluster) -> None:
    """The follower's stream breaks before the follower knows that its last records are committed."""
    cluster.machines[1].executor.holding = True
    produce_everywhere(cluster)
    cluster.run(0.01)
    assert all(cluster.log(2, index).log_end_offset == 1 for index in range(MANY))
    cluster.wires.break_streams()
    cluster.machines[1].executor.release()
    cluster.until(lambda: all(cluster.watermark(2, index) == 1 for index in range(MANY)), within=2)


def of_follower(cluster: Cluster, offset: int, *, fetch_id: int = 2**63 - 1) -> FetchRequest:
    """A forged fetch of node 2."""
    epoch = int(cluster.partition(1).leader_epoch)
    last_epoch = epoch if offset else int(NO_LEADER_EPOCH)
    request = fetch_request(offset, epoch=epoch, last_epoch=last_epoch, fetch_id=fetch_id, max_wait_ms=500)
    request.partitions[0].durable_offset = offset
    request.replica.node_id, request.replica.incarnation = 2, cluster.machines[2].incarnation.bytes
    return as_value(request)


def refusals(session: FetchSession) -> list[str]:
    return ["" if answer.error is None else answer.error.kafka_name or "" for answer in collected(session)]


def test_a_later_stream_of_a_follower_ends_the_earlier_one(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.run(0.5)
    sessions = cluster.sessions(1)
    early, late = sessions.open(CALLER), sessions.open(CALLER)
    early.take(of_follower(cluster, 1))
    late.take(of_follower(cluster, 1, fetch_id=1))
    assert early.closed
    with pytest.raises(InvalidRequest, match="this stream of node 2 is outdated"):
        early.take(of_follower(cluster, 0))
    assert early.idle
    positions = cluster.partition(1).leader.core.in_sync.positions(NodeId(2))
    assert (positions.session, positions.log_end) == (late.number, 1)


def test_a_stream_that_names_its_follower_after_a_later_one_did_ends(cluster: Cluster) -> None:
    sessions = cluster.sessions(1)
    early, late = sessions.open(CALLER), sessions.open(CALLER)
    late.take(of_follower(cluster, 0))
    sessions.close(late)
    with pytest.raises(InvalidRequest, match="this stream of node 2 is outdated"):
        early.take(of_follower(cluster, 0))


def test_a_client_that_calls_itself_a_follower_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    """The fetch is the right one of node 2, on a listener that is for clients."""
    cluster.produce(1, batch(b"a"))
    cluster.run(0.5)
    stream = cluster.manager(2).fetchers.of(NodeId(1))._stream
    session = cluster.sessions(1).open(replace(CALLER, for_nodes=False))
    with pytest.raises(ClusterAuthorizationFailed, match=r"Data\.FetchStream of a replica is for nodes only"):
        session.take(of_follower(cluster, 1))
    assert session.idle
    cluster.run(1)
    assert cluster.manager(2).fetchers.of(NodeId(1))._stream is stream


def test_an_unregistered_process_ends_no_stream(cluster: Cluster) -> None:
    session = cluster.sessions(1).open(CALLER)
    stream = cluster.manager(2).fetchers.of(NodeId(1))._stream
    other = FetchingReplica(NodeId(2), cluster.machines[1].incarnation)
    session.take(of_follower(cluster, 0)._replace(replica=other))
    assert refusals(session) == ["STALE_BROKER_EPOCH"]
    cluster.run(1)
    assert cluster.manager(2).fetchers.of(NodeId(1))._stream is stream


def test_a_forged_fetch_costs_its_follower_one_reconnect(cluster: Cluster) -> None:
    """The forged stream stays open and silent."""
    cluster.produce(1, batch(b"a"))
    cluster.run(0.5)
    stream = cluster.manager(2).fetchers.of(NodeId(1))._stream
    forged = cluster.sessions(1).open(CALLER)
    forged.take(of_follower(cluster, 0))
    cluster.produce(1, batch(b"b"))
    cluster.until(lambda: cluster.watermark(1) == cluster.watermark(2) == 2, within=1)
    assert forged.closed
    assert cluster.manager(2).fetchers.of(NodeId(1))._stream is not stream


def test_a_fetch_of_before_a_leadership_began_again_in_its_epoch_is_refused(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.run(0.5)
    manager, partition = cluster.manager(1), cluster.partition(1)
    session = cluster.sessions(1).open(CALLER)
    session.take(of_follower(cluster, 0))
    partition.lead(cluster.state(), 1, manager._views(cluster.state()))
    assert refusals(session) == ["INVALID_REQUEST"]
    cluster.produce(1, batch(b"b"))
    cluster.run(1)
    assert cluster.watermark(2) == 2, "the follower has fetched again"


def test_a_leader_that_learns_late_of_its_partition_is_logged_only_if_it_lasts(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Each new partition begins with this race; a leader that never learns of it is a problem."""
    caplog.set_level(logging.INFO, "node.partition")
    for index in range(MANY):
        cluster.set(index, leader=NodeId(1), publish=False)
    cluster.publish(2)
    cluster.run(3)
    assert "rejected a fetch" not in caplog.text
    cluster.run(4)
    assert "rejected a fetch" in caplog.text
    cluster.publish(1)
    cluster.run(2)
    caplog.clear()
    cluster.produce(1, batch(b"a"), index=7)
    cluster.run(1)
    assert cluster.watermark(2, 7) == 1
    assert "rejected a fetch" not in caplog.text
