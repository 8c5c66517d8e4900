"""A partition's leader and the controller with impossible messages of one node: the messages are ignored, nothing
breaks."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replication.common_events import ClockTicked
from replication.controller.events import Registered
from replication.controller.node_state import NodeCause
from replication.partition.leader_events import (
    Appended,
    CommitUpTo,
    FetchAgreed,
    FollowerDurable,
    FollowerFetched,
    LeaderEvent,
    Session,
)
from tests.replication.controlled import Controlled
from tests.replication.partition_stories import EPOCH, Leader, run_number
from tidelog.errors import InvalidRequest, StaleNodeEpoch
from tidelog.types import Incarnation, LeaderEpoch, Millis, NodeId, Offset

OFFSETS = st.sampled_from((-(2**63), -1, 0, 50, 60, 99, 100, 101, 2**31, 2**63 - 1))
EPOCHS = st.sampled_from((-(2**31), -1, 0, 1, 3, 4, 5, 2**31 - 1))
NODES = st.sampled_from((-1, 1, 2, 3, 9, 2**31 - 1)).map(NodeId)
LIVES = st.sampled_from((run_number(2), run_number(2, 2), run_number(3), Incarnation(UUID(int=0))))
SESSIONS = st.sampled_from((Session(1), Session(2)))
AT = st.just(Millis(10))
EVENTS = st.one_of(
    st.builds(FollowerFetched, NODES, LIVES, SESSIONS, EPOCHS, OFFSETS, EPOCHS, OFFSETS, OFFSETS, AT),
    st.builds(FollowerDurable, NODES, LIVES, SESSIONS, EPOCHS, OFFSETS, OFFSETS, AT),
    st.builds(ClockTicked, st.sampled_from((Millis(10), Millis(5_000)))),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(EVENTS, max_size=25))
def test_whatever_followers_claim_the_watermark_stays_within_the_leaders_durable_log(
    events: list[LeaderEvent],
) -> None:
    leader = Leader(log_end=100, durable_offset=90)
    core = leader.core
    mark = core.high_watermark
    for event in events:
        effects = core.handle(event)
        assert mark <= core.high_watermark <= 90
        mark = core.high_watermark
        assert all(effect.offset <= 90 for effect in effects if isinstance(effect, CommitUpTo))
        if isinstance(event, FollowerFetched) and any(isinstance(effect, FetchAgreed) for effect in effects):
            assert event.next_offset <= 100
            assert event.incarnation == run_number(event.replica)
            assert event.leader_epoch == EPOCH


def test_a_position_beyond_the_log_end_is_truncated_and_not_counted() -> None:
    leader = Leader(isr=(1, 2), min_insync=2, log_end=100, durable_offset=100, watermark=80)
    for claimed in (101, 2**63 - 1):
        fetch = FollowerFetched(
            NodeId(2),
            run_number(2),
            Session(1),
            EPOCH,
            Offset(claimed),
            LeaderEpoch(3),
            Offset(claimed),
            Offset(0),
            Millis(0),
        )
        assert not any(isinstance(effect, FetchAgreed | CommitUpTo) for effect in leader.core.handle(fetch))
        durable_offset = FollowerDurable(
            NodeId(2), run_number(2), Session(1), EPOCH, Offset(claimed), Offset(0), Millis(0)
        )
        assert leader.core.handle(durable_offset) == []
    assert leader.core.high_watermark == 80
    leader.core.handle(Appended(Offset(101), Offset(101)))
    assert leader.core.high_watermark == 80


# --- the controller -----------------------------------------------------------------------------------------------


def test_metadata_of_the_future_are_not_accepted() -> None:
    controlled = Controlled()
    controlled.start(0, 1, 2)
    beyond = controlled.end + 1
    assert isinstance(controlled.beat(1, offset=beyond), InvalidRequest)
    assert isinstance(controlled.beat(1, offset=2**63 - 1), InvalidRequest)
    controlled.pass_time(3_000, 0, 2)
    assert controlled.node(1).fenced, "what was refused has not kept its session"


def test_the_heartbeat_of_an_earlier_registration_keeps_no_session() -> None:
    controlled = Controlled()
    controlled.start(0, 1, 2)
    old = controlled.node(1).node_epoch
    controlled.kill(1, alive=(0, 2))
    controlled.start(1, run_number=2)
    assert isinstance(controlled.beat(1, epoch=old), StaleNodeEpoch)


def test_a_registration_number_belongs_to_one_incarnation() -> None:
    """So a heartbeat that names the number names the incarnation too."""
    controlled = Controlled()
    controlled.start(0, 1, 2)
    first = controlled.node(1)
    assert controlled.register(1) == Registered(first.node_epoch), "its own process asks again"
    controlled.kill(1, alive=(0, 2))
    controlled.start(1, run_number=2)
    second = controlled.node(1)
    assert second.incarnation != first.incarnation
    assert second.node_epoch > first.node_epoch


def test_an_event_that_fails_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    controlled = Controlled()
    controlled.start(0, 1, 2)
    core = controlled.controller
    before = core.image

    def broken(*_: object) -> None:
        core._fence(core.image.nodes[NodeId(1)], NodeCause.SESSION_ENDED)
        raise ZeroDivisionError

    monkeypatch.setattr(core, "_drain", broken)
    with pytest.raises(ZeroDivisionError):
        controlled.beat(1, drain=True)
    assert core.image is before
