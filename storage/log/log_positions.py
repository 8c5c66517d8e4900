"""The positions of one log, and what its parts share with them: settings, segments, epochs, flushes, producers.

Not here: what a log does (log.py, log_writer.py, log_start.py, log_truncation.py).
"""

from __future__ import annotations

from storage.files.file_system import Files
from storage.log.flush import FlushState
from storage.log.log_damage import LogDamage
from storage.log.log_producers import LogProducers
from storage.log.truncation_ticket import TruncationTicket
from storage.log.validation import append_rules
from storage.log_config import LogConfig
from storage.recovery.loaded import Damage, LoadedLog
from storage.segment.segments import LogSegments
from tidelog.epochs import epoch_before
from tidelog.types import Durability, LeaderEpoch, Offset, TopicId, TopicPartition, WallClock


class LogPositions:
    """Log start <= local log start <= high watermark <= log end, always. Only the methods of this class move them."""

    def __init__(
        self,
        files: Files,
        clock: WallClock,
        path: str,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        loaded: LoadedLog,
        high_watermark: Offset,
        segments: LogSegments,
    ) -> None:
        """Loads the producer state, which may wait for the disk. Raises OSError."""
        self.files, self.clock = files, clock
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.rules = append_rules(config)
        """The topic's requirements for records."""
        self.log_start_offset = loaded.log_start
        self._left_below = loaded.local_log_start
        self.copied_end = Offset(0)
        """The remote tier has everything below it, as the coordinator has told since the start. Segments above it stay,
        unless the log starts above them."""
        self.log_end_offset = loaded.log_end
        self.high_watermark = max(self.local_log_start_offset, min(high_watermark, loaded.log_end))
        self.segments = segments
        """By base offset, the active segment last."""
        self.epochs = loaded.epochs
        self.flush_state = FlushState(files, path, loaded)
        self._fsync = config.durability is Durability.FSYNC
        now = clock.wall_ms()
        self.producers = LogProducers(
            files, path, segments, loaded, config, high_watermark=self.high_watermark, now=now
        )
        self.lost = LogDamage(loaded.damage, self.producers.damage)
        """The damage of the log, and which operations it forbids."""
        self.truncation: TruncationTicket | None = None
        """The truncation in progress."""

    @property
    def damage(self) -> Damage | None:
        """The records that the log has lost; None if it has lost none."""
        return self.lost.damage

    @property
    def local_log_start_offset(self) -> Offset:
        """Offsets between the log start and this one are in the remote tier only."""
        return max(self.log_start_offset, self._left_below)

    @property
    def durable_offset(self) -> Offset:
        """Every offset below it is as durable as the topic promises."""
        return self.flush_state.synced if self._fsync else min(self.flush_state.counted, self.log_end_offset)

    @property
    def recovery_point(self) -> Offset:
        """Everything below it is on the disk. Recovery after a crash reads from here."""
        return self.flush_state.recovery_point

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last record; -1 if there is none."""
        return epoch_before(self.epochs.entries, self.log_end_offset)

    # --- moves of the positions -----------------------------------------------------------------------------------

    def end_at(self, offset: Offset) -> None:
        """The log end is `offset`, after an append or a truncation, or the recovery point has risen."""
        self.log_end_offset, flush = offset, self.flush_state
        if offset - flush.recovery_point < self.config.flush_messages:
            flush.counted = offset
        else:  # the append that reaches `flush.messages`, and those after it, count once their flush has run
            flush.counted = max(flush.counted, flush.recovery_point)
            flush.target = offset

    def truncated_to(self, offset: Offset) -> None:
        """Set the log end to `offset` after a truncation."""
        self.end_at(offset)
        # The truncated records were not committed, and neither are those that are fetched in their place until the
        # leader reports it.
        self._left_below = min(self._left_below, offset)
        self.copied_end = min(self.copied_end, offset)  # what is appended from here on is not copied
        self.high_watermark = max(min(self.high_watermark, offset), self.log_start_offset)

    def restarted_at(self, offset: Offset) -> None:
        """Set all positions to `offset`, where the log starts and ends after it was emptied."""
        self.log_start_offset = offset
        self.truncated_to(offset)

    def restarted_behind(self, log_start: Offset, offset: Offset) -> None:
        """The log was emptied and goes on at `offset`; the records between are in the remote tier, and so committed."""
        self.log_start_offset = log_start
        self.truncated_to(offset)
        self._left_below = self.high_watermark = offset
        self.copied_end = Offset(0)

    def started_at(self, offset: Offset) -> None:
        """Set the log start to `offset`, which is recorded durably already: a crash must not bring back what a reader
        could no longer read."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def locally_started_at(self, offset: Offset) -> None:
        """Set the local log start to `offset`, which is recorded durably already: recovery would take the segments
        below it for lost."""
        self._left_below = max(self._left_below, offset)
