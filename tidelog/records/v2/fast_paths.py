"""The hot loops of the v2 codec: compiled if available, otherwise the pure-Python reference. Selected once at import.

    decode_records   records of a batch            record.py           _reader.pyx
    record_list      the same, as a list           record.py           _reader.pyx
    located_records  the same, with their topic    record.py           _reader.pyx
    check_records    deep validation               record_check.py     _reader.pyx
    RecordsBuffer    records into a batch          records_buffer.py   _writer.pyx
    follow_chain     consecutive batches           chain.py            _chain.pyx

Invariants: both give the same values, bytes and errors; tests run against both. `TIDELOG_PURE_PYTHON=1` in the
environment selects the reference even if compiled code is available. Arrow columns are selected in arrow_columns.py,
because only they need pyarrow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from tidelog.records.v2 import chain, record, record_check, records_buffer
from tidelog.records.v2.record import Located, Record
from tidelog.types import Buffer, Millis


def is_pure_python_requested() -> bool:
    """Whether the environment selects the reference."""
    return os.environ.get("TIDELOG_PURE_PYTHON", "0") not in ("", "0")


def _decode_records(
    data: Buffer, count: int, base_offset: int, base_timestamp: int, append_time: Millis | None = None
) -> Iterator[Record]:
    return record.decode_records(bytes(data), count, base_offset, base_timestamp, append_time)


def _record_list(
    data: Buffer, count: int, base_offset: int, base_timestamp: int, append_time: Millis | None = None
) -> list[Record]:
    return list(_decode_records(data, count, base_offset, base_timestamp, append_time))


def _located_records(
    data: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: Millis | None,
    first: int,
    kind: type[Located],
    topic: str,
    partition: int,
) -> list[Located]:
    return record.located_records(
        bytes(data), count, base_offset, base_timestamp, append_time, first, kind, topic, partition
    )


if TYPE_CHECKING:
    COMPILED: bool
    decode_records = _decode_records
    record_list = _record_list
    located_records = _located_records
    check_records = record_check.check_records
    RecordsBuffer = records_buffer.RecordsBuffer
    follow_chain = chain.follow_chain
else:
    try:
        if is_pure_python_requested():
            raise ImportError
        from tidelog.records.v2._chain import follow_chain
        from tidelog.records.v2._reader import check_records, decode_records, located_records, record_list
        from tidelog.records.v2._writer import RecordsBuffer

        COMPILED = True
    except ImportError:
        decode_records = _decode_records
        record_list = _record_list
        located_records = _located_records
        check_records = record_check.check_records
        RecordsBuffer = records_buffer.RecordsBuffer
        follow_chain = chain.follow_chain
        COMPILED = False


def implementation() -> Literal["compiled", "pure Python"]:
    """Return which implementation this process uses."""
    return "compiled" if COMPILED else "pure Python"
