"""`tidelog produce`: one record for each line of the input."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Final, Literal

import click

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall, declared_on_cluster, reach
from tidelog.cli.declared import Argument, Option
from tidelog.cli.interrupts import run_until_signal
from tidelog.cli.lines import Line, Read, lines, opened
from tidelog.cli.output import counted, error_document, print_json, printed_warnings, progress_of
from tidelog.cli.record_input import BUFFER_BYTES, LINE_BYTES_MAX, RecordOptions
from tidelog.cli.record_text import WrittenRecord
from tidelog.cli.topic_rules import TopicRules, rules_of
from tidelog.client.admin import TopicDescription
from tidelog.client.delivery import Delivery
from tidelog.client.producer import Producer
from tidelog.clock import MachineClock
from tidelog.cluster_connection import ClusterConnection
from tidelog.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    RecordTooLarge,
    TidelogError,
    UnknownTopicOrPartition,
)
from tidelog.standard_streams import say

FAILURES_SHOWN: Final = 20
"""Failures that are shown, each with its line; the others are counted."""
_OF_ONE_LINE: Final = (InvalidRecord, InvalidTimestamp, InvalidTopic, RecordTooLarge, UnknownTopicOrPartition)
"""Errors of a line that say nothing about the next one."""


class Tally:
    """Numbers of outcomes of one `produce`, and its first failures."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = self.unconfirmed = self.unknown = self.failed = 0
        self.failures: list[dict[str, object]] = []

    @property
    def has_failures(self) -> bool:
        """Whether a line was not sent or not acknowledged."""
        return self.failed + self.unknown > 0

    def note(self, number: int, delivery: Delivery) -> None:
        """Count the outcome of a line."""
        error = delivery.exception()
        if error is not None:
            self.note_failure(number, error)
        elif delivery.result().offset < 0:  # acks=0: nobody said that it was written
            self.unconfirmed += 1
        else:
            self.acknowledged += 1

    def note_failure(self, number: int, error: TidelogError) -> None:
        """Count and show a line that was not sent, or not acknowledged."""
        if error.written is None:
            self.unknown += 1
        else:
            self.failed += 1
        if len(self.failures) < FAILURES_SHOWN:
            self.failures.append({"line": number, "error": type(error).__name__, "message": error.message})
            say(f"tidelog: line {number}: {error.message}")

    def __str__(self) -> str:
        parts = [f"{counted(self.acknowledged, 'record')} acknowledged"]
        if self.unconfirmed:
            parts = [f"{counted(self.unconfirmed, 'record')} sent, none acknowledged (acks=0)"]
        if self.unknown:
            parts.append(f"{self.unknown} of unknown outcome")
        if self.failed:
            parts.append(f"{self.failed} not written")
        return ", ".join(parts)


def produce(
    call: CommandCall,
    how: RecordOptions,
    topic: Annotated[str | None, Argument(help="Name of the topic; JSON lines may name it themselves.")] = None,
    tombstone: Annotated[
        bool, Option("--tombstone", help="Send one record without a value, which deletes --key; read no input.")
    ] = False,
    acks: Annotated[
        Literal["all", "-1", "1", "0"], Option(help="Who must have a record: all in-sync replicas, the leader, nobody.")
    ] = "all",
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], Option("--compression", "-z", help="Of batches.")
    ] = "none",
    rate: Annotated[float | None, Option(min=0.001, help="Records a second at most.")] = None,
    stop_on_error: Annotated[
        bool, Option("--stop-on-error", help="End at the first line that cannot be sent or is not acknowledged.")
    ] = False,
    on_unknown: Annotated[
        Literal["raise", "resend"], Option(help="Of a record of unknown outcome; resend: possibly twice.")
    ] = "raise",
    timeout: Annotated[
        int, Option(min=1, max=86_400, help="Seconds after which a record that is not acknowledged fails.")
    ] = 30,
    client_id: Annotated[str, Option(help="Name of this client, for quotas and the logs of the nodes.")] = "",
) -> None:
    """Send each line of standard input (or of a file) as one record.

    A line that cannot be sent is named with its number, and the others are sent; exit code 1 then. Ctrl-C and SIGTERM
    end the command once the lines that were read have an outcome, and it says how many were acknowledged.
    """
    if topic is None and how.input_format != "json":
        raise WrongUsage("name the topic: tidelog produce TOPIC")
    if tombstone and (how.key is None or how.input_format == "json"):
        raise WrongUsage("--tombstone needs the --key that it deletes")
    record_of, connection, tally = how.reader(), replace(call.connection, client_id=client_id), Tally()
    producer = partial(
        Producer,
        connection.bootstrap,
        acks=acks,
        compression=compression,
        on_unknown=on_unknown,
        buffer_bytes=BUFFER_BYTES,
        record_bytes_max=LINE_BYTES_MAX,
        max_block_ms=timeout * 1000,
        delivery_timeout_ms=timeout * 1000,
        **connection.of_client,
    )

    def read_record(line: Line) -> WrittenRecord:
        record = record_of(line)
        return replace(record, topic=topic or record.topic, value=None if tombstone else record.value)

    async def work(read: Read, progress: Callable[[int], None]) -> None:
        given = _tombstone() if tombstone else _lines(read, how)
        await _send_all(producer(), connection, topic, given, read_record, tally, _Pace(rate), progress, stop_on_error)

    ended, reason = False, dict[str, object]()
    with opened(how.source, is_needed=not tombstone) as read:
        try:
            with progress_of(f"producing to {topic or 'topics'}") as progress, printed_warnings():
                run_until_signal(work(read, progress))
            ended = True
        except TidelogError as error:
            reason = error_document(error)
            raise
        finally:  # also after a failure: the caller must know which lines were written
            if call.as_json:
                print_json({"topic": topic, **vars(tally), **reason})
            elif tally.sent or tally.failed or ended:
                say(str(tally))
    if tally.has_failures:
        raise click.exceptions.Exit(1)


