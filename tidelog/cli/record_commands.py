"""`tidelog produce` and `tidelog consume`: one record per line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from tidelog.cli.argument_values import WrongUsage, time_of
from tidelog.cli.cluster_command import CommandCall, administrator
from tidelog.cli.lines import Read, lines, opened
from tidelog.cli.output import counted, plain, print_json, printed_warnings
from tidelog.client.consumer import Consumer, ConsumerRecord, Place
from tidelog.client.delivery import Delivery
from tidelog.client.offset_lookup import since_1970_ms
from tidelog.client.producer import Producer
from tidelog.clock import MachineClock
from tidelog.cluster_connection import ClusterConnection
from tidelog.errors import (
    InvalidConfig,
    InvalidRequest,
    NodeNotAvailable,
    OffsetOutOfRange,
    TidelogError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tidelog.printable import shell_word
from tidelog.standard_streams import is_output_read, json_line, say
from tidelog.types import TopicPartition

BUFFER_BYTES = 64 * 1024 * 1024
LINE_BYTES_MAX = BUFFER_BYTES // 2
"""Longer lines are rejected while they are read; the topic decides whether a shorter one fits."""
ClientId = Annotated[
    str, typer.Option("--client-id", help="Name of this client, for quotas and the logs of the nodes.")
]
PIPE_PAUSE_MS = 2
"""Interval of checks whether the reader of a pipe has read everything."""
UNASSIGNED_POLLS_MAX = 15
"""Polls of a second each after which a member of a group that has no partition gives up."""
Topic = Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)]
Write: TypeAlias = Callable[[list[ConsumerRecord]], None]


class Tally:
    """Numbers of outcomes of one `produce`."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = self.unknown = self.failed = 0
        self.first: TidelogError | None = None

    def note(self, delivery: Delivery) -> None:
        """Count one outcome."""
        error = delivery.exception()
        if error is None:
            self.acknowledged += 1
        elif error.written is None:
            self.unknown += 1
        else:
            self.failed += 1
        self.first = self.first or error

    def __str__(self) -> str:
        parts = [f"{counted(self.acknowledged, 'record')} acknowledged"]
        if self.unknown:
            parts.append(f"{self.unknown} of unknown outcome")
        if self.failed:
            parts.append(f"{self.failed} not written")
        return ", ".join(parts)


def produce(
    call: CommandCall,
    topic: Topic,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="The text before it on a line is the key.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="Read this file, plain or gzip, instead of standard input.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Send all to this partition.")] = None,
    acks: Annotated[str, typer.Option(help="all, 1 or 0.")] = "all",
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    on_unknown: Annotated[str, typer.Option(help="raise, or resend: send again, possibly twice.")] = "raise",
    timeout: Annotated[
        int, typer.Option(min=1, max=86_400, help="Seconds after which a record that is not acknowledged fails.")
    ] = 30,
    client_id: ClientId = "",
) -> None:
    """Send each line of standard input (or of a file) as one record."""
    if key_separator == "":
        raise InvalidConfig("--key-separator is empty: pass the text that ends the key, for example ':'")
    if on_unknown not in ("raise", "resend"):
        raise InvalidConfig(f"--on-unknown {on_unknown!r}: use raise or resend")
    resolution: Literal["raise", "resend"] = "resend" if on_unknown == "resend" else "raise"
    separator = os.fsencode(key_separator) if key_separator is not None else None
    connection = replace(call.connection, client_id=client_id)

    async def work(tally: Tally, read: Read, progress: Any) -> None:
        await _reach(connection, topic)
        async with Producer(
            connection.bootstrap,
            acks=acks,
            compression=compression,
            on_unknown=resolution,
            buffer_bytes=BUFFER_BYTES,
            record_bytes_max=LINE_BYTES_MAX,
            max_block_ms=timeout * 1000,
            delivery_timeout_ms=timeout * 1000,
            **connection.of_client,
        ) as producer:
            await producer.partitions(topic)
            packed_name = None if source is None else str(source)
            async for line in lines(read, packed_name=packed_name, line_bytes_max=LINE_BYTES_MAX):
                key, value = _key_and_value(line, separator)
                delivery = await producer.enqueue(topic, value, key, partition=partition)
                delivery.add_done_callback(tally.note)
                tally.sent += 1
                if tally.sent % 1000 == 0:
                    progress(tally.acknowledged)
            await producer.flush()

    tally = Tally()
    with opened(source) as read:
        try:
            with _progress(f"producing to {topic}") as progress, printed_warnings():
                asyncio.run(work(tally, read, progress))
            ended = True
        except BaseException:
            ended = False
            raise
        finally:  # also after a failure: the caller must know which lines were written
            if call.as_json:
                print_json({"topic": topic, **{name: n for name, n in vars(tally).items() if name != "first"}})
            elif tally.sent or ended:
                say(str(tally))
    if tally.first is not None:
        raise tally.first


