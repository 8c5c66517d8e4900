"""Committed offsets of a group: commit and fetch.

Invariants: a commit that returns is stored by the coordinator; the error of one that raises says whether it may be
stored. Nothing is committed for a fenced member: each attempt carries the member's present epoch, which the coordinator
compares.
Not here: the choice and the order of commits (group_member.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidelog.client.coordinators import CoordinatorKind, Coordinators, is_not_handled, may_be_applied
from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.errors import (
    CommitFailed,
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    RebalanceInProgress,
    Retry,
    StaleMemberEpoch,
    TidelogError,
    UnknownMemberId,
    UnknownServerError,
)
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message, write_message
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import groups_pb2
from tidelog.types import Offset, TopicId, TopicPartition

GROUP: Final = CoordinatorKind.GROUP
_FENCED: Final = (FencedMemberEpoch, UnknownMemberId, FencedInstanceId, IllegalGeneration, RebalanceInProgress)


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """A committed offset and the incarnation of the topic for which it was committed, if known."""

    committed: CommittedOffset
    topic_id: TopicId | None = None


class GroupOffsets:
    """Commits and fetches offsets of groups. timeout_ms: of one call."""

    def __init__(self, coordinators: Coordinators, timeout_ms: int) -> None:
        self._coordinators, self._timeout_ms = coordinators, timeout_ms
        self._known: dict[tuple[str, TopicPartition], Offset] = {}
        """The highest offset of each partition that was fetched or sent, by group."""

    def note_sent(self, group_id: str, offsets: Mapping[TopicPartition, OffsetCommitted]) -> None:
        """Note that these offsets may be committed from now on, even if the request or the transaction fails."""
        for key, each in offsets.items():
            self._know(group_id, key, each)

    def _know(self, group_id: str, key: TopicPartition, offset: OffsetCommitted | None) -> None:
        value = Offset(-1) if offset is None else offset.committed.offset
        self._known[group_id, key] = max(value, self._known.get((group_id, key), value))

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetCommitted],
        committer: Callable[[], GroupMetadata],
    ) -> None:
        """Commit the offsets. committer: returns the identity for an attempt, or raises the error of the commit.

        Raises CommitFailed if the committer was fenced, and nothing was committed; OffsetMetadataTooLarge,
        UnknownTopicOrPartition, GroupAuthorizationFailed, TopicAuthorizationFailed for the first partition that is
        refused: others may be committed; the last error after the timeout, and then it is unknown.
        """
        if not offsets:
            return
        partitions = [
            offset_to_commit(key, offset, self._known.get((group_id, key))) for key, offset in offsets.items()
        ]
        self.note_sent(group_id, {key: each for key, each in offsets.items() if (group_id, key) in self._known})
        was_member = True

        def request() -> groups_pb2.OffsetCommitRequest:
            nonlocal was_member
            who = committer()
            was_member = bool(who.member_id)
            return groups_pb2.OffsetCommitRequest(
                group_id=group_id,
                member_id=who.member_id,
                member_epoch=who.member_epoch,
                instance_id=who.instance_id,
                partitions=partitions,
            )

        retries = self._coordinators.retries(self._timeout_ms)
        while True:
            try:
                answer = await self._coordinators.call(
                    GROUP,
                    group_id,
                    methods.GROUPS_OFFSET_COMMIT,
                    request,
                    error_of=_commit_error,
                    timeout_ms=retries.left_ms,
                )
            except (*_FENCED, StaleMemberEpoch) as refusal:  # the whole request was refused
                error: TidelogError | None = refusal
            else:
                _ensure_complete(offsets, [read_message(TopicPartition, each) for each in answer.partitions])
                error = _refusal(group_id, answer)
            if error is None:
                return
            if isinstance(error, _FENCED):
                raise commit_failed(group_id, error, was_member=was_member)
            if error.retry is not Retry.LATER:
                raise error
            await retries.pause(error)

    async def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        committer: Callable[[], GroupMetadata],
        *,
        require_stable: bool,
    ) -> dict[TopicPartition, OffsetCommitted | None]:
        """Return the committed offset of each partition; None where there is none. partitions: None for all that have
        one. require_stable: wait until no open transaction may change an offset.

        Raises CommitFailed if the member was fenced, GroupAuthorizationFailed, TopicAuthorizationFailed; the last error
        after the timeout.
        """
        wanted = [] if partitions is None else list(partitions)
        named = None if partitions is None else [write_message(groups_pb2.NamedPartition, key) for key in wanted]

        def request() -> groups_pb2.OffsetFetchRequest:
            who = committer()
            return groups_pb2.OffsetFetchRequest(
                group_id=group_id,
                member_id=who.member_id,
                member_epoch=who.member_epoch,
                partitions=None if named is None else groups_pb2.NamedPartitions(partitions=named),
                require_stable=require_stable,
            )

        retries = self._coordinators.retries(self._timeout_ms)
        while True:
            try:
                answer = await self._coordinators.call(
                    GROUP,
                    group_id,
                    methods.GROUPS_OFFSET_FETCH,
                    request,
                    error_of=_fetch_error,
                    timeout_ms=retries.left_ms,
                )
                found = {read_message(TopicPartition, each): _committed_of(each) for each in answer.partitions}
                if named is not None:
                    _ensure_complete(wanted, found)
                for key, each in found.items():
                    self._know(group_id, key, each)
                return found
            except _FENCED as error:
                raise commit_failed(group_id, error) from error
            except TidelogError as error:
                if error.retry is not Retry.LATER:
                    raise
                await retries.pause(error)


def commit_failed(group_id: str, cause: TidelogError, *, was_member: bool = True) -> CommitFailed:
    """Return the error of a commit by a member that no longer owns the partitions, or by a program that is no member
    while the group has members."""
    why = cause.message.rstrip(".")
    failed = CommitFailed(
        f"no offset was committed for group {group_id!r}: this consumer is not the member that it was ({why}). Other "
        "members may read its records again; discard what depends on the commit."
        if was_member and not isinstance(cause, IllegalGeneration)
        else f"no offset was committed for group {group_id!r}: {why}."
    )
    failed.__cause__ = cause
    return failed


def _refusal(group_id: str, answer: groups_pb2.OffsetCommitResponse) -> TidelogError | None:
    """Return why partitions were not committed, None if all were. If there are several reasons: that the committer was
    fenced, else an error that a repetition does not change."""
    refused = [(each, error) for each in answer.partitions if (error := error_of(each))]
    fenced = next((error for _, error in refused if isinstance(error, _FENCED)), None)
    if fenced is not None or not refused:
        return fenced
    place, cause = next((found for found in refused if found[1].retry is not Retry.LATER), refused[0])
    error = type(cause)(
        f"the offset of {place.topic}-{place.partition} was not committed for group {group_id!r}: {cause.message}"
    )
    error.__cause__ = cause
    return error


def _ensure_complete(asked: Iterable[TopicPartition], answered: Iterable[TopicPartition]) -> None:
    """Raise UnknownServerError if the answer lacks a partition, which would look like one without an offset."""
    missing = set(asked) - set(answered)
    if missing:
        raise UnknownServerError(
            f"the coordinator did not answer about {', '.join(map(str, sorted(missing)))}: see the log of its node"
        )


def offset_to_commit(
    key: TopicPartition, offset: OffsetCommitted, known: Offset | None = None
) -> groups_pb2.OffsetToCommit:
    """Return the message of an offset. known: the highest offset that was fetched or sent before, if there is one."""
    return groups_pb2.OffsetToCommit(
        topic=key.topic,
        topic_id=None if offset.topic_id is None else offset.topic_id.bytes,
        partition=key.partition,
        offset=offset.committed.offset,
        leader_epoch=offset.committed.leader_epoch,
        metadata=offset.committed.metadata,
        known_offset=known,
    )


def _committed_of(message: groups_pb2.FetchedOffset) -> OffsetCommitted | None:
    if message.offset < 0:
        return None
    committed = read_message(CommittedOffset, message)
    return OffsetCommitted(committed, TopicId(UUID(bytes=message.topic_id)) if message.topic_id else None)


def _commit_error(answer: groups_pb2.OffsetCommitResponse) -> TidelogError | None:
    """The error of a partition for which the whole request is sent again, possibly to another node; None: none."""
    errors = map(error_of, answer.partitions)
    return next((error for error in errors if error and (is_not_handled(error) or may_be_applied(error))), None)


def _fetch_error(answer: groups_pb2.OffsetFetchResponse) -> TidelogError | None:
    return next(filter(None, map(error_of, answer.partitions)), None)
