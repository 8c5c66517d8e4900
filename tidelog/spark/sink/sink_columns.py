"""The columns of a write: those of Spark's Kafka sink, `timestamp` and `timestampMs`. They are checked once on the
driver; then each Arrow batch becomes the records of each topic in it.

`offset` and `timestampType`, which the source has, are ignored: a frame that was read can be written.
Source: Spark's KafkaWriter.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, StructType

from tidelog.client.many_arrow import columns_of_table
from tidelog.client.many_records import RecordColumns
from tidelog.errors import InvalidConfig, InvalidRecord, TidelogError
from tidelog.records.arrow_columns import TIMESTAMP_MS
from tidelog.spark.sink.sink_options import TOPIC

_IGNORED: Final = ("offset", "timestampType")
_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
    TIMESTAMP_MS: ("bigint",),
    TOPIC: ("string",),
    "partition": ("int",),
}
"""The Spark types of each column."""


class SinkColumns:
    """Which columns a write has. Pickled to the executors."""

    def __init__(self, schema: StructType, topic: str | None) -> None:
        """topic: of all rows, whatever the column `topic` contains; None: it is that column.

        Raises InvalidConfig for a column that is missing, unknown, twice there or of another type.
        """
        names = [field.name for field in schema.fields]
        for field in schema.fields:
            _ensure_valid(field.name, field.dataType, names)
        if "value" not in names:
            raise InvalidConfig(
                f"the frame has no column 'value', which the tidelog sink writes; it has {', '.join(names) or 'none'}: "
                "rename one, or make it with to_json(struct(...))"
            )
        if topic is None and TOPIC not in names:
            raise InvalidConfig(f"no topic given: set the option {TOPIC!r}, or add a column {TOPIC!r} of type string")
        self._topic = topic
        self._names = tuple(name for name in names if name not in (TOPIC, *_IGNORED))

    def records(self, batch: pa.RecordBatch) -> Iterator[tuple[str, RecordColumns]]:
        """Return the rows by topic; rows of one topic keep their order.

        Raises InvalidRecord for a row without a topic, and for a row that no record can be made of InvalidRecord,
        InvalidTimestamp or UnknownTopicOrPartition.
        """
        if not batch.num_rows:
            return
        rows = batch.select(self._names)
        if self._topic is not None:
            yield self._topic, _columns(rows, self._topic)
            return
        topics = batch.column(TOPIC)
        if topics.null_count:
            raise InvalidRecord(
                f"{topics.null_count} of {len(topics)} rows have no topic: fill the column {TOPIC!r}, or set the "
                f"option {TOPIC!r}"
            )
        for name in pc.unique(topics):
            topic = str(name)
            yield topic, _columns(rows.filter(pc.equal(topics, name)), topic)


def _columns(rows: pa.RecordBatch, topic: str) -> RecordColumns:
    try:
        return columns_of_table(rows, None)
    except TidelogError as error:
        raise type(error)(f"a row for topic {topic!r} cannot be written: {error.message}") from error


def _ensure_valid(name: str, kind: DataType, names: list[str]) -> None:
    if names.count(name) > 1:
        raise InvalidConfig(f"the frame has the column {name!r} twice; rename or drop one")
    if name in _IGNORED:
        return
    if name not in _TYPES:
        near = get_close_matches(name.lower(), _TYPES, n=1, cutoff=0.7)
        hint = f"did you mean {near[0]!r}?" if near else f"valid columns: {', '.join(_TYPES)}; drop the others"
        raise InvalidConfig(f"unknown column {name!r} for the tidelog sink; {hint}")
    # A string may have a collation: `string collate UTF8_LCASE`.
    if kind.simpleString().partition(" ")[0] not in _TYPES[name]:
        raise InvalidConfig(
            f"column {name!r} has type {kind.simpleString()}; the tidelog sink writes {' or '.join(_TYPES[name])}: "
            "cast it in the query"
        )
