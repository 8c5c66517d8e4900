"""The operations of a log directory that its logs use."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from storage.files.clock import WallClock
from storage.files.executor import Executor
from storage.files.file_system import Files
from storage.log.recent_appends import RecentAppends
from storage.log.directory_claims import DirectoryClaims
from storage.segment.open_segments import OpenSegments
from tidelog.errors import TidelogError
from tidelog.types import Offset, TopicPartition

if TYPE_CHECKING:
    from storage.log.log import Log


class LogHost(Protocol):
    @property
    def files(self) -> Files: ...
    @property
    def clock(self) -> WallClock: ...
    @property
    def rng(self) -> random.Random: ...
    @property
    def claims(self) -> DirectoryClaims:
        """The offsets that the directory's files record about its logs."""

    @property
    def open_segments(self) -> OpenSegments:
        """Tracks which closed segments of its logs are open."""

    @property
    def recent_appends(self) -> RecentAppends:
        """The batches that its logs appended last."""
        ...

    @property
    def reader(self) -> Executor:
        """The executor for reads that wait for the disk."""

    @property
    def offline(self) -> str | None:
        """The reason why the directory is offline; None while it is online."""

    def fail(self, doing: str, error: OSError) -> TidelogError:
        """Take the directory offline, unless its disk is only full. Returns the error to raise."""

    def stirred(self, log: Log) -> None:
        """The state of the log changed: maintenance must look at it."""

    def note_durable(self, log: Log) -> None:
        """The log's durable offset rose: write its mark."""

    def take_room(self, tp: TopicPartition, size: int) -> None:
        """Reserve free space for an append of `size` bytes to one of its logs. Raises DiskFull below the reserve."""

    def drop_before(self, log: Log, offset: Offset, done: Callable[[TidelogError | None], None]) -> None:
        """Set the log start to `offset` and remove the segments before it, in the background."""

    def request_flush(self, log: Log) -> None: ...
