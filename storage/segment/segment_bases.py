"""Where the segments of a log begin: one rule for the writer, and for those who tell a hole from lost offsets.

A segment begins at the log end, so that offsets missing before it are lost ones. The exception is a follower of a
compacted log: a hole and the batch behind it may not fit into one segment, whose offsets are 31 bits above its base.
Then the segment begins at that batch, which is more than INT32_MAX - SPAN_MAX above the base of the segment before.
"""

from __future__ import annotations

from typing import Final

from tidelog.types import INT32_MAX, Offset

SPAN_MAX: Final = INT32_MAX // 2
"""The largest difference between the last and the first offset of a batch. A record takes at least 7 bytes, and no
leader holds a batch of 7 GiB; compaction keeps the offsets of a batch."""


def next_base(log_end: Offset, first: Offset, last: Offset) -> Offset:
    """Base offset of a new segment for a batch of these offsets."""
    return log_end if last - log_end <= INT32_MAX else max(first, log_end)


def begins_behind_a_hole(base: Offset, before: Offset) -> bool:
    """Whether a segment at `base` may begin behind a hole. before: base of the segment before it."""
    return base > before + INT32_MAX - SPAN_MAX
