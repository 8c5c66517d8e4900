"""`tidelog consume`: prints the records of topics, or those that a member of a group reads."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypeAlias

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall, administrator, declared_on_cluster
from tidelog.cli.declared import Argument, Option
from tidelog.cli.interrupts import Terminated, run_until_signal
from tidelog.cli.matching_topics import patterns_of, topics_of
from tidelog.cli.output import counted, printed_warnings
from tidelog.cli.read_range import RangeOptions
from tidelog.cli.record_text import compiled_format, record_as_json
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer, ConsumerRecord, Place
from tidelog.clock import MachineClock
from tidelog.cluster_connection import ClusterConnection
from tidelog.errors import InvalidRequest, OffsetOutOfRange, TidelogError, UnsupportedVersion
from tidelog.printable import shell_word
from tidelog.standard_streams import is_output_read, say
from tidelog.types import Offset, PartitionIndex, TopicPartition

PIPE_PAUSE_MS: Final = 2
"""Interval of checks whether the reader of a pipe has read everything."""
UNASSIGNED_POLLS_MAX: Final = 15
"""Polls of a second each after which a member of a group that has no partition gives up."""
POLL_S: Final = 1.0
POLL_RECORDS: Final = 10_000

Write: TypeAlias = Callable[[list[ConsumerRecord]], None]


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """What is read, and how it is printed."""

    regex: Annotated[
        bool, Option("--regex", "-r", help="Topics are regular expressions over whole names (in a group: RE2).")
    ] = False
    partition: Annotated[list[int] | None, Option("--partition", "-p", help="Only these partitions.")] = None
    most: Annotated[int | None, Option("--max", "-n", min=1, help="Stop after this number of records.")] = None
    output_format: Annotated[
        str | None,
        Option(
            "--format",
            "-f",
            help="Print records as kcat does: %t topic, %p partition, %o offset, %T time in ms, %k key, %s value, "
            r"%h headers, %K %S lengths, %R length as 4 bytes; with escapes. For example '%t[%p]@%o %k %s\n'.",
            yields_to=("keys", "as_json"),
        ),
    ] = None
    keys: Annotated[
        bool, Option("--keys", help="Print key and a tab before each value.", yields_to=("output_format", "as_json"))
    ] = False
    null: Annotated[str, Option(help="Print this for a key or value that is null.")] = ""
    isolation: Annotated[
        Literal["read_uncommitted", "read_committed"],
        Option(help="read_committed: leave out what a transaction aborted, stop at one that is open."),
    ] = "read_uncommitted"

    def writer(self, *, as_json: bool) -> Write:
        """A function that prints records. Raises WrongUsage."""
        if sum((self.output_format is not None, self.keys, as_json)) > 1:
            raise WrongUsage("--format, --keys and --json each say how records are printed: pass one of them")
        if as_json:
            return _write_json
        null = self.null.encode("utf-8", "surrogateescape")
        text = self.output_format or (r"%k\t%s\n" if self.keys else r"%s\n")
        form = compiled_format(text, null)

        def write(records: list[ConsumerRecord]) -> None:
            sys.stdout.buffer.write(b"".join([form(record) for record in records]))
            sys.stdout.buffer.flush()

        return write


def consume(
    call: CommandCall,
    reading: ReadingOptions,
    span: RangeOptions,
    topics: Annotated[list[str], Argument(metavar="TOPIC...", help="Names of topics.")],
    group: Annotated[
        str | None, Option("--group", "-g", help="Read as a member of this group, and commit what was printed.")
    ] = None,
    client_id: Annotated[str, Option(help="Name of this client, for quotas and the logs of the nodes.")] = "",
) -> None:
    """Print committed records, one per line, up to the present end. With --group, those of the partitions that the
    group assigns, from the committed offsets on; --from counts where none is committed."""
    connection = replace(call.connection, client_id=client_id)
    printer = Printer(reading.writer(as_json=call.as_json), reading.most)
    span.checked()
    if reading.regex and group is None:
        patterns_of(topics)
    if group is None:
        span.ensure_consistent(len(reading.partition) if reading.partition and len(topics) == 1 else None)
        work = _consume(connection, reading, span, topics, printer)
    else:
        span.ensure_for_group(group, has_partitions=reading.partition is not None)
        work = _consume_as_member(connection, group, reading, span, topics, printer)
    try:
        with printed_warnings():
            run_until_signal(work)
    except (TidelogError, KeyboardInterrupt, Terminated):
        if printer.count and not call.as_json:
            say(counted(printer.count, "record"))
        raise
    if not call.as_json:
        say(counted(printer.count, "record"))


def _write_json(records: list[ConsumerRecord]) -> None:
    sys.stdout.write("".join([record_as_json(record) for record in records]))
    sys.stdout.flush()


class Printer:
    """Prints records and counts them."""

    def __init__(self, write: Write, most: int | None) -> None:
        self._write, self._most = write, most
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether no more records are wanted."""
        return self._most is not None and self.count >= self._most

    @property
    def room(self) -> int:
        """How many records to ask for."""
        return POLL_RECORDS if self._most is None else min(POLL_RECORDS, self._most - self.count)

    def print(self, records: list[ConsumerRecord]) -> None:
        """Raises ReaderGone if they were not all written: a member must not commit them."""
        self._write(records)
        self.count += len(records)


