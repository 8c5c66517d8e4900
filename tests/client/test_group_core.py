"""The state machine of a group member: stories of KIP-848, and rules that hold in any order of events."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replication.pictures import is_drawn
from tidelog.client.core_events import TimePassed
from tidelog.client.group_core import (
    INSTANCE_MS,
    LEAVE_MS,
    REFUSED_MS,
    SILENT_MS,
    TRANSITIONS,
    Assign,
    CallbackDone,
    Closing,
    Connected,
    Disconnected,
    Effect,
    Ended,
    Event,
    FindTopics,
    GroupCore,
    HeartbeatAnswered,
    HeartbeatRefused,
    Hold,
    Lose,
    MembershipCause,
    MembershipState,
    Polled,
    Reconnect,
    ReportAbsence,
    Revoke,
    SendHeartbeat,
    TopicsKnown,
)
from tidelog.errors import (
    CoordinatorLoadInProgress,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAuthorizationFailed,
    InvalidRegularExpression,
    NotCoordinator,
    TidelogError,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from tidelog.types import Millis, PartitionIndex, PartitionKey, TopicId

A, B = TopicId(UUID(int=1)), TopicId(UUID(int=2))
INTERVAL_MS = 1_000
POLL_MS = 300_000


def keys(*indexes: int, topic: TopicId = A) -> tuple[PartitionKey, ...]:
    return tuple(PartitionKey(topic, PartitionIndex(index)) for index in indexes)


class Story:
    """A member, and what its driver does: the time, and the effects so far."""

    def __init__(self, *, is_static: bool = False, known: tuple[TopicId, ...] = (A, B), poll_ms: int = POLL_MS) -> None:
        self.core = GroupCore(Random(1), max_poll_interval_ms=poll_ms, is_static=is_static)
        self.at = 0
        self.sent: list[SendHeartbeat] = []
        if known:
            self.core.handle(TopicsKnown(frozenset(known), Millis(0)))

    def do(self, event: Event) -> list[Effect]:
        effects = self.core.handle(event)
        self.sent += [effect for effect in effects if isinstance(effect, SendHeartbeat)]
        return effects

    def now(self) -> Millis:
        return Millis(self.at)

    def passes(self, ms: int) -> list[Effect]:
        self.at += ms
        return self.do(TimePassed(self.now()))

    def connect(self) -> list[Effect]:
        return self.do(Connected(self.now()))

    def answer(self, epoch: int, assignment: tuple[PartitionKey, ...] | None = None) -> list[Effect]:
        given = None if assignment is None else frozenset(assignment)
        return self.do(HeartbeatAnswered(epoch, INTERVAL_MS, given, self.now()))

    def refuse(self, error: TidelogError) -> list[Effect]:
        return self.do(HeartbeatRefused(error, self.now()))

    def done(self) -> list[Effect]:
        return self.do(CallbackDone(self.now()))

    def poll(self) -> list[Effect]:
        return self.do(Polled(self.now()))

    def close(self, *, for_good: bool = False) -> list[Effect]:
        return self.do(Closing(for_good, self.now()))

    def joined(self, *indexes: int) -> Story:
        """A stable member with these partitions."""
        self.connect()
        self.answer(1, keys(*indexes))
        if indexes:
            self.done()
            self.answer(1)
        assert self.core.state is MembershipState.STABLE
        return self


def test_a_member_joins_and_takes_its_partitions() -> None:
    story = Story()
    assert story.passes(10) == [], "nothing is sent without a connection"
    assert story.connect() == [SendHeartbeat(0, is_full=True, owned=())]
    assert story.answer(3, keys(0, 1)) == [Assign(keys(0, 1))]
    assert story.core.state is MembershipState.RECONCILING
    assert story.done() == [SendHeartbeat(3, is_full=False, owned=keys(0, 1))], "reported at once"
    assert (story.core.state, story.core.owned) == (MembershipState.STABLE, frozenset(keys(0, 1)))
    story.answer(3)
    assert story.passes(INTERVAL_MS - 1) == []
    assert story.passes(1) == [SendHeartbeat(3, is_full=False, owned=None)]


def test_partitions_are_given_up_and_reported_before_new_ones_are_taken() -> None:
    story = Story().joined(0, 1)
    assert story.answer(2, keys(1, 2)) == [Revoke(keys(0))]
    assert story.done() == [Assign(keys(2)), SendHeartbeat(2, is_full=False, owned=keys(1, 2))]
    story.answer(2)
    assert story.done() == [SendHeartbeat(2, is_full=False, owned=None)]


def test_what_is_being_taken_is_reported_also_on_a_new_connection() -> None:
    """A report without it would let the coordinator give it to another member, while this one begins to read it."""
    story = Story().joined(0)
    assert story.answer(2, keys(0, 1)) == [Assign(keys(1))]
    story.do(Disconnected(story.now()))
    assert story.connect() == [SendHeartbeat(2, is_full=True, owned=keys(0, 1))]


def test_what_was_withdrawn_before_it_was_taken_is_confirmed() -> None:
    """The coordinator waits for a report without it; what the member has is the same as in the last one."""
    story = Story().joined(0)
    unknown = TopicId(UUID(int=3))
    assert story.answer(2, (*keys(0), *keys(7, topic=unknown))) == [FindTopics((unknown,))]
    assert story.answer(2, keys(0)) == [SendHeartbeat(2, is_full=False, owned=keys(0))]
    assert story.answer(2, keys(0)) == [SendHeartbeat(2, is_full=False, owned=keys(0))], "not yet confirmed"
    assert story.answer(2) == []
    assert story.passes(INTERVAL_MS) == [SendHeartbeat(2, is_full=False, owned=None)]


def test_an_assignment_that_changes_during_a_callback_is_followed_afterwards() -> None:
    story = Story().joined(0)
    assert story.answer(2, keys(0, 1)) == [Assign(keys(1))]
    assert story.answer(3, keys(2)) == [SendHeartbeat(3, is_full=False, owned=keys(0, 1))], "one callback at a time"
    assert story.done() == [Revoke(keys(0, 1))]
    assert story.done() == [Assign(keys(2))]
    assert story.answer(3) == [SendHeartbeat(3, is_full=False, owned=keys(2))]


def is_asleep_for(story: Story, ms: int) -> list[Effect]:
    """The program does not ask for records for so long; the coordinator answers the heartbeats before the end."""
    effects: list[Effect] = []
    for _ in range(ms // INTERVAL_MS):
        if story.core.is_member:
            story.answer(story.core.epoch)
        effects = story.passes(INTERVAL_MS)
    return effects


@pytest.mark.parametrize(("is_static", "epoch"), [(False, -1), (True, -2)])
def test_a_member_whose_program_is_stuck_leaves_and_joins_again_with_the_next_poll(is_static: bool, epoch: int) -> None:
    story = Story(is_static=is_static).joined(0, 1)
    story.passes(1_000)
    story.poll()
    assert is_asleep_for(story, POLL_MS - INTERVAL_MS) == [SendHeartbeat(1, is_full=False, owned=None)]
    story.answer(1)
    leave = SendHeartbeat(epoch, is_full=False, owned=None)
    assert story.passes(INTERVAL_MS) == [ReportAbsence(), Hold(), leave, Lose(keys(0, 1))]
    assert (story.core.state, story.core.is_member) == (MembershipState.STALE, False)
    assert story.answer(1, keys(0, 1, 2)) == [], "the answer to an earlier heartbeat"
    assert story.answer(epoch) == []
    assert story.poll() == [], "first everything is given up"
    assert story.done() == [SendHeartbeat(0, is_full=True, owned=())]
    assert (story.core.state, story.core.joins) == (MembershipState.JOINING, 2)
    assert story.answer(5, keys(0)) == [Assign(keys(0))]


def test_a_stuck_member_stays_away_until_its_program_polls() -> None:
    story = Story().joined(0)
    is_asleep_for(story, POLL_MS)
    story.answer(-1)
    assert story.done() == []
    story.do(Disconnected(story.now()))
    assert story.connect() == [], "it has left"
    assert story.passes(10 * POLL_MS) == []
    assert story.poll() == [SendHeartbeat(0, is_full=True, owned=())]


def test_a_stuck_member_that_reaches_no_coordinator_joins_again_on_another_stream() -> None:
    """A late answer to the former membership must not be taken for one to the next."""
    story = Story().joined(0)
    is_asleep_for(story, POLL_MS)
    story.done()
    story.poll()
    assert story.core.state is MembershipState.STALE, "the report may still be on its way"
    assert story.passes(LEAVE_MS) == [Reconnect()]
    assert story.connect() == [SendHeartbeat(0, is_full=True, owned=())]


def test_a_member_that_becomes_stuck_in_a_callback_loses_everything_afterwards() -> None:
    story = Story().joined(0, 1)
    is_asleep_for(story, POLL_MS - INTERVAL_MS)
    assert story.answer(2, keys(1)) == [Revoke(keys(0))]
    assert story.passes(INTERVAL_MS) == [ReportAbsence(), Hold(), SendHeartbeat(-1, is_full=False, owned=None)]
    story.answer(-1)
    assert story.done() == [Lose(keys(1))]
    assert story.close() == []
    assert story.done() == [Ended(None)]


def test_a_member_does_not_join_while_its_program_is_absent() -> None:
    story = Story()
    story.passes(POLL_MS)
    assert story.connect() == []
    assert story.poll() == [SendHeartbeat(0, is_full=True, owned=())]
    story.passes(POLL_MS)
    assert story.core.state is MembershipState.JOINING, "the coordinator may know it: the answer is awaited"
    story.connect()
    assert story.answer(1, keys(0))[:2] == [ReportAbsence(), Hold()]


def test_a_fenced_member_holds_at_once_and_joins_again_with_nothing() -> None:
    story = Story().joined(0, 1)
    story.passes(INTERVAL_MS)
    assert story.refuse(FencedMemberEpoch("old")) == [Hold(), Lose(keys(0, 1))]
    assert (story.core.state, story.core.is_member) == (MembershipState.FENCED, False)
    assert story.passes(INTERVAL_MS) == []
    assert story.answer(9, keys(5)) == [], "a late answer to the former membership"
    assert story.done() == [SendHeartbeat(0, is_full=True, owned=())]
    assert (story.core.state, story.core.joins) == (MembershipState.JOINING, 2)
    assert story.answer(4, keys(0)) == [Assign(keys(0))]


def test_a_member_fenced_during_a_callback_loses_what_it_has_afterwards() -> None:
    story = Story().joined(0, 1)
    assert story.answer(2, keys(1, 2)) == [Revoke(keys(0))]
    story.passes(INTERVAL_MS)
    assert story.refuse(UnknownMemberId("gone")) == [Hold()]
    assert story.done() == [Lose(keys(1))], "partition 0 was given up properly"


def test_a_new_connection_carries_the_whole_state() -> None:
    story = Story().joined(0)
    story.do(Disconnected(story.now()))
    assert story.passes(10 * INTERVAL_MS) == []
    assert story.core.is_member, "the session survives while the member reconnects"
    assert story.connect() == [SendHeartbeat(1, is_full=True, owned=keys(0))]


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "silent"])
def test_a_coordinator_that_moved_or_hangs_is_looked_up_again(is_refused: bool) -> None:
    story = Story().joined(0)
    story.passes(INTERVAL_MS)
    if is_refused:
        assert story.refuse(NotCoordinator("elsewhere")) == [Reconnect()]
    else:
        assert story.passes(SILENT_MS - 1) == []
        assert story.passes(1) == [Reconnect()]
    assert story.passes(10 * INTERVAL_MS) == []
    assert story.connect() == [SendHeartbeat(1, is_full=True, owned=keys(0))]


def test_a_loading_coordinator_is_asked_again_on_the_same_stream() -> None:
    story = Story()
    story.connect()
    for _ in range(3):
        assert story.refuse(CoordinatorLoadInProgress("loading")) == []
        sent = len(story.sent)
        while len(story.sent) == sent:
            story.passes(10)
        assert story.sent[-1] == SendHeartbeat(0, is_full=True, owned=())
    assert 300 < story.at < 1_500, "pauses grow"


def test_partitions_of_unknown_topics_wait_for_their_names() -> None:
    story = Story(known=(A,))
    story.connect()
    assert story.answer(1, (*keys(0), *keys(0, topic=B))) == [Assign(keys(0)), FindTopics((B,))]
    story.done()
    assert story.core.state is MembershipState.STABLE
    assert FindTopics((B,)) in story.passes(200)
    assert story.do(TopicsKnown(frozenset((B,)), story.now())) == [Assign(keys(0, topic=B))]


def test_a_closed_member_gives_up_its_partitions_and_leaves_at_once() -> None:
    story = Story().joined(0, 1)
    assert story.close() == [Revoke(keys(0, 1))]
    assert story.done() == [SendHeartbeat(-1, is_full=False, owned=None)]
    assert story.answer(1) == [], "the answer to an earlier heartbeat"
    assert story.answer(-1) == [Ended(None)]
    assert story.core.state is MembershipState.LEFT


@pytest.mark.parametrize(("for_good", "epoch"), [(False, -2), (True, -1)])
def test_a_static_member_keeps_its_place_unless_it_leaves_for_good(for_good: bool, epoch: int) -> None:
    story = Story(is_static=True).joined(0)
    story.close(for_good=for_good)
    assert story.done() == [SendHeartbeat(epoch, is_full=False, owned=None)]


def test_a_member_that_closes_sends_heartbeats_while_it_commits() -> None:
    story = Story().joined(0)
    story.close()
    assert story.passes(INTERVAL_MS) == [SendHeartbeat(1, is_full=False, owned=None)]
    assert story.refuse(UnknownMemberId("gone")) == [Hold()]
    assert story.done() == [Ended(None)], "there is nothing to leave"


def test_a_member_without_a_coordinator_gives_up_leaving_after_a_while() -> None:
    story = Story().joined(0)
    story.do(Disconnected(story.now()))
    story.close()
    assert story.done() == []
    assert story.passes(LEAVE_MS - 1) == []
    assert story.passes(1) == [Ended(None)]


def test_a_member_that_never_joined_ends_at_once() -> None:
    assert Story().close() == [Ended(None)]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_static_member_that_its_program_left_alone_gives_up_its_place_when_it_leaves_for_good(
    is_answered: bool,
) -> None:
    """It has left for a while already, and its place is kept: the coordinator must hear that it does not return."""
    story = Story(is_static=True, poll_ms=5_000).joined()
    for _ in range(6):
        story.passes(INTERVAL_MS)
        story.answer(1)
    assert (story.core.state, story.sent[-1].epoch) == (MembershipState.STALE, -2)
    if is_answered:
        story.answer(-2)
    assert SendHeartbeat(-1, is_full=False, owned=None) in story.close(for_good=True)
    assert story.answer(-1) == [Ended(None)]
    assert story.core.state is MembershipState.LEFT


def test_a_refusal_for_good_ends_the_member() -> None:
    story = Story().joined(0)
    story.passes(INTERVAL_MS)
    error = InvalidRegularExpression("(")
    assert story.refuse(error) == [Hold(), Lose(keys(0))]
    assert story.done() == [Ended(error)]
    assert story.core.state is MembershipState.FAILED


@pytest.mark.parametrize(
    ("error", "patience_ms"),
    [(GroupAuthorizationFailed("no"), REFUSED_MS), (UnreleasedInstanceId("in use"), INSTANCE_MS)],
)
def test_a_refusal_of_a_joining_member_may_go_away(error: TidelogError, patience_ms: int) -> None:
    story = Story()
    story.connect()
    ended: list[Effect] = []
    while not ended:
        sent = len(story.sent)
        ended = [effect for effect in story.refuse(error) if isinstance(effect, Ended)]
        while not ended and len(story.sent) == sent:
            story.passes(50)
    assert ended == [Ended(error)]
    assert patience_ms <= story.at <= patience_ms + 1_500


def test_a_static_member_that_was_replaced_learns_it_at_once() -> None:
    """It was removed, and its place is taken: unlike at its first start, no killed predecessor is waited for."""
    story = Story().joined(0)
    story.refuse(UnknownMemberId("removed"))
    story.done()
    assert story.core.state is MembershipState.JOINING
    (ended,) = [each for each in story.refuse(UnreleasedInstanceId("in use")) if isinstance(each, Ended)]
    assert isinstance(ended.error, FencedInstanceId)
    assert ended.error.message == "this member was replaced: in use"


@pytest.mark.parametrize("error", [FencedMemberEpoch("epoch 1?"), UnknownMemberId("who?")])
def test_a_refusal_of_the_former_membership_does_not_answer_the_next_join(error: TidelogError) -> None:
    """The coordinator removes the member while a heartbeat is on its way, and says so twice: by itself, and in answer
    to the heartbeat. A second join would give up, without a word to this member, what the first one has brought."""
    story = Story().joined(0)
    assert story.passes(INTERVAL_MS) == [SendHeartbeat(1, is_full=False, owned=None)]
    assert story.refuse(UnknownMemberId("removed")) == [Hold(), Lose(keys(0))]
    assert story.done() == [SendHeartbeat(0, is_full=True, owned=())]
    assert story.refuse(error) == []
    assert story.passes(SILENT_MS - 1) == [], "the heartbeat to join is still open"
    assert story.answer(7, keys(0)) == [Assign(keys(0))]


def test_a_late_answer_to_leaving_does_not_answer_the_next_join() -> None:
    story = Story().joined(0)
    is_asleep_for(story, POLL_MS)
    story.answer(-1)
    story.done()
    assert story.poll() == [SendHeartbeat(0, is_full=True, owned=())]
    assert story.answer(-1) == []
    assert story.passes(SILENT_MS - 1) == []


def test_the_picture_in_the_documentation_is_the_table() -> None:
    is_drawn("groups.md", ((source, cause, target) for (source, cause), target in TRANSITIONS.items()))
    assert {cause for _, cause in TRANSITIONS} == set(MembershipCause)
    assert set(TRANSITIONS.values()) | {MembershipState.JOINING} == set(MembershipState)


# --- any order of events ----------------------------------------------------------------------------------------

ACTIONS = st.one_of(
    st.tuples(st.just("assign"), st.frozensets(st.sampled_from(keys(0, 1, 2, 3)), max_size=4)),
    st.tuples(
        st.sampled_from(
            ["answer", "done", "connect", "disconnect", "fence", "move", "loading", "refuse", "close", "poll"]
        ),
        st.just(frozenset[PartitionKey]()),
    ),
    st.tuples(st.just("time"), st.just(frozenset[PartitionKey]())),
)


class Model:
    """Applies random actions, and checks the rules of the member after each one."""

    def __init__(self, *, is_static: bool) -> None:
        self.story = Story(is_static=is_static, poll_ms=2_000)
        self.open: Revoke | Assign | Lose | None = None
        self.has: set[PartitionKey] = set()
        self.reported: set[PartitionKey] = set()
        self.group_epoch = 0
        self.is_closing = self.has_ended = False

    def act(self, action: str, assignment: frozenset[PartitionKey]) -> None:
        story = self.story
        match action:
            case "assign" | "answer":
                self.group_epoch += action == "assign"
                given = tuple(assignment) if action == "assign" else None
                self.check(story.answer(max(1, self.group_epoch), given))
            case "done" if self.open is not None:
                if isinstance(self.open, Assign):
                    self.has |= set(self.open.partitions)
                else:
                    self.has -= set(self.open.partitions)
                self.open = None
                self.check(story.done())
            case "connect":
                self.check(story.connect())
            case "disconnect":
                self.check(story.do(Disconnected(story.now())))
            case "fence":
                self.check(story.refuse(FencedMemberEpoch("old")))
            case "move":
                self.check(story.refuse(NotCoordinator("elsewhere")))
            case "loading":
                self.check(story.refuse(CoordinatorLoadInProgress("loading")))
            case "refuse":
                self.check(story.refuse(InvalidRegularExpression("(")))
            case "close":
                self.is_closing = True
                self.check(story.close())
            case "poll" | "time":
                self.check(story.poll() if action == "poll" else story.passes(500))

    def check(self, effects: list[Effect]) -> None:
        core = self.story.core
        for effect in effects:
            assert not self.has_ended, f"{effect} after the end"
            match effect:
                case Revoke(partitions) | Lose(partitions):
                    assert self.open is None
                    assert partitions
                    assert set(partitions) <= self.has
                    self.open = effect
                case Assign(partitions):
                    assert self.open is None
                    assert partitions
                    assert self.has.isdisjoint(partitions)
                    assert core.target is not None
                    assert set(partitions) <= core.target
                    assert self.has <= core.target, "partitions are given up first"
                    self.open = effect
                case SendHeartbeat(epoch, is_full, owned):
                    self.reported = self.reported if owned is None else set(owned)
                    if is_full:
                        assert owned is not None
                    if epoch > 0:
                        taking = self.open.partitions if isinstance(self.open, Assign) else ()
                        assert self.reported == self.has | set(taking), "the coordinator learns what the member has"
                    elif core.state is not MembershipState.STALE:
                        assert not self.has, "a member joins and leaves with nothing"
                    else:
                        assert epoch < 0, "it does not join before everything is given up"
                case Ended():
                    assert not self.has
                    self.has_ended = True
        assert core.owned == frozenset(self.has)


@given(st.booleans(), st.lists(ACTIONS, max_size=60))
def test_the_rules_hold_in_any_order_of_events(
    is_static: bool, actions: list[tuple[str, frozenset[PartitionKey]]]
) -> None:
    """Whatever happens: a member reports what it has, takes only what it is to have after it gave up the rest; and once
    the coordinator answers again, it has what it is to have, or has ended."""
    model = Model(is_static=is_static)
    for action, assignment in actions:
        model.act(action, assignment)
    model.act("connect", frozenset())
    wanted = frozenset(keys(1, 3))
    for _ in range(20):
        model.act("done", frozenset())
        model.act("poll", frozenset())
        model.act("time", frozenset())
        if model.story.core.state is MembershipState.STALE:
            model.act("connect", frozenset())
        core = model.story.core
        if core.state in (MembershipState.JOINING, MembershipState.STABLE, MembershipState.RECONCILING):
            model.act("assign", wanted)
        elif core.state is MembershipState.LEAVING and model.open is None:
            model.check(model.story.answer(-1))
    core = model.story.core
    if core.state in (MembershipState.LEFT, MembershipState.FAILED):
        assert model.has_ended
    else:
        assert (core.state, core.owned) == (MembershipState.STABLE, wanted)
