"""The disk calls that a node's event loop may make itself, and what they cost.

Any other disk call on the loop blocks the whole node for the duration of the call: a world in which one happens fails.

Invariants: each allowed function is named here once, with its operations and the reason. A call belongs to the
innermost function of the product that is named. Not here: work of the executors (executor.py).
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Final, NamedTuple

COSTS_US: Final = {
    "write": (3, 30),
    "truncate": (5, 50),
    "rename": (10, 100),
    "remove": (10, 100),
    "sync": (200, 4_000),
    "sync_directory": (200, 4_000),
}
"""What each operation costs the loop in microseconds, least and most, on a disk that is not slow."""

WATCHED: Final = frozenset({"write", "rename", "remove", "sync", "sync_directory"})
"""Operations that only the functions below may use on the loop."""

PRODUCT: Final = ("/storage/", "/node/", "/replication/")


class Allowed(NamedTuple):
    """The operations that a function may use on the loop, and the reason."""

    operations: frozenset[str]
    reason: str


def _may(operations: str, reason: str) -> Allowed:
    return Allowed(frozenset(operations.split()), reason)


DISK: Final = "write rename remove sync sync_directory"

ALLOWED: Final[dict[str, Allowed]] = {
    # Writes into the page cache, as fast as memory.
    "storage/segment/segment:LogSegment.append": _may("write", "an append; a flush on an executor makes it durable"),
    "storage/segment/transaction_index:TransactionIndex.append": _may("write", "an append, of an aborted transaction"),
    "storage/checkpoints/durable_offsets:DurableOffsets.put": _may(
        "write", "a durable mark; not fsynced when it advances"
    ),
    "storage/log/log_writer:LogWriter.roll": _may("write rename remove", "once per segment: snapshots, not fsynced"),
    "storage/producers/aborted_transactions:AbortedTransactions._repair": _may(
        "write rename remove", "a corrupt index"
    ),
    # Rare calls on few files.
    "storage/log/log_truncation:LogTruncator._shorten": _may(
        "write rename remove", "the index of aborted transactions, at a truncation"
    ),
    "node/metadata/metadata_log:MetadataLog.truncate_to": _may(
        DISK, "a voter's metadata log: nothing continues before its truncation"
    ),
    "node/metadata/metadata_log:MetadataLog.install_snapshot": _may(DISK, "the same, if the leader's log starts later"),
    "storage/directory/scrub:Scrub._end": _may("rename remove", "an index that was rebuilt for comparison"),
    "storage/compaction/cleaning:Cleaning.remove_files": _may("remove", "a cancelled cleaning"),
    "storage/log/log:Log.truncate_fully_and_start_at": _may(
        DISK, "an empty log gets the batch that contains its start"
    ),
    "storage/log/log_start:LogStart.replace": _may(DISK, "cleaned segments replace others, between two reads"),
    "storage/log/directory_claims:DirectoryClaims.note_cleaned": _may(
        DISK, "after that: the offset up to which a log is cleaned"
    ),
    "storage/segment/segments:LogSegments._take_back": _may("remove sync_directory", "a roll that failed"),
    "storage/segment/segment:LogSegment._rebuild_durably": _may(
        DISK, "indexes that contradict their log: one segment's, with their names"
    ),
    "storage/log/log_writer:LogWriter.write": _may(
        "write rename sync sync_directory", "the epoch file, before messages of v0 or v1"
    ),
}
"""By function."""

_names: dict[CodeType, Allowed | None] = {}


def name_of(code: CodeType) -> str:
    """The key in `ALLOWED`: the path below the root without its extension, and the function's qualified name."""
    for root in PRODUCT:
        _, found, rest = code.co_filename.rpartition(root)
        if found:
            return f"{root[1:]}{rest.removesuffix('.py')}:{code.co_qualname}"
    return ""


def forbidden(operation: str) -> str | None:
    """The callers of a forbidden disk call on the loop: functions of the product, innermost first; None if the call
    is allowed."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        allowed = _names.get(code)
        if allowed is None and code not in _names:
            allowed = _names[code] = ALLOWED.get(name_of(code))
        if allowed is not None and operation in allowed.operations:
            return None
        frame = frame.f_back
    return " < ".join(_callers(sys._getframe(2)))


def _callers(frame: FrameType | None) -> list[str]:
    found = []
    while frame is not None:
        if name := name_of(frame.f_code):
            found.append(name)
        frame = frame.f_back
    return found
