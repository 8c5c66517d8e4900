"""The part of Consumer about its group: the subscription, commits, the positions of transactions.

Not here: membership itself (group_member.py), reading (consumer.py).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidelog.client.fetch_client import FetchClient
from tidelog.client.fetch_events import Sought
from tidelog.client.group_member import GroupMember
from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.client.group_offsets import OffsetCommitted
from tidelog.client.group_options import GroupOptions, PartitionsCallback, with_subscription
from tidelog.client.options import offsets_to_commit, topic_partitions
from tidelog.errors import CommitFailed, InvalidRequest, TidelogError
from tidelog.types import ByPartition, TopicPartition


class GroupReader(FetchClient):
    """A reader whose positions may belong to a group."""

    _group: GroupOptions | None
    """None: the consumer has no group."""
    _member_or_none: GroupMember | None = None

    @abstractmethod
    def _partitions_changed(self) -> None:
        """Called after the group has changed the assignment, or has permitted or forbidden to read partitions."""

    def _background(self) -> dict[str, Coroutine[Any, Any, None]]:
        tasks = super()._background()
        if self._group is not None:
            tasks.update(self._new_member(self._group).background())
        return tasks

    def _new_member(self, group: GroupOptions) -> GroupMember:
        member = self._member_or_none = GroupMember(
            group,
            self._cluster,
            self._core,
            self._rng,
            timeout_ms=self._policy.request_timeout_ms,
            changed=self._partitions_changed,
            spawn=self._spawn,
        )
        return member

    def _on_metadata(self, failure: TidelogError | None) -> None:
        super()._on_metadata(failure)
        if self._member_or_none is not None:
            self._member_or_none.note_metadata(failure)

    async def __aexit__(self, kind: object = None, *_: object) -> None:
        if kind is None:
            self._step()
        await self.close()

    async def close(self, *, leave_group: bool = False) -> None:
        """Commit processed records, call on_revoked, leave the group, stop.

        leave_group: also give up the place of a static member, which otherwise stays reserved for its next start until
        its session times out. After an `async with` block that ends without an error, all returned records count as
        processed. Calls that wait raise InvalidRequest. Raises InvalidRequest in a callback of this consumer.
        """
        if not self._can_close():
            return
        member = self._member_or_none
        if member is not None:
            member.ensure_may_close()
        try:
            if member is not None and self._root is not None and not self._closed:
                await member.close(for_good=leave_group)
        finally:
            await super().close()

    def _on_end(self) -> None:
        if self._member_or_none is not None:
            self._member_or_none.abandon()

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        topic_pattern: str | None = None,
        on_assigned: PartitionsCallback | None = None,
        on_revoked: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
    ) -> None:
        """Replace the subscription: from now on the group assigns partitions of these topics. A member stays one, and
        keeps the partitions that both subscriptions have; a consumer that is none joins its group. The arguments are
        those of the constructor; a callback that is not given stays as it was.

        Raises InvalidRequest without a group, while partitions are assigned by `assign` (`unsubscribe` ends that), and
        while `unsubscribe` runs; TypeError, InvalidConfig, InvalidTopic.
        """
        current = self._member.options
        if not current.is_subscription and self._core.cursors:
            raise InvalidRequest("partitions are assigned by assign(): call unsubscribe() before subscribe()")
        group = with_subscription(current, topics, topic_pattern, on_assigned, on_revoked, on_lost)
        if current.is_subscription:
            self._member.resubscribe(group)
            self._group = group
            return
        self._group = group
        for name, work in self._new_member(group).background().items():
            self._spawn(work, name)

    async def unsubscribe(self) -> None:
        """Give up all partitions. A member commits what is processed, calls on_revoked and leaves its group; its
        consumer can still commit and fetch offsets, `assign` partitions, or `subscribe` again. Raises InvalidRequest in
        a callback of this consumer."""
        member = self._member_or_none
        if member is not None and member.options.is_subscription:
            member.ensure_may_close()
            await member.close(for_good=False)
            self._group = replace(member.options, topics=(), pattern="")
            self._new_member(self._group)
        self._core.assign([], "earliest")
        self._partitions_changed()

    async def commit(
        self, offsets: Mapping[TopicPartition | tuple[str, int], int | CommittedOffset] | None = None
    ) -> None:
        """Commit the offsets of the next records to read; without arguments the positions of all assigned partitions:
        everything that was returned counts as processed.

        Returns once the offsets are stored. Raises CommitFailed if the member does not have a partition, or was fenced
        since it returned records that are not committed, even if it has joined again: nothing was committed, and the
        records that it has returned since it joined again are returned once more. Raises OffsetMetadataTooLarge,
        UnknownTopicOrPartition, GroupAuthorizationFailed, TopicAuthorizationFailed for a partition (others may be
        committed); RequestTimedOut, ConnectionFailed and CoordinatorNotAvailable after `request_timeout_ms`, when the
        outcome is unknown.

        A cancelled call is not repeated, but a request that it has sent may still be applied, unless it arrives after a
        later commit of this member, or after the member was replaced.
        """
        checked = None if offsets is None else offsets_to_commit(offsets)
        try:
            await self._member.commit(checked)
        except CommitFailed:
            self._return_again(self._member.returned_since_loss(checked))
            raise

    async def committed(
        self, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> ByPartition[CommittedOffset | None]:
        """Return the committed offset of each partition; None where there is none. Raises GroupAuthorizationFailed,
        TopicAuthorizationFailed; the last error after `request_timeout_ms`."""
        return ByPartition(await self._member.committed(topic_partitions(partitions)))

    def group_metadata(self) -> GroupMetadata:
        """Return the group and the member, for the offsets of a transaction. Raises CommitFailed if the consumer is not
        a member now."""
        return self._member.metadata()

    def offsets_to_commit(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the positions of all assigned partitions, as `commit()` would store them."""
        return self._member.positions()

    def transaction_offsets(self) -> tuple[GroupMetadata, dict[TopicPartition, OffsetCommitted]]:
        """Return the member and the positions of all assigned partitions, for `Transaction.send_offsets`. Raises
        CommitFailed if records were returned of partitions that now belong to another member, InvalidRequest if the
        consumer commits by itself."""
        return self._member.transaction_offsets()

    def transaction_member(self) -> GroupMetadata:
        """Return the consumer's present identity in its group. Raises CommitFailed if it has given up a partition of
        which `transaction_offsets` returned the position."""
        return self._member.transaction_member()

    def transaction_committed(self) -> None:
        """Note that a transaction has committed the positions that `transaction_offsets` returned."""
        self._member.transaction_committed()

    async def rewind(self) -> None:
        """Go back to the last committed positions, after an aborted transaction: the records since then are returned
        again. Needs a group and auto_commit=False. Partitions that now belong to another member are read there."""
        self._return_again(self._member.rewind())

    def _return_again(self, positions: Mapping[TopicPartition, OffsetCommitted]) -> None:
        for key, position in positions.items():
            if key in self._core.cursors:
                committed = position.committed
                at = self._clock.monotonic_ms()
                self._handle(Sought(key, committed.offset, committed.leader_epoch, at))

    @property
    def _member(self) -> GroupMember:
        _ = self._cluster
        if self._member_or_none is None:
            raise InvalidRequest('the consumer has no group: create it with group="..."')
        return self._member_or_none

    @property
    def _is_subscribed(self) -> bool:
        return self._group is not None and self._group.is_subscription

    def _step(self) -> None:
        """Note that the program asks for more records: all that were returned are processed."""
        if self._member_or_none is not None:
            self._member_or_none.step()
