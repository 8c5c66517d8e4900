"""The transaction of a producer as applications use it: `async with producer.transaction() as txn`.

Not here: the beginning and the end of a transaction (transactions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from tidelog.client.batch_delivery import BatchDelivery
from tidelog.client.delivery import Delivery, OnDelivery
from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.client.group_offsets import OffsetCommitted
from tidelog.client.many_records import NO_HEADERS, RecordColumns
from tidelog.client.options import text, topic_partition, whole_number
from tidelog.client.record_sender import RecordSender
from tidelog.client.transaction_core import PreparedTransaction
from tidelog.client.transactions import ProducerTransactions
from tidelog.errors import CommitFailed, InvalidTxnState, TidelogError
from tidelog.records.v2.record import Header
from tidelog.types import INT64_MAX, Offset, ProducerId, TopicPartition


class OffsetSource(Protocol):
    """A consumer with a group."""

    def transaction_offsets(self) -> tuple[GroupMetadata, Mapping[TopicPartition, OffsetCommitted]]:
        """Return who the consumer is in its group, and its positions. Raises CommitFailed, InvalidRequest."""
        ...

    def transaction_committed(self) -> None:
        """The transaction with these positions is committed."""
        ...


@runtime_checkable
class MemberSource(OffsetSource, Protocol):
    """A consumer whose identity may change between two attempts."""

    def transaction_member(self) -> GroupMetadata:
        """Return the consumer's present identity, for one more attempt. Raises CommitFailed if it has given up
        partitions that it has read."""
        ...


class TakenOffsets:
    """The positions of a consumer at one moment."""

    def __init__(self, source: OffsetSource) -> None:
        self._refusal: CommitFailed | None = None
        self._offsets: Mapping[TopicPartition, OffsetCommitted] = {}
        self._group = GroupMetadata("")
        try:
            self._group, self._offsets = source.transaction_offsets()
        except CommitFailed as error:
            self._refusal = error

    def transaction_offsets(self) -> tuple[GroupMetadata, Mapping[TopicPartition, OffsetCommitted]]:
        """Return, or raise, what the consumer returned or raised at that moment."""
        if self._refusal is not None:
            raise self._refusal
        return self._group, self._offsets

    def transaction_committed(self) -> None:
        """Do nothing: the caller notifies the consumer."""


class Transaction(RecordSender):
    """Records and offsets that become visible together, or never. Leaving the block commits; an exception aborts.

    The methods send in the same way as those of the producer; records that the producer itself sends belong to the open
    transaction as well. In a loop, use `enqueue` instead of `send`: the end of the block waits for all records.
    Consumers with read_committed see the records after the commit, all others at once.

    Leaving the block raises TransactionAborted if a part of the transaction failed; that failure is its cause, also if
    it left the block itself. Other exceptions leave the block unchanged. ProducerFenced: another producer has taken
    over; close this one. TransactionOutcomeUnknown: close this producer; the message says how to continue.
    """

    def __init__(self, producer: RecordSender, transactions: ProducerTransactions) -> None:
        self._producer, self._transactions = producer, transactions
        self.hooks = producer.hooks
        self._is_open = False
        self._was_opened = False
        self._source: OffsetSource | None = None
        """The consumer whose positions are committed with the transaction."""

    async def __aenter__(self) -> Self:
        if self._was_opened:
            raise InvalidTxnState("the transaction was opened before: each block needs a transaction() of its own")
        await self._transactions.begin()
        self._is_open = self._was_opened = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if error is None:
            await self._transactions.commit()
            if self._source is not None:
                self._source.transaction_committed()
            return
        reason = await self._transactions.abort()
        if reason is not None and isinstance(error, TidelogError) and error.message != reason.message:
            raise reason from error

    @property
    def is_open(self) -> bool:
        """Whether the block was entered, and is neither left nor aborted."""
        return self._is_open

    @property
    def identity(self) -> tuple[ProducerId, int]:
        """The producer's id and epoch: those of this transaction while it is open, those of the next one afterwards."""
        return self._transactions.identity

    async def abort(self) -> None:
        """Abort the transaction; the rest of its block must send nothing. None of its records becomes visible to
        read_committed consumers, even if no coordinator can be reached at the moment."""
        self._ensure_open()
        self._is_open = False
        await self._transactions.abort()

    async def prepare(self) -> PreparedTransaction:
        """Send all queued records, and leave the transaction open for another process, which commits or aborts it with
        `Admin.end_prepared_transaction`. The rest of the block must send nothing, and the producer must be closed after
        it.

        All records and offsets are written when this returns. The transaction timeout still applies: the transaction
        must be ended before. Raises TransactionAborted, ProducerFenced; InvalidTxnState if nothing was sent.
        Source: KIP-939, for transactions with a timeout.
        """
        self._ensure_open()
        prepared = await self._transactions.prepare()
        self._is_open = False
        return prepared

    async def committed_offsets(
        self, group: str, *, require_stable: bool = True
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group without members. They include the offsets of earlier transactions of
        this transactional id: the coordinator has ended these before the block began.

        require_stable: wait until no open transaction may change an offset (KIP-447). Raises GroupAuthorizationFailed,
        TopicAuthorizationFailed; the last error after `max_block_ms`.
        """
        self._ensure_open()
        return await self._transactions.committed_offsets(text("group", group), require_stable=require_stable)

    async def enqueue(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Iterable[Header] = NO_HEADERS,
        partition: int | None = None,
        timestamp: int | None = None,
        *,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Queue one record, as `Producer.enqueue`. Its delivery need not be awaited: a failure ends the transaction.

        A call that raises has queued nothing. Let its error leave the block, which aborts: a block that goes on commits
        the rest, and the offsets of its source, without that record.
        """
        self._ensure_open()
        return await self._producer.enqueue(topic, value, key, headers, partition, timestamp, on_delivery=on_delivery)

    async def enqueue_columns(self, topic: str, columns: RecordColumns) -> BatchDelivery:
        """Queue many records that are checked already; see `enqueue_many`."""
        self._ensure_open()
        return await self._producer.enqueue_columns(topic, columns)

    async def flush(self) -> None:
        """Send all queued records, as `Producer.flush`. Leaving the block does it as well."""
        self._ensure_open()
        await self._producer.flush()

    async def send_offsets(
        self,
        source: OffsetSource | Mapping[TopicPartition | tuple[str, int], int | CommittedOffset],
        group: GroupMetadata | str | None = None,
    ) -> None:
        """Commit offsets of a consumer group with the transaction (KIP-447): its input counts as read if and only if
        its output is visible. Returns when the group's coordinator has stored them.

        source: a consumer with a group and auto_commit=False. Its positions are committed: all records that it has
        returned count as read. A member that has lost its partitions is refused. Or the offset of the next record for
        each partition, with `group`: the metadata of a member, or the id of a group without members. Raises
        TransactionAborted with the refusal as its cause, ProducerFenced.
        """
        self._ensure_open()
        member: Callable[[], GroupMetadata] | None = None
        offsets: Mapping[TopicPartition, OffsetCommitted]
        if isinstance(source, Mapping):
            metadata, offsets = _checked(source, group)
        else:
            if group is not None or not hasattr(source, "transaction_offsets"):
                raise TypeError(
                    "send_offsets needs a consumer with a group, or a mapping of offsets and a group, not "
                    f"{type(source).__name__} and {group!r}"
                )
            try:
                metadata, offsets = source.transaction_offsets()
            except CommitFailed as error:
                self._transactions.fail(error)
                raise self._transactions.refusal() from error
            self._source = source
            if isinstance(source, MemberSource):
                member = source.transaction_member
        if offsets:
            await self._transactions.add_offsets(metadata, offsets, member)

    def _ensure_open(self) -> None:
        if not self._is_open:
            raise InvalidTxnState("the transaction has ended, or was not entered: use it inside its `async with` block")


def _checked(
    offsets: Mapping[TopicPartition | tuple[str, int], int | CommittedOffset], group: object
) -> tuple[GroupMetadata, dict[TopicPartition, OffsetCommitted]]:
    """Return the arguments of `send_offsets`. Raises TypeError, InvalidRequest."""
    if isinstance(group, str):
        group = GroupMetadata(text("group", group))
    if not isinstance(group, GroupMetadata):
        raise TypeError(f"offsets need a group: the id of one, or the metadata of a member, not {group!r}")
    return group, {topic_partition(key): _offset(key, offset) for key, offset in offsets.items()}


def _offset(key: object, offset: object) -> OffsetCommitted:
    if isinstance(offset, CommittedOffset):
        return OffsetCommitted(offset)
    number = whole_number(f"the offset of {key}", offset, least=0, most=INT64_MAX)
    return OffsetCommitted(CommittedOffset(Offset(number)))
