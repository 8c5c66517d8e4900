"""A member of a consumer group: joins, takes and gives up partitions, leaves. Pure: events in, effects out.

Invariants:
  1. At most one of Revoke, Assign and Lose is open; the next one follows its CallbackDone.
  2. Partitions are given up before new ones are taken. The next heartbeat reports both, and is due at once: another
     member may read a partition only after this one has reported that it gave it up. Partitions that are being taken
     are reported as owned: otherwise the coordinator could give them to another member.
  3. A fenced member stops reading all its partitions at once, and joins again with epoch 0 once they are given up.
  4. One heartbeat is open at a time. After a new connection and after every refusal the next one carries the whole
     state, so that a lost message changes nothing. A second heartbeat to join would tell the coordinator to take back
     the partitions that the answer to the first one assigned.
  5. A member whose program does not ask for records for `max_poll_interval_ms` leaves, gives up all partitions without
     a commit, and joins again when the program asks (KIP-62).
Not here: connections (group_session.py), callbacks, offsets and reading (group_member.py).
Source: KIP-848; Kafka's ConsumerMembershipManager, with the difference that a heartbeat follows each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, TypeAlias

from tidelog.client.core_events import TimePassed
from tidelog.client.retries import backoff_ms
from tidelog.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAuthorizationFailed,
    Retry,
    TidelogError,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from tidelog.types import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Millis, PartitionKey, TopicId

SILENT_MS: Final = 3_000
"""A coordinator that does not answer a heartbeat for this long is looked up again."""
LOOKUP_MS: Final = 200
"""Interval of lookups while the name of an assigned topic is unknown."""
LEAVE_MS: Final = 3_000
"""How long a member tries to report that it leaves; then its session ends by timeout."""
REFUSED_MS: Final = 3_000
"""How long a member that has never joined tries again after a refusal: a node may not have applied its new
permission."""
INSTANCE_MS: Final = 60_000
"""How long a static member tries to join: a killed predecessor keeps the place until its session times out."""


class MembershipState(Enum):
    """The state of a member."""

    JOINING = "the first heartbeat, with epoch 0, is not answered"
    RECONCILING = "gives up or takes partitions"
    STABLE = "has the partitions of its target assignment"
    FENCED = "was removed from the group, and gives up its partitions"
    STALE = "left because its program does not ask for records, and gives up its partitions"
    LEAVING = "gives up its partitions, then reports that it leaves"
    LEFT = "has ended"
    FAILED = "was refused for good"


class MembershipCause(Enum):
    """Cause of a transition."""

    JOINED = "the coordinator answered the first heartbeat"
    ASSIGNED = "the coordinator changed the assignment"
    RECONCILED = "all callbacks are done"
    FENCED = "the coordinator does not know the member or its epoch"
    GAVE_UP = "all lost partitions are given up"
    POLL_EXPIRED = "the program has not asked for records for max_poll_interval_ms"
    POLLED = "the program asks for records again, and all partitions are given up"
    CLOSED = "the program closes the consumer"
    LEFT = "the coordinator knows that the member left, or cannot be reached"
    REFUSED = "the coordinator refuses for a reason that does not go away"


_LIVE: Final = (MembershipState.JOINING, MembershipState.STABLE, MembershipState.RECONCILING)

TRANSITIONS: Final[Mapping[tuple[MembershipState, MembershipCause], MembershipState]] = {
    (MembershipState.JOINING, MembershipCause.JOINED): MembershipState.STABLE,
    (MembershipState.STABLE, MembershipCause.ASSIGNED): MembershipState.RECONCILING,
    (MembershipState.RECONCILING, MembershipCause.RECONCILED): MembershipState.STABLE,
    (MembershipState.STABLE, MembershipCause.FENCED): MembershipState.FENCED,
    (MembershipState.RECONCILING, MembershipCause.FENCED): MembershipState.FENCED,
    (MembershipState.FENCED, MembershipCause.GAVE_UP): MembershipState.JOINING,
    **{(state, MembershipCause.POLL_EXPIRED): MembershipState.STALE for state in _LIVE},
    (MembershipState.STALE, MembershipCause.POLLED): MembershipState.JOINING,
    **{
        (state, MembershipCause.CLOSED): MembershipState.LEAVING
        for state in (*_LIVE, MembershipState.FENCED, MembershipState.STALE)
    },
    **{(state, MembershipCause.REFUSED): MembershipState.FAILED for state in _LIVE},
    (MembershipState.LEAVING, MembershipCause.LEFT): MembershipState.LEFT,
}
"""Next state by state and cause."""


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """A stream to the coordinator is open."""

    at: Millis


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream ended; the driver opens another one by itself."""

    at: Millis


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """The coordinator answered, or sent a new assignment by itself."""

    epoch: int
    interval_ms: int
    assignment: frozenset[PartitionKey] | None
    """The target assignment; None: unchanged."""
    at: Millis