async def _consume(
    connection: ClusterConnection, reading: ReadingOptions, span: RangeOptions, topics: list[str], printer: Printer
) -> None:
    """Print the records of a range."""
    async with (
        administrator(connection) as admin,
        Consumer(connection.bootstrap, isolation=reading.isolation, **connection.of_client) as consumer,
    ):
        chosen = await _chosen(admin, topics, reading)
        ends = await consumer.end_offsets(chosen)
        limits = await span.find(admin, chosen, ends)
        starts = {key: start for key, (start, _) in limits.items()}
        consumer.assign(chosen)
        if span.last is not None:
            firsts = await admin.list_offsets(chosen, "earliest")
            starts = await _last(consumer, span.last, firsts, {key: stop for key, (_, stop) in limits.items()})
            consumer.resume(chosen)
        for key, start in starts.items():
            await consumer.seek(key, start)
        await _print(consumer, None if span.follow else {key: stop for key, (_, stop) in limits.items()}, printer)


async def _chosen(admin: Admin, topics: list[str], reading: ReadingOptions) -> list[TopicPartition]:
    """The partitions to read. Raises InvalidRequest for a partition that a topic does not have."""
    chosen = []
    for topic in await topics_of(admin, topics, are_patterns=reading.regex):
        count = len(topic.partitions)
        for index in range(count) if reading.partition is None else reading.partition:
            if not 0 <= index < count:
                raise InvalidRequest(f"partition {index}: the topic has partitions 0 to {count - 1}")
            chosen.append(TopicPartition(topic.name, PartitionIndex(index)))
    return list(dict.fromkeys(chosen))


class _LastOffsets:
    """Notes the offsets of records instead of printing them, the last ones of each partition."""

    is_full = False
    room = POLL_RECORDS

    def __init__(self, most: Mapping[TopicPartition, int]) -> None:
        self.found = {key: deque[Offset](maxlen=count) for key, count in most.items()}

    def print(self, records: list[ConsumerRecord]) -> None:
        """Note them."""
        for record in records:
            self.found[record.topic_partition].append(record.offset)


async def _last(
    consumer: Consumer, count: int, firsts: Mapping[TopicPartition, Offset], stops: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Place]:
    """Where the last records of each partition begin. Not every offset has one: transactions end with a marker, and
    compaction and aborted transactions leave gaps. The partitions are read, further back while records are missing."""
    begins: dict[TopicPartition, Place] = {}
    left, span = set(stops), count
    while left:
        starts = {key: max(firsts[key], Offset(stops[key] - span)) for key in left}
        noted = _LastOffsets({key: max(1, min(count, stops[key] - firsts[key])) for key in left})
        consumer.resume(left)
        consumer.pause(set(stops) - left)
        for key in left:
            await consumer.seek(key, starts[key])
        await _print(consumer, {key: stops[key] for key in left}, noted)
        for key in list(left):
            offsets = noted.found[key]
            if len(offsets) == count or starts[key] == firsts[key]:
                begins[key] = offsets[0] if offsets else stops[key]
                left.remove(key)
        span *= 8
    return begins


