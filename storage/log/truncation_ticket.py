"""The part of a truncation that waits for the disk: it runs on any thread (log_truncation.py describes the steps).

Invariants: `run` accesses only files, through its own handles and objects. Recorded offsets are lowered before anything
is removed, and bytes are removed before epochs.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from storage.files.file_system import File, Files, remove_files, sync_all, write_file
from storage.log.log_producers import ProducersAfterTruncation
from storage.producers.snapshot_files import snapshot_path
from storage.segment.agreed_indexes import remove_agreements
from storage.segment.epoch_cache import EpochFile
from storage.segment.segment import ALL_SUFFIXES, LOG_SUFFIX, LogSegment, segment_path
from tidelog.types import EpochStart, Offset


@dataclass(frozen=True, slots=True)
class RemotePart:
    """What a log knows of its records that only the remote tier has, if its local part begins behind them."""

    log_start: Offset
    epochs: tuple[EpochStart, ...]
    """Their leader epochs; the first begins at the log start."""
    producers: bytes
    """The producers as of their end, as in a .snapshot file, whose checksum is right."""


@dataclass(slots=True, eq=False)
class TruncationTicket:
    """A truncation in progress. `end`: the new log end."""

    end: Offset
    files: Files
    directory: str
    lower_claims: Callable[[], None]
    to_remove: list[str]
    """Files to remove, in this order, if they exist."""
    keep_only: frozenset[str] | None
    """Segment files with other names are removed too: loading left them behind damage. None: there are none."""
    epoch_file: EpochFile
    epoch_version: int
    epochs: tuple[EpochStart, ...] | None
    """The remaining epoch entries. None: the file has them already."""
    free_names: Callable[[], None]
    """Renames the files of old segments that left the log, unless that was done."""
    begun: bool = False
    """True once something may have been removed."""

    def run(self) -> None:
        """Run the next step. Any thread. Raises OSError."""
        self.free_names()
        self.lower_claims()
        self.begun = True
        gone = remove_agreements(self.files, self.directory)
        gone |= remove_files(self.files, (*self.to_remove, *self._leftovers()))
        if gone:
            self.files.sync_directory(self.directory)
        self._truncate()

    def _leftovers(self) -> list[str]:
        if self.keep_only is None:
            return []
        paths = (f"{self.directory}/{name}" for name in self.files.list(self.directory) if name.endswith(ALL_SUFFIXES))
        return [path for path in paths if path not in self.keep_only]

    def _truncate(self) -> None:
        raise NotImplementedError

    def release(self) -> None:
        """Close the handles."""


@dataclass(slots=True, eq=False, kw_only=True)
class Shortening(TruncationTicket):
    """A truncation after which `last` is the last segment, truncated at byte `position`. `handle`: its file, shared."""

    last: LogSegment
    position: int
    handle: File
    producers: ProducersAfterTruncation

    def _truncate(self) -> None:
        self.handle.truncate(self.position)
        sync_all([self.handle])
        if self.epochs is not None:
            self.epoch_file.write(self.epoch_version, self.epochs)
        self.producers.read()

    def release(self) -> None:
        self.handle.close()


@dataclass(slots=True, eq=False, kw_only=True)
class Emptying(TruncationTicket):
    """A truncation that empties the log: it then starts and ends at `end`. move_start: makes the new start durable
    after everything is removed. remote: records below `end` are in the remote tier, and the log starts with them."""

    move_start: Callable[[], None] | None = None
    remote: RemotePart | None = None

    def run(self) -> None:
        if self.move_start is None:
            TruncationTicket.run(self)
            return
        if self.remote is not None:
            # Before the starts: a log that starts behind copied records without their epochs and producers would take
            # a batch twice, and agree with any leader. Without the starts, the next load ignores both files.
            write_file(self.files, snapshot_path(self.directory, self.end), self.remote.producers)
            self.epoch_file.write(self.epoch_version + 1, self.remote.epochs)
        self.move_start()
        self.files.open(segment_path(self.directory, self.end, LOG_SUFFIX), create=True).close()
        self.files.sync_directory(self.directory)

    def _truncate(self) -> None:
        self.epoch_file.write(self.epoch_version, ())


def reported_error(ticket: TruncationTicket, error: OSError) -> OSError:
    """The error to report for one of `run` or `proceed`: a full disk counts as failed once a file may be gone."""
    if not ticket.begun:
        return error
    return OSError(errno.EIO, f"{'emptying' if isinstance(ticket, Emptying) else 'truncating'} failed halfway: {error}")
