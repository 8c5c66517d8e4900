"""The metadata quorum's rules with messages that no correct node sends: no event is a defect, no epoch advances by more
than the documented jump, and no request alone makes a leader."""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from replication.common_events import ClockTicked
from replication.raft.epoch_limits import EPOCH_JUMP, EPOCH_LAST, EPOCH_MAX
from replication.raft.log_view import MetadataLogView, SnapshotId
from replication.raft.quorum import Quorum
from replication.raft.quorum_events import (
    Answer,
    BeginEpoch,
    BelowLogStart,
    Called,
    ConfirmLeader,
    EndEpoch,
    Event,
    Fetch,
    FetchAnswered,
    LeaderReported,
    LogsDiverge,
    NewRecords,
    Persist,
    Requested,
    ResignRequested,
    SnapshotRequested,
    VoteAnswer,
    VoteAnswered,
    VoteRequest,
)
from replication.raft.roles import QuorumState, Role
from replication.raft.voters import ReplicaKey
from tests.replication.quorum_cluster import TIMES, QuorumCluster, key, voters
from tidelog.errors import TidelogError
from tidelog.types import NO_NODE, DirectoryId, EpochEnd, LeaderEpoch, Millis, NodeId, Offset

EPOCHS = st.sampled_from((-(2**31), -1, 0, 1, 2, 3, 999, 1_001, EPOCH_LAST - 1, EPOCH_LAST, EPOCH_LAST + 1, EPOCH_MAX))
OFFSETS = st.sampled_from((-(2**63), -1, 0, 1, 2, 5, 2**31, 2**63 - 1))
NODES = st.sampled_from((-(2**31), -1, 0, 1, 2, 3, 2**31 - 1))
KEYS = st.builds(
    lambda node, known: key(node) if known and 0 <= node < 4 else ReplicaKey(NodeId(node), DirectoryId(UUID(int=7))),
    NODES,
    st.booleans(),
)
REQUESTS = st.builds(
    lambda *fields: VoteRequest(*fields),  # noqa: PLW0108 - as a strategy takes it
    EPOCHS,
    KEYS,
    st.one_of(KEYS, st.just(key(0))),
    EPOCHS,
    OFFSETS,
    st.booleans(),
)
RESULTS = st.one_of(
    st.builds(NewRecords, OFFSETS),
    st.builds(LogsDiverge, st.builds(EpochEnd, EPOCHS, OFFSETS)),
    st.builds(BelowLogStart, st.builds(SnapshotId, OFFSETS, EPOCHS)),
)
DIVERGED = EpochEnd(LeaderEpoch(1), Offset(0))
AT = st.just(Millis(10_000))
LATE = Millis(10_001)
EVENTS = st.one_of(
    st.builds(Requested, st.just(1), AT, REQUESTS),
    st.builds(VoteAnswered, AT, REQUESTS, st.builds(VoteAnswer, EPOCHS, NODES, st.booleans())),
    st.builds(Requested, st.just(1), AT, st.builds(BeginEpoch, EPOCHS, NODES)),
    st.builds(Requested, st.just(1), AT, st.builds(EndEpoch, EPOCHS, NODES, st.lists(KEYS, max_size=3).map(tuple))),
    st.builds(Requested, st.just(1), AT, st.builds(Fetch, KEYS, EPOCHS, OFFSETS, EPOCHS, OFFSETS)),
    st.builds(SnapshotRequested, AT, KEYS, EPOCHS),
    st.builds(FetchAnswered, AT, st.sampled_from((Millis(9_000), Millis(10_001))), NODES, EPOCHS, OFFSETS, RESULTS),
    st.builds(LeaderReported, AT, EPOCHS, NODES, NODES),
    st.builds(ClockTicked, st.sampled_from((Millis(10_000), Millis(12_500), Millis(20_000)))),
    st.builds(Called, AT),
    st.builds(ResignRequested, AT),
)


def quorum(epoch: int = 1, *, nodes: int = 3, me: ReplicaKey | None = None, state: QuorumState | None = None) -> Quorum:
    """Node 0 of so many voters, or `me`, its log of five records of epoch 1."""
    log = MetadataLogView(Offset(0), Offset(5), Offset(5), Offset(5), (), voters(*range(nodes)))
    state = state or QuorumState(LeaderEpoch(epoch))
    return Quorum(me or key(0), state, log, times=TIMES, rng=random.Random(1), at=Millis(10_000))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from((0, 1, EPOCH_LAST - 1, EPOCH_LAST)), st.sampled_from((1, 3)), st.lists(EVENTS, max_size=20))