def consume(
    call: CommandCall,
    topic: Topic,
    start: Annotated[
        str | None, typer.Option("--from", help="earliest, latest, or an ISO 8601 time.", show_default="earliest")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", help="Start at this offset, without --from; needs one --partition.")
    ] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only these partitions.")] = None,
    most: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this number of records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records at the end.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Print key and a tab before each value.")] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this group, and commit what was printed.")
    ] = None,
    isolation: Annotated[
        str,
        typer.Option(
            "--isolation",
            help="read_uncommitted, or read_committed: leave out what a transaction aborted, stop at one that is open.",
        ),
    ] = "read_uncommitted",
    client_id: ClientId = "",
) -> None:
    """Print committed records, one per line, up to the present end. With --group, those of the partitions that the
    group assigns, from the committed offsets on; --from counts where none is committed."""
    if isolation not in ("read_uncommitted", "read_committed"):
        raise WrongUsage(f"--isolation {isolation!r}: use read_uncommitted or read_committed")
    connection = replace(call.connection, client_id=client_id)
    write: Write = partial(_write, keys=keys, as_json=call.as_json)
    if group is not None:
        if group == "":
            raise WrongUsage("--group is empty: pass the id of a group")
        if offset is not None or partition is not None:
            raise WrongUsage("a group assigns partitions and has offsets of its own: leave out --partition, --offset")
        reset = _reset(start or "earliest")
    else:
        place = _start(start, offset, partition)

    async def work() -> int:
        await _reach(connection, topic)
        if group is not None:
            return await _consume_as_member(
                connection, group, topic, reset, most, write, isolation=isolation, follow=follow
            )
        async with Consumer(connection.bootstrap, isolation=isolation, **connection.of_client) as consumer:
            everything = await consumer.partitions(topic)
            chosen = (
                everything
                if partition is None
                else [TopicPartition(topic, _partition_of(everything, p)) for p in partition]
            )
            ends = await consumer.end_offsets(chosen)
            if offset is not None and offset > ends[chosen[0]]:
                raise OffsetOutOfRange(f"offset {offset} is above the end {ends[chosen[0]]} of {chosen[0]}")
            consumer.assign(chosen)
            for one in chosen:
                await consumer.seek(one, place)
            return await _print(consumer, None if follow else ends, most, write)

    with printed_warnings():
        count = asyncio.run(work())
    if not call.as_json:
        say(counted(count, "record"))


async def _reach(connection: ClusterConnection, topic: str) -> None:
    """Raise ConnectionFailed quickly if no node answers: producers and consumers retry for longer."""
    # A description needs no permission beyond those for writing or reading the topic.
    async with administrator(connection) as admin:
        with suppress(UnknownTopicOrPartition, NodeNotAvailable):
            await admin.describe_topic(topic)


def _partition_of(everything: list[TopicPartition], index: int) -> Any:
    """Return the index of an existing partition. Raises InvalidRequest."""
    if not 0 <= index < len(everything):
        raise InvalidRequest(f"partition {index}: the topic has partitions 0 to {len(everything) - 1}")
    return everything[index].partition


async def _print(consumer: Consumer, ends: dict[TopicPartition, Any] | None, most: int | None, write: Write) -> int:
    """Print until the ends are reached (None: forever) or `most` records are printed."""
    count = 0
    left = None if ends is None else {one for one in ends if await consumer.position(one) < ends[one]}
    while (most is None or count < most) and (left is None or left):
        records = await consumer.poll(10_000 if most is None else min(10_000, most - count), timeout=1.0)
        if ends is not None and left is not None:
            printed = [record for record in records if record.offset < ends[record.topic_partition]]
            left = {one for one in left if await consumer.position(one) < ends[one]}
        else:
            printed = records
        count += len(printed)
        write(printed)
    return count


