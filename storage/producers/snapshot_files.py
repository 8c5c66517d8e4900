"""The names of producer snapshots, Kafka's .snapshot files: one is written at each roll and one at a clean stop.

Not here: their bytes (tidelog/records/producer_snapshot.py).
"""

from __future__ import annotations

from typing import Final

from tidelog.types import Offset

SNAPSHOT_SUFFIX: Final = ".snapshot"


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> Offset | None:
    """The offset in the name of a snapshot file, None for any other file."""
    digits = name.removesuffix(SNAPSHOT_SUFFIX)
    if len(digits) != 20 or len(name) != 20 + len(SNAPSHOT_SUFFIX) or not (digits.isascii() and digits.isdigit()):
        return None
    return Offset(int(digits))
