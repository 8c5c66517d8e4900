"""A consumer's membership in its group: carries out the core's decisions, and commits processed records.

A record is processed when the step after the one that returned it begins: the next poll, or the next record of an
iteration.
Invariants:
  1. Automatic commits contain processed records only.
  2. A partition is given up after its returned records are processed and committed and `on_revoked` has returned. Then
     none of its records is returned. Only a fenced member does not wait.
  3. Commits are sent one after the other. A commit of positions of an earlier membership, or of a partition that was
     given up, is never sent: it could set the next owner's offset back.
  4. A commit fails if records were returned under an earlier membership and are not committed: the program would take
     them for committed.
Not here: decisions (group_core.py), the stream (group_session.py), fetching (fetch_core.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import isawaitable
from random import Random
from typing import Any, Final
from uuid import UUID

from tidelog.client.cluster import Cluster
from tidelog.client.coordinators import Coordinators
from tidelog.client.core_events import TimePassed
from tidelog.client.cursor import Cursor, CursorState, Where
from tidelog.client.fetch_core import FetchCore
from tidelog.client.group_core import (
    Assign,
    CallbackDone,
    Closing,
    Ended,
    Event,
    FindTopics,
    GroupCore,
    Hold,
    Lose,
    MembershipState,
    Polled,
    Reconnect,
    ReportAbsence,
    Resubscribed,
    Revoke,
    SendHeartbeat,
    TopicsKnown,
)
from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.client.group_offsets import GroupOffsets, OffsetCommitted, commit_failed
from tidelog.client.group_options import GroupOptions, PartitionsCallback
from tidelog.client.group_session import GroupSession
from tidelog.client.initial_partitions import InitialPartitions
from tidelog.client.missing_topics import MissingTopics
from tidelog.errors import (
    CommitFailed,
    InvalidRequest,
    NoCommittedOffset,
    RebalanceInProgress,
    Retry,
    TidelogError,
    UnknownMemberId,
)
from tidelog.protocol.v1.groups_pb2 import (
    AssignedPartitions,
    ConsumerGroupHeartbeatRequest,
    TopicNames,
    TopicPartitionList,
)
from tidelog.types import Offset, PartitionKey, TopicId, TopicPartition

_log = logging.getLogger("tidelog.client")

TICK_MS: Final = 100
"""Precision of heartbeats and timeouts."""

CLOSED_IN_CALLBACK: Final = (
    "a callback cannot close its consumer: close() waits for the end of the callback. Close it once the callback "
    "has returned"
)

Spawn = Callable[[Coroutine[Any, Any, None], str], None]


class GroupMember:
    """One membership, from the start of the consumer to its end.

    changed: called after partitions were added or removed, or after their records may, or may not, be returned any
    more.
    spawn: starts a task of the consumer.
    """

    def __init__(
        self,
        options: GroupOptions,
        cluster: Cluster,
        fetching: FetchCore,
        rng: Random,
        *,
        timeout_ms: int,
        changed: Callable[[], None],
        spawn: Spawn,
    ) -> None:
        self.options = options
        self.member_id = str(UUID(int=rng.getrandbits(128), version=4))
        self.failure: BaseException | None = None
        """Why nothing can be read any more: the coordinator refused the member, or a callback raised."""
        self._cluster, self._clock, self._fetching, self._rng = cluster, cluster.clock, fetching, rng
        self._changed, self._spawn = changed, spawn
        self._core = GroupCore(
            rng, max_poll_interval_ms=options.max_poll_interval_ms, is_static=options.instance_id is not None
        )
        self._has_polled = False
        """The program has asked for records since the last tick."""
        self._waiting_calls = 0
        """Number of calls of the program that wait for records."""
        self._callback: asyncio.Task[Any] | None = None
        """The task of the callback that runs."""
        coordinators = Coordinators(cluster, rng)
        self._session = GroupSession(options.group_id, cluster, coordinators, rng, self._handle)
        self._offsets = GroupOffsets(coordinators, timeout_ms)
        self._names: dict[TopicId, str] = {}
        self._missing = MissingTopics(options.group_id, options.topics)
        self._initial = InitialPartitions(cluster, options.topics, rng)
        self._returned: dict[TopicPartition, OffsetCommitted] = {}
        """For partitions whose records are being processed, the position before these records."""
        self._unsettled: dict[TopicPartition, OffsetCommitted] = {}
        """For partitions with returned records that are not committed, the position before the first of these."""
        self._lost: set[TopicPartition] = set()
        """Partitions that had such records when the member was removed from the group. Commits of them fail. An entry
        is removed when the program asks for records: with auto_commit the next time, else after a commit has failed."""
        self._commit_failed_for: set[TopicPartition] = set()
        """Partitions of which a commit has failed since their records were last returned, even if the member did not
        know yet that it was removed: the program has discarded these records."""
        self._in_transaction: Mapping[TopicPartition, OffsetCommitted] = {}
        """The offsets that the open transaction commits."""
        self._given_up: dict[TopicPartition, bool] = {}
        """Partitions that were given up while records of them were not committed, or while the open transaction has
        their offsets. The value: whether records beyond these offsets were returned."""
        self._has_transactions = False
        """The offsets are committed in transactions."""
        self._stored: dict[TopicPartition, CommittedOffset] = {}
        """The committed offsets, as far as this member knows them: only changes are committed automatically."""
        self._processed = asyncio.Event()
        self._commits = asyncio.Lock()
        self._ended = asyncio.Event()
        self._is_closing = False
        self._running: list[asyncio.Task[Any]] = []
        """The tasks of `background`, while they run."""

    # --- the consumer's calls -----------------------------------------------------------------------------------

    def background(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Return the tasks of a member; none for a group that is used for its offsets only."""
        if not self.options.is_subscription:
            return {}
        for topic in self.options.topics:
            self._cluster.request_refresh(topic)
        tasks = {"group": self._session.run(), "heartbeats": self._tick()}
        if self.options.reset == "latest":
            tasks["initial partitions"] = self._initial.find()
        if self.options.auto_commit:
            tasks["commits"] = self._commit_regularly()
        return {name: self._until_closed(work) for name, work in tasks.items()}

    async def _until_closed(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.current_task()
        assert task is not None, "it runs as a task of the consumer"
        self._running.append(task)
        await work

    def resubscribe(self, options: GroupOptions) -> None:
        """Replace the subscription of the member, and its callbacks. Raises InvalidRequest while it leaves."""
        if self._is_closing:
            raise InvalidRequest("the consumer is leaving its group: subscribe once unsubscribe() has returned")
        self.options = options
        self._missing = MissingTopics(options.group_id, options.topics)
        if options.reset == "latest":  # partitions of new topics that exist now are read from their ends
            self._initial = InitialPartitions(self._cluster, options.topics, self._rng)
            self._spawn(self._initial.find(), "initial partitions")
        for topic in options.topics:
            self._cluster.request_refresh(topic)
        self._handle(Resubscribed(self._clock.monotonic_ms()))

    def step(self) -> None:
        """The program asks for more records: everything returned so far is processed."""
        self._note_asked()
        self._note_processed()

    def _note_asked(self) -> None:
        """Note that the program asks for records, or has just waited for some."""
        self._has_polled = True
        self._lost = set() if self.options.auto_commit else self._lost - self._commit_failed_for

    def _note_processed(self) -> None:
        """Note that everything returned so far is processed."""
        if self._returned:
            self._returned.clear()
            self._processed.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within this context the program waits for records: it is not absent, however long that takes."""
        self._waiting_calls += 1
        try:
            yield
        finally:
            self._waiting_calls -= 1
            self._note_asked()

    def returning(self, cursor: Cursor) -> None:
        """Note that records of this cursor are about to be returned."""
        self._commit_failed_for.discard(cursor.topic_partition)
        if cursor.topic_partition not in self._returned:
            position = _position_of(cursor)
            if position is not None:
                self._returned[cursor.topic_partition] = position
                self._unsettled.setdefault(cursor.topic_partition, position)

    def metadata(self) -> GroupMetadata:
        """Return the identity for commits. Raises CommitFailed if the consumer is not a member now."""
        if not self.options.is_subscription:
            return GroupMetadata(self.options.group_id)
        if not self._core.is_member:
            raise self._no_member()
        return GroupMetadata(self.options.group_id, self.member_id, self._core.epoch, self.options.instance_id)

    def _no_member(self) -> CommitFailed:
        why = "it is not a member at the moment"
        if self._core.state is MembershipState.STALE:
            why = (
                f"it left, since its program did not ask for records for {self.options.max_poll_interval_ms} ms; it "
                "joins again with the next poll. Process fewer records for each one, or raise max_poll_interval_ms"
            )
        return commit_failed(self.options.group_id, self._core.error or UnknownMemberId(why))

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset] | None = None) -> None:
        """Commit the offsets, or the positions of all assigned partitions. Errors are those of GroupOffsets.commit."""
        try:
            self._ensure_kept(offsets)
            if offsets is None:
                self._note_processed()  # else the next automatic commit would set the offsets back
            await self._commit(
                lambda: self._positions(self._fetching.cursors) if offsets is None else self._given(offsets)
            )
        except CommitFailed:
            self._commit_failed_for.update({*self._unsettled, *self._lost} if offsets is None else offsets)
            raise
        if offsets is None:
            self._settle()
            return
        for key, offset in offsets.items():
            returned = self._returned.get(key)
            if returned is not None and returned.committed.offset < offset.offset:
                # Else the next automatic commit would set this offset back.
                self._returned[key] = OffsetCommitted(offset, returned.topic_id)

    def _ensure_kept(self, offsets: Mapping[TopicPartition, CommittedOffset] | None) -> None:
        """Raises CommitFailed if the member has ended or left, or if the coordinator removed it after records of the
        partitions to commit were returned: other members may read them (invariant 4)."""
        if self._core.error is not None or self._core.state is MembershipState.STALE:
            raise self._no_member()
        lost = self._lost if offsets is None else self._lost.intersection(offsets)
        if lost:
            names = ", ".join(str(key) for key in sorted(lost))
            raise commit_failed(
                self.options.group_id, UnknownMemberId(f"it was removed from the group, with records of {names}")
            )

    def transaction_offsets(self) -> tuple[GroupMetadata, dict[TopicPartition, OffsetCommitted]]:
        """Return the identity and the positions of all assigned partitions, for a transaction. Raises CommitFailed if
        records were returned of partitions that the consumer no longer has, InvalidRequest."""
        if self.options.is_subscription and self.options.auto_commit:
            raise InvalidRequest(
                f"the consumer of group {self.options.group_id!r} commits by itself: create it with auto_commit=False "
                "to commit its offsets in transactions"
            )
        self._has_transactions = True
        member = self.transaction_member()
        self._in_transaction = self._positions(self._fetching.cursors)
        self._offsets.note_sent(self.options.group_id, self._in_transaction)
        return member, dict(self._in_transaction)

    def transaction_member(self) -> GroupMetadata:
        """Return the identity for one more attempt with the same offsets. Raises CommitFailed if the consumer has given
        up one of their partitions, or another one with uncommitted records: its next owner may have committed since."""
        if self._given_up:
            lost = ", ".join(str(key) for key in sorted(self._given_up))
            raise commit_failed(self.options.group_id, RebalanceInProgress(f"{lost} went to another member"))
        return self.metadata()

    def transaction_committed(self) -> None:
        """Note that the transaction with the offsets of `transaction_offsets` is committed."""
        committed, self._in_transaction = self._in_transaction, {}
        self._note_committed(committed)
        self._settle()

    def _settle(self) -> None:
        """After a commit of all positions, forget the partitions that were given up without records beyond it."""
        self._given_up = {key: True for key, has_more in self._given_up.items() if has_more}
        self._processed.set()

    def _note_committed(self, committed: Mapping[TopicPartition, OffsetCommitted]) -> None:
        """Note that these offsets are committed. Records that were returned since the commit began are not."""
        for key in [key for key in self._unsettled if key in committed]:
            if self._is_beyond(key, committed):
                self._unsettled[key] = committed[key]
            else:
                del self._unsettled[key]

    def _is_beyond(self, key: TopicPartition, committed: Mapping[TopicPartition, OffsetCommitted]) -> bool:
        """Whether records beyond the committed offset were returned."""
        cursor = self._fetching.cursors.get(key)
        position = None if cursor is None else cursor.position
        return key not in committed or (position is not None and position > committed[key].committed.offset)

    def rewind(self) -> dict[TopicPartition, OffsetCommitted]:
        """Return, for each partition with uncommitted records, the position before them, and treat these records as not
        returned."""
        begun = {} if self.options.auto_commit else dict(self._unsettled)
        self._returned.clear()
        self._unsettled.clear()
        self._lost.clear()
        self._given_up.clear()
        self._in_transaction = {}
        self._processed.set()
        return begun

    def returned_since_loss(
        self, offsets: Mapping[TopicPartition, CommittedOffset] | None
    ) -> dict[TopicPartition, OffsetCommitted]:
        """After a failed commit of these offsets, or of all positions, return the positions to go back to.

        If the commit failed because the member had been removed, the program also discards the records that were
        returned since it joined again, and no other member reads those: they must be returned once more.
        """
        lost = self._lost if offsets is None else self._lost.intersection(offsets)
        keys = [key for key in self._unsettled if lost and (offsets is None or key in offsets)]
        for key in keys:
            self._returned.pop(key, None)
        self._processed.set()
        return {key: self._unsettled.pop(key) for key in keys}

    def positions(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the positions of all assigned partitions."""
        return {key: each.committed for key, each in self._positions(self._fetching.cursors).items()}

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the committed offset of each partition."""
        found = await self._offsets.fetch(self.options.group_id, partitions, self._anonymous, require_stable=False)
        return {key: None if each is None else each.committed for key, each in found.items()}

    def ensure_may_close(self) -> None:
        """Raises InvalidRequest in a callback, for whose end `close` would wait."""
        if self._callback is not None and self._callback is asyncio.current_task():
            raise InvalidRequest(CLOSED_IN_CALLBACK)

    async def close(self, *, for_good: bool) -> None:
        """Commit processed records, call back, leave. It takes as long as the callbacks and the timeout of one call."""
        if not self.options.is_subscription:
            return
        if not self._ended.is_set():
            await self._leave(for_good=for_good)
        for task in self._running:
            task.cancel()

    async def _leave(self, *, for_good: bool) -> None:
        self._is_closing = True
        self._processed.set()
        self._initial.give_up(InvalidRequest("the consumer closes"))  # an assignment waits for its answer
        self._handle(Closing(for_good, self._clock.monotonic_ms()))
        await self._ended.wait()

    def abandon(self) -> None:
        """End after a defect of the consumer: no answer will arrive any more, and `close` must not wait for one."""
        self._ended.set()

    # --- effects ------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep_ms(TICK_MS)
            at = self._clock.monotonic_ms()
            if (self._has_polled or self._waiting_calls) and self._callback is None:
                self._has_polled = False
                self._handle(Polled(at))
            self._handle(TimePassed(at))
            for topic in self._missing.due(at):
                self._cluster.request_refresh(topic)

    def _handle(self, event: Event) -> None:
        for effect in self._core.handle(event):
            match effect:
                case SendHeartbeat():
                    self._session.send(self._heartbeat(effect))
                case Reconnect():
                    self._session.reconnect()
                case FindTopics(topic_ids):
                    self._cluster.request_names(topic_ids)
                case Revoke(partitions):
                    self._spawn(self._revoke(self._named(partitions)), "revoke partitions")
                case Assign(partitions):
                    self._spawn(self._assign(partitions), "assign partitions")
                case Lose(partitions):
                    self._spawn(self._lose(self._named(partitions)), "give up lost partitions")
                case ReportAbsence():
                    self._report_absence()
                case Hold():
                    self._hold(self._fetching.cursors)
                    self._processed.set()
                case Ended(error):
                    self.failure = self.failure or error
                    self._ended.set()
                    self._changed()

    def _heartbeat(self, beat: SendHeartbeat) -> ConsumerGroupHeartbeatRequest:
        options = self.options
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.group_id,
            member_id=self.member_id,
            member_epoch=beat.epoch,
            instance_id=options.instance_id,
            rebalance_timeout_ms=-1,
        )
        if beat.is_full:
            request.rebalance_timeout_ms = options.max_poll_interval_ms
            request.subscribed_topic_names.CopyFrom(TopicNames(names=options.topics))
            request.subscribed_topic_regex = options.pattern
            if options.rack:
                request.rack_id = options.rack
            if options.assignor:
                request.server_assignor = options.assignor
        if beat.owned is not None:
            by_topic: dict[TopicId, list[int]] = {}
            for key in beat.owned:
                by_topic.setdefault(key.topic_id, []).append(key.partition)
            request.topic_partitions.CopyFrom(
                AssignedPartitions(
                    topics=[
                        TopicPartitionList(topic_id=topic_id.bytes, partitions=partitions)
                        for topic_id, partitions in by_topic.items()
                    ]
                )
            )
        return request

    def note_metadata(self, failure: TidelogError | None) -> None:
        """Called when the metadata have changed, or could not be refreshed."""
        if not self.options.is_subscription:
            return
        self._note_topics()
        if failure is None:
            self._missing.note(self._cluster.view, self._clock.monotonic_ms())

    def _note_topics(self) -> None:
        """Keep the names of all topics seen: partitions of a deleted topic are still revoked by name."""
        fresh = {
            topic.topic_id: topic.name
            for topic in self._cluster.view.topics.values()
            if topic.topic_id not in self._names
        }
        if fresh:
            self._names.update(fresh)
            self._handle(TopicsKnown(frozenset(fresh), self._clock.monotonic_ms()))

    def _named(self, partitions: Iterable[PartitionKey]) -> list[TopicPartition]:
        return sorted(TopicPartition(self._names[key.topic_id], key.partition) for key in partitions)

    async def _assign(self, partitions: tuple[PartitionKey, ...]) -> None:
        """Look up where to start, call `on_assigned`, then start reading."""
        topic_ids = {TopicPartition(self._names[key.topic_id], key.partition): key.topic_id for key in partitions}
        keys = sorted(topic_ids)
        cursors = await self._find_cursors(topic_ids)
        if cursors is not None:
            self._fetching.add(cursors)
            for topic in sorted({key.topic for key in keys}):
                self._cluster.request_refresh(topic)
            self._changed()
            if await self._call(self.options.on_assigned, keys) and self._core.is_member:
                for key in keys:
                    self._fetching.cursors[key].is_held = False
                self._changed()
        self._handle(CallbackDone(self._clock.monotonic_ms()))

    async def _find_cursors(self, topic_ids: Mapping[TopicPartition, TopicId]) -> list[Cursor] | None:
        """Return new cursors, not readable yet, at their starts; None if the member was fenced or closes before, or
        failed."""
        committed = await self._find_committed(sorted(topic_ids))
        if committed is None:
            return None
        try:
            return [
                await self._cursor(key, topic_id, committed.get(key)) for key, topic_id in sorted(topic_ids.items())
            ]
        except TidelogError as error:
            if not self._is_closing:
                self._fail(error)
            return None

    async def _find_committed(self, keys: list[TopicPartition]) -> dict[TopicPartition, OffsetCommitted | None] | None:
        """Return the committed offsets, as soon as they can be read; None if the member was fenced or closes before."""
        while self._core.is_member and not self._is_closing:
            try:
                return await self._offsets.fetch(self.options.group_id, keys, self._committer(), require_stable=True)
            except CommitFailed:
                await self._clock.sleep_ms(TICK_MS)  # the membership has ended; the next heartbeat reports that
            except TidelogError as error:
                if error.retry is Retry.NEVER:
                    self._fail(error)
                    return None
                _log.warning("group %r: committed offsets cannot be read: %s", self.options.group_id, error.message)
        return None

    async def _cursor(self, key: TopicPartition, topic_id: TopicId, found: OffsetCommitted | None) -> Cursor:
        """Return a new cursor, not readable yet, at its start."""
        cursor = Cursor(key, self._reset_place(), topic_id=topic_id, is_held=True, is_certain=True)
        if found is not None and found.topic_id in (None, topic_id):
            cursor.place(found.committed.offset, found.committed.leader_epoch)
            self._stored[key] = found.committed
        else:
            self._stored.pop(key, None)
            if cursor.start == "latest" and not await self._initial.contain(topic_id, key.partition):
                cursor.start = "earliest"  # producers may have written before this member learned of it (KIP-1327)
            if self.options.reset == "none":
                cursor.state = CursorState.FAILED
                cursor.error = NoCommittedOffset(
                    f"group {self.options.group_id!r} has no committed offset for {key}, and auto_offset_reset is "
                    '"none": seek to a place, or set auto_offset_reset="earliest" or "latest"'
                )
        return cursor

    def _reset_place(self) -> Where:
        match self.options.reset:
            case int(back_ms):
                return max(0, self._clock.wall_ms() - back_ms)
            case "latest":
                return "latest"
            case _:
                return "earliest"

    async def _revoke(self, keys: list[TopicPartition]) -> None:
        """Wait until the returned records are processed, commit, call `on_revoked`, remove the partitions."""
        keys = [key for key in keys if key in self._fetching.cursors]
        self._hold(keys)
        while not self._is_closing and self._core.is_member and not self._processing.keys().isdisjoint(keys):
            self._processed.clear()
            await self._processed.wait()
        if self.options.auto_commit:
            await self._commit_processed(keys)
        callback = self.options.on_revoked if self._core.is_member else self.options.on_lost or self.options.on_revoked
        await self._call(callback, keys)
        # A commit under way would otherwise be repeated in the member epoch after the handover, and be accepted.
        async with self._commits:
            self._remove(keys)
        self._handle(CallbackDone(self._clock.monotonic_ms()))

    @property
    def _processing(self) -> Mapping[TopicPartition, OffsetCommitted]:
        """Partitions whose returned records are being processed or, with transactions, are not committed yet."""
        return self._unsettled if self._has_transactions else self._returned

    async def _lose(self, keys: list[TopicPartition]) -> None:
        keys = [key for key in keys if key in self._fetching.cursors]
        uncommitted = ", ".join(str(key) for key in keys if key in self._unsettled)
        if uncommitted:
            _log.warning(
                "group %r: the member was removed; records of %s were returned and not committed: they are read again",
                self.options.group_id,
                uncommitted,
            )
        await self._call(self.options.on_lost or self.options.on_revoked, keys)
        self._remove(keys)
        self._handle(CallbackDone(self._clock.monotonic_ms()))

    async def _call(self, callback: PartitionsCallback | None, keys: list[TopicPartition]) -> bool:
        """Call a callback; return whether it returned. An exception is raised by every later poll."""
        if callback is None or not keys:
            return True
        self._callback = asyncio.current_task()
        try:
            outcome = callback(list(keys))
            if isawaitable(outcome):
                await outcome
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises
            self._fail(error)
            if self._is_closing:  # no poll will raise it
                _log.error(
                    "group %r: a callback failed while the consumer closed", self.options.group_id, exc_info=error
                )
            return False
        finally:
            self._callback = None
        return True

    def _fail(self, error: Exception) -> None:
        """Let every later poll raise the error."""
        self.failure = error
        self._changed()

    def _report_absence(self) -> None:
        _log.warning(
            "group %r: the program has not asked for records for %d ms (max_poll_interval_ms): the member leaves, and "
            "others read what it has not committed; it joins again with the next poll. Process fewer records for each "
            "poll, or raise max_poll_interval_ms",
            self.options.group_id,
            self.options.max_poll_interval_ms,
        )

    def _hold(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            cursor = self._fetching.cursors.get(key)
            if cursor is not None:
                cursor.is_held = True

    def _remove(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self._returned.pop(key, None)
            self._stored.pop(key, None)
            is_uncommitted = self._unsettled.pop(key, None) is not None
            if is_uncommitted and not self._core.is_member:
                self._lost.add(key)
            if is_uncommitted or key in self._in_transaction:
                self._given_up[key] = self._is_beyond(key, self._in_transaction)
        self._fetching.remove(keys)
        self._changed()

    # --- commits ------------------------------------------------------------------------------------------------

    async def _commit_regularly(self) -> None:
        while True:
            await self._clock.sleep_ms(self.options.auto_commit_interval_ms)
            if self._core.is_member:
                await self._commit_processed(list(self._fetching.cursors))

    async def _commit_processed(self, keys: Iterable[TopicPartition]) -> None:
        """Commit the processed records that are not committed yet. A failure is logged: the next commit contains them,
        or the next owner reads them again."""

        def due() -> dict[TopicPartition, OffsetCommitted]:
            being_processed = {key: before for key, before in self._returned.items() if key in keys}
            processed = {**self._positions(keys), **being_processed}
            return {key: each for key, each in processed.items() if self._stored.get(key) != each.committed}

        try:
            await self._commit(due)
        except CommitFailed as error:
            _log.info("group %r: %s", self.options.group_id, error.message)
        except TidelogError as error:
            _log.warning(
                "group %r: a commit failed, the next one has its offsets too: %s", self.options.group_id, error.message
            )

    async def _commit(self, choose: Callable[[], dict[TopicPartition, OffsetCommitted]]) -> None:
        """Commit what `choose` returns once all earlier commits are done."""
        async with self._commits:
            offsets = choose()
            await self._offsets.commit(self.options.group_id, offsets, self._committer())
            self._stored.update((key, each.committed) for key, each in offsets.items())
            self._note_committed(offsets)

    def _committer(self) -> Callable[[], GroupMetadata]:
        """Return a function that returns the identity for each attempt of a commit, and raises CommitFailed once the
        present membership has ended (invariant 3)."""
        joins = self._core.joins

        def identity() -> GroupMetadata:
            if joins != self._core.joins:
                raise commit_failed(self.options.group_id, UnknownMemberId("it was fenced and has joined again"))
            return self.metadata()

        return identity

    def _anonymous(self) -> GroupMetadata:
        return GroupMetadata(self.options.group_id)

    def _positions(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetCommitted]:
        cursors = (self._fetching.cursors.get(key) for key in keys)
        found = ((cursor, _position_of(cursor)) for cursor in cursors if cursor is not None)
        return {cursor.topic_partition: position for cursor, position in found if position is not None}

    def _given(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, OffsetCommitted]:
        """The program's offsets. Raises CommitFailed for a partition that the member does not have."""
        given = {}
        for key, offset in offsets.items():
            cursor = self._fetching.cursors.get(key)
            if cursor is None and self.options.is_subscription:
                raise CommitFailed(
                    f"{key} is not assigned to this member of group {self.options.group_id!r}: nothing was committed. "
                    "Another member may read it; commit only what `assignment` has."
                )
            given[key] = OffsetCommitted(offset, None if cursor is None else cursor.topic_id)
        return given


def _position_of(cursor: Cursor) -> OffsetCommitted | None:
    if cursor.position is None:
        return None
    return OffsetCommitted(CommittedOffset(Offset(cursor.position), cursor.position_epoch), cursor.topic_id)