@example(
    0,
    1,
    [
        FetchAnswered(Millis(10_000), Millis(10_000), NO_NODE, LeaderEpoch(1), Offset(0), NewRecords(Offset(0))),
        Requested(1, Millis(10_000), EndEpoch(LeaderEpoch(1), NO_NODE, ())),
    ],
)
def test_no_event_is_a_defect_and_none_moves_the_epoch_beyond_the_bound(
    epoch: int, nodes: int, events: list[Event]
) -> None:
    core = quorum(epoch, nodes=nodes)
    for event in events:
        before = core.epoch
        effects = core.handle(event)
        assert before <= core.epoch <= min(before + EPOCH_JUMP, EPOCH_LAST)
        answers = [effect for effect in effects if isinstance(effect, Answer)]
        assert len(answers) == hasattr(event, "request_id")
        for effect in effects:
            if isinstance(effect, Persist):
                assert 0 <= effect.state.leader_epoch <= EPOCH_LAST


@pytest.mark.parametrize("epoch", [2, EPOCH_LAST, EPOCH_MAX])
@pytest.mark.parametrize("end", [False, True])
def test_a_request_that_names_a_leader_is_queried_and_changes_nothing(epoch: int, end: bool) -> None:
    core = quorum()
    event: Event = Requested(1, Millis(10_000), BeginEpoch(LeaderEpoch(epoch), NodeId(2)))
    if end:
        event = Requested(1, Millis(10_000), EndEpoch(LeaderEpoch(epoch), NodeId(2), (key(0),)))
    effects = core.handle(event)
    assert (core.epoch, core.leader_id, core.role) == (1, -1, Role.UNATTACHED)
    assert [effect for effect in effects if isinstance(effect, ConfirmLeader)] == (
        [ConfirmLeader(NodeId(2))] if epoch <= EPOCH_LAST else []
    )


@pytest.mark.parametrize("role", [Role.UNATTACHED, Role.VOTED, Role.PROSPECTIVE, Role.RESIGNED, Role.OBSERVER])
@pytest.mark.parametrize("leader", [NO_NODE, NodeId(-(2**31)), None], ids=["unknown", "negative", "this one"])
@pytest.mark.parametrize(
    "event",
    [
        lambda core, leader: Requested(1, Millis(10_001), EndEpoch(core.epoch, leader, (core.me,))),
        lambda core, leader: FetchAnswered(LATE, LATE, leader, core.epoch, Offset(5), NewRecords(Offset(5))),
        lambda core, leader: FetchAnswered(LATE, LATE, leader, core.epoch, Offset(5), LogsDiverge(DIVERGED)),
        lambda core, leader: LeaderReported(Millis(10_001), core.epoch, leader, source=leader),
    ],
    ids=["it ends its epoch", "it has records", "its log diverges", "it says that it leads"],
)
def test_a_leader_that_is_no_node_or_this_one_is_ignored(
    event: Callable[[Quorum, NodeId], Event], leader: NodeId | None, role: Role
) -> None:
    """-1 means an unknown leader: it neither leads, nor resigns, nor has records."""
    core = in_role(role)
    before = (core.role, core.epoch, core.leader_id, core.due)
    effects = core.handle(event(core, core.me.node_id if leader is None else leader))
    assert [effect for effect in effects if not isinstance(effect, Answer)] == []
    assert (core.role, core.epoch, core.leader_id, core.due) == before


def in_role(role: Role) -> Quorum:
    """Node 0, of three voters, in that role, where none leads."""
    core = quorum(state=QuorumState(LeaderEpoch(1), NodeId(0), NodeId(0), key(0).directory_id))
    if role is not Role.RESIGNED:
        core = quorum(me=key(3) if role is Role.OBSERVER else key(0))
    if role is Role.VOTED:
        vote = VoteRequest(LeaderEpoch(2), key(1), key(0), LeaderEpoch(1), Offset(5), pre_vote=False)
        core.handle(Requested(1, Millis(10_000), vote))
    if role is Role.PROSPECTIVE:
        core.handle(Called(Millis(10_000)))
    assert core.role is role
    return core


def test_a_leader_is_accepted_when_it_names_itself() -> None:
    core = quorum()
    told_by_another = core.handle(LeaderReported(Millis(10_000), LeaderEpoch(2), NodeId(2), source=NodeId(1)))
    assert (core.epoch, core.leader_id) == (2, -1)
    assert ConfirmLeader(NodeId(2)) in told_by_another
    core.handle(LeaderReported(Millis(10_000), LeaderEpoch(2), NodeId(2), source=NodeId(2)))
    assert (core.epoch, core.leader_id, core.role) == (2, 2, Role.FOLLOWER)


