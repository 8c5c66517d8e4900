"""The ledger: a row for each acknowledged record, with the partition and offset in the acknowledgement. Spark compares
it with the topic.

A record is identified by its key and its number `n`, which counts the records of that key from 0 and is sent as a
header. Records written twice are found by it, and the order of the records of a key is checked with it. `crc` is the
checksum of the value.
"""

from __future__ import annotations

import zlib
from array import array
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

NUMBER_HEADER: Final = "n"
ROWS_PER_GROUP: Final = 16_384
"""Rows in memory before they are written. Writing them takes some milliseconds of the event loop."""

_COLUMNS: Final[dict[str, Any]] = {
    "key": pa.string(),
    "n": pa.int64(),
    "crc": pa.int64(),
    "partition": pa.int32(),
    "offset": pa.int64(),
}
SCHEMA: Final = pa.schema(_COLUMNS)


class Numbers:
    """Assigns `n`: for each key 0, 1, 2, ..."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._next)

    def take(self, key: str) -> int:
        number = self._next.get(key, 0)
        self._next[key] = number + 1
        return number


def checksum(value: bytes) -> int:
    """CRC-32 of the value, as Spark's `crc32` computes it."""
    return zlib.crc32(value)


class Ledger:
    """A Parquet file with a row for each acknowledged record. Leaving the `with` block completes the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._writer = pq.ParquetWriter(path, SCHEMA)
        self._start_group()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, key: str, n: int, crc: int, partition: int, offset: int) -> None:
        """Add a record that was acknowledged with this partition and offset."""
        self.rows += 1
        self._keys.append(key)
        self._numbers.append(n)
        self._checksums.append(crc)
        self._partitions.append(partition)
        self._offsets.append(offset)
        if len(self._keys) >= ROWS_PER_GROUP:
            self._write_group()

    def close(self) -> None:
        """Write the remaining rows and complete the file."""
        if self._keys:
            self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        rows = {
            "key": self._keys,
            "n": self._numbers,
            "crc": self._checksums,
            "partition": self._partitions,
            "offset": self._offsets,
        }
        self._writer.write_table(pa.table(rows, schema=SCHEMA))
        self._start_group()

    def _start_group(self) -> None:
        self._keys: list[str] = []
        self._numbers, self._checksums, self._offsets = array("q"), array("q"), array("q")
        self._partitions = array("i")