async def _print(
    consumer: Consumer, stops: Mapping[TopicPartition, Offset] | None, printer: Printer | _LastOffsets
) -> None:
    """Print until the stops are reached (None: forever) or enough records are printed."""
    left = None if stops is None else {key for key in stops if await consumer.position(key) < stops[key]}
    while not printer.is_full and (left is None or left):
        records = await consumer.poll(printer.room, timeout=POLL_S)
        if stops is not None and left is not None:
            records = [record for record in records if record.offset < stops[record.topic_partition]]
            reached = {key for key in left if await consumer.position(key) >= stops[key]}
            left -= reached
            consumer.pause(reached)  # what a partition has behind its stop is not fetched
        printer.print(records)


async def _consume_as_member(
    connection: ClusterConnection,
    group: str,
    reading: ReadingOptions,
    span: RangeOptions,
    topics: list[str],
    printer: Printer,
) -> None:
    """Print the records that a member of the group reads: up to the ends that its partitions have when they are
    assigned, unless it follows. Printed records are committed, also when the command is interrupted."""
    reset = span.reset()
    await _ensure_group(connection, group, [] if reading.regex else topics)
    ends: dict[TopicPartition, Offset] = {}

    async def note_ends(assigned: list[TopicPartition]) -> None:
        ends.update(await consumer.end_offsets(assigned))

    def forget(revoked: list[TopicPartition]) -> None:
        for key in revoked:
            ends.pop(key, None)

    consumer = Consumer(
        connection.bootstrap,
        group=group,
        topics=None if reading.regex else topics,
        topic_pattern="|".join(f"(?:{each})" for each in topics) if reading.regex else None,
        isolation=reading.isolation,
        auto_offset_reset=reset,
        on_assigned=None if span.follow else note_ends,
        on_revoked=forget,
        **connection.of_client,
    )

    async def is_read(key: TopicPartition) -> bool:
        position, end = await consumer.position(key), ends.get(key)
        # A leader that is slow may refuse a committed offset beyond the end later than a poll waits.
        return end is None or position == end or (position > end and consumer.high_watermark(key) is not None)

    polls, is_printed = 0, True
    async with consumer:
        try:
            while not printer.is_full:
                records = await consumer.poll(printer.room, timeout=POLL_S)
                is_printed = False
                printer.print(records)
                await _until_read()
                is_printed = True
                polls += 1
                if span.follow:
                    continue
                if not ends and polls >= UNASSIGNED_POLLS_MAX:
                    raise _unassigned(group, topics)
                if ends and all([await is_read(key) for key in list(ends) if key in ends]):
                    break
        except OffsetOutOfRange as error:
            raise _out_of_range(group, topics, error) from error
        except asyncio.CancelledError:
            if is_printed:  # else the last records may not have reached the reader: another member reads them again
                with suppress(TidelogError):
                    await consumer.commit()
            raise


async def _ensure_group(connection: ClusterConnection, group: str, topics: list[str]) -> None:
    """Raise what a member would wait for: a cluster without groups, a topic that does not exist."""
    async with administrator(connection) as admin:
        described = (await admin.describe_groups([group]))[group]
        if isinstance(described, UnsupportedVersion):
            raise described
        await topics_of(admin, topics, are_patterns=False)


def _unassigned(group: str, topics: list[str]) -> InvalidRequest:
    names = ", ".join(map(repr, topics))
    return InvalidRequest(
        f"group {group!r} assigned no partition of {names} to this member: other members have them all (`tidelog group "
        f"describe {shell_word(group)}`); stop one of them, or wait with --follow"
    )


def _out_of_range(group: str, topics: list[str], error: OffsetOutOfRange) -> OffsetOutOfRange:
    cause = error.__cause__.message if isinstance(error.__cause__, TidelogError) else error.message
    command = f"tidelog group reset-offsets {shell_word(group)} --topic {topics[0]} --to-earliest --execute"
    return OffsetOutOfRange(
        f"the committed offset of group {group!r} is not in the log: {cause.rstrip('.')}. Stop its members, then "
        f"`{command}` (or --to-latest)"
    )


async def _until_read() -> None:
    """Return once the reader of a pipe has read everything: bytes that are still in the pipe are lost if the reader
    ends. Raises ReaderGone."""
    clock = MachineClock()
    while not is_output_read():
        await clock.sleep_ms(PIPE_PAUSE_MS)


command = declared_on_cluster(consume, "consume", prints_errors=False)