async def _send_all(
    producer: Producer,
    connection: ClusterConnection,
    topic: str | None,
    given: AsyncIterator[Line],
    record_of: Callable[[Line], WrittenRecord],
    tally: Tally,
    pace: _Pace,
    progress: Callable[[int], None],
    stops: bool,
) -> None:
    """Send all lines, and wait for their outcomes. topic: that of all of them, if there is one. stops: at the first
    failure."""
    rules = _RulesOfTopics(connection)
    if topic is not None:
        rules.note(topic, await reach(connection, topic))
    async with producer:
        if topic is not None:
            await producer.partitions(topic)
        async for line in given:
            await pace.wait()
            await _send(producer, line, record_of, rules, tally)
            if tally.sent % 1000 == 0:
                progress(tally.acknowledged + tally.unconfirmed)
            if stops and tally.has_failures:
                break
        await producer.flush()


async def _send(
    producer: Producer, line: Line, record_of: Callable[[Line], WrittenRecord], rules: _RulesOfTopics, tally: Tally
) -> None:
    """Queue the record of a line. Raises errors that every line would have; others are noted."""
    try:
        record = record_of(line)
        if record.topic is None:
            raise InvalidRecord('it has no topic: name one on the command line, or write "topic" into the line')
        (await rules.of(record.topic)).check(record, rules.now_ms())
        delivery = await producer.enqueue(
            record.topic, record.value, record.key, record.headers, record.partition, record.timestamp
        )
    except _OF_ONE_LINE as error:
        tally.note_failure(line.number, error)
    except TypeError as error:  # JSON of another type, as a topic that is a number
        tally.note_failure(line.number, InvalidRecord(str(error)))
    else:
        tally.sent += 1
        delivery.add_done_callback(partial(tally.note, line.number))


class _RulesOfTopics:
    """What each topic takes, asked when its first record is sent."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection, self._found = connection, dict[str, TopicRules]()
        self.now_ms: Final = MachineClock().wall_ms

    async def of(self, topic: str) -> TopicRules:
        """A topic that cannot be described takes everything here: the producer finds out why, and waits for longer."""
        if topic not in self._found:
            described = None
            with suppress(TidelogError):
                described = await reach(self._connection, topic)
            self.note(topic, described)
        return self._found[topic]

    def note(self, topic: str, described: TopicDescription | None) -> None:
        """None: it takes everything here."""
        self._found[topic] = TopicRules() if described is None else rules_of(described.configs)


class _Pace:
    """Keeps a number of records a second."""

    def __init__(self, rate: float | None) -> None:
        self._clock, self._rate = MachineClock(), rate
        self._next_ms = float(self._clock.monotonic_ms())

    async def wait(self) -> None:
        """Return when the next record may be sent."""
        if self._rate is None:
            return
        now_ms = self._clock.monotonic_ms()
        if self._next_ms > now_ms:
            await self._clock.sleep_ms(int(self._next_ms - now_ms))
        # After a pause of the input the records that were missed are not caught up with.
        self._next_ms = max(self._next_ms, now_ms - 1_000) + 1_000 / self._rate


async def _tombstone() -> AsyncIterator[Line]:
    yield Line(1, b"")


async def _lines(read: Read, how: RecordOptions) -> AsyncIterator[Line]:
    packed_name = None if how.source is None else str(how.source)
    async for line in lines(
        read,
        packed_name=packed_name,
        line_bytes_max=LINE_BYTES_MAX,
        delimiter=how.line_delimiter,
        strips_return=how.delimiter is None and how.input_format == "lines",
    ):
        yield line


command = declared_on_cluster(produce, "produce", prints_errors=False)
