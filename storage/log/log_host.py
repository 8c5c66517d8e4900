"""What a log needs of the log directory that it lies in."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from storage.files.clock import WallClock
from storage.files.executor import Executor
from storage.files.file_system import Files
from storage.segment.open_segments import OpenSegments
from tidelog.errors import TidelogError
from tidelog.types import Offset, TopicId, TopicPartition

if TYPE_CHECKING:
    from storage.log.log import Log


class TruncateLog(Protocol):
    """Whose claims fall."""

    log_start_offset: Offset

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def topic_id(self) -> TopicId: ...


class LogHost(Protocol):
    """The directory, as its logs see it."""

    @property
    def files(self) -> Files: ...
    @property
    def clock(self) -> WallClock: ...
    @property
    def rng(self) -> random.Random: ...
    @property
    def open_segments(self) -> OpenSegments:
        """Which closed segments of its logs are open."""
        ...

    @property
    def reader(self) -> Executor:
        """Where reads run that must wait for the disk."""
        ...

    @property
    def offline(self) -> str | None:
        """Why the directory is out of use, None while it is in use."""
        ...

    def fail(self, doing: str, error: OSError) -> TidelogError:
        """Take the directory offline, unless it is merely full. Returns the error to raise."""
        ...

    def stirred(self, log: Log) -> None:
        """Something about the log is another than before: look after it."""
        ...

    def note_durable(self, log: Log) -> None:
        """What the log holds has moved up: write the mark."""
        ...

    def take_room(self, tp: TopicPartition, size: int) -> None:
        """So many bytes are about to be appended to one of its logs. Raises DiskFull below the reserve."""
        ...

    def lowering_marks(self, log: TruncateLog, offset: Offset) -> Callable[[], None]:
        """The directory's files are to claim nothing at or above `offset` any more. Returns what makes that durable,
        for any thread, which raises OSError. Raises OSError."""
        ...

    def moving_log_start(self, log: TruncateLog, offset: Offset) -> Callable[[], None]:
        """The log, of which nothing is left, starts at `offset` now. Returns what makes that durable, as above."""
        ...

    def note_log_start(self, log: Log) -> None:
        """The log starts elsewhere now: make that durable. Raises OSError."""
        ...

    def drop_before(self, log: Log, offset: Offset, done: Callable[[TidelogError | None], None]) -> None:
        """Let the log start at `offset`, and take the segments before that out of it, in the background."""
        ...

    def allow_holes(self, log: Log, end: Offset) -> None:
        """Make durable that segments below `end`, itself below the recovery point, may be emptied. Raises OSError."""
        ...

    def cleaned(self, log: Log) -> Offset | None:
        """Up to where the log was compacted, None where it never was."""
        ...

    def note_cleaned(self, log: Log, offset: Offset) -> None:
        """The log is compacted up to `offset`: make that durable. Raises OSError."""
        ...

    def request_flush(self, log: Log) -> None:
        """Flush the log in the background."""
        ...
