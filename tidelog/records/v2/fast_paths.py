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
from typing import TYPE_CHECKING, Literal

from tidelog.records.v2.chain import follow_chain
from tidelog.records.v2.record import decode_records, located_records, record_list
from tidelog.records.v2.record_check import check_records
from tidelog.records.v2.records_buffer import RecordsBuffer

__all__ = [
    "COMPILED",
    "RecordsBuffer",
    "check_records",
    "decode_records",
    "follow_chain",
    "implementation",
    "is_pure_python_requested",
    "located_records",
    "record_list",
]


def is_pure_python_requested() -> bool:
    """Whether the environment selects the reference."""
    return os.environ.get("TIDELOG_PURE_PYTHON", "0") not in ("", "0")


COMPILED = False
if not TYPE_CHECKING and not is_pure_python_requested():
    try:
        from tidelog.records.v2._chain import follow_chain
        from tidelog.records.v2._reader import check_records, decode_records, located_records, record_list
        from tidelog.records.v2._writer import RecordsBuffer

        COMPILED = True
    except ImportError:  # not compiled here: the reference above stays
        pass


def implementation() -> Literal["compiled", "pure Python"]:
    """Return which implementation this process uses."""
    return "compiled" if COMPILED else "pure Python"
