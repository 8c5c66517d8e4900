"""How the lines of `tidelog produce` become records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.declared import Option
from tidelog.cli.lines import Line
from tidelog.cli.moments import HELP as TIME_HELP
from tidelog.cli.moments import moment_of
from tidelog.cli.record_text import WrittenRecord, record_of_json, unescaped
from tidelog.client.offset_lookup import since_1970_ms
from tidelog.clock import MachineClock
from tidelog.errors import InvalidRecord, RecordTooLarge
from tidelog.records.v2.record import Header

BUFFER_BYTES: Final = 64 * 1024 * 1024
LINE_BYTES_MAX: Final = BUFFER_BYTES // 2
"""Longer lines are not sent; the topic decides whether a shorter one fits."""
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The options for it."""

    source: Annotated[
        Path | None, Option("--input", "-i", help="Read this file, plain or gzip, instead of standard input.")
    ] = None
    input_format: Annotated[
        Literal["lines", "json"],
        Option(
            "--input-format",
            "-F",
            help="lines: each is a value. json: each is an object as `consume --json` prints it; its offset does not "
            "count.",
        ),
    ] = "lines"
    delimiter: Annotated[
        str | None,
        Option(
            "--delimiter", "-D", help=r"Ends a record, with escapes: \n \t \r \0 \\ \x00.", show_default=r"\n or \r\n"
        ),
    ] = None
    key_separator: Annotated[
        str | None,
        Option("--key-separator", "-k", help=r"What stands before it on a line is the key; with escapes, as '\t'."),
    ] = None
    key: Annotated[str | None, Option("--key", help="The key of all records.")] = None
    header: Annotated[
        list[str] | None, Option("--header", "-H", help="NAME=VALUE: a header of all records; repeatable.")
    ] = None
    partition: Annotated[int | None, Option("--partition", "-p", help="Send all to this partition.")] = None
    timestamp: Annotated[str | None, Option("--timestamp", help=f"The time of all records: {TIME_HELP}.")] = None
    null: Annotated[
        str | None, Option("--null", help="A key or value that is this text is null; '': each one that is empty.")
    ] = None
    ignore_partition: Annotated[
        bool, Option("--ignore-partition", help="With json: choose partitions by keys, not as the lines say.")
    ] = False

    @property
    def line_delimiter(self) -> bytes:
        """What ends a record. Raises WrongUsage."""
        if self.delimiter == "":
            raise WrongUsage(r"--delimiter is empty: pass what ends a record, for example '\0'")
        return b"\n" if self.delimiter is None else unescaped("--delimiter", self.delimiter)

    def reader(self) -> Callable[[Line], WrittenRecord]:
        """A function that makes a record of a line; it raises InvalidRecord, RecordTooLarge. Raises WrongUsage."""
        if self.key_separator == "":
            raise WrongUsage("--key-separator is empty: pass the text that ends the key, for example ':'")
        if self.key_separator is not None and self.key is not None:
            raise WrongUsage("--key and --key-separator both say what the keys are: pass one of them")
        is_json = self.input_format == "json"
        if is_json and (self.key_separator is not None or self.null is not None):
            raise WrongUsage("JSON says what is the key and what is null: leave out --key-separator and --null")
        separator = None if self.key_separator is None else unescaped("--key-separator", self.key_separator)
        null = None if self.null is None else _encoded(self.null)
        headers = tuple(_header(each) for each in self.header or ())
        timestamp = None if self.timestamp is None else _timestamp(self.timestamp)
        key = None if self.key is None else _encoded(self.key)

        def read(line: Line) -> WrittenRecord:
            if line.is_too_long:
                raise RecordTooLarge(
                    f"it is longer than {LINE_BYTES_MAX} bytes: split it into lines that fit into a record"
                )
            if is_json:
                record = record_of_json(line.content)
                if self.ignore_partition:
                    record = replace(record, partition=None)
            else:
                record = _of_text(line.content, separator, null)
            return replace(
                record,
                key=record.key if key is None else key,
                headers=record.headers + headers,
                partition=record.partition if self.partition is None else self.partition,
                timestamp=record.timestamp if timestamp is None else timestamp,
            )

        return read


def _of_text(content: bytes, separator: bytes | None, null: bytes | None) -> WrittenRecord:
    """null: the text that stands for null; None: there is none."""
    if separator is None:
        return WrittenRecord(None if content == null else content)
    key, found, value = content.partition(separator)
    if not found:
        shown = (part.decode(errors="replace") for part in (separator, content[:_SHOWN]))
        raise InvalidRecord("there is no key separator {!r}: {!r}".format(*shown))
    return WrittenRecord(None if value == null else value, None if key == null else key)


def _header(given: str) -> Header:
    name, separator, value = given.partition("=")
    if not separator:
        raise WrongUsage(f"--header {given!r}: write NAME=VALUE")
    return name, _encoded(value)


def _timestamp(given: str) -> int:
    moment = moment_of(given, MachineClock().wall_ms())
    if moment is None:
        raise WrongUsage(f"--timestamp {given!r}: write {TIME_HELP}")
    return since_1970_ms(moment)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
