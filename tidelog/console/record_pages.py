"""Browsing the records of a partition: from an offset, from a time, the last ones, or those with a key.

Records are read from the leader, up to its high watermark, so that records of open and aborted transactions are among
them: they are marked. Nothing is committed, and no group is involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tidelog.client.cluster import TopicView
from tidelog.client.machine import run_beside
from tidelog.client.replica_reader import ReplicaReader
from tidelog.console.html import Content, Html, address, choice, element, field, link, table
from tidelog.console.layout import notice, search
from tidelog.console.page_call import PageCall, Shown, moment, shown_time, whole
from tidelog.console.record_values import shown
from tidelog.errors import InvalidRequest, LeaderNotAvailable, UnknownTopicOrPartition
from tidelog.records import Record, iter_batches
from tidelog.types import NO_NODE, Buffer, Offset, PartitionIndex, TopicPartition

RECORDS_SHOWN = 50
SEARCHED_BYTES_MAX = 32 << 20
"""Of batches, for one page of a search by key: a second or two. The next page continues behind them."""
DECOMPRESSED_BYTES_MAX = 128 << 20
"""Of one batch: a small one may become gigabytes."""
READ_MS = 5_000
"""How long one read may be repeated while the leader changes."""


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record with what its batch says of it."""

    record: Record
    is_transactional: bool


@dataclass(frozen=True, slots=True)
class Walk:
    """A part of a log that was read."""

    records: Sequence[SeenRecord]
    position: Offset
    """Behind the last record that was looked at."""
    log_start: Offset
    end: Offset


async def records(call: PageCall) -> Shown:
    """The records of a partition."""
    name = call.identity("name")
    key = TopicPartition(name, PartitionIndex(call.number("partition", 0)))
    wanted = call.request.text("key")
    async with call.reader() as reader:
        topic = await reader.topic(name, timeout_ms=READ_MS)
        if not 0 <= key.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(
                f"topic {name!r} has partitions 0 to {len(topic.partitions) - 1}; {key.partition} is not one of them"
            )
        start = await _start(call, key)
        found = await _walk(reader, topic, key, start, wanted.encode() if wanted else None)
    return Shown(
        f"Records of {key}",
        [
            element("p", link(address("/topic", name=name), f"Topic {name}")),
            _form(call, key, len(topic.partitions)),
            element(
                "p",
                f"The log begins at offset {found.log_start} and ends at offset {found.end}, which is the next one.",
            ),
            notice(element("p", f"Searched for the key {wanted!r} in offsets {start} to {found.position - 1}."))
            if wanted
            else None,
            table(
                "Records",
                ("Offset", "Time", "Key", "Value", "Headers"),
                [_row(each) for each in found.records],
                empty="There are no records here.",
            ),
            _neighbours(key, start, found, wanted),
        ],
    )


async def _start(call: PageCall, key: TopicPartition) -> Offset:
    """The offset from which to read."""
    way, text = call.request.text("from", "last"), call.request.text("at")
    if way == "offset":
        return Offset(max(0, whole("offset", text or "0")))
    if way == "time":
        if not text:
            raise InvalidRequest("write the time from which to read, as 2026-01-31T12:00:00Z")
        return (await call.admin.list_offsets([key], moment(text)))[key]
    if way == "start":
        return (await call.admin.list_offsets([key], "earliest"))[key]
    end = (await call.admin.list_offsets([key], "latest"))[key]
    start = (await call.admin.list_offsets([key], "earliest"))[key]
    return Offset(max(start, end - RECORDS_SHOWN))


async def _walk(
    reader: ReplicaReader, topic: TopicView, key: TopicPartition, start: Offset, wanted: bytes | None
) -> Walk:
    """Read until a page is full. wanted: only records with this key."""
    found: list[SeenRecord] = []
    position, searched, log_start, end = start, 0, Offset(0), Offset(0)
    while len(found) < RECORDS_SHOWN and searched < SEARCHED_BYTES_MAX:
        leader = reader.view.topic(key.topic, key.partition).partitions[key.partition].leader
        if leader == NO_NODE:
            raise LeaderNotAvailable(f"{key} has no leader, so that nothing can be read: its topic's page says why")
        read = await reader.read(leader, topic, key, position, patience_ms=READ_MS, wait_ms=0)
        log_start, end = read.log_start, read.high_watermark
        if read.is_below_start:
            position = read.log_start
            continue
        room, before = RECORDS_SHOWN - len(found), position
        # Beside the loop of the node: a batch may take long to decompress.
        more, position = await run_beside(partial(decoded_page, read.records, position, room, wanted))
        found += more
        searched += len(read.records)
        if position == before:
            break
    return Walk(found, position, log_start, end)


def decoded_page(data: Buffer, position: Offset, room: int, wanted: bytes | None) -> tuple[list[SeenRecord], Offset]:
    """Up to `room` records of batches, from a position on; and the position behind the last one that was looked at."""
    found: list[SeenRecord] = []
    for batch in iter_batches(data):
        for record in () if batch.is_control else batch.records(max_bytes=DECOMPRESSED_BYTES_MAX):
            if record.offset < position:
                continue
            if len(found) == room:
                return found, position
            position = Offset(record.offset + 1)
            if wanted is None or record.key == wanted:
                found.append(SeenRecord(record, batch.is_transactional))
        position = max(position, batch.next_offset)
    return found, position


def _row(each: SeenRecord) -> tuple[Content, ...]:
    record = each.record
    mark = element("small", "in a transaction") if each.is_transactional else None
    headers = [element("li", element("strong", name), " ", shown(value)) for name, value in record.headers]
    return (
        element("span", str(record.offset), element("br"), mark) if mark else str(record.offset),
        "none" if record.timestamp < 0 else shown_time(record.timestamp),
        shown(record.key),
        shown(record.value),
        element("ul", headers) if headers else "",
    )


def _form(call: PageCall, key: TopicPartition, count: int) -> Html:
    ways = (
        ("last", "the last records"),
        ("start", "the first records"),
        ("offset", "an offset"),
        ("time", "a time"),
    )
    return search(
        "/records",
        element("input", type="hidden", name="name", value=key.topic),
        field("Partition", "partition", str(key.partition), type="number", min=0, max=count - 1),
        choice("From", "from", ways, call.request.text("from", "last")),
        field("Offset or time", "at", call.request.text("at"), hint="12345, or 2026-01-31T12:00:00Z"),
        field("Only with the key", "key", call.request.text("key"), hint="empty: all records"),
        button="Show",
    )


def _neighbours(key: TopicPartition, start: Offset, found: Walk, wanted: str) -> Html:
    def to(offset: int, text: str) -> Html:
        query = address(
            "/records",
            name=key.topic,
            partition=key.partition,
            from_="offset",
            at=offset,
            key=wanted or None,
        )
        return link(query, text, class_="button")

    earlier = max(found.log_start, start - RECORDS_SHOWN)
    return element(
        "nav",
        to(earlier, "Earlier records") if start > found.log_start and not wanted else None,
        " ",
        to(found.position, "Later records") if found.position < found.end else None,
        aria_label="Records before and after",
    )
