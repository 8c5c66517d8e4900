"""The consumer: committed records of partitions, in order, starting at the position. The partitions are assigned by the
user, or by a group.

Invariants: no record with a wrong checksum, below the position or of a control batch is returned. The position moves
only over returned records, so a cancelled `poll` or an abandoned loop loses nothing.
Not here: decisions (fetch_core.py), their effects (fetch_client.py), streams (fetch_stream.py), metadata (cluster.py),
membership and commits (group_member.py, group_reader.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime, timedelta
from operator import index
from typing import TYPE_CHECKING, Literal, SupportsIndex, TypeAlias, Unpack

from tidelog.client.arrow_poll import ArrowRows
from tidelog.client.client_metrics import Metrics
from tidelog.client.connection import ClientOptions
from tidelog.client.consumer_record import ConsumerRecord
from tidelog.client.core_events import TimePassed
from tidelog.client.cursor import Cursor
from tidelog.client.fetch_events import FetchPolicy, Sought, Taken
from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.client.group_options import PartitionsCallback, group_options
from tidelog.client.group_reader import GroupReader
from tidelog.client.offset_lookup import OffsetAndTimestamp, find_times, time_in_log, timestamp_of
from tidelog.client.options import (
    at_least,
    seconds,
    text,
    topic_name,
    topic_partition,
    topic_partitions,
    whole_number,
    yes_or_no,
)
from tidelog.client.plausible import plausible_epoch
from tidelog.client.read_committed import IsolationLevel, isolation_of
from tidelog.client.read_hooks import ConsumerInterceptor, read_hooks_of
from tidelog.client.serialization import DESERIALIZERS, DeserializationFailed, SerializerOption, convert_of
from tidelog.errors import InvalidConfig, InvalidRequest, TidelogError
from tidelog.records import RecordBatch
from tidelog.records.arrow_columns import TABLE_COLUMNS
from tidelog.types import (
    EARLIEST,
    INT64_MAX,
    LATEST,
    NO_LEADER_EPOCH,
    NO_NODE,
    ByPartition,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CommittedOffset", "Consumer", "ConsumerRecord", "GroupMetadata", "Place"]

Place: TypeAlias = int | Literal["earliest", "latest"] | datetime
"""An offset, "earliest", "latest", or a time: the first record at or after it."""


class Consumer(GroupReader):
    """Reads committed records. Use it inside `async with`: assign partitions, or subscribe to topics in a group; then
    iterate or poll.

    bootstrap: addresses of some nodes, "host:port,host:port".
    buffer_bytes: limit for all fetched but unread bytes, plus at most one batch per partition.
    fetch_bytes: maximum size of one fetch; with many partitions it is their share of half of `buffer_bytes`.
    max_wait_ms: how long a node may wait for min_bytes.
    request_timeout_ms: timeout of one request.
    check_crcs: verify the checksums of all batches.
    isolation: "read_committed" returns records of committed transactions and non-transactional records, up to the first
    transaction that is still open.
    on_out_of_range: what to do if the position is not in the log: "raise" OffsetOutOfRange, or continue at "earliest"
    or "latest".
    rack: location of the consumer; an in-sync replica in this rack is read instead of a leader elsewhere (KIP-392).

    group: the group whose offsets are committed.
    topics, topic_pattern: subscribe to topics by name or by a regular expression (RE2), which the coordinator matches
    with all topics. The group shares their partitions among its members.
    on_assigned: called with partitions before they are read.
    on_revoked: called with partitions before they are given up.
    on_lost: called instead of on_revoked with partitions that other members own already, because the group removed this
    member.
    auto_commit: commit processed positions every auto_commit_interval_ms, and before partitions are given up. A record
    is processed when the program asks for the next one, or polls again.
    auto_offset_reset: where to begin without a committed offset: "earliest", "latest", "none" (raises
    NoCommittedOffset), or how far back in time: a timedelta, or "by_duration:PT1H".
    instance_id: makes the consumer a static member, whose partitions stay reserved for it while it restarts (KIP-345).
    server_assignor: "uniform" or "range".
    max_poll_interval_ms: a member whose program does not ask for records for this long leaves, and joins again with the
    next poll. The processing of returned records may delay a revocation for as long.

    key_deserializer, value_deserializer: "json", "string", or a function of bytes (or None), or of these and their
    SerializationContext; without one, keys and values are bytes. `poll_arrow` does not use them.
    interceptors: objects that see the records before they are returned, except for `poll_arrow`.

    tls: the files for TLS; None: plain text.
    sasl: the user that the client authenticates as; None: the client does not authenticate.
    client_id: the client's name in quotas and in the nodes' logs.
    transport, clock, rng: for tests; by default those of the system.
    """

    def __init__(
        self,
        bootstrap: str | list[str] | tuple[str, ...],
        *,
        buffer_bytes: int = 64 * 1024 * 1024,
        fetch_bytes: int = 4 * 1024 * 1024,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        request_timeout_ms: int = 30_000,
        check_crcs: bool = True,
        isolation: IsolationLevel = "read_uncommitted",
        on_out_of_range: Literal["raise", "earliest", "latest"] = "raise",
        rack: str = "",
        group: str | None = None,
        topics: Iterable[str] | None = None,
        topic_pattern: str | None = None,
        on_assigned: PartitionsCallback | None = None,
        on_revoked: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        auto_offset_reset: str | timedelta = "earliest",
        instance_id: str | None = None,
        server_assignor: str | None = None,
        max_poll_interval_ms: int = 300_000,
        key_deserializer: SerializerOption = None,
        value_deserializer: SerializerOption = None,
        interceptors: Iterable[ConsumerInterceptor] = (),
        **client: Unpack[ClientOptions],
    ) -> None:
        at_least(1, most=INT64_MAX, buffer_bytes=buffer_bytes)
        at_least(1, fetch_bytes=fetch_bytes, request_timeout_ms=request_timeout_ms)
        at_least(0, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        yes_or_no(check_crcs=check_crcs)
        if on_out_of_range not in ("raise", "earliest", "latest"):
            raise InvalidConfig(f'on_out_of_range={on_out_of_range!r}: use "raise", "earliest" or "latest"')
        super().__init__(
            bootstrap,
            FetchPolicy(buffer_bytes, fetch_bytes, max_wait_ms, request_timeout_ms, on_out_of_range),
            min_bytes=min_bytes,
            isolation=isolation_of(isolation),
            rack=text("rack", rack),
            **client,
        )
        self._check_crcs = check_crcs
        self._hooks = read_hooks_of(
            interceptors,
            convert_of("key_deserializer", key_deserializer, DESERIALIZERS),
            convert_of("value_deserializer", value_deserializer, DESERIALIZERS),
        )
        self._turn: deque[Cursor] = deque()
        self._group = group_options(
            group,
            topics=topics,
            pattern=topic_pattern,
            instance_id=instance_id,
            assignor=server_assignor,
            rack=rack,
            max_poll_interval_ms=max_poll_interval_ms,
            auto_commit=auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            reset=auto_offset_reset,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
        )

    # --- where to read ------------------------------------------------------------------------------------------

    def assign(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        *,
        start: Literal["earliest", "latest"] = "earliest",
    ) -> None:
        """Replace the assignment. New partitions are read from `start` unless `seek` changes it. Partitions that were
        already assigned keep their position."""
        _ = self._cluster
        if self._is_subscribed:
            raise InvalidRequest(
                "the group assigns the partitions: call unsubscribe() first, or create a consumer without topics="
            )
        keys = topic_partitions(partitions)
        self._core.assign(keys, timestamp_of(start))
        self._turn = deque(self._core.cursors.values())
        self._handle(TimePassed(self._clock.monotonic_ms()))
        self._ready.set()

    @property
    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are assigned, by the user or by the group."""
        return list(self._core.cursors)

    def assigned_cursors(self) -> dict[TopicPartition, Cursor]:
        """Return the cursor of each assigned partition. Each assignment makes new ones."""
        return dict(self._core.cursors)

    def assigned_cursor(self, partition: TopicPartition) -> Cursor | None:
        """Return the cursor of a partition, None if it is not assigned."""
        return self._core.cursors.get(partition)

    def pause(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Return no records of these partitions until `resume`; they stay assigned. A partition that is given up and
        assigned again is not paused."""
        for cursor in [self._cursor(partition) for partition in topic_partitions(partitions)]:
            cursor.is_paused, cursor.failing_since = True, None

    def resume(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Return records of these partitions again."""
        for cursor in [self._cursor(partition) for partition in topic_partitions(partitions)]:
            cursor.is_paused = False
        self._handle(TimePassed(self._clock.monotonic_ms()))
        self._ready.set()

    @property
    def paused(self) -> list[TopicPartition]:
        """Return the partitions that `pause` stopped."""
        return [key for key, cursor in self._core.cursors.items() if cursor.is_paused]

    def _partitions_changed(self) -> None:
        self._turn = deque(self._core.cursors.values())
        topics = self._cluster.view.topics
        for key, cursor in list(self._core.cursors.items()):
            if cursor.leader == NO_NODE and key.topic in topics:
                self._handle(self._cluster.leader_known(key, None))
        self._handle(TimePassed(self._clock.monotonic_ms()))
        self._ready.set()

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Query a node for all partitions of a topic, for `assign`. Raises the reason if the topic is not known after
        `request_timeout_ms`; a missing topic is reported after 3 s."""
        timeout_ms = self._policy.request_timeout_ms
        view = await self._cluster.wait_topic(topic_name(topic), timeout_ms=timeout_ms, afresh=True)
        return [TopicPartition(topic, PartitionIndex(index)) for index in range(len(view.partitions))]

    async def seek(
        self, partition: TopicPartition | tuple[str, int], place: Place, *, leader_epoch: int = NO_LEADER_EPOCH
    ) -> Offset:
        """Continue reading from this place; return its offset.

        place: an offset, "earliest", "latest", or an aware datetime: the first record at or after it, or the end if
        there is none. leader_epoch: epoch of the record before the offset, if known from an earlier read. The log is
        then checked for truncation (LogTruncated). Raises the reason if the place cannot be found.
        """
        cursor = self._cursor(partition)
        leader_epoch = whole_number("leader_epoch", leader_epoch, least=NO_LEADER_EPOCH)
        if isinstance(place, SupportsIndex) and not isinstance(place, bool):
            number = index(place)
            if not 0 <= number <= INT64_MAX:
                raise InvalidRequest(f"invalid offset {number}: seek to 0 or above, to 'earliest' or to 'latest'")
            offset = Offset(number)
        else:
            offset = await self._find(cursor.topic_partition, timestamp_of(place))
        at = self._clock.monotonic_ms()
        self._handle(Sought(cursor.topic_partition, offset, LeaderEpoch(leader_epoch), at))
        return offset

    async def position(self, partition: TopicPartition | tuple[str, int]) -> Offset:
        """Return the offset of the next record. Raises the partition's error if it has one."""
        cursor = self._cursor(partition)
        while cursor.position is None:
            if cursor.error is not None:
                raise cursor.error
            _ = self._cluster
            self._ready.clear()
            await self._ready.wait()
        return cursor.position

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None) -> None:
        """Continue reading these partitions, by default all that are assigned, from their first record. One query of
        each leader; raises the reason if a place cannot be found, and then no position has changed."""
        await self._seek_to(EARLIEST, partitions)

    async def seek_to_end(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None) -> None:
        """Continue reading these partitions, by default all that are assigned, after the last record that this consumer
        may read: as `seek_to_beginning`."""
        await self._seek_to(LATEST, partitions)

    async def _seek_to(self, place: Offset, partitions: Iterable[TopicPartition | tuple[str, int]] | None) -> None:
        wanted = self.assignment if partitions is None else topic_partitions(partitions)
        cursors = {key: self._cursor(key) for key in wanted}
        found = await self._list_offsets(dict.fromkeys(wanted, place))
        for key, offset in found.items():
            if self._core.cursors.get(key) is cursors[key]:  # else it was given up, or assigned again, meanwhile
                self._handle(Sought(key, offset, NO_LEADER_EPOCH, self._clock.monotonic_ms()))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> ByPartition[Offset]:
        """Query the leaders for the first offset of each partition's log."""
        return ByPartition(await self._list_offsets(dict.fromkeys(topic_partitions(partitions), EARLIEST)))

    async def offsets_for_times(
        self, times: Mapping[TopicPartition | tuple[str, int], int | datetime]
    ) -> ByPartition[OffsetAndTimestamp | None]:
        """Query the leaders for the first record at or after a time in each partition: milliseconds since 1970, or an
        aware datetime. None where no record is that recent. Raises InvalidTimestamp for a time in seconds."""
        if not isinstance(times, Mapping):
            raise TypeError(f"times must be a mapping of partitions to times, not {type(times).__name__}: {times!r}")
        found = await find_times(
            self._cluster,
            {topic_partition(key): time_in_log(time) for key, time in times.items()},
            timeout_ms=self._policy.request_timeout_ms,
            isolation=self._isolation,
            known=self._known_epoch,
        )
        return ByPartition(found)

    async def end_offsets(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> ByPartition[Offset]:
        """Query the leaders for the end of each partition: one past the last record that this consumer may read."""
        return ByPartition(await self._list_offsets(dict.fromkeys(topic_partitions(partitions), LATEST)))

    def high_watermark(self, partition: TopicPartition | tuple[str, int]) -> Offset | None:
        """Return one past the last committed record, as of the last fetch; None before the first fetch."""
        cursor = self._cursor(partition)
        return cursor.high_watermark if cursor.high_watermark >= 0 else None

    def metrics(self) -> Metrics:
        """Return what the consumer counts, by the groups and names of Kafka's consumers."""
        return self._counts.report(self._core.cursors)

    # --- reading ------------------------------------------------------------------------------------------------

    async def poll(
        self, max_records: int = 10_000, timeout: float = 1.0, *, timeout_ms: int | None = None
    ) -> list[ConsumerRecord]:
        """Return available records, at most `max_records`; wait up to `timeout` seconds for the first one, or up to
        `timeout_ms` milliseconds where that is given.

        Records of one partition are in order. An error of a partition is raised after all records before it were
        returned: OffsetOutOfRange, LogTruncated, InconsistentTopicId (the topic was created again), CorruptRecord.
        Other partitions remain readable; `seek` or `assign` clears the error, a new leader epoch clears CorruptRecord.
        """
        max_records = whole_number("max_records", max_records, least=1)
        timeout = seconds("timeout", timeout)
        if timeout_ms is not None:
            timeout = whole_number("timeout_ms", timeout_ms, least=0) / 1000
        polled: list[ConsumerRecord] = []
        self._step()
        await self._clock.sleep_ms(0)  # other tasks run even if the caller never waits
        cursor = self._ready_cursor(raising=True)
        if cursor is None:
            try:
                async with asyncio.timeout(timeout):
                    cursor = await self._next_cursor()
            except TimeoutError:
                return polled
        while cursor is not None and len(polled) < max_records:
            records = cursor.records[cursor.at : cursor.at + max_records - len(polled)]
            if self._hooks is not None:
                try:
                    records = self._hooks.deserialize(records)
                except DeserializationFailed:
                    if polled:
                        break  # the next calls raise it: these records come first
                    raise
            self._returning(cursor)
            cursor.at += len(records)
            polled += records
            self._moved(cursor, Offset(records[-1].offset + 1))
            cursor = self._ready_cursor(raising=False)  # an error is raised by the next call: these records come first
        return polled if self._hooks is None else self._hooks.intercept(polled)

    async def poll_arrow(
        self,
        max_records: int = 100_000,
        timeout: float = 1.0,
        *,
        max_bytes: int = 32 * 1024 * 1024,
        columns: Iterable[str] = TABLE_COLUMNS,
    ) -> pa.RecordBatch:
        """Return available records as a pyarrow.RecordBatch; wait up to `timeout` seconds for the first one. No record
        within that time: a batch without rows. Needs pyarrow: `pip install 'tidelog[arrow]'`.

        max_bytes: bound of all keys, values and headers; the last record batch may exceed it. columns: names of
        TABLE_COLUMNS, which are those of the Spark source, and `timestampMs`, in the order of the result; only these
        are built. `timestamp` is null for a record without one, and outside the years 1 to 9999; `timestampMs` is the
        number in the log, -1 for none. Order, position, transactions and errors are as for `poll`, which may be called
        in turn with this method. Raises InvalidRequest for an unknown column or without pyarrow.
        """
        max_records = whole_number("max_records", max_records, least=1)
        max_bytes = whole_number("max_bytes", max_bytes, least=1)
        timeout = seconds("timeout", timeout)
        columns = tuple(columns)
        rows = ArrowRows(columns, check_crcs=self._check_crcs, max_records=max_records, max_bytes=max_bytes)
        self._step()
        await self._clock.sleep_ms(0)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    self._ready.clear()
                    table = self._read_rows(rows)
                    if table.num_rows:
                        return table
                    await self._wait_ready()
        except TimeoutError:
            return rows.take()[0]

    def _read_rows(self, rows: ArrowRows) -> pa.RecordBatch:
        """Return the buffered records of all partitions, each in its turn, and move the cursors past them."""
        self._ensure_assigned()
        rows.expect(sum(cursor.buffered for cursor in self._turn))
        failed: Cursor | None = None
        for _ in range(len(self._turn)):
            cursor = self._turn[0]
            self._turn.rotate(-1)
            if cursor.is_stopped:
                continue
            cursor.unload()
            while cursor.batches and (refused := rows.add(cursor)) is not None:
                batch, error = refused
                cursor.buffered -= cursor.batches.popleft().size
                self._refuse(cursor, batch, error)
            if not cursor.batches and cursor.error is not None and failed is None:
                failed = cursor
                if not rows.rows:
                    break
            if rows.is_full:
                break
        table, moved = rows.take(self._returning)
        at = self._clock.monotonic_ms()
        for cursor in moved:
            self._core.read(cursor)
            self._handle(Taken(cursor.topic_partition, at))
        if failed is not None:
            if not table.num_rows and failed.error is not None:
                raise failed.error
            self._ready.set()
            while self._turn[0] is not failed:  # its error is raised by the next call
                self._turn.rotate(-1)
        return table

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Yield all records from the positions on, without end."""
        self._step()
        while True:
            await self._clock.sleep_ms(0)
            cursor = await self._next_cursor()
            member = self._member_or_none  # another one after `unsubscribe` and `subscribe`
            while cursor.at < len(cursor.records) and not cursor.is_stopped:  # a seek clears the list
                record = cursor.records[cursor.at]
                returned = [record]
                if self._hooks is not None:
                    returned = self._hooks.intercept(self._hooks.deserialize(returned))
                if member is not None:
                    member.returning(cursor)
                cursor.at += 1
                self._moved(cursor, Offset(record.offset + 1))
                for each in returned:
                    yield each
                if member is not None:
                    member.step()

    async def _next_cursor(self) -> Cursor:
        """Return the next cursor with records, round-robin."""
        while True:
            self._ready.clear()
            cursor = self._ready_cursor(raising=True)
            if cursor is not None:
                return cursor
            await self._wait_ready()

    async def _wait_ready(self) -> None:
        """Wait until a cursor may have records."""
        if self._member_or_none is None:
            await self._ready.wait()
            return
        # A program that waits for records is not absent: its member must not leave the group.
        with self._member_or_none.waiting():
            await self._ready.wait()

    def _returning(self, cursor: Cursor) -> None:
        """Note for the group that records of the cursor are about to be returned."""
        if self._member_or_none is not None:
            self._member_or_none.returning(cursor)

    def _ensure_assigned(self) -> None:
        _ = self._cluster
        if self._is_subscribed:
            failure = self._member.failure
            if failure is not None:
                raise failure
        elif not self._core.cursors:
            raise InvalidRequest("no partitions are assigned: call assign or subscribe first")

    def _ready_cursor(self, *, raising: bool) -> Cursor | None:
        self._ensure_assigned()
        for _ in range(len(self._turn)):
            cursor = self._turn[0]
            self._turn.rotate(-1)
            if cursor.is_stopped:
                continue
            while cursor.at >= len(cursor.records) and cursor.batches:
                self._load(cursor)
            if cursor.at < len(cursor.records):
                return cursor
            if cursor.error is not None:
                if raising:
                    raise cursor.error
                self._ready.set()
        return None

    def _load(self, cursor: Cursor) -> None:
        """Decode the next batch of the cursor, or refuse it."""
        assert cursor.position is not None, "nothing is fetched before the position is known"
        start, key = cursor.position, cursor.topic_partition
        batch = cursor.batches.popleft()
        cursor.buffered -= batch.size
        try:
            if self._check_crcs:
                batch.ensure_valid()
            epoch = plausible_epoch(batch, cursor.position_epoch, cursor.leader_epoch)
            records = (
                []
                if batch.is_control
                else batch.located_records(ConsumerRecord, key.topic, key.partition, start, epoch)
            )
        except TidelogError as error:
            self._refuse(cursor, batch, error)
            return
        self._core.read(cursor)
        cursor.records, cursor.loaded, cursor.at = records, batch, 0
        cursor.records_end, cursor.records_epoch = batch.next_offset, epoch
        if not records:
            self._moved(cursor, batch.next_offset)
        self._handle(Taken(cursor.topic_partition, self._clock.monotonic_ms()))

    def _moved(self, cursor: Cursor, offset: Offset) -> None:
        """Move the position of a cursor to `offset` after its records were returned."""
        if cursor.at < len(cursor.records):
            cursor.position = offset
        else:  # past the offset gaps at the end of the batch: no record will come from there
            cursor.position, cursor.loaded = cursor.records_end, None
        cursor.position_epoch = cursor.records_epoch

    def _how_to_skip(self, batch: RecordBatch) -> str:
        return f"Seek to the offset after {batch.last_offset} to skip the batch."

    def _cursor(self, partition: TopicPartition | tuple[str, int]) -> Cursor:
        key = topic_partition(partition)
        cursor = self._core.cursors.get(key)
        if cursor is None:
            raise InvalidRequest(f"{key} is not assigned to this consumer: assign it first")
        return cursor
