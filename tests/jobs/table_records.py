"""Records as a task of `tidelog job table` reads them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog.jobs.table_schema import table_columns
from tidelog.spark.ranges.schema import TYPES


def records(values: list[bytes | None]) -> pa.RecordBatch:
    """Records as a task reads them."""
    found: dict[str, list[Any]] = {name: [None] * len(values) for name in table_columns(None).names}
    found |= {"partition": [0] * len(values), "offset": list(range(len(values))), "value": values}
    return pa.RecordBatch.from_arrays([pa.array(found[name], TYPES[name][1]) for name in found], list(found))
