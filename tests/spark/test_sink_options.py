"""Options of the sink that belong together: the number of a batch."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from tidelog.errors import InvalidConfig
from tidelog.spark.sink.sink_options import BATCH_MAX, parse_sink_options
from tidelog.spark.sink.writers import TidelogBatchWriter, TidelogStreamWriter

GIVEN = {"tidelog.bootstrap.servers": "localhost:1", "topic": "t", "tidelog.sink.id": "enrich"}


@pytest.mark.parametrize(("text", "number"), [("0", 0), (" 17 ", 17), (str(BATCH_MAX), 2**63 - 2)])
def test_a_batch_has_a_number(text: str, number: int) -> None:
    assert parse_sink_options({**GIVEN, "tidelog.sink.batch": text}).sink_batch == number
    assert parse_sink_options(GIVEN).sink_batch is None


@pytest.mark.parametrize("text", ["", "-1", "1.0", "first", str(2**63 - 1), "9" * 30])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"option 'tidelog\.sink\.batch' is '.*in foreachBatch the batch id"):
        parse_sink_options({**GIVEN, "tidelog.sink.batch": text})


def test_a_number_needs_a_sink_and_transactions() -> None:
    given = {**GIVEN, "tidelog.sink.batch": "3"}
    del given["tidelog.sink.id"]
    with pytest.raises(InvalidConfig, match=r"name the sink with 'tidelog\.sink\.id'"):
        parse_sink_options(given)
    with pytest.raises(InvalidConfig, match=r"'tidelog\.sink\.batch' has no effect with exactlyOnce"):
        parse_sink_options({**given, "exactlyOnce": "false"})


def test_spark_numbers_the_batches_of_a_stream() -> None:
    given = {**GIVEN, "tidelog.sink.batch": "3"}
    schema = StructType().add("value", "string")
    TidelogBatchWriter(parse_sink_options(given), schema, overwrite=False)
    with pytest.raises(InvalidConfig, match=r"'tidelog\.sink\.batch' is for batch writes, also in foreachBatch"):
        TidelogStreamWriter(parse_sink_options(given), schema, overwrite=False)
