"""The columns of the source: those of Spark's Kafka source, as Spark types and as Arrow types.

Spark does not prune the columns of a Python data source. A caller can name a subset of them, in any order, with
`.schema(...)`; the other columns are not built. The first Arrow batch must match the schema exactly.
Source: Spark's "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

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

HEADERS: Final = "headers"

_HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())]),
)

SPARK_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: _HEADERS_TYPE,
}

ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
}


def full_schema(*, include_headers: bool) -> StructType:
    """Every column of the source; `headers` only with `includeHeaders`, as in Spark's Kafka source."""
    names = [name for name in SPARK_TYPES if include_headers or name != HEADERS]
    return StructType([StructField(name, SPARK_TYPES[name]) for name in names])


def wanted_columns(schema: StructType) -> tuple[str, ...]:
    """The column names of the caller's schema, in its order.

    Raises InvalidConfig for an unknown column or another type.
    """
    for field in schema.fields:
        expected = SPARK_TYPES.get(field.name)
        if expected is None:
            raise InvalidConfig(f"unknown column {field.name!r}; the tidelog source has {', '.join(SPARK_TYPES)}")
        if field.dataType != expected:
            raise InvalidConfig(
                f"column {field.name!r} has type {expected.simpleString()}, but the given schema has "
                f"{field.dataType.simpleString()}; read it with its own type and cast it in the query"
            )
    return tuple(field.name for field in schema.fields)


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The Arrow schema of these columns, all nullable, as Spark requires."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])
