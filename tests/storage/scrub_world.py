"""A log directory whose closed segments are verified."""

from __future__ import annotations

from dataclasses import replace

from storage.directory.scrub import Scrub
from storage.directory.scrub_segment import Finding
from storage.files.file_system import read_file
from storage.log.log import Log
from storage.segment.segment import LOG_SUFFIX, segment_path
from testbed.fake_disk import FakeDisk
from tests.storage.workbench import NOW, SMALL, Bench, Deferred
from tidelog.errors import TidelogError
from tidelog.types import Millis

WEEK = 604_800_000
SEGMENTS = 5


class World:
    """A log of several segments and epochs, its scrub, and a clock."""

    def __init__(self, *, rate: int = 1 << 20, executor: Deferred | None = None, interval_ms: int = WEEK) -> None:
        self.interval_ms = interval_ms
        self.bench = Bench(replace(SMALL, segment_bytes=1_000))
        self.bench.directory.recent_appends.bytes_max = 0  # reads go to the files
        record = 0
        while len(self.log.segments) < SEGMENTS or self.log.active.size < 500:
            epoch = 2 if record < 20 else 5
            self.bench.lead(b"x" * 50, epoch=epoch, timestamp=NOW + record)
            record += 1
        self.bench.commit()
        self.now = 1_000
        self.findings: list[Finding] = []
        self.troubles: list[TidelogError] = []
        self.scrub = self.new_scrub(rate, executor)

    def new_scrub(self, rate: int, executor: Deferred | None = None) -> Scrub:
        return Scrub(
            self.bench.directory,
            executor or self.bench.directory.executor,
            rate_max=rate,
            interval_ms=self.interval_ms,
            monotonic_ms=lambda: Millis(self.now),
            on_finding=lambda _directory, _log, finding: self.findings.append(finding),
            on_failure=self.troubles.append,
        )

    @property
    def log(self) -> Log:
        return self.bench.log

    @property
    def disk(self) -> FakeDisk:
        return self.bench.disk

    def tick(self, ms: int = 1_000) -> None:
        self.now += ms
        self.scrub.tick(Millis(self.now))

    def path(self, number: int, kind: str = LOG_SUFFIX) -> str:
        segment = self.log.segments[number]
        return segment_path(segment.directory, segment.base_offset, kind)

    def data(self, number: int, kind: str = LOG_SUFFIX) -> bytes:
        data = read_file(self.disk, self.path(number, kind))
        assert data is not None
        return data

    def rot(self, number: int, position: int, *, kind: str = LOG_SUFFIX, bit: int = 0) -> None:
        self.log.segments[number].close()
        self.disk.flip_bit(self.path(number, kind), position, bit)

    def one_round(self) -> list[Finding]:
        self.findings.clear()
        for _ in range(10):
            self.tick()
        assert self.scrub.waiting == 0
        assert self.troubles == []
        return self.findings
