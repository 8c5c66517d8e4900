"""Work at the end of a turn of the loop: once, for all that requested it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from node.api.fetch import DurablePosition, FetchingReplica, FetchRequest, PartitionFetch
from node.replicas.follower_replica import SMALL_BYTES
from node.replicas.turn_end import TurnEnd
from node.replicas.waiting_fetch import FollowerIdentity
from replication.common_events import ClockTicked
from replication.partition.leader import PartitionLeader
from replication.partition.leader_events import Appended, LeaderEvent, Session
from replication.partition.replica_lifecycle import ReplicaState
from storage.append_info import Origin
from storage.log.log import Log
from storage.recovery.loaded import Damage
from tests.node.wires import CALLER, TOPIC, Cluster, batch
from tests.record_values import collected
from tidelog.errors import LeadershipLost, NotLeaderOrFollower, RequestTimedOut, TidelogError
from tidelog.types import NO_LEADER_EPOCH, Acks, Isolation, LeaderEpoch, Millis, NodeId, Offset


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(partitions=2)
    for index in range(2):
        cluster.set(index, leader=1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[LeaderEvent]:
    """The events of all leaders."""
    seen: list[LeaderEvent] = []
    handle = PartitionLeader.handle

    def noting(self: PartitionLeader, event: LeaderEvent) -> object:
        seen.append(event)
        return handle(self, event)

    monkeypatch.setattr(PartitionLeader, "handle", noting)
    return seen


class Outcomes(list[TidelogError | None]):
    def __call__(self, _info: object, error: TidelogError | None) -> None:
        self.append(error)


def append(cluster: Cluster, outcomes: Outcomes, *, index: int = 0, acks: Acks = Acks.ALL, value: bytes = b"a") -> None:
    leader = cluster.partition(1, index).leading_in(NO_LEADER_EPOCH)
    leader.produce(batch(value), origin=Origin.CLIENT, acks=acks, deadline=Millis(1 << 60), done=outcomes)


def appended(events: list[LeaderEvent]) -> list[int]:
    return [event.log_end for event in events if isinstance(event, Appended)]


def test_the_appends_of_a_turn_are_completed_together(cluster: Cluster, events: list[LeaderEvent]) -> None:
    outcomes = Outcomes()
    for index in (0, 1, 0, 0):
        append(cluster, outcomes, index=index)
    assert cluster.log(1).log_end_offset == 3, "each entry is appended at once"
    assert (appended(events), outcomes) == ([], [])
    cluster.run(0)
    assert appended(events) == [3, 1], "once for each replica"
    cluster.run(1)
    assert outcomes == [None] * 4


def test_a_requested_position_includes_the_appends_of_the_turn(cluster: Cluster, events: list[LeaderEvent]) -> None:
    append(cluster, Outcomes())
    leader = cluster.partition(1).leading_in(NO_LEADER_EPOCH)
    assert leader.epoch_end(leader.core.leader_epoch).end_offset == 1
    assert appended(events) == [1]
    cluster.run(0)
    assert appended(events) == [1], "the end of the turn finds nothing more"


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])
def test_a_directory_that_fails_in_the_turn_fails_the_waiting_appends(cluster: Cluster, acks: Acks) -> None:
    outcomes = Outcomes()
    append(cluster, outcomes, acks=acks)
    cluster.directory(1).fail("appending", OSError("broken"))
    assert [type(outcome) for outcome in outcomes] == [LeadershipLost]
    cluster.run(1)
    assert len(outcomes) == 1, "answered once"


def test_a_leadership_that_ends_in_the_turn_answers_its_entries(cluster: Cluster) -> None:
    waits, ignored = Outcomes(), Outcomes()
    append(cluster, waits)
    append(cluster, ignored, acks=Acks.NONE)
    cluster.set(leader=2)
    cluster.run(1)
    assert ([type(outcome) for outcome in waits], ignored) == ([LeadershipLost], [None])


def test_a_defect_does_not_keep_the_others_waiting() -> None:
    soon: list[Callable[[], None]] = []
    done: list[str] = []

    def breaks() -> None:
        raise AssertionError("a defect")

    turn = TurnEnd(soon.append)
    for work in (lambda: done.append("a"), breaks, lambda: done.append("b")):
        turn.add(work)
    assert len(soon) == 1, "one callback for all"
    with pytest.raises(AssertionError, match="a defect"):
        soon.pop()()
    soon.pop()()
    assert (done, soon) == (["a", "b"], [])


def let_no_flush_begin(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    """From now on a flush of this log fails when it begins, on the loop: no file can be opened."""

    def begin_flush(**_: bool) -> None:
        raise log.directory.fail("flushing", OSError(errno.EMFILE, "too many open files"))

    monkeypatch.setattr(log, "begin_flush", begin_flush)


def fetch_of(cluster: Cluster, leader_epoch: LeaderEpoch, *, refused: bool = False) -> FetchRequest:
    """A fetch of node 2."""
    start = Offset(0)
    item = PartitionFetch(TOPIC.bytes, 0, start, leader_epoch, NO_LEADER_EPOCH, start, start, 0, refused)
    node = FetchingReplica(NodeId(2), cluster.machines[2].incarnation)
    return FetchRequest(node, 500, 1, Isolation.READ_UNCOMMITTED, [item], [])


def report_of(cluster: Cluster, leader_epoch: LeaderEpoch) -> tuple[FollowerIdentity, DurablePosition, Millis]:
    """A report of node 2."""
    identity = FollowerIdentity(NodeId(2), cluster.machines[2].incarnation, Session(99))
    return identity, DurablePosition(TOPIC.bytes, 0, leader_epoch, Offset(0), Offset(0)), Millis(0)


@pytest.mark.parametrize("then", ["report", "fetch", "review", "tick", "nothing"])
def test_a_flush_that_cannot_begin_ends_the_leadership_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    outcomes, replica = Outcomes(), cluster.partition(1)
    leader, epoch = replica.leader, replica.leader_epoch
    let_no_flush_begin(monkeypatch, cluster.log(1))
    append(cluster, outcomes)
    match then:
        case "report":
            replica.follower_durable(*report_of(cluster, epoch))
        case "fetch":
            cluster.sessions(1).open(CALLER).take(fetch_of(cluster, epoch))
        case "review":
            leader.review()
        case "tick":
            leader.tick()
    cluster.run(1)
    assert [type(outcome) for outcome in outcomes] == [LeadershipLost]
    assert replica.state is ReplicaState.OFFLINE


def test_a_tick_checks_the_in_sync_set_only_at_a_deadline(cluster: Cluster, events: list[LeaderEvent]) -> None:
    """A busy leader is ticked every 50 ms. The set is checked at reviews, 16 times per lag time: what a partition costs
    does not grow with the ticks between its batches."""
    outcomes, leader = Outcomes(), cluster.partition(1).leading_in(NO_LEADER_EPOCH)

    def append_with(deadline: int) -> None:
        leader.produce(batch(b"a"), origin=Origin.CLIENT, acks=Acks.ALL, deadline=Millis(deadline), done=outcomes)
        leader.settle()
        events.clear()

    def ticks() -> int:
        leader.tick()
        return sum(isinstance(event, ClockTicked) for event in events)

    append_with(1 << 60)
    assert ticks() == 0
    append_with(0)
    assert ticks() == 1
    assert [type(outcome) for outcome in outcomes] == [RequestTimedOut]
    events.clear()
    leader.review()
    assert sum(isinstance(event, ClockTicked) for event in events) == 1


@pytest.mark.parametrize("leader", [1, 2])
def test_a_flush_that_cannot_begin_does_not_disturb_a_change_of_the_leader(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, leader: int
) -> None:
    outcomes, replica = Outcomes(), cluster.partition(1)
    let_no_flush_begin(monkeypatch, cluster.log(1))
    append(cluster, outcomes)
    cluster.set(publish=False, leader=leader)
    cluster.manager(1).on_image(cluster.image)
    cluster.run(1)
    assert [type(outcome) for outcome in outcomes] == [LeadershipLost]
    assert replica.state is ReplicaState.OFFLINE


def test_a_follower_whose_flush_cannot_begin_fetches_no_more(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.run(1)
    follower, fetcher = cluster.partition(2).follower, cluster.manager(2).fetchers.of(NodeId(1))
    let_no_flush_begin(monkeypatch, cluster.log(2))
    append(cluster, Outcomes(), value=bytes(2 * SMALL_BYTES))  # it does not wait for the fsync before the next fetch
    wanted: list[object] = []
    monkeypatch.setattr(follower, "_want_fetch", wanted.append)
    cluster.until(lambda: cluster.partition(2).state is ReplicaState.OFFLINE)
    assert wanted == []
    assert follower not in fetcher._wanted


def test_a_replica_of_an_old_format_whose_epoch_cannot_be_flushed_does_not_lead(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch must be durable before the first append."""
    cluster.set(leader=2)
    cluster.run(1)
    log = cluster.log(1)
    log.reconfigure(replace(log.config, magic=1))
    let_no_flush_begin(monkeypatch, log)
    cluster.set(publish=False, leader=1)
    cluster.partition(1).lead(cluster.state(), 1, {})
    assert cluster.partition(1).state is ReplicaState.OFFLINE
    assert cluster.partition(1).role is None


def test_a_follower_that_finds_damage_of_its_leader_gets_the_reason(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the own log may end the leadership while the fetch is being taken."""
    damage = Damage("/data/t-0/00000000000000000000.log", 0, Offset(0), Offset(1), "for the test")

    def check_own(_log: Log, _offset: Offset, _max_bytes: int, on_damage: Callable[[Damage], None]) -> None:
        on_damage(damage)

    monkeypatch.setattr("node.replicas.leader_replica.check_own", check_own)
    session = cluster.sessions(1).open(CALLER)
    session.take(fetch_of(cluster, cluster.partition(1).leader_epoch, refused=True))
    assert cluster.partition(1).role is None
    [answer] = collected(session, 1)
    assert isinstance(answer.error, NotLeaderOrFollower)
    assert session.idle