def test_a_vote_of_a_far_epoch_moves_one_jump_and_is_given_once_the_voter_is_there() -> None:
    core = quorum()
    request = VoteRequest(LeaderEpoch(2_500), key(1), key(0), LeaderEpoch(1), Offset(9), pre_vote=False)
    granted = []
    for _ in range(3):
        (answer,) = [
            each.answer for each in core.handle(Requested(1, Millis(10_000), request)) if isinstance(each, Answer)
        ]
        assert isinstance(answer, VoteAnswer)
        granted.append((core.epoch, answer.granted))
    assert granted == [(1_001, False), (2_001, False), (2_500, True)]


def test_a_node_that_was_away_for_many_elections_catches_up() -> None:
    """Five thousand epochs passed while it was off: it follows within some seconds, and its vote counts again."""
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    away, other = (node for node in range(3) if node != leader)
    cluster.kill(away)
    for node in (leader, other):
        cluster.kill(node)
        cluster.replicas[node].state = QuorumState(LeaderEpoch(5_000))
        cluster.start(node)
    assert cluster.core(cluster.wait_leader()).epoch > 5_000
    cluster.start(away)
    cluster.run_until(lambda: cluster.role(away) is Role.FOLLOWER, ms=5_000)
    cluster.kill(next(node for node in (leader, other) if node == cluster.active()))
    cluster.wait_leader()


def test_a_node_without_further_epochs_is_no_candidate_and_reports_it() -> None:
    core = quorum(EPOCH_LAST, nodes=1)
    effects = core.handle(Called(Millis(10_000)))
    assert core.role is Role.UNATTACHED
    assert "tidelog quorum reset-epoch" in str(effects)


def test_two_leaders_of_one_epoch_are_reported() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    another = NodeId((leader + 1) % 3)
    cluster.give(leader, LeaderReported(Millis(cluster.now), LeaderEpoch(1), another, source=another))
    assert cluster.core(leader).leads
    assert "claims to lead this epoch" in cluster.reports[-1]


def test_an_event_that_fails_leaves_the_rules_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    core = cluster.core(leader)
    before = (core.epoch, core.role, core.leader_id, core.voted)

    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(core, "_persist", broken)
    stands = VoteRequest(LeaderEpoch(7), key((leader + 1) % 3), key(leader), LeaderEpoch(7), Offset(99), pre_vote=False)
    with pytest.raises(ZeroDivisionError):
        core.handle(Requested(1, Millis(cluster.now), stands))
    assert (core.epoch, core.role, core.leader_id, core.voted) == before
    monkeypatch.undo()
    assert core.active
    cluster.append(leader, "goes on")
    cluster.run_until(lambda: "goes on" in cluster.values())


def test_a_claimed_position_beyond_the_leaders_log_end_does_not_count() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    core = cluster.core(leader)
    cluster.slow_disks = set(range(3))
    cluster.append(leader, "not replicated")
    mark = cluster.replicas[leader].high_watermark
    for number, (offset, durable_offset) in enumerate(((10**9, 10**9), (2**63 - 1, 2**63 - 1))):
        claim = Fetch(key((leader + 1) % 3), core.epoch, Offset(offset), core.epoch, Offset(durable_offset))
        (answer,) = core.handle(Requested(number, Millis(cluster.now), claim))
        assert isinstance(answer, Answer)
        assert isinstance(answer.answer, LogsDiverge)
    assert cluster.replicas[leader].high_watermark == mark
    ahead = Fetch(key((leader + 1) % 3), LeaderEpoch(core.epoch + 1), Offset(1), core.epoch, Offset(1))
    (refused,) = core.handle(Requested(9, Millis(cluster.now), ahead))
    assert isinstance(refused, Answer)
    assert isinstance(refused.answer, TidelogError)


def test_unknown_replicas_cost_a_bounded_amount_of_memory() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    core = cluster.core(leader)
    for number in range(2_000):
        stranger = ReplicaKey(NodeId(number), DirectoryId(UUID(int=10**6 + number)))
        core.handle(
            Requested(number, Millis(cluster.now), Fetch(stranger, core.epoch, Offset(1), core.epoch, Offset(1)))
        )
        core.handle(SnapshotRequested(Millis(cluster.now), stranger, core.epoch))
    assert core._progress is not None
    assert len(core._progress._last_contact) <= 1_000 + 3
    cluster.append(leader, "the voters count all the same")
    cluster.run_until(lambda: cluster.values()[-1] == "the voters count all the same")
