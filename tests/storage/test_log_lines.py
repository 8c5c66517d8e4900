"""The messages of the logger `storage.log`: what a log did, to which offsets, in how much time."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from storage.log_config import LogConfig
from tests.fakes.log_start import delete_old_segments
from tests.storage.workbench import NOW, SMALL, Bench, batch, stamped
from tidelog.types import Durability, Millis, Offset

PATH = "/data/orders-0"
SIZE = len(batch(b"x"))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="storage.log")
    return caplog


def said(lines: pytest.LogCaptureFixture, level: int = logging.NOTSET) -> list[str]:
    """The messages since the last call; of this level, or of all."""
    found = [
        record.getMessage()
        for record in lines.records
        if record.name == "storage.log" and level in (logging.NOTSET, record.levelno)
    ]
    lines.clear()
    return found


def test_an_append_is_reported_with_offsets_and_bytes(lines: pytest.LogCaptureFixture) -> None:
    bench = Bench(replace(SMALL, durability=Durability.PAGE_CACHE))
    said(lines)
    bench.lead(b"x", epoch=3)
    bench.follow(stamped(1, b"x", epoch=3), stamped(2, b"x", epoch=3))
    assert said(lines) == [
        f"{PATH}: appended offsets 0..0, {SIZE} bytes, leader epoch 3",
        f"{PATH}: inserted {SIZE} bytes into segment 0 at byte 0",
        f"{PATH}: appended offsets 1..2, {2 * SIZE} bytes, leader epoch 3",
        f"{PATH}: inserted {2 * SIZE} bytes into segment 0 at byte {SIZE}",
    ]


def test_index_entries_are_reported_when_there_are_more(lines: pytest.LogCaptureFixture) -> None:
    bench = Bench(LogConfig(index_interval_bytes=SIZE, durability=Durability.PAGE_CACHE))
    for _ in range(4):
        bench.lead(b"x")
    assert [line for line in said(lines) if "index entries" in line] == [
        f"{PATH}: segment 0 has 1 index entries, before 0",
    ]


@pytest.mark.parametrize(
    ("config", "timestamp", "why"),
    [
        (LogConfig(segment_bytes=2 * SIZE), NOW, "segment.bytes is reached"),
        (
            LogConfig(segment_index_bytes=24, index_interval_bytes=0),
            NOW,
            "an index is full (segment.index.bytes)",
        ),
        (LogConfig(segment_ms=100), NOW + 101, "segment.ms has passed"),
    ],
)
def test_a_roll_is_reported_with_its_reason(
    config: LogConfig, timestamp: int, why: str, lines: pytest.LogCaptureFixture
) -> None:
    bench = Bench(config)
    bench.lead(b"x")
    bench.lead(b"x")
    bench.clock.now += 7
    said(lines)
    bench.lead(b"x", timestamp=timestamp)
    entries = 1 if config.index_interval_bytes == 0 else 0
    segment_bytes = config.segment_bytes
    rolled, figures, *_ = said(lines)
    assert rolled == (
        f"{PATH}: rolled to a new segment at offset 2 in 0 ms: {why}; closed segment 0 with {2 * SIZE} bytes"
    )
    assert figures == (
        f"{PATH}: closed segment has {2 * SIZE} of {segment_bytes} bytes, {entries} index entries, opened 7 ms ago"
    )


def test_rolls_for_other_reasons_name_them(lines: pytest.LogCaptureFixture) -> None:
    bench = Bench(LogConfig(retention_ms=1))
    bench.lead(b"x")
    bench.log.roll(Millis(NOW))
    assert "offset 1 in 0 ms: requested; closed" in said(lines, logging.INFO)[0]
    bench.lead(b"x")
    bench.commit()
    bench.log.advance_high_watermark(Offset(2))
    bench.clock.now += 10
    assert delete_old_segments(bench.log, Millis(bench.clock.now)) == 2
    assert "offset 2 in 0 ms: all segments have expired; closed" in said(lines, logging.INFO)[0]


def test_a_flush_is_reported_with_the_offset_and_the_time(lines: pytest.LogCaptureFixture) -> None:
    bench = Bench(replace(SMALL, durability=Durability.PAGE_CACHE))
    bench.commit_log()
    bench.lead(b"x", b"y")
    ticket = bench.log.begin_flush(everything=True)
    assert ticket is not None
    ticket.run()
    bench.clock.now += 12
    said(lines)
    bench.log.finish_flush(ticket)
    assert said(lines) == [f"{PATH}: flushed up to offset 2 in 12 ms, recovery point before: 0"]


def test_a_truncation_is_reported_with_its_offsets(lines: pytest.LogCaptureFixture) -> None:
    bench = Bench(LogConfig(segment_bytes=2 * SIZE))
    for _ in range(5):
        bench.lead(b"x")
    said(lines)
    bench.log.truncate_to(Offset(1))
    assert said(lines) == [
        f"{PATH}: truncating at offset 1, log end 5: keeps segment 0 up to byte {SIZE}",
        f"{PATH}: truncated from log end 5 to 1: removed {4 * SIZE} bytes, 2 segments",
    ]
    bench.log.truncate_to(Offset(1))
    assert said(lines) == [f"{PATH}: nothing to truncate at offset 1: the log ends at 1"]
    bench.log.truncate_fully_and_start_at(Offset(20))
    assert said(lines) == [
        f"{PATH}: emptying the log, to start at offset 20; log end 1",
        f"{PATH}: emptied: had log start 0 and log end 1, has 20 and 20 now",
    ]


def test_at_info_only_rolls_and_truncations_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="storage.log")
    bench = Bench(LogConfig(segment_bytes=2 * SIZE))
    for _ in range(3):
        bench.lead(b"x")
    bench.log.truncate_to(Offset(2))
    bench.log.truncate_to(Offset(2))
    assert [line.split(":")[1].split()[0] for line in said(caplog)] == ["rolled", "truncated"]


def test_a_disabled_level_formats_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: the logger creates no record, and the arguments of the messages are not evaluated."""
    caplog.set_level(logging.WARNING, logger="storage.log")

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a line was made")

    monkeypatch.setattr(logging.Logger, "makeRecord", refuse)
    monkeypatch.setattr("storage.log.log_writer.LogWriter._report", refuse)
    bench = Bench()
    for _ in range(40):
        bench.lead(b"x" * 50)
    assert len(bench.log.segments) > 1
    bench.log.flush()
    bench.log.truncate_to(Offset(3))


def test_messages_are_formatted_only_for_a_handler(lines: pytest.LogCaptureFixture) -> None:
    Bench().lead(b"x")
    records = [record for record in lines.records if record.name == "storage.log"]
    assert records
    assert all(record.args and record.msg.startswith("%s: ") for record in records)
