"""What a node's loop may ask of its disks by itself, and what that costs it.

Everything else on the loop stops all of a node for as long as the disk takes: a world in which it happens fails.

Kept true: each function that may is named here once, with the operations and the reason; a call counts for the
innermost function of the product that is named.
Left to others: what work beside the loop does (executor.py).
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
"""What each operation costs the loop, at least and at most, on a disk that is not slow."""

WATCHED: Final = frozenset({"write", "rename", "remove", "sync", "sync_directory"})
"""What only the functions below may do there."""

PRODUCT: Final = ("/storage/", "/node/", "/replication/")


class Allowed(NamedTuple):
    """What a function may do on the loop, and why."""

    operations: frozenset[str]
    reason: str


def _may(operations: str, reason: str) -> Allowed:
    return Allowed(frozenset(operations.split()), reason)


DISK: Final = "write rename remove sync sync_directory"

ALLOWED: Final[dict[str, Allowed]] = {
    # Into the page cache, as fast as memory.
    "storage/segment/segment:LogSegment.append": _may(
        "write", "an append, of which a flush beside the loop makes more"
    ),
    "storage/segment/transaction_index:TransactionIndex.append": _may("write", "the same, of an aborted transaction"),
    "storage/checkpoints/durable_offsets:DurableOffsets.put": _may(
        "write", "a mark of what has been made durable; not fsynced as it rises"
    ),
    "storage/log/log_writer:LogWriter.roll": _may(
        "write rename remove", "once a segment: snapshots, which are not fsynced"
    ),
    "storage/producers/aborted_transactions:AbortedTransactions._put_right": _may(
        "write rename remove", "an index that has rotted"
    ),
    # Seldom, and of few files.
    "storage/log/log_truncation:LogTruncator._shorten": _may(
        "write rename remove", "the index of aborted transactions, after a cut"
    ),
    "node/metadata/metadata_log:MetadataLog.truncate_to": _may(
        DISK, "a voter's own log: nothing goes on before it is cut"
    ),
    "node/metadata/metadata_log:MetadataLog.install_snapshot": _may(
        DISK, "the same, where the leader's log begins later"
    ),
    "storage/directory/scrub:Scrub._end": _may("rename remove", "an index that was built anew to compare with"),
    "storage/compaction/cleaning:Cleaning.remove_files": _may("remove", "a cleaning that is given up"),
    "storage/log/log:Log.truncate_fully_and_start_at": _may(
        DISK, "an empty log takes the batch that its start lies within"
    ),
    "storage/log/log_start:LogStart.replace": _may(
        DISK, "cleaned segments take the place of others, between two reads"
    ),
    "storage/directory/directory_claims:DirectoryClaims.note_cleaned": _may(
        DISK, "the end of that: how far a log is cleaned"
    ),
    "storage/log/log_writer:LogWriter.write": _may(
        "write rename sync sync_directory", "the epoch file, before messages of v0 or v1"
    ),
}
"""By function."""

_names: dict[CodeType, Allowed | None] = {}


def name_of(code: CodeType) -> str:
    """As in `ALLOWED`: the path below the root, without its ending, and the function's own name."""
    for root in PRODUCT:
        _, found, rest = code.co_filename.rpartition(root)
        if found:
            return f"{root[1:]}{rest.removesuffix('.py')}:{code.co_qualname}"
    return ""


def forbidden(operation: str) -> str | None:
    """Who calls the disk on the loop and may not: the functions of the product, innermost first; None: all is well."""
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
