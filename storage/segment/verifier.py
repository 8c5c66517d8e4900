"""The verifier of `.log` files: one walk over the batches that reads every byte and judges each batch.

Recovery, the scrub, the cleaner, the removal of lost records and the dump use it. They differ in what they know about
the segment (`SegmentRules`) and in what they do about a fault; the walk itself continues wherever the next batch can be
located.

Invariants:
  1. One batch is in memory at a time. A length is used only after a comparison with the file's size.
  2. A step without a fault is a complete batch with a correct checksum that continues the log.
Not here: the headers alone (batch_walk.py), indexes (index_check.py), whether a fault is a torn write or damage
(recovery.py, dump/chain.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from storage.files.file_system import File
from storage.segment.batch_walk import BrokenChain, Link, Window, next_header
from tidelog.errors import CorruptRecord, TidelogError
from tidelog.records.batches import view
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.header import HEADER_BYTES, BatchHeader
from tidelog.types import INT32_MAX, LeaderEpoch

_CHUNK_BYTES: Final = 1 << 20
_CANDIDATE: Final = re.compile(rb"(?=\x00\x00.{6}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f].{7}[\x00-\x02])", re.DOTALL)
"""A possible start of a batch: an offset below 2**48, a length of at least 14, a known magic."""


class FaultKind(Enum):
    """What is wrong, and with it which other parts of the batch can be trusted."""

    NO_BATCH = "no batch begins there"
    HEADER = "the header is invalid or does not continue the log: its length may be wrong too"
    CONTENTS = "the header continues the log, but the checksum or the contents are wrong"
    NEXT_SEGMENT = "the checksum is correct, but the base offset, which it does not cover, leads into the next segment"
    EPOCH = "the checksum is correct, but the leader epoch, which it does not cover, is wrong"


class Fault(BrokenChain):
    """A finding of the walk. header: if only the contents or the leader epoch are wrong, the header with the expected
    epoch."""

    def __init__(self, kind: FaultKind, link: Link, reason: str, header: BatchHeader | None = None) -> None:
        super().__init__(link.position, link.next_offset, reason)
        self.kind, self.header = kind, header


class Checked(NamedTuple):
    """A step of the walk."""

    batch: RecordBatch | None
    """None if there is no batch; then `after` is the end of the file. The header's position is that in the file. The
    batch is a view that is valid until the next step."""
    header: BatchHeader | None
    link: Link
    """The chain before the step; `after` is the chain after it."""
    after: Link
    fault: Fault | None


class SegmentRules(NamedTuple):
    """What is known about a segment's batches from other files."""

    base_offset: int
    behind: int
    """Base offset of the next segment."""
    epoch_due: Callable[[BatchHeader], LeaderEpoch]
    """The leader epoch that a batch must have."""
    protected: int | None = None
    """None for a log in use. During a recovery segments may overlap, and every offset below `protected` was durable: no
    hole may reach across it. 0: holes may be anywhere."""

    def fault(self, header: BatchHeader, link: Link) -> Fault | None:
        """What contradicts a batch whose checksum is correct."""
        last_offset, kind, reason = header.last_offset, FaultKind.HEADER, None
        follows = header.base_offset == link.next_offset
        if last_offset >= self.behind and not (follows and self.protected is not None):
            kind = FaultKind.NEXT_SEGMENT
            reason = f"the batch ends at offset {last_offset}, but the next segment begins at {self.behind}"
        elif last_offset - self.base_offset > INT32_MAX:
            reason = f"offset {last_offset} is too far from the base offset {self.base_offset}"
        elif self.protected is not None and link.next_offset < self.protected <= header.base_offset:
            reason = f"the batch starts at offset {header.base_offset}, expected {link.next_offset}"
        elif (due := self.epoch_due(header)) != header.leader_epoch:
            reason = f"the batch has leader epoch {header.leader_epoch}, but the epoch cache has {due} for its offset"
            return Fault(FaultKind.EPOCH, link, reason, header._replace(leader_epoch=due))
        elif self.protected is not None and (reason := falling_epoch(header, link.epoch)) is not None:
            link = link._replace(next_offset=header.base_offset)
        return None if reason is None else Fault(kind, link, reason)


class Gap(NamedTuple):
    """The bytes from `position` to `end` hold no batch."""

    position: int
    end: int
    reason: str
    zeros: bool
    """True if all the bytes are zero."""
    to_the_end: bool
    """True if no batch follows."""


