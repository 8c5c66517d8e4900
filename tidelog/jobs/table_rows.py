"""The rows of a table: the records of a task, with the fields of their values.

A task reads its offset ranges and fits each value to the schema in one pass. A value that does not fit, or that has
more than the schema names, has its bytes and the reason in the column `quarantine`: no value is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from tidelog.jobs.encoded_values import ENCODED
from tidelog.jobs.fitted_values import FittedValue, ValueReader
from tidelog.jobs.framed_values import framed_reader
from tidelog.jobs.json_values import ObjectParser, schema_of
from tidelog.jobs.table_schema import QUARANTINE, VALUE, stored_type, table_columns
from tidelog.spark.options.query_options import QueryOptions
from tidelog.spark.ranges.planning import TaskRanges
from tidelog.spark.ranges.range_batches import range_batches


class JsonReader:
    """Reads JSON objects (json_values.py)."""

    def __init__(self, schema: str) -> None:
        """schema: Spark's JSON. Raises InvalidConfig for a type that no JSON is parsed to."""
        self._parser = ObjectParser(schema_of(schema))
        self.schema = self._parser.schema

    def fit(self, value: bytes) -> FittedValue:
        """The fields of an object."""
        found = self._parser.parse(value)
        return FittedValue(None if found is None else found.fields, self._parser.reason or None)


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How values are read: what a task is sent."""

    name: str
    schema: str
    """The text of the schema, as the reader of the format takes it."""
    schema_id: int | None = None
    """That each value has in front, as a schema registry numbers it; None: values have none."""


READERS: Final[dict[str, Callable[[str], ValueReader]]] = {"json": JsonReader, **ENCODED}


@lru_cache(maxsize=16)
def value_reader(values: ValueFormat) -> ValueReader:
    """The reader of a format. Raises InvalidConfig for a schema that it cannot read."""
    reader = READERS[values.name](values.schema)
    return reader if values.schema_id is None else framed_reader(reader, values.schema_id)


def fit_rows(batch: pa.RecordBatch, reader: ValueReader | None) -> pa.RecordBatch:
    """The rows of a table from records with the columns of the source. reader: None: values stay bytes."""
    columns = table_columns(None if reader is None else reader.schema)
    found = {name: batch.column(name) for name in batch.schema.names}
    if reader is not None:
        values: list[bytes | None] = found[VALUE].to_pylist()
        kind = _arrow(stored_type(reader.schema))
        fitted = [_NOTHING if value is None else reader.fit(value) for value in values]
        try:
            found[VALUE] = pa.array([each.fields for each in fitted], kind)
        except _NO_COLUMN:
            # One value that the column cannot hold must not keep all behind it out of the table.
            fitted = [_held(each, kind) for each in fitted]
            found[VALUE] = pa.array([each.fields for each in fitted], kind)
        quarantined = [
            None if each.reason is None else {"value": value, "reason": each.reason}
            for value, each in zip(values, fitted, strict=True)
        ]
        found[QUARANTINE] = pa.array(quarantined, _arrow(columns[QUARANTINE].dataType))
    return pa.RecordBatch.from_arrays([found[name] for name in columns.names], columns.names)


_NOTHING: Final = FittedValue(None, None)
"""Of a record without a value."""
_NO_COLUMN: Final = (pa.ArrowException, ArithmeticError, ValueError, TypeError)


def _held(fitted: FittedValue, kind: pa.DataType) -> FittedValue:
    """The same, or why a column of the type cannot hold it."""
    try:
        pa.array([fitted.fields], kind)
    except _NO_COLUMN as error:
        return FittedValue(None, f"a column cannot hold it: {error}")
    return fitted


def _arrow(kind: Any) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, timezone="UTC")


class RowTask:
    """What the tasks of a batch do; sent to them."""

    def __init__(self, query: QueryOptions, tasks: Sequence[TaskRanges], values: ValueFormat | None) -> None:
        self._query, self._tasks, self._values = query, tuple(tasks), values

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the tasks with these numbers."""
        reader = None if self._values is None else value_reader(self._values)
        source = tuple(table_columns(None).names)
        for batch in numbers:
            numbered: list[Any] = batch.column(0).to_pylist()
            for number in numbered:
                for records in range_batches(self._query, source, self._tasks[number]):
                    yield fit_rows(records, reader)
