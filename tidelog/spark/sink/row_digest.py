"""A 64-bit digest of rows that does not depend on their order: the pure-Python reference of the compiled code.

The digest of rows is the sum of the digests of each, modulo 2**64. A row is folded word by word with a multiplication
and a shift. Two different inputs of a task have the same digest once in 2**64 cases, if nobody constructs them.
Invariants: both implementations give the same results, on any machine: a retry may run on another executor.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.client.accumulator import Headers
from tidelog.records.v2.fast_paths import is_pure_python_requested

WORD: Final = (1 << 64) - 1
MULTIPLIER: Final = 0x9E3779B97F4A7C15
"""Odd, with bits all over the word: the golden ratio's."""
NULL: Final = 0xD6E8FEB86659FD93
"""What stands for a null."""


def fold(digest: int, word: int) -> int:
    """Add 64 bits to the digest of a row."""
    digest = (digest ^ word) * MULTIPLIER & WORD
    return digest ^ digest >> 32


def fold_bytes(digest: int, data: bytes | None) -> int:
    """Add a value to the digest of a row: its length, and its bytes as little-endian words, padded with zeros."""
    if data is None:
        return fold(digest, NULL)
    digest = fold(digest, len(data))
    for at in range(0, len(data), 8):
        digest = fold(digest, int.from_bytes(data[at : at + 8], "little"))
    return digest


def _sum_of_rows(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    timestamps: list[int | None] | None,
    partitions: Sequence[int] | None,
    seeds: Sequence[int],
) -> int:
    """Return the sum of the digests of rows. Columns have equal lengths; None: a column of nulls. partitions: -1 stands
    for null. seeds: of each row, or one of all."""
    total = 0
    for row, value in enumerate(values):
        digest = fold_bytes(seeds[0] if len(seeds) == 1 else seeds[row], None if keys is None else keys[row])
        digest = fold_bytes(digest, value)
        time = None if timestamps is None else timestamps[row]
        digest = fold(digest, NULL if time is None else time & WORD)
        digest = fold(digest, NULL if partitions is None or partitions[row] < 0 else partitions[row])
        total += digest
    return total & WORD


if TYPE_CHECKING:
    sum_of_rows = _sum_of_rows
else:
    try:
        if is_pure_python_requested():
            raise ImportError
        from tidelog.spark.sink._row_digest import sum_of_rows
    except ImportError:
        sum_of_rows = _sum_of_rows


def digest_of(
    topic: str,
    values: list[bytes | None],
    keys: list[bytes | None] | None = None,
    headers: list[Headers] | None = None,
    timestamps: list[Any] | None = None,
    partitions: Any = None,
) -> int:
    """Return the digest of rows for a topic: of all that a record is made of."""
    seed = fold_bytes(0, topic.encode())
    if headers is None or not any(headers):
        return sum_of_rows(values, keys, timestamps, partitions, array("Q", [seed]))
    return sum_of_rows(
        values, keys, timestamps, partitions, array("Q", [_with_headers(seed, each) for each in headers])
    )


def _with_headers(seed: int, headers: Headers) -> int:
    for name, value in headers:
        seed = fold_bytes(fold_bytes(seed, name.encode()), value)
    return seed