@dataclass(frozen=True, slots=True)
class HeartbeatRefused:
    """The coordinator answered with an error."""

    error: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class TopicsKnown:
    """The topics whose names are known."""

    topic_ids: frozenset[TopicId]
    at: Millis


@dataclass(frozen=True, slots=True)
class CallbackDone:
    """The open Revoke, Assign or Lose is done."""

    at: Millis


@dataclass(frozen=True, slots=True)
class Polled:
    """The program has asked for records since the last event of this kind, or waits for some."""

    at: Millis


@dataclass(frozen=True, slots=True)
class Resubscribed:
    """The program has replaced the subscription."""

    at: Millis


@dataclass(frozen=True, slots=True)
class Closing:
    """The program closes the consumer."""

    for_good: bool
    """A static member gives up its place as well."""
    at: Millis


Event: TypeAlias = (
    Connected
    | Disconnected
    | HeartbeatAnswered
    | HeartbeatRefused
    | TopicsKnown
    | CallbackDone
    | Polled
    | Resubscribed
    | Closing
    | TimePassed
)


# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send a heartbeat."""

    epoch: int
    is_full: bool
    """With the subscription and all settings."""
    owned: tuple[PartitionKey, ...] | None
    """The partitions that the member has or is taking; None: as last reported."""


@dataclass(frozen=True, slots=True)
class Reconnect:
    """End the stream, look the coordinator up again and open another one."""


@dataclass(frozen=True, slots=True)
class FindTopics:
    """Look up the names of topics; answer with TopicsKnown."""

    topic_ids: tuple[TopicId, ...]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Stop reading these partitions, commit, call back; answer with CallbackDone."""

    partitions: tuple[PartitionKey, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Look up the committed offsets of these partitions, call back, start reading; answer with CallbackDone."""

    partitions: tuple[PartitionKey, ...]


@dataclass(frozen=True, slots=True)
class Hold:
    """The member is fenced or leaves: stop reading all partitions at once, and commit nothing more of them."""


@dataclass(frozen=True, slots=True)
class ReportAbsence:
    """The member leaves because the program does not ask for records: log it."""


