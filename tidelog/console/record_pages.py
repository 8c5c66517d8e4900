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
from tidelog.console.seen_records import RECORDS_SHOWN, PageContent, SeenBytes, SeenRecord
from tidelog.errors import InvalidRequest, LeaderNotAvailable, UnknownTopicOrPartition
from tidelog.types import NO_NODE, Offset, PartitionIndex, TopicPartition

READ_MS = 5_000
"""How long one read may be repeated while the leader changes."""


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
    wanted = call.request.exact("key")
    async with call.reader() as reader:
        topic = await reader.topic(name, timeout_ms=READ_MS)
        if not 0 <= key.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(
                f"topic {name!r} has partitions 0 to {len(topic.partitions) - 1}; {key.partition} is not one of them"
            )
        start = await _start(call, key)
        found = await _walk(call, reader, topic, key, start, wanted.encode() if wanted else None)
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
    call: PageCall, reader: ReplicaReader, topic: TopicView, key: TopicPartition, start: Offset, wanted: bytes | None
) -> Walk:
    """Read until a page is full. wanted: only records with this key."""
    content = PageContent(start, wanted)
    log_start, end = Offset(0), Offset(0)
    while not content.is_full:
        leader = reader.view.topic(key.topic, key.partition).partitions[key.partition].leader
        if leader == NO_NODE:
            raise LeaderNotAvailable(f"{key} has no leader, so that nothing can be read: its topic's page says why")
        before = content.position
        # A batch may have as many bytes as the largest request, and more when it is decompressed: not on all pages that
        # are made at once.
        async with call.reading:
            read = await reader.read(leader, topic, key, before, patience_ms=READ_MS, wait_ms=0)
            if not read.is_below_start:
                # Beside the loop of the node: a batch may take long to decompress.
                await run_beside(partial(content.take, read.records))
        log_start, end = read.log_start, read.high_watermark
        if read.is_below_start:
            content.position = log_start
        elif content.position == before:
            break
    return Walk(content.records, content.position, log_start, end)


def _row(each: SeenRecord) -> tuple[Content, ...]:
    mark = element("small", "in a transaction") if each.is_transactional else None
    headers = [element("li", element("strong", name), " ", _shown(value)) for name, value in each.headers]
    if each.headers_more:
        headers.append(element("li", element("small", f"and {each.headers_more} more headers")))
    return (
        element("span", str(each.offset), element("br"), mark) if mark else str(each.offset),
        "none" if each.timestamp < 0 else shown_time(each.timestamp),
        _shown(each.key),
        _shown(each.value),
        element("ul", headers) if headers else "",
    )


def _shown(part: SeenBytes | None) -> Html:
    return shown(None) if part is None else shown(part.data, part.length)


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
        field("Only with the key", "key", call.request.exact("key"), hint="empty: all records"),
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