def falling_epoch(header: BatchHeader, before: int) -> str | None:
    """What is wrong if the leader epoch of a v2 batch is below that of the previous batch."""
    if header.magic != 2 or header.leader_epoch >= before:
        return None
    return f"the batch has leader epoch {header.leader_epoch}, below the previous epoch {before}"


def verify(file: File, link: Link, rules: SegmentRules | None = None, *, chained: bool = True) -> Iterator[Checked]:
    """The batches from `link` on, each read completely and judged. Ends after bytes that are no batch. chained: every
    batch must continue the log. Raises OSError."""
    window = Window(file, link.end, _CHUNK_BYTES)
    while link.position < link.end:
        fault = None
        try:
            header, problem = next_header(window, link)
            data, at = window.at(link.position, header.size)
            if at + header.size > len(data):
                raise link.broken(f"the file ended at byte {link.position + len(data) - at} while it was being read")
        except BrokenChain as broken:
            fault = Fault(FaultKind.NO_BATCH, link, broken.reason)
            yield Checked(None, None, link, link._replace(position=link.end), fault)
            return
        batch = view(data, header._replace(position=at))
        after = link.behind(header) if chained else link._replace(position=header.end)
        if problem is not None:
            fault = Fault(FaultKind.HEADER, link, problem)
            after = after._replace(next_offset=max(after.next_offset, link.next_offset))
        else:
            try:
                batch.ensure_valid()
                fault = None if rules is None else rules.fault(header, link)
            except CorruptRecord as error:
                fault = Fault(FaultKind.CONTENTS, link, error.message, header)
                if (
                    rules is not None and header.last_offset - rules.base_offset > INT32_MAX
                ):  # nor are the offsets right
                    fault = Fault(FaultKind.HEADER, link, error.message)
            except TidelogError as error:
                fault = Fault(FaultKind.HEADER, link, error.message)
            if fault is not None and fault.kind is FaultKind.NEXT_SEGMENT and rules is not None:
                # The records follow the previous batch, whatever the base offset says.
                count = header.last_offset_delta + 1
                after = after._replace(next_offset=min(link.next_offset + count, rules.behind))
        yield Checked(batch, header, link, after, fault)
        link = after


def sound_batches(file: File, link: Link, rules: SegmentRules | None = None) -> Iterator[RecordBatch]:
    """The batches from `link` on; views, each valid until the next step. Raises Fault, OSError."""
    for batch, _, _, _, fault in verify(file, link, rules):
        if fault is not None:
            raise fault
        assert batch is not None
        yield batch


def first_fault(file: File, link: Link) -> Fault | None:
    """The first fault from `link` on. Raises OSError."""
    return next((step.fault for step in verify(file, link) if step.fault is not None), None)


def is_sound(file: File, header: BatchHeader) -> bool:
    """True if the batch with this header has a correct checksum. Otherwise its length may be wrong too."""
    return first_fault(file, Link(header.position, header.end, header.base_offset)) is None


def verify_around_gaps(file: File, size: int) -> Iterator[Checked | Gap]:
    """The batches of a file of any origin, by their own bytes alone. After bytes that are no batch, the walk continues
    at the next batch with a correct checksum. Raises OSError."""
    link = Link(0, size, 0)
    while link.position < size:
        for step in verify(file, link, chained=False):
            if step.batch is None:
                assert step.fault is not None
                following = _next_batch(file, step.link.position + 1, size)
                end = size if following is None else following
                zeros = _only_zeros(file, step.link.position, end)
                yield Gap(step.link.position, end, step.fault.reason, zeros, following is None)
                link = Link(end, size, 0)
            else:
                yield step
                link = step.after


def _next_batch(file: File, position: int, size: int) -> int | None:
    """Start of the next batch with a correct checksum, at or after a byte."""
    while position < size:
        chunk = file.pread(_CHUNK_BYTES + HEADER_BYTES, position)
        for candidate in _CANDIDATE.finditer(chunk):
            link = Link(position + candidate.start(), size, 0)
            with suppress(BrokenChain):
                header = link.read(chunk, candidate.start())
                if header is not None and is_sound(file, header):
                    return link.position
        position += _CHUNK_BYTES
    return None


def _only_zeros(file: File, position: int, end: int) -> bool:
    while position < end:
        chunk = file.pread(min(_CHUNK_BYTES, end - position), position)
        if not chunk or chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True