async def _consume_as_member(
    connection: ClusterConnection,
    group: str,
    topic: str,
    reset: str | timedelta,
    most: int | None,
    write: Write,
    *,
    isolation: str,
    follow: bool,
) -> int:
    """Print the records that a member of the group reads: `most` records or, unless `follow`, those up to the ends that
    its partitions have when they are assigned. Printed records are committed, also when the command is interrupted."""
    async with administrator(connection) as admin:
        described = (await admin.describe_groups([group]))[group]
        if isinstance(described, UnsupportedVersion):  # a member would retry instead of naming the next step
            raise described
    ends: dict[TopicPartition, Any] = {}

    async def note_ends(assigned: list[TopicPartition]) -> None:
        ends.update(await consumer.end_offsets(assigned))

    def forget(revoked: list[TopicPartition]) -> None:
        for key in revoked:
            ends.pop(key, None)

    consumer = Consumer(
        connection.bootstrap,
        group=group,
        topics=[topic],
        isolation=isolation,
        auto_offset_reset=reset,
        on_assigned=None if follow else note_ends,
        on_revoked=forget,
        **connection.of_client,
    )
    count, polls, is_printed = 0, 0, True
    async with consumer:
        await consumer.partitions(topic)  # raises if there is no such topic; a subscription would wait for the topic
        try:
            while most is None or count < most:
                records = await consumer.poll(10_000 if most is None else min(10_000, most - count), timeout=1.0)
                is_printed = False
                write(records)
                await _until_read()
                is_printed = True
                count, polls = count + len(records), polls + 1
                if follow:
                    continue
                if not ends and polls >= UNASSIGNED_POLLS_MAX:
                    raise InvalidRequest(
                        f"group {group!r} assigned no partition of {topic!r} to this member: other members have them "
                        f"all (`tidelog group describe {shell_word(group)}`); stop one of them, or wait with --follow"
                    )
                if ends and all([await consumer.position(key) >= ends[key] for key in list(ends) if key in ends]):
                    break
        except OffsetOutOfRange as error:
            cause = error.__cause__.message if isinstance(error.__cause__, TidelogError) else error.message
            command = f"tidelog group reset-offsets {shell_word(group)} --topic {topic} --to-earliest --execute"
            raise OffsetOutOfRange(
                f"the committed offset of group {group!r} is not in the log: {cause.rstrip('.')}. Stop its members, "
                f"then `{command}` (or --to-latest)"
            ) from error
        except asyncio.CancelledError:
            if is_printed:  # else the last records may not have reached the reader: another member reads them again
                with suppress(TidelogError):
                    await consumer.commit()
            raise
    return count


async def _until_read() -> None:
    """Return once the reader of a pipe has read everything: bytes that are still in the pipe are lost if the reader
    ends. Raises ReaderGone."""
    clock = MachineClock()
    while not is_output_read():
        await clock.sleep_ms(PIPE_PAUSE_MS)


def _write(records: list[ConsumerRecord], *, keys: bool, as_json: bool) -> None:
    """Print records. Raises ReaderGone if they were not all written: a member must not commit them."""
    if as_json:
        sys.stdout.write("".join(json_line(plain(record._asdict())) for record in records))
        sys.stdout.flush()
    else:
        sys.stdout.buffer.write(b"".join(_line(record, keys=keys) for record in records))
        sys.stdout.buffer.flush()


def _line(record: ConsumerRecord, *, keys: bool) -> bytes:
    value = record.value if record.value is not None else b""
    return (record.key or b"") + b"\t" + value + b"\n" if keys else value + b"\n"


def _key_and_value(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        shown = (part.decode(errors="replace") for part in (separator, line[:80]))
        raise InvalidRequest("a line has no key separator {!r}: {!r}".format(*shown))
    return key, value


def _reset(text: str) -> str | timedelta:
    """Return where a group without committed offsets begins."""
    place = _place(text)
    if isinstance(place, datetime):
        back_ms = MachineClock().wall_ms() - since_1970_ms(place)
        return timedelta(milliseconds=max(0, back_ms))
    return str(place)


def _start(place: str | None, offset: int | None, partitions: list[int] | None) -> Place:
    """Return where to begin to read without a group."""
    if offset is None:
        return _place(place or "earliest")
    if place is not None:
        raise WrongUsage("--from and --offset are two places to start at: leave out one of them")
    if partitions is None or len(partitions) != 1:
        raise WrongUsage("--offset needs one partition: pass it with --partition")
    return offset


def _place(text: str) -> Place:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    moment = time_of(text)
    if moment is None:
        raise WrongUsage(f"--from {text!r}: use earliest, latest, or a time such as 2026-01-31T12:00:00Z")
    return moment


@contextmanager
def _progress(what: str) -> Any:
    """Yield a function that displays the number of records; shown if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}: {task.completed:,} records", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda count: progress.update(task, completed=count)