@dataclass(frozen=True, slots=True)
class Lose:
    """Other members own these partitions already: call back, without a commit; answer with CallbackDone."""

    partitions: tuple[PartitionKey, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The member has left, or the coordinator refuses it for good by `error`."""

    error: TidelogError | None


Effect: TypeAlias = SendHeartbeat | Reconnect | FindTopics | Revoke | Assign | Hold | ReportAbsence | Lose | Ended


class GroupCore:
    """One member. max_poll_interval_ms: how long its program may not ask for records."""

    def __init__(self, rng: Random, *, max_poll_interval_ms: int, is_static: bool = False) -> None:
        self.state = MembershipState.JOINING
        self.epoch = JOIN_EPOCH
        self.joins = 1
        """Raised by each membership: records that were read before belong to an earlier one."""
        self.owned: frozenset[PartitionKey] = frozenset()
        """The partitions that the member owns: from Assign on, until Revoke or Lose is done."""
        self.target: frozenset[PartitionKey] | None = None
        """The target assignment; None: unknown."""
        self.error: TidelogError | None = None
        """Why the member failed."""
        self._rng, self._is_static, self._max_poll_interval_ms = rng, is_static, max_poll_interval_ms
        self._polled_at: Millis | None = None
        """When the program last asked for records; at first: when the member began."""
        self._open: Revoke | Assign | Lose | None = None
        """The open step: its CallbackDone is awaited."""
        self._known: frozenset[TopicId] = frozenset()
        """Topics whose names are known."""
        self._connected = False
        self._announced = False
        """Whether the coordinator may know the member: a heartbeat was sent, and it has not left."""
        self._reported: frozenset[PartitionKey] | None = None
        """The partitions in the last heartbeat; None: the next one carries the whole state."""
        self._withdrawn = False
        """Partitions were assigned and withdrawn before the member took them. The coordinator waits for a report
        without them, which must be sent although the member's partitions have not changed."""
        self._sent_at: Millis | None = None
        """When the open heartbeat was sent; None if none is open."""
        self._due = Millis(0)
        """When the next heartbeat is sent."""
        self._failures = 0
        self._refused_since: Millis | None = None
        """Since when the coordinator has refused a member that has not joined."""
        self._lookup_due = Millis(0)
        self._for_good = False
        self._leave_by: Millis | None = None
        """Until when the member tries to report that it leaves; None while it does not leave."""
        self._ended = False

    @property
    def is_member(self) -> bool:
        """Whether the coordinator has accepted the member and has not refused it since."""
        states = (MembershipState.STABLE, MembershipState.RECONCILING, MembershipState.LEAVING)
        return self._announced and self.epoch > JOIN_EPOCH and self.state in states

    def handle(self, event: Event) -> list[Effect]:
        """Apply an event and return the effects, in order; none once the member has ended."""
        effects: list[Effect] = []
        if self._ended:
            return effects
        if self._polled_at is None:
            self._polled_at = event.at
        match event:
            case Connected(at):
                self._connected, self._sent_at, self._reported, self._due = True, None, None, at
            case Disconnected():
                self._connected, self._sent_at = False, None
            case HeartbeatAnswered():
                self._note_answer(event)
            case HeartbeatRefused(error, at):
                self._note_refusal(error, at, effects)
            case TopicsKnown(topic_ids, _):
                self._known |= topic_ids
            case CallbackDone(at):
                self._note_done(at)
            case Polled(at):
                self._polled_at = at
            case Resubscribed(at):
                # The next heartbeat carries the whole state; while one is open, after its answer.
                self._reported, self._due = None, at
            case Closing(for_good, _):
                self._note_closing(for_good)
        self._advance(event.at, effects)
        return effects

    def _move(self, cause: MembershipCause) -> None:
        self.state = TRANSITIONS[self.state, cause]

    # --- what happened ------------------------------------------------------------------------------------------

    def _note_closing(self, for_good: bool) -> None:
        if (self.state, MembershipCause.CLOSED) in TRANSITIONS:
            if for_good and self._is_static and self.state is MembershipState.STALE:
                self._announced, self._leave_by = True, None  # it had left for a while: now it gives up its place
            self._for_good = for_good
            self._move(MembershipCause.CLOSED)

    def _note_answer(self, event: HeartbeatAnswered) -> None:
        if self.state is MembershipState.JOINING and event.epoch <= JOIN_EPOCH:
            return  # an answer to the former membership: the heartbeat to join is still open
        self._sent_at = None
        if self.state not in (*_LIVE, MembershipState.LEAVING, MembershipState.STALE):
            return  # an answer to a membership that has ended
        self._failures, self._refused_since = 0, None
        # A change that was not reported yet is reported at once: another member waits for partitions that were given
        # up.
        is_reported = self._owned_or_taken() == self._reported or self._leave_by is not None
        self._due = Millis(event.at + max(1, event.interval_ms)) if is_reported else event.at
        if self._leave_by is not None:
            self._announced = self._announced and event.epoch >= JOIN_EPOCH
            return
        if event.epoch < max(self.epoch, JOIN_EPOCH + 1):
            return  # sent before an answer of a newer epoch: its assignment is outdated
        self.epoch = event.epoch
        if event.assignment is not None:
            self._note_withdrawn(event.assignment, event.at)
            self.target = event.assignment
        else:
            self._withdrawn = False
        if self.state is MembershipState.JOINING:
            self._move(MembershipCause.JOINED)

    def _note_withdrawn(self, assignment: frozenset[PartitionKey], at: Millis) -> None:
        self._withdrawn |= bool((self.target or frozenset()) - assignment - self._owned_or_taken())
        if self._withdrawn and self._open is None:
            self._due = at

    def _owned_or_taken(self) -> frozenset[PartitionKey]:
        """The partitions that the member owns or is taking."""
        return self.owned | frozenset(self._open.partitions) if isinstance(self._open, Assign) else self.owned

    def _note_refusal(self, error: TidelogError, at: Millis, effects: list[Effect]) -> None:
        is_fenced = isinstance(error, FencedMemberEpoch | UnknownMemberId)
        if is_fenced and self.state is MembershipState.JOINING:
            return  # a refusal of the former membership: the heartbeat to join is still open
        self._sent_at, self._reported = None, None  # the coordinator may not have applied the last heartbeat
        if is_fenced:
            self._note_fenced(at, effects)
        elif error.retry is Retry.ELSEWHERE:
            self._connected = False  # nothing more is sent on a stream to a node that is not the coordinator
            effects.append(Reconnect())
        elif error.retry is Retry.LATER or self._may_go_away(error, at):
            self._back_off(at)
        elif self.state in (MembershipState.LEAVING, MembershipState.STALE):
            self._announced = False  # refused for good: the departure cannot be reported
        elif self.state in _LIVE:
            self.error = self._replaced(error) if isinstance(error, UnreleasedInstanceId) else error
            self._move(MembershipCause.REFUSED)
            effects.append(Hold())

    def _note_fenced(self, at: Millis, effects: list[Effect]) -> None:
        self._announced, self._due = False, at
        effects.append(Hold())
        if self.state in _LIVE:
            self._move(MembershipCause.FENCED)

    def _may_go_away(self, error: TidelogError, at: Millis) -> bool:
        """Whether a refusal of a member that has not joined may go away by itself soon."""
        if self.state is not MembershipState.JOINING:
            return False
        if isinstance(error, UnreleasedInstanceId):
            # After an earlier membership of this process, the owner of the place is no predecessor: it is a
            # replacement.
            patience_ms = 0 if self.joins > 1 else INSTANCE_MS
        elif isinstance(error, GroupAuthorizationFailed | TopicAuthorizationFailed):
            patience_ms = REFUSED_MS
        else:
            return False
        if self._refused_since is None:
            self._refused_since = at
        return at - self._refused_since < patience_ms

    def _replaced(self, error: UnreleasedInstanceId) -> TidelogError:
        """The error of a member that was removed and whose place another one has taken since."""
        return error if self.joins == 1 else FencedInstanceId(f"this member was replaced: {error.message}")

    def _back_off(self, at: Millis) -> None:
        self._failures += 1
        self._due = Millis(at + backoff_ms(self._failures, self._rng))

    def _note_done(self, at: Millis) -> None:
        match self._open:
            case Revoke(partitions) | Lose(partitions):
                self.owned -= set(partitions)
            case Assign(partitions):
                self.owned |= set(partitions)
            case None:
                raise AssertionError("no callback is open")
        self._open = None
        if self.state is MembershipState.RECONCILING:
            self._due = at  # another member may read these partitions only after the next heartbeat

    # --- what to do next ----------------------------------------------------------------------------------------

    def _advance(self, at: Millis, effects: list[Effect]) -> None:
        if self.state in _LIVE and self._is_absent(at):
            self._expire(effects)
        if self.state is MembershipState.STALE:
            self._follow_program(at, effects)
        if self._open is None:
            match self.state:
                case MembershipState.STABLE | MembershipState.RECONCILING:
                    self._reconcile(effects)
                case MembershipState.FENCED:
                    self._give_up(at, effects)
                case MembershipState.FAILED:
                    self._fail(effects)
                case MembershipState.LEAVING:
                    self._leave(at, effects)
                case MembershipState.JOINING | MembershipState.STALE | MembershipState.LEFT:
                    pass
        if self.state in _LIVE:
            self._look_up(at, effects)
        if self.state in _LIVE or (self.state is MembershipState.LEAVING and self._open is not None and self.is_member):
            self._beat(at, effects)
        if self.state is MembershipState.LEFT and not self._ended:
            self._ended = True
            effects.append(Ended(None))

    def _reconcile(self, effects: list[Effect]) -> None:
        """Start the next step towards the target assignment, if one is left. Partitions of topics without a known name
        must wait: callbacks and errors name them."""
        target = self.owned if self.target is None else self.target
        surplus = self.owned - target
        missing = frozenset(key for key in target if key.topic_id in self._known) - self.owned
        if not surplus and not missing:
            if self.state is MembershipState.RECONCILING:
                self._move(MembershipCause.RECONCILED)
            return
        if self.state is MembershipState.STABLE:
            self._move(MembershipCause.ASSIGNED)
        # Give up first: the owner of a missing partition may wait for a surplus one of this member (invariant 2).
        self._open = Revoke(tuple(sorted(surplus))) if surplus else Assign(tuple(sorted(missing)))
        effects.append(self._open)

    def _give_up(self, at: Millis, effects: list[Effect]) -> None:
        if self.owned:
            self._lose(effects)
            return
        self._forget_membership(at)
        self._move(MembershipCause.GAVE_UP)

    def _forget_membership(self, at: Millis) -> None:
        self.epoch, self.target, self._reported, self._announced = JOIN_EPOCH, None, None, False
        self._withdrawn, self._leave_by = False, None
        self.joins += 1
        self._due = max(self._due, at)

    # --- a program that does not ask for records ------------------------------------------------------------------

    def _is_absent(self, at: Millis) -> bool:
        assert self._polled_at is not None, "set by the first event"
        return at - self._polled_at >= self._max_poll_interval_ms

    def _expire(self, effects: list[Effect]) -> None:
        """Leave the group."""
        # The answer to the heartbeat to join must come first: the coordinator may have added the member by then.
        if self.state is MembershipState.JOINING and self._announced:
            return
        if self.is_member:
            effects += (ReportAbsence(), Hold())
        self.epoch, self.target = JOIN_EPOCH, None
        self._move(MembershipCause.POLL_EXPIRED)

    def _follow_program(self, at: Millis, effects: list[Effect]) -> None:
        """Report that the member left, give up its partitions, and join again once the program asks for records."""
        has_left = self._report_leaving(at, effects)
        if self._open is not None:
            return
        if self.owned:
            self._lose(effects)
        elif has_left and not self._is_absent(at):
            if self._announced:  # answers to the former membership may still arrive on this stream
                self._connected = False
                effects.append(Reconnect())
            self._due = at
            self._forget_membership(at)
            self._move(MembershipCause.POLLED)

    def _fail(self, effects: list[Effect]) -> None:
        if self.owned:
            self._lose(effects)
        elif not self._ended:
            self._ended = True
            effects.append(Ended(self.error))

    def _lose(self, effects: list[Effect]) -> None:
        self._open = Lose(tuple(sorted(self.owned)))
        effects.append(self._open)

    def _leave(self, at: Millis, effects: list[Effect]) -> None:
        if self.owned:
            partitions = tuple(sorted(self.owned))
            self._open = Revoke(partitions) if self.is_member else Lose(partitions)
            effects.append(self._open)
        elif self._report_leaving(at, effects):
            self._move(MembershipCause.LEFT)

    def _report_leaving(self, at: Millis, effects: list[Effect]) -> bool:
        """Report that the member leaves. Returns True once the coordinator has answered, or does not answer in time."""
        if self._leave_by is None:
            self._leave_by, self._due, self._sent_at = Millis(at + LEAVE_MS), at, None
        if not self._announced or at >= self._leave_by:
            return True
        if self._connected and self._sent_at is None and at >= self._due:
            self._sent_at = at
            epoch = LEAVE_STATIC_EPOCH if self._is_static and not self._for_good else LEAVE_EPOCH
            effects.append(SendHeartbeat(epoch, is_full=False, owned=None))
        return False

    def _look_up(self, at: Millis, effects: list[Effect]) -> None:
        unknown = {key.topic_id for key in self.target or ()} - self._known
        if unknown and at >= self._lookup_due:
            self._lookup_due = Millis(at + LOOKUP_MS)
            effects.append(FindTopics(tuple(sorted(unknown))))

    def _beat(self, at: Millis, effects: list[Effect]) -> None:
        if not self._connected:
            return
        if self._sent_at is not None:
            if at - self._sent_at >= SILENT_MS:
                self._connected, self._sent_at, self._reported = False, None, None
                effects.append(Reconnect())
            return
        if at < self._due:
            return
        self._sent_at, self._announced = at, True
        partitions, is_full = self._owned_or_taken(), self._reported is None
        confirms = self._withdrawn and self._open is None
        owned = None if partitions == self._reported and not confirms else tuple(sorted(partitions))
        self._reported = partitions
        effects.append(SendHeartbeat(self.epoch, is_full=is_full, owned=owned))
