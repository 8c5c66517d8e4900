"""The columns of the source: those of Spark's Kafka source, as Spark types and as Arrow types.

Spark does not prune the columns of a Python data source. A caller can name a subset of them, in any order, with
`.schema(...)`; the other columns are not built. The first Arrow batch must match the schema exactly.
Source: Spark's "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.errors import InvalidConfig
from tidelog.records.arrow_columns import TIMESTAMP_MS, table_type

HEADERS: Final = "headers"

_HEADER_TYPE: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SPARK_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(_HEADER_TYPE),
    TIMESTAMP_MS: LongType(),
}
OPTIONAL: Final = (HEADERS, TIMESTAMP_MS)
"""The columns that an option asks for: `includeHeaders`, `includeTimestampMs`."""
TYPES: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    name: (kind, table_type(name)) for name, kind in _SPARK_TYPES.items()
}
"""The Spark type and the Arrow type of each column."""


def full_schema(wanted: Collection[str] = ()) -> StructType:
    """Every column of the source; of the OPTIONAL ones those that are wanted."""
    columns = [(name, spark) for name, (spark, _) in TYPES.items() if name not in OPTIONAL or name in wanted]
    return StructType([StructField(name, spark) for name, spark in columns])


def wanted_columns(schema: StructType) -> tuple[str, ...]:
    """The column names of the caller's schema, in its order.

    Raises InvalidConfig for an unknown column or another type.
    """
    for field in schema.fields:
        if field.name not in TYPES:
            raise InvalidConfig(f"unknown column {field.name!r}; the tidelog source has {', '.join(TYPES)}")
        expected, _ = TYPES[field.name]
        if field.dataType != expected:
            raise InvalidConfig(
                f"column {field.name!r} has type {expected.simpleString()}, but the given schema has "
                f"{field.dataType.simpleString()}; read it with its own type and cast it in the query"
            )
    return tuple(field.name for field in schema.fields)
