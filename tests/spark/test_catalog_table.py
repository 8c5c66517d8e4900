"""The options of a table in SQL reach its queries with its columns."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from tidelog.errors import InvalidConfig
from tidelog.spark.options.catalog_table import (
    created_table,
    ensure_written_by_name,
    query_of_table,
    with_options,
)
from tidelog.spark.options.query_options import parse_batch_options
from tidelog.spark.ranges.schema import full_schema, wanted_columns
from tidelog.spark.source import TidelogDataSource

BOOTSTRAP = "tidelog.bootstrap.servers"
TABLE = {BOOTSTRAP: "a:1", "subscribe": "orders"}
AS_SPARK_PASSES = {
    "provider": "tidelog",
    "owner": "us",
    "comment": "of today",
    "location": "file:/warehouse/orders",
    "path": "file:/warehouse/orders",
    "a.property": "1",
    **TABLE,
    **{f"option.{name}": value for name, value in TABLE.items()},
}
"""What Spark 4.3 passes when a table is created without columns: properties, and each option twice."""


def stored(columns: StructType) -> StructType:
    """The columns as the catalog returns them."""
    return StructType.fromJson(columns.jsonValue())


def test_only_options_are_taken_of_the_properties_of_a_table() -> None:
    assert created_table(AS_SPARK_PASSES) == TABLE
    assert created_table(TABLE) is None, "a frame"


def test_a_query_of_a_table_has_the_tables_options_and_may_add_to_them() -> None:
    columns = stored(TidelogDataSource(AS_SPARK_PASSES).schema())
    assert wanted_columns(columns) == tuple(full_schema().names)
    assert query_of_table({}, columns) == TABLE
    assert query_of_table({"subscribe": "returns", "minPartitions": "3"}, columns) == {
        **TABLE,
        "subscribe": "returns",
        "minpartitions": "3",
    }
    other = {"kafka.bootstrap.servers": "b:1", "assign": '{"orders": [1]}'}
    assert query_of_table(other, columns) == other, "a query that names a cluster says all itself"


@pytest.mark.parametrize(
    ("of_table", "of_query"),
    [
        ({"startingTimestamp": "1767225600000"}, {"startingOffsets": "earliest"}),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 1}}'}, {"startingOffsets": '{"orders": {"0": 5}}'}),
        ({"endingTimestamp": "7"}, {"endingOffsets": "latest"}),
        ({"subscribe": "returns"}, {"subscribePattern": "o.*"}),
    ],
)
def test_what_a_query_says_in_another_way_than_its_table_counts(
    of_table: dict[str, str], of_query: dict[str, str]
) -> None:
    """Before, a time of the table won over offsets of the query, and a second way to select topics was refused."""
    selection = {} if "subscribePattern" in of_query else {"subscribe": "orders"}
    columns = stored(with_options(full_schema(), {**TABLE, **of_table}))
    alone = parse_batch_options({BOOTSTRAP: "a:1", **selection, **of_query})
    assert parse_batch_options(query_of_table(of_query, columns)) == alone


def test_the_columns_of_a_frame_carry_nothing() -> None:
    assert TidelogDataSource(TABLE).schema() == full_schema()
    assert query_of_table(TABLE, full_schema()) == TABLE
    assert with_options(full_schema(["headers"]), {}).names == full_schema(["headers"]).names


def test_a_wrong_option_is_refused_when_the_table_is_created() -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'subscribe'"):
        TidelogDataSource({**AS_SPARK_PASSES, "option.subscribed": "x"}).schema()


def test_what_spark_keeps_to_itself_is_said() -> None:
    with pytest.raises(InvalidConfig, match=r"created with columns.*WITH \('tidelog.bootstrap.servers'"):
        query_of_table({}, full_schema())
    with pytest.raises(InvalidConfig, match=r"INSERT INTO.*frame.write"):
        ensure_written_by_name({})
