"""When each produce request is answered, and the errors of those that cannot succeed."""

from __future__ import annotations

import pytest

from replication.partition.leader_events import LeadershipEnded
from tests.replication.partition_stories import Leader, acknowledged, failed
from tidelog.errors import LeadershipLost, NotEnoughReplicas, NotEnoughReplicasAfterAppend, RequestTimedOut
from tidelog.types import Acks


def test_acks_all_waits_for_the_watermark() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(120)
    leader.fetch(2, 100)
    first, effects = leader.await_ack(110)
    second, _ = leader.await_ack(120)
    assert acknowledged(effects) == []
    assert acknowledged(leader.fetch(2, 120, durable_offset=119)) == [first]
    assert acknowledged(leader.durable_reported(2, 120)) == [second]
    assert leader.core.waiting == 0


def test_acks_one_waits_until_it_is_durable_on_the_leader() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(120, durable_offset=100)
    ticket, effects = leader.await_ack(120, acks=Acks.LEADER)
    assert acknowledged(effects) == []
    assert acknowledged(leader.holds(119)) == []
    assert acknowledged(leader.holds(120)) == [ticket]


def test_acks_one_of_durable_records_and_acks_none_are_done_at_once() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(120)
    ticket, effects = leader.await_ack(120, acks=Acks.LEADER)
    assert acknowledged(effects) == [ticket]
    leader.append(130, durable_offset=120)
    ticket, effects = leader.await_ack(130, acks=Acks.NONE)
    assert acknowledged(effects) == [ticket]


def test_a_duplicate_waits_as_its_first_copy_would() -> None:
    """Its end offset lies below the log end: it is done when the watermark passes that, not the log end."""
    leader = Leader(isr=(1, 2))
    leader.append(120)
    leader.fetch(2, 100)
    last, _ = leader.await_ack(120)
    duplicate, effects = leader.await_ack(105)
    assert acknowledged(effects) == []
    assert acknowledged(leader.fetch(2, 110)) == [duplicate]
    assert acknowledged(leader.fetch(2, 120)) == [last]
    again, effects = leader.await_ack(105)
    assert acknowledged(effects) == [again]


def test_too_few_in_sync_replicas_refuse_acks_all_before_the_append() -> None:
    leader = Leader(isr=(1,), min_insync=2)
    with pytest.raises(NotEnoughReplicas) as refusal:
        leader.core.ensure_enough(Acks.ALL)
    assert refusal.value.written is False
    leader.core.ensure_enough(Acks.LEADER)
    leader.core.ensure_enough(Acks.NONE)


def test_too_few_in_sync_replicas_after_the_append_leave_the_outcome_open() -> None:
    leader = Leader(isr=(1, 2), min_insync=2)
    leader.fetch(2, 100)
    leader.append(120, durable_offset=100)
    ticket, _ = leader.await_ack(120)
    mine, _ = leader.await_ack(120, acks=Acks.LEADER)
    errors = failed(leader.metadata_changed(isr=(1,)))
    assert list(errors) == [ticket], "acks=1 asked for nothing of the set"
    assert isinstance(errors[ticket], NotEnoughReplicasAfterAppend)
    assert errors[ticket].written is None
    assert acknowledged(leader.holds(120)) == [mine]


def test_a_deadline_that_passes_leaves_the_outcome_open() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100)
    leader.append(120)
    early, _ = leader.await_ack(120, within=200)
    late, _ = leader.await_ack(110, within=10_000)
    assert failed(leader.later(150)) == {}
    errors = failed(leader.later(100))
    assert list(errors) == [early]
    assert isinstance(errors[early], RequestTimedOut)
    assert errors[early].written is None
    assert acknowledged(leader.fetch(2, 120)) == [late]


def test_a_leadership_that_ends_answers_all_that_waits() -> None:
    """Scenario 11: an ack belongs to the epoch of its append; the high watermark of a later epoch does not confirm
    it."""
    leader = Leader(isr=(1, 2))
    leader.append(120, durable_offset=100)
    ticket, _ = leader.await_ack(120)
    mine, _ = leader.await_ack(120, acks=Acks.LEADER)
    errors = failed(leader.core.handle(LeadershipEnded("node 2 leads in epoch 5")))
    assert sorted(errors) == [ticket, mine]
    assert all(isinstance(error, LeadershipLost) and error.written is None for error in errors.values())
    with pytest.raises(AssertionError, match="has ended"):
        leader.fetch(2, 120)


def test_a_set_as_large_as_the_minimum_takes_records_and_loses_no_waiting_ones() -> None:
    leader = Leader(isr=(1, 2, 3), min_insync=2)
    leader.append(120)
    _, effects = leader.await_ack(120)
    assert not failed([*effects, *leader.metadata_changed(isr=(1, 2))])
    leader.core.ensure_enough(Acks.ALL)
    assert failed(leader.metadata_changed(isr=(1,)))
    with pytest.raises(NotEnoughReplicas):
        leader.core.ensure_enough(Acks.ALL)
