"""Options of a table: `CREATE TABLE orders USING tidelog OPTIONS (...)`. Pure.

Spark 4.2 and 4.3 pass the options of a table to a Python source only when the table is created without columns, to ask
for them: each as `option.<name>`, beside the table's other properties. A query of the table gets the stored columns and
the options of its own (`SELECT ... WITH (...)`). So the source keeps the options of the table in the metadata of its
columns, which the catalog stores with them. Options contain no secret (connection_options.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from tidelog.errors import InvalidConfig
from tidelog.spark.options.connection_options import BOOTSTRAP
from tidelog.spark.options.offset_bounds import END_NAMES, START_NAMES
from tidelog.spark.options.option_names import KAFKAS, OURS
from tidelog.spark.options.topic_selection import SELECTION_NAMES

_PREFIX: Final = "option."
"""Of the options among the properties of a table (Spark's TableCatalog.OPTION_PREFIX)."""
_PROVIDER: Final = "provider"
"""A property of each table; no option has this name."""
_STORED: Final = "tidelog.options"
"""The key in the metadata of the first column."""
_OF_ONE_MEANING: Final = tuple(
    frozenset(name.lower() for name in names) for names in (SELECTION_NAMES, START_NAMES, END_NAMES)
)
"""Options that say the same in several ways. A query that gives one of them means it instead of all that its table has:
a `startingTimestamp` of the table would win over a `startingOffsets` of the query."""


def created_table(raw: Mapping[str, str]) -> dict[str, str] | None:
    """The options of the table that is being created; None if Spark asks for the columns of a frame."""
    if _PROVIDER not in raw:
        return None
    return {name.removeprefix(_PREFIX): value for name, value in raw.items() if name.startswith(_PREFIX)}


def with_options(columns: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a table with its options, for the catalog."""
    first, *others = columns.fields
    kept = {**first.metadata, _STORED: json.dumps(dict(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *others])


def query_of_table(raw: Mapping[str, str], columns: StructType) -> dict[str, str]:
    """The options of a query. If it names no cluster, they are added to those of its table, and replace them.

    Raises InvalidConfig for a table that was created with columns: Spark has not passed its options to the source.
    """
    given = {name.lower(): value for name, value in raw.items()}
    if BOOTSTRAP in given or BOOTSTRAP.replace(OURS, KAFKAS, 1) in given:
        return given
    stored = next((field.metadata[_STORED] for field in columns.fields if _STORED in field.metadata), None)
    if stored is not None:
        replaced = {name for names in _OF_ONE_MEANING if names & given.keys() for name in names}
        kept = {name.lower(): value for name, value in json.loads(stored).items() if name.lower() not in replaced}
        return {**kept, **given}
    if given:
        return given
    raise InvalidConfig(
        f'no option given: set at least "{BOOTSTRAP}" and what to read. Spark does not pass the OPTIONS of a table '
        "that was created with columns to a Python source: create it without columns (the source has them), use CREATE "
        f"TEMPORARY VIEW, or name the options in each query: FROM orders WITH ('{BOOTSTRAP}' = 'host:9192', ...)"
    )


def ensure_written_by_name(raw: Mapping[str, str]) -> None:
    """Refuse a write into a table of the catalog, whose options Spark does not pass. raw: the options of a write."""
    if not raw:
        raise InvalidConfig(
            "no option given: Spark does not pass the OPTIONS of a table to a Python sink, so INSERT INTO and CREATE "
            'TABLE ... AS SELECT cannot write to a topic; use frame.write.format("tidelog").mode("append") with '
            f'"{BOOTSTRAP}" and "topic"'
        )
